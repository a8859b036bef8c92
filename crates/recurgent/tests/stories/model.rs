//! The model of a story.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

use lifecycle::draft::{Draft, DraftFault, Usage};
use lifecycle::prompt::Prompt;
use recurgent::provider::{DraftRequest, Provider};
use serde_json::Value;

use crate::parse::StoryAnswer;

/// Gives each answer of the story once, in the order of the story.
#[derive(Debug, Default)]
pub(crate) struct StoryModel {
    answers: Mutex<BTreeMap<String, VecDeque<StoryAnswer>>>,
    asked: Mutex<Vec<(String, Prompt)>>,
}

impl StoryModel {
    pub(crate) fn add(&self, key: &str, answer: StoryAnswer) {
        self.answers.lock().unwrap().entry(key.to_owned()).or_default().push_back(answer);
    }

    pub(crate) fn asked(&self) -> Vec<(String, Prompt)> {
        self.asked.lock().unwrap().clone()
    }

    pub(crate) fn unused(&self) -> Vec<String> {
        let answers = self.answers.lock().unwrap();
        answers
            .iter()
            .filter(|(_, answers)| !answers.is_empty())
            .map(|(key, _)| key.clone())
            .collect()
    }
}

impl Provider for StoryModel {
    fn draft(&self, prompt: &Prompt, request: &DraftRequest<'_>) -> Result<Draft, DraftFault> {
        self.answer(prompt, &request.key())
    }

    fn infer(
        &self,
        prompt: &Prompt,
        _schema: Option<&Value>,
        request: &DraftRequest<'_>,
    ) -> Result<Draft, DraftFault> {
        self.answer(prompt, &request.infer_key())
    }

    fn is_local(&self) -> bool {
        true
    }
}

impl StoryModel {
    fn answer(&self, prompt: &Prompt, key: &str) -> Result<Draft, DraftFault> {
        self.asked.lock().unwrap().push((key.to_owned(), prompt.clone()));
        match self.answers.lock().unwrap().get_mut(key).and_then(VecDeque::pop_front) {
            Some(StoryAnswer::Payload(payload)) => Ok(Draft { payload, usage: Usage::default() }),
            Some(StoryAnswer::Fault(fault)) => Err(fault),
            None => {
                Err(DraftFault::Refused(format!("the story has no (further) answer for {key}")))
            }
        }
    }
}
