//! The scripted model of a scenario, which remembers what it was asked.

use std::sync::{Mutex, PoisonError};

use recurgent::Language;
use recurgent::lifecycle::draft::{Draft, DraftFault};
use recurgent::lifecycle::prompt::Prompt;
use recurgent::provider::{DraftLimits, Provider, Scripted};

use super::program::Reply;
use super::scenario::{Naming, Scenario};

/// Answers from the scenario's plan.
#[derive(Debug)]
pub(super) struct Witness {
    script: Scripted,
    asked: Mutex<Vec<Asked>>,
}

/// One request to the model.
#[derive(Debug, Clone)]
struct Asked {
    role: String,
    method: String,
    prompt: String,
    covered: bool,
}

impl Witness {
    /// Of a scenario; `None` when its plan has a program without a text in the guest's language.
    pub(super) fn of(scenario: &Scenario, guest: Language) -> Option<Self> {
        let witness = Self { script: Scripted::new(), asked: Mutex::default() };
        for (key, programs) in &scenario.plan {
            for program in programs {
                witness.add(key, program.reply(guest)?);
            }
        }
        Some(witness)
    }

    /// One more answer.
    pub(super) fn add(&self, key: &str, reply: Reply) {
        match reply {
            Reply::Payload(payload) => self.script.add(key, payload),
            Reply::Fault(fault) => self.script.add_fault(key, fault),
        }
    }

    /// Whether the plan has an answer for a call.
    pub(super) fn covers(&self, role: &str, method: &str) -> bool {
        self.script.covers(role, method)
    }

    /// Requests so far that are of these names.
    pub(super) fn calls(&self, of: &Naming) -> usize {
        self.read(|asked| asked.iter().filter(|one| of.means(&one.role, &one.method)).count())
    }

    /// The prompt of one of those requests, the last unless `nth` (from 1) says otherwise.
    pub(super) fn prompt(&self, of: &Naming, nth: Option<usize>) -> Option<String> {
        self.read(|asked| {
            let mut fitting = asked.iter().filter(|one| of.means(&one.role, &one.method));
            let one = match nth {
                None => fitting.next_back(),
                Some(nth) => fitting.nth(nth.checked_sub(1)?),
            };
            one.map(|one| one.prompt.clone())
        })
    }

    /// The first request the plan has no answer for.
    pub(super) fn uncovered(&self) -> Option<String> {
        self.read(|asked| {
            let one = asked.iter().find(|one| !one.covered)?;
            Some(format!("{}.{}", one.role, one.method))
        })
    }

    fn read<T>(&self, look: impl FnOnce(&[Asked]) -> T) -> T {
        look(&self.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Provider for Witness {
    fn draft(&self, prompt: &Prompt, limits: &DraftLimits<'_>) -> Result<Draft, DraftFault> {
        let (role, method) = (limits.role.as_str(), limits.method.as_str());
        let asked = Asked {
            role: role.to_owned(),
            method: method.to_owned(),
            prompt: format!("{}\n{}", prompt.system, prompt.user),
            covered: self.script.covers(role, method),
        };
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
        self.script.draft(prompt, limits)
    }
}
