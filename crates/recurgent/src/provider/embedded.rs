//! The embedded model: a model on this machine that an engine process runs.
//!
//! This side only connects to the engine, starts it when it does not run, and asks. What both sides say is in
//! `specs/engine-protocol.md`.

mod client;
mod launch;
mod protocol;

use std::path::PathBuf;

use lifecycle::dialect::{Language, function_name};
use lifecycle::draft::{Draft, DraftFault, Nanodollars, Usage, salvage};
use lifecycle::prompt::{Prompt, PromptForm};

pub use client::{EngineClient, EngineFailure};
pub use launch::{EngineLaunch, LOG_FILE, SOCKET_FILE, is_own_peer, prepare_folder};
pub use protocol::{
    AnswerEnding, AnswerForm, EngineAnswer, EngineReply, EngineRequest, EngineStage, EngineStatus,
    EngineUsage, FrameReader, GenerateRequest, GeneratedText, LineFault, MAX_REPLY_BYTES,
    MAX_REQUEST_BYTES, PROTOCOL_VERSION, reply_line, request_line,
};

use super::choose::ProviderOptions;
use super::{DraftRequest, Provider};

/// Most tokens of one answer, unless configured.
const OUTPUT_TOKENS: u32 = 1024;
/// Sampling of a first attempt and of a retry, unless configured: small models rarely repair a program but may write
/// another.
const TEMPERATURES: (f64, f64) = (0.0, 0.8);
/// The share of probability that is sampled from.
const TOP_P: f32 = 0.95;

/// A model file that the engine runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddedModel {
    /// What it is called.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// Why this one.
    pub why: String,
}

/// Asks the engine for programs.
#[derive(Debug)]
pub(super) struct Embedded {
    model: EmbeddedModel,
    client: EngineClient,
    temperature: f64,
    retry_temperature: f64,
    max_output_tokens: u32,
}

impl Embedded {
    pub(super) fn new(model: EmbeddedModel, options: &ProviderOptions) -> Self {
        let (first, retry) = TEMPERATURES;
        Self {
            model,
            client: EngineClient::new(options.engine.clone()),
            temperature: options.temperature.unwrap_or(first),
            retry_temperature: options.retry_temperature.or(options.temperature).unwrap_or(retry),
            max_output_tokens: options.max_output_tokens.unwrap_or(OUTPUT_TOKENS),
        }
    }

    /// Asks for `samples` programs at one temperature.
    #[expect(clippy::cast_possible_truncation, reason = "a temperature has few digits")]
    fn ask(
        &self,
        prompt: &Prompt,
        request: &DraftRequest<'_>,
        samples: usize,
    ) -> Result<Vec<Result<Draft, DraftFault>>, DraftFault> {
        let longest = request.max_output_tokens.unwrap_or(u32::MAX).min(self.max_output_tokens);
        let is_free = request.is_retry || request.sample > 0;
        let temperature = if is_free { self.retry_temperature } else { self.temperature };
        let order = GenerateRequest {
            model: self.model.path.clone(),
            system: prompt.system.clone(),
            user: prompt.user.clone(),
            form: form(prompt, request),
            samples,
            temperature: temperature as f32,
            top_p: TOP_P,
            seed: request.seed.wrapping_add(request.sample as u64),
            max_tokens: longest,
        };
        let answer = self.client.generate(&order, request.timeout, request.cancellation);
        let answer = answer.map_err(|failure| failure.into_draft_fault(request.timeout))?;
        if answer.texts.len() != samples {
            let message = "the engine sent another number of answers than was asked for; try again";
            return Err(DraftFault::Unavailable(message.to_owned()));
        }
        let drafts = answer
            .texts
            .iter()
            .enumerate()
            .map(|(index, text)| draft(text, request.language, text_usage(&answer, index)));
        Ok(drafts.collect())
    }
}

impl Provider for Embedded {
    fn draft(&self, prompt: &Prompt, request: &DraftRequest<'_>) -> Result<Draft, DraftFault> {
        let mut drafts = self.ask(prompt, request, 1)?;
        drafts.pop().unwrap_or(Err(DraftFault::Truncated))
    }

    /// The first program is the most probable one; the others are written side by side, and share the prompt that
    /// the engine has read for the first.
    fn drafts(
        &self,
        prompt: &Prompt,
        request: &DraftRequest<'_>,
        count: usize,
    ) -> Vec<Result<Draft, DraftFault>> {
        let mut drafts = match self.ask(prompt, request, 1) {
            Ok(drafts) => drafts,
            Err(fault) => return vec![Err(fault)],
        };
        if count > 1 {
            match self.ask(prompt, &DraftRequest { sample: 1, ..*request }, count - 1) {
                Ok(others) => drafts.extend(others),
                Err(fault) => drafts.push(Err(fault)),
            }
        }
        drafts
    }

    fn form(&self) -> PromptForm {
        PromptForm::Program
    }

    fn model<'a>(&'a self, _asked: &'a str) -> &'a str {
        &self.model.name
    }

    fn max_output_tokens(&self) -> u32 {
        self.max_output_tokens
    }
}

/// The function that the prompt names; without one, any text.
fn form(prompt: &Prompt, request: &DraftRequest<'_>) -> AnswerForm {
    match &prompt.head {
        Some(head) => AnswerForm::Program {
            language: request.language.name().to_owned(),
            head: head.clone(),
            method: function_name(request.language, request.method.as_str()),
        },
        None => AnswerForm::Text,
    }
}

/// What one of the answers cost. The prompt was read once, for the first.
fn text_usage(answer: &EngineAnswer, index: usize) -> Usage {
    let own = answer.texts.get(index).map_or(0, |text| text.tokens);
    let all: u64 = answer.texts.iter().map(|text| text.tokens).sum();
    // Tokens that were taken back are not part of any text.
    let taken_back = answer.usage.output_tokens.saturating_sub(all);
    let (read, reused, more) = match index {
        0 => (answer.usage.prompt_tokens, answer.usage.reused_tokens, taken_back),
        _ => (0, 0, 0),
    };
    Usage {
        input_tokens: read,
        cached_tokens: reused,
        output_tokens: own.saturating_add(more),
        cost: Some(Nanodollars(0)),
        ..Usage::default()
    }
}

fn draft(text: &GeneratedText, language: Language, usage: Usage) -> Result<Draft, DraftFault> {
    let charged = |fault| Err(DraftFault::Charged(Box::new(fault), usage));
    match text.ending {
        AnswerEnding::Length => charged(DraftFault::Truncated),
        AnswerEnding::Cancelled => charged(DraftFault::Cancelled),
        AnswerEnding::Stop | AnswerEnding::Repetition => {
            let is_object = text.text.trim_start().starts_with('{');
            match salvage(&text.text).filter(|_| is_object) {
                Some(payload) => Ok(Draft { payload, usage }),
                None => Ok(Draft::of_program(language, &text.text, usage)),
            }
        }
    }
}
