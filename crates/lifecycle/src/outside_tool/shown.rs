//! How outside tools are shown to a model and found: ranked by the words of the call, as compact signatures.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::excerpt::shortened;
use crate::request::CallRequest;

use super::{OutsideMethod, OutsideTool, plain};

/// Most methods of outside tools that a prompt shows.
pub const MAX_SHOWN: usize = 12;
/// Bytes of the outside tools of a prompt, as JSON.
const SHOWN_BYTES: usize = 2 * 1024;
/// Characters of a description that are shown.
const DESCRIPTION_CHARS: usize = 100;
/// Characters of a signature.
const SIGNATURE_CHARS: usize = 220;
/// Characters of the type of one parameter.
const TYPE_CHARS: usize = 60;
/// Characters of the type of a result.
const RESULT_CHARS: usize = 100;
/// Levels of a type that are shown.
const TYPE_DEPTH: usize = 4;
/// Parts of an object or a choice that are shown.
const TYPE_PARTS: usize = 8;
/// Characters of a word that decide whether two words are alike: `order` and `orders`.
const STEM_CHARS: usize = 4;
/// Words of a question that are compared.
const MAX_WORDS: usize = 48;
/// How much a word counts that is in a name, and one that is in a description.
const NAME_WEIGHT: u64 = 4;
/// What all occurrences of one word count together.
const WORD_WEIGHT: u64 = 1000;

/// Methods that match, best first, and how many others there are.
pub type FoundTools<'a> = (Vec<(&'a OutsideTool, &'a OutsideMethod)>, usize);

/// What a model sees of the tools that a call may use; null if there are none.
pub fn for_prompt(tools: &[Arc<OutsideTool>], request: &CallRequest) -> Map<String, Value> {
    let purpose = request.contract.as_ref().and_then(|contract| contract.purpose.as_deref());
    let named = request.arguments.kwargs.keys().map(String::as_str);
    let asked: Vec<&str> = [request.role.as_str(), request.method.as_str()]
        .into_iter()
        .chain(purpose)
        .chain(named)
        .collect();
    let (found, mut others) = search(tools, &asked.join(" "), MAX_SHOWN);
    let mut shown: Map<String, Value> = Map::new();
    let mut bytes = 0;
    for (tool, method) in found {
        let (call, does) = (signature(method), plain(&method.description, DESCRIPTION_CHARS));
        let taken = call.len() + does.len() + 6;
        if bytes + taken > SHOWN_BYTES {
            others += 1;
            continue;
        }
        bytes += taken;
        let entry = shown.entry(tool.name.clone()).or_insert_with(|| json!({}));
        if let Value::Object(calls) = entry {
            calls.insert(call, json!(does));
        }
    }
    if others > 0 {
        let more = format!(
            "{others} methods are not shown; `tools.search('words')` lists those that match"
        );
        shown.insert("…".to_owned(), json!(more));
    }
    shown
}

/// What `tools.search` answers: the methods that match best, with their signatures.
pub fn found_json(tools: &[Arc<OutsideTool>], words: &str) -> Value {
    let (found, _) = search(tools, words, MAX_SHOWN);
    let one = |(tool, method): (&OutsideTool, &OutsideMethod)| {
        json!({
            "tool": tool.name,
            "method": method.name,
            "signature": signature(method),
            "description": method.description,
        })
    };
    Value::Array(found.into_iter().map(one).collect())
}

/// The `limit` methods that match a question best; those that match equally in the order given.
pub fn search<'a>(tools: &'a [Arc<OutsideTool>], question: &str, limit: usize) -> FoundTools<'a> {
    ranked(tools.iter().flat_map(|tool| tool.with_methods()).collect(), question, limit)
}

/// The same of some methods.
pub(super) fn ranked<'a>(
    all: Vec<(&'a OutsideTool, &'a OutsideMethod)>,
    question: &str,
    limit: usize,
) -> FoundTools<'a> {
    if all.len() <= limit {
        return (all, 0);
    }
    let mut wanted: Vec<String> = stems(question).into_iter().collect();
    wanted.truncate(MAX_WORDS);
    let offered: Vec<(BTreeSet<String>, BTreeSet<String>)> = all
        .iter()
        .map(|(tool, method)| {
            (stems(&format!("{} {}", tool.name, method.original)), stems(&method.description))
        })
        .collect();
    // A word that few methods have says more than one that all have.
    let weight: BTreeMap<&String, u64> = wanted
        .iter()
        .map(|word| {
            let has = |(name, text): &&(BTreeSet<String>, BTreeSet<String>)| {
                name.contains(word) || text.contains(word)
            };
            let methods = offered.iter().filter(has).count();
            (word, WORD_WEIGHT / u64::try_from(methods).unwrap_or(1).max(1))
        })
        .collect();
    let score = |(name, text): &(BTreeSet<String>, BTreeSet<String>)| -> u64 {
        let of = |word: &String| {
            let weight = weight.get(word).copied().unwrap_or_default();
            if name.contains(word) {
                weight * NAME_WEIGHT
            } else if text.contains(word) {
                weight
            } else {
                0
            }
        };
        wanted.iter().map(of).sum()
    };
    let mut ranked: Vec<(u64, usize)> =
        offered.iter().enumerate().map(|(index, it)| (score(it), index)).collect();
    ranked.sort_by_key(|(score, index)| (std::cmp::Reverse(*score), *index));
    ranked.truncate(limit);
    let found: Vec<_> = ranked.iter().filter_map(|(_, index)| all.get(*index).copied()).collect();
    let others = all.len() - found.len();
    (found, others)
}

