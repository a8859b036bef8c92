//! Writes and reads the JSON files of an exported store.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use lifecycle::artifact::Cacheability;
use lifecycle::contract::{self, Contract};
use lifecycle::dependency::DependencyManifest;
use lifecycle::dialect::Language;
use lifecycle::example::Example;
use lifecycle::pattern::PatternEvent;
use lifecycle::program::{Checksum, MAX_CODE_BYTES, type_name};
use lifecycle::request::{Method, Role};
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::super::bundle::{ArtifactEntry, ImportNote, ToolEntry, VersionEntry};
use super::{SCHEMA_VERSION, reference};

/// Files without a version exist only of the first one.
const FIRST_SCHEMA_VERSION: u64 = 1;

pub(super) fn check_version(file: &Value) -> Result<(), String> {
    let found = JsonFields::of(file)?.number("schema_version")?.unwrap_or(FIRST_SCHEMA_VERSION);
    let advice = match found.cmp(&SCHEMA_VERSION) {
        Ordering::Equal => return Ok(()),
        Ordering::Greater => "upgrade to read it",
        Ordering::Less => "export it again with the version that wrote it",
    };
    Err(format!("it has schema version {found} and this program knows {SCHEMA_VERSION}; {advice}"))
}

// ---- registry.json ----

pub(super) fn registry(tools: &[ToolEntry]) -> Value {
    let tools: Map<String, Value> =
        tools.iter().map(|entry| (entry.name.to_string(), tool(entry))).collect();
    json!({"schema_version": SCHEMA_VERSION, "tools": tools})
}

fn tool(entry: &ToolEntry) -> Value {
    let contract = entry.contract.as_ref();
    let examples = contract.map(|c| c.examples.as_slice()).filter(|examples| !examples.is_empty());
    json!({
        "purpose": contract.and_then(|c| c.purpose.as_ref()),
        "deliverable": contract.and_then(|c| c.deliverable.as_ref()),
        "acceptance": contract.and_then(|c| c.acceptance.as_ref()),
        "failure_policy": contract.and_then(|c| c.failure_policy.as_ref()),
        "intent_signature": contract.and_then(|c| c.intent_signature.as_ref()),
        "examples": examples,
        "methods": entry.methods,
        "method_signatures": entry.signatures,
        "usage_count": entry.usage_count,
        "success_count": entry.success_count,
        "failure_count": entry.failure_count,
        "created_at": entry.created_at,
        "last_used_at": entry.last_used_at,
    })
}

/// Reads each entry by itself: one that cannot be read is refused, the others are not.
pub(super) fn read_registry(
    file: &Value,
    refused: &mut Vec<ImportNote>,
    notes: &mut Vec<ImportNote>,
) -> Result<Vec<ToolEntry>, String> {
    let file = JsonFields::of(file)?;
    let Some(tools) = file.get("tools") else {
        return Err("it has no `tools`".to_owned());
    };
    let tools = tools.as_object().ok_or_else(|| wrong("tools", "an object", tools))?;
    let mut read: BTreeMap<Role, ToolEntry> = BTreeMap::new();
    for (name, entry) in tools {
        // Ruby symbols are written as `:fetcher`; that is the name `fetcher`.
        let name = name.strip_prefix(':').unwrap_or(name);
        let what = format!("tool {name:?} of registry.json");
        match read_tool(name, entry) {
            Ok((entry, _)) if read.contains_key(&entry.name) => {
                refused.push(ImportNote {
                    what,
                    why: "it is there twice; the first one counts".to_owned(),
                });
            }
            Ok((entry, note)) => {
                notes.extend(note.map(|why| ImportNote { what, why }));
                read.insert(entry.name.clone(), entry);
            }
            Err(why) => refused.push(ImportNote { what, why }),
        }
    }
    Ok(read.into_values().collect())
}

/// A tool, and what of it could not be kept.
fn read_tool(name: &str, entry: &Value) -> Result<(ToolEntry, Option<String>), String> {
    let name = Role::parse(name).map_err(|fault| fault.to_string())?;
    let entry = JsonFields::of(entry)?;
    let is_blank = |value: &Value| value.as_str().is_some_and(|text| text.trim().is_empty());
    let given = entry.0.iter().filter(|(_, value)| !is_blank(value));
    let given: Map<String, Value> = given.map(|(k, v)| (k.clone(), v.clone())).collect();
    let (contract, mut note) = read_contract(&given)?;
    let signatures = entry.typed("method_signatures").unwrap_or_else(|why| {
        note = Some(note.iter().chain([&why]).map(String::as_str).collect::<Vec<_>>().join("; "));
        None
    });
    let (mut methods, odd) = read_methods(entry.0.get("methods"))?;
    note = [note, odd].into_iter().flatten().reduce(|one, other| format!("{one}; {other}"));
    methods.sort();
    methods.dedup();
    let created_at = entry.time("created_at")?;
    let tool = ToolEntry {
        name,
        contract,
        methods,
        signatures: signatures.unwrap_or_default(),
        usage_count: entry.number("usage_count")?.unwrap_or(0),
        success_count: entry.number("success_count")?.unwrap_or(0),
        failure_count: entry.number("failure_count")?.unwrap_or(0),
        last_used_at: entry
            .time("last_used_at")?
            .or_else(|| created_at.clone())
            .unwrap_or_default(),
        created_at: created_at.unwrap_or_default(),
    };
    Ok((tool, note))
}

