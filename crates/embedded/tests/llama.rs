//! Compares the engine with llama.cpp on the real model: tokens, first tokens and greedy answers.
//!
//! Runs where `RECURGENT_TEST_MODEL` names the file of Qwen2.5-Coder-1.5B-Instruct (`Q4_K_M`); elsewhere it says that it was
//! skipped. `llama/answers.mjs` wrote `llama/answers.json`.
#![cfg(test)]

use std::ops::ControlFlow;
use std::path::PathBuf;

use embedded::{Engine, EngineOptions, Form, GenerationRequest};
use serde_json::Value;

/// The file of weights.
const MODEL: &str = "RECURGENT_TEST_MODEL";
/// How many of the five most probable first tokens both engines share, at least. Their kernels round differently.
const SHARED_FIRST_TOKENS: usize = 4;
/// How many letters of a greedy answer are equal, at least, over all answers. One rounding can change the rest of one.
const EQUAL_SHARE: usize = 80;

#[test]
#[expect(clippy::disallowed_methods, reason = "the weights are not part of the repository")]
fn the_engine_agrees_with_llama_cpp() {
    let Some(model) = std::env::var_os(MODEL).map(PathBuf::from) else {
        println!("skipped: {MODEL} does not name a file of weights");
        return;
    };
    let mut engine = Engine::open(&model, &EngineOptions::default()).unwrap();
    let answers: Value = serde_json::from_str(include_str!("llama/answers.json")).unwrap();
    let (mut equal, mut all) = (0, 0);
    for answer in answers.as_array().unwrap() {
        let request = request(answer);
        let first = engine.first_tokens(&request, 5).unwrap();
        let text = |key: &str| answer[key].as_str().unwrap().to_owned();
        let expected: Vec<u64> = numbers(&answer["top"]);
        let tokens = engine.prompt_ids(&request).unwrap();
        assert_eq!(tokens, numbers(&answer["tokens"]), "{}", text("user"));
        assert_eq!(u64::from(first[0].0), expected[0], "{}", text("user"));
        let shared = first.iter().filter(|(id, _)| expected.contains(&u64::from(*id))).count();
        assert!(shared >= SHARED_FIRST_TOKENS, "{first:?} {expected:?}");
        let written = engine.generate(&request, &mut |_| ControlFlow::Continue(())).unwrap();
        let written = written[0].text.clone();
        println!("{written:?}");
        let expected = text("text");
        all += expected.len();
        equal +=
            written.bytes().zip(expected.bytes()).take_while(|(one, other)| one == other).count();
    }
    let share = 100 * equal / all;
    assert!(share >= EQUAL_SHARE, "only {share} % of the answers are equal");
}

fn numbers(list: &Value) -> Vec<u64> {
    list.as_array().unwrap().iter().map(|it| it.as_u64().unwrap()).collect()
}

fn request(answer: &Value) -> GenerationRequest {
    let text = |key: &str| answer[key].as_str().unwrap().to_owned();
    GenerationRequest {
        system: text("system"),
        user: text("user"),
        form: Form::Text,
        samples: 1,
        temperature: 0.0,
        most_probable_first: false,
        top_p: 1.0,
        seed: 0,
        max_tokens: numbers(&answer["continuation"]).len(),
    }
}
