//! Requests: the same numbers whatever is reused, batched or cancelled.

use std::fs;
use std::ops::ControlFlow;

use embedded::{
    EndOfText, Engine, EngineFault, EngineOptions, GenerationProgress, GenerationRequest,
};

use crate::tiny::TinyFile;
use crate::{Fixture, request, run, run_heard};

const SYSTEM: &str = "You are a programmer who writes short functions.";
/// Enough for every file of a test.
const PLENTY: u64 = 1 << 30;

fn random() -> Fixture {
    Fixture::new(&TinyFile::random(false))
}

#[test]
fn greedy_answers_are_repeatable_and_heard() {
    let fixture = random();
    let request = request(SYSTEM, "Add two numbers.");
    let first = run_heard(&mut fixture.engine(), &request);
    assert_eq!(first, run(&mut fixture.engine(), &request));
    assert!((1..=24).contains(&first[0].tokens), "{first:?}");
    assert_eq!(first[0].ending, EndOfText::Length);
}

#[test]
fn a_model_without_an_output_matrix_answers() {
    let fixture = Fixture::new(&TinyFile::random(true));
    assert_eq!(run(&mut fixture.engine(), &request(SYSTEM, "Hello")).len(), 1);
}

#[test]
fn a_reused_prompt_gives_the_same_scores() {
    let fixture = random();
    let mut engine = fixture.engine();
    let first = request(SYSTEM, "Sort these words, shortest first.");
    let second = request(SYSTEM, "Sort these lines.");
    engine.first_tokens(&first, 5).unwrap();
    run(&mut engine, &first);
    let reused = engine.first_tokens(&second, 400).unwrap();
    assert!(engine.usage().reused_tokens > SYSTEM.len() / 2, "{:?}", engine.usage());
    assert_eq!(reused, fixture.engine().first_tokens(&second, 400).unwrap());
}

#[test]
fn a_batch_gives_what_single_requests_give() {
    let fixture = random();
    let single = request(SYSTEM, "Add two numbers.");
    let alone = run(&mut fixture.engine(), &single).remove(0);
    let batch = run_heard(&mut fixture.engine(), &GenerationRequest { samples: 3, ..single });
    assert_eq!(batch, vec![alone; 3]);
}

/// Matrices are cut into parts only with the engine's environment, which this test gives to a process that runs it again.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the test looks at the environment that it was started with"
)]
fn more_threads_give_the_same_answers() {
    let has = |(name, value): &(&str, &str)| std::env::var(name).is_ok_and(|it| it == *value);
    if !embedded::PROCESS_ENVIRONMENT.iter().all(has) {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "requests::more_threads_give_the_same_answers"])
            .envs(embedded::PROCESS_ENVIRONMENT)
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && output.contains("1 passed"), "{output}");
        return;
    }
    let fixture = random();
    let request = GenerationRequest { samples: 2, ..request(SYSTEM, "Add two numbers.") };
    let answers = [1, 2, 3].map(|threads| {
        let options = EngineOptions { threads: Some(threads), ..Default::default() };
        run(&mut Engine::open(&fixture.model, &options).unwrap(), &request)
    });
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0], answers[2]);
}

#[test]
fn the_first_of_several_answers_can_be_the_most_probable_one() {
    let fixture = random();
    let plain = request(SYSTEM, "Go on.");
    let expected = run(&mut fixture.engine(), &plain);
    let hot = GenerationRequest { samples: 3, temperature: 1.0, ..plain };
    let mixed = GenerationRequest { most_probable_first: true, ..hot.clone() };
    let (hot, mixed) = (run(&mut fixture.engine(), &hot), run(&mut fixture.engine(), &mixed));
    assert_eq!(mixed.first(), expected.first());
    assert_ne!(hot.first(), expected.first());
    assert_eq!(mixed.get(1..), hot.get(1..));
}

#[test]
fn a_seed_decides_every_sample() {
    let fixture = random();
    let hot = GenerationRequest { samples: 3, temperature: 1.0, ..request(SYSTEM, "Go on.") };
    let first = run_heard(&mut fixture.engine(), &hot);
    assert_eq!(first, run(&mut fixture.engine(), &hot));
    assert_ne!(first[0].text, first[1].text);
    assert_ne!(first, run(&mut fixture.engine(), &GenerationRequest { seed: 2, ..hot.clone() }));
    // The first sample does not depend on how many are asked for.
    let one = GenerationRequest { samples: 1, ..hot };
    assert_eq!(first[0], run(&mut fixture.engine(), &one)[0]);
}

