//! **The version policy.** What an event does to the stored versions of one artifact, as changes of rows.
//!
//! A store loads the rows of one artifact, asks the function for the event, and writes the changes it gets, all in
//! one transaction. What an import does to versions is decided by [`import_policy`](crate::import_policy), and what a
//! person's rejection or edit means by [`person_policy`](crate::person_policy).
//!
//! A store does two things by itself, each in a single statement. A new example drops the recorded calls with the same
//! inputs, of every version of its method: they bind nothing any more. And it counts, to save each stored call a second
//! statement: [`VersionTally`] says what to add. The statement also applies three limits: of calls ([`Window::push`]), of sessions
//! ([`MAX_SESSIONS`](crate::standing::MAX_SESSIONS)) and of shapes ([`ProvenShapes::add`]); a test of the store compares
//! the first and the last with these functions.
//!
//! [`ProvenShapes::add`]: crate::artifact::ProvenShapes::add

mod trial;

pub use trial::{Trial, TrialStep};

use crate::admission::{Admission, Applicant, Case, Incumbent, MAX_CASES, admit};
use crate::artifact::{Artifact, Author, Generation, RunVerdict};
use crate::program::Checksum;
use crate::select::{Miss, unfit};
use crate::standing::{Decision, Evidence, Standing, StandingMode, Window, decide};

/// Versions kept of one artifact; older ones are dropped when a new one is admitted.
pub const MAX_VERSIONS: usize = 10;

/// The row of an artifact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArtifactRow {
    /// The version that runs.
    pub current: u32,
    /// The version that waits for its trial.
    pub challenger: Option<u32>,
    /// Whether the current version is never replaced.
    pub pinned: bool,
}

/// The row of a version, without its program.
#[derive(Debug, Clone, PartialEq)]
pub struct VersionRow {
    /// Its number: higher is newer.
    pub number: u32,
    /// Of its program's text.
    pub checksum: Checksum,
    /// How far it has proved itself.
    pub standing: Standing,
    /// What came of its last calls.
    pub recent: Window,
    /// Calls that gave a value.
    pub successes: u32,
    /// The author.
    pub author: Author,
    /// Whether a person took it out of service.
    pub rejected: bool,
}

impl VersionRow {
    /// Whether it ran and was not taken back.
    fn has_run(&self) -> bool {
        matches!(self.standing, Standing::Probation | Standing::Durable)
    }

    /// Whether it may run again after the current version was taken back.
    fn may_return(&self) -> bool {
        (self.successes > 0 || self.author == Author::Person) && !self.rejected
    }
}

/// One change of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum RowChange {
    /// This version runs from now on, and no challenger waits any more.
    Run(u32),
    /// This version waits for its trial; `None`: no version does.
    Challenge(Option<u32>),
    /// A version's standing changes, and the decision is recorded.
    Stand(Checksum, Decision),
    /// What came of a version's last calls is forgotten.
    ForgetCalls(Checksum),
    /// A version did not reproduce this recorded call.
    Fail(u32, Box<Case>),
    /// A person took a version out of service, for this reason.
    Reject(Checksum, String),
    /// The calls recorded of a version no longer bind its successors. `None`: those recorded before calls named their
    /// version.
    DropCases(Option<Checksum>),
    /// A version is dropped.
    Drop(u32),
    /// The version that runs may be replaced again.
    Unpin,
}

/// How the trial of a challenger ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// It reproduced every recorded call that its incumbent reproduces.
    Passed,
    /// It did not reproduce this one, which its incumbent does.
    Failed(Box<Case>),
    /// No recorded call is left to show that it keeps the incumbent's answers.
    Unproven,
}

/// What one call adds to the counters of the version that ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionTally {
    /// Whether it gave a value.
    pub succeeded: bool,
    /// Whether the program is to blame.
    pub failed: bool,
    /// Its letter in the [`Window`].
    pub mark: char,
}

impl VersionTally {
    /// What a verdict adds; `None`: the call says nothing about the program.
    pub fn of(verdict: RunVerdict) -> Option<Self> {
        let mark = verdict.mark()?;
        Some(Self {
            succeeded: verdict == RunVerdict::Succeeded,
            failed: verdict.counts_against(),
            mark,
        })
    }
}

