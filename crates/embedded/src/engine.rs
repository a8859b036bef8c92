//! One loaded model and its requests.

use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use crate::fault::EngineFault;
use crate::gguf::GgufHeader;
use crate::kv::KvCache;
use crate::mapping::MappedFile;
use crate::qwen2::{NewToken, Qwen2, SequenceCache};
use crate::request::{
    EndOfText, EngineOptions, Form, Generated, GenerationProgress, GenerationRequest,
    GenerationUsage,
};
use crate::sampling::{SamplingRule, SeededRandom, choose};
use crate::threads::Threads;
use crate::tokenizer::{TextJoiner, Tokenizer, TokenizerError};

/// Tokens of a prompt that are read at once. More would make candle pack a second copy of the weights on processors
/// with AMX (it does from 32), and a listener would wait longer.
const PROMPT_STEP: usize = 28;
/// The most answers to one request.
const MAX_SAMPLES: usize = 16;
/// The longest prompt that is turned into tokens.
const MAX_PROMPT_BYTES: usize = 4 << 20;

/// A model that is loaded. One thread drives it; a request takes all its threads.
pub struct Engine {
    model: Qwen2,
    tokenizer: Tokenizer,
    marks: ChatMarks,
    context_tokens: usize,
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

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("shape", self.model.shape()).finish_non_exhaustive()
    }
}

