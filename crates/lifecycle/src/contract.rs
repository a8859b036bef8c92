//! What a caller expects of an agent, and whether a result keeps to it.
//!
//! `deliverable` and `examples` are enforced. A deliverable says types, required keys, counts, lengths, ranges and
//! listed values, is shorthand for those, or is a JSON Schema. `purpose`, `acceptance`, `failure_policy` and a
//! deliverable in prose are intent, shown to the model and never evaluated. No status is read, no value is rewritten.
//!
//! A clause of a person's contract that is not understood is an error with a suggestion ([`Contract::compose`]). In a program's,
//! an imported or a recorded one it is kept as intent, with a note ([`Contract::compose_tolerant`]).
#![expect(
    clippy::result_large_err,
    reason = "a breach is the whole report of one judgement and is made at most once per attempt"
)]

mod breach;
mod clause;
mod constraint;
mod decimal;
mod deliverable;
mod schema;
mod tolerance;
mod type_expression;
mod word;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::example::{Example, ExampleFault};
use crate::program::hex;
use crate::request::encoded_bytes;

pub use breach::{Breach, Mismatch};
use breach::{Path, described};
use constraint::Constraint;
use schema::Schema;

/// How deep the JSON of a deliverable, an acceptance or a failure policy may be nested.
pub const MAX_DEPTH: usize = 64;

/// How long a contract may be, as JSON: a model is shown the beginning, and every tool keeps its own.
pub const MAX_BYTES: usize = 256 * 1024;

/// What is asked of an agent. Made by [`Contract::compose`], which refuses what cannot be checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Contract {
    /// What the agent is for, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purpose: Option<String>,
    /// What a result looks like: constraints if an object, intent if prose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliverable: Option<Value>,
    /// When the caller will be content; intent, not logic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acceptance: Option<Value>,
    /// What to do when it cannot be done; intent, not logic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_policy: Option<Value>,
    /// The user's wish behind the call; differs from call to call, so it identifies nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent_signature: Option<String>,
    /// Calls with their right answers, as [`Example::parse`] reads them; a new program is run on them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Value>,
    /// What was not understood, and is kept as intent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What a call takes its contract from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ContractOrigin {
    /// The caller gave it, or none.
    #[default]
    Caller,
    /// The tool was registered with it.
    Registry,
}

/// Where a contract came from, logged as `contract_source`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContractSource {
    /// No contract.
    None,
    /// One object holding the whole contract.
    Hash,
    /// Separate fields.
    Fields,
    /// Both; fields win per key.
    Merged,
}

impl ContractSource {
    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Hash => "hash",
            Self::Fields => "fields",
            Self::Merged => "merged",
        }
    }
}

/// Why a contract was refused. Every message says what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ContractFault {
    /// A text field holds something else.
    #[error("contract field `{field}` is {found}: write a sentence as text, or leave it out")]
    NotText {
        /// The field.
        field: &'static str,
        /// What it holds, summarised.
        found: String,
    },
    /// A text field holds nothing readable.
    #[error("contract field `{field}` is blank: write a sentence as text, or leave it out")]
    Blank {
        /// The field.
        field: &'static str,
    },
    /// An unknown type name.
    #[error(
        "`{path}` names the unknown type `{found}`: {}write object, array, string, number, integer, \
         boolean or null, or leave it out to allow any",
        meant_type(found)
    )]
    UnknownType {
        /// Where in the contract.
        path: String,
        /// The name given.
        found: String,
    },
    /// A key that is neither a constraint nor a word of JSON Schema.
    #[error("`{path}` is not understood: {}", meant(suggestion.as_deref()))]
    UnknownWord {
        /// Where in the contract.
        path: String,
        /// The word that was probably meant.
        suggestion: Option<String>,
    },
    /// An example that cannot be used.
    #[error("`examples` item {index}: {fault}")]
    UnusableExample {
        /// Which, from 1.
        index: usize,
        /// Why.
        fault: ExampleFault,
    },
    /// A known key whose value means nothing.
    #[error("`{path}` is {found}: write {instead}, or leave it out")]
    Unusable {
        /// Where in the contract.
        path: String,
        /// What is there, summarised.
        found: String,
        /// What would be understood.
        instead: &'static str,
    },
    /// A lower bound above its upper bound: no result could ever keep to it.
    #[error("`{path}` is {low}, above its upper bound {high}: lower the first or raise the second")]
    Contradiction {
        /// The lower bound, where in the contract.
        path: String,
        /// Its value.
        low: String,
        /// The upper bound's value.
        high: String,
    },
    /// A key that says nothing about values of the declared type.
    #[error(
        "`{path}` constrains {applies}, but the type here is {declared}: correct one of the two"
    )]
    Inapplicable {
        /// Where in the contract.
        path: String,
        /// The type the key speaks of.
        applies: &'static str,
        /// The type given.
        declared: String,
    },
    /// Nesting beyond [`MAX_DEPTH`].
    #[error(
        "`{path}` is nested deeper than {MAX_DEPTH} levels: describe only what must be checked"
    )]
    TooDeep {
        /// The field.
        path: String,
    },
    /// Longer than [`MAX_BYTES`].
    #[error(
        "the contract has {bytes} bytes, above {MAX_BYTES}: describe only what must be checked"
    )]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// A JSON Schema that this runtime cannot check.
    #[error(
        "`{path}` cannot be checked ({reason}): write a valid JSON Schema whose references point into \
         itself (#/$defs/..) and whose patterns use no look-around"
    )]
    UnusableSchema {
        /// Where in the contract.
        path: String,
        /// What the schema library said, bounded.
        reason: String,
    },
}

