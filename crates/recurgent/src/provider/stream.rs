//! Answers that a service sends in pieces, as server-sent events, so that people see how far the model is.

use serde_json::{Value, json};

/// How a service is asked for an answer in pieces, and how they are joined.
#[derive(Debug)]
pub(super) struct Streaming {
    /// The fields of the request that ask for it.
    pub(super) fields: fn() -> Value,
    /// The answer as the service would have sent it in one piece; `None`: the pieces end before the answer does.
    pub(super) join: fn(&[Value]) -> Option<Value>,
}

impl Streaming {
    /// Asks for pieces in the body of a request.
    pub(super) fn ask(&self, body: &mut Value) {
        if let (Some(body), Value::Object(fields)) = (body.as_object_mut(), (self.fields)()) {
            body.extend(fields);
        }
    }

    /// The answer in these server-sent events; `None`: they end before it does.
    pub(super) fn joined(&self, text: &str) -> Option<Value> {
        let data = text.lines().filter_map(|line| line.strip_prefix("data:"));
        let data = data.map(str::trim).filter(|data| !data.is_empty() && *data != "[DONE]");
        let events: Vec<Value> = data.map(serde_json::from_str).collect::<Result<_, _>>().ok()?;
        events.iter().find_map(failure).or_else(|| (self.join)(&events))
    }
}

/// Whether a service refuses to answer in pieces.
pub(super) fn refuses_streaming(status: u16, said: &str) -> bool {
    matches!(status, 400 | 404 | 422 | 501) && said.contains("stream")
}

/// A failure that is reported among the pieces, in the form of a whole answer.
fn failure(event: &Value) -> Option<Value> {
    match event.get("error") {
        Some(error @ Value::Object(_)) => Some(json!({"error": error})),
        _ if event.get("type").and_then(Value::as_str) == Some("error") => {
            Some(json!({"error": event}))
        }
        Some(_) | None => None,
    }
}