/// The methods of a tool: a list of names, one name, or a map by name; and a note on what is not a list.
fn read_methods(given: Option<&Value>) -> Result<(Vec<String>, Option<String>), String> {
    let note = |what: &str| Some(format!("`methods` is {what} in place of a list of names"));
    Ok(match given {
        None | Some(Value::Null) => (Vec::new(), None),
        Some(Value::Array(names)) => {
            let texts: Vec<String> =
                names.iter().filter_map(Value::as_str).map(str::to_owned).collect();
            let odd = (texts.len() < names.len())
                .then(|| "`methods` holds something that is not a name".to_owned());
            (texts, odd)
        }
        Some(Value::String(name)) => (vec![name.clone()], note("a text")),
        Some(Value::Object(by_name)) => (by_name.keys().cloned().collect(), note("a map")),
        Some(other @ (Value::Bool(_) | Value::Number(_))) => {
            return Err(wrong("methods", "a list of names", other));
        }
    })
}

/// What an entry of a registry records about a tool beside its contract, here and in the reference runtime.
const RECORDED: [&str; 20] = [
    "aliases",
    "created_at",
    "failure_count",
    "intent_signatures",
    "last_used_at",
    "lifecycle_decision",
    "lifecycle_state",
    "method_signatures",
    "method_state_keys",
    "methods",
    "namespace_continuity_violation_count",
    "namespace_key_collision_count",
    "namespace_multi_lifetime_key_count",
    "promotion_policy_version",
    "role",
    "state_key_consistency_ratio",
    "state_key_lifetimes",
    "success_count",
    "usage_count",
    "version_scorecards",
];

/// A contract that cannot be enforced is kept as intent, with a note: so are options that contracts do not have here, such
/// as `constraints` in prose.
fn read_contract(
    fields: &Map<String, Value>,
) -> Result<(Option<Contract>, Option<String>), String> {
    let says_nothing = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    let is_intent = |key: &str, value: &Value| {
        let bare = key.strip_prefix(':').unwrap_or(key);
        !RECORDED.contains(&bare) && !says_nothing(value)
    };
    let known =
        fields.iter().filter(|(key, value)| contract::is_field(key) || is_intent(key, value));
    let known: Map<String, Value> =
        known.map(|(key, value)| (key.clone(), value.clone())).collect();
    let (contract, _) =
        Contract::compose_tolerant(Some(&known), &Map::new()).map_err(|fault| fault.to_string())?;
    let notes = contract.as_ref().map(|contract| contract.notes.join("; "));
    Ok((contract, notes.filter(|notes| !notes.is_empty())))
}

// ---- patterns.json ----

pub(super) fn patterns(events: &[PatternEvent]) -> Value {
    let mut roles: BTreeMap<&str, Vec<&PatternEvent>> = BTreeMap::new();
    for event in events {
        roles.entry(event.role.as_str()).or_default().push(event);
    }
    let roles: Map<String, Value> = roles
        .into_iter()
        .map(|(role, events)| (role.to_owned(), json!({ "events": events })))
        .collect();
    json!({"schema_version": SCHEMA_VERSION, "roles": roles})
}

/// Reads each event by itself: one that cannot be read is refused, the others are not.
pub(super) fn read_patterns(
    file: &Value,
    refused: &mut Vec<ImportNote>,
) -> Result<Vec<PatternEvent>, String> {
    let file = JsonFields::of(file)?;
    let roles: BTreeMap<String, Value> = file.typed("roles")?.unwrap_or_default();
    let mut read = Vec::new();
    for (name, entry) in &roles {
        let name = name.strip_prefix(':').unwrap_or(name);
        let what = format!("role {name:?} of patterns.json");
        let events = Role::parse(name)
            .map_err(|fault| fault.to_string())
            .and_then(|role| Ok((role, role_events(entry)?)));
        let (role, events) = match events {
            Ok(found) => found,
            Err(why) => {
                refused.push(ImportNote { what, why });
                continue;
            }
        };
        let mut bad = 0;
        for event in events {
            match PatternEvent::deserialize(event) {
                Ok(mut event) if is_named(&event) => {
                    event.role = role.to_string();
                    read.push(event);
                }
                Ok(_) | Err(_) => bad += 1,
            }
        }
        if bad > 0 {
            let why =
                format!("{bad} of its events cannot be read or have no call_id or method_name");
            refused.push(ImportNote { what, why });
        }
    }
    Ok(read)
}

