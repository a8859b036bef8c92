//! The embedded model: a model on this machine that an engine process runs.
//!
//! This side only connects to the engine, starts it when it does not run, and asks. What both sides say is in
//! `specs/engine-protocol.md`.

mod client;
mod launch;
mod protocol;

use std::path::PathBuf;

use lifecycle::draft::{Draft, DraftFault, Usage, salvage};
use lifecycle::prompt::Prompt;
use sha2::{Digest as _, Sha256};

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
/// Characters of an unreadable answer that are shown.
const SHOWN_CHARS: usize = 160;

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

    #[expect(clippy::cast_possible_truncation, reason = "a temperature has few digits")]
    fn request(&self, prompt: &Prompt, request: &DraftRequest<'_>) -> GenerateRequest {
        let longest = request.max_output_tokens.unwrap_or(u32::MAX).min(self.max_output_tokens);
        let temperature = if request.is_retry { self.retry_temperature } else { self.temperature };
        GenerateRequest {
            model: self.model.path.clone(),
            system: prompt.system.clone(),
            user: prompt.user.clone(),
            form: AnswerForm::Text,
            samples: 1,
            temperature: temperature as f32,
            top_p: TOP_P,
            seed: seed(prompt),
            max_tokens: longest,
        }
    }
}

impl Provider for Embedded {
    fn draft(&self, prompt: &Prompt, request: &DraftRequest<'_>) -> Result<Draft, DraftFault> {
        let order = self.request(prompt, request);
        let answer = self.client.generate(&order, request.timeout, request.cancellation);
        let answer = answer.map_err(|failure| failure.into_draft_fault(request.timeout))?;
        let usage = Usage {
            input_tokens: answer.usage.prompt_tokens,
            output_tokens: answer.usage.output_tokens,
            cached_tokens: answer.usage.reused_tokens,
            ..Usage::default()
        };
        let charged = |fault| DraftFault::Charged(Box::new(fault), usage);
        let Some(text) = answer.texts.into_iter().next() else {
            return Err(charged(DraftFault::Unavailable("the engine sent no answer".to_owned())));
        };
        match text.ending {
            AnswerEnding::Length => Err(charged(DraftFault::Truncated)),
            AnswerEnding::Cancelled => Err(charged(DraftFault::Cancelled)),
            AnswerEnding::Stop | AnswerEnding::Repetition => match salvage(&text.text) {
                Some(payload) => Ok(Draft { payload, usage }),
                None => Err(charged(unreadable(&text.text))),
            },
        }
    }

    fn model<'a>(&'a self, _asked: &'a str) -> &'a str {
        &self.model.name
    }

    fn max_output_tokens(&self) -> u32 {
        self.max_output_tokens
    }
}

fn unreadable(text: &str) -> DraftFault {
    let start: String = text.trim().chars().take(SHOWN_CHARS).collect();
    DraftFault::Malformed(format!("the answer has no program; it begins: {start:?}"))
}

/// The same prompt gives the same answer; a retry, whose prompt says what was wrong, another.
fn seed(prompt: &Prompt) -> u64 {
    let digest = Sha256::new().chain_update(&prompt.system).chain_update(&prompt.user).finalize();
    digest.iter().take(6).fold(0, |seed, byte| seed << 8 | u64::from(*byte))
}
