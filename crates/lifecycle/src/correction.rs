//! Corrections: a caller who asks again because the answer would not do.
//!
//! Precision comes first. Asking something else is not a correction, nor is asking the same again, nor the
//! next page. What is left: the same question put more exactly after a weak or failed answer, or words that
//! say so ("no, I meant …"). Every detection names its evidence.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::pattern::PatternEvent;
use crate::redact::{REDACTED, names_a_secret, redacted_text};
use crate::request::Arguments;
use crate::standing::share;

/// Longest time between an answer and the question that corrects it.
pub const REASK_WINDOW_MS: u64 = 180_000;
/// Words kept of one call's arguments.
pub const MAX_WORDS: usize = 32;
/// Longer words are more likely keys and digests than words.
const MAX_WORD_CHARS: usize = 24;
/// Bytes of one text in which words are looked for.
const MAX_TEXT_BYTES: usize = 512;
/// Levels of lists and maps in which words are looked for.
const MAX_LEVELS: usize = 4;
/// Least share of the capabilities two programs have in common.
const MIN_CAPABILITY_OVERLAP: f64 = 0.67;
/// Least share of the words of the shorter question.
const MIN_WORD_OVERLAP: f64 = 0.5;

/// Words that say nothing about what is asked.
const FILLERS: &[&str] = &[
    "a", "an", "are", "at", "be", "by", "can", "could", "do", "does", "find", "for", "from", "get",
    "give", "has", "have", "how", "i", "in", "is", "it", "list", "me", "my", "need", "of", "on",
    "or", "out", "please", "show", "tell", "that", "the", "there", "these", "this", "to", "want",
    "was", "we", "were", "what", "when", "where", "which", "who", "will", "with", "would", "you",
    "your",
];
/// Words by which people say that an answer would not do.
const CUES: &[&str] = &[
    "actually",
    "again",
    "correct",
    "empty",
    "incorrect",
    "instead",
    "meant",
    "mistake",
    "no",
    "not",
    "nothing",
    "retry",
    "still",
    "try",
    "wrong",
];
/// Words by which people go on instead.
const GOING_ON: &[&str] =
    &["also", "and", "another", "else", "more", "next", "page", "then", "too"];

/// What a re-ask corrects, and the evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Correction {
    /// Always true: absent otherwise.
    #[serde(default)]
    pub detected: bool,
    /// The kind of evidence.
    #[serde(default)]
    pub signal: String,
    /// The call whose answer would not do.
    pub correction_of_call_id: String,
    /// What both programs do.
    #[serde(default)]
    pub matched_capability_patterns: Vec<String>,
    /// Words in both questions.
    #[serde(default)]
    pub shared_words: Vec<String>,
    /// Words in one of them.
    #[serde(default)]
    pub changed_words: Vec<String>,
    /// Between the answer and the next question.
    #[serde(default)]
    pub seconds: u64,
    /// Whether the answer was a weak success.
    #[serde(default)]
    pub of_weak_success: bool,
}

/// The words of a call's arguments, each once, sorted; nothing that looks like a secret.
pub fn words(arguments: &Arguments) -> Vec<String> {
    let mut found = BTreeSet::new();
    for value in &arguments.args {
        collect(value, MAX_LEVELS, &mut found);
    }
    for (name, value) in &arguments.kwargs {
        if !names_a_secret(name) {
            collect(value, MAX_LEVELS, &mut found);
        }
    }
    found.into_iter().collect()
}

fn collect(value: &Value, levels: usize, found: &mut BTreeSet<String>) {
    if levels == 0 || found.len() >= MAX_WORDS {
        return;
    }
    match value {
        Value::String(text) => collect_text(text, found),
        Value::Number(number) => collect_text(&number.to_string(), found),
        Value::Array(items) => {
            items.iter().take(MAX_WORDS).for_each(|item| collect(item, levels - 1, found));
        }
        Value::Object(fields) => fields
            .iter()
            .take(MAX_WORDS)
            .filter(|(name, _)| !names_a_secret(name))
            .for_each(|(_, value)| collect(value, levels - 1, found)),
        Value::Null | Value::Bool(_) => {}
    }
}

