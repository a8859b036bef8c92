//! Logged calls run again: the log keeps every program of a call, so a call can be repeated without a
//! model and compared with its log entry.
//!
//! The log does not keep everything. A call of a session used memory the log does not hold, one with a workspace may
//! have used its files, large arguments are logged by a preview, secrets not at all: such calls are refused with the
//! reason. A program
//! that reads a clock, chance or the network may truthfully end otherwise; that is shown as a difference.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lifecycle::attempt::Stage;
use lifecycle::contract;
use lifecycle::draft::DraftFault;
use lifecycle::event::{Event, EventKind};
use lifecycle::history::{MAX_RECORDED_VALUE_BYTES, bounded};
use lifecycle::log_entry::{logged_message, restore_programs};
use lifecycle::outcome::{FailureKind, Outcome};
use lifecycle::redact::{REDACTED, redacted, redacted_text};
use lifecycle::request::Arguments;
use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::agent::AgentFault;
use crate::config::{Config, ConfigFault};
use crate::observe::Observer;
use crate::provider::Scripted;
use crate::runtime::{Runtime, SetupFault};
use crate::store::sqlite::SqliteStore;

/// Failures that no program and no model caused.
const UNREPEATED: [FailureKind; 4] = [
    FailureKind::BudgetExceeded,
    FailureKind::Cancelled,
    FailureKind::ReplayDivergence,
    FailureKind::StoreUnavailable,
];

/// The default of `provider_timeout_seconds`.
const DEFAULT_WAIT: Duration = Duration::from_mins(2);

/// Why a logged call was not run again.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ReplayFault {
    /// No entry has it.
    #[error("the log has no call {0:?}; `recurgent watch` and `recurgent call --json` show ids")]
    Unknown(String),
    /// The log does not hold all it depended on.
    #[error("{call} cannot be run again from the log: {why}")]
    Incomplete {
        /// `role.method`.
        call: String,
        /// What is missing.
        why: String,
    },
    /// There is nothing to run it on.
    #[error(transparent)]
    Setup(#[from] SetupFault),
    /// A setting is wrong.
    #[error(transparent)]
    Config(#[from] ConfigFault),
    /// It could not be called.
    #[error(transparent)]
    Agent(#[from] AgentFault),
}

/// A call that was run again.
#[derive(Debug, Clone, PartialEq)]
pub struct Replayed {
    /// `role.method`.
    pub call: String,
    /// What came of it now.
    pub outcome: Outcome,
    /// What is not as logged; empty: it went the same way.
    pub differences: Vec<Difference>,
}

/// One thing that is not as logged.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// The log's field.
    pub field: &'static str,
    /// As logged.
    pub logged: Value,
    /// As it was now.
    pub now: Value,
}

/// Runs a logged call again with the programs the log has for it and for the calls it made. `entries` are
/// those of its trace, in the log's order, and any others of the log that hold its programs' texts; nothing is stored
/// or logged.
pub fn replay(config: &Config, entries: &[Value], call_id: &str) -> Result<Replayed, ReplayFault> {
    let mut entries = entries.to_vec();
    restore_programs(&mut entries);
    let entries = entries.as_slice();
    let unknown = || ReplayFault::Unknown(call_id.to_owned());
    let root =
        entries.iter().find(|entry| text(entry, "call_id") == call_id).ok_or_else(unknown)?;
    let tree = tree(entries, call_id);
    for entry in &tree {
        check(entry, std::ptr::eq(*entry, root))?;
    }
    let model = Scripted::new();
    let mut written = BTreeSet::new();
    for entry in &tree {
        script(&model, entry, &mut written);
    }
    let mut config = config.clone();
    for (key, value) in [("log", "off"), ("tools", "none"), ("guest", text(root, "guest"))] {
        config.set(key, value)?;
    }
    let seen = Rejections::default();
    let runtime = Runtime::builder(config)
        .provider(Arc::new(model))
        .store(Arc::new(SqliteStore::in_memory().map_err(SetupFault::from)?))
        .observer(Box::new(seen.clone()))
        .build()?;
    let mut builder = runtime.agent(text(root, "role"));
    for name in contract::FIELDS {
        let value = root.get(format!("contract_{name}")).filter(|value| !value.is_null());
        if let Some(value) = value {
            builder = builder.contract_field(name, value.clone());
        }
    }
    let arguments = Arguments {
        args: root.get("args").and_then(Value::as_array).cloned().unwrap_or_default(),
        kwargs: root.get("kwargs").and_then(Value::as_object).cloned().unwrap_or_default(),
    };
    let outcome = builder.build()?.call(text(root, "method"), arguments)?;
    let differences = differences(&tree, root, &outcome, &seen);
    Ok(Replayed { call: name(root), outcome, differences })
}

fn text<'a>(entry: &'a Value, field: &str) -> &'a str {
    entry.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn name(entry: &Value) -> String {
    format!("{}.{}", text(entry, "role"), text(entry, "method"))
}