/// The beginnings of the words of a text: `getUserOrders` has three.
fn stems(text: &str) -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    let mut word = String::new();
    let mut was_lower = false;
    for c in text.chars().chain([' ']) {
        let begins = !c.is_alphanumeric() || (c.is_uppercase() && was_lower);
        if begins && !word.is_empty() {
            words.insert(stem(&std::mem::take(&mut word)));
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase();
    }
    words
}

fn stem(word: &str) -> String {
    let plural = word.strip_suffix("es").or_else(|| word.strip_suffix('s'));
    let base = plural.filter(|it| it.chars().count() >= STEM_CHARS).unwrap_or(word);
    let base =
        base.strip_suffix("ing").filter(|it| it.chars().count() >= STEM_CHARS).unwrap_or(base);
    let base = base.strip_suffix('e').filter(|it| it.chars().count() >= STEM_CHARS).unwrap_or(base);
    base.to_owned()
}

/// A method as a program calls it: `search(query: string, limit?: integer) -> [{id: integer}]`.
pub fn signature(method: &OutsideMethod) -> String {
    let parameters: Vec<String> = method
        .parameters()
        .take(TYPE_PARTS * 2)
        .map(|(name, schema)| {
            let optional = if method.requires(name) { "" } else { "?" };
            let kind = shortened(&type_text(schema, &method.input, TYPE_DEPTH), TYPE_CHARS);
            format!("{}{optional}: {kind}", parameter(name))
        })
        .collect();
    let mut text = format!("{}({})", method.name, parameters.join(", "));
    if let Some(output) = method.output.as_ref().or(method.learned.as_ref()) {
        let result = shortened(&type_text(output, output, TYPE_DEPTH), RESULT_CHARS);
        let _ = write!(text, " -> {result}"); // writing to a String cannot fail
    }
    shortened(&text, SIGNATURE_CHARS)
}

/// The name of a parameter as programs give it: `from_`, because Python has no keyword argument `from`. Names that only an
/// agent object uses itself stay.
fn parameter(name: &str) -> String {
    let name = super::guest_name(name);
    match name.trim_end_matches('_') {
        short if !super::is_reserved(short) => short.to_owned(),
        _ => name,
    }
}

/// A schema as a type. References outside the schema are not followed.
fn type_text(schema: &Value, root: &Value, depth: usize) -> String {
    let Some(fields) = schema.as_object() else { return "any".to_owned() };
    if let Some(target) = fields.get("$ref").and_then(Value::as_str) {
        let found = target.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        return match (found, depth.checked_sub(1)) {
            (Some(found), Some(depth)) => type_text(found, root, depth),
            _ => "any".to_owned(),
        };
    }
    let Some(below) = depth.checked_sub(1) else { return "…".to_owned() };
    if let Some(values) = fields.get("enum").and_then(Value::as_array) {
        let shown = values.iter().take(TYPE_PARTS).map(|it| plain(&it.to_string(), TYPE_CHARS / 2));
        return shown.collect::<Vec<_>>().join("|");
    }
    if let Some(value) = fields.get("const") {
        return plain(&value.to_string(), TYPE_CHARS / 2);
    }
    for choice in ["anyOf", "oneOf"] {
        if let Some(options) = fields.get(choice).and_then(Value::as_array) {
            let mut shown: Vec<String> =
                options.iter().take(TYPE_PARTS).map(|it| type_text(it, root, below)).collect();
            shown.dedup();
            return shown.join("|");
        }
    }
    match fields.get("type") {
        Some(Value::String(name)) => named_type(name, fields, root, below),
        Some(Value::Array(names)) => {
            let names = names.iter().filter_map(Value::as_str).take(TYPE_PARTS);
            names.map(|it| named_type(it, fields, root, below)).collect::<Vec<_>>().join("|")
        }
        Some(_) | None if fields.contains_key("properties") => {
            named_type("object", fields, root, below)
        }
        Some(_) | None => "any".to_owned(),
    }
}

fn named_type(name: &str, fields: &Map<String, Value>, root: &Value, below: usize) -> String {
    match name {
        "array" => match fields.get("items") {
            Some(items) => format!("[{}]", type_text(items, root, below)),
            None => "[any]".to_owned(),
        },
        "object" => {
            let Some(properties) = fields.get("properties").and_then(Value::as_object) else {
                return "object".to_owned();
            };
            let mut shown: Vec<String> = properties
                .iter()
                .take(TYPE_PARTS)
                .map(|(name, schema)| {
                    format!("{}: {}", plain(name, TYPE_CHARS / 2), type_text(schema, root, below))
                })
                .collect();
            if properties.len() > TYPE_PARTS {
                shown.push("…".to_owned());
            }
            format!("{{{}}}", shown.join(", "))
        }
        "string" | "number" | "integer" | "boolean" | "null" => name.to_owned(),
        _ => "any".to_owned(),
    }
}

/// Bytes of what a prompt shows; for tests of its bound.
#[cfg(test)]
pub(super) fn shown_bytes(tools: &[Arc<OutsideTool>], request: &CallRequest) -> usize {
    crate::request::encoded_bytes(&Value::Object(for_prompt(tools, request)))
}
