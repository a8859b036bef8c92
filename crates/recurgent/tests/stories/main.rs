//! Executes the stories `docs/stories/*.md` on every guest with real workers. A story fails at the first statement
//! that is not true. `docs/stories/README.md` describes the format.
#![cfg(test)]

mod model;
mod observed;
mod pages;
mod parse;
mod run;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use recurgent::Language;

use parse::parse;
use run::StoryRun;

/// Executes a story in one language. The error is the first statement that is not true.
fn check(story: &str, language: Language) -> Result<(), String> {
    let blocks = parse(story)?;
    let mut run = StoryRun::new(&blocks, language)?;
    for block in &blocks {
        run.execute(block).map_err(|problem| format!("line {}: {problem}", block.line))?;
    }
    run.finish()
}

/// Executes one story of the folder on every guest.
fn run_file(name: &str) {
    let story = std::fs::read_to_string(folder().join(name)).unwrap();
    for language in Language::ALL {
        if let Err(problem) = check(&story, language) {
            panic!("docs/stories/{name}, in {language}: {problem}");
        }
    }
}

macro_rules! stories {
    ($($name:ident = $file:literal),* $(,)?) => {
        $(#[test] fn $name() { run_file($file); })*
        const EXECUTED: &[&str] = &[$($file),*];
    };
}

stories! {
    a_method_on_an_agent = "01-a-method-on-an-agent.md",
    an_answer_that_asks_for_another_try = "02-an-answer-that-asks-for-another-try.md",
    an_honest_no = "03-an-honest-no.md",
    four_mishaps_in_one_call = "04-four-mishaps-in-one-call.md",
    movie_night = "05-movie-night.md",
    three_feeds = "06-three-feeds.md",
    the_tool_that_never_was = "07-the-tool-that-never-was.md",
    a_clean_desk = "08-a-clean-desk.md",
    no_second_chance = "09-no-second-chance.md",
    out_of_second_chances = "10-out-of-second-chances.md",
    asked_twice = "11-asked-twice.md",
    three_typos = "12-three-typos.md",
    the_service_is_down = "13-the-service-is-down.md",
    that_is_wrong = "14-that-is-wrong.md",
    two_examples = "15-two-examples.md",
    a_strangers_registry = "16-a-strangers-registry.md",
    two_looks_at_a_messy_file = "17-two-looks-at-a-messy-file.md",
}

#[test]
fn every_story_is_executed() {
    let written: BTreeSet<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "README.md")
        .collect();
    let executed: BTreeSet<String> = EXECUTED.iter().map(|&name| name.to_owned()).collect();
    assert_eq!(written, executed);
}

/// A story fails if one of its statements is made false.
#[test]
fn a_false_statement_fails() {
    let story = std::fs::read_to_string(folder().join("01-a-method-on-an-agent.md")).unwrap();
    check(&story, Language::Python).unwrap();
    for (true_text, false_text) in [
        ("gives: Dune is on shelf 4", "gives: Dune is on shelf 5"),
        ("attempts: [singleton_method_mutation, accepted]", "attempts: [accepted]"),
        ("lanes: {guardrail: 1}", "lanes: {}"),
        ("asked: {library.shelve: 2}", "asked: {library.shelve: 1}"),
        ("memory: {Dune: 4}\n", "memory: {}\n"),
        ("tools: []", "tools: [catalogue]"),
        ("remaining_guardrail_budget: 0", "remaining_guardrail_budget: 1"),
        ("rollback_applied: true", "rollback_applied: false"),
        ("attempts: [singleton_method_mutation, accepted]\n", ""),
        ("memory: {Dune: 4}\n", "remembers: {Dune: 4}\n"),
        ("```python library.shelve", "```python library.store"),
        ("```call", "```cal"),
    ] {
        assert!(story.contains(true_text), "{true_text:?} is not in the story");
        let changed = story.replacen(true_text, false_text, 1);
        assert!(check(&changed, Language::Python).is_err(), "{false_text:?} passes");
    }
    let unused = format!(
        "{story}\n```python library.shelve\nresult = 1\n```\n```ruby library.shelve\n1\n```\n"
    );
    let problem = check(&unused, Language::Python).unwrap_err();
    assert!(problem.contains("never asked"), "{problem}");
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/stories")
}
