//! Agreement: programs written independently for one call are compared by what they give, and the largest group that
//! gives the same is taken.
//!
//! Wrong programs are wrong in different ways. Each program answers the call itself and calls of the same shape with
//! other values, so that programs that agree by chance are seen to differ.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

use crate::example::same_value;
use crate::request::Arguments;

/// Most programs that are asked for at once.
pub const MAX_CANDIDATES: u32 = 9;
/// Calls with other values that each program also answers.
const MUTATIONS: usize = 3;
/// Levels of lists and objects in which values are changed.
const MAX_LEVELS: usize = 4;
/// Arguments with more values than this are not changed: copies of them would cost more than they show.
const MAX_VALUES: usize = 2_000;

/// How many of the programs written for a call gave what the accepted one gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreement {
    /// Programs that were compared.
    pub candidates: u32,
    /// Those that gave the same, the accepted one included.
    pub agreeing: u32,
}

/// What a program gave for one call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CandidateAnswer {
    /// A value.
    Value(Value),
    /// An error of this type, reported by the program.
    Error(String),
    /// Nothing: it raised, or did not end.
    Nothing,
}

impl CandidateAnswer {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Value(one), Self::Value(other)) => same_value(one, other),
            (Self::Error(one), Self::Error(other)) => one == other,
            (Self::Nothing, Self::Nothing) => true,
            (Self::Value(_) | Self::Error(_) | Self::Nothing, _) => false,
        }
    }
}

/// The place of the first program of the largest group that gives the same answers, and the size of the group. The
/// first answer of each program is to the call itself; a program without one is in no group. A group of values goes
/// before a group of errors. Where no two programs give the same to all calls, those that give the same to the call
/// itself are a group: programs often differ in what they do with odd values only.
pub(crate) fn largest_group(answers: &[Vec<CandidateAnswer>]) -> Option<(usize, usize)> {
    let group = |place: usize, own: &[CandidateAnswer], calls: usize| {
        let gives_value = match own.first()? {
            CandidateAnswer::Value(_) => true,
            CandidateAnswer::Error(_) => false,
            CandidateAnswer::Nothing => return None,
        };
        let is_same = |other: &&Vec<CandidateAnswer>| {
            own.len() == other.len()
                && own.iter().zip(*other).take(calls).all(|(one, other)| one.is_same(other))
        };
        Some((gives_value, answers.iter().filter(is_same).count(), place))
    };
    let largest = |calls: usize| {
        let groups = answers.iter().enumerate().filter_map(|(place, own)| group(place, own, calls));
        groups.reduce(|best, next| if (next.0, next.1) > (best.0, best.1) { next } else { best })
    };
    let on_all = largest(usize::MAX)?;
    let best = if on_all.1 > 1 { on_all } else { largest(1)? };
    Some((best.2, best.1))
}

/// Calls of the same shape with other values, each different from the call and from each other.
pub(crate) fn mutated(arguments: &Arguments) -> Vec<Arguments> {
    let values = arguments.args.iter().chain(arguments.kwargs.values());
    if values.map(|value| count(value, MAX_LEVELS)).sum::<usize>() > MAX_VALUES {
        return Vec::new();
    }
    let mut found: Vec<Arguments> = Vec::new();
    for round in 0..MUTATIONS {
        let change = |value: &Value| changed(value, round, MAX_LEVELS);
        let mutated = Arguments {
            args: arguments.args.iter().map(change).collect(),
            kwargs: arguments
                .kwargs
                .iter()
                .map(|(key, value)| (key.clone(), change(value)))
                .collect(),
        };
        if mutated != *arguments && !found.contains(&mutated) {
            found.push(mutated);
        }
    }
    found
}

