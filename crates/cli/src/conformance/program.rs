//! Programs and plans: what the scripted model answers.

use std::collections::BTreeMap;
use std::time::Duration;

use recurgent::Language;
use recurgent::lifecycle::draft::DraftFault;
use serde_json::{Map, Value, json};

use super::fields::{Fields, list, map, text};

/// The programs every file may name without bringing them; their texts are those of our own suite.
const BUILT_IN: [&str; 8] = [
    "return_42",
    "increment_value_by_arg0",
    "set_value_from_amount_kwarg",
    "raise_boom",
    "delegate_compute_add_2_3",
    "add_args_0_1",
    "invalid_nil",
    "invalid_blank",
];
const BUILT_IN_SOURCE: &str = include_str!("../../../../specs/scenarios/programs.yaml");

/// What a fault says it waited; nobody does.
const CLAIMED_WAIT: Duration = Duration::from_mins(2);

/// One answer of the model.
#[derive(Debug, Clone)]
pub(super) enum Program {
    /// A program in the guest's language; a language without a text cannot play it.
    Code {
        /// By language.
        texts: BTreeMap<Language, String>,
        /// What it declares, unchanged.
        dependencies: Option<Value>,
    },
    /// A payload as it is.
    Payload(Value),
    /// No payload at all.
    Fault(DraftFault),
}

/// An answer in one guest's language.
#[derive(Debug, Clone)]
pub(super) enum Reply {
    Payload(Value),
    Fault(DraftFault),
}

impl Program {
    /// The answer for a guest, if there is one in its language.
    pub(super) fn reply(&self, guest: Language) -> Option<Reply> {
        match self {
            Self::Code { texts, dependencies: None } => Some(Reply::code(texts.get(&guest)?)),
            Self::Code { texts, dependencies: Some(declared) } => {
                let code = texts.get(&guest)?;
                Some(Reply::Payload(json!({"code": code, "dependencies": declared})))
            }
            Self::Payload(payload) => Some(Reply::Payload(payload.clone())),
            Self::Fault(fault) => Some(Reply::Fault(fault.clone())),
        }
    }

    /// Reads one of the shapes; `None` when the map has none of them and so refers to a built-in one.
    fn read(value: Value) -> Result<Option<Self>, String> {
        let mut fields = Fields::of(value)?;
        fields.take(&["id"])?;
        fields.take(&["semantics"])?;
        let payload = fields.take(&["payload"])?;
        let fault = fields.optional(&["fault"], text)?;
        let dependencies = fields.take(&["dependencies"])?;
        let mut texts = BTreeMap::new();
        for (name, language) in [("python", Language::Python), ("ruby", Language::Ruby)] {
            if let Some(source) = fields.optional(&[name], text)? {
                texts.insert(language, source);
            }
        }
        fields.finish()?;
        match (payload, fault, texts.is_empty()) {
            (_, _, true) if dependencies.is_some() => {
                Err("`dependencies` need a text per guest beside them".to_owned())
            }
            (None, None, true) => Ok(None),
            (None, None, false) => Ok(Some(Self::Code { texts, dependencies })),
            (Some(payload), None, true) => Ok(Some(Self::Payload(payload))),
            (None, Some(name), true) => fault_named(&name).map(|fault| Some(Self::Fault(fault))),
            _ => Err("has more than one of: texts per guest, `payload`, `fault`".to_owned()),
        }
    }
}

impl Reply {
    /// A program as a model would send it.
    pub(super) fn code(source: &str) -> Self {
        Self::Payload(json!({ "code": source }))
    }
}

/// The failure a name stands for.
fn fault_named(name: &str) -> Result<DraftFault, String> {
    let words = || format!("scripted fault: {name}");
    match name {
        "provider" => Ok(DraftFault::Unavailable(words())),
        "rate_limited" => Ok(DraftFault::RateLimited { message: words(), retry_after: None }),
        "timeout" => Ok(DraftFault::TimedOut(CLAIMED_WAIT)),
        "provider_auth" => Ok(DraftFault::Auth(words())),
        "provider_refusal" => Ok(DraftFault::Refused(words())),
        _ => Err(format!("unknown fault {name:?}")),
    }
}

/// The reply that makes a call fail as the model's service would, for the names there are.
pub(super) fn fault_reply(name: &str) -> Option<Reply> {
    fault_named(name).ok().map(Reply::Fault)
}

