//! One loaded model and its requests.

use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use sha2::{Digest, Sha256};

use crate::answer::{AnswerRules, GrowingAnswer};
use crate::fault::EngineFault;
use crate::gguf::GgufHeader;
use crate::guide::Guide;
use crate::kv::KvCache;
use crate::mapping::MappedFile;
use crate::prefix::PrefixCache;
use crate::qwen2::{NewToken, Qwen2, SequenceCache};
use crate::request::{
    EndOfText, EngineOptions, Generated, GenerationProgress, GenerationRequest, GenerationUsage,
};
use crate::sampling::SeededRandom;
use crate::threads::Threads;
use crate::tokenizer::{Tokenizer, TokenizerError};

/// Tokens of a prompt that are read at once. More would make candle pack a second copy of the weights on processors
/// with AMX (it does from 32), and a listener would wait longer.
const PROMPT_STEP: usize = 28;
/// The most answers to one request.
const MAX_SAMPLES: usize = 16;
/// The longest prompt that is turned into tokens.
const MAX_PROMPT_BYTES: usize = 4 << 20;
/// A file of weights is known by its length, its header and samples of its weights: this many ...
const IDENTITY_SAMPLES: usize = 64;
/// ... of this many bytes.
const IDENTITY_SAMPLE_BYTES: usize = 4096;

/// A model that is loaded. One thread drives it; a request takes all its threads.
pub struct Engine {
    model: Qwen2,
    tokenizer: Tokenizer,
    marks: ChatMarks,
    context_tokens: usize,
    prefixes: Option<PrefixCache>,
    /// The keys and values of the last prompt.
    prompt: KvCache,
    usage: GenerationUsage,
}

/// The control tokens around the turns of a conversation.
#[derive(Debug, Clone, Copy)]
struct ChatMarks {
    start: u32,
    end: u32,
}

/// The tokens of a prompt.
struct PromptTokens {
    all: Vec<u32>,
    /// How many of them are the same for many requests.
    stable: usize,
}

/// What hears the progress of a request and may stop it.
type Listener<'a> = dyn FnMut(GenerationProgress<'_>) -> ControlFlow<()> + 'a;

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("shape", self.model.shape()).finish_non_exhaustive()
    }
}

impl Engine {
    /// Loads the weights of a GGUF file. It takes a few seconds of processor time, and memory of about the size of the
    /// file.
    pub fn open(file: &Path, options: &EngineOptions) -> Result<Self, EngineFault> {
        let unreadable = |error: std::io::Error| EngineFault::Unreadable {
            file: file.to_owned(),
            reason: error.to_string(),
        };
        let map = Arc::new(MappedFile::open(file).map_err(unreadable)?);
        let header =
            GgufHeader::read(map.bytes()).map_err(|reason| EngineFault::damaged(file, reason))?;
        let tokenizer = Tokenizer::read(&header).map_err(|error| match error {
            TokenizerError::Damaged(reason) => EngineFault::damaged(file, reason),
            TokenizerError::Unsupported(reason) => EngineFault::unsupported(file, reason),
        })?;
        let mark = |name: &str| {
            let reason = format!("its vocabulary has no control token {name}");
            tokenizer.control(name).ok_or_else(|| EngineFault::unsupported(file, reason))
        };
        let marks = ChatMarks { start: mark("<|im_start|>")?, end: mark("<|im_end|>")? };
        let prefixes = options.prefixes.as_deref().map(|folder| {
            PrefixCache::new(folder, options.prefix_cache_bytes, identity(map.bytes()))
        });
        let model = Qwen2::load(file, &map, &header, Threads::new(options.threads)?)?;
        Ok(Self {
            context_tokens: options.context_tokens.min(model.shape().context),
            prompt: model.new_cache(),
            model,
            tokenizer,
            marks,
            prefixes,
            usage: GenerationUsage::default(),
        })
    }

    /// What the last request cost.
    pub fn usage(&self) -> GenerationUsage {
        self.usage
    }

    /// How many tokens a prompt and its answer may have together.
    pub fn context_tokens(&self) -> usize {
        self.context_tokens
    }