/// What hears the progress of a request and may stop it.
pub(crate) type Listener<'a> = dyn FnMut(GenerationProgress<'_>) -> ControlFlow<()> + 'a;

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
        let model = Qwen2::load(file, &map, &header, Threads::new(options.threads)?)?;
        Ok(Self {
            context_tokens: options.context_tokens.min(model.shape().context),
            prompt: model.new_cache(),
            model,
            tokenizer,
            marks,
            usage: GenerationUsage::default(),
        })
    }

    /// What the last request cost.
    pub fn usage(&self) -> GenerationUsage {
        self.usage
    }

    /// Runs one request. The listener hears every part of the prompt that was read, every step and every piece of
    /// text that stays; if it breaks, the answers end as they are, as [`EndOfText::Cancelled`].
    pub fn generate(
        &mut self,
        request: &GenerationRequest,
        listener: &mut dyn FnMut(GenerationProgress<'_>) -> ControlFlow<()>,
    ) -> Result<Vec<Generated>, EngineFault> {
        let prompt = self.prompt_tokens(request)?;
        self.usage = GenerationUsage { prompt_tokens: prompt.len(), ..Default::default() };
        let start = Instant::now();
        let scores = self.read_prompt(&prompt, listener)?;
        self.usage.prompt_time = start.elapsed();
        let Some(scores) = scores else {
            let nothing = Generated {
                text: String::new(),
                tokens: 0,
                ending: EndOfText::Cancelled,
                log_probability: 0.0,
            };
            return Ok(vec![nothing; request.samples]);
        };
        let start = Instant::now();
        let answers = self.answer(request, &scores, listener);
        self.usage.answer_time = start.elapsed();
        answers
    }

    fn prompt_tokens(&self, request: &GenerationRequest) -> Result<Vec<u32>, EngineFault> {
        if !(1..=MAX_SAMPLES).contains(&request.samples) {
            let samples = request.samples;
            let message = format!("it asks for {samples} samples; ask for 1 to {MAX_SAMPLES}");
            return Err(EngineFault::Request(message));
        }
        let bytes = request.system.len() + request.user.len();
        if bytes > MAX_PROMPT_BYTES {
            let message = format!("its prompt has {bytes} bytes; at most {MAX_PROMPT_BYTES} are read");
            return Err(EngineFault::Request(message));
        }
        let mut tokens = Vec::new();
        for (role, text) in [("system", &request.system), ("user", &request.user)] {
            if role == "system" && text.is_empty() {
                continue;
            }
            tokens.push(self.marks.start);
            tokens.extend(self.tokenizer.encode(&format!("{role}\n")));
            tokens.extend(self.tokenizer.encode(text));
            tokens.push(self.marks.end);
            tokens.extend(self.tokenizer.encode("\n"));
        }
        tokens.push(self.marks.start);
        tokens.extend(self.tokenizer.encode("assistant\n"));
        if tokens.len() + request.max_tokens > self.context_tokens {
            let message = format!(
                "its prompt has {} tokens and its answer up to {}, but the context has only {}; send less or raise the context",
                tokens.len(), request.max_tokens, self.context_tokens
            );
            return Err(EngineFault::Request(message));
        }
        Ok(tokens)
    }

    /// Reads a prompt, as far as the last one did not contain it. Returns the scores of the first token of an answer,
    /// or none if the listener stopped it.
    fn read_prompt(
        &mut self,
        prompt: &[u32],
        listener: &mut Listener<'_>,
    ) -> Result<Option<Vec<f32>>, EngineFault> {
        let same = self.prompt.tokens().iter().zip(prompt).take_while(|(old, new)| old == new);
        // The last token is always read, because its scores are not kept.
        let same = same.count().min(prompt.len() - 1);
        self.prompt.truncate(same);
        self.usage.reused_tokens = same;
        let empty = self.model.new_cache();
        let mut scores = None;
        while self.prompt.len() < prompt.len() {
            let left = prompt.get(self.prompt.len()..).unwrap_or_default();
            let step = left.get(..PROMPT_STEP.min(left.len())).unwrap_or_default();
            let tokens: Vec<_> =
                step.iter().map(|token| NewToken { sequence: 0, token: *token }).collect();
            let wanted: &[usize] = if step.len() == left.len() { &[step.len() - 1] } else { &[] };
            let sequence = SequenceCache { shared: &empty, own: &mut self.prompt };
            scores = self.model.forward(&tokens, &mut [sequence], wanted)?.pop();
            let progress =
                GenerationProgress::Prompt { read: self.prompt.len(), total: prompt.len() };
            if listener(progress).is_break() {
                return Ok(None);
            }
        }
        Ok(scores)
    }

    fn answer(
        &mut self,
        request: &GenerationRequest,
        scores: &[f32],
        listener: &mut Listener<'_>,
    ) -> Result<Vec<Generated>, EngineFault> {
        let rule = SamplingRule { temperature: request.temperature, top_p: request.top_p };
        match request.form {
            Form::Text | Form::Program { .. } => {}
        }
        let mut answers: Vec<TextAnswer> = (0..request.samples)
            .map(|index| TextAnswer::new(self.model.new_cache(), scores.to_vec(), SeededRandom::new(request.seed, index)))
            .collect();
        loop {
            let mut new = Vec::new();
            for (sample, answer) in answers.iter_mut().enumerate() {
                if answer.ending.is_some() {
                    continue;
                }
                let chosen = choose(&answer.scores, rule, &mut answer.random, |token| {
                    token == self.tokenizer.end() || token == self.marks.end || !self.tokenizer.is_control(token)
                });
                let Some(chosen) = chosen else { continue };
                self.usage.sampled_tokens += 1;
                answer.log_probability += chosen.log_probability;
                let Some(bytes) = self.tokenizer.bytes(chosen.token) else {
                    answer.ending = Some(EndOfText::Stop);
                    continue;
                };
                let text = answer.joiner.push(bytes);
                answer.tokens += 1;
                answer.text.push_str(&text);
                if listener(GenerationProgress::Text { sample, text: &text }).is_break() {
                    answer.ending = Some(EndOfText::Cancelled);
                } else if answer.tokens >= request.max_tokens {
                    answer.ending = Some(EndOfText::Length);
                } else {
                    new.push((sample, chosen.token));
                }
            }
            if new.is_empty() {
                break;
            }
            self.step(&mut answers, &new)?;
        }
        Ok(answers.into_iter().map(TextAnswer::finish).collect())
    }

    fn step(&self, answers: &mut [TextAnswer], new: &[(usize, u32)]) -> Result<(), EngineFault> {
        let mut sequences: Vec<_> = answers
            .iter_mut()
            .map(|answer| SequenceCache { shared: &self.prompt, own: &mut answer.cache })
            .collect();
        let tokens: Vec<_> =
            new.iter().map(|(sequence, token)| NewToken { sequence: *sequence, token: *token }).collect();
        let wanted: Vec<usize> = (0..tokens.len()).collect();
        let scores = self.model.forward(&tokens, &mut sequences, &wanted)?;
        for ((sample, _), scores) in new.iter().zip(scores) {
            if let Some(answer) = answers.get_mut(*sample) {
                answer.scores = scores;
            }
        }
        Ok(())
    }
}

struct TextAnswer {
    cache: KvCache,
    scores: Vec<f32>,
    random: SeededRandom,
    joiner: TextJoiner,
    text: String,
    tokens: usize,
    ending: Option<EndOfText>,
    log_probability: f32,
}

impl TextAnswer {
    fn new(cache: KvCache, scores: Vec<f32>, random: SeededRandom) -> Self {
        Self {
            cache,
            scores,
            random,
            joiner: TextJoiner::default(),
            text: String::new(),
            tokens: 0,
            ending: None,
            log_probability: 0.0,
        }
    }

    fn finish(self) -> Generated {
        Generated {
            text: self.text,
            tokens: self.tokens,
            ending: self.ending.unwrap_or(EndOfText::Stop),
            log_probability: self.log_probability,
        }
    }
}