fn role_events(entry: &Value) -> Result<Vec<Value>, String> {
    Ok(JsonFields::of(entry)?.typed("events")?.unwrap_or_default())
}

fn is_named(event: &PatternEvent) -> bool {
    !event.call_id.is_empty() && Method::parse(&event.method_name).is_ok()
}

// ---- artifacts/<role>/<method>.json ----

/// All programs are under `versions`. The current one is repeated at the top level for older readers.
pub(super) fn artifact(entry: &ArtifactEntry) -> Value {
    let versions: Map<String, Value> =
        entry.versions.iter().map(|v| (v.checksum.to_string(), version(v))).collect();
    let mut file = json!({
        "schema_version": SCHEMA_VERSION,
        "role": entry.role,
        "method_name": entry.method,
        "language": entry.language,
        "contract_fingerprint": entry.contract_fingerprint,
        "code_checksum": entry.current,
        "versions": versions,
        "state": entry.rest,
    });
    if let (Value::Object(file), false) = (&mut file, entry.examples.is_empty()) {
        let examples = entry.examples.iter().map(Example::to_json).collect();
        file.insert("examples".to_owned(), Value::Array(examples));
    }
    let current = entry.versions.iter().find(|version| version.checksum == entry.current);
    if let (Value::Object(file), Some(current)) = (&mut file, current) {
        for (key, value) in [
            ("code", json!(current.code)),
            ("dependencies", current.manifest.to_json()),
            ("cacheable", json!(current.cacheability.cacheable())),
            ("cacheability_reason", json!(current.cacheability.reason())),
            ("runtime_version", json!(current.runtime_version)),
            ("prompt_version", json!(current.prompt_version)),
            ("success_count", json!(current.successes)),
            ("failure_count", json!(current.failures)),
            ("repair_count_since_regen", json!(current.repairs)),
            ("created_at", json!(current.admitted_at)),
        ] {
            file.insert(key.to_owned(), value);
        }
    }
    file
}

fn version(version: &VersionEntry) -> Value {
    json!({
        "version": version.number,
        "code": version.code,
        "dependencies": version.manifest.to_json(),
        "cacheability_reason": version.cacheability.reason(),
        "runtime_version": version.runtime_version,
        "prompt_version": version.prompt_version,
        "success_count": version.successes,
        "failure_count": version.failures,
        "repair_count_since_regen": version.repairs,
        "created_at": version.admitted_at,
        "state": version.rest,
    })
}

/// A file without `language` was written by the Ruby runtime that preceded this one.
pub(super) fn read_artifact(
    file: &Value,
    tools: &[ToolEntry],
    notes: &mut Vec<String>,
) -> Result<ArtifactEntry, String> {
    let file = JsonFields::of(file)?;
    let Some(language) = file.text("language")? else {
        return reference::artifact(&file, tools, notes);
    };
    let language: Language =
        language.parse().map_err(|fault: lifecycle::dialect::UnknownLanguage| fault.to_string())?;
    let current = file.needed("code_checksum")?;
    let all: BTreeMap<String, Value> = file.typed("versions")?.unwrap_or_default();
    let mut versions = Vec::new();
    for (checksum, version) in &all {
        match read_version(language, checksum, version) {
            Ok(version) => versions.push(version),
            Err(why) if *checksum == current => return Err(format!("version {checksum}: {why}")),
            Err(why) => notes.push(format!("version {checksum} is left out: {why}")),
        }
    }
    versions.sort_by_key(|version| version.number);
    let numbers = versions.iter().map(|v| v.number).zip(versions.iter().skip(1).map(|v| v.number));
    if numbers.into_iter().any(|(one, next)| one == next) {
        return Err("two of its versions have the same number".to_owned());
    }
    let entry = ArtifactEntry {
        role: file.role()?,
        method: file.method()?,
        language,
        contract_fingerprint: file.needed("contract_fingerprint")?,
        current: Checksum::stored(current),
        versions,
        examples: file.examples()?,
        rest: file.typed("state")?.unwrap_or_default(),
    };
    if !entry.versions.iter().any(|version| version.checksum == entry.current) {
        return Err(format!(
            "`code_checksum` names {}, which is not one of its versions",
            entry.current
        ));
    }
    Ok(entry)
}