fn attempts(entry: &Value) -> impl Iterator<Item = &Value> {
    entry.get("attempts").and_then(Value::as_array).into_iter().flatten()
}

/// A call and all it called, in the log's order.
fn tree<'a>(entries: &'a [Value], call_id: &'a str) -> Vec<&'a Value> {
    let mut members = BTreeSet::from([call_id]);
    // A caller is logged after those it called.
    for entry in entries.iter().rev() {
        if members.contains(text(entry, "parent_call_id")) {
            members.insert(text(entry, "call_id"));
        }
    }
    entries.iter().filter(|entry| members.contains(text(entry, "call_id"))).collect()
}

/// Whether the log holds all the call depended on.
fn check(entry: &Value, is_root: bool) -> Result<(), ReplayFault> {
    let incomplete = |why: String| Err(ReplayFault::Incomplete { call: name(entry), why });
    let session = text(entry, "session");
    let called = attempts(entry).any(|attempt| attempt.get("outside_calls").is_some());
    if called {
        return incomplete(
            "it called tools from outside, whose answers the log does not hold; record such runs with --record"
                .to_owned(),
        );
    }
    if is_root && !session.is_empty() {
        return incomplete(format!(
            "it is a call of session {session:?}, whose memory at that time is not logged; record such runs with --record"
        ));
    }
    if let Some(workspace) = entry.pointer("/grants/workspace").and_then(Value::as_str) {
        return incomplete(format!(
            "it ran in the workspace {workspace}, whose files at that time are not logged; `trace show` has its programs"
        ));
    }
    let failures = attempts(entry).map(|attempt| attempt.pointer("/failure/error_type"));
    let is_unrepeated = |code: &&str| UNREPEATED.iter().any(|kind| kind.code() == *code);
    let ended = failures.flatten().filter_map(Value::as_str).find(is_unrepeated);
    if let Some(code) = ended {
        return incomplete(format!("it was ended from outside ({code}), not by its programs"));
    }
    let asks = |field| entry.get(field).and_then(Value::as_array).is_some_and(|it| !it.is_empty());
    if asks("inferences") {
        return incomplete(
            "its program asked a model about data, and the log does not hold the answers; record such runs with --record"
                .to_owned(),
        );
    }
    let given = json!([entry.get("args"), entry.get("kwargs")]);
    if is_root && is_cut(&given) {
        return incomplete(format!(
            "an argument of more than {MAX_RECORDED_VALUE_BYTES} bytes is logged by a preview only"
        ));
    }
    let lacks_text = |attempt: &Value| {
        attempt.get("code_digest").is_some_and(Value::is_string)
            && attempt.get("code").is_none_or(Value::is_null)
    };
    if attempts(entry).any(lacks_text) {
        return incomplete(
            "a program's text is in an entry of the log that is not given or was removed"
                .to_owned(),
        );
    }
    let codes = attempts(entry).filter_map(|attempt| attempt.get("code"));
    if given.to_string().contains(REDACTED)
        || codes.into_iter().any(|code| code.to_string().contains(REDACTED))
    {
        return incomplete("it held a secret, which is not logged".to_owned());
    }
    Ok(())
}

