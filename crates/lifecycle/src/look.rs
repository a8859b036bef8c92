//! Looking: a program that cannot be written before its data has been seen shows the data to the model (`look` in
//! guests). Its attempt ends there, in a lane of its own, and leaves nothing behind; the next prompt shows the value.

use serde_json::{Value, json};

use crate::attempt::{Reason, Rejection};
use crate::excerpt::shortened;
use crate::outcome::{Failure, FailureKind};
use crate::prompt;
use crate::provenance::Observation;
use crate::redact::redacted_text;

/// Characters of what a program says it looks for.
const MAX_WHY_CHARS: usize = 300;

/// A value that a program looked at, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Look {
    /// The value.
    pub value: Value,
    /// What the program wants to know of it.
    pub why: String,
}

impl Look {
    /// As the next prompts show it: with what the program had reached by then.
    pub(crate) fn shown(&self, observed: &Observation) -> Value {
        let mut shown = json!({
            "why": shortened(&self.why, MAX_WHY_CHARS),
            "value": prompt::looked_at(&self.value),
        });
        let sources = observed.sources.iter();
        let reached: Vec<&str> = sources.map(|source| source.uri.as_str()).collect();
        if let (Value::Object(fields), false) = (&mut shown, reached.is_empty()) {
            fields.insert("it_had_reached".to_owned(), json!(reached));
        }
        shown
    }

    /// The rejection of the attempt that looked: the failure is that of a call whose programs go on looking.
    pub(crate) fn rejection(&self) -> Rejection {
        let why = shortened(&redacted_text(self.why.clone()), MAX_WHY_CHARS);
        let message = format!("the program looked at a value: {why}");
        Rejection::new(Reason::Looked, Failure::new(FailureKind::LookBudgetSpent, message))
    }
}
