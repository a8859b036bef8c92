//! Comparing the programs that were written for one call, before the answer of one is accepted.

use serde_json::Value;

use crate::agreement::{Agreement, CandidateAnswer, largest_group, mutated};
use crate::example::Example;
use crate::execution::{Report, ReportEnding, WorkerFault};
use crate::judgement::{JudgementInputs, judge, permitted_packages, unfit_signature};
use crate::no_result;
use crate::outcome::Failure;
use crate::program::{GeneratedProgram, VettedProgram, vet};
use crate::purity::is_pure;
use crate::request::{Arguments, CallRequest};
use crate::settlement::Accepted;

use super::rehearse::{MAX_REHEARSED, RehearsalRun, miss, missed_answer, unexpected_answer};
use super::{Call, PendingAttempt};

/// The other programs of an agreement, and what all are given beside the call itself.
#[derive(Debug)]
pub(super) struct Comparison {
    pub(super) others: Vec<VettedProgram>,
    inputs: Vec<Arguments>,
    /// Calls whose answer is known.
    examples: Vec<Example>,
}

impl Comparison {
    /// The runs: the first program has answered the call already, the others answer it as well.
    pub(super) fn runs(&self, call: &CallRequest) -> Vec<RehearsalRun> {
        let mut runs = Vec::new();
        for program in 0..=self.others.len() {
            let own = (program > 0).then(|| call.clone());
            let with = |it: &Arguments| CallRequest { arguments: it.clone(), ..call.clone() };
            let inputs = self.inputs.iter().map(with);
            let examples = self.examples.iter().map(|example| example.inputs.again(call));
            let requests = own.into_iter().chain(inputs).chain(examples);
            runs.extend(requests.map(|request| RehearsalRun { program, request }));
        }
        runs
    }
}

/// What the runs of a comparison gave, in order.
type Runs = std::vec::IntoIter<Result<Report, WorkerFault>>;

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
        let examples = self.examples.iter().filter(|it| !it.inputs.are_of(&self.request));
        let examples = examples.take(MAX_REHEARSED).cloned().collect();
        (!others.is_empty()).then_some(Comparison { others, inputs, examples })
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
    /// A program that gives anything else than is known to be right counts for no group, however many do the same.
    pub(super) fn agree(
        &self,
        comparison: Comparison,
        runs: Vec<Result<Report, WorkerFault>>,
        pending: &mut PendingAttempt,
        (mut accepted, mut result): AcceptedAnswer,
    ) -> AcceptedAnswer {
        let Comparison { others, inputs, examples } = comparison;
        let mut runs = runs.into_iter();
        let answers_of = |result: Option<&Result<Value, Failure>>, runs: &mut Runs| {
            let known_right = result.filter(|result| !self.is_known_wrong(result));
            let mut given = vec![known_right.map_or(CandidateAnswer::Nothing, answer_of)];
            given.extend(runs.by_ref().take(inputs.len()).map(answer));
            let on_examples: Vec<_> = runs.by_ref().take(examples.len()).collect();
            let is_missed =
                examples.iter().zip(&on_examples).any(|(it, run)| miss(it, run).is_some());
            if is_missed { vec![CandidateAnswer::Nothing] } else { given }
        };
        let (mut answers, mut contenders) =
            (vec![answers_of(Some(&result), &mut runs)], vec![None]);
        for program in others {
            let contender =
                runs.next().and_then(Result::ok).and_then(|report| self.contend(program, report));
            answers.push(answers_of(contender.as_ref().map(|it| &it.result), &mut runs));
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

    /// Whether an answer to the call differs from one that is known.
    fn is_known_wrong(&self, result: &Result<Value, Failure>) -> bool {
        let expected = self.policy.expected.as_ref();
        unexpected_answer(expected, &self.request, result).is_some()
            || missed_answer(&self.examples, &self.request, result).is_some()
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
            failed_inference: None,
            proven: None,
            answers_changed: false,
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
            | ReportEnding::Looked(_)
            | ReportEnding::Malformed(_)
            | ReportEnding::Unserializable { .. }
            | ReportEnding::Exited { .. }
            | ReportEnding::Limited(..),
        )
        | Err(_) => CandidateAnswer::Nothing,
    }
}