/// The type that was probably meant, as the beginning of a sentence.
fn meant_type(found: &str) -> String {
    word::misspelt_type(found)
        .map_or_else(String::new, |name| format!("did you mean `{name}`? Or "))
}

/// What to write instead of a key that is not understood.
fn meant(suggestion: Option<&str>) -> String {
    match suggestion {
        Some(word) => format!("did you mean `{word}`?"),
        None => format!(
            "write constraints ({}), JSON Schema, or a map from every key to its type; a remark goes under `description`",
            word::CONSTRAINTS.join(", ")
        ),
    }
}

/// Identifies what a contract demands: artifacts are reused only under an equal fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(String);

impl Fingerprint {
    /// The fingerprint of no contract.
    pub fn none() -> Self {
        Self("none".to_owned())
    }

    /// As read back from storage; compared, never trusted.
    pub fn stored(text: String) -> Self {
        Self(text)
    }

    /// The text kept in artifacts and logs: `none` or 64 hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Contract {
    /// Makes one contract of a whole object and of separate fields, which win per key: a person's, so that everything
    /// in it is enforced or refused.
    ///
    /// Null counts as not given; `purpose` and `:purpose` are alike.
    pub fn compose(
        whole: Option<&Map<String, Value>>,
        fields: &Map<String, Value>,
    ) -> Result<(Option<Self>, ContractSource), ContractFault> {
        let keys = whole.into_iter().chain([fields]).flat_map(Map::keys);
        if let Some(key) = keys.into_iter().find(|key| !is_field(key)) {
            let suggestion = word::suggestion(key, FIELDS).map(str::to_owned);
            let suggestion = suggestion.or_else(|| Some(FIELDS.join("`, `")));
            return Err(ContractFault::UnknownWord { path: key.clone(), suggestion });
        }
        let field = |key| given(fields, key).or_else(|| whole.and_then(|w| given(w, key)));
        let contract = Self {
            purpose: text("purpose", field("purpose"))?,
            deliverable: field("deliverable").cloned(),
            acceptance: field("acceptance").cloned(),
            failure_policy: field("failure_policy").cloned(),
            intent_signature: text("intent_signature", field("intent_signature"))?,
            examples: examples(field("examples"))?,
            notes: Vec::new(),
        };
        if contract == Self::EMPTY {
            return Ok((None, ContractSource::None));
        }
        contract.vet()?;
        Ok((Some(contract), source(whole, fields)))
    }

    /// The examples.
    pub fn examples(&self) -> Vec<Example> {
        self.examples.iter().filter_map(|example| Example::parse(example).ok()).collect()
    }