/// What the row of a new program's version starts with, besides what its generation says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstCounts {
    /// Calls that gave a value.
    pub successes: u32,
    /// Calls that failed through its fault.
    pub failures: u32,
    /// Whether a person took it out of service.
    pub rejected: bool,
}

/// What becomes of a new program.
#[derive(Debug, Clone, PartialEq)]
pub struct Admitted {
    /// What its row starts with. The row of an earlier version with the same text is replaced.
    pub counts: FirstCounts,
    /// Whether it takes over.
    pub admission: Admission,
    /// The change of its standing, if there is one.
    pub decision: Option<Decision>,
    /// Changes to make once its row is there.
    pub changes: Vec<RowChange>,
}

/// A new program worked and becomes version `number`. `artifact` is the row before that, `incumbent` the program
/// that runs now if it can be read, `versions` the rows of all versions before that.
pub fn admitted(
    generation: &Generation,
    number: u32,
    artifact: Option<&ArtifactRow>,
    incumbent: Option<&Artifact>,
    versions: &[VersionRow],
) -> Admitted {
    let new = &generation.artifact;
    let (same, others): (Vec<&VersionRow>, Vec<&VersionRow>) =
        versions.iter().partition(|row| row.checksum == new.checksum);
    let is_rejected = same.iter().any(|row| row.rejected);
    let is_running = incumbent.is_some_and(|found| found.checksum == new.checksum);
    let rival = artifact.filter(|_| !is_running).map(|row| rival(row, incumbent, versions));
    let applicant = Applicant {
        reusable: new.cacheability.cacheable(),
        pure: generation.pure,
        trigger: generation.trigger,
    };
    let admission = match generation.author {
        // A person's word outranks what was recorded; the runtime has tried the program before.
        Author::Person => Admission::TakesOver,
        Author::Model if is_rejected => Admission::KeptRejected,
        Author::Model if generation.outranks_recorded => {
            admit(applicant, rival.map(Incumbent::unrecorded))
        }
        Author::Model => admit(applicant, rival),
    };
    let decision = first_decision(admission, generation);
    let mut changes = Vec::new();
    match admission {
        Admission::TakesOver => changes.push(RowChange::Run(number)),
        Admission::AwaitsTrial => changes.push(RowChange::Challenge(Some(number))),
        // A text that runs keeps running under its new number.
        Admission::KeptRejected if is_running => changes.push(RowChange::Run(number)),
        Admission::KeptForPinned
        | Admission::KeptForReusable
        | Admission::KeptUntried
        | Admission::KeptOnTrial
        | Admission::KeptRejected => {}
    }
    let runs = changes.contains(&RowChange::Run(number));
    if runs && generation.outranks_recorded {
        changes.extend(voided(versions));
    }
    let current = if runs { number } else { artifact.map_or(number, |row| row.current) };
    changes.extend(decision.clone().map(|made| RowChange::Stand(new.checksum.clone(), made)));
    changes.extend(trimmed(current, &others).map(RowChange::Drop));
    let counts =
        first_counts(generation.author, (new.successes, new.failures), same.first().copied());
    Admitted { counts, admission, decision, changes }
}

/// The version that runs now, as a new one must compare with it.
fn rival(row: &ArtifactRow, incumbent: Option<&Artifact>, versions: &[VersionRow]) -> Incumbent {
    let has_answered = |it: &VersionRow| {
        it.number > row.current && it.successes > 0 && !it.rejected && it.author == Author::Model
    };
    // A standing of degraded counts here in either mode: something that works may replace it.
    let miss = |found| unfit(found, StandingMode::Enforced);
    Incumbent {
        miss: incumbent.map_or(Some(Miss::NoArtifact), miss),
        pinned: row.pinned,
        cases: incumbent.map_or(0, |found| found.track_record.cases),
        has_answered_trial: versions.iter().any(has_answered),
    }
}

