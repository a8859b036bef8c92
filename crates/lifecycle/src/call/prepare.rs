//! Giving a program its environment, and running it there.

use std::time::Duration;

use serde_json::Value;

use crate::attempt::{Origin, Rejection};
use crate::blame::unseen_file;
use crate::dependency::DependencyManifest;
use crate::event::EventKind;
use crate::execution::{Environment, FailedPreparation, FailedRun, Order, Report, ReportEnding};
use crate::guardrail::check_provided;
use crate::inference::{FailedInference, Inferred};
use crate::judgement::{
    JudgementInputs, excused, guardrails_broken, judge, unreported, unseen_note,
};
use crate::no_result;
use crate::outcome::Failure;
use crate::program::VettedProgram;
use crate::purity::is_pure;
use crate::request::CallRequest;
use crate::settlement::Accepted;

use super::rehearse::{Rehearsal, missed_answer, unexpected_answer};
use super::{Call, PendingAttempt, Rehearse, Step};

/// Give the program an environment.
#[derive(Debug)]
pub struct Prepare {
    pub(super) call: Call,
    pub(super) pending: PendingAttempt,
    pub(super) program: VettedProgram,
    pub(super) manifest: DependencyManifest,
}

impl Prepare {
    /// The packages it must hold: the agent's, grown by the program's, within the policy.
    pub fn manifest(&self) -> &DependencyManifest {
        &self.manifest
    }

    /// The call to prepare for.
    pub fn request(&self) -> &CallRequest {
        &self.call.request
    }

    /// The environment, or why there is none. Its packages decide which imports are accounted for.
    pub fn prepared(self, answer: Result<Environment, FailedPreparation>) -> Step {
        let Self { call, mut pending, program, manifest: _ } = self;
        let rejection = match answer {
            Ok(environment) => match unaccounted(&call, &program, &environment) {
                None => {
                    return Step::Execute(Box::new(Execute {
                        call,
                        pending,
                        program,
                        environment,
                    }));
                }
                Some(rejection) => {
                    pending.packages.environment = Some(environment);
                    rejection
                }
            },
            Err(FailedPreparation { fault, environment }) => {
                pending.packages.environment = environment.map(|it| *it);
                let (reason, failure) = fault.judged();
                Rejection::new(reason, failure)
            }
        };
        pending.took +=
            pending.packages.environment.as_ref().map_or(Duration::ZERO, |it| it.prepare_time);
        call.reject(pending, &Rejection { program: Some(program.program().clone()), ..rejection })
    }
}

/// Imports that a prepared environment does not provide.
fn unaccounted(
    call: &Call,
    program: &VettedProgram,
    environment: &Environment,
) -> Option<Rejection> {
    let provides = environment.provides.as_deref()?;
    let violation = check_provided(call.request.language, program.inspection(), provides)?;
    Some(guardrails_broken(vec![violation], &call.policy.guardrails))
}

/// Run the program in a worker.
#[derive(Debug)]
pub struct Execute {
    pub(super) call: Call,
    pending: PendingAttempt,
    program: VettedProgram,
    environment: Environment,
}

