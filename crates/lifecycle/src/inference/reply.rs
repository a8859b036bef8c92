//! What a model replied to a question, read tolerantly and checked strictly.

use serde_json::{Value, json};

use crate::draft::{DraftFault, salvage_object};
use crate::excerpt::shortened;

use super::{Problem, Question};

/// The names of a reply's one field.
const FIELDS: [&str; 2] = ["answer", "answers"];
/// Characters of an unreadable answer that are shown.
const SHOWN_CHARS: usize = 160;

/// The payload in a text that a model wrote. `expects_json`: the text holds a JSON object; otherwise it is the answer.
pub fn read_reply(text: &str, expects_json: bool) -> Result<Value, DraftFault> {
    if !expects_json {
        let answer = text.trim();
        return match answer {
            "" => Err(DraftFault::Malformed("the answer is empty".to_owned())),
            answer => Ok(json!({ "answer": answer })),
        };
    }
    let is_reply = |value: &Value| FIELDS.iter().any(|field| value.get(field).is_some());
    salvage_object(text, is_reply).ok_or_else(|| {
        let start = shortened(text.trim(), SHOWN_CHARS);
        DraftFault::Malformed(format!(
            "the answer is not one JSON object with an `answer`; it begins: {start:?}"
        ))
    })
}

/// The answer to each of `count` items, or why it cannot be used.
pub(super) fn answers(
    question: &Question,
    payload: &Value,
    count: usize,
) -> Vec<Result<Value, Problem>> {
    if !question.is_many() {
        let answer = payload.get("answer").ok_or_else(|| missing("`answer`"));
        return vec![answer.and_then(|answer| usable(question, answer))];
    }
    let given = payload.get("answers").and_then(Value::as_array);
    let given = given.map(Vec::as_slice).unwrap_or_default();
    let numbered = |entry: &Value| entry.get("item").is_some() && entry.get("answer").is_some();
    let is_numbered = given.iter().all(numbered);
    (1..=count)
        .map(|number| {
            let entry = if is_numbered {
                let is_it = |entry: &&Value| {
                    entry.get("item").and_then(Value::as_u64) == Some(number as u64)
                };
                given.iter().find(is_it).and_then(|entry| entry.get("answer"))
            } else {
                // A plain list of as many answers is in the order of the items.
                given.get(number - 1).filter(|_| given.len() == count)
            };
            entry
                .ok_or_else(|| missing(&format!("answer for item {number}")))
                .and_then(|answer| usable(question, answer))
        })
        .collect()
}

fn missing(what: &str) -> Problem {
    Problem::new(&format!("it has no {what}."))
}

fn usable(question: &Question, answer: &Value) -> Result<Value, Problem> {
    if question.terms.is_none() {
        return match answer {
            Value::String(text) if !text.trim().is_empty() => Ok(answer.clone()),
            Value::Number(_) | Value::Bool(_) => Ok(Value::String(answer.to_string())),
            Value::String(_) | Value::Null => Err(Problem::new("the answer is empty.")),
            Value::Array(_) | Value::Object(_) => Err(Problem::new("the answer must be a text.")),
        };
    }
    match question.breach(answer) {
        None => Ok(answer.clone()),
        Some(breach) => {
            let problem = Problem::new(&breach.message());
            Err(Problem { metadata: breach.metadata(), ..problem })
        }
    }
}
