//! **The person policy.** What a person's rejection or edit means, beyond what it does to the versions of the store.
//!
//! Programs are also kept in `tools_dir`, whose files only people change, and a version may have answered a call and been
//! dropped since. [`version_policy`](crate::version_policy) decides about the stored versions themselves.

use crate::program::Checksum;

/// What is known when a person rejects a version.
#[derive(Debug, Clone, Copy)]
pub struct RejectionFacts<'a> {
    /// The stored version that was taken out of service; `None`: the store has no such version that was not rejected
    /// before.
    pub stored: Option<&'a Checksum>,
    /// The program of `tools_dir` that is meant, if it was not rejected before.
    pub in_directory: Option<&'a Checksum>,
    /// The version that the person named; `None`: the one that runs.
    pub named: Option<&'a Checksum>,
    /// Whether the text of the named version was rejected before.
    pub is_known: bool,
    /// Whether anything is kept under the key.
    pub is_kept: bool,
}

/// What a rejection does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RejectionEffect {
    /// The store has taken this version out of service.
    Stored(Checksum),
    /// A record in the store bars this program of `tools_dir`; its file stays as it is.
    BarsFile(Checksum),
    /// A record in the store bars this text, which is not kept any more.
    BarsText(Checksum),
    /// Nothing: it was rejected before.
    AlreadyRejected,
    /// Nothing: there is no such program.
    NotStored,
}

/// A person rejected a version: a stored one goes first, then one of `tools_dir`, then a text that is not kept.
pub fn rejection(facts: RejectionFacts<'_>) -> RejectionEffect {
    let RejectionFacts { stored, in_directory, named, is_known, is_kept } = facts;
    if let Some(stored) = stored {
        return RejectionEffect::Stored(stored.clone());
    }
    if let Some(in_directory) = in_directory {
        return RejectionEffect::BarsFile(in_directory.clone());
    }
    match named.filter(|_| !is_known) {
        Some(named) => RejectionEffect::BarsText(named.clone()),
        None if is_kept => RejectionEffect::AlreadyRejected,
        None => RejectionEffect::NotStored,
    }
}

/// A call that was tested on a person's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EditTest {
    /// Whether it is a recorded call; else an example of a person.
    pub is_recorded: bool,
    /// Whether the text gave the right answer; `None`: it could not be checked.
    pub passed: Option<bool>,
}

impl EditTest {
    fn has_failed(self) -> bool {
        self.passed == Some(false)
    }
}

/// Whether it matters that the version which runs misses an example: then its recorded calls may be wrong in the same
/// way, and do not count against the text.
pub fn depends_on_running(tests: &[EditTest]) -> bool {
    tests.iter().any(|test| test.is_recorded && test.has_failed())
}

/// What becomes of a person's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EditEffect {
    /// It is not stored, because a test failed.
    Refused,
    /// It runs from now on. The examples that it fails are withdrawn.
    Runs {
        /// Whether it breaks recorded calls, which then no longer bind.
        outranks_recorded: bool,
    },
}

/// A person's text was tested: it runs if no test failed, or if the person insists.
pub fn edit(tests: &[EditTest], force: bool) -> EditEffect {
    if !force && tests.iter().any(|test| test.has_failed()) {
        return EditEffect::Refused;
    }
    EditEffect::Runs { outranks_recorded: depends_on_running(tests) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_means_the_first_program_that_is_there() {
        let [stored, file, named] =
            ["stored", "file", "named"].map(|text| Checksum::stored(text.to_owned()));
        let none = RejectionFacts {
            stored: None,
            in_directory: None,
            named: None,
            is_known: false,
            is_kept: false,
        };
        for (facts, expected) in [
            (
                RejectionFacts {
                    stored: Some(&stored),
                    in_directory: Some(&file),
                    named: Some(&named),
                    ..none
                },
                RejectionEffect::Stored(stored.clone()),
            ),
            (
                RejectionFacts { in_directory: Some(&file), named: Some(&named), ..none },
                RejectionEffect::BarsFile(file.clone()),
            ),
            (
                RejectionFacts { named: Some(&named), is_kept: true, ..none },
                RejectionEffect::BarsText(named.clone()),
            ),
            (
                RejectionFacts { named: Some(&named), is_known: true, is_kept: true, ..none },
                RejectionEffect::AlreadyRejected,
            ),
            (RejectionFacts { is_kept: true, ..none }, RejectionEffect::AlreadyRejected),
            (
                RejectionFacts { named: Some(&named), is_known: true, ..none },
                RejectionEffect::NotStored,
            ),
            (none, RejectionEffect::NotStored),
        ] {
            assert_eq!(rejection(facts), expected, "{facts:?}");
        }
    }

    #[test]
    fn a_text_that_fails_a_test_runs_only_if_forced() {
        let test = |is_recorded, passed| EditTest { is_recorded, passed };
        let runs = |outranks_recorded| EditEffect::Runs { outranks_recorded };
        for (tests, unforced, forced) in [
            (&[][..], runs(false), runs(false)),
            (&[test(true, Some(true)), test(false, None)], runs(false), runs(false)),
            (&[test(true, None)], runs(false), runs(false)),
            (&[test(false, Some(false))], EditEffect::Refused, runs(false)),
            (&[test(true, Some(false))], EditEffect::Refused, runs(true)),
            (&[test(false, Some(false)), test(true, Some(false))], EditEffect::Refused, runs(true)),
        ] {
            assert_eq!(edit(tests, false), unforced, "{tests:?}");
            assert_eq!(edit(tests, true), forced, "{tests:?}");
        }
    }
}
