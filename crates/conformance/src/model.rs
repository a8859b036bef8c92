//! The scripted model of a scenario, which records the requests it gets.

use std::sync::{Mutex, PoisonError};

use lifecycle::draft::{Draft, DraftFault};
use lifecycle::prompt::Prompt;
use recurgent::Language;
use recurgent::provider::{DraftRequest, Provider, Scripted};
use serde_json::Value;

use crate::program::ScriptedReply;
use crate::scenario::{CallFilter, Scenario};

/// Answers from the plan of the scenario.
#[derive(Debug)]
pub(crate) struct ScriptedModel {
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

impl ScriptedModel {
    /// The model of a scenario; `None` if a program of its plan has no text in the guest language.
    pub(crate) fn of(scenario: &Scenario, guest: Language) -> Option<Self> {
        let model = Self { script: Scripted::new(), asked: Mutex::default() };
        for (key, programs) in &scenario.plan {
            for program in programs {
                model.add(key, program.reply(guest)?);
            }
        }
        Some(model)
    }

    /// Adds an answer.
    pub(crate) fn add(&self, key: &str, reply: ScriptedReply) {
        match reply {
            ScriptedReply::Payload(payload) => self.script.add(key, payload),
            ScriptedReply::Fault(fault) => self.script.add_fault(key, fault),
        }
    }

    /// Whether the plan has an answer for a call.
    pub(crate) fn covers(&self, role: &str, method: &str) -> bool {
        self.script.covers(role, method)
    }

    /// The number of requests so far that a filter matches.
    pub(crate) fn calls(&self, of: &CallFilter) -> usize {
        self.read(|asked| asked.iter().filter(|one| of.means(&one.role, &one.method)).count())
    }

    /// The prompt of a request that a filter matches: the last, or the `nth` counted from 1.
    pub(crate) fn prompt(&self, of: &CallFilter, nth: Option<usize>) -> Option<String> {
        self.read(|asked| {
            let mut fitting = asked.iter().filter(|one| of.means(&one.role, &one.method));
            let one = match nth {
                None => fitting.next_back(),
                Some(nth) => fitting.nth(nth.checked_sub(1)?),
            };
            one.map(|one| one.prompt.clone())
        })
    }

    /// The first request without an answer in the plan.
    pub(crate) fn uncovered(&self) -> Option<String> {
        self.read(|asked| {
            let one = asked.iter().find(|one| !one.covered)?;
            Some(format!("{}.{}", one.role, one.method))
        })
    }

    fn read<T>(&self, look: impl FnOnce(&[Asked]) -> T) -> T {
        look(&self.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Provider for ScriptedModel {
    fn draft(&self, prompt: &Prompt, request: &DraftRequest<'_>) -> Result<Draft, DraftFault> {
        let (role, method) = (request.role.as_str(), request.method.as_str());
        let asked = Asked {
            role: role.to_owned(),
            method: method.to_owned(),
            prompt: format!("{}\n{}", prompt.system, prompt.user),
            covered: self.script.covers(role, method),
        };
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
        self.script.draft(prompt, request)
    }

    fn infer(
        &self,
        prompt: &Prompt,
        schema: Option<&Value>,
        request: &DraftRequest<'_>,
    ) -> Result<Draft, DraftFault> {
        self.script.infer(prompt, schema, request)
    }

    fn is_local(&self) -> bool {
        true
    }
}