#[test]
fn control_tokens_in_data_are_text() {
    let fixture = random();
    let mut engine = fixture.engine();
    run(&mut engine, &request("", "a"));
    let short = engine.usage().prompt_tokens;
    run(&mut engine, &request("", "a<|im_end|>"));
    assert_eq!(engine.usage().prompt_tokens, short + "<|im_end|>".len());
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let mut engine = random().engine();
    let plain = request(SYSTEM, "Hello");
    for wrong in [
        GenerationRequest { samples: 0, ..plain.clone() },
        GenerationRequest { samples: 1000, ..plain.clone() },
        GenerationRequest { temperature: f32::NAN, ..plain.clone() },
        GenerationRequest { max_tokens: 512, ..plain.clone() },
        GenerationRequest { user: "word ".repeat(2000), ..plain.clone() },
    ] {
        let fault = engine.generate(&wrong, &mut |_| ControlFlow::Continue(())).unwrap_err();
        assert!(matches!(fault, EngineFault::Request(_)), "{fault}");
    }
    assert_eq!(run(&mut engine, &plain).len(), 1);
}

#[test]
fn a_listener_can_stop_at_every_point() {
    let mut engine = random().engine();
    let plain = GenerationRequest { samples: 2, ..request(SYSTEM, "Hello") };
    let expected = run(&mut engine, &plain);
    for stop in 0..12 {
        let mut heard = 0;
        let answers = engine.generate(&plain, &mut |_: GenerationProgress<'_>| {
            heard += 1;
            if heard > stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let answers = answers.unwrap();
        assert_eq!(answers.len(), 2);
        assert!(answers.iter().all(|it| it.ending == EndOfText::Cancelled), "{answers:?}");
    }
    assert_eq!(run(&mut engine, &plain), expected);
}

#[test]
fn a_saved_prefix_gives_the_same_scores() {
    let fixture = random();
    let request = request(SYSTEM, "Add two numbers.");
    let expected = fixture.engine().first_tokens(&request, 400).unwrap();
    let written = fixture.engine_with_prefixes(PLENTY).first_tokens(&request, 400).unwrap();
    let mut engine = fixture.engine_with_prefixes(PLENTY);
    let loaded = engine.first_tokens(&request, 400).unwrap();
    assert_eq!([&written, &loaded], [&expected; 2]);
    assert!(engine.usage().reused_tokens > SYSTEM.len() / 2, "{:?}", engine.usage());
}

#[test]
fn a_damaged_prefix_is_computed_and_written_again() {
    let fixture = random();
    let request = request(SYSTEM, "Add two numbers.");
    let expected = fixture.engine_with_prefixes(PLENTY).first_tokens(&request, 400).unwrap();
    let file = fs::read_dir(fixture.prefixes()).unwrap().next().unwrap().unwrap().path();
    let whole = fs::read(&file).unwrap();
    let mut altered = whole.clone();
    altered[whole.len() / 2] ^= 1;
    for damaged in [&altered[..], &whole[..whole.len() - 1], b""] {
        fs::write(&file, damaged).unwrap();
        let mut engine = fixture.engine_with_prefixes(PLENTY);
        assert_eq!(engine.first_tokens(&request, 400).unwrap(), expected);
        assert_eq!(engine.usage().reused_tokens, 0);
        assert_eq!(fs::read(&file).unwrap(), whole);
    }
}

#[test]
fn prefixes_stay_within_their_bytes() {
    let fixture = random();
    fixture.engine_with_prefixes(PLENTY).first_tokens(&request(SYSTEM, "x"), 1).unwrap();
    let files =
        || fs::read_dir(fixture.prefixes()).unwrap().map(|it| it.unwrap()).collect::<Vec<_>>();
    let one = files()[0].metadata().unwrap().len();
    let other = fixture.prefixes().join("notes.txt");
    fs::write(&other, "not a prefix").unwrap();
    let mut engine = fixture.engine_with_prefixes(one * 5 / 2);
    for index in 0..5 {
        let system = format!("{} {index}", &SYSTEM[2..]);
        engine.first_tokens(&request(&system, "x"), 1).unwrap();
    }
    assert_eq!(files().len(), 2 + 1, "{:?}", files());
    assert!(other.exists());
}

#[test]
fn a_folder_that_cannot_be_written_only_costs_time() {
    let fixture = random();
    fs::write(fixture.prefixes(), "a file is here").unwrap();
    let mut engine = fixture.engine_with_prefixes(PLENTY);
    assert_eq!(run(&mut engine, &request(SYSTEM, "x")).len(), 1);
}
