//! Measures a model: `CANDLE_NUM_THREADS=1 taskset -c 0 bench MODEL.gguf [THREADS] [SAMPLES]`.
#![expect(clippy::print_stdout, reason = "it prints what it measured")]

use std::path::Path;

use embedded::bench::{BenchPlan, measure};
use embedded::{Engine, EngineOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let model = arguments.next().ok_or("name a GGUF file")?;
    let threads = arguments.next().map(|it| it.parse()).transpose()?.unwrap_or(1);
    let samples = arguments.next().map(|it| it.parse()).transpose()?.unwrap_or(1);
    let options = EngineOptions { threads: Some(threads), ..Default::default() };
    let mut engine = Engine::open(Path::new(&model), &options)?;
    let report = measure(&mut engine, &BenchPlan { samples, ..Default::default() })?;
    let file = std::fs::metadata(&model)?.len();
    for (name, phase) in [("prompt", report.prompt), ("answer", report.answer)] {
        let rate = phase.tokens_per_processor_second();
        println!("{name}: {rate:.2} tokens per processor second ({phase:?})");
    }
    println!("memory: {} % of the file", 100 * report.peak_memory_bytes / file.max(1));
    Ok(())
}
