//! `missing_external_provenance`: external data given as success without telling where it is from.
//!
//! Judged after execution, on ok results of programs that fetch: by their own network use, or through
//! calling a tool whose name says it fetches. The value must be a map with `provenance.sources`, a non-empty
//! list of maps with `uri`, `fetched_at`, `retrieval_tool` and a `retrieval_mode` of `live`, `cached`
//! or `fixture`. Text that names a client is not network use, nor is building an address or a request
//! that is not sent, nor a tool that is never called.
//!
//! ```python
//! import requests
//! result = requests.get(url).json()                                    # barred once it answers
//! result = {"items": requests.get(url).json(), "provenance": sources}  # passes
//! ```
//! ```ruby
//! require "net/http"
//! Net::HTTP.get(URI(url))                                              # barred once it answers
//! { items: Net::HTTP.get(URI(url)), provenance: sources }              # passes
//! ```

use serde_json::Value;

use crate::dialect::Inspection;

use super::network::fetches;
use super::{Rule, Violation};

/// Judges an ok result.
pub fn check_provenance(inspection: &Inspection, value: &Value) -> Option<Violation> {
    if !fetches(inspection) || has_provenance(value) {
        return None;
    }
    Some(Violation {
        rule: Rule::MissingExternalProvenance,
        message: "external data is returned without its provenance".to_owned(),
        location: None,
        required_correction: "Return a map with `provenance: {sources: [{uri, fetched_at, \
             retrieval_tool, retrieval_mode}]}`, one source per fetch, `retrieval_mode` being \
             `live`, `cached` or `fixture`."
            .to_owned(),
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
