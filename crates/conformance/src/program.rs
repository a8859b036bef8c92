//! Programs and plans: the answers of the scripted model.

use std::collections::BTreeMap;
use std::time::Duration;

use lifecycle::draft::DraftFault;
use lifecycle::outcome::FailureKind;
use recurgent::Language;
use serde_json::{Map, Value, json};

use crate::fields::{MapReader, list, map, text};

/// Programs that every file may name without defining them. `specs/scenarios/programs.yaml` has their texts.
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
const BUILT_IN_SOURCE: &str = include_str!("../../../specs/scenarios/programs.yaml");

/// The wait that a scripted timeout reports; it does not wait.
const CLAIMED_WAIT: Duration = Duration::from_mins(2);

/// One answer of the model.
#[derive(Debug, Clone)]
pub(crate) enum ScriptedProgram {
    /// A program text per guest language. A scenario is skipped in a language without a text.
    Code {
        /// The texts by language.
        texts: BTreeMap<Language, String>,
        /// The dependencies it declares, unchanged.
        dependencies: Option<Value>,
    },
    /// A payload that is sent unchanged.
    Payload(Value),
    /// A fault of the provider instead of a payload.
    Fault(DraftFault),
}

/// An answer in one guest language.
#[derive(Debug, Clone)]
pub(crate) enum ScriptedReply {
    Payload(Value),
    Fault(DraftFault),
}

impl ScriptedProgram {
    /// The answer in a guest language, if the program has a text in it.
    pub(crate) fn reply(&self, guest: Language) -> Option<ScriptedReply> {
        match self {
            Self::Code { texts, dependencies: None } => {
                Some(ScriptedReply::code(texts.get(&guest)?))
            }
            Self::Code { texts, dependencies: Some(declared) } => {
                let code = texts.get(&guest)?;
                Some(ScriptedReply::Payload(json!({"code": code, "dependencies": declared})))
            }
            Self::Payload(payload) => Some(ScriptedReply::Payload(payload.clone())),
            Self::Fault(fault) => Some(ScriptedReply::Fault(fault.clone())),
        }
    }

    /// Reads a program; `None` if the map has no text, payload or fault and so refers to a built-in program.
    fn read(value: Value) -> Result<Option<Self>, String> {
        let mut fields = MapReader::of(value)?;
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

impl ScriptedReply {
    /// A program as a model would send it.
    pub(crate) fn code(source: &str) -> Self {
        Self::Payload(json!({ "code": source }))
    }
}

/// The provider fault of a name: the code of the failure that it becomes.
fn fault_named(name: &str) -> Result<DraftFault, String> {
    let words = || format!("scripted fault: {name}");
    match FailureKind::of_code(name) {
        Some(FailureKind::Provider) => Ok(DraftFault::Unavailable(words())),
        Some(FailureKind::RateLimited) => {
            Ok(DraftFault::RateLimited { message: words(), retry_after: None })
        }
        Some(FailureKind::Timeout(_)) => Ok(DraftFault::TimedOut(CLAIMED_WAIT)),
        Some(FailureKind::ProviderAuth) => Ok(DraftFault::Auth(words())),
        Some(FailureKind::ProviderRefusal) => Ok(DraftFault::Refused(words())),
        None | Some(_) => Err(format!("unknown fault {name:?}")),
    }
}

/// The reply that is the provider fault of this name, if there is one.
pub(crate) fn fault_reply(name: &str) -> Option<ScriptedReply> {
    fault_named(name).ok().map(ScriptedReply::Fault)
}

/// Programs by id, the innermost scope first. `None` stands for the built-in program of that id.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProgramTable(Vec<BTreeMap<String, Option<ScriptedProgram>>>);

impl ProgramTable {
    /// The built-in programs.
    pub(crate) fn built_in() -> Result<Self, String> {
        let value = crate::suite::yaml(BUILT_IN_SOURCE)?;
        let mut fields = MapReader::of(value)?;
        fields.take(&["version"])?;
        let mut scope = BTreeMap::new();
        add(&mut scope, fields.required(&["programs"])?)?;
        scope.retain(|id, _| BUILT_IN.contains(&id.as_str()));
        Ok(Self(vec![scope]))
    }

    /// These programs and, in an inner scope, those of `programs` and `provider_payloads` of a map.
    pub(crate) fn with(&self, fields: &mut MapReader) -> Result<Self, String> {
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
    pub(crate) fn named(&self, id: &str) -> Result<ScriptedProgram, String> {
        let built_in = || self.0.last().and_then(|scope| scope.get(id));
        match self.0.iter().find_map(|scope| scope.get(id)) {
            Some(Some(program)) => Ok(program.clone()),
            Some(None) => built_in().cloned().flatten().ok_or_else(|| {
                format!("program {id:?} has neither text, payload nor fault, and is not built in")
            }),
            None => Err(format!("unknown program {id:?}")),
        }
    }

    /// Reads a plan: a queue of answers by key.
    pub(crate) fn plan(&self, value: Value) -> Result<Vec<(String, Vec<ScriptedProgram>)>, String> {
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

    fn answers(&self, value: Value) -> Result<Vec<ScriptedProgram>, String> {
        match value {
            Value::Array(items) => self.sequence(items),
            Value::Object(mut entry) if entry.contains_key("sequence") => {
                let items = entry.shift_remove("sequence").unwrap_or_default();
                MapReader::of(Value::Object(entry))?.finish()?;
                self.sequence(list(items)?)
            }
            one @ (Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Object(_)) => Ok(vec![self.program(one)?]),
        }
    }

    fn sequence(&self, items: Vec<Value>) -> Result<Vec<ScriptedProgram>, String> {
        items.into_iter().map(|item| self.program(item)).collect()
    }

    /// Reads the id of a program, or a program.
    fn program(&self, value: Value) -> Result<ScriptedProgram, String> {
        if let Value::String(id) = &value {
            return self.named(id);
        }
        ScriptedProgram::read(value)?.ok_or_else(|| {
            "a program needs a text per guest, `payload` or `fault`, or to be named by its id"
                .to_owned()
        })
    }
}

/// Reads `programs`, a map by id or a list with ids.
fn add(scope: &mut BTreeMap<String, Option<ScriptedProgram>>, value: Value) -> Result<(), String> {
    let named = if let Value::Array(items) = value {
        items.into_iter().map(with_id).collect::<Result<_, _>>()?
    } else {
        map(value)?.into_iter().collect::<Vec<_>>()
    };
    for (id, value) in named {
        let value = if value.is_null() { Value::Object(Map::new()) } else { value };
        let program =
            ScriptedProgram::read(value).map_err(|problem| format!("{id:?}: {problem}"))?;
        if scope.insert(id.clone(), program).is_some() {
            return Err(format!("{id:?} is there twice"));
        }
    }
    Ok(())
}

/// A program of a list with its id.
fn with_id(program: Value) -> Result<(String, Value), String> {
    let id = program.get("id").and_then(Value::as_str).map(str::to_owned);
    id.map(|id| (id, program)).ok_or_else(|| "a program has no `id`".to_owned())
}
