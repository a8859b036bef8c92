//! Whether the environment of a run is damaged, so that it is built again and the program runs once more.
//!
//! Only an environment that was built earlier can be: one of this call has just been checked. A program that may have
//! reached something is not run again, so its environment is not suspected either, unless it did not even start.

use crate::execution::{
    Environment, FailedPreparation, FailedRun, Report, ReportEnding, WorkerFault,
};
use crate::outcome::{Failure, FailureKind};

/// Signals that end a program which executes damaged code or reads beyond the end of a mapped file.
const SIGNALS_OF_DAMAGE: [&str; 6] =
    ["SIGSEGV", "SIGBUS", "SIGILL", "SIGABRT", "SIGFPE", "SIGTRAP"];

/// What shows whether the environment of a run is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DamageCheck {
    /// Nothing does: it is not suspected.
    Unneeded,
    /// The run itself: the environment cannot be activated any more.
    Certain,
    /// A list of its files: the program raised, as it does when a module is gone.
    ListFiles,
    /// The contents of its files: a signal ended the program, as it does when a shared library is damaged.
    ReadFiles,
}

impl DamageCheck {
    /// What to look at after a run in this environment.
    pub fn after(run: &Result<Report, FailedRun>, environment: &Environment) -> Self {
        if !environment.cache_hit {
            return Self::Unneeded;
        }
        match run {
            Err(failed) if matches!(failed.fault, WorkerFault::ActivationFailed(_)) => {
                Self::Certain
            }
            Err(failed) if failed.ended_by_damage() && failed.observed.reached_nothing() => {
                Self::ReadFiles
            }
            Ok(report)
                if matches!(report.ending, ReportEnding::Raised { .. })
                    && report.observed.reached_nothing() =>
            {
                Self::ListFiles
            }
            Ok(_) | Err(_) => Self::Unneeded,
        }
    }
}

impl FailedRun {
    fn ended_by_damage(&self) -> bool {
        let signal = self.worker.signal.as_deref();
        signal.is_some_and(|signal| SIGNALS_OF_DAMAGE.contains(&signal))
    }

    /// The run in a damaged environment that could not be built again either.
    pub fn with_failed_rebuild(run: Result<Report, Self>, unbuilt: FailedPreparation) -> Self {
        let failed = run.map_or_else(|failed| failed, not_activated_report);
        let failure = match failed.fault {
            WorkerFault::ActivationFailed(failure) => *failure,
            WorkerFault::Crashed { detail, .. } | WorkerFault::Limited(_, detail) => {
                not_activated(detail)
            }
            fault @ (WorkerFault::TimedOut(_)
            | WorkerFault::ServiceSilent { .. }
            | WorkerFault::Unavailable(_)
            | WorkerFault::AllowanceSpent(_)
            | WorkerFault::Uncontained(_)
            | WorkerFault::NoWorkspace(_)
            | WorkerFault::Cancelled) => return Self { fault, ..failed },
        };
        let why = unbuilt.fault.into_failure().message;
        let message = format!(
            "{}; the environment is damaged and cannot be built again: {why}",
            failure.message
        );
        let fault = WorkerFault::ActivationFailed(Box::new(Failure { message, ..failure }));
        Self { fault, ..failed }
    }
}

/// A reported run as one that its environment prevented.
fn not_activated_report(report: Report) -> FailedRun {
    let message = if let ReportEnding::Raised { class, message, .. } = report.ending {
        format!("the program raised {class}: {message}")
    } else {
        "the program failed".to_owned()
    };
    FailedRun {
        fault: WorkerFault::ActivationFailed(Box::new(not_activated(message))),
        output: Box::new(report.output),
        worker: Box::new(report.worker),
        observed: Box::new(report.observed),
        inferred: Box::new(report.inferred),
    }
}

