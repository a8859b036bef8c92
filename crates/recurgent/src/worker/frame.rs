//! The frames of an attempt channel: one JSON object per line (specs/worker-protocol.md §2).
//!
//! `encode` writes what workers get. Decoding trusts nothing: one flat, fully optional record is read, then
//! narrowed to what its `op` and `kind` call for. (No tagged enums: serde buffers those, and buffered
//! numbers of any size do not survive.)

mod encode;

use std::borrow::Cow;

use lifecycle::context::{ContextChanges, VIEWS};
use lifecycle::dialect::{Position, SyntaxFault};
use lifecycle::execution::{ExceptionFacts, ExceptionLink, LinkKind, ReportEnding, ResultFrom};
use lifecycle::outcome::{Limit, Reported};
use lifecycle::provenance::FailedContact;
use serde::Deserialize;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::guest::Ask;

pub(super) use encode::{answer, execute};

/// The protocol this host speaks.
pub(super) const IPC_VERSION: u32 = 1;
/// Longest frame either side accepts, without its line end.
pub(super) const FRAME_BYTES: usize = 32 << 20;
/// Most values in a frame: each takes the host far more memory than the two bytes that may encode it.
pub(super) const FRAME_VALUES: usize = 1_000_000;
/// Values that an object counts as: its table takes so much more memory than a number.
const OBJECT_VALUES: usize = 7;

/// Classes kept of an exception's hierarchy.
const MAX_CLASSES: usize = 16;
/// Exceptions kept behind an exception.
const MAX_CAUSES: usize = 16;
/// Failed contacts kept of a run.
const MAX_FAILED_CONTACTS: usize = 16;
/// Characters kept of each fact about an exception.
const MAX_FACT_CHARS: usize = 300;

/// Whether a frame has more than [`FRAME_VALUES`] values, counted without decoding it.
pub(super) fn has_too_many_values(frame: &[u8]) -> bool {
    if frame.len() < FRAME_VALUES / OBJECT_VALUES {
        return false;
    }
    let (mut begun, mut in_text, mut escaped) = (0, false, false);
    for byte in frame {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_text,
            b'"' => in_text = !in_text,
            b'{' if !in_text => begun += OBJECT_VALUES,
            b',' | b'[' if !in_text => begun += 1,
            _ => {}
        }
    }
    begun > FRAME_VALUES
}

/// A frame from a worker.
#[derive(Debug)]
pub(super) enum Frame {
    /// The program asks the host for something.
    Ask {
        /// Repeated in the answer.
        id: u64,
        /// The request.
        ask: Ask,
    },
    /// The program ended.
    Done {
        /// How.
        ending: ReportEnding,
        /// Its changes to memory.
        changes: ContextChanges,
        /// How it gave its result.
        result_from: ResultFrom,
        /// Its contacts with services that failed.
        failed_contacts: Vec<FailedContact>,
    },
    /// The worker refused the `execute` it was sent.
    Refused(String),
}

