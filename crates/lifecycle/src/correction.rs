//! Corrections: a caller asks again because the answer was not what was meant.
//!
//! Precision comes first: no word is evidence by itself. After a failed or weak answer, what counts is how two calls of
//! one method differ: the same question with something added, the same values with an option added or given by name, one
//! value that differs a little. After a good answer such a call is another question, and only one that says that the
//! answer was wrong corrects it. Every detection names its evidence.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use unicode_normalization::UnicodeNormalization;

use crate::pattern::PatternEvent;
use crate::redact::{REDACTED, names_a_secret, redacted, redacted_text};
use crate::request::Arguments;
use crate::standing::share;

/// Longest time between an answer and the question that corrects it.
pub const REASK_WINDOW_MS: u64 = 180_000;
/// The wire name of a correction that follows soon after an answer (`user_correction_signal`).
const SIGNAL: &str = "temporal_reask";
/// Words kept of one call's arguments.
pub const MAX_WORDS: usize = 32;
/// Arguments kept of one call.
const MAX_ARGUMENTS: usize = 16;
/// Bytes kept of one argument; a longer one is known by its words only.
const MAX_ARGUMENT_BYTES: usize = 96;
/// Longer words are more likely keys and digests than words.
const MAX_WORD_CHARS: usize = 24;
/// Bytes of one text in which words are looked for.
const MAX_TEXT_BYTES: usize = 512;
/// Levels of lists and maps in which words are looked for.
const MAX_LEVELS: usize = 4;
/// Least share of the capabilities two programs have in common.
const MIN_CAPABILITY_OVERLAP: f64 = 0.67;
/// Least share of the words of a question that is asked again in other words after a failed or weak answer.
const MIN_KEPT: f64 = 0.66;

/// Words that say nothing about what is asked.
const FILLERS: &[&str] = &[
    "a", "about", "an", "are", "as", "at", "be", "by", "can", "could", "create", "das", "de",
    "der", "die", "do", "does", "draw", "ein", "eine", "einen", "erstelle", "find", "for", "from",
    "generate", "get", "give", "has", "have", "how", "i", "im", "in", "is", "it", "list", "make",
    "me", "my", "near", "need", "of", "on", "or", "out", "para", "please", "plot", "produce",
    "show", "tell", "that", "the", "there", "these", "this", "to", "uber", "und", "um", "uma",
    "want", "was", "we", "were", "what", "when", "where", "which", "who", "will", "with", "would",
    "write", "you", "your",
];
/// Words by which people go on to the next question.
const GOING_ON: &[&str] =
    &["also", "and", "another", "continue", "else", "more", "next", "page", "then", "too"];
/// Phrases that say that the answer before was wrong.
const OBJECTIONS: &[&str] = &[
    "i asked for",
    "i didn't ask",
    "i didn't mean",
    "i meant",
    "i said",
    "is incorrect",
    "is not what i",
    "not what i asked",
    "not what i meant",
    "that is not right",
    "that is wrong",
    "that was wrong",
    "that's incorrect",
    "that's not right",
    "that's not what",
    "that's wrong",
    "wrong answer",
    "you forgot",
    "you gave me",
    "you ignored",
    "you misread",
    "you misunderstood",
    "you returned",
];
/// Beginnings of a clause that says what the answer before is.
const ABOUT_ANSWER: &[&str] = &["that is ", "that's ", "this is not ", "this isn't "];
/// Words after them that approve of it.
const APPROVING: &[&str] = &[
    "all",
    "clear",
    "correct",
    "fine",
    "good",
    "great",
    "helpful",
    "interesting",
    "it",
    "nice",
    "perfect",
    "right",
];
/// Options that ask for the next part of an answer.
const PAGING: &[&str] = &["count", "cursor", "limit", "offset", "page", "skip", "start"];

/// What a call corrects, and the evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Correction {
    /// Always true: absent otherwise.
    #[serde(default)]
    pub detected: bool,
    /// When it was detected: always `temporal_reask`, a call soon after the answer it corrects.
    #[serde(default)]
    pub signal: String,
    /// The kind of evidence.
    #[serde(default)]
    pub evidence: String,
    /// The call whose answer is corrected.
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
    for word in text.split(is_separator) {
        let word = plain_word(word);
        let fits = !word.is_empty() && word.chars().count() <= MAX_WORD_CHARS;
        if fits && found.len() < MAX_WORDS && !FILLERS.contains(&word.as_str()) {
            found.insert(word);
        }
    }
}

/// What separates words. Hyphens, points and slashes inside a word do not: a date or a code is one word.
fn is_separator(c: char) -> bool {
    c.is_whitespace() || ",;:!?()[]{}\"“”«»|".contains(c)
}

