//! Which known tools are worth showing to a model.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use lifecycle::request::CallRequest;

/// A tool that may be shown.
pub(super) struct Candidate {
    /// Its name.
    pub(super) name: String,
    /// What it is for, if its contract says.
    pub(super) purpose: Option<String>,
    /// How often it was asked for.
    pub(super) usage_count: u64,
}

/// The names of the `limit` best: those that share words with the call, then the most used, then the order given.
/// The called role itself is none of them: it cannot delegate to itself.
pub(super) fn best(
    mut candidates: Vec<Candidate>,
    request: &CallRequest,
    limit: usize,
) -> Vec<String> {
    let mut wanted = words(request.role.as_str());
    wanted.extend(words(request.method.as_str()));
    candidates.retain(|candidate| candidate.name != request.role.as_str());
    candidates.sort_by_cached_key(|candidate| {
        let mut offered = words(&candidate.name);
        offered.extend(words(candidate.purpose.as_deref().unwrap_or_default()));
        Reverse((offered.intersection(&wanted).count(), candidate.usage_count))
    });
    candidates.truncate(limit);
    candidates.into_iter().map(|candidate| candidate.name).collect()
}

fn words(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}
