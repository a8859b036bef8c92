//! **The import policy.** What a store does with each part of a bundle that another store gave.
//!
//! A store loads what it has of a tool, a method's programs, a role's events or a session, asks the function for it,
//! and writes what that says. Nothing that a person decided here and nothing newer is ever replaced.

use std::collections::BTreeSet;

use crate::artifact::Trigger;
use crate::example::Example;
use crate::pattern::{MAX_EVENTS, PatternEvent};
use crate::program::Checksum;
use crate::session_policy::first_version;
use crate::standing::Standing;
use crate::version_policy::{ArtifactRow, MAX_VERSIONS};

/// What is stored of an imported version where the bundle does not say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnstatedVersion {
    /// How far it has proved itself: it ran elsewhere, and must prove itself here.
    pub standing: Standing,
    /// Why it was written.
    pub trigger: Trigger,
    /// Whether its value depends on its inputs alone: not known, so it is not tried on recorded calls.
    pub pure: bool,
}

/// What is stored of an imported version where the bundle does not say it.
pub const UNSTATED: UnstatedVersion =
    UnstatedVersion { standing: Standing::Probation, trigger: Trigger::Fresh, pure: false };

/// Which of two tools of one name is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolImport {
    /// The store has none.
    Added,
    /// The offered one was used later.
    Later,
    /// Both are the same.
    Same,
    /// The one here was used later, or at the same time.
    Older,
}

/// An import offers a tool. `here` says when the one of the store was used last, and whether it is the same in all
/// else too.
pub fn tool(last_used_at: &str, here: Option<(&str, bool)>) -> ToolImport {
    match here {
        None => ToolImport::Added,
        Some((_, true)) => ToolImport::Same,
        Some((here, false)) if here >= last_used_at => ToolImport::Older,
        Some(_) => ToolImport::Later,
    }
}

/// The versions of an artifact that an import compares.
#[derive(Debug, Clone, Copy)]
pub struct ImportSide<'a> {
    /// The one that runs.
    pub current: &'a Checksum,
    /// All of them, oldest first.
    pub versions: &'a [Checksum],
}

/// What an import does to the versions of one artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramImport {
    /// The store has none, so all are added.
    Added,
    /// They follow on the version that runs, and replace what is stored.
    Follows,
    /// The same version runs already.
    Same,
    /// A newer version runs already.
    Older,
    /// The version that runs is pinned.
    KeptForPinned,
    /// A person rejected the version that would run.
    KeptRejected,
    /// Neither side is a later version of the other.
    Unrelated,
}

/// An import offers the versions of an artifact; `rejected` are the programs of the method that people rejected here.
pub fn programs(
    offered: ImportSide<'_>,
    here: Option<(&ArtifactRow, ImportSide<'_>)>,
    rejected: &[Checksum],
) -> ProgramImport {
    let is_rejected = rejected.contains(offered.current);
    match here {
        Some((_, here)) if here.current == offered.current => ProgramImport::Same,
        Some((_, here)) if here.versions.contains(offered.current) => ProgramImport::Older,
        None | Some(_) if is_rejected => ProgramImport::KeptRejected,
        None => ProgramImport::Added,
        Some((_, here)) if !offered.versions.contains(here.current) => ProgramImport::Unrelated,
        Some((row, _)) if row.pinned => ProgramImport::KeptForPinned,
        Some(_) => ProgramImport::Follows,
    }
}

/// The rows that imported versions become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedVersions {
    /// The number of the version that runs.
    pub current: u64,
    /// The highest number that was ever given; the next program gets a higher one.
    pub generations: u64,
    /// Of each version that is kept: its index among those offered, and whether it is rejected here.
    pub kept: Vec<(usize, bool)>,
}

/// The versions of an artifact are taken: `offered` by number and checksum, `current` the one that runs, `generations`
/// the count that came with them. The one that runs is kept, and the newest others, as many as a store keeps. What a
/// person rejected here stays rejected.
pub fn imported_versions(
    offered: &[(u64, &Checksum)],
    current: &Checksum,
    generations: u64,
    rejected: &[Checksum],
) -> ImportedVersions {
    let is_current = |checksum: &Checksum| checksum == current;
    let newer_than = |number: u64| {
        let newer =
            |(other, checksum): &&(u64, &Checksum)| *other > number && !is_current(checksum);
        offered.iter().filter(newer).count()
    };
    let is_kept = |(_, (number, checksum)): &(usize, &(u64, &Checksum))| {
        is_current(checksum) || newer_than(*number) < MAX_VERSIONS - 1
    };
    let kept = offered.iter().enumerate().filter(is_kept);
    let running = offered.iter().find(|(_, checksum)| is_current(checksum));
    let newest = offered.iter().map(|(number, _)| *number).max().unwrap_or(0);
    ImportedVersions {
        current: running.map_or(0, |(number, _)| *number),
        generations: newest.max(generations),
        kept: kept.map(|(index, (_, checksum))| (index, rejected.contains(checksum))).collect(),
    }
}