    /// Runs one request. The listener hears every part of the prompt that was read, every step and every piece of
    /// text that stays; if it breaks, the answers end as they are, as [`EndOfText::Cancelled`].
    pub fn generate(
        &mut self,
        request: &GenerationRequest,
        listener: &mut dyn FnMut(GenerationProgress<'_>) -> ControlFlow<()>,
    ) -> Result<Vec<Generated>, EngineFault> {
        let prompt = self.prompt_tokens(request)?;
        self.usage = GenerationUsage { prompt_tokens: prompt.all.len(), ..Default::default() };
        let start = Instant::now();
        let scores = self.read_prompt(&prompt, listener)?;
        self.usage.prompt_time = start.elapsed();
        let start = Instant::now();
        let answers = match scores {
            Some(scores) => self.answer(request, &scores.into(), listener),
            None => Ok(vec![cancelled(); request.samples]),
        };
        self.usage.answer_time = start.elapsed();
        answers
    }

    /// The most probable first tokens of an answer, with their scores. For tests that compare engines.
    #[doc(hidden)]
    pub fn first_tokens(
        &mut self,
        request: &GenerationRequest,
        count: usize,
    ) -> Result<Vec<(u32, f32)>, EngineFault> {
        let prompt = self.prompt_tokens(request)?;
        let scores = self.read_prompt(&prompt, &mut |_| ControlFlow::Continue(()))?;
        let mut scores: Vec<(u32, f32)> = (0..).zip(scores.unwrap_or_default()).collect();
        scores.sort_by(|left, right| right.1.total_cmp(&left.1));
        scores.truncate(count);
        Ok(scores)
    }

    /// The tokens of a prompt. For tests that compare engines.
    #[doc(hidden)]
    pub fn prompt_ids(&self, request: &GenerationRequest) -> Result<Vec<u64>, EngineFault> {
        Ok(self.prompt_tokens(request)?.all.into_iter().map(u64::from).collect())
    }

    fn prompt_tokens(&self, request: &GenerationRequest) -> Result<PromptTokens, EngineFault> {
        Self::check(request)?;
        let mut all = Vec::new();
        let begin = |tokens: &mut Vec<u32>, role: &str| {
            tokens.push(self.marks.start);
            tokens.extend(self.tokenizer.encode(&format!("{role}\n")));
        };
        let end = |tokens: &mut Vec<u32>, text: &str| {
            tokens.extend(self.tokenizer.encode(text));
            tokens.push(self.marks.end);
            tokens.extend(self.tokenizer.encode("\n"));
        };
        if !request.system.is_empty() {
            begin(&mut all, "system");
            end(&mut all, &request.system);
        }
        begin(&mut all, "user");
        let stable = all.len();
        end(&mut all, &request.user);
        begin(&mut all, "assistant");
        all.extend(self.tokenizer.encode(&Guide::opening(&request.form)));
        if all.len() + request.max_tokens > self.context_tokens {
            return Err(EngineFault::Request(format!(
                "its prompt has {} tokens and its answer up to {}, but the context has {}; send less or raise the context",
                all.len(),
                request.max_tokens,
                self.context_tokens
            )));
        }
        Ok(PromptTokens { all, stable })
    }

    fn check(request: &GenerationRequest) -> Result<(), EngineFault> {
        let (samples, bytes) = (request.samples, request.system.len() + request.user.len());
        let message = if !(1..=MAX_SAMPLES).contains(&samples) {
            format!("it asks for {samples} samples; ask for 1 to {MAX_SAMPLES}")
        } else if bytes > MAX_PROMPT_BYTES {
            format!("its prompt has {bytes} bytes; send at most {MAX_PROMPT_BYTES}")
        } else if !(request.temperature.is_finite() && request.temperature >= 0.0) {
            format!("its temperature is {}; send 0 or more", request.temperature)
        } else {
            return Ok(());
        };
        Err(EngineFault::Request(message))
    }

    /// Reads a prompt, as far as it was not read before. Returns the scores of the first token of an answer, or none if
    /// the listener stopped it.
    fn read_prompt(
        &mut self,
        prompt: &PromptTokens,
        listener: &mut Listener<'_>,
    ) -> Result<Option<Vec<f32>>, EngineFault> {
        let must_save = self.reuse(prompt);
        self.usage.reused_tokens = self.prompt.len();
        let empty = self.model.new_cache();
        let mut scores = None;
        while self.prompt.len() < prompt.all.len() {
            let start = self.prompt.len();
            let stop = if start < prompt.stable { prompt.stable } else { prompt.all.len() };
            let stop = stop.min(start + PROMPT_STEP);
            let step = prompt.all.get(start..stop).unwrap_or_default();
            let tokens: Vec<_> =
                step.iter().map(|token| NewToken { sequence: 0, token: *token }).collect();
            let wanted: &[usize] = if stop == prompt.all.len() { &[step.len() - 1] } else { &[] };
            let sequence = SequenceCache { shared: &empty, own: &mut self.prompt };
            scores = self.model.forward(&tokens, &mut [sequence], wanted)?.pop();
            if let (true, Some(prefixes)) = (must_save && stop == prompt.stable, &self.prefixes) {
                prefixes.save(&self.prompt);
            }
            let progress = GenerationProgress::Prompt { read: stop, total: prompt.all.len() };
            if listener(progress).is_break() {
                return Ok(None);
            }
        }
        Ok(scores)
    }

    /// Keeps what the last prompt has in common with this one, or loads its stable part. Returns whether the stable
    /// part is to be computed and saved.
    fn reuse(&mut self, prompt: &PromptTokens) -> bool {
        let common = self.prompt.tokens().iter().zip(&prompt.all);
        // The last token is always read, because its scores are not kept.
        let common = common.take_while(|(old, new)| old == new).count();
        let common = common.min(prompt.all.len() - 1);
        let stable = prompt.all.get(..prompt.stable).unwrap_or_default();
        let is_loaded = common < stable.len()
            && self.prefixes.as_ref().is_some_and(|it| it.load(stable, &mut self.prompt));
        if !is_loaded {
            self.prompt.truncate(common);
        }
        self.prompt.len() < stable.len()
    }

    fn answer(
        &mut self,
        request: &GenerationRequest,
        scores: &Rc<[f32]>,
        listener: &mut Listener<'_>,
    ) -> Result<Vec<Generated>, EngineFault> {
        let rules = AnswerRules { tokenizer: &self.tokenizer, max_tokens: request.max_tokens };
        let guide = Guide::new(&request.form);
        let new_answer = |index| {
            let random = SeededRandom::new(request.seed, index);
            let sampling = request.sampling(index);
            GrowingAnswer::new(guide.clone(), random, sampling, scores, self.model.new_cache())
        };
        let mut answers: Vec<GrowingAnswer> = (0..request.samples).map(new_answer).collect();
        loop {
            for answer in &mut answers {
                answer.advance(&rules);
            }
            if report(&mut answers, listener).is_break() {
                answers.iter_mut().for_each(GrowingAnswer::cancel);
            }
            if !self.step(&mut answers)? {
                break;
            }
        }
        self.usage.sampled_tokens = answers.iter().map(GrowingAnswer::sampled).sum();
        Ok(answers.into_iter().map(GrowingAnswer::finish).collect())
    }

    /// Makes the model read what the answers have new, all in one pass. Returns whether there was something.
    fn step(&self, answers: &mut [GrowingAnswer]) -> Result<bool, EngineFault> {
        let mut tokens = Vec::new();
        let mut wanted = Vec::new();
        let mut readers = Vec::new();
        for (sequence, answer) in answers.iter().enumerate() {
            let before = tokens.len();
            tokens.extend(answer.unread().map(|token| NewToken { sequence, token }));
            if tokens.len() > before {
                wanted.push(tokens.len() - 1);
                readers.push(sequence);
            }
        }
        if tokens.is_empty() {
            return Ok(false);
        }
        let mut sequences: Vec<_> = answers
            .iter_mut()
            .map(|answer| SequenceCache { shared: &self.prompt, own: &mut answer.cache })
            .collect();
        let scores = self.model.forward(&tokens, &mut sequences, &wanted)?;
        for (sequence, scores) in readers.into_iter().zip(scores) {
            if let Some(answer) = answers.get_mut(sequence) {
                answer.set_scores(scores);
            }
        }
        Ok(true)
    }
}

/// Reports a step and the text that is new in each answer.
fn report(answers: &mut [GrowingAnswer], listener: &mut Listener<'_>) -> ControlFlow<()> {
    listener(GenerationProgress::Step)?;
    for (sample, answer) in answers.iter_mut().enumerate() {
        if let Some(text) = answer.unreported() {
            listener(GenerationProgress::Text { sample, text })?;
        }
    }
    ControlFlow::Continue(())
}

/// An answer that was cancelled before it began.
fn cancelled() -> Generated {
    Generated { text: String::new(), tokens: 0, ending: EndOfText::Cancelled, log_probability: 0.0 }
}

/// What tells a file of weights from others, without reading all of it.
fn identity(file: &[u8]) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(file.len().to_le_bytes());
    let step = (file.len() / IDENTITY_SAMPLES).max(IDENTITY_SAMPLE_BYTES);
    for sample in file.chunks(step) {
        digest.update(sample.get(..IDENTITY_SAMPLE_BYTES).unwrap_or(sample));
    }
    digest.finalize().into()
}
