//! The scripted provider: programs written by hand, for tests and for trying things out.
//!
//! A script is a JSON or YAML object: each key is `role.method` (split at the last dot), each value an
//! ordered list of payloads. The last payload of a list repeats. Scripts made in code may also have keys
//! `method`, for any role, and `*`, for anything else. Answers to questions of a program about data have the key
//! `infer:role.method`, or `infer`, for any program.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use lifecycle::draft::{Draft, DraftFault, Usage};
use lifecycle::prompt::Prompt;
use serde_json::Value;

use super::{DraftRequest, Provider, ProviderFault};
use crate::regular_file::read_regular;

/// The key of answers to anything no other key covers.
const ANYTHING: &str = "*";
/// The key of answers to questions of any program.
const INFER: &str = "infer";
/// Longest list of keys shown when one is missing.
const SHOWN_KEYS: usize = 8;

/// Deepest nesting of brackets in a script: reading YAML takes time in proportion to length × depth.
const MAX_DEPTH: usize = 1000;

/// One scripted answer.
#[derive(Debug, Clone)]
enum Line {
    Payload(Value),
    Fault(DraftFault),
}

/// Answers from a script.
#[derive(Debug, Default)]
pub struct Scripted {
    plan: Mutex<BTreeMap<String, Answers>>,
    asked: Mutex<Vec<String>>,
}

#[derive(Debug, Default)]
struct Answers {
    lines: Vec<Line>,
    given: usize,
}

impl Answers {
    /// The next line; the last one repeats.
    fn next(&mut self) -> Option<Line> {
        let line = self.lines.get(self.given).or(self.lines.last()).cloned();
        self.given += 1;
        line
    }
}

/// Whether brackets are open at more than [`MAX_DEPTH`] places at once; those of programs count.
fn is_nested_too_deeply(text: &str) -> bool {
    let mut depth = 0_usize;
    text.bytes().any(|byte| {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > MAX_DEPTH
    })
}

impl Scripted {
    /// An empty script.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a script from a JSON or YAML file.
    pub fn from_file(path: &Path) -> Result<Self, ProviderFault> {
        let fault =
            |problem: String| ProviderFault::File { path: path.display().to_string(), problem };
        let text = read_regular(path).map_err(|error| fault(error.to_string()))?;
        if is_nested_too_deeply(&text) {
            return Err(fault(format!(
                "its lists and objects are nested more than {MAX_DEPTH} deep; a script maps \"role.method\" to a list"
            )));
        }
        // JSON first: YAML reads most of it, but not every escape.
        let json = serde_json::from_str::<BTreeMap<String, Vec<Value>>>(&text);
        let script = json.or_else(|_| serde_norway::from_str(&text)).map_err(|error| {
            fault(format!("{error}; a script maps \"role.method\" to a list of {{\"code\", \"dependencies\"?}}"))
        })?;
        if let Some(key) = script.keys().find(|key| !key.trim_matches('.').contains('.')) {
            return Err(fault(format!("the key {key:?} must be \"role.method\"")));
        }
        let scripted = Self::new();
        for (key, payloads) in script {
            for payload in payloads {
                scripted.add(&key, payload);
            }
        }
        Ok(scripted)
    }

    /// Adds a payload for `role.method`.
    pub fn add(&self, key: &str, payload: Value) {
        self.push(key, Line::Payload(payload));
    }

    /// Adds a program for `role.method`.
    #[must_use]
    pub fn with(self, key: &str, code: &str) -> Self {
        self.add(key, serde_json::json!({ "code": code }));
        self
    }

    /// Adds a fault for `role.method`.
    pub fn add_fault(&self, key: &str, fault: DraftFault) {
        self.push(key, Line::Fault(fault));
    }

    /// The keys it was asked for, in order.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn push(&self, key: &str, line: Line) {
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        plan.entry(key.to_owned()).or_default().lines.push(line);
    }

    /// Whether there is an answer for a method of a role.
    pub fn covers(&self, role: &str, method: &str) -> bool {
        let plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        let key = format!("{role}.{method}");
        [key.as_str(), method, ANYTHING].iter().any(|key| plan.contains_key(*key))
    }

    /// The next answer: of the nearest key there is.
    fn next(&self, key: &str, method: &str) -> Result<Line, DraftFault> {
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        let anything = if method == INFER { INFER } else { ANYTHING };
        for nearest in [key, method, anything] {
            if let Some(line) = plan.get_mut(nearest).and_then(Answers::next) {
                return Ok(line);
            }
        }
        let known: Vec<_> = plan.keys().take(SHOWN_KEYS).map(String::as_str).collect();
        Err(DraftFault::Rejected(format!(
            "the script has no payload for {key:?}; add that key (it has: {})",
            if known.is_empty() { "nothing".to_owned() } else { known.join(", ") }
        )))
    }
}

impl Scripted {
    fn answer(&self, key: String, fallback: &str) -> Result<Draft, DraftFault> {
        let line = self.next(&key, fallback);
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(key);
        match line? {
            Line::Payload(payload) => Ok(Draft { payload, usage: Usage::default() }),
            Line::Fault(fault) => Err(fault),
        }
    }
}

impl Provider for Scripted {
    fn draft(&self, _prompt: &Prompt, request: &DraftRequest<'_>) -> Result<Draft, DraftFault> {
        self.answer(request.key(), request.method.as_str())
    }

    /// The payload is `{"answer": …}`, or `{"answers": [{"item": 1, "answer": …}, …]}` for a list of items.
    fn infer(
        &self,
        _prompt: &Prompt,
        _schema: Option<&Value>,
        request: &DraftRequest<'_>,
    ) -> Result<Draft, DraftFault> {
        self.answer(request.infer_key(), INFER)
    }

    fn is_local(&self) -> bool {
        true
    }
}