/// Why a frame was refused.
#[derive(Debug, Error)]
pub(super) enum FrameFault {
    /// Not an object of the protocol's fields and types.
    #[error("it sent a malformed frame: {0}")]
    Malformed(#[from] serde_json::Error),
    /// A field that this kind of frame needs is missing.
    #[error("it sent a frame without `{0}`")]
    Missing(&'static str),
    /// A change of memory that no guest makes.
    #[error("it sent a frame that writes the read-only memory key `{0}`")]
    Reserved(String),
    /// A field has a value outside the protocol.
    #[error("it sent an unknown `{field}`")]
    Unknown {
        /// Which field holds it.
        field: &'static str,
    },
}

/// Decodes a frame from a worker.
pub(super) fn decode(frame: &[u8]) -> Result<Frame, FrameFault> {
    let received: ReceivedFrame<'_> = serde_json::from_slice(frame)?;
    match received.op.as_ref() {
        "ask" => Ok(Frame::Ask { id: need(received.ask_id, "ask_id")?, ask: received.ask()? }),
        "done" => received.done(),
        _ => Err(FrameFault::Unknown { field: "op" }),
    }
}

/// Every field a worker may send; other fields are ignored.
#[derive(Deserialize)]
struct ReceivedFrame<'a> {
    #[serde(borrow)]
    op: Cow<'a, str>,
    ask_id: Option<u64>,
    #[serde(borrow)]
    kind: Option<Cow<'a, str>>,
    agent: Option<String>,
    method_name: Option<String>,
    args: Option<Vec<Value>>,
    kwargs: Option<Map<String, Value>>,
    name: Option<String>,
    role: Option<String>,
    options: Option<Map<String, Value>>,
    detached: Option<bool>,
    entries: Option<Map<String, Value>>,
    #[serde(rename = "ref")]
    reference: Option<String>,
    words: Option<String>,
    /// A number in an ask, a word in a `done`.
    limit: Option<Value>,
    before: Option<String>,
    instruction: Option<String>,
    why: Option<String>,
    data: Option<Value>,
    each: Option<Vec<Value>>,
    schema: Option<Value>,
    #[serde(borrow)]
    status: Option<Cow<'a, str>>,
    value: Option<Value>,
    #[serde(borrow)]
    result_from: Option<Cow<'a, str>>,
    outcome: Option<ReceivedOutcome>,
    context: Option<ReceivedChanges>,
    #[serde(borrow)]
    error_type: Option<Cow<'a, str>>,
    error_class: Option<String>,
    error_message: Option<String>,
    location: Option<Location>,
    failed_call: Option<String>,
    class_chain: Option<Vec<String>>,
    errno: Option<String>,
    causes: Option<Vec<ReceivedCause>>,
    http_status: Option<u16>,
    raised_in_program: Option<bool>,
    backtrace: Option<Vec<String>>,
    /// Where a value cannot cross, or the file of an operating system error.
    path: Option<String>,
    exit: Option<Value>,
    failed_contacts: Option<Vec<ReceivedContact>>,
}

/// A contact with a service that failed.
#[derive(Deserialize)]
struct ReceivedContact {
    place: String,
    class_chain: Option<Vec<String>>,
    errno: Option<String>,
    http_status: Option<u16>,
}

impl ReceivedContact {
    fn contact(self) -> FailedContact {
        let exception = ExceptionLink {
            class_chain: bounded_chain(self.class_chain),
            errno: self.errno.map(bounded),
            ..ExceptionLink::default()
        };
        FailedContact { place: bounded(self.place), exception, http_status: self.http_status }
    }
}

#[derive(Deserialize)]
struct ReceivedOutcome {
    status: String,
    value: Option<Value>,
    error_type: Option<String>,
    error_message: Option<String>,
    retriable: Option<bool>,
    metadata: Option<Map<String, Value>>,
}

/// One exception behind another.
#[derive(Deserialize)]
struct ReceivedCause {
    class_chain: Option<Vec<String>>,
    errno: Option<String>,
    path: Option<String>,
    failed_call: Option<String>,
    link: Option<String>,
}

impl ReceivedCause {
    fn link(self) -> ExceptionLink {
        ExceptionLink {
            class_chain: bounded_chain(self.class_chain),
            errno: self.errno.map(bounded),
            path: self.path.map(bounded),
            failed_call: self.failed_call.map(bounded),
            kind: self.link.as_deref().and_then(LinkKind::named).unwrap_or_default(),
        }
    }
}

#[derive(Deserialize)]
struct ReceivedChanges {
    set: Map<String, Value>,
    unset: Vec<String>,
}

#[derive(Deserialize)]
struct Location {
    line: u32,
    column: Option<u32>,
}

impl ReceivedFrame<'_> {
    fn ask(self) -> Result<Ask, FrameFault> {
        Ok(match need(self.kind, "kind")?.as_ref() {
            "call" => Ask::Call {
                agent: need(self.agent, "agent")?,
                method: need(self.method_name, "method_name")?,
                args: self.args.unwrap_or_default(),
                kwargs: self.kwargs.unwrap_or_default(),
            },
            "tool" => Ask::Tool { name: need(self.name, "name")? },
            "delegate" => Ask::Delegate {
                role: need(self.role, "role")?,
                options: self.options.unwrap_or_default(),
                detached: self.detached.unwrap_or_default(),
            },
            "remember" => Ask::Remember {
                agent: need(self.agent, "agent")?,
                entries: need(self.entries, "entries")?,
            },
            "runtime_context" => Ask::RuntimeContext { agent: need(self.agent, "agent")? },
            "attach" => Ask::Attach { name: need(self.name, "name")? },
            "content" => Ask::Content { reference: need(self.reference, "ref")? },
            "infer" => Ask::Infer {
                instruction: need(self.instruction, "instruction")?,
                data: self.data.unwrap_or_default(),
                each: self.each,
                schema: self.schema.unwrap_or_default(),
            },
            "look" => Ask::Look {
                value: self.value.unwrap_or_default(),
                why: self.why.unwrap_or_default(),
            },
            "tools" => Ask::Tools,
            "search_tools" => Ask::SearchTools { words: need(self.words, "words")? },
            "history" => Ask::History { limit: count(self.limit.as_ref())?, before: self.before },
            _ => return Err(FrameFault::Unknown { field: "kind" }),
        })
    }

