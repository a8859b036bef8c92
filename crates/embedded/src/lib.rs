//! **Writes.** A language model that runs on the processor of this machine, without a service and without C++.
//!
//! [`Engine`] loads a GGUF file of the architecture `qwen2` and answers [`GenerationRequest`]s, one at a time. It is
//! meant to run in a process of its own, started with [`PROCESS_ENVIRONMENT`].

#![expect(
    clippy::cast_precision_loss,
    reason = "sizes of models are small enough for 32-bit numbers"
)]
#![expect(clippy::cast_possible_truncation, reason = "token ids and checked sizes fit")]

mod answer;
mod attention;
pub mod bench;
mod engine;
mod fault;
mod gguf;
mod guide;
mod kv;
mod mapping;
mod matrix;
mod numeric;
mod prefix;
mod qwen2;
mod request;
mod sampling;
mod threads;
mod tokenizer;

pub use engine::Engine;
pub use fault::EngineFault;
pub use request::{
    EndOfText, EngineOptions, Form, Generated, GenerationProgress, GenerationRequest,
    GenerationUsage,
};

/// Variables that the process of an engine must be started with. The library candle has threads that spin while they
/// wait, which makes a busy machine slow; with these it has none, and the engine's own threads sleep. Without
/// them the engine works, with candle's threads.
pub const PROCESS_ENVIRONMENT: [(&str, &str); 1] = [("CANDLE_NUM_THREADS", "1")];
