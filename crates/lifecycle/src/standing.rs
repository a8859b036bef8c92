//! How far a stored program has proved itself: policy `solver_promotion_v1`.
//!
//! A version starts as a *candidate*. Taking over makes it the one that runs, on *probation*; a clean
//! record makes it *durable*; failing again and again makes it *degraded*, until its record is clean once
//! more. Everything is judged over the last [`WINDOW`] calls. Faults of the world are not counted, and a truthful
//! answer never counts against a program.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::artifact::RunVerdict;

/// The wire name (`promotion_policy_version`).
pub const POLICY_VERSION: &str = "solver_promotion_v1";
/// The last calls that a decision considers.
pub const WINDOW: usize = 20;
/// Calls before a program may become durable.
const MIN_CALLS: usize = 10;
/// Sessions those calls must come from.
const MIN_SESSIONS: usize = 2;
/// Most sessions remembered of one version. A decision only compares their number with [`MIN_SESSIONS`].
pub const MAX_SESSIONS: usize = 8;
/// Share of contracted answers that must have had the promised shape.
const MIN_CONTRACT_PASS_RATE: f64 = 0.95;
/// Share of the role's methods with state that must use its most common key.
const MIN_STATE_KEY_AGREEMENT: f64 = 0.5;
/// Fewest failures that can make a program degraded.
const REGRESSED_FAILURES: usize = 3;
/// Share of recent calls above which failures make a program degraded.
const REGRESSED_RATE: f64 = 0.6;

/// Calls in a row in which a program could not use what a service answered, before the service is taken to have changed
/// what it answers.
const UNREAD_BEFORE_TRIAL: usize = 3;
/// Trial repairs after that, until a call succeeds.
const MAX_TRIAL_REPAIRS: usize = 4;

/// How far a version has proved itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It worked once, and has not taken over.
    Candidate,
    /// It runs, and is observed.
    #[default]
    Probation,
    /// It has a clean record.
    Durable,
    /// It fails more than it works, or was taken back by hand.
    Degraded,
}

impl Standing {
    /// The wire name (`lifecycle_state`).
    pub fn name(self) -> &'static str {
        match self {
            Self::Candidate => "candidate",
            Self::Probation => "probation",
            Self::Durable => "durable",
            Self::Degraded => "degraded",
        }
    }
}

/// Whether standings decide what runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StandingMode {
    /// They are decided and logged; what runs does not depend on them.
    #[default]
    Shadow,
    /// A degraded program does not run.
    Enforced,
}

/// The results of a version's last calls, a letter each, the newest last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Window(String);

impl Window {
    /// As read back from storage.
    pub fn stored(marks: String) -> Self {
        Self(marks)
    }

    /// As kept in storage.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Adds the result of one more call; the oldest is dropped.
    pub fn push(&mut self, verdict: RunVerdict) {
        self.0.extend(verdict.mark());
        let excess = self.0.chars().count().saturating_sub(WINDOW);
        self.0 = self.0.chars().skip(excess).collect();
    }

    /// Whether it fails more than it works.
    pub fn regressed(&self) -> bool {
        let failures = self.failures();
        failures >= REGRESSED_FAILURES && share(failures, self.calls()) > REGRESSED_RATE
    }

    /// **The rule about changed answers.** An answer of a service that a program cannot use is at first a fault of the
    /// world, which may pass. After [`UNREAD_BEFORE_TRIAL`] such calls in a row the service is taken to have changed what
    /// it answers, and the program is repaired, at most [`MAX_TRIAL_REPAIRS`] times. The first repair that gives a value
    /// does not take over; if the next call needs a repair too, that one does. A call with an answer ends the row.
    pub(crate) fn answers_changed(&self) -> bool {
        let marks = self.0.chars().rev().map(RunVerdict::of_mark);
        let unread = marks.take_while(|verdict| *verdict == Some(RunVerdict::Unread)).count();
        (UNREAD_BEFORE_TRIAL..UNREAD_BEFORE_TRIAL + MAX_TRIAL_REPAIRS).contains(&unread)
    }

    fn count(&self, wanted: impl Fn(RunVerdict) -> bool) -> usize {
        self.0.chars().filter_map(RunVerdict::of_mark).filter(|verdict| wanted(*verdict)).count()
    }

    fn calls(&self) -> usize {
        self.count(|verdict| verdict != RunVerdict::Unread)
    }

    fn failures(&self) -> usize {
        self.count(RunVerdict::counts_against)
    }

    fn of(&self, verdict: RunVerdict) -> usize {
        self.count(|found| found == verdict)
    }

    /// The share of checked values that satisfied their contract; 1 if none was checked.
    fn contract_pass_rate(&self) -> f64 {
        let (passed, broken) =
            (self.of(RunVerdict::Succeeded), self.of(RunVerdict::ContractBroken));
        if broken == 0 { 1.0 } else { share(passed, passed + broken) }
    }
}

