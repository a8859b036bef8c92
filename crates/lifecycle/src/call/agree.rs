//! Comparing the programs that were written for one call, before the answer of one is accepted.

use serde_json::Value;

use crate::agreement::{Agreement, CandidateAnswer, largest_group, mutated};
use crate::execution::{Report, ReportEnding, WorkerFault};
use crate::judgement::{JudgementInputs, judge, permitted_packages, unfit_signature};
use crate::no_result;
use crate::outcome::Failure;
use crate::program::{GeneratedProgram, VettedProgram, vet};
use crate::purity::is_pure;
use crate::request::{Arguments, CallRequest};
use crate::settlement::Accepted;

use super::rehearse::RehearsalRun;
use super::{Call, PendingAttempt};

/// The other programs of an agreement, and the calls that all are given beside the call itself.
#[derive(Debug)]
pub(super) struct Comparison {
    pub(super) others: Vec<VettedProgram>,
    inputs: Vec<Arguments>,
}

impl Comparison {
    /// The runs: the first program has answered the call already, the others answer it as well.
    pub(super) fn runs(&self, call: &CallRequest) -> Vec<RehearsalRun> {
        let run = |program: usize, arguments: &Arguments| RehearsalRun {
            program,
            request: CallRequest { arguments: arguments.clone(), ..call.clone() },
        };
        let mut runs: Vec<RehearsalRun> = self.inputs.iter().map(|it| run(0, it)).collect();
        for program in 1..=self.others.len() {
            runs.push(run(program, &call.arguments));
            runs.extend(self.inputs.iter().map(|it| run(program, it)));
        }
        runs
    }
}

/// A program, and what it answered.
pub(super) type AcceptedAnswer = (Accepted, Result<Value, Failure>);

/// A program of an agreement that gave an answer to the call.
struct Contender {
    program: VettedProgram,
    report: Report,
    result: Result<Value, Failure>,
}

impl Call {
    /// The programs that were written together with the accepted one and can be compared with it: those that may run,
    /// take the arguments, need the same packages, and answer from their arguments and memory alone.
    pub(super) fn comparison(&mut self, accepted: &Accepted) -> Option<Comparison> {
        if self.waiting.is_empty() || !is_pure(&accepted.program) {
            return None;
        }
        let waiting = std::mem::take(&mut self.waiting);
        let others: Vec<VettedProgram> =
            waiting.iter().filter_map(|payload| self.comparable(payload, accepted)).collect();
        let inputs = mutated(&self.request.arguments);
        (!others.is_empty()).then_some(Comparison { others, inputs })
    }

    fn comparable(&self, payload: &Value, accepted: &Accepted) -> Option<VettedProgram> {
        let program = GeneratedProgram::parse(self.request.language, payload).ok()?;
        if self.repeats(&program).is_some() {
            return None;
        }
        let manifest =
            permitted_packages(&program, &self.request, &self.policy, payload.get("dependencies"))
                .ok()?;
        let vetted = vet(program, &self.request, &self.siblings, &self.policy.guardrails).ok()?;
        let can_run = manifest == accepted.manifest
            && is_pure(&vetted)
            && unfit_signature(&vetted, &self.request).is_none();
        can_run.then_some(vetted)
    }

    /// Takes the first program of the largest group that agrees, in place of the accepted one if it is not among them.
    pub(super) fn agree(
        &self,
        comparison: Comparison,
        runs: Vec<Result<Report, WorkerFault>>,
        pending: &mut PendingAttempt,
        (mut accepted, mut result): AcceptedAnswer,
    ) -> AcceptedAnswer {
        let mut runs = runs.into_iter();
        let inputs = comparison.inputs.len();
        let mut own = vec![answer_of(&result)];
        own.extend(runs.by_ref().take(inputs).map(answer));
        let (mut answers, mut contenders) = (vec![own], vec![None]);
        for program in comparison.others {
            let contender =
                runs.next().and_then(Result::ok).and_then(|report| self.contend(program, report));
            let first =
                contender.as_ref().map_or(CandidateAnswer::Nothing, |it| answer_of(&it.result));
            let mut given = vec![first];
            given.extend(runs.by_ref().take(inputs).map(answer));
            answers.push(given);
            contenders.push(contender);
        }
        let (place, agreeing) = largest_group(&answers).unwrap_or((0, 1));
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        pending.agreement =
            Some(Agreement { candidates: count(answers.len()), agreeing: count(agreeing) });
        if let Some(Contender { program, report, result: other }) =
            contenders.into_iter().nth(place).flatten()
        {
            pending.output = report.output;
            pending.worker = Some(report.worker);
            pending.result_from = Some(report.result_from);
            accepted.changes = report.changes;
            accepted.result_from = report.result_from;
            accepted.program = program;
            result = other;
        }
        (accepted, result)
    }

    /// A program's answer to the call, if it would be accepted.
    fn contend(&self, program: VettedProgram, report: Report) -> Option<Contender> {
        if no_result::rejection(&self.request, &program, &report).is_some() {
            return None;
        }
        let inputs = JudgementInputs {
            request: &self.request,
            guardrails: &self.policy.guardrails,
            program: &program,
            access: &self.policy.access,
            failed_call: None,
            proven: None,
            observed: &report.observed,
            unseen_file: None,
        };
        let result = judge(&inputs, report.ending.clone(), Vec::new()).ok()?;
        Some(Contender { program, report, result })
    }
}

fn answer_of(result: &Result<Value, Failure>) -> CandidateAnswer {
    match result {
        Ok(value) => CandidateAnswer::Value(value.clone()),
        Err(failure) => CandidateAnswer::Error(failure.kind.code().to_owned()),
    }
}

fn answer(run: Result<Report, WorkerFault>) -> CandidateAnswer {
    match run.map(|report| report.ending) {
        Ok(ReportEnding::Value(value)) => CandidateAnswer::Value(value),
        Ok(ReportEnding::Reported { reported, .. }) => CandidateAnswer::Error(reported.code),
        Ok(
            ReportEnding::Raised { .. }
            | ReportEnding::Malformed(_)
            | ReportEnding::Unserializable { .. }
            | ReportEnding::Exited { .. }
            | ReportEnding::Limited(..),
        )
        | Err(_) => CandidateAnswer::Nothing,
    }
}