/// A text that was here before becomes the newest version again. Its successes stay counted, so that two processes that
/// admit the same program at once lose none; its failures are forgotten, since it just worked. A person who writes a
/// rejected text takes the rejection back.
fn first_counts(
    author: Author,
    (successes, failures): (u32, u32),
    same: Option<&VersionRow>,
) -> FirstCounts {
    FirstCounts {
        successes: successes.saturating_add(same.map_or(0, |row| row.successes)),
        failures,
        rejected: author != Author::Person && same.is_some_and(|row| row.rejected),
    }
}

/// The change of a new program's standing, if it takes over.
fn first_decision(admission: Admission, generation: &Generation) -> Option<Decision> {
    let track_record = &generation.artifact.track_record;
    let (standing, recent) = (track_record.standing, &track_record.recent);
    let decision = match (admission, generation.author) {
        (Admission::TakesOver, Author::Person) => {
            Decision::by_hand(standing, Standing::Probation, "edited")
        }
        (Admission::TakesOver, Author::Model) => decide(standing, &first_calls(recent)),
        (
            Admission::AwaitsTrial
            | Admission::KeptForPinned
            | Admission::KeptForReusable
            | Admission::KeptUntried
            | Admission::KeptOnTrial
            | Admission::KeptRejected,
            Author::Person | Author::Model,
        ) => return None,
    };
    Some(decision).filter(Decision::is_change)
}

/// Versions to drop when one more is added: the oldest, except the one that runs and the last good one before it.
fn trimmed(current: u32, others: &[&VersionRow]) -> impl Iterator<Item = u32> {
    let mut numbers: Vec<u32> = others.iter().map(|row| row.number).collect();
    numbers.sort_unstable();
    let excess = (numbers.len() + 1).saturating_sub(MAX_VERSIONS);
    let before = others.iter().filter(|row| row.number < current && row.has_run());
    let last_good = before.map(|row| row.number).max();
    numbers
        .into_iter()
        .take(excess)
        .filter(move |number| *number != current && Some(*number) != last_good)
}

/// The running version missed an example: what it and its predecessors answered no longer binds. The version
/// reproduced their recorded calls, so those may be wrong in the same way.
pub fn voided(versions: &[VersionRow]) -> Vec<RowChange> {
    let named = versions.iter().map(|row| RowChange::DropCases(Some(row.checksum.clone())));
    named.chain([RowChange::DropCases(None)]).collect()
}

/// The calls recorded of one version no longer bind. Any that do not name their version may be of this one.
fn voided_of(version: &VersionRow) -> [RowChange; 2] {
    [RowChange::DropCases(Some(version.checksum.clone())), RowChange::DropCases(None)]
}

/// Whether an accepted call may be recorded: only calls of the version that runs bind its successors.
pub fn may_record(admission: Option<Admission>) -> bool {
    admission.is_none_or(|made| made == Admission::TakesOver)
}

/// The calls that are recorded of an artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedCases {
    /// How many.
    pub count: u32,
    /// Whether one has the inputs of the new one.
    pub has_inputs: bool,
}

/// Whether a call is added to those: the first one with its inputs is kept, while there is room.
pub fn records_case(recorded: RecordedCases) -> bool {
    !recorded.has_inputs && recorded.count < MAX_CASES
}

/// Whether the decision about a version depends on the state keys of its role's other methods.
pub fn needs_agreement(standing: Standing, evidence: &Evidence) -> bool {
    standing != Standing::Durable && evidence.is_clean()
}

/// A version was called and its counters now say this.
pub fn scored(
    checksum: &Checksum,
    standing: Standing,
    evidence: &Evidence,
) -> (Decision, Vec<RowChange>) {
    let decision = decide(standing, evidence);
    let changes =
        decision.is_change().then(|| RowChange::Stand(checksum.clone(), decision.clone()));
    (decision, changes.into_iter().collect())
}

