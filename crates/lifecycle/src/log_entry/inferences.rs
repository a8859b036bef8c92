//! What programs asked a model, in the log.

use serde_json::{Value, json};

use crate::attempt::Attempt;
use crate::draft::Nanodollars;
use crate::inference::InferenceRecord;
use crate::settlement::milliseconds;

/// Most questions of one call that its entry lists; `inference_calls` counts all.
const MAX_LOGGED: usize = 100;

/// The questions of every attempt, in order.
pub(super) fn logged(attempts: &[Attempt]) -> Vec<Value> {
    let of_attempt = |(index, attempt): (usize, &Attempt)| {
        attempt.inferences.iter().map(move |record| one(index + 1, record)).collect::<Vec<_>>()
    };
    attempts.iter().enumerate().flat_map(of_attempt).take(MAX_LOGGED).collect()
}

fn one(attempt_id: usize, record: &InferenceRecord) -> Value {
    json!({
        "attempt_id": attempt_id,
        "digest": record.digest,
        "instruction": record.instruction,
        "model": record.model,
        "items": record.items,
        "cached_items": record.cached,
        "model_calls": record.model_calls,
        "input_tokens": record.usage.input_tokens,
        "output_tokens": record.usage.output_tokens,
        "cached_tokens": record.usage.cached_tokens,
        "cost_usd": record.usage.cost.map(Nanodollars::usd),
        "duration_ms": milliseconds(record.duration),
        "error_type": record.failure,
    })
}