/// A word without accents, capitals, marks at its ends, and a plural's ending.
fn plain_word(word: &str) -> String {
    let folded: String = word.nfd().filter(|c| c.is_ascii() || c.is_alphanumeric()).collect();
    let folded = folded.to_lowercase();
    let word = folded.trim_matches(|c: char| !c.is_alphanumeric());
    let singular = word.strip_suffix('s').filter(|rest| rest.chars().count() >= 3);
    singular.unwrap_or(word).to_owned()
}

/// The small arguments of a call, by position or name; nothing that looks like a secret.
pub fn values(arguments: &Arguments) -> BTreeMap<String, Value> {
    let positional =
        arguments.args.iter().enumerate().map(|(index, value)| (index.to_string(), value));
    let named = arguments.kwargs.iter().map(|(name, value)| (name.clone(), value));
    let known = positional.chain(named).filter(|(name, _)| !names_a_secret(name));
    let small = known.map(|(name, value)| {
        let text = value.to_string();
        let is_kept = text.len() <= MAX_ARGUMENT_BYTES && redacted(value.clone()) == *value;
        (name, if is_kept { value.clone() } else { Value::Null })
    });
    small.take(MAX_ARGUMENTS).collect()
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
    let comparison = Comparison::of(earlier, current);
    let evidence = comparison.evidence(of_weak_success || earlier.outcome_status != "ok")?;
    let texts = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    Some(Correction {
        detected: true,
        signal: SIGNAL.to_owned(),
        evidence: evidence.to_owned(),
        correction_of_call_id: earlier.call_id.clone(),
        matched_capability_patterns: matched,
        shared_words: texts(&comparison.kept),
        changed_words: texts(&[comparison.dropped.as_slice(), &comparison.added].concat()),
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

/// Two calls, word by word and value by value.
struct Comparison<'a> {
    kept: Vec<&'a str>,
    dropped: Vec<&'a str>,
    added: Vec<&'a str>,
    before: &'a BTreeMap<String, Value>,
    after: &'a BTreeMap<String, Value>,
}

impl<'a> Comparison<'a> {
    fn of(earlier: &'a PatternEvent, current: &'a PatternEvent) -> Self {
        fn words(event: &PatternEvent) -> impl Iterator<Item = &str> {
            event.argument_words.iter().map(String::as_str)
        }
        let has = |event: &PatternEvent, word: &str| words(event).any(|known| known == word);
        Self {
            kept: words(earlier).filter(|word| has(current, word)).collect(),
            dropped: words(earlier).filter(|word| !has(current, word)).collect(),
            added: words(current).filter(|word| !has(earlier, word)).collect(),
            before: &earlier.argument_values,
            after: &current.argument_values,
        }
    }

    /// The kind of evidence that the second call corrects the first, whose answer failed or was weak if `is_poor`.
    fn evidence(&self, is_poor: bool) -> Option<&'static str> {
        if self.before == self.after && self.dropped.is_empty() && self.added.is_empty() {
            return None;
        }
        if self.objects() {
            return Some("stated");
        }
        if !is_poor || self.added.iter().any(|word| GOING_ON.contains(word)) {
            return None;
        }
        if self.adds_option() {
            return Some("added_option");
        }
        if self.names_values() {
            return Some("named_values");
        }
        if self.changes_little() {
            return Some("changed_value");
        }
        self.restates()
    }

    /// Whether a text of the second call says that the answer to the first was wrong, and the first had no such text: by
    /// a phrase, or by what the answer is, beside words of the question ("ten songs please, that's three").
    fn objects(&self) -> bool {
        let says = |values: &BTreeMap<String, Value>| {
            let texts = values.values().filter_map(Value::as_str);
            let plain = |text: &str| text.to_lowercase().replace('\u{2019}', "'");
            texts.map(plain).any(|text| {
                let is_phrase = OBJECTIONS.iter().any(|phrase| text.contains(phrase));
                is_phrase || (!self.kept.is_empty() && says_what_answer_is(&text))
            })
        };
        says(self.after) && !says(self.before)
    }

    /// The same values, and one more by name that is not about the next part of the answer.
    fn adds_option(&self) -> bool {
        let mut added =
            self.after.keys().filter(|name| !self.before.contains_key(*name)).peekable();
        let same = self.before.iter().all(|(name, value)| self.after.get(name) == Some(value));
        let is_known = !self.before.is_empty() && !self.before.values().all(Value::is_null);
        let is_option = |name: &String| {
            name.parse::<usize>().is_err() && !PAGING.contains(&name.to_lowercase().as_str())
        };
        same && is_known && added.peek().is_some() && added.all(is_option)
    }

    /// The same values, given in another way.
    fn names_values(&self) -> bool {
        let sorted = |values: &BTreeMap<String, Value>| {
            let mut texts: Vec<String> = values.values().map(Value::to_string).collect();
            texts.sort_unstable();
            texts
        };
        let same_names = self.before.keys().eq(self.after.keys());
        !same_names && self.before.len() > 1 && sorted(self.before) == sorted(self.after)
    }

    /// The same arguments but for one, which differs by a slip.
    fn changes_little(&self) -> bool {
        let counts_on = self.dropped.is_empty()
            && !self.added.is_empty()
            && self.added.iter().all(|word| is_number(word));
        if counts_on || !self.before.keys().eq(self.after.keys()) {
            return false;
        }
        let pairs = self.before.values().zip(self.after.values());
        let changed: Vec<_> = pairs.filter(|(one, other)| one != other).collect();
        matches!(changed.as_slice(), [(one, other)] if is_slip(one, other))
    }

    /// The same question with something added, or most of it with something else.
    fn restates(&self) -> Option<&'static str> {
        let content = |words: &[&str]| words.iter().filter(|word| !is_number(word)).count();
        let (kept, dropped) = (content(&self.kept), content(&self.dropped));
        if kept == 0 || content(&self.added) == 0 {
            return None;
        }
        if self.dropped.is_empty() {
            return Some("refined_question");
        }
        let mostly = kept >= 2 && share(kept, kept + dropped) >= MIN_KEPT;
        mostly.then_some("rephrased_question")
    }
}