    fn done(mut self) -> Result<Frame, FrameFault> {
        let contacts = self.failed_contacts.take().unwrap_or_default().into_iter();
        let contacts = contacts.take(MAX_FAILED_CONTACTS).map(ReceivedContact::contact).collect();
        let frame = self.ended()?;
        Ok(match frame {
            Frame::Done { ending, changes, result_from, .. } => {
                Frame::Done { ending, changes, result_from, failed_contacts: contacts }
            }
            other @ (Frame::Ask { .. } | Frame::Refused(_)) => other,
        })
    }

    fn ended(self) -> Result<Frame, FrameFault> {
        let ending = match need(self.status.as_deref(), "status")? {
            "ok" => ReportEnding::Value(self.value.unwrap_or_default()),
            "outcome" => need(self.outcome, "outcome")?.ending()?,
            "error" => return self.failed(),
            _ => return Err(FrameFault::Unknown { field: "status" }),
        };
        let context = need(self.context, "context")?;
        let changes = ContextChanges { set: context.set, unset: context.unset };
        // A guest refuses these keys itself, so that only a forged frame has one.
        let mut keys = changes.set.keys().chain(&changes.unset);
        if let Some(key) = keys.find(|key| VIEWS.contains(&key.as_str())) {
            return Err(FrameFault::Reserved(key.clone()));
        }
        let given = self.result_from.as_deref().map(ResultFrom::named);
        let result_from = match given {
            Some(None) => return Err(FrameFault::Unknown { field: "result_from" }),
            Some(Some(given)) => given,
            None => ResultFrom::default(),
        };
        Ok(Frame::Done { ending, changes, result_from, failed_contacts: Vec::new() })
    }

    /// The frame of a program that raised an exception.
    fn raised(self, message: String, location: Option<Position>) -> Result<Frame, FrameFault> {
        let (class, facts) = self.exception(location)?;
        let ending = ReportEnding::Raised { class, message, location, facts: Box::new(facts) };
        let (changes, result_from) = (ContextChanges::default(), ResultFrom::default());
        Ok(Frame::Done { ending, changes, result_from, failed_contacts: Vec::new() })
    }

    /// The class of the exception and what else the guest reports of it.
    fn exception(self, location: Option<Position>) -> Result<(String, ExceptionFacts), FrameFault> {
        let class = need(self.error_class, "error_class")?;
        let exception = ReceivedCause {
            class_chain: self.class_chain.or_else(|| Some(vec![class.clone()])),
            errno: self.errno,
            path: self.path,
            failed_call: self.failed_call,
            link: None,
        };
        let causes = self.causes.unwrap_or_default().into_iter().take(MAX_CAUSES);
        let facts = ExceptionFacts {
            exception: exception.link(),
            causes: causes.map(ReceivedCause::link).collect(),
            http_status: self.http_status,
            raised_in_program: self.raised_in_program.unwrap_or(location.is_some()),
            backtrace: bounded_chain(self.backtrace),
        };
        Ok((class, facts))
    }

