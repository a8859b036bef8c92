//! Measures a model on this machine: how fast it reads and writes, and how much memory it takes.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::engine::Engine;
use crate::fault::EngineFault;
use crate::request::{Form, GenerationProgress, GenerationRequest};

/// The words of the prompt that is read. Their number decides how many tokens it has.
const WORDS: &str =
    "The quick brown fox jumps over the lazy dog, and then it writes a short program. ";

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct BenchPlan {
    /// How often the words of the prompt are repeated; they have about 19 tokens.
    pub prompt_repetitions: usize,
    /// How many tokens are written, at most.
    pub answer_tokens: usize,
    /// How many answers are written side by side.
    pub samples: usize,
}

impl Default for BenchPlan {
    fn default() -> Self {
        Self { prompt_repetitions: 20, answer_tokens: 64, samples: 1 }
    }
}

/// What was measured. Times of the processor are those of all threads together, and do not depend on what else runs.
#[derive(Debug, Clone, Copy)]
pub struct BenchReport {
    /// Reading a prompt.
    pub prompt: BenchPhase,
    /// Writing answers.
    pub answer: BenchPhase,
    /// The most memory that this process had resident so far, mapped pages of the model's file included. Zero if the
    /// system does not say.
    pub peak_memory_bytes: u64,
}

/// One phase of a measurement.
#[derive(Debug, Clone, Copy, Default)]
pub struct BenchPhase {
    /// Tokens read or written, in all samples together.
    pub tokens: usize,
    /// Time that passed.
    pub elapsed: Duration,
    /// Time of the processor.
    pub processor: Duration,
}

impl BenchPhase {
    /// Tokens per second of the processor.
    pub fn tokens_per_processor_second(&self) -> f64 {
        self.tokens as f64 / self.processor.as_secs_f64()
    }
}

/// Measures reading a prompt and writing answers to it.
pub fn measure(engine: &mut Engine, plan: &BenchPlan) -> Result<BenchReport, EngineFault> {
    let request = GenerationRequest {
        system: String::new(),
        user: format!("{} Count from 1 to 1000 in words.", WORDS.repeat(plan.prompt_repetitions)),
        form: Form::Text,
        samples: plan.samples,
        temperature: 0.0,
        most_probable_first: false,
        top_p: 1.0,
        seed: 0,
        max_tokens: plan.answer_tokens,
    };
    let begin = (Instant::now(), processor_time());
    let mut middle = begin;
    let answers = engine.generate(&request, &mut |progress| {
        if let GenerationProgress::Prompt { .. } = progress {
            middle = (Instant::now(), processor_time());
        }
        ControlFlow::Continue(())
    })?;
    let end = (Instant::now(), processor_time());
    let phase =
        |tokens, (start, used): (Instant, Duration), (end, used_then): (Instant, Duration)| {
            BenchPhase { tokens, elapsed: end - start, processor: used_then.saturating_sub(used) }
        };
    // The first token of each answer comes with the prompt.
    let written = answers.iter().map(|answer| answer.tokens.saturating_sub(1)).sum();
    let usage = engine.usage();
    Ok(BenchReport {
        prompt: phase(usage.prompt_tokens - usage.reused_tokens, begin, middle),
        answer: phase(written, middle, end),
        peak_memory_bytes: peak_memory().unwrap_or_default(),
    })
}

/// The time that the processor has spent on this process.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// The most memory of this process that was resident at a time, in bytes; `None`: the kernel does not say.
pub fn peak_memory() -> Option<u64> {
    memory("VmHWM:")
}

/// The memory of this process that is resident, in bytes; `None`: the kernel does not say.
pub fn resident_memory() -> Option<u64> {
    memory("VmRSS:")
}

/// An amount of memory in the status of this process.
fn memory(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes << 10)
}