fn collect_text(text: &str, found: &mut BTreeSet<String>) {
    let end = (0..=MAX_TEXT_BYTES.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    let text = text.get(..end.unwrap_or(0)).unwrap_or_default().to_owned();
    let text = redacted_text(text).replace(REDACTED, " ");
    for word in text.split(|c: char| !c.is_alphanumeric() && c != '\'') {
        let word = word.trim_matches('\'').to_lowercase();
        let fits = !word.is_empty() && word.chars().count() <= MAX_WORD_CHARS;
        if fits && found.len() < MAX_WORDS && !FILLERS.contains(&word.as_str()) {
            found.insert(word);
        }
    }
}

/// Whether `current`, asked at `asked_at_ms`, corrects the answer to `earlier`, which was given in the same session.
pub fn detect(
    earlier: &PatternEvent,
    current: &PatternEvent,
    asked_at_ms: u64,
) -> Option<Correction> {
    let waited = asked_at_ms.saturating_sub(earlier.recorded_at_ms);
    let same_place = earlier.depth == 0
        && current.depth == 0
        && earlier.call_id != current.call_id
        && earlier.role == current.role
        && earlier.method_name == current.method_name;
    if !same_place || waited > REASK_WINDOW_MS {
        return None;
    }
    let matched = shared_capabilities(earlier, current)?;
    let of_weak_success = earlier.is_weak();
    let would_not_do = of_weak_success || earlier.outcome_status != "ok";
    let comparison = Comparison::of(&earlier.argument_words, &current.argument_words);
    let signal = comparison.signal(would_not_do)?;
    Some(Correction {
        detected: true,
        signal: signal.to_owned(),
        correction_of_call_id: earlier.call_id.clone(),
        matched_capability_patterns: matched,
        shared_words: comparison.shared.iter().map(|word| (*word).to_owned()).collect(),
        changed_words: comparison.changed().map(str::to_owned).collect(),
        seconds: waited / 1000,
        of_weak_success,
    })
}

/// What both do, if that is nearly all either does.
fn shared_capabilities(earlier: &PatternEvent, current: &PatternEvent) -> Option<Vec<String>> {
    let (one, other) = (&earlier.capability_patterns, &current.capability_patterns);
    let shared: Vec<String> = one.iter().filter(|label| other.contains(label)).cloned().collect();
    let most = one.len().max(other.len());
    (most == 0 || share(shared.len(), most) >= MIN_CAPABILITY_OVERLAP).then_some(shared)
}

/// Two questions, word by word.
struct Comparison<'a> {
    shared: Vec<&'a str>,
    dropped: Vec<&'a str>,
    added: Vec<&'a str>,
    cues: Vec<&'a str>,
    goes_on: bool,
}

impl<'a> Comparison<'a> {
    fn of(earlier: &'a [String], current: &'a [String]) -> Self {
        let missing_from =
            |other: &'a [String]| move |word: &&str| !other.iter().any(|o| o == word);
        let all = |words: &'a [String]| words.iter().map(String::as_str);
        let new: Vec<&str> = all(current).filter(missing_from(earlier)).collect();
        let (cues, added) = new.into_iter().partition(|word| CUES.contains(word));
        let added: Vec<&str> = added;
        Self {
            shared: all(current).filter(|word| !missing_from(earlier)(word)).collect(),
            dropped: all(earlier).filter(missing_from(current)).collect(),
            goes_on: added.iter().any(|word| GOING_ON.contains(word)),
            added,
            cues,
        }
    }

    fn changed(&self) -> impl Iterator<Item = &'a str> {
        self.dropped.iter().chain(&self.added).chain(&self.cues).copied()
    }

    fn signal(&self, would_not_do: bool) -> Option<&'static str> {
        let content = |words: &[&str]| words.iter().filter(|word| !is_number(word)).count();
        let shorter = self.shared.len() + self.dropped.len().min(self.added.len());
        if self.goes_on || content(&self.shared) == 0 {
            return None;
        }
        if !self.cues.is_empty() && share(self.shared.len(), shorter) >= MIN_WORD_OVERLAP {
            return Some("explicit_reask");
        }
        let (fewer, more) = (self.dropped.len(), self.added.len());
        // Two different words for one place are two questions: Oslo, Bergen. So are two numbers.
        let refined = (fewer == 0) != (more == 0);
        let differs = content(&self.dropped) + content(&self.added) > 0;
        (would_not_do && refined && differs).then_some("temporal_reask")
    }
}