/// The offered examples to add: those of calls that have none here. Examples that people gave here stay.
pub fn examples<'a>(
    offered: &'a [Example],
    here: &'a [Example],
) -> impl Iterator<Item = &'a Example> {
    offered.iter().filter(|offered| here.iter().all(|known| known.inputs != offered.inputs))
}

/// The events of a role after an import: those of both sides by time, each call once, and only the latest. Each has the
/// mark of its session; an imported one belongs to no session of this store, so nothing here corrects it.
/// `None`: nothing changes.
pub fn events(
    offered: &[&PatternEvent],
    here: &[(String, PatternEvent)],
) -> Option<Vec<(String, PatternEvent)>> {
    let mut calls: BTreeSet<&str> = here.iter().map(|(_, event)| event.call_id.as_str()).collect();
    let new = offered.iter().filter(|event| calls.insert(&event.call_id));
    let new = new.map(|event| (event.trace_id.clone(), (*event).clone()));
    let mut events: Vec<(String, PatternEvent)> = here.iter().cloned().chain(new).collect();
    events.sort_by_key(|(_, event)| event.recorded_at_ms);
    events.drain(..events.len().saturating_sub(MAX_EVENTS));
    (events != here).then_some(events)
}

/// One side's part of a session that both stores have.
#[derive(Debug, Clone, Copy)]
pub struct SessionSide<'a> {
    /// The version of its memory.
    pub version: u64,
    /// When it was last written to; RFC 3339, UTC.
    pub updated_at: &'a str,
    /// The ids of the calls in its history.
    pub calls: &'a [&'a str],
}

impl SessionSide<'_> {
    /// Whether its history has all calls of the other side.
    fn has_calls_of(&self, other: &Self) -> bool {
        let known: BTreeSet<&str> = self.calls.iter().copied().collect();
        other.calls.iter().all(|call| known.contains(call))
    }
}

/// What an import does to one agent's part in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionImport {
    /// The store has none; its memory gets this version.
    Added(u64),
    /// It was written to later than the one here and has all its calls, so it replaces that; its memory gets this version.
    Follows(u64),
    /// Both are the same.
    Same,
    /// The one here was written to later, or at the same time, and has all its calls.
    Older,
    /// Each has calls that the other does not.
    Unrelated,
}