impl Execute {
    /// What to run.
    pub fn order(&self) -> Order<'_> {
        Order {
            request: &self.call.request,
            program: &self.program,
            proven: matches!(self.pending.origin, Origin::Artifact(_))
                && !self.program.pollutes_worker(),
        }
    }

    /// Where to run it.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Whether the program uses its arguments and memory alone, and no package that could use more.
    pub fn touches_nothing_outside(&self) -> bool {
        is_pure(&self.program) && self.environment.manifest.is_empty()
    }

    /// Runs it in another build of the same environment: the present one is damaged.
    pub fn replace_environment(&mut self, rebuilt: Environment) {
        self.environment = rebuilt;
    }

    /// The event of running the program.
    pub fn event(&self) -> EventKind {
        EventKind::Executing {
            attempt: self.call.attempts.len() + 1,
            source: self.pending.origin.program_source(),
            code: self.program.program().source.clone(),
        }
    }

    /// What the worker reported: judged, and accepted or rejected.
    pub fn executed(self, answer: Result<Report, FailedRun>, took: Duration) -> Step {
        let Self { mut call, mut pending, program, environment } = self;
        pending.took += environment.prepare_time + took;
        let manifest = environment.manifest.clone();
        pending.packages.environment = Some(environment);
        let report = match answer {
            Ok(report) => report,
            Err(failed) => return call.reject_run(pending, &program, failed),
        };
        pending.result_from = Some(report.result_from);
        let is_new = !matches!(pending.origin, Origin::Artifact(_));
        // A stored program was accepted with what it gives.
        let without_result =
            is_new.then(|| no_result::rejection(&call.request, &program, &report)).flatten();
        pending.output = report.output;
        pending.worker = Some(report.worker);
        pending.sent = call.sent(&program, &report.observed);
        let failed_inference = call.note_inferences(&mut pending, report.inferred);
        let unseen = unseen_file(&call.request, program.inspection(), &call.policy.access);
        let inputs = JudgementInputs {
            request: &call.request,
            guardrails: &call.policy.guardrails,
            program: &program,
            access: &call.policy.access,
            failed_call: report.failed_call.as_ref(),
            failed_inference: failed_inference.as_ref(),
            proven: pending.proven,
            answers_changed: pending.answers_changed,
            observed: &report.observed,
            unseen_file: unseen.as_deref(),
        };
        let mut look = None;
        if let ReportEnding::Looked(looked) = &report.ending {
            look = Some(looked.shown(&report.observed));
        }
        let judged = match without_result {
            Some(rejection) => Err(rejection),
            None => judge(&inputs, report.ending, report.violations),
        };
        if let Ok(Err(failure)) = &judged {
            pending.excused = excused(&inputs, failure);
        }
        pending.observed = match &judged {
            Ok(Ok(value)) => report.observed.named_by(value),
            Ok(Err(_)) | Err(_) => report.observed,
        };
        match judged {
            Ok(result) => {
                // A program that answers that the file is there has seen it.
                let unseen = unseen.filter(|_| result != Ok(Value::Bool(true)));
                pending.notes.extend(unseen.as_deref().map(unseen_note));
                pending.notes.extend(call.trial_note());
                let accepted = Accepted {
                    program,
                    origin: pending.origin.clone(),
                    manifest,
                    changes: report.changes,
                    forged: report.forged,
                    result_from: report.result_from,
                };
                call.rehearse(pending, accepted, result)
            }
            Err(rejection) => {
                let rejection =
                    Rejection { program: Some(program.program().clone()), ..*rejection };
                call.looks.extend(look);
                call.reject(pending, &rejection)
            }
        }
    }
}

impl Call {
    /// Counts what a program asked a model. Gives its last question, if it was not answered.
    fn note_inferences(
        &mut self,
        pending: &mut PendingAttempt,
        inferred: Inferred,
    ) -> Option<FailedInference> {
        self.usage += inferred.usage();
        self.answers.extend(inferred.kept);
        pending.inferences = inferred.records;
        inferred.failed
    }

    /// A run that ended without a report.
    fn reject_run(
        mut self,
        mut pending: PendingAttempt,
        program: &VettedProgram,
        failed: FailedRun,
    ) -> Step {
        let FailedRun { fault, output, worker, observed, inferred } = failed;
        self.note_inferences(&mut pending, *inferred);
        let rejection = unreported(fault, &self.request, program);
        (pending.output, pending.worker) = (*output, Some(*worker));
        pending.sent = self.sent(program, &observed);
        pending.observed = *observed;
        let program = Some(program.program().clone());
        self.reject(pending, &Rejection { program, ..rejection })
    }

    /// A new program is compared with others that were written with it, and must then meet the examples.
    fn rehearse(
        mut self,
        pending: PendingAttempt,
        accepted: Accepted,
        result: Result<Value, Failure>,
    ) -> Step {
        let compared = self.comparison(&accepted);
        match compared.zip(pending.packages.environment.as_ref()) {
            Some((comparison, environment)) => {
                let (rehearsal, environment) =
                    (Rehearsal::Agreement(comparison), environment.clone());
                let call = self;
                let rehearse = Rehearse { call, pending, accepted, result, environment, rehearsal };
                Step::Rehearse(Box::new(rehearse))
            }
            None => self.meet_examples(pending, accepted, result),
        }
    }

    /// Any program must give what the caller expects of this call, if that is known. A new program that answers from its
    /// arguments and memory alone must then meet the examples. A stored one never answers a call that is itself an
    /// example with anything else.
    pub(super) fn meet_examples(
        self,
        pending: PendingAttempt,
        accepted: Accepted,
        result: Result<Value, Failure>,
    ) -> Step {
        let expected = self.policy.expected.as_ref();
        if let Some(rejection) = unexpected_answer(expected, &self.request, &result) {
            let program = Some(accepted.program.program().clone());
            return self.reject(pending, &Rejection { program, ..rejection });
        }
        if self.examples.is_empty() || !is_pure(&accepted.program) {
            return self.accept(pending, accepted, result);
        }
        let is_new = !matches!(pending.origin, Origin::Artifact(_));
        if let Some(environment) = pending.packages.environment.clone().filter(|_| is_new) {
            let (call, rehearsal) = (self, Rehearsal::Examples);
            let rehearse = Rehearse { call, pending, accepted, result, environment, rehearsal };
            return Step::Rehearse(Box::new(rehearse));
        }
        match missed_answer(&self.examples, &self.request, &result) {
            None => self.accept(pending, accepted, result),
            Some(rejection) => {
                let program = Some(accepted.program.program().clone());
                self.reject(pending, &Rejection { program, ..rejection })
            }
        }
    }
}