    /// The frame of a program that failed; its memory changes do not count.
    fn failed(mut self) -> Result<Frame, FrameFault> {
        let message = self.error_message.take().unwrap_or_default();
        let location = self
            .location
            .take()
            .map(|at| Position { line: at.line, column: at.column.unwrap_or(1) });
        let ending = match need(self.error_type.as_deref(), "error_type")? {
            "execution" => return self.raised(message, location),
            "invalid_code" => {
                let position = location.unwrap_or(Position { line: 1, column: 1 });
                ReportEnding::Malformed(SyntaxFault { message, position })
            }
            "non_serializable_result" => {
                ReportEnding::Unserializable { path: need(self.path, "path")?, message }
            }
            "worker_crash" => {
                // A status out of range still means that it failed.
                let status = need(self.exit.take(), "exit")?.as_i64().unwrap_or(i64::MAX);
                let facts = Box::new(self.exception(location)?.1);
                ReportEnding::Exited { status, message, location, facts }
            }
            "resource_limit" => ReportEnding::Limited(limit(self.limit.as_ref())?, message),
            "protocol" => return Ok(Frame::Refused(bounded(message))),
            _ => return Err(FrameFault::Unknown { field: "error_type" }),
        };
        let (changes, result_from) = (ContextChanges::default(), ResultFrom::default());
        Ok(Frame::Done { ending, changes, result_from, failed_contacts: Vec::new() })
    }
}

impl ReceivedOutcome {
    fn ending(self) -> Result<ReportEnding, FrameFault> {
        match self.status.as_str() {
            "ok" => Ok(ReportEnding::Value(self.value.unwrap_or_default())),
            "error" => Ok(ReportEnding::Reported {
                reported: Reported {
                    code: need(self.error_type, "outcome.error_type")?,
                    retriable: self.retriable.unwrap_or_default(),
                },
                message: self.error_message.unwrap_or_default(),
                metadata: self.metadata.unwrap_or_default(),
            }),
            _ => Err(FrameFault::Unknown { field: "outcome.status" }),
        }
    }
}

fn need<T>(field: Option<T>, name: &'static str) -> Result<T, FrameFault> {
    field.ok_or(FrameFault::Missing(name))
}

/// Cut at limits that the harness keeps by itself.
fn bounded_chain(chain: Option<Vec<String>>) -> Vec<String> {
    chain.unwrap_or_default().into_iter().take(MAX_CLASSES).map(bounded).collect()
}

fn bounded(text: String) -> String {
    match text.char_indices().nth(MAX_FACT_CHARS) {
        Some((end, _)) => text.get(..end).unwrap_or_default().to_owned(),
        None => text,
    }
}

fn count(limit: Option<&Value>) -> Result<u32, FrameFault> {
    let limit = need(limit, "limit")?.as_u64().ok_or(FrameFault::Unknown { field: "limit" })?;
    Ok(u32::try_from(limit).unwrap_or(u32::MAX))
}