    /// SHA-256 over canonical JSON (keys sorted at every level) of purpose, deliverable, acceptance and failure policy.
    ///
    /// A contract that states nothing but an intent demands nothing: it equals no contract.
    pub fn fingerprint(&self) -> Fingerprint {
        let purpose = self.purpose.clone().map(Value::String);
        let demands = [
            ("purpose", purpose.as_ref()),
            ("deliverable", self.deliverable.as_ref()),
            ("acceptance", self.acceptance.as_ref()),
            ("failure_policy", self.failure_policy.as_ref()),
        ];
        let demands: Map<String, Value> = demands
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value?.clone())))
            .filter(|(_, value)| !value.is_null())
            .collect();
        if demands.is_empty() {
            return Fingerprint::none();
        }
        Fingerprint(hex(&Sha256::digest(canonical(&Value::Object(demands)))))
    }

    /// Whether the value of an ok outcome is what the contract asks for.
    ///
    /// A clause that is not understood is not enforced: a success is refused only for what a contract plainly says.
    pub fn judge(
        &self,
        args: &[Value],
        kwargs: &Map<String, Value>,
        value: &Value,
    ) -> Result<(), Breach> {
        let terms = self.deliverable.as_ref().and_then(|it| Terms::tolerant(it).0);
        let Some(terms) = terms else { return Ok(()) };
        if args.first().is_some_and(Value::is_null) && kwargs.is_empty() && is_empty(value) {
            return Err(Breach::nil_input(value));
        }
        terms.judge(value)
    }

    const EMPTY: Self = Self {
        purpose: None,
        deliverable: None,
        acceptance: None,
        failure_policy: None,
        intent_signature: None,
        examples: Vec::new(),
        notes: Vec::new(),
    };

    fn bytes(&self) -> usize {
        let texts = [&self.purpose, &self.intent_signature].into_iter().flatten().map(String::len);
        let values = [&self.deliverable, &self.acceptance, &self.failure_policy];
        let values = values.into_iter().flatten().chain(&self.examples);
        texts.chain(values.map(encoded_bytes)).sum()
    }

    fn vet(&self) -> Result<(), ContractFault> {
        self.vet_size()?;
        self.deliverable.as_ref().map_or(Ok(()), |deliverable| Terms::parse(deliverable).map(drop))
    }

    fn vet_size(&self) -> Result<(), ContractFault> {
        let bytes = self.bytes();
        if bytes > MAX_BYTES {
            return Err(ContractFault::TooLong { bytes });
        }
        let shapes = [("acceptance", &self.acceptance), ("failure_policy", &self.failure_policy)];
        for (field, value) in shapes {
            if value.as_ref().is_some_and(|value| deeper_than(value, MAX_DEPTH)) {
                return Err(ContractFault::TooDeep { path: field.to_owned() });
            }
        }
        Ok(())
    }
}

/// Whether this is the name of a field: `purpose` and `:purpose` are alike.
pub fn is_field(key: &str) -> bool {
    FIELDS.into_iter().any(|field| word::are_alike(field, key))
}

/// How a contract was given.
fn source(whole: Option<&Map<String, Value>>, fields: &Map<String, Value>) -> ContractSource {
    let declared = FIELDS.iter().any(|key| given(fields, key).is_some());
    match (whole.is_some(), declared) {
        (true, true) => ContractSource::Merged,
        (true, false) => ContractSource::Hash,
        (false, _) => ContractSource::Fields,
    }
}

/// The examples of a contract, each checked.
fn examples(given: Option<&Value>) -> Result<Vec<Value>, ContractFault> {
    let Some(given) = given else { return Ok(Vec::new()) };
    let Value::Array(examples) = given else {
        return Err(ContractFault::Unusable {
            path: "examples".to_owned(),
            found: described(given),
            instead: "a list such as [{\"args\": [2], \"value\": 4}]",
        });
    };
    for (index, example) in examples.iter().enumerate() {
        let unusable = |fault| ContractFault::UnusableExample { index: index + 1, fault };
        Example::parse(example).map_err(unusable)?;
    }
    Ok(examples.clone())
}

/// The fields of a contract, by the names they are given by.
pub const FIELDS: [&str; 6] =
    ["purpose", "deliverable", "acceptance", "failure_policy", "intent_signature", "examples"];

/// What an answer must be: a deliverable by itself, as [`Contract::compose`] reads it.
pub(crate) struct AnswerTerms {
    given: Value,
    json_schema: Value,
    terms: Terms,
}

impl AnswerTerms {
    /// `None` for prose.
    pub(crate) fn parse(given: &Value) -> Result<Option<Self>, ContractFault> {
        let Some(terms) = Terms::parse(given)? else { return Ok(None) };
        let written = deliverable::written_out(given)?.unwrap_or_default();
        let json_schema = match self::given(&written, "schema") {
            Some(schema) => schema.clone(),
            None => deliverable::json_schema(&written),
        };
        Ok(Some(Self { given: given.clone(), json_schema, terms }))
    }

    /// As it was given.
    pub(crate) fn given(&self) -> &Value {
        &self.given
    }

    /// The same as JSON Schema.
    pub(crate) fn json_schema(&self) -> Value {
        self.json_schema.clone()
    }

    /// Whether an answer keeps to it.
    pub(crate) fn judge(&self, answer: &Value) -> Result<(), Breach> {
        self.terms.judge(answer)
    }
}

