//! The rule `false_external_provenance`, against a source said to be live although nothing was reached.

use Language::{Python, Ruby};
use serde_json::Value;

use crate::artifact::RunVerdict;
use crate::dialect::{CallExpression, Inspection, Language};
use crate::provenance::live_claims;

use super::{Finding, Guardrail, RuleCheck, Severity, ValueInput, ViolationType, passes, violates};

pub(super) const GUARDRAIL: Guardrail = Guardrail {
    subtype: "false_external_provenance",
    violation_type: ViolationType::ExternalData,
    severity: Severity::Recoverable,
    failure: None,
    check: RuleCheck::Value(find),
    permitted_by: None,
    forbids_reuse: true,
    verdict: RunVerdict::Unsourced,
    summary: "a source said to be live although nothing was reached",
    details: "\
Decided after execution, from the connections that the runtime observed. A value whose `provenance.sources` names a
source with `retrieval_mode: live` breaks the rule if the run reached nothing, neither itself nor through a tool, and
the source was not handed to it by its arguments, its memory or a tool. An argument that is an address and nothing else
hands over no data. Programs need not say where their data comes
from: the runtime attaches the hosts it observed. Under an open network nothing is observed, so nothing is judged.",
    correction: "Fetch the data and return what was fetched, say `retrieval_mode: fixture` or `cached` where \
                 that is what it is, or return an error outcome such as `low_utility`.",
    examples: &[
        violates(
            Python,
            "source = {\"uri\": \"https://news.example\", \"fetched_at\": \"today\", \
             \"retrieval_tool\": \"urllib\", \"retrieval_mode\": \"live\"}\n\
             result = {\"items\": [\"Heat\"], \"provenance\": {\"sources\": [source]}}",
        )
        .returning(CLAIM),
        passes(
            Python,
            "import urllib.request\nresult = urllib.request.urlopen(args[0]).read().decode()",
        ),
        violates(
            Ruby,
            "source = { uri: \"https://news.example\", retrieval_mode: \"live\" }\n\
             { items: [\"Heat\"], provenance: { sources: [source] } }",
        )
        .returning(CLAIM),
        passes(Ruby, "require \"net/http\"\nNet::HTTP.get(URI(args[0]))"),
    ],
};

/// The value of the examples that violate the rule.
const CLAIM: &str = "{\"items\": [\"Heat\"], \"provenance\": {\"sources\": \
    [{\"uri\": \"https://news.example\", \"retrieval_mode\": \"live\"}]}}";

/// Judges a value by what its run reached.
fn find(input: &ValueInput<'_>) -> Option<Finding> {
    let ValueInput { inspection, arguments, observed, value } = *input;
    if !observed.reached_nothing() || receives_values(inspection) {
        return None;
    }
    let given = |uri: &str| {
        let mut values = arguments.args.iter().chain(arguments.kwargs.values());
        values.any(|value| hands_over(value, uri))
    };
    let uri = live_claims(value).find(|uri| !given(uri))?;
    Some(Finding {
        message: format!("`{uri}` is said to be a live source, but the program reached nothing"),
        location: None,
        correction: None,
    })
}

/// Whether the program can have a source from its memory, a kept value or a tool.
fn receives_values(inspection: &Inspection) -> bool {
    let receives = |call: &CallExpression| {
        call.makes_agent() || (call.receiver.is_none() && call.name == "content")
    };
    !inspection.context.is_empty() || inspection.calls.iter().any(receives)
}

/// Whether an argument has data of this source: a text or a record that has more than its address.
fn hands_over(value: &Value, uri: &str) -> bool {
    match value {
        Value::String(held) => held.contains(uri) && held.trim() != uri,
        Value::Array(items) => items.iter().any(|item| hands_over(item, uri)),
        Value::Object(fields) if fields.len() > 1 => holds_text(value, uri),
        Value::Object(fields) => fields.values().any(|field| hands_over(field, uri)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn holds_text(value: &Value, text: &str) -> bool {
    match value {
        Value::String(held) => held.contains(text),
        Value::Array(items) => items.iter().any(|item| holds_text(item, text)),
        Value::Object(fields) => fields.values().any(|field| holds_text(field, text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_address_alone_hands_over_no_data() {
        let uri = "https://news.example/today";
        for (argument, expected) in [
            (json!(uri), false),
            (json!([uri, 3]), false),
            (json!({"url": uri}), false),
            (json!({"url": uri, "body": "Heat"}), true),
            (json!([{"source": {"uri": uri}, "title": "Heat"}]), true),
            (json!(format!("seen at {uri}: Heat")), true),
            (json!({"url": "https://other.example", "body": "Heat"}), false),
        ] {
            assert_eq!(hands_over(&argument, uri), expected, "{argument}");
        }
    }
}