/// Whether a clause of a text says what the answer is, without approval.
fn says_what_answer_is(text: &str) -> bool {
    text.split([',', '.', ';', '!', '?']).any(|clause| {
        let rest = ABOUT_ANSWER.iter().find_map(|start| clause.trim().strip_prefix(start));
        let word = rest.and_then(|rest| rest.split_whitespace().next());
        word.is_some_and(|word| !APPROVING.contains(&word))
    })
}

/// Whether a value differs from another as if by mistake: in its type, its sign, the order of its characters, or a few
/// of them.
fn is_slip(one: &Value, other: &Value) -> bool {
    let bare = |value: &Value| -> Vec<char> {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let folded = text.nfd().filter(|c| c.is_ascii() || c.is_alphanumeric());
        folded.flat_map(char::to_lowercase).filter(|c| !c.is_whitespace() && *c != '"').collect()
    };
    let (before, after) = (bare(one), bare(other));
    if one.is_null() || other.is_null() || before == after {
        return before == after;
    }
    if one.is_number() && other.is_number() {
        let unsigned =
            |text: &[char]| text.iter().filter(|c| **c != '-').copied().collect::<Vec<_>>();
        return unsigned(&before) == unsigned(&after);
    }
    let sorted = |text: &[char]| {
        let mut text = text.to_vec();
        text.sort_unstable();
        text
    };
    let is_text = one.is_string() && other.is_string() && before.len() >= 3;
    is_text
        && (sorted(&before) == sorted(&after)
            || differences(&before, &after) <= (before.len() / 5).max(1))
}

/// Characters to insert, remove or replace to get from one text to the other.
fn differences(one: &[char], other: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let at = |row: &[usize], j: usize| row.get(j).copied().unwrap_or(usize::MAX / 2);
            let cost =
                (at(&row, j) + usize::from(a != b)).min(at(&row, j + 1) + 1).min(at(&next, j) + 1);
            next.push(cost);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

fn is_number(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_digit() || ".,-/:".contains(c))
}

/// Answers that were corrected, with those of the nested calls that produced them.
#[derive(Debug, Clone, Default)]
pub struct CorrectedAnswers(BTreeSet<String>);

impl CorrectedAnswers {
    /// Of the events of every role.
    pub fn of(events: &[PatternEvent]) -> Self {
        let corrections = events.iter().filter_map(|event| event.user_correction.as_ref());
        let mut waiting: Vec<&str> =
            corrections.map(|correction| correction.correction_of_call_id.as_str()).collect();
        let mut found = BTreeSet::new();
        while let Some(call) = waiting.pop() {
            if found.insert(call.to_owned()) {
                waiting.extend(producers(events, call));
            }
        }
        Self(found)
    }

    /// Whether the answer of this call was corrected.
    pub fn contains(&self, call_id: &str) -> bool {
        self.0.contains(call_id)
    }
}