fn read_version(language: Language, checksum: &str, value: &Value) -> Result<VersionEntry, String> {
    let fields = JsonFields::of(value)?;
    let code = fields.code(checksum)?;
    Ok(VersionEntry {
        number: fields.number("version")?.ok_or("it has no `version`")?,
        checksum: Checksum::of(&code),
        code,
        manifest: fields.manifest(language)?,
        cacheability: fields.cacheability()?,
        runtime_version: fields.needed("runtime_version")?,
        prompt_version: fields.needed("prompt_version")?,
        successes: fields.number("success_count")?.unwrap_or(0),
        failures: fields.number("failure_count")?.unwrap_or(0),
        repairs: fields.number("repair_count_since_regen")?.unwrap_or(0),
        admitted_at: fields.time("created_at")?.unwrap_or_default(),
        rest: fields.typed("state")?.unwrap_or_default(),
    })
}

// ---- Reading what others wrote ----

/// The fields of an object; `key` and `:key` are alike.
pub(super) struct JsonFields<'a>(pub(super) &'a Map<String, Value>);

impl<'a> JsonFields<'a> {
    pub(super) fn of(value: &'a Value) -> Result<Self, String> {
        value
            .as_object()
            .map(Self)
            .ok_or_else(|| format!("an object is needed, not {}", type_name(value)))
    }

    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        let found = self.0.get(key).or_else(|| self.0.get(&format!(":{key}")));
        found.filter(|value| !value.is_null())
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<String>, String> {
        let text = |value: &Value| {
            value.as_str().map(str::to_owned).ok_or_else(|| wrong(key, "a text", value))
        };
        self.get(key).map(text).transpose()
    }

    pub(super) fn needed(&self, key: &str) -> Result<String, String> {
        self.text(key)?.ok_or_else(|| format!("it has no `{key}`"))
    }

    pub(super) fn number(&self, key: &str) -> Result<Option<u64>, String> {
        // SQLite integers are signed, of 64 bits.
        let number = |value: &Value| {
            let counted = value.as_u64().filter(|number| i64::try_from(*number).is_ok());
            counted.ok_or_else(|| wrong(key, "a whole number from 0 to 2^63-1", value))
        };
        self.get(key).map(number).transpose()
    }

    pub(super) fn typed<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, String> {
        let typed = |value: &Value| {
            T::deserialize(value).map_err(|error| format!("`{key}` cannot be read: {error}"))
        };
        self.get(key).map(typed).transpose()
    }

    /// A time in UTC with milliseconds, so that times compare as texts.
    pub(super) fn time(&self, key: &str) -> Result<Option<String>, String> {
        let Some(text) = self.text(key)?.filter(|text| !text.is_empty()) else { return Ok(None) };
        let time: jiff::Timestamp =
            text.parse().map_err(|_| format!("`{key}` is {text:?}, which is not a time"))?;
        Ok(Some(time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()))
    }

    pub(super) fn examples(&self) -> Result<Vec<Example>, String> {
        let examples: Vec<Value> = self.typed("examples")?.unwrap_or_default();
        examples.iter().map(|it| Example::parse(it).map_err(|fault| fault.to_string())).collect()
    }

    pub(super) fn role(&self) -> Result<Role, String> {
        Role::parse(&self.needed("role")?).map_err(|fault| fault.to_string())
    }

    pub(super) fn method(&self) -> Result<Method, String> {
        Method::parse(&self.needed("method_name")?).map_err(|fault| fault.to_string())
    }

    /// The program text; it must match its checksum.
    pub(super) fn code(&self, checksum: &str) -> Result<String, String> {
        let code = self.needed("code")?;
        if code.trim().is_empty() || code.len() > MAX_CODE_BYTES {
            return Err(format!("`code` is blank or longer than {MAX_CODE_BYTES} bytes"));
        }
        if Checksum::of(&code).as_str() != checksum {
            return Err(format!("`code` does not match its checksum {checksum}; export it again"));
        }
        Ok(code)
    }

    pub(super) fn manifest(&self, language: Language) -> Result<DependencyManifest, String> {
        DependencyManifest::parse(language, self.get("dependencies")).map_err(|f| f.to_string())
    }

    /// A program with an unknown or missing reason is not reused, unless the file says that it is cacheable.
    pub(super) fn cacheability(&self) -> Result<Cacheability, String> {
        let reason = self.text("cacheability_reason")?.unwrap_or_default();
        let allowed = self.get("cacheable").and_then(Value::as_bool).unwrap_or(false);
        Ok(match Cacheability::deserialize(Value::String(reason)) {
            Ok(known) => known,
            Err(_) if allowed => Cacheability::StableMethodDefault,
            Err(_) => Cacheability::AdviceIgnored,
        })
    }
}

fn wrong(key: &str, needed: &str, found: &Value) -> String {
    format!("`{key}` must be {needed}, not {}", type_name(found))
}
