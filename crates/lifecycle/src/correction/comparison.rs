//! How two calls of one method differ, and what that says about the answer to the first.

use std::collections::BTreeMap;

use serde_json::Value;
use unicode_normalization::UnicodeNormalization;

use crate::pattern::PatternEvent;
use crate::standing::share;

/// Least share of the words of a question that is asked again in other words after a failed or weak answer.
const MIN_KEPT: f64 = 0.66;
/// Words by which people go on to the next question.
const GOING_ON: &[&str] =
    &["also", "and", "another", "continue", "else", "more", "next", "page", "then", "too"];
/// Phrases at the beginning of a clause that say that the answer before was wrong.
const OBJECTIONS: &[&str] = &[
    "das ist falsch",
    "das war falsch",
    "eso no es",
    "está errado",
    "está mal",
    "i asked for",
    "i didn't ask",
    "i didn't mean",
    "i meant",
    "i said",
    "ich meinte",
    "is incorrect",
    "is not what i",
    "je voulais dire",
    "me refería a",
    "não era isso",
    "não foi isso",
    "not what i asked",
    "not what i meant",
    "queria dizer",
    "quis dizer",
    "quise decir",
    "that is not right",
    "that is wrong",
    "that was wrong",
    "that's incorrect",
    "that's not right",
    "that's not what",
    "that's wrong",
    "you forgot",
    "you gave me",
    "you ignored",
    "you misread",
    "you misunderstood",
    "you returned",
];
/// What may stand before such a phrase.
const LEADING: &[&str] = &[
    "but ",
    "it ",
    "no ",
    "sorry ",
    "that ",
    "the answer ",
    "the result ",
    "this ",
    "your answer ",
];
/// Clauses that say so by themselves.
const WHOLE_OBJECTIONS: &[&str] = &["wrong answer"];
/// Beginnings of a clause that says what the answer before is.
const ABOUT_ANSWER: &[&str] =
    &["das ist ", "eso es ", "isso é ", "that is ", "that's ", "this is not ", "this isn't "];
/// Words by which a question about the same begins that rejects the answer.
const REJECTIONS: &[&str] = &["no, ", "no: ", "no. ", "nein, ", "não, "];
/// Words after them, or at the beginning of a clause, that approve of it.
const APPROVING: &[&str] = &[
    "all",
    "bien",
    "bom",
    "clear",
    "correct",
    "fine",
    "good",
    "great",
    "gut",
    "helpful",
    "interesting",
    "it",
    "nice",
    "ok",
    "perfect",
    "right",
    "thanks",
];
/// Options that ask for the next part of an answer.
const PAGING: &[&str] = &["count", "cursor", "limit", "offset", "page", "skip", "start"];

/// Two calls, word by word and value by value.
pub(super) struct CallPair<'a> {
    pub(super) kept: Vec<&'a str>,
    pub(super) dropped: Vec<&'a str>,
    pub(super) added: Vec<&'a str>,
    before: &'a BTreeMap<String, Value>,
    after: &'a BTreeMap<String, Value>,
}

