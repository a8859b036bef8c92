//! `recurgent model bench`: how fast an installed model reads and writes on this machine.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use embedded::{
    Engine, EngineFault, EngineOptions, Form, GenerationProgress, GenerationRequest,
    GenerationUsage,
};
use recurgent::config::Config;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use super::serve::{engine_options, exec_prepared};
use super::{BenchOptions, folder, model_options};
use crate::exit::{CommandFault, Exit};
use crate::render;

/// Sentences of the stable part of the prompt: about 500 tokens, as the prompts of calls have.
const SENTENCES: u32 = 40;

/// What one request took.
struct Measured {
    usage: GenerationUsage,
    first_token: Duration,
    /// Processor time of reading, and of writing.
    cpu: (Duration, Duration),
}

pub(super) fn run(
    config: &Config,
    asked: &BenchOptions,
    as_json: bool,
) -> Result<Exit, CommandFault> {
    if !asked.prepared {
        return Err(exec_prepared(false));
    }
    let found = folder(&model_options(config)?)?.find(asked.name.as_deref());
    let model = found.ok_or_else(|| {
        CommandFault::missing("no such model is installed; `recurgent model install` fetches one")
    })?;
    let scratch = tempfile::tempdir()
        .map_err(|error| CommandFault::setup(format!("no temporary directory: {error}")))?;
    let options =
        EngineOptions { prefixes: Some(scratch.path().to_owned()), ..engine_options(config) };
    let report = measure(&model.path, &options, asked.tokens);
    let report = report.map_err(|fault| CommandFault::failed(fault.to_string()))?;
    if as_json {
        render::json(&report.to_json(&model.name))?;
    } else {
        render::lines(&report.lines(&model.name))?;
    }
    Ok(Exit::Ok)
}

struct BenchReport {
    load: Duration,
    /// Without a kept prefix.
    cold: Measured,
    /// With the prefix that the first engine kept, in a second engine.
    warm: Measured,
    peak_bytes: u64,
    file_bytes: u64,
}

fn measure(path: &Path, options: &EngineOptions, tokens: u32) -> Result<BenchReport, EngineFault> {
    let began = Instant::now();
    let mut engine = Engine::open(path, options)?;
    let load = began.elapsed();
    let cold = ask(&mut engine, "Write a function that adds two numbers.", tokens)?;
    drop(engine);
    // A second engine knows only the prefix on disk.
    let mut engine = Engine::open(path, options)?;
    let warm = ask(&mut engine, "Write a function that reverses a text.", tokens)?;
    let file_bytes = std::fs::metadata(path).map(|found| found.len()).unwrap_or_default();
    let peak_bytes = embedded::bench::peak_memory().unwrap_or_default();
    Ok(BenchReport { load, cold, warm, peak_bytes, file_bytes })
}

fn ask(engine: &mut Engine, user: &str, tokens: u32) -> Result<Measured, EngineFault> {
    let rule =
        |number| format!("Rule {number}: a program names its inputs and returns one value.\n");
    let request = GenerationRequest {
        system: (0..SENTENCES).map(rule).collect(),
        user: user.to_owned(),
        form: Form::Text,
        samples: 1,
        temperature: 0.0,
        most_probable_first: false,
        top_p: 1.0,
        seed: 0,
        max_tokens: tokens as usize,
    };
    let (began, cpu_began) = (Instant::now(), cpu_time());
    let mut first = None;
    engine.generate(&request, &mut |progress| {
        let is_written = match progress {
            GenerationProgress::Prompt { .. } => false,
            GenerationProgress::Step | GenerationProgress::Text { .. } => true,
        };
        if is_written && first.is_none() {
            first = Some((began.elapsed(), cpu_time()));
        }
        ControlFlow::Continue(())
    })?;
    let end = cpu_time();
    let (first_token, cpu_first) = first.unwrap_or((began.elapsed(), end));
    let cpu = (cpu_first.saturating_sub(cpu_began), end.saturating_sub(cpu_first));
    Ok(Measured { usage: engine.usage(), first_token, cpu })
}

/// Processor time of all threads of this process.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Tokens per second.
#[expect(clippy::cast_precision_loss, reason = "counts of tokens are small")]
fn per_second(tokens: usize, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { tokens as f64 / time.as_secs_f64() }
}

/// Seconds per token.
#[expect(clippy::cast_precision_loss, reason = "counts of tokens are small")]
fn per_token(tokens: usize, time: Duration) -> f64 {
    time.as_secs_f64() / tokens.max(1) as f64
}

/// How fast tokens were read or written, by the clock and in processor time.
fn rates(tokens: usize, time: Duration, cpu: Duration) -> String {
    let (speed, cost) = (per_second(tokens, time), per_token(tokens, cpu));
    format!("{speed:.1} tokens/s, {cost:.4} CPU s per token ({tokens} tokens)")
}

impl BenchReport {
    fn read_tokens(&self) -> usize {
        let usage = &self.cold.usage;
        usage.prompt_tokens.saturating_sub(usage.reused_tokens)
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let usage = &self.cold.usage;
        let (read, written) = (self.read_tokens(), usage.sampled_tokens);
        let row = |what: &str, found: String| format!("{what:<22} {found}");
        vec![
            row("model", name.to_owned()),
            row("load", format!("{:.2} s", self.load.as_secs_f64())),
            row("read (prefill)", rates(read, usage.prompt_time, self.cold.cpu.0)),
            row("write (decode)", rates(written, usage.answer_time, self.cold.cpu.1)),
            row(
                "first token",
                format!(
                    "{:.2} s; {:.2} s when the stable part of the prompt was read before",
                    self.cold.first_token.as_secs_f64(),
                    self.warm.first_token.as_secs_f64()
                ),
            ),
            row(
                "memory",
                format!(
                    "{} at most; the file has {}",
                    render::size(self.peak_bytes),
                    render::size(self.file_bytes)
                ),
            ),
        ]
    }

    fn to_json(&self, name: &str) -> Value {
        let usage = &self.cold.usage;
        let (read, written) = (self.read_tokens(), usage.sampled_tokens);
        json!({
            "model": name,
            "load_seconds": self.load.as_secs_f64(),
            "prefill_tokens": read,
            "prefill_tokens_per_second": per_second(read, usage.prompt_time),
            "prefill_cpu_seconds_per_token": per_token(read, self.cold.cpu.0),
            "decode_tokens": written,
            "decode_tokens_per_second": per_second(written, usage.answer_time),
            "decode_cpu_seconds_per_token": per_token(written, self.cold.cpu.1),
            "first_token_seconds": self.cold.first_token.as_secs_f64(),
            "first_token_seconds_with_prefix": self.warm.first_token.as_secs_f64(),
            "reused_tokens_with_prefix": self.warm.usage.reused_tokens,
            "peak_memory_bytes": self.peak_bytes,
            "file_bytes": self.file_bytes,
        })
    }
}
