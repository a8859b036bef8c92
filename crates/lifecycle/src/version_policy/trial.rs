//! What a trial runs, and the verdict of its runs.

use super::Verdict;
use crate::admission::{Applicant, Case};
use crate::example::Example;

/// What a trial does after one more run.
#[derive(Debug, Clone, PartialEq)]
pub enum TrialStep {
    /// It goes on.
    Continue,
    /// The recorded call proves nothing and is forgotten; the trial goes on.
    ForgetCase,
    /// It ends.
    End(Verdict),
}

/// The trial of a challenger, decided from what comes of each run. The runtime only runs the programs.
#[derive(Debug, Clone)]
pub struct Trial {
    challenger: Applicant,
    incumbent_is_pure: bool,
    reproduced: u32,
}

impl Trial {
    /// The trial of a challenger before its first run.
    pub fn new(challenger: Applicant, incumbent_is_pure: bool) -> Self {
        Self { challenger, incumbent_is_pure, reproduced: 0 }
    }

    /// Whether it is run on the examples of its method. A program with side effects is not.
    pub fn runs_examples(&self) -> bool {
        self.challenger.pure
    }

    /// It was run on an example.
    pub fn example(&self, example: &Example, is_met: bool) -> TrialStep {
        if is_met {
            return TrialStep::Continue;
        }
        TrialStep::End(Verdict::Failed(Box::new(example.as_case())))
    }

    /// It was run on a recorded call. If it did not repeat the call, the incumbent is run too: a call that a pure
    /// incumbent does not repeat either proves nothing.
    pub fn case<E>(
        &mut self,
        case: &Case,
        challenger_repeats: bool,
        incumbent_repeats: impl FnOnce() -> Result<bool, E>,
    ) -> Result<TrialStep, E> {
        if challenger_repeats {
            self.reproduced += 1;
            return Ok(TrialStep::Continue);
        }
        if !self.incumbent_is_pure || incumbent_repeats()? {
            return Ok(TrialStep::End(Verdict::Failed(Box::new(case.clone()))));
        }
        Ok(TrialStep::ForgetCase)
    }

    /// The verdict when every run is done.
    pub fn verdict(self) -> Verdict {
        let is_shown = self.challenger.is_shown_by(self.reproduced);
        if is_shown { Verdict::Passed } else { Verdict::Unproven }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;
    use crate::admission::{Inputs, Observed};
    use crate::artifact::{RunVerdict, Trigger};

    fn case() -> Case {
        let inputs = Inputs { args: vec![json!(1)], kwargs: Map::new(), context: Map::new() };
        let observed = Observed { verdict: RunVerdict::Succeeded, digest: String::new() };
        Case { inputs, observed }
    }

    #[test]
    fn a_trial_ends_at_a_call_that_only_the_incumbent_repeats() {
        use Trigger::{Fresh, Widening};
        use std::convert::Infallible;
        const FAILED: bool = false;
        // Of each recorded call: whether the challenger repeats it, and the incumbent.
        let both = [(true, true)];
        let neither = [(FAILED, FAILED)];
        let only_the_incumbent = [(true, true), (FAILED, true)];
        for (trigger, incumbent_is_pure, calls, forgotten, expected) in [
            (Fresh, true, &[][..], 0, "passed"),
            (Widening, true, &[][..], 0, "unproven"),
            (Widening, true, &both[..], 0, "passed"),
            (Fresh, true, &neither[..], 1, "passed"),
            (Widening, true, &neither[..], 1, "unproven"),
            (Fresh, false, &neither[..], 0, "failed"),
            (Fresh, true, &only_the_incumbent[..], 0, "failed"),
        ] {
            let challenger = Applicant { reusable: true, pure: true, trigger };
            let mut trial = Trial::new(challenger, incumbent_is_pure);
            let mut steps = calls.iter().map(|(challenger, incumbent)| {
                trial.case(&case(), *challenger, || Ok::<_, Infallible>(*incumbent)).unwrap()
            });
            let mut forgets = 0;
            let ended = steps.find_map(|step| {
                forgets += usize::from(step == TrialStep::ForgetCase);
                if let TrialStep::End(verdict) = step { Some(verdict) } else { None }
            });
            let verdict = match ended.unwrap_or_else(|| trial.verdict()) {
                Verdict::Passed => "passed",
                Verdict::Unproven => "unproven",
                Verdict::Failed(_) => "failed",
            };
            let what = format!("{trigger:?} {incumbent_is_pure} {calls:?}");
            assert_eq!((verdict, forgets), (expected, forgotten), "{what}");
        }
    }

    #[test]
    fn only_a_pure_challenger_is_run_on_examples_and_must_meet_them() {
        let example = Example::parse(&json!({"args": [1], "value": 2})).unwrap();
        for pure in [true, false] {
            let challenger = Applicant { reusable: true, pure, trigger: Trigger::Fresh };
            let trial = Trial::new(challenger, true);
            assert_eq!(trial.runs_examples(), pure);
            assert_eq!(trial.example(&example, true), TrialStep::Continue);
            let failed = TrialStep::End(Verdict::Failed(Box::new(example.as_case())));
            assert_eq!(trial.example(&example, false), failed);
        }
    }
}
