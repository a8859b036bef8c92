//! What the engine is asked, what it answers, and what it reports meanwhile.

use std::path::PathBuf;
use std::time::Duration;

use lifecycle::dialect::Language;

use crate::sampling::SamplingRule;

/// The length of a context, unless the caller sets another.
const DEFAULT_CONTEXT_TOKENS: usize = 8_192;
/// The disk that saved prefixes may use, unless the caller sets another.
const DEFAULT_PREFIX_CACHE_BYTES: u64 = 1 << 30;

/// How an engine runs.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// How many threads compute; by default, one per available processor. Has an effect only if the process was started with [`PROCESS_ENVIRONMENT`](crate::PROCESS_ENVIRONMENT).
    pub threads: Option<usize>,
    /// The folder in which the computed system part of prompts is kept. Without it, nothing is written.
    pub prefixes: Option<PathBuf>,
    /// The most bytes of files in that folder. The least recently used ones are removed first.
    pub prefix_cache_bytes: u64,
    /// The most tokens of a prompt and its answer. A model may have a shorter limit.
    pub context_tokens: usize,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            threads: None,
            prefixes: None,
            prefix_cache_bytes: DEFAULT_PREFIX_CACHE_BYTES,
            context_tokens: DEFAULT_CONTEXT_TOKENS,
        }
    }
}

/// One request: a prompt and how to answer it.
#[derive(Debug, Clone)]
pub struct GenerationRequest {
    /// The part of the prompt that is the same for many requests. It is computed once and kept on disk.
    /// Control tokens written in it, or in `user`, are plain text.
    pub system: String,
    /// The part that differs.
    pub user: String,
    /// The form of the answer.
    pub form: Form,
    /// How many answers are written. They share the computed prompt and are written side by side.
    pub samples: usize,
    /// Zero takes the most probable token each time, so that several samples are equal.
    pub temperature: f32,
    /// The first of several answers takes the most probable token each time, whatever the temperature.
    pub most_probable_first: bool,
    /// Samples only from the most probable tokens whose probabilities sum to this (nucleus sampling).
    pub top_p: f32,
    /// The same request with the same seed and number of samples gives the same answers.
    pub seed: u64,
    /// The most tokens of each answer.
    pub max_tokens: usize,
}

impl GenerationRequest {
    /// How the tokens of the answer with this index are chosen.
    pub(crate) fn sampling(&self, index: usize) -> SamplingRule {
        let is_greedy = self.most_probable_first && index == 0;
        let temperature = if is_greedy { 0.0 } else { self.temperature };
        SamplingRule { temperature, top_p: self.top_p }
    }
}

/// The form of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// Any text.
    Text,
    /// One JSON object around one value that the model writes.
    Object {
        /// How the object begins, such as `{"answer": `. It is forced.
        opening: String,
        /// How the value begins, such as `"`. It is forced too.
        value: String,
        /// How the object ends after the value, such as `}`.
        closing: String,
    },
    /// A program that defines one function. The answer is only its source, without a fence around it.
    Program {
        /// The language.
        language: Language,
        /// The line that begins the function, such as `def total(items):` or `def total(items)`. It is forced.
        head: String,
        /// The name of the function in `head`.
        method: String,
    },
}

/// One answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Generated {
    /// The text.
    pub text: String,
    /// Its tokens. Those that were discarded are not counted.
    pub tokens: usize,
    /// Why it ended.
    pub ending: EndOfText,
    /// The sum of the logarithms of the probabilities of its tokens. Forced tokens are not counted.
    pub log_probability: f32,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndOfText {
    /// It is complete.
    Stop,
    /// It has `max_tokens` tokens, or the context is full.
    Length,
    /// It began to repeat itself.
    Repetition,
    /// The listener stopped it.
    Cancelled,
}

/// A progress report to the listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GenerationProgress<'a> {
    /// A part of the prompt was read.
    Prompt {
        /// Tokens read so far, saved ones included.
        read: usize,
        /// All tokens of the prompt.
        total: usize,
    },
    /// Every unfinished answer got another token. It may still be discarded.
    Step,
    /// Text that is part of an answer and stays. Programs are reported line by line.
    Text {
        /// Which answer, from zero.
        sample: usize,
        /// What is added to it.
        text: &'a str,
    },
}

/// What a request cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GenerationUsage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of them, those that were computed before: read from disk, or kept from the last request.
    pub reused_tokens: usize,
    /// Tokens that were sampled, in all answers, with those that were taken back.
    pub sampled_tokens: usize,
    /// Time for reading the prompt.
    pub prompt_time: Duration,
    /// Time for writing the answers.
    pub answer_time: Duration,
}