/// The trial of a challenger of `incumbent` ended. Says whether the challenger takes over: not when something else
/// took over meanwhile, or the incumbent was pinned.
pub fn concluded(
    artifact: &ArtifactRow,
    versions: &[VersionRow],
    (incumbent, challenger): (&Checksum, &Checksum),
    verdict: &Verdict,
) -> (bool, Vec<RowChange>) {
    let row = |checksum: &Checksum| versions.iter().find(|row| row.checksum == *checksum);
    let Some(rival) = row(challenger) else { return (false, Vec::new()) };
    let is_current = row(incumbent).is_some_and(|row| row.number == artifact.current);
    let withdrawn =
        (artifact.challenger == Some(rival.number)).then_some(RowChange::Challenge(None));
    match verdict {
        Verdict::Passed if is_current && !artifact.pinned && !rival.rejected => {
            let decision = decide(rival.standing, &first_calls(&rival.recent));
            let changed = decision.is_change();
            let stand = changed.then(|| RowChange::Stand(challenger.clone(), decision));
            (true, [RowChange::Run(rival.number)].into_iter().chain(stand).collect())
        }
        Verdict::Passed | Verdict::Unproven => (false, withdrawn.into_iter().collect()),
        Verdict::Failed(case) => {
            let failed = RowChange::Fail(rival.number, case.clone());
            (false, withdrawn.into_iter().chain([failed]).collect())
        }
    }
}

/// A person goes back: to the last version that ran before the current one, or to the one named, if it ever worked.
/// The calls recorded of the version that is left no longer bind.
/// Gives the version that runs from now on; `None`: there is no such version.
pub fn rolled_back(
    artifact: &ArtifactRow,
    versions: &[VersionRow],
    to: Option<&Checksum>,
) -> Option<(Checksum, Vec<RowChange>)> {
    let target = match to {
        Some(checksum) => versions.iter().find(|row| {
            row.checksum == *checksum && row.number != artifact.current && row.may_return()
        }),
        None => last_good(artifact, versions),
    }?;
    let left = versions.iter().find(|row| row.number == artifact.current);
    let mut changes = vec![RowChange::Run(target.number)];
    changes.extend(left.map(|left| degraded(left, "rolled back")));
    changes.extend(left.into_iter().flat_map(voided_of));
    changes.extend(restored(target, "rolled back to"));
    Some((target.checksum.clone(), changes))
}

/// What a person's rejection of a version does.
#[derive(Debug, Clone, PartialEq)]
pub struct Rejected {
    /// The version that was taken out of service.
    pub rejected: Checksum,
    /// The version that runs from now on; `None`: none is good, so the next call needs a model.
    pub running: Option<Checksum>,
    /// The changes to make.
    pub changes: Vec<RowChange>,
}

/// A person says a version is wrong, the running one if none is named: it leaves service at once, with the calls
/// recorded of it. If it runs, the last good version before it runs again; else the running version stays.
/// `None`: there is no such version, or it was rejected before.
pub fn rejected(
    artifact: &ArtifactRow,
    versions: &[VersionRow],
    version: Option<&Checksum>,
    because: &str,
) -> Option<Rejected> {
    let is_running = |row: &&VersionRow| row.number == artifact.current;
    let is_meant = |row: &&VersionRow| match version {
        Some(checksum) => row.checksum == *checksum,
        None => is_running(row),
    };
    let left = versions.iter().find(is_meant).filter(|row| !row.rejected)?;
    let mut changes =
        vec![degraded(left, because), RowChange::Reject(left.checksum.clone(), because.to_owned())];
    changes.extend(voided_of(left));
    if !is_running(&left) {
        if artifact.challenger == Some(left.number) {
            changes.push(RowChange::Challenge(None));
        }
        let running = versions.iter().find(is_running).filter(|row| !row.rejected);
        let running = running.map(|row| row.checksum.clone());
        return Some(Rejected { rejected: left.checksum.clone(), running, changes });
    }
    if artifact.pinned {
        changes.push(RowChange::Unpin);
    }
    let target = last_good(artifact, versions);
    match target {
        Some(target) => {
            changes.push(RowChange::Run(target.number));
            changes.extend(restored(target, "the version after it was rejected"));
        }
        None => changes.push(RowChange::Challenge(None)),
    }
    Some(Rejected {
        rejected: left.checksum.clone(),
        running: target.map(|row| row.checksum.clone()),
        changes,
    })
}