impl fmt::Debug for AnswerTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnswerTerms").field(&self.given).finish()
    }
}

/// The enforceable part of a deliverable.
struct Terms {
    constraint: Constraint,
    schemas: Vec<Schema>,
}

impl Terms {
    /// `None` for prose.
    fn parse(deliverable: &Value) -> Result<Option<Self>, ContractFault> {
        if deeper_than(deliverable, MAX_DEPTH) {
            return Err(ContractFault::TooDeep { path: "deliverable".to_owned() });
        }
        let Some(object) = deliverable::written_out(deliverable)? else { return Ok(None) };
        let constraint = Constraint::parse(&object, "deliverable")?;
        let mut schemas = Vec::new();
        if let Some(schema) = given(&object, "schema") {
            const AT: &str = "deliverable.schema";
            deliverable::refuse_misspelt_words(schema, AT)?;
            schemas.push(Schema::parse(schema, AT)?);
        }
        if deliverable::uses_schema_words(&object) {
            schemas.push(Schema::parse(&deliverable::json_schema(&object), "deliverable")?);
        }
        Ok(Some(Self { constraint, schemas }))
    }

    fn judge(&self, value: &Value) -> Result<(), Breach> {
        self.constraint
            .check(value, &Path::Root)
            .and_then(|()| self.schemas.iter().try_for_each(|schema| schema.check(value)))
            .map_err(|breach| breach.among_keys(self.constraint.required(), value))
    }
}

/// The non-null value of a contract's own key: `min_items`, `:min_items` and `minItems` are alike.
fn given<'a>(object: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    let is_given = |name: &str, value: &Value| !value.is_null() && word::are_alike(name, key);
    object.iter().find(|(name, value)| is_given(name, value)).map(|(_, value)| value)
}

fn text(field: &'static str, value: Option<&Value>) -> Result<Option<String>, ContractFault> {
    let Some(value) = value else { return Ok(None) };
    match value.as_str() {
        None => Err(ContractFault::NotText { field, found: described(value) }),
        Some(text) if text.trim().is_empty() => Err(ContractFault::Blank { field }),
        Some(text) => Ok(Some(text.to_owned())),
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty)
}

/// Walks with its own stack: what it measures must not overflow ours.
pub(crate) fn deeper_than(value: &Value, limit: usize) -> bool {
    let mut waiting = vec![(value, 0)];
    while let Some((value, depth)) = waiting.pop() {
        if depth > limit {
            return true;
        }
        if let Some(items) = value.as_array() {
            waiting.extend(items.iter().map(|item| (item, depth + 1)));
        } else if let Some(object) = value.as_object() {
            waiting.extend(object.values().map(|item| (item, depth + 1)));
        }
    }
    false
}

/// Why a value does not keep to a JSON Schema; `None`: it does.
pub(crate) fn schema_breach(
    schema: &Value,
    value: &Value,
) -> Result<Option<Breach>, ContractFault> {
    if deeper_than(schema, MAX_DEPTH) {
        return Err(ContractFault::TooDeep { path: "schema".to_owned() });
    }
    Ok(Schema::parse(schema, "schema")?.check(value).err())
}

/// JSON without spaces, keys sorted at every level. Walks with its own stack, like [`deeper_than`].
pub(crate) fn canonical(value: &Value) -> String {
    enum Piece<'a> {
        Value(&'a Value),
        Key(&'a str),
        Mark(char),
    }
    let mut out = String::new();
    let mut waiting = vec![Piece::Value(value)];
    while let Some(piece) = waiting.pop() {
        match piece {
            Piece::Mark(mark) => out.push(mark),
            Piece::Key(key) => out.push_str(&Value::from(key).to_string()),
            Piece::Value(Value::Array(items)) => {
                out.push('[');
                waiting.push(Piece::Mark(']'));
                for (index, item) in items.iter().enumerate().rev() {
                    waiting.push(Piece::Value(item));
                    waiting.extend((index > 0).then_some(Piece::Mark(',')));
                }
            }
            Piece::Value(Value::Object(object)) => {
                out.push('{');
                waiting.push(Piece::Mark('}'));
                let mut entries: Vec<_> = object.iter().collect();
                entries.sort_unstable_by_key(|(key, _)| *key);
                for (index, (key, item)) in entries.into_iter().enumerate().rev() {
                    waiting.extend([Piece::Value(item), Piece::Mark(':'), Piece::Key(key)]);
                    waiting.extend((index > 0).then_some(Piece::Mark(',')));
                }
            }
            Piece::Value(scalar) => out.push_str(&scalar.to_string()),
        }
    }
    out
}
