//! The rule `missing_external_provenance`: [`GUARDRAIL`] says what it is about.

use serde_json::Value;

use crate::dialect::Inspection;

use super::network::fetches;
use super::{Guardrail, Rule, RuleCheck, Severity, Violation, ViolationType};

pub(super) const GUARDRAIL: Guardrail = Guardrail {
    subtype: "missing_external_provenance",
    violation_type: ViolationType::ExternalData,
    severity: Severity::Recoverable,
    failure: None,
    check: RuleCheck::Value,
    summary: "external data given as success without its source",
    details: "\
Judged after execution, on the values of programs that fetch. The value must be a map with
`provenance.sources`, a non-empty list of maps with `uri`, `fetched_at`, `retrieval_tool` and a
`retrieval_mode` of `live`, `cached` or `fixture`.",
    correction: "Return a map with `provenance: {sources: [{uri, fetched_at, retrieval_tool, \
                 retrieval_mode}]}`, one source per fetch, `retrieval_mode` being `live`, `cached` or \
                 `fixture`.",
    examples: &[],
};

/// Judges an ok result.
pub fn check_provenance(inspection: &Inspection, value: &Value) -> Option<Violation> {
    if !fetches(inspection) || has_provenance(value) {
        return None;
    }
    Some(Violation {
        rule: Rule::MissingExternalProvenance,
        message: "external data is returned without its provenance".to_owned(),
        location: None,
        required_correction: GUARDRAIL.correction.to_owned(),
    })
}

fn has_provenance(value: &Value) -> bool {
    let sources = value.get("provenance").and_then(|provenance| provenance.get("sources"));
    let sources = sources.and_then(Value::as_array);
    sources.is_some_and(|sources| !sources.is_empty() && sources.iter().all(is_source))
}

fn is_source(source: &Value) -> bool {
    let field = |name: &str| source.get(name).and_then(Value::as_str).map_or("", str::trim);
    let mode = field("retrieval_mode").to_ascii_lowercase();
    ["uri", "fetched_at", "retrieval_tool"].iter().all(|name| !field(name).is_empty())
        && matches!(mode.as_str(), "live" | "cached" | "fixture")
}