/// The last version before the current one that ran and was not taken back.
fn last_good<'a>(artifact: &ArtifactRow, versions: &'a [VersionRow]) -> Option<&'a VersionRow> {
    let earlier = versions.iter().filter(|row| row.number < artifact.current);
    earlier.filter(|row| row.has_run() && row.may_return()).max_by_key(|row| row.number)
}

/// A person lets a version run again: what went wrong with it before is forgotten.
fn restored(target: &VersionRow, why: &str) -> [RowChange; 2] {
    let decision = Decision::by_hand(target.standing, Standing::Probation, why);
    [
        RowChange::ForgetCalls(target.checksum.clone()),
        RowChange::Stand(target.checksum.clone(), decision),
    ]
}

/// A person takes a version back.
fn degraded(left: &VersionRow, why: &str) -> RowChange {
    let decision = Decision::by_hand(left.standing, Standing::Degraded, why);
    RowChange::Stand(left.checksum.clone(), decision)
}

/// What is known of a version that takes over: the calls it had so far, in one session.
fn first_calls(recent: &Window) -> Evidence {
    Evidence { recent: recent.clone(), sessions: 1, state_key_agreement: None }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;
    use crate::admission::{Inputs, Observed};

    fn row(number: u32, standing: Standing, successes: u32) -> VersionRow {
        VersionRow {
            number,
            checksum: Checksum::of(&number.to_string()),
            standing,
            recent: Window::stored("s".to_owned()),
            successes,
            author: Author::Model,
            rejected: false,
        }
    }

    fn runs(number: u32) -> ArtifactRow {
        ArtifactRow { current: number, ..ArtifactRow::default() }
    }

    fn case() -> Box<Case> {
        let inputs = Inputs { args: vec![json!(1)], kwargs: Map::new(), context: Map::new() };
        let observed = Observed { verdict: RunVerdict::Succeeded, digest: String::new() };
        Box::new(Case { inputs, observed })
    }

    #[test]
    fn the_oldest_versions_are_dropped_but_never_the_running_one_or_the_last_good_one() {
        let kept = u32::try_from(MAX_VERSIONS).unwrap();
        let rows: Vec<_> = (1..=kept).map(|n| row(n, Standing::Candidate, 1)).collect();
        let dropped = |current: u32, rows: &[VersionRow]| {
            trimmed(current, &rows.iter().collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        assert_eq!(dropped(kept + 1, &rows), [1]);
        assert!(dropped(1, &rows).is_empty(), "it runs");
        let mut good = rows.clone();
        good[0].standing = Standing::Durable;
        assert!(dropped(kept + 1, &good).is_empty(), "it is the way back");
        assert!(dropped(kept + 1, &rows[1..]).is_empty(), "there is room");
    }

    #[test]
    fn a_text_that_was_here_before_keeps_its_successes_and_its_rejection() {
        let known =
            |rejected| VersionRow { successes: 4, rejected, ..row(1, Standing::Durable, 4) };
        for (author, same, successes, is_rejected) in [
            (Author::Model, None, 1, false),
            (Author::Model, Some(known(false)), 5, false),
            (Author::Model, Some(known(true)), 5, true),
            (Author::Person, Some(known(true)), 5, false),
        ] {
            let counts = first_counts(author, (1, 0), same.as_ref());
            assert_eq!((counts.successes, counts.failures), (successes, 0), "{author:?} {same:?}");
            assert_eq!(counts.rejected, is_rejected, "{author:?} {same:?}");
        }
    }

    #[test]
    fn the_first_call_with_its_inputs_is_recorded_while_there_is_room() {
        for (count, has_inputs, expected) in [
            (0, false, true),
            (0, true, false),
            (MAX_CASES - 1, false, true),
            (MAX_CASES, false, false),
        ] {
            let recorded = RecordedCases { count, has_inputs };
            assert_eq!(records_case(recorded), expected, "{recorded:?}");
        }
    }

    #[test]
    fn a_challenger_takes_over_only_from_the_version_it_was_tried_against() {
        let rows = [row(1, Standing::Probation, 3), row(2, Standing::Candidate, 1)];
        let rivals = (&rows[0].checksum, &rows[1].checksum);
        let waiting = ArtifactRow { challenger: Some(2), ..runs(1) };
        let pinned = ArtifactRow { pinned: true, ..waiting };
        let concluded = |artifact: &ArtifactRow, rivals, verdict: &Verdict| {
            concluded(artifact, &rows, rivals, verdict)
        };
        let (takes_over, changes) = concluded(&waiting, rivals, &Verdict::Passed);
        assert!(takes_over && changes.contains(&RowChange::Run(2)), "{changes:?}");
        let withdrawn = vec![RowChange::Challenge(None)];
        assert_eq!(concluded(&pinned, rivals, &Verdict::Passed), (false, withdrawn.clone()));
        let other = Checksum::of("other");
        let late = (&other, &rows[1].checksum);
        assert_eq!(concluded(&waiting, late, &Verdict::Passed), (false, withdrawn));
        let (takes_over, changes) = concluded(&waiting, rivals, &Verdict::Failed(case()));
        assert!(!takes_over && changes.contains(&RowChange::Fail(2, case())), "{changes:?}");
        let gone = (&rows[0].checksum, &other);
        assert_eq!(concluded(&waiting, gone, &Verdict::Passed), (false, Vec::new()));
    }

    #[test]
    fn people_go_back_to_versions_that_worked_and_were_not_rejected() {
        let (good, failed) = (row(1, Standing::Probation, 3), row(2, Standing::Probation, 0));
        let never_ran = row(3, Standing::Candidate, 1);
        let current = row(4, Standing::Durable, 9);
        let rows = [good.clone(), failed.clone(), never_ran.clone(), current.clone()];
        let back = |rows: &[VersionRow], to: Option<&Checksum>| {
            rolled_back(&runs(4), rows, to).map(|(target, _)| target)
        };
        assert_eq!(back(&rows, None), Some(good.checksum.clone()));
        assert_eq!(back(&rows, Some(&never_ran.checksum)), Some(never_ran.checksum.clone()));
        assert_eq!(back(&rows, Some(&failed.checksum)), None, "it never worked");
        assert_eq!(back(&rows, Some(&current.checksum)), None, "it runs already");
        let rejected_row = VersionRow { rejected: true, ..good };
        let rows = [rejected_row, failed, never_ran, current.clone()];
        assert_eq!(back(&rows, None), None);
        let pinned = ArtifactRow { pinned: true, ..runs(4) };
        let unpins = |artifact: &ArtifactRow| {
            let made = rejected(artifact, &rows, None, "wrong").unwrap();
            made.changes.contains(&RowChange::Unpin)
        };
        assert_eq!((unpins(&pinned), unpins(&runs(4))), (true, false));
        let rejected = rejected(&runs(4), &rows, None, "wrong").unwrap();
        assert_eq!((rejected.rejected, rejected.running), (current.checksum.clone(), None));
        for of in [Some(current.checksum), None] {
            assert!(rejected.changes.contains(&RowChange::DropCases(of)));
        }
    }

    #[test]
    fn a_version_that_does_not_run_is_rejected_and_the_running_one_stays() {
        let rows = [row(1, Standing::Probation, 3), row(2, Standing::Candidate, 1)];
        let artifact = ArtifactRow { challenger: Some(2), ..runs(1) };
        let (running, waiting) = (&rows[0].checksum, &rows[1].checksum);
        let made = rejected(&artifact, &rows, Some(waiting), "wrong").unwrap();
        assert_eq!((&made.rejected, made.running.as_ref()), (waiting, Some(running)));
        assert!(made.changes.contains(&RowChange::Challenge(None)), "it gets no trial");
        assert!(!made.changes.iter().any(|change| matches!(change, RowChange::Run(_))));
        let unknown = Checksum::of("unknown");
        assert_eq!(rejected(&artifact, &rows, Some(&unknown), "wrong"), None);
    }
}