fn limit(word: Option<&Value>) -> Result<Limit, FrameFault> {
    match need(word, "limit")?.as_str() {
        Some("memory") => Ok(Limit::Memory),
        Some("processes") => Ok(Limit::Processes),
        Some("files") => Ok(Limit::Files),
        Some("file_size") => Ok(Limit::FileSize),
        Some("scratch") => Ok(Limit::Scratch),
        Some("frame") => Ok(Limit::Frame),
        _ => Err(FrameFault::Unknown { field: "limit" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::Answer;
    use serde_json::json;

    #[test]
    fn a_frame_is_crowded_by_values_not_by_text() {
        for (frame, crowded) in [
            (format!("[{}0]", "0,".repeat(FRAME_VALUES)), true),
            (format!("[{}0]", "0,".repeat(FRAME_VALUES / 2)), false),
            (format!("{}{}", "[".repeat(FRAME_VALUES + 1), "]".repeat(FRAME_VALUES + 1)), true),
            (format!("[\"{}\"]", ",[{".repeat(FRAME_VALUES)), false),
            (format!("[\"{}\"]", "\\\",".repeat(FRAME_VALUES)), false),
            (format!("[\"\\\\\",{}0]", "0,".repeat(FRAME_VALUES)), true),
        ] {
            assert_eq!(has_too_many_values(frame.as_bytes()), crowded, "{}", &frame[..40]);
        }
    }

    #[test]
    fn hostile_frames_are_refused_with_a_reason() {
        for (frame, expected) in [
            ("", "malformed"),
            ("garbage", "malformed"),
            ("[]", "malformed"),
            ("{}", "missing field `op`"),
            (r#"{"op":"done","op":"ask"}"#, "duplicate field"),
            (r#"{"op":"execute"}"#, "unknown `op`"),
            (r#"{"op":"ask","kind":"tools"}"#, "without `ask_id`"),
            (r#"{"op":"ask","ask_id":-1,"kind":"tools"}"#, "malformed"),
            (r#"{"op":"ask","ask_id":1e999,"kind":"tools"}"#, "malformed"),
            (r#"{"op":"ask","ask_id":1,"kind":"shell"}"#, "unknown `kind`"),
            (r#"{"op":"ask","ask_id":1,"kind":"call","agent":"a"}"#, "without `method_name`"),
            (r#"{"op":"ask","ask_id":1,"kind":"history","limit":"all"}"#, "unknown `limit`"),
            (r#"{"op":"done"}"#, "without `status`"),
            (r#"{"op":"done","status":"ok","value":1}"#, "without `context`"),
            (r#"{"op":"done","status":"ok","context":{"set":[],"unset":[]}}"#, "malformed"),
            (
                r#"{"op":"done","status":"outcome","context":{"set":{},"unset":[]}}"#,
                "without `outcome`",
            ),
            (
                r#"{"op":"done","status":"ok","result_from":"luck","context":{"set":{},"unset":[]}}"#,
                "unknown `result_from`",
            ),
            (r#"{"op":"done","status":"error"}"#, "without `error_type`"),
            (
                r#"{"op":"done","status":"error","error_type":"resource_limit","limit":"luck"}"#,
                "unknown `limit`",
            ),
        ] {
            let fault = decode(frame.as_bytes()).unwrap_err().to_string();
            assert!(fault.contains(expected), "{frame}: {fault}");
        }
        let deep = format!(r#"{{"op":"done","status":"ok","value":{}"#, "[".repeat(100_000));
        assert!(decode(deep.as_bytes()).unwrap_err().to_string().contains("recursion limit"));
        assert!(decode(b"{\"op\":\"done\xff\"}").is_err());
    }

    #[test]
    fn integers_of_any_size_survive() {
        let frame = br#"{"op":"done","status":"ok","value":[1267650600228229401496703205376],"context":{"set":{"n":1e400},"unset":[]}}"#;
        let Frame::Done { ending: ReportEnding::Value(value), changes, .. } =
            decode(frame).unwrap()
        else {
            panic!("a value was sent")
        };
        assert_eq!(value.to_string(), "[1267650600228229401496703205376]");
        assert_eq!(changes.set["n"].to_string(), "1e400");
    }

    #[test]
    fn answers_carry_what_was_asked_for_and_nothing_else() {
        let mut frame = Vec::new();
        for (given, expected) in [
            (Answer::Value(Value::Null), json!({"op": "answer", "ask_id": 7, "value": null})),
            (
                Answer::Agent { handle: "a1".into(), role: "r".into() },
                json!({"op": "answer", "ask_id": 7, "agent": "a1", "role": "r"}),
            ),
            (
                Answer::Refused { error_type: "t".into(), message: "m".into() },
                json!({"op": "answer", "ask_id": 7, "error": {"error_type": "t", "error_message": "m"}}),
            ),
        ] {
            answer(&mut frame, 7, &given);
            assert_eq!(frame.pop(), Some(b'\n'));
            assert_eq!(serde_json::from_slice::<Value>(&frame).unwrap(), expected);
        }
    }
}