/// What a decision is made from.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// Its last calls.
    pub recent: Window,
    /// Different sessions it was called in.
    pub sessions: usize,
    /// Share of its role's methods with state that use the most common key; `None`: not computed.
    pub state_key_agreement: Option<f64>,
}

impl Evidence {
    /// Whether it passes the gate for promotion, except for the agreement on state keys: that needs the programs of the
    /// role's other methods.
    pub fn is_clean(&self) -> bool {
        let none = |verdict| self.recent.of(verdict) == 0;
        self.recent.calls() >= MIN_CALLS
            && self.sessions >= MIN_SESSIONS
            && self.recent.contract_pass_rate() >= MIN_CONTRACT_PASS_RATE
            && none(RunVerdict::Exhausted)
            && none(RunVerdict::Referred)
            && none(RunVerdict::Unsourced)
            && !self.recent.regressed()
    }

    fn passes_gate(&self) -> bool {
        self.is_clean()
            && self.state_key_agreement.is_none_or(|share| share >= MIN_STATE_KEY_AGREEMENT)
    }

    fn rationale(&self) -> Value {
        let recent = &self.recent;
        json!({
            "calls": recent.calls(),
            "successes": recent.of(RunVerdict::Succeeded),
            "failures": recent.failures(),
            "failure_rate": rounded(share(recent.failures(), recent.calls())),
            "session_count": self.sessions,
            "contract_pass_rate": rounded(recent.contract_pass_rate()),
            "retry_exhausted_count": recent.of(RunVerdict::Exhausted),
            "wrong_boundary_count": recent.of(RunVerdict::Referred),
            "provenance_violation_count": recent.of(RunVerdict::Unsourced),
            "state_key_consistency_ratio": self.state_key_agreement.map(rounded),
            "observation_window_met": recent.calls() >= MIN_CALLS,
            "gate_pass": self.passes_gate(),
        })
    }
}

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionKind {
    /// It is observed further.
    ContinueProbation,
    /// It becomes durable.
    Promote,
    /// It becomes degraded.
    Degrade,
    /// It stays what it is.
    Hold,
    /// A person decided.
    ManualOverride,
}

impl DecisionKind {
    /// The wire name (`lifecycle_decision`).
    pub fn name(self) -> &'static str {
        match self {
            Self::ContinueProbation => "continue_probation",
            Self::Promote => "promote",
            Self::Degrade => "degrade",
            Self::Hold => "hold",
            Self::ManualOverride => "manual_override",
        }
    }
}

/// A decision about one version, with what it rests on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// What was decided.
    pub kind: DecisionKind,
    /// The standing before.
    pub from: Standing,
    /// The standing after.
    pub to: Standing,
    /// What it rests on.
    pub rationale: Value,
}

impl Decision {
    /// Whether anything changes: only then is it kept.
    pub fn is_change(&self) -> bool {
        self.from != self.to
    }

    /// A person's decision.
    pub fn by_hand(from: Standing, to: Standing, why: &str) -> Self {
        Self { kind: DecisionKind::ManualOverride, from, to, rationale: json!({"reason": why}) }
    }
}

/// **The policy.** The standing that follows from a version's record.
pub fn decide(standing: Standing, evidence: &Evidence) -> Decision {
    use DecisionKind::{ContinueProbation, Degrade, Hold, Promote};
    let (gate, regressed) = (evidence.passes_gate(), evidence.recent.regressed());
    let worked = evidence.recent.of(RunVerdict::Succeeded) > 0;
    let (kind, to) = match standing {
        Standing::Candidate if worked => (ContinueProbation, Standing::Probation),
        Standing::Candidate => (Hold, Standing::Candidate),
        Standing::Probation if gate => (Promote, Standing::Durable),
        Standing::Probation if regressed => (Degrade, Standing::Degraded),
        Standing::Probation => (ContinueProbation, Standing::Probation),
        Standing::Durable if regressed => (Degrade, Standing::Degraded),
        Standing::Durable => (Hold, Standing::Durable),
        Standing::Degraded if gate => (Promote, Standing::Durable),
        Standing::Degraded => (Hold, Standing::Degraded),
    };
    Decision { kind, from: standing, to, rationale: evidence.rationale() }
}

/// How much the methods of one role agree: the share of those with state that use the most common key.
pub fn state_key_agreement<'a>(methods: impl IntoIterator<Item = &'a StateKeys>) -> f64 {
    let with_state: Vec<Vec<&str>> =
        methods.into_iter().map(StateKeys::all).filter(|keys| !keys.is_empty()).collect();
    let users = |key: &str| with_state.iter().filter(|keys| keys.contains(&key)).count();
    let most = with_state.iter().flatten().map(|key| users(key)).max();
    most.map_or(1.0, |most| share(most, with_state.len()))
}

/// The memory keys one program uses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateKeys {
    /// Keys it reads.
    pub reads: Vec<String>,
    /// Keys it writes.
    pub writes: Vec<String>,
}

