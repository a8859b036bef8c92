//! The question of a program, within its bounds.

use serde_json::{Value, json};
use thiserror::Error;

use crate::contract::{AnswerTerms, Breach, ContractFault, MAX_DEPTH, canonical, deeper_than};
use crate::excerpt::shortened;
use crate::program::Checksum;
use crate::redact::{NamedSecrets, redacted_text};
use crate::request::encoded_bytes;

/// Raised whenever the same question is asked in other words: earlier answers are not used then.
const QUESTION_VERSION: u32 = 2;
/// Bytes of an instruction. More is data.
pub const MAX_INSTRUCTION_BYTES: usize = 8 * 1024;
/// Bytes of one item of data, as JSON.
pub const MAX_DATA_BYTES: usize = 128 * 1024;
/// Items of one question.
pub const MAX_ITEMS: usize = 10_000;
/// Bytes of a schema, as JSON.
const MAX_SCHEMA_BYTES: usize = 16 * 1024;
/// Characters of an instruction that the log shows.
const SHOWN_CHARS: usize = 160;

/// What a program asks: an instruction, data, and what the answer must be.
#[derive(Debug)]
pub struct Question {
    pub(super) instruction: String,
    pub(super) items: Items,
    pub(super) terms: Option<AnswerTerms>,
}

/// What a question is about.
#[derive(Debug)]
pub(super) enum Items {
    /// One value; null: the instruction says it all.
    One(Value),
    /// Each of these by itself.
    Each(Vec<Value>),
}

/// Why a question is refused: the program must ask another one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum QuestionFault {
    /// There is no instruction.
    #[error("infer needs an instruction, such as infer(\"Sum up in one sentence\", text)")]
    Blank,
    /// The instruction is too long.
    #[error(
        "the instruction of infer has {bytes} bytes, above {MAX_INSTRUCTION_BYTES}; pass the data as the second argument"
    )]
    LongInstruction {
        /// Its length.
        bytes: usize,
    },
    /// The data is too long.
    #[error(
        "infer was given {what} of {bytes} bytes, above {MAX_DATA_BYTES}; split it, and ask about each part"
    )]
    LongData {
        /// `data`, or an item.
        what: String,
        /// Its length.
        bytes: usize,
    },
    /// There are too many items.
    #[error("infer was given {count} items, above {MAX_ITEMS}; ask about fewer at a time")]
    ManyItems {
        /// How many.
        count: usize,
    },
    /// Both one value and a list of items were given.
    #[error("infer takes either data, or `each` with a list of items, not both")]
    Both,
    /// The data is nested too deeply.
    #[error(
        "infer was given data nested deeper than {MAX_DEPTH} levels; pass only the part that is asked about"
    )]
    Deep,
    /// The schema is too long.
    #[error(
        "the schema of infer has {bytes} bytes, above {MAX_SCHEMA_BYTES}; describe only what is needed"
    )]
    LongSchema {
        /// Its length.
        bytes: usize,
    },
    /// The schema cannot be checked.
    #[error("the schema of infer cannot be used: {0}")]
    Schema(ContractFault),
    /// The schema is prose.
    #[error(
        "the schema of infer is prose; write a JSON Schema such as {{\"type\": \"string\"}}, or a list of the allowed texts"
    )]
    Prose,
}

impl Question {
    /// Checks what a program gave.
    pub fn parse(
        instruction: String,
        data: Value,
        each: Option<Vec<Value>>,
        schema: &Value,
    ) -> Result<Self, QuestionFault> {
        let bytes = instruction.len();
        if instruction.trim().is_empty() {
            return Err(QuestionFault::Blank);
        }
        if bytes > MAX_INSTRUCTION_BYTES {
            return Err(QuestionFault::LongInstruction { bytes });
        }
        let items = match each {
            None => Items::One(data),
            Some(_) if !data.is_null() => return Err(QuestionFault::Both),
            Some(items) if items.len() > MAX_ITEMS => {
                return Err(QuestionFault::ManyItems { count: items.len() });
            }
            Some(items) => Items::Each(items),
        };
        let question = Self { instruction, items, terms: terms(schema)? };
        question.check_data()?;
        Ok(question)
    }

    fn check_data(&self) -> Result<(), QuestionFault> {
        for (index, item) in self.items().iter().enumerate() {
            if deeper_than(item, MAX_DEPTH) {
                return Err(QuestionFault::Deep);
            }
            let bytes = encoded_bytes(item);
            if bytes > MAX_DATA_BYTES {
                let what =
                    if self.is_many() { format!("item {}", index + 1) } else { "data".to_owned() };
                return Err(QuestionFault::LongData { what, bytes });
            }
        }
        Ok(())
    }

    pub(super) fn items(&self) -> &[Value] {
        match &self.items {
            Items::One(value) => std::slice::from_ref(value),
            Items::Each(values) => values,
        }
    }

    /// Whether each item of a list is asked about by itself.
    pub fn is_many(&self) -> bool {
        matches!(self.items, Items::Each(_))
    }

    pub(super) fn item_bytes(&self, index: usize) -> usize {
        self.items().get(index).map_or(0, encoded_bytes)
    }

    /// Why an answer cannot be used.
    pub(super) fn breach(&self, answer: &Value) -> Option<Breach> {
        self.terms.as_ref()?.judge(answer).err()
    }

    /// What each item's answer is kept under.
    pub(super) fn keys(&self, model: &str) -> Vec<Checksum> {
        let asked = self.asked(model);
        let key = |item: &Value| Checksum::of(&format!("{asked}\n{}", canonical(item)));
        self.items().iter().map(key).collect()
    }

    /// Identifies the whole question.
    pub(super) fn digest(&self, model: &str) -> Checksum {
        match &self.items {
            Items::One(_) => self.keys(model).into_iter().next(),
            Items::Each(_) => None,
        }
        .unwrap_or_else(|| {
            let keys: String = self.keys(model).iter().map(Checksum::as_str).collect();
            Checksum::of(&format!("{}\n{keys}", self.asked(model)))
        })
    }

    fn asked(&self, model: &str) -> String {
        let schema = self.terms.as_ref().map(AnswerTerms::given);
        canonical(&json!([QUESTION_VERSION, model, self.instruction, schema]))
    }

    /// The beginning of the instruction, without secrets.
    pub(super) fn shown_instruction(&self, secrets: &NamedSecrets) -> String {
        let clean = redacted_text(secrets.out_of_text(self.instruction.clone()));
        shortened(clean.trim(), SHOWN_CHARS)
    }
}

/// What the answer must be; `None`: a text.
fn terms(schema: &Value) -> Result<Option<AnswerTerms>, QuestionFault> {
    let bytes = encoded_bytes(schema);
    if bytes > MAX_SCHEMA_BYTES {
        return Err(QuestionFault::LongSchema { bytes });
    }
    let listed = |items: &Vec<Value>| items.len() > 1 && items.iter().all(Value::is_string);
    let written = match schema {
        Value::Null => return Ok(None),
        Value::Array(items) if listed(items) => json!({"type": "string", "enum": items}),
        Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => schema.clone(),
    };
    match AnswerTerms::parse(&written) {
        Ok(Some(terms)) => Ok(Some(terms)),
        Ok(None) => Err(QuestionFault::Prose),
        Err(fault) => Err(QuestionFault::Schema(fault)),
    }
}
