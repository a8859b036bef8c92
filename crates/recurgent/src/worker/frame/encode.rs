//! Frames for workers. Encoding borrows everything.

use std::sync::Arc;

use lifecycle::context::ContextDelta;
use lifecycle::execution::Order;
use lifecycle::outcome::Outcome;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::{FRAME_BYTES, IPC_VERSION};
use crate::guest::Answer;

/// Writes an `execute` frame. `code` is left out for a program that the worker holds.
pub(in crate::worker) fn execute(
    frame: &mut Vec<u8>,
    order: &Order<'_>,
    delta: &ContextDelta,
    code: Option<&str>,
) {
    let request = order.request;
    let arguments = order.arguments();
    write(
        frame,
        &Execute {
            op: "execute",
            ipc_version: IPC_VERSION,
            call_id: &request.id.0,
            role: request.role.as_str(),
            method_name: request.method.as_str(),
            code_digest: order.program.checksum().as_str(),
            code,
            args: &arguments.args,
            kwargs: &arguments.kwargs,
            context: Delta {
                version: delta.version,
                base: delta.base,
                set: Entries(&delta.set),
                unset: &delta.unset,
            },
            limits: Limits { frame_bytes: FRAME_BYTES },
        },
    );
}

/// Writes an `answer` frame.
pub(in crate::worker) fn answer(frame: &mut Vec<u8>, ask_id: u64, answer: &Answer) {
    let mut reply = Reply { op: "answer", ask_id, ..Reply::default() };
    match answer {
        Answer::Outcome(outcome) => reply.outcome = Some(OutcomeView::of(outcome)),
        Answer::Agent { handle, role } => {
            reply.agent = Some(handle);
            reply.role = Some(role);
        }
        Answer::Value(value) => reply.value = Some(value),
        Answer::Refused { error_type, message } => {
            reply.error = Some(RefusalView { error_type, error_message: message });
        }
    }
    write(frame, &reply);
}

fn write(frame: &mut Vec<u8>, message: &impl Serialize) {
    frame.clear();
    // Writing text-keyed JSON to memory cannot fail; the worker would refuse a broken line.
    let _ = serde_json::to_writer(&mut *frame, message);
    frame.push(b'\n');
}

#[derive(Serialize)]
struct Execute<'a> {
    op: &'static str,
    ipc_version: u32,
    call_id: &'a str,
    role: &'a str,
    method_name: &'a str,
    code_digest: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    args: &'a [Value],
    kwargs: &'a Map<String, Value>,
    context: Delta<'a>,
    limits: Limits,
}

#[derive(Serialize)]
struct Delta<'a> {
    version: u64,
    base: Option<u64>,
    set: Entries<'a>,
    unset: &'a [String],
}

/// Shared values, written as one object without a copy.
struct Entries<'a>(&'a [(String, Arc<Value>)]);

impl Serialize for Entries<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in self.0 {
            map.serialize_entry(key, value.as_ref())?;
        }
        map.end()
    }
}

#[derive(Serialize)]
struct Limits {
    frame_bytes: usize,
}

#[derive(Serialize, Default)]
struct Reply<'a> {
    op: &'static str,
    ask_id: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<OutcomeView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<RefusalView<'a>>,
}

#[derive(Serialize)]
struct RefusalView<'a> {
    error_type: &'a str,
    error_message: &'a str,
}

#[derive(Serialize)]
struct OutcomeView<'a> {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a Value>,
    #[serde(flatten)]
    failure: Option<FailureView<'a>>,
    tool_role: &'a str,
    method_name: &'a str,
}

#[derive(Serialize)]
struct FailureView<'a> {
    error_type: &'a str,
    error_message: &'a str,
    retriable: bool,
    metadata: &'a Map<String, Value>,
}

impl<'a> OutcomeView<'a> {
    fn of(outcome: &'a Outcome) -> Self {
        let failure = outcome.failure().map(|failure| FailureView {
            error_type: failure.kind.code(),
            error_message: &failure.message,
            retriable: failure.kind.retriable(),
            metadata: &failure.metadata,
        });
        Self {
            status: outcome.status(),
            value: outcome.value(),
            failure,
            tool_role: outcome.role.as_str(),
            method_name: outcome.method.as_str(),
        }
    }
}