impl StateKeys {
    /// Every key, once.
    fn all(&self) -> Vec<&str> {
        let mut keys: Vec<&str> =
            self.reads.iter().chain(&self.writes).map(String::as_str).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of a window or of one role's methods")]
pub(crate) fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn rounded(rate: f64) -> f64 {
    (rate * 10_000.0).round() / 10_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(marks: &str, sessions: usize) -> Evidence {
        Evidence { recent: Window::stored(marks.to_owned()), sessions, state_key_agreement: None }
    }

    #[test]
    fn the_whole_policy() {
        use Standing::{Candidate, Degraded, Durable, Probation};
        let table = [
            (Candidate, "s", 1, Probation, "it worked"),
            (Candidate, "f", 1, Candidate, "it did not"),
            (Probation, "sssssssss", 2, Probation, "nine calls are too few"),
            (Probation, "ssssssssss", 1, Probation, "one session is too few"),
            (Probation, "ssssssssss", 2, Durable, "ten calls, two sessions"),
            (Probation, "sssssssssa", 2, Durable, "a truthful answer is an answer"),
            (Probation, "ssssssssssssssssssfs", 2, Durable, "a failure that breaks no contract"),
            (Probation, "sssssssssssssssssssv", 2, Durable, "one breach in twenty"),
            (Probation, "sssssssssv", 2, Probation, "one breach in ten"),
            (Probation, "sssssssssx", 2, Probation, "the retries were used up"),
            (Probation, "sssssssssb", 2, Probation, "wrong boundary"),
            (Probation, "sssssssssp", 2, Probation, "no provenance"),
            (Probation, "ff", 1, Probation, "two failures are too few"),
            (Probation, "ssfff", 1, Probation, "three of five is not above 0.6"),
            (Probation, "sfff", 1, Degraded, "three of four"),
            (Durable, "sfvx", 1, Degraded, "every kind of failure counts"),
            (Durable, "aaaabbbb", 1, Durable, "truthful answers never count against"),
            (Durable, "s", 1, Durable, "what is durable stays so"),
            (Degraded, "ffffsss", 2, Degraded, "not clean yet"),
            (Degraded, "ffffffssssssssssssss", 2, Durable, "its record is clean again"),
        ];
        for (from, marks, sessions, to, why) in table {
            assert_eq!(decide(from, &evidence(marks, sessions)).to, to, "{marks}: {why}");
        }
    }

    #[test]
    fn answers_that_cannot_be_used_suggest_a_change_for_a_few_calls() {
        let unread = |count: usize| format!("s{}", "u".repeat(count));
        let last = UNREAD_BEFORE_TRIAL + MAX_TRIAL_REPAIRS - 1;
        for (marks, expected) in [
            (String::new(), false),
            (unread(UNREAD_BEFORE_TRIAL - 1), false),
            (unread(UNREAD_BEFORE_TRIAL), true),
            (unread(last), true),
            (unread(last + 1), false),
            ("u".repeat(WINDOW), false),
            (format!("{}s", unread(UNREAD_BEFORE_TRIAL)), false),
            (format!("{}a", unread(UNREAD_BEFORE_TRIAL)), false),
            (format!("{}fuu", unread(UNREAD_BEFORE_TRIAL)), false),
        ] {
            assert_eq!(Window::stored(marks.clone()).answers_changed(), expected, "{marks}");
        }
        // They say nothing about how good the program is.
        let evidence = evidence("ssssssssssuuuuu", 2);
        assert_eq!(decide(Standing::Probation, &evidence).to, Standing::Durable);
        assert!(Window::stored("fffuuuu".to_owned()).regressed());
    }

    #[test]
    fn methods_that_use_different_state_keys_are_not_promoted() {
        let keys =
            |key: &str| StateKeys { reads: vec![key.to_owned()], writes: vec![key.to_owned()] };
        let none = StateKeys::default();
        for (methods, agreement) in [
            (vec![], 1.0),
            (vec![none.clone()], 1.0),
            (vec![keys("a"), none], 1.0),
            (vec![keys("a"), keys("b")], 0.5),
            (vec![keys("a"), keys("a"), keys("b"), keys("a")], 0.75),
            (vec![keys("a"), keys("b"), keys("c")], 1.0 / 3.0),
        ] {
            assert!((state_key_agreement(&methods) - agreement).abs() < 1e-9, "{methods:?}");
        }
        let apart = Evidence { state_key_agreement: Some(0.4), ..evidence("ssssssssss", 2) };
        assert_eq!(decide(Standing::Probation, &apart).to, Standing::Probation);
    }

    #[test]
    fn the_window_rolls() {
        let mut window = Window::default();
        for _ in 0..5 {
            window.push(RunVerdict::Failed);
        }
        assert!(window.regressed());
        for _ in 0..WINDOW {
            window.push(RunVerdict::Succeeded);
            window.push(RunVerdict::Excused);
        }
        assert_eq!(window.as_str(), "s".repeat(WINDOW));
    }
}