impl<'a> CallPair<'a> {
    pub(super) fn of(earlier: &'a PatternEvent, current: &'a PatternEvent) -> Self {
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
    pub(super) fn evidence(&self, is_poor: bool) -> Option<&'static str> {
        if self.before == self.after && self.dropped.is_empty() && self.added.is_empty() {
            return None;
        }
        if self.objects() {
            return Some("stated");
        }
        if self.adds_condition() {
            return Some("refined_question");
        }
        if self.added.iter().any(|word| GOING_ON.contains(word)) {
            return None;
        }
        if self.adds_option(is_poor) {
            return Some("added_option");
        }
        if self.names_values() {
            return Some("named_values");
        }
        if !is_poor {
            return None;
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
                let is_phrase = clauses(&text).any(is_objection);
                let is_about_it = || says_what_answer_is(&text) || self.rejects(&text);
                is_phrase || (!self.kept.is_empty() && is_about_it())
            })
        };
        says(self.after) && !says(self.before)
    }

    /// Whether a text begins by rejecting the answer and goes on with how the question was meant.
    fn rejects(&self, text: &str) -> bool {
        let is_rejection = REJECTIONS.iter().any(|start| text.starts_with(start));
        is_rejection && !text.contains('?') && !self.added.iter().any(|it| GOING_ON.contains(it))
    }

    /// The same values, and more by name that are not about the next part of the answer. After a good answer a number
    /// asks for another case.
    fn adds_option(&self, is_poor: bool) -> bool {
        let mut added =
            self.after.keys().filter(|name| !self.before.contains_key(*name)).peekable();
        let same = self.before.iter().all(|(name, value)| self.after.get(name) == Some(value));
        let is_known = !self.before.is_empty() && !self.before.values().all(Value::is_null);
        let is_option = |name: &String| {
            let is_case = !is_poor && self.after.get(name).is_some_and(Value::is_number);
            let is_positional = name.parse::<usize>().is_ok();
            !(is_case || is_positional || PAGING.contains(&name.to_lowercase().as_str()))
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

    /// The same arguments but for one text, which keeps every word of the question and adds a clause that does not go on
    /// to the next one ("population of Paris, the one in France"). A caller with a different question seldom repeats all its words.
    fn adds_condition(&self) -> bool {
        if !self.before.keys().eq(self.after.keys()) {
            return false;
        }
        let pairs = self.before.values().zip(self.after.values());
        let changed: Vec<_> = pairs.filter(|(one, other)| one != other).collect();
        let [(Value::String(one), Value::String(other))] = changed.as_slice() else { return false };
        let goes_on = |clause: &str| {
            let clause = clause.to_lowercase();
            GOING_ON.contains(&first_word(&clause)) || approves(&clause)
        };
        let repeats = self.dropped.is_empty() && !self.kept.is_empty() && !self.added.is_empty();
        repeats && clauses(other).count() > clauses(one).count() && !clauses(other).any(goes_on)
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

/// Whether a clause says that the answer was wrong. The same words inside a clause are about something else ("find the
/// sentence that is wrong").
fn is_objection(clause: &str) -> bool {
    let begins = |text: &str| OBJECTIONS.iter().any(|phrase| text.starts_with(phrase));
    let led = LEADING.iter().find_map(|word| clause.strip_prefix(word));
    // `is incorrect …` without a subject is a question.
    (begins(clause) && !clause.starts_with("is "))
        || led.is_some_and(begins)
        || WHOLE_OBJECTIONS.contains(&clause.trim_end_matches(|c: char| !c.is_alphanumeric()))
}

/// Whether a clause of a text says what the answer is, without approval, or what it should not be.
fn says_what_answer_is(text: &str) -> bool {
    let is_about = |clause: &str| ABOUT_ANSWER.iter().any(|start| clause.starts_with(start));
    clauses(text).any(|clause| is_about(clause) && !approves(clause))
        || clauses(text).skip(1).any(|clause| clause.starts_with("not "))
}

/// Whether a clause is content with the answer.
fn approves(clause: &str) -> bool {
    let described = ABOUT_ANSWER.iter().find_map(|start| clause.strip_prefix(start));
    APPROVING.contains(&first_word(described.unwrap_or(clause)))
}

fn first_word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default()
}

/// The parts of a text between marks that are followed by a space.
fn clauses(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split_inclusive(char::is_whitespace);
    let mut end = 0;
    let mut ends: Vec<usize> = Vec::new();
    for part in parts {
        end += part.len();
        if part.trim_end().ends_with([',', '.', ';', ':', '!', '?']) {
            ends.push(end);
        }
    }
    ends.push(text.len());
    let mut begin = 0;
    ends.into_iter().filter_map(move |end| {
        let clause = text.get(begin..end)?.trim();
        begin = end;
        (!clause.is_empty()).then_some(clause)
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