fn not_activated(message: String) -> Failure {
    Failure::new(FailureKind::DependencyActivationFailed, message).with("stage", "activate")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::context::ContextChanges;
    use crate::execution::{EnvironmentFault, Output, ResultFrom, WorkerTrace};
    use crate::outcome::EndedBy;
    use crate::provenance::Observation;

    fn reported(ending: ReportEnding, observed: Observation) -> Report {
        Report {
            ending,
            changes: ContextChanges::default(),
            forged: Vec::new(),
            violations: Vec::new(),
            failed_call: None,
            inferred: crate::inference::Inferred::default(),
            output: Output::default(),
            observed,
            worker: WorkerTrace::default(),
            result_from: ResultFrom::default(),
        }
    }

    fn raised() -> ReportEnding {
        let (class, message) = ("ModuleNotFoundError".to_owned(), "no module rows".to_owned());
        ReportEnding::Raised { class, message, location: None, facts: Box::default() }
    }

    fn ended(signal: Option<&str>, observed: Observation) -> Result<Report, FailedRun> {
        let fault = WorkerFault::Crashed { by: EndedBy::Program, detail: "it ended".to_owned() };
        let worker = WorkerTrace { signal: signal.map(str::to_owned), ..WorkerTrace::default() };
        Err(FailedRun { worker: Box::new(worker), observed: Box::new(observed), ..fault.into() })
    }

    fn not_activated_run() -> Result<Report, FailedRun> {
        let failure = not_activated("its zygote does not start".to_owned());
        Err(WorkerFault::ActivationFailed(Box::new(failure)).into())
    }

    #[test]
    fn only_runs_that_damage_explains_in_environments_built_earlier_are_looked_into() {
        let (nothing, unknown) = (Observation::of_no_network, Observation::default);
        for (run, expected) in [
            (not_activated_run(), DamageCheck::Certain),
            (Ok(reported(raised(), nothing())), DamageCheck::ListFiles),
            (Ok(reported(raised(), unknown())), DamageCheck::Unneeded),
            (Ok(reported(ReportEnding::Value(json!(1)), nothing())), DamageCheck::Unneeded),
            (Ok(reported(ReportEnding::exited(1), nothing())), DamageCheck::Unneeded),
            (ended(Some("SIGSEGV"), nothing()), DamageCheck::ReadFiles),
            (ended(Some("SIGBUS"), nothing()), DamageCheck::ReadFiles),
            (ended(Some("SIGSEGV"), unknown()), DamageCheck::Unneeded),
            (ended(Some("SIGKILL"), nothing()), DamageCheck::Unneeded),
            (ended(None, nothing()), DamageCheck::Unneeded),
        ] {
            let built_earlier = Environment { cache_hit: true, ..Environment::bare() };
            assert_eq!(DamageCheck::after(&run, &built_earlier), expected, "{run:?}");
            let built_now = Environment::bare();
            assert_eq!(DamageCheck::after(&run, &built_now), DamageCheck::Unneeded, "{run:?}");
        }
    }

    #[test]
    fn a_failed_rebuild_is_reported_with_what_showed_the_damage() {
        let unbuilt = || {
            let failure =
                Failure::new(FailureKind::DependencyInstallFailed, "no network".to_owned());
            FailedPreparation::from(EnvironmentFault::ActivationFailed(Box::new(failure)))
        };
        for (run, showed) in [
            (not_activated_run(), "its zygote does not start"),
            (
                Ok(reported(raised(), Observation::of_no_network())),
                "the program raised ModuleNotFoundError: no module rows",
            ),
            (ended(Some("SIGBUS"), Observation::of_no_network()), "it ended"),
        ] {
            let WorkerFault::ActivationFailed(failure) =
                FailedRun::with_failed_rebuild(run, unbuilt()).fault
            else {
                panic!("{showed}")
            };
            assert_eq!(
                failure.message,
                format!(
                    "{showed}; the environment is damaged and cannot be built again: no network"
                )
            );
            assert_eq!(failure.kind, FailureKind::DependencyActivationFailed);
        }
    }
}
