//! Program texts in the log. The first entry of a program in a file has its text and its digest; every later entry has
//! the digest only.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::digest;
use crate::call::Commit;
use crate::program::Checksum;

/// What the log already holds when an entry is written.
#[derive(Debug, Clone, Default)]
pub struct AlreadyLogged {
    /// Programs whose text is in the file.
    pub programs: BTreeSet<Checksum>,
    /// Entries of the call tree that were left out because its share of the log was used up.
    pub dropped_entries: u64,
}

/// The digest of each attempt's program, in order; `None` for an attempt without a program.
pub fn digests(commit: &Commit) -> Vec<Option<Checksum>> {
    commit.attempts().iter().map(digest).collect()
}

/// Digest and text of every program whose text is in this entry.
pub fn program_texts(entry: &Value) -> impl Iterator<Item = (&str, &str)> {
    let attempts = entry.get("attempts").and_then(Value::as_array).into_iter().flatten();
    attempts.chain([entry]).filter_map(|holder| {
        Some((holder.get("code_digest")?.as_str()?, holder.get("code")?.as_str()?))
    })
}

/// Replaces each digest without a text by the text that another of these entries has.
pub fn restore_programs(entries: &mut [Value]) {
    let owned = |(digest, text): (&str, &str)| (digest.to_owned(), text.to_owned());
    let texts = entries.iter().flat_map(program_texts).map(owned).collect();
    for entry in entries {
        fill_programs(entry, &texts);
    }
}

/// Sets the missing program texts of one entry, by their digests.
pub fn fill_programs(entry: &mut Value, texts: &BTreeMap<String, String>) {
    let fill = |holder: &mut Map<String, Value>| {
        let digest = holder.get("code_digest").and_then(Value::as_str);
        let text = digest.and_then(|digest| texts.get(digest));
        if let (Some(text), Some(code @ Value::Null)) = (text, holder.get_mut("code")) {
            *code = Value::String(text.clone());
        }
    };
    let Value::Object(fields) = entry else { return };
    fill(fields);
    if let Some(Value::Array(attempts)) = fields.get_mut("attempts") {
        attempts.iter_mut().filter_map(Value::as_object_mut).for_each(fill);
    }
}
