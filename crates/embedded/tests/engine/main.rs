//! The engine with small models that the tests write themselves: no weights are needed.
#![cfg(test)]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::needless_for_each,
    clippy::needless_pass_by_value,
    reason = "the tiny model of the tests has small numbers"
)]

mod opening;
mod programs;
mod requests;
mod tiny;

use std::ops::ControlFlow;
use std::path::PathBuf;

use embedded::{Engine, EngineOptions, Form, Generated, GenerationProgress, GenerationRequest};
use tempfile::TempDir;
use tiny::TinyFile;

/// A model in a folder of its own.
struct Fixture {
    folder: TempDir,
    model: PathBuf,
}

impl Fixture {
    fn new(file: &TinyFile) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("tiny.gguf");
        std::fs::write(&model, file.bytes()).unwrap();
        Self { folder, model }
    }

    fn engine(&self) -> Engine {
        Engine::open(&self.model, &EngineOptions::default()).unwrap()
    }

    /// An engine that keeps prefixes in this much disk.
    fn engine_with_prefixes(&self, bytes: u64) -> Engine {
        let prefixes = Some(self.prefixes());
        let options = EngineOptions { prefixes, prefix_cache_bytes: bytes, ..Default::default() };
        Engine::open(&self.model, &options).unwrap()
    }

    fn prefixes(&self) -> PathBuf {
        self.folder.path().join("prefixes")
    }
}

fn request(system: &str, user: &str) -> GenerationRequest {
    GenerationRequest {
        system: system.to_owned(),
        user: user.to_owned(),
        form: Form::Text,
        samples: 1,
        temperature: 0.0,
        most_probable_first: false,
        top_p: 1.0,
        seed: 1,
        max_tokens: 24,
    }
}

fn run(engine: &mut Engine, request: &GenerationRequest) -> Vec<Generated> {
    engine.generate(request, &mut |_| ControlFlow::Continue(())).unwrap()
}

/// Runs a request, and checks that the reported text is the answer.
fn run_heard(engine: &mut Engine, request: &GenerationRequest) -> Vec<Generated> {
    let mut heard = vec![String::new(); request.samples];
    let answers = engine.generate(request, &mut |progress| {
        if let GenerationProgress::Text { sample, text } = progress {
            heard[sample].push_str(text);
        }
        ControlFlow::Continue(())
    });
    let answers = answers.unwrap();
    let texts: Vec<&str> = answers.iter().map(|answer| answer.text.as_str()).collect();
    assert_eq!(heard.iter().map(|it| it.trim_end()).collect::<Vec<_>>(), texts);
    answers
}
