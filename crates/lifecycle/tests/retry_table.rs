//! Is each row of the retry policy as intended? Columns: stage, lane, what happens to a stored
//! program, blame, class. The table below is written by hand; a changed row fails.

use lifecycle::attempt::{Attempt, Budgets, Next, Origin, Reason, Rejection, RetryLane, next};
use lifecycle::execution::{Output, Packages, WorkerTrace};
use lifecycle::outcome::{Failure, FailureKind};
use lifecycle::pattern::Capabilities;
use lifecycle::provenance::Observation;
use std::fmt::Write as _;
use std::time::Duration;

const TABLE: &str = "\
PayloadInvalid       generation      generation  repair                program  plain
Truncated            generation      generation  repair                program  plain
ProviderDown         generation      transport   repair                world    transport
RateLimited          generation      transport   repair                world    transport
ProviderTimeout      generation      generation  repair                world    transport
ProviderAuth         generation      ends        ends                  world    plain
ProviderRefusal      generation      ends        ends                  world    plain
ProviderRejected     generation      ends        ends                  world    plain
GenerationOff        generation      ends        ends                  world    plain
ReplayDiverged       generation      ends        ends                  world    final
StoreDown            generation      ends        ends                  world    plain
AllowanceSpent       generation      ends        ends                  caller   plain
Cancelled            execution       ends        ends                  world    final
SyntaxInvalid        validation      generation  repair                program  plain
SignatureUnfit       validation      generation  repair                program  plain
ManifestInvalid      validation      guardrail   repair                program  plain
GuardrailBroken      validation      guardrail   repair                program  plain
TerminalGuardrail    validation      ends        repair unless it ran  program  final
ManifestIncompatible preparation     guardrail   repair                world    plain
ManifestChanged      preparation     guardrail   repair                world    plain
PolicyViolated       preparation     guardrail   repair                world    plain
Unresolvable         preparation     execution   ends                  world    plain
InstallFailed        preparation     execution   ends                  world    plain
ActivationFailed     preparation     execution   ends                  world    plain
SourceUnreachable    preparation     ends        ends                  world    plain
StillPreparing       preparation     ends        ends                  world    plain
GuestMissing         preparation     ends        ends                  world    final
Raised               execution       execution   repair                program  plain
CallerRaised         execution       execution   widen                 caller   plain
ArgumentsMissing     validation      ends        ends                  caller   plain
ArgumentsExtra       validation      execution   widen                 caller   plain
OutsideFailed        execution       ends        ends                  world    plain
OutsideChosen        execution       execution   ends                  world    plain
AnswerUnread         execution       execution   ends                  world    plain
AnswerChanged        execution       execution   repair                program  plain
CallFailed           execution       execution   ends                  world    plain
InferFailed          execution       ends        ends                  world    plain
AnswerUnfit          execution       execution   ends                  world    plain
Looked               execution       look        repair                world    plain
TimedOut             execution       execution   repair                program  plain
LimitReached         execution       execution   repair                program  plain
CrashedByProgram     execution       execution   repair                program  plain
CrashedByHost        execution       ends        ends                  world    final
Unserializable       execution       execution   repair                program  plain
NoResult             outcome_policy  outcome     repair                program  plain
ContractBroken       outcome_policy  outcome     repair                program  plain
ExampleMissed        outcome_policy  outcome     repair                program  plain
ExpectationMissed    outcome_policy  outcome     repair                program  plain
ReportedRetriable    outcome_policy  outcome     repair                program  plain
";

#[test]
fn every_row_is_as_written() {
    let mut table = String::new();
    for reason in Reason::ALL.iter().copied() {
        let row = reason.row();
        writeln!(
            table,
            "{:<20} {:<15} {:<11} {:<21} {:<8} {}",
            format!("{reason:?}"),
            row.stage.name(),
            row.lane.map_or("ends", RetryLane::name),
            row.stored.name(),
            row.blame.name(),
            row.class.name()
        )
        .unwrap();
    }
    assert_eq!(table, TABLE);
}

fn rejected(reason: Reason, origin: Origin) -> Attempt {
    let rejection = Rejection::new(reason, Failure::new(FailureKind::Execution, "no"));
    Attempt {
        origin,
        rejection: Some(rejection),
        code: None,
        packages: Packages::default(),
        capabilities: Capabilities::default(),
        output: Output::default(),
        worker: None,
        result_from: None,
        observed: Observation::default(),
        inferences: Vec::new(),
        sent: None,
        excused: None,
        took: Duration::ZERO,
        generation: Duration::ZERO,
        last_resort: false,
        agreement: None,
        superseded: false,
    }
}

#[test]
fn budgets_are_independent_and_exact() {
    let one_of =
        |lane| Reason::ALL.iter().copied().find(|reason| reason.lane() == Some(lane)).unwrap();
    for lane in RetryLane::ALL {
        for budget in 0..3 {
            let budgets = Budgets {
                generation: budget,
                guardrail: budget,
                execution: budget,
                outcome: budget,
                transport: budget,
                look: budget,
            };
            // Every other lane is already spent; this one must not notice.
            let mut attempts: Vec<_> = RetryLane::ALL
                .into_iter()
                .filter(|other| *other != lane)
                .flat_map(|other| (0..budget).map(move |_| rejected(one_of(other), Origin::Fresh)))
                .collect();
            for used in 1..=budget + 1 {
                attempts.push(rejected(one_of(lane), Origin::Fresh));
                let last = attempts.last().unwrap().rejection.clone().unwrap();
                match next(&attempts, &last, &budgets) {
                    Next::Again { remaining } => assert_eq!(remaining, budget - used, "{lane:?}"),
                    Next::End(_) => assert_eq!(used, budget + 1, "{lane:?} ended early"),
                }
            }
        }
    }
}

#[test]
fn a_stored_program_uses_no_budget() {
    let checksum = lifecycle::program::Checksum::of("x");
    let attempts = vec![
        rejected(Reason::Raised, Origin::Artifact(checksum)),
        rejected(Reason::Raised, Origin::Fresh),
    ];
    let last = attempts.last().unwrap().rejection.clone().unwrap();
    assert_eq!(next(&attempts, &last, &Budgets::default()), Next::Again { remaining: 0 });
}

/// A caller may give up, and an allowance run out, at any time: the log shows how far the attempt came.
#[test]
fn an_attempt_ended_from_outside_shows_how_far_it_came() {
    for reason in [Reason::Cancelled, Reason::AllowanceSpent] {
        let asking = rejected(reason, Origin::Fresh);
        let preparing = Attempt { code: Some("result = 1".into()), ..asking.clone() };
        let running = Attempt { worker: Some(WorkerTrace::default()), ..preparing.clone() };
        for (attempt, stage, stages) in [
            (asking, "generation", vec!["rolled_back"]),
            (preparing, "preparation", vec!["generated", "validated", "rolled_back"]),
            (running, "execution", vec!["generated", "validated", "executed", "rolled_back"]),
        ] {
            assert_eq!(attempt.failed_at().unwrap().name(), stage, "{reason:?}");
            assert_eq!(attempt.stages(), stages, "{reason:?}: {stage}");
        }
    }
}