/// Whether a logged value is only a preview of what it was.
fn is_cut(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(is_cut),
        Value::Object(fields) => {
            let bytes = fields.get("bytes").and_then(Value::as_u64);
            let is_preview =
                fields.len() == 3 && fields.contains_key("preview") && fields.contains_key("type");
            (is_preview && bytes.is_some_and(|bytes| bytes > MAX_RECORDED_VALUE_BYTES as u64))
                || fields.values().any(is_cut)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// What the model said, by the attempts of one logged call. A stored program is given like a new one,
/// unless it was `written` in this tree: then it is stored again by now.
fn script<'a>(model: &Scripted, entry: &'a Value, written: &mut BTreeSet<(String, &'a str)>) {
    let key = name(entry);
    let declared = entry.get("program_dependencies").filter(|value| value.is_array());
    let declared = declared.cloned().unwrap_or_else(|| json!([]));
    for attempt in attempts(entry) {
        if let Some(code) = attempt.get("code").and_then(Value::as_str) {
            let is_new = written.insert((key.clone(), code));
            if text(attempt, "program_source") == "persisted" && !is_new {
                continue;
            }
            model.add(&key, json!({"code": code, "dependencies": declared}));
            continue;
        }
        let failure = attempt.get("failure").cloned().unwrap_or_default();
        let message = text(&failure, "error_message").to_owned();
        let fault = match FailureKind::of_code(text(&failure, "error_type")) {
            Some(FailureKind::RateLimited) => {
                DraftFault::RateLimited { message, retry_after: Some(Duration::ZERO) }
            }
            // What is not tried again.
            Some(FailureKind::Provider) if text(attempt, "lane").is_empty() => {
                DraftFault::Rejected(message)
            }
            Some(FailureKind::Provider) => {
                DraftFault::Overloaded { message, retry_after: Some(Duration::ZERO) }
            }
            Some(FailureKind::ProviderAuth) => DraftFault::Auth(message),
            Some(FailureKind::ProviderRefusal) => DraftFault::Refused(message),
            Some(FailureKind::Timeout(_)) => DraftFault::TimedOut(waited(&failure)),
            None | Some(_) => DraftFault::Malformed(message),
        };
        model.add_fault(&key, fault);
    }
}

/// How long the service had time to answer. Older entries do not say: then it was most likely the
/// default.
fn waited(failure: &Value) -> Duration {
    let seconds = failure.pointer("/metadata/waited_seconds").and_then(Value::as_f64);
    seconds.and_then(|s| Duration::try_from_secs_f64(s).ok()).unwrap_or(DEFAULT_WAIT)
}

fn differences(
    tree: &[&Value],
    root: &Value,
    outcome: &Outcome,
    seen: &Rejections,
) -> Vec<Difference> {
    let failure = outcome.failure();
    let fields = |entry: &Value| {
        let failures = attempts(entry).filter_map(|attempt| attempt.get("failure"));
        let failures = failures.filter(|failure| !failure.is_null());
        failures.map(|failure| json!([name(entry), text(failure, "stage")])).collect::<Vec<_>>()
    };
    let rejected: Vec<Value> = tree.iter().flat_map(|entry| fields(entry)).collect();
    let logged = |field: &str| root.get(field).cloned().unwrap_or_default();
    let mut seen = seen.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut rejected_then = rejected;
    seen.sort_by_key(Value::to_string);
    rejected_then.sort_by_key(Value::to_string);
    let pairs = [
        ("outcome_status", logged("outcome_status"), json!(outcome.status())),
        (
            "outcome_value",
            logged("outcome_value"),
            json!(outcome.value().map(bounded).map(redacted)),
        ),
        ("outcome_error_type", logged("outcome_error_type"), json!(failure.map(|f| f.kind.code()))),
        (
            "outcome_error_message",
            logged("outcome_error_message"),
            json!(failure.map(|f| redacted_text(logged_message(&f.message)))),
        ),
        ("attempt_failures", json!(rejected_then), json!(seen)),
    ];
    pairs
        .into_iter()
        .filter(|(_, logged, now)| logged != now)
        .map(|(field, logged, now)| Difference { field, logged, now })
        .collect()
}

/// Rejected attempts, as they happen: which call, at which stage.
#[derive(Debug, Clone, Default)]
struct Rejections(Arc<Mutex<Vec<Value>>>);

impl Observer for Rejections {
    fn event(&self, event: &Event) {
        let rolled_back = match &event.kind {
            EventKind::RolledBack { stage, .. } => Some(*stage),
            EventKind::Looked { .. } => Some(Stage::Execution.name()),
            EventKind::Started { .. } | EventKind::Ended { .. } | _ => None,
        };
        if let Some(stage) = rolled_back {
            let name = &event.subject.name;
            let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            seen.push(json!([name, stage]));
        }
    }
}

impl Replayed {
    /// As `recurgent trace replay --json` prints it.
    pub fn to_json(&self) -> Value {
        let differences = self.differences.iter().map(|difference| {
            json!({"field": difference.field, "logged": difference.logged, "now": difference.now})
        });
        let mut fields = Map::new();
        fields.insert("call".to_owned(), json!(self.call));
        fields.insert("same".to_owned(), json!(self.differences.is_empty()));
        fields.insert("differences".to_owned(), differences.collect());
        fields.insert("outcome".to_owned(), self.outcome.to_json());
        Value::Object(fields)
    }
}