/// The calls that a call's answer came from: those whose success was weak, or else the last success.
fn producers<'a>(events: &'a [PatternEvent], call: &str) -> Vec<&'a str> {
    let is_child = |event: &&PatternEvent| {
        event.parent_call_id.as_deref() == Some(call) && event.outcome_status == "ok"
    };
    let children: Vec<&PatternEvent> = events.iter().filter(is_child).collect();
    let weak: Vec<&str> =
        children.iter().filter(|event| event.is_weak()).map(|it| it.call_id.as_str()).collect();
    if !weak.is_empty() {
        return weak;
    }
    let last = children.iter().max_by_key(|event| event.recorded_at_ms);
    last.map(|event| event.call_id.as_str()).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::weak_success::{WeakSignal, Weakness};

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
            argument_values: values(&arguments),
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
        detect(&first, &second, 1_010_000).map(|correction| correction.evidence)
    }

    #[test]
    fn the_same_question_put_more_exactly_is_a_correction() {
        for (first, second, signal) in [
            ("movies in Oslo", "movies in Oslo tonight", "refined_question"),
            ("which movies are in Oslo?", "list movies in Oslo today please", "refined_question"),
            ("2025-13-02", "2025-02-13", "changed_value"),
            ("Sao Tomé Lisbao", "Rua de São Tomé, Lisboa", "rephrased_question"),
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
            (json!("oil change"), json!("not wrong, still empty, try again")),
            (json!(144), json!(32)),
            (json!(["a", 1]), json!({"b": 2})),
        ] {
            assert_eq!(check(&first, &second), None, "{first} {second}");
        }
    }

    #[test]
    fn the_evidence_is_named() {
        let first = weak(event("c1", &json!("capital of Georgia")));
        let again = event("c2", &json!("capital of Georgia in the Caucasus"));
        let found = detect(&first, &again, 1_012_000).unwrap();
        assert_eq!((found.of_weak_success, found.seconds), (true, 12));
        assert_eq!(found.shared_words, ["capital", "georgia"]);
        assert_eq!(found.changed_words, ["caucasu"]);
    }

    #[test]
    fn after_a_good_answer_only_an_objection_is_a_correction() {
        for (first, second, expected) in [
            ("capital of Norway", "population of the capital of Norway", None),
            ("movies in Oslo", "movies in Oslo tonight", None),
            ("movies in Oslo", "no, and not in Bergen either", None),
            ("movies in Oslo", "I meant movies in Oslo, Minnesota", Some("stated")),
            ("spend in Q1", "That\u{2019}s wrong: spend in Q1", Some("stated")),
            ("ten calm songs", "ten please, that's three", Some("stated")),
            ("calm songs", "that's great, calm songs for work", None),
            ("what is wrong with 'I said'?", "what is wrong with 'I said so'?", None),
        ] {
            let (first, again) = (event("c1", &json!(first)), event("c2", &json!(second)));
            let found = detect(&first, &again, 1_010_000).map(|correction| correction.evidence);
            assert_eq!(found.as_deref(), expected, "{second}");
        }
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
    fn a_correction_reaches_the_call_that_produced_the_answer() {
        let nested = |call: &str, parent: &str| PatternEvent {
            parent_call_id: Some(parent.into()),
            depth: 1,
            ..event(call, &json!("Oslo"))
        };
        let root = weak(event("c1", &json!("movies in Oslo")));
        let mut again = event("c2", &json!("movies in Oslo tonight"));
        again.user_correction = detect(&root, &again, 1_010_000);
        let early = PatternEvent { recorded_at_ms: 900_000, ..nested("n1", "c1") };
        let failed = PatternEvent { outcome_status: "error".into(), ..nested("n3", "c1") };
        let events = [
            early,
            nested("n2", "c1"),
            failed,
            nested("n4", "n2"),
            nested("n5", "c2"),
            root,
            again,
        ];
        let corrected = CorrectedAnswers::of(&events);
        let found: Vec<&str> = events
            .iter()
            .map(|it| it.call_id.as_str())
            .filter(|id| corrected.contains(id))
            .collect();
        assert_eq!(found, ["n2", "n4", "c1"]);
    }

    #[test]
    fn what_is_kept_is_bounded_and_holds_no_secrets() {
        // The second is of pieces as short as words.
        let secrets = "sk-abcdefghijklmnopqrstuvwxyz0123456789 sk-ant-api03-abcdefgh1234";
        let arguments = Arguments {
            args: vec![json!({"api_key": "hush", "q": [format!("Oslo {secrets}")]})],
            kwargs: [("token".to_owned(), json!("hush"))].into_iter().collect(),
        };
        assert_eq!(words(&arguments), ["oslo"]);
        assert_eq!(values(&arguments), BTreeMap::from([("0".to_owned(), Value::Null)]));
        let long: Vec<String> = (0..10_000).map(|n| format!("w{n}")).collect();
        let arguments =
            Arguments { args: vec![json!(long.join(" ")), json!(long)], ..Arguments::default() };
        assert_eq!(words(&arguments).len(), MAX_WORDS);
        assert!(values(&arguments).values().all(Value::is_null));
        let deep = (0..50).fold(json!("deep"), |inner, _| json!([inner]));
        assert!(words(&Arguments { args: vec![deep], ..Arguments::default() }).is_empty());
    }
}