fn is_number(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weak_success::{WeakSignal, Weakness};
    use serde_json::json;

    fn event(call: &str, question: &Value) -> PatternEvent {
        let arguments = Arguments { args: vec![question.clone()], ..Arguments::default() };
        PatternEvent {
            role: "guide".into(),
            method_name: "ask".into(),
            trace_id: "t".into(),
            call_id: call.into(),
            recorded_at_ms: 1_000_000,
            capability_patterns: vec!["http_fetch".into()],
            outcome_status: "ok".into(),
            argument_words: words(&arguments),
            ..PatternEvent::default()
        }
    }

    fn weak(mut event: PatternEvent) -> PatternEvent {
        event.weak_success_signals =
            vec![WeakSignal { signal: Weakness::EmptyArray, path: None, text: None }];
        event
    }

    /// What asking `second` after `first` is taken for; the first answer was a weak one.
    fn check(first: &Value, second: &Value) -> Option<String> {
        let (first, second) = (weak(event("c1", first)), event("c2", second));
        detect(&first, &second, 1_010_000).map(|correction| correction.signal)
    }

    #[test]
    fn the_same_question_put_more_exactly_or_in_protest_is_a_correction() {
        for (first, second, signal) in [
            ("movies in Oslo", "movies in Oslo tonight", "temporal_reask"),
            (
                "which movies are showing in Oslo today?",
                "list movies in Oslo today please",
                "temporal_reask",
            ),
            ("movies in Oslo", "no, I meant movies in Bergen", "explicit_reask"),
            ("movies in Oslo", "movies in Oslo, try again", "explicit_reask"),
        ] {
            assert_eq!(check(&json!(first), &json!(second)).as_deref(), Some(signal), "{second}");
        }
    }

    #[test]
    fn a_different_question_is_not() {
        for (first, second) in [
            (json!("Google"), json!("Yahoo")),
            (json!("movies in Oslo"), json!("movies in Bergen")),
            (json!("movies in Oslo"), json!("movies in Oslo")),
            (json!("movies in Oslo"), json!("and movies in Oslo next week?")),
            (json!("movies in Oslo"), json!("movies in Oslo page 2")),
            (json!("movies in Oslo"), json!("movies in Oslo 2")),
            (json!("movies in Oslo"), json!("no, tell me a joke")),
            (json!(144), json!(32)),
            (json!(["a", 1]), json!({"b": 2})),
        ] {
            assert_eq!(check(&first, &second), None, "{first} {second}");
        }
    }

    #[test]
    fn a_good_answer_is_corrected_only_in_words() {
        let first = event("c1", &json!("capital of France"));
        let more = event("c2", &json!("capital of France population"));
        assert_eq!(detect(&first, &more, 1_010_000), None);
        let wrong = event("c2", &json!("wrong capital of France"));
        let found = detect(&first, &wrong, 1_012_000).unwrap();
        assert_eq!((found.of_weak_success, found.seconds), (false, 12));
        assert_eq!(found.shared_words, ["capital", "france"]);
        assert_eq!(found.changed_words, ["wrong"]);
        let failed = PatternEvent { outcome_status: "error".into(), ..first };
        assert_eq!(detect(&failed, &more, 1_010_000).unwrap().signal, "temporal_reask");
    }

    #[test]
    fn another_place_time_or_program_is_not() {
        let first = weak(event("c1", &json!("movies in Oslo")));
        let again = event("c2", &json!("movies in Oslo tonight"));
        let found = detect(&first, &again, 1_180_000).unwrap();
        assert!(found.of_weak_success);
        assert_eq!(found.matched_capability_patterns, ["http_fetch"]);
        assert_eq!(detect(&first, &again, 1_181_000), None, "too late");
        for other in [
            PatternEvent { method_name: "chat".into(), ..again.clone() },
            PatternEvent { role: "poet".into(), ..again.clone() },
            PatternEvent { depth: 1, ..again.clone() },
            PatternEvent { call_id: "c1".into(), ..again.clone() },
            PatternEvent { capability_patterns: vec!["json".into()], ..again.clone() },
        ] {
            assert_eq!(detect(&first, &other, 1_010_000), None, "{other:?}");
        }
    }

    #[test]
    fn words_are_bounded_and_hold_no_secrets() {
        // The second is of pieces as short as words.
        let secrets = "sk-abcdefghijklmnopqrstuvwxyz0123456789 sk-ant-api03-abcdefgh1234";
        let arguments = Arguments {
            args: vec![json!({"api_key": "hush", "q": [format!("Oslo {secrets}")]})],
            kwargs: [("token".to_owned(), json!("hush"))].into_iter().collect(),
        };
        assert_eq!(words(&arguments), ["oslo"]);
        let long: Vec<String> = (0..10_000).map(|n| format!("w{n}")).collect();
        let arguments =
            Arguments { args: vec![json!(long.join(" ")), json!(long)], ..Arguments::default() };
        assert_eq!(words(&arguments).len(), MAX_WORDS);
        let deep = (0..50).fold(json!("deep"), |inner, _| json!([inner]));
        assert!(words(&Arguments { args: vec![deep], ..Arguments::default() }).is_empty());
    }
}