/// The number of scalars in a value.
fn count(value: &Value, levels: usize) -> usize {
    let Some(levels) = levels.checked_sub(1) else { return 1 };
    match value {
        Value::Array(items) => items.iter().map(|item| count(item, levels)).sum(),
        Value::Object(fields) => fields.values().map(|value| count(value, levels)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}

fn changed(value: &Value, round: usize, levels: usize) -> Value {
    let Some(levels) = levels.checked_sub(1) else { return value.clone() };
    match value {
        Value::Null => Value::Null,
        // Flipped once, so that other values are also seen with the call's own.
        Value::Bool(flag) => Value::Bool(*flag != (round == 1)),
        Value::Number(number) => Value::Number(changed_number(number, round)),
        Value::String(text) => Value::String(changed_text(text, round)),
        Value::Array(items) => changed_list(items, round, levels),
        Value::Object(fields) => {
            let change =
                |(key, value): (&String, &Value)| (key.clone(), changed(value, round, levels));
            Value::Object(fields.iter().map(change).collect::<Map<_, _>>())
        }
    }
}

fn changed_number(number: &Number, round: usize) -> Number {
    let whole = number.as_i64().and_then(|whole| match round {
        0 => whole.checked_add(1),
        1 => whole.checked_mul(2).and_then(|twice| twice.checked_add(3)),
        _ => Some(whole / 2),
    });
    if let Some(whole) = whole {
        return Number::from(whole);
    }
    let other = number.as_f64().map(|float| match round {
        0 => float + 1.0,
        1 => float.mul_add(2.0, 0.5),
        _ => float / 2.0,
    });
    other.and_then(Number::from_f64).unwrap_or_else(|| number.clone())
}

/// A text with its words in another order, without its last word or letter, or with one repeated. Characters between
/// words stay, and digits are only changed for others, so that dates and numbers in texts can still be read.
fn changed_text(text: &str, round: usize) -> String {
    if text.bytes().any(|byte| byte.is_ascii_digit()) {
        return text.chars().map(|c| other_digit(c, round)).collect();
    }
    let words: Vec<&str> = text.split(' ').collect();
    match (round, words.as_slice()) {
        (_, []) => String::new(),
        (0, [only]) => only.chars().rev().collect(),
        (0, several) => several.iter().rev().copied().collect::<Vec<_>>().join(" "),
        (1, [only]) => format!("{only}{only}"),
        (1, [first, ..]) => format!("{text} {first}"),
        (_, [only]) => {
            let kept = only.chars().count().saturating_sub(1).max(1);
            only.chars().take(kept).collect()
        }
        (_, [rest @ .., _]) => rest.join(" "),
    }
}

/// `1` and `2` are exchanged, and others in other rounds: a day or month stays one.
fn other_digit(c: char, round: usize) -> char {
    match (round, c) {
        (0, '1') => '2',
        (0, '2') => '1',
        (1, '5') => '6',
        (1, '6') => '5',
        (1, '7') => '8',
        (1, '8') => '7',
        (2, '3') => '1',
        (2, '4') => '5',
        (2, '5') => '4',
        (2, '8') => '6',
        (_, other) => other,
    }
}

/// A list with its values changed, in the opposite order, or without its last item.
fn changed_list(items: &[Value], round: usize, levels: usize) -> Value {
    let changed = items.iter().map(|item| changed(item, round, levels));
    match (round, items) {
        (1, _) => items.iter().rev().cloned().collect(),
        (2, [rest @ .., _]) if !rest.is_empty() => rest.iter().cloned().collect(),
        _ => changed.collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answers(values: &[Value]) -> Vec<CandidateAnswer> {
        let answer = |value: &Value| match value.as_str() {
            Some(code) => CandidateAnswer::Error(code.to_owned()),
            None if value.is_null() => CandidateAnswer::Nothing,
            None => CandidateAnswer::Value(value.clone()),
        };
        values.iter().map(answer).collect()
    }

    /// `null` stands for a program that raised, a text for an error it reported.
    #[test]
    fn the_largest_group_wins_and_ties_go_to_the_first() {
        for (programs, expected) in [
            (json!([[1, 2], [1, 2], [3, 2]]), Some((0, 2))),
            (json!([[3, 2], [1, 2], [1, 2]]), Some((1, 2))),
            (json!([[1, 2], [3, 2]]), Some((0, 1))),
            (json!([[3, 1], [1, 2], [1, 4]]), Some((1, 2))),
            (json!([[3, 2], [3, 2], [1, 2], [1, 4], [1, 5]]), Some((0, 2))),
            (json!([["low_utility", 1], ["low_utility", 2], [1, 4]]), Some((2, 1))),
            (json!([[1, 2], [1, 9], [1.0, 9]]), Some((1, 2))),
            (json!([[null, 2], [null, 2], [5, 1]]), Some((2, 1))),
            (json!([[1, null], [1, null]]), Some((0, 2))),
            (json!([["low_utility"], ["low_utility"], [4]]), Some((2, 1))),
            (json!([["low_utility"], ["not_found"], ["not_found"]]), Some((1, 2))),
            (json!([[null], [null]]), None),
            (json!([]), None),
        ] {
            let Value::Array(rows) = &programs else { panic!("a list") };
            let rows: Vec<Vec<CandidateAnswer>> =
                rows.iter().map(|row| answers(row.as_array().unwrap())).collect();
            assert_eq!(largest_group(&rows), expected, "{programs}");
        }
    }

    #[test]
    fn mutations_keep_the_shape_and_change_the_values() {
        let arguments = |args: Value| {
            let Value::Array(args) = args else { panic!("a list") };
            Arguments { args, ..Arguments::default() }
        };
        for (args, expected) in [
            (json!([3]), json!([[4], [9], [1]])),
            (json!([2.5]), json!([[3.5], [5.5], [1.25]])),
            (json!(["the cat sat"]), json!([["sat cat the"], ["the cat sat the"], ["the cat"]])),
            (json!(["Level"]), json!([["leveL"], ["LevelLevel"], ["Leve"]])),
            (json!(["2024-02-27"]), json!([["1014-01-17"], ["2024-02-28"], ["2025-02-27"]])),
            (json!([[1, 2, 3]]), json!([[[2, 3, 4]], [[3, 2, 1]], [[1, 2]]])),
            (json!([{"a": true}]), json!([[{"a": false}]])),
            (json!([null]), json!([])),
            (json!([]), json!([])),
        ] {
            let found: Vec<Value> = mutated(&arguments(args.clone()))
                .into_iter()
                .map(|it| Value::Array(it.args))
                .collect();
            assert_eq!(Value::Array(found), expected, "{args}");
        }
        let large = arguments(json!([vec![1; MAX_VALUES + 1]]));
        assert!(mutated(&large).is_empty(), "large arguments are not copied");
    }
}