/// Programs by id, the nearest scope first. `None`: the built-in one of that id.
#[derive(Debug, Clone, Default)]
pub(super) struct Programs(Vec<BTreeMap<String, Option<Program>>>);

impl Programs {
    /// Only those built in.
    pub(super) fn built_in() -> Result<Self, String> {
        let value = super::suite::yaml(BUILT_IN_SOURCE)?;
        let mut fields = Fields::of(value)?;
        fields.take(&["version"])?;
        let mut scope = BTreeMap::new();
        add(&mut scope, fields.required(&["programs"])?)?;
        scope.retain(|id, _| BUILT_IN.contains(&id.as_str()));
        Ok(Self(vec![scope]))
    }

    /// These, and before them what `programs` and `provider_payloads` of a map bring.
    pub(super) fn with(&self, fields: &mut Fields) -> Result<Self, String> {
        let mut scope = BTreeMap::new();
        for name in ["programs", "provider_payloads"] {
            if let Some(programs) = fields.take(&[name])? {
                add(&mut scope, programs).map_err(|problem| format!("`{name}`: {problem}"))?;
            }
        }
        let mut scopes = vec![scope];
        scopes.extend(self.0.iter().cloned());
        Ok(Self(scopes))
    }

    /// A program by its id.
    pub(super) fn named(&self, id: &str) -> Result<Program, String> {
        let built_in = || self.0.last().and_then(|scope| scope.get(id));
        match self.0.iter().find_map(|scope| scope.get(id)) {
            Some(Some(program)) => Ok(program.clone()),
            Some(None) => built_in().cloned().flatten().ok_or_else(|| {
                format!("program {id:?} has neither text, payload nor fault, and is not built in")
            }),
            None => Err(format!("unknown program {id:?}")),
        }
    }

    /// A plan: queues of answers by key.
    pub(super) fn plan(&self, value: Value) -> Result<Vec<(String, Vec<Program>)>, String> {
        if let Value::Array(items) = value {
            return Ok(vec![("*".to_owned(), self.sequence(items)?)]);
        }
        let mut plan = Vec::new();
        for (key, answers) in map(value)? {
            let answers = self.answers(answers);
            let answers =
                answers.map_err(|problem| format!("`provider_plan`, `{key}`: {problem}"))?;
            plan.push((key, answers));
        }
        Ok(plan)
    }

    fn answers(&self, value: Value) -> Result<Vec<Program>, String> {
        match value {
            Value::Array(items) => self.sequence(items),
            Value::Object(mut entry) if entry.contains_key("sequence") => {
                let items = entry.shift_remove("sequence").unwrap_or_default();
                Fields::of(Value::Object(entry))?.finish()?;
                self.sequence(list(items)?)
            }
            one @ (Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Object(_)) => Ok(vec![self.program(one)?]),
        }
    }

    fn sequence(&self, items: Vec<Value>) -> Result<Vec<Program>, String> {
        items.into_iter().map(|item| self.program(item)).collect()
    }

    /// An id, or a program itself.
    fn program(&self, value: Value) -> Result<Program, String> {
        if let Value::String(id) = &value {
            return self.named(id);
        }
        Program::read(value)?.ok_or_else(|| {
            "a program needs a text per guest, `payload` or `fault`, or to be named by its id"
                .to_owned()
        })
    }
}

/// Reads `programs`, a map by id or a list with ids.
fn add(scope: &mut BTreeMap<String, Option<Program>>, value: Value) -> Result<(), String> {
    let named = if let Value::Array(items) = value {
        items.into_iter().map(with_id).collect::<Result<_, _>>()?
    } else {
        map(value)?.into_iter().collect::<Vec<_>>()
    };
    for (id, value) in named {
        let value = if value.is_null() { Value::Object(Map::new()) } else { value };
        let program = Program::read(value).map_err(|problem| format!("{id:?}: {problem}"))?;
        if scope.insert(id.clone(), program).is_some() {
            return Err(format!("{id:?} is there twice"));
        }
    }
    Ok(())
}

/// A program of a list, and the id it has there.
fn with_id(program: Value) -> Result<(String, Value), String> {
    let id = program.get("id").and_then(Value::as_str).map(str::to_owned);
    id.map(|id| (id, program)).ok_or_else(|| "a program has no `id`".to_owned())
}