/// An import offers an agent's part in a session. `here` is the one of the store, and whether it is the same in all else
/// too. No process may take its new memory for one that it knows: the version is above the one here, and at least the
/// store's `floor`, which is above that of every session that was removed.
pub fn session(
    offered: SessionSide<'_>,
    here: Option<(SessionSide<'_>, bool)>,
    floor: u64,
) -> SessionImport {
    let here = match here {
        None => return SessionImport::Added(offered.version.max(first_version(floor))),
        Some((_, true)) => return SessionImport::Same,
        Some((here, false)) => here,
    };
    let is_later = offered.updated_at > here.updated_at;
    if is_later && offered.has_calls_of(&here) {
        SessionImport::Follows(offered.version.max(here.version + 1).max(floor))
    } else if !is_later && here.has_calls_of(&offered) {
        SessionImport::Older
    } else {
        SessionImport::Unrelated
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_two_tools_the_one_that_was_used_later_is_kept() {
        for (here, expected) in [
            (None, ToolImport::Added),
            (Some(("2026-02-01", true)), ToolImport::Same),
            (Some(("2026-02-01", false)), ToolImport::Older),
            (Some(("2026-03-01", false)), ToolImport::Older),
            (Some(("2026-01-01", false)), ToolImport::Later),
        ] {
            assert_eq!(tool("2026-02-01", here), expected, "{here:?}");
        }
    }

    #[test]
    fn programs_replace_only_what_they_follow_on_and_never_what_a_person_decided() {
        let [a, b, c] = ["a", "b", "c"].map(Checksum::of);
        let side = |current, versions| ImportSide { current, versions };
        let (first, both) = (vec![a.clone()], vec![a.clone(), b.clone()]);
        let running = ArtifactRow { current: 1, ..ArtifactRow::default() };
        let pinned = ArtifactRow { pinned: true, ..running };
        let offered = side(&b, &both);
        let import = |row: &ArtifactRow, here, rejected: &[Checksum]| {
            programs(offered, Some((row, here)), rejected)
        };
        assert_eq!(programs(offered, None, &[]), ProgramImport::Added);
        assert_eq!(programs(offered, None, &both), ProgramImport::KeptRejected);
        assert_eq!(import(&running, side(&a, &first), &[]), ProgramImport::Follows);
        assert_eq!(import(&running, side(&a, &first), &first), ProgramImport::Follows);
        assert_eq!(import(&pinned, side(&a, &first), &[]), ProgramImport::KeptForPinned);
        assert_eq!(import(&running, side(&a, &first), &both), ProgramImport::KeptRejected);
        assert_eq!(import(&running, side(&b, &both), &[]), ProgramImport::Same);
        assert_eq!(import(&running, side(&a, &both), &[]), ProgramImport::Older);
        let other = vec![c.clone()];
        assert_eq!(import(&running, side(&c, &other), &[]), ProgramImport::Unrelated);
    }

    #[test]
    fn the_running_version_and_the_newest_others_are_kept_and_rejections_stay() {
        let checksums: Vec<Checksum> = (1..=40).map(|n| Checksum::of(&n.to_string())).collect();
        let offered: Vec<(u64, &Checksum)> = (1..).zip(&checksums).collect();
        let rejected = [checksums[39].clone()];
        let made = imported_versions(&offered, &checksums[0], 7, &rejected);
        assert_eq!((made.current, made.generations, made.kept.len()), (1, 40, MAX_VERSIONS));
        assert_eq!((made.kept[0], made.kept[1]), ((0, false), (31, false)));
        assert_eq!(made.kept.last(), Some(&(39, true)));
        let counted = imported_versions(&offered[..2], &checksums[1], 7, &[]);
        assert_eq!((counted.current, counted.generations), (2, 7), "a number is given only once");
    }

    #[test]
    fn examples_are_added_only_of_calls_that_have_none() {
        let example = |arg, value| Example::parse(&json!({"args": [arg], "value": value})).unwrap();
        let (here, offered) = ([example(1, 2)], [example(1, 3), example(2, 4)]);
        let added: Vec<_> = examples(&offered, &here).collect();
        assert_eq!(added, [&offered[1]]);
    }

    #[test]
    fn events_are_merged_by_time_each_call_once() {
        let event = |call: &str, at: u64| PatternEvent {
            call_id: call.to_owned(),
            trace_id: "t".to_owned(),
            recorded_at_ms: at,
            ..PatternEvent::default()
        };
        let here = [("session".to_owned(), event("b", 2))];
        let (a, b, c) = (event("a", 1), event("b", 2), event("c", 3));
        assert_eq!(events(&[&b], &here), None);
        let merged = events(&[&c, &a, &a], &here).unwrap();
        let marks: Vec<_> = merged.iter().map(|(mark, it)| (&**mark, &*it.call_id)).collect();
        assert_eq!(marks, [("t", "a"), ("session", "b"), ("t", "c")]);
        let many: Vec<PatternEvent> = (0..200).map(|at| event(&at.to_string(), at + 10)).collect();
        let merged = events(&many.iter().collect::<Vec<_>>(), &here).unwrap();
        assert_eq!((merged.len(), &*merged[0].1.call_id), (MAX_EVENTS, "150"));
    }

    #[test]
    fn of_two_sessions_the_one_with_the_calls_of_both_is_kept() {
        let (one, two) = (["a"], ["a", "b"]);
        let side = |version, updated_at, calls| SessionSide { version, updated_at, calls };
        let early = side(5, "2026-01-01", &one[..]);
        let late = side(3, "2026-02-01", &two[..]);
        let (late_part, early_all) =
            (side(3, "2026-02-01", &one[..]), side(3, "2026-01-01", &two[..]));
        for (offered, here, expected) in [
            (late, None, SessionImport::Added(4)),
            (late, Some((late, true)), SessionImport::Same),
            (late, Some((early, false)), SessionImport::Follows(6)),
            (early, Some((late, false)), SessionImport::Older),
            (early, Some((early, false)), SessionImport::Older),
            (late_part, Some((early_all, false)), SessionImport::Unrelated),
            (early_all, Some((late_part, false)), SessionImport::Unrelated),
        ] {
            assert_eq!(session(offered, here, 4), expected, "{offered:?} {here:?}");
        }
    }
}
