//! **The session policy.** How calls and people change a stored session.
//!
//! A session's memory and its packages have one version. A call that started from an older version than the stored one
//! never writes, and a version is never given twice, not even after a session of the same name was removed.

use crate::dependency::DependencyManifest;

/// What a call does to the packages of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackageChange {
    /// The same are stored already.
    None,
    /// There is no row yet, and no package: the row is written, and nothing changes for other processes.
    FirstRow,
    /// Other processes must see that the packages changed.
    Changed,
}

/// A call ends with these packages; `stored` is the row of its session and language.
pub fn packages(stored: Option<&DependencyManifest>, after: &DependencyManifest) -> PackageChange {
    match stored {
        Some(stored) if stored == after => PackageChange::None,
        None if *after == DependencyManifest::default() => PackageChange::FirstRow,
        None | Some(_) => PackageChange::Changed,
    }
}

/// The version of a memory after a call that started from version `base` changes it. `None`: another call changed it
/// meanwhile, so this one must not.
pub fn next_version(stored: u64, base: u64) -> Option<u64> {
    (stored == base).then(|| stored + 1)
}

/// The version of a session before its first change. `floor` is the stored result of [`floor_after_removal`].
pub fn first_version(floor: u64) -> u64 {
    floor
}

/// The version after a person forgot a key of the memory: a running call that read it must not write.
pub fn after_forgetting(stored: u64) -> u64 {
    stored + 1
}

/// The first version of sessions created after a removal: above every version of the removed session, so that a process
/// that still holds it gets a conflict.
pub fn floor_after_removal(floor: u64, highest: u64) -> u64 {
    floor.max(highest + 1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::dialect::Language;

    #[test]
    fn other_processes_are_notified_of_packages_that_changed() {
        let none = DependencyManifest::default();
        let some = json!([{"name": "rows", "version": "1.0"}]);
        let some = DependencyManifest::parse(Language::Python, Some(&some)).unwrap();
        for (stored, after, expected) in [
            (None, &none, PackageChange::FirstRow),
            (None, &some, PackageChange::Changed),
            (Some(&none), &none, PackageChange::None),
            (Some(&some), &some, PackageChange::None),
            (Some(&some), &none, PackageChange::Changed),
        ] {
            assert_eq!(packages(stored, after), expected, "{stored:?} {after:?}");
        }
    }

    #[test]
    fn only_a_call_that_started_from_the_stored_version_writes_the_next() {
        for (stored, base, next) in [(0, 0, Some(1)), (7, 7, Some(8)), (7, 6, None), (6, 7, None)] {
            assert_eq!(next_version(stored, base), next, "{stored} {base}");
            assert_eq!(next_version(after_forgetting(base), base), None, "a key was forgotten");
        }
    }

    #[test]
    fn new_sessions_start_above_every_removed_one() {
        for (floor, highest, expected) in [(0, 0, 1), (0, 4, 5), (9, 4, 9), (5, 5, 6)] {
            assert_eq!(floor_after_removal(floor, highest), expected, "{floor} {highest}");
            assert!(first_version(expected) > highest, "{floor} {highest}");
        }
    }
}
