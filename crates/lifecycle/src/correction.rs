//! Corrections: a caller asks again because the answer was not what was meant.
//!
//! Precision comes first: no word is evidence by itself. What counts is how two calls of one method differ. After a
//! failed or weak answer: the same question with something added, the same values with an option added or given by
//! name, one value that differs a little. After a good answer most of these are other questions; a correction says that
//! the answer was wrong, or repeats the whole call and adds only how it was meant. Every detection names its evidence.

mod comparison;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use unicode_normalization::UnicodeNormalization;

use self::comparison::CallPair;
use crate::pattern::PatternEvent;
use crate::redact::{REDACTED, names_a_secret, redacted, redacted_text};
use crate::request::{Arguments, CallRequest};
use crate::standing::share;

/// Longest time between an answer and the question that corrects it.
pub const REASK_WINDOW_MS: u64 = 180_000;
/// How many of the latest calls of a role are searched for the one that a new call corrects.
pub const MAX_REASK_DISTANCE: usize = 16;
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

/// Whether a call may correct an earlier one: only people correct, and only they make calls at the root.
pub fn may_correct(request: &CallRequest) -> bool {
    request.lineage.depth() == 0
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
    let pair = CallPair::of(earlier, current);
    let evidence = pair.evidence(of_weak_success || earlier.outcome_status != "ok")?;
    let texts = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    Some(Correction {
        detected: true,
        signal: SIGNAL.to_owned(),
        evidence: evidence.to_owned(),
        correction_of_call_id: earlier.call_id.clone(),
        matched_capability_patterns: matched,
        shared_words: texts(&pair.kept),
        changed_words: texts(&[pair.dropped.as_slice(), &pair.added].concat()),
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
mod tests;
