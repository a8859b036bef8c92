//! Programs a model wrote: parsed once, vetted once, and executable only then.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::context::VIEWS;
use crate::dependency::{DependencyManifest, ManifestFault};
use crate::dialect::{self, ContextAccess, Inspection, Language, SyntaxFault, stdlib};
use crate::execution::ResultFrom;
use crate::guardrail::{
    self, Cacheability, GuardrailInput, GuardrailPolicy, Severity, SiblingState, Violation,
};
use crate::request::CallRequest;
use crate::standing::StateKeys;
use crate::worker_pollution;

/// Largest program text a model may return: what the readers of both languages accept.
pub const MAX_CODE_BYTES: usize = dialect::MAX_SOURCE_BYTES;
/// Memory keys remembered of one program.
const MAX_STATE_KEYS: usize = 64;

/// A program's identity: `sha256:` and the digest of its text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Checksum(String);

impl Checksum {
    /// Of a program text.
    pub fn of(text: &str) -> Self {
        Self(format!("sha256:{}", hex(&Sha256::digest(text.as_bytes()))))
    }

    /// A short name for a text: the last `digits` of its checksum, in reverse. Stores and lock files have such names.
    pub fn short_of(text: &str, digits: usize) -> String {
        Self::of(text).0.chars().rev().take(digits).collect()
    }

    /// As read back from storage; compared, never trusted.
    pub fn stored(text: String) -> Self {
        Self(text)
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or_default();
    let mut text = String::with_capacity(bytes.len() * 2);
    text.extend(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xF)]));
    text
}

/// Why a provider's payload is not a program. Every message names the field and what it must be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PayloadFault {
    /// `null`, text, a number, a list.
    #[error(
        "the payload must be an object with a `code` text and optional `dependencies`, not {found}"
    )]
    NotAnObject {
        /// What it was.
        found: &'static str,
    },
    /// A field outside the schema.
    #[error("unknown field `{0}`; only `code` and `dependencies` are allowed")]
    UnknownField(String),
    /// No `code`, or not text.
    #[error("`code` must be a text holding the whole program, not {found}")]
    CodeNotText {
        /// What it was.
        found: &'static str,
    },
    /// Only white space.
    #[error("`code` is blank; return the whole program text")]
    CodeBlank,
    /// Longer than [`MAX_CODE_BYTES`].
    #[error("`code` has {0} bytes; at most {MAX_CODE_BYTES} are accepted")]
    CodeTooLong(usize),
    /// A bad dependency declaration.
    #[error(transparent)]
    Manifest(#[from] ManifestFault),
}

/// Code and declared dependencies, in one language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GeneratedProgram {
    /// The language it is written in.
    pub language: Language,
    /// Its text.
    pub source: String,
    /// The packages it declares.
    pub manifest: DependencyManifest,
}

impl GeneratedProgram {
    /// Parses a provider's payload.
    pub fn parse(language: Language, payload: &Value) -> Result<Self, PayloadFault> {
        let Value::Object(fields) = payload else {
            return Err(PayloadFault::NotAnObject { found: type_name(payload) });
        };
        if let Some(unknown) =
            fields.keys().find(|key| !matches!(key.as_str(), "code" | "dependencies"))
        {
            return Err(PayloadFault::UnknownField(unknown.clone()));
        }
        let source = parse_code(fields)?;
        let manifest = DependencyManifest::parse(language, fields.get("dependencies"))?;
        Ok(Self { language, source, manifest })
    }

    /// Its identity.
    pub fn checksum(&self) -> Checksum {
        Checksum::of(&self.source)
    }
}

fn parse_code(fields: &Map<String, Value>) -> Result<String, PayloadFault> {
    match fields.get("code") {
        Some(Value::String(code)) if code.trim().is_empty() => Err(PayloadFault::CodeBlank),
        Some(Value::String(code)) if code.len() > MAX_CODE_BYTES => {
            Err(PayloadFault::CodeTooLong(code.len()))
        }
        Some(Value::String(code)) => Ok(code.clone()),
        other => Err(PayloadFault::CodeNotText { found: other.map_or("missing", type_name) }),
    }
}

/// The JSON type of a value, in words.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A program that every guardrail has examined. Only [`vet`] makes one; only such a program can be executed.
///
/// ```compile_fail
/// # use lifecycle::program::{GeneratedProgram, VettedProgram};
/// fn replace_text(vetted: VettedProgram, program: GeneratedProgram) -> VettedProgram {
///     VettedProgram { program, ..vetted } // fails only because the fields are private
/// }
/// ```
///
/// The same function compiles if it leaves the fields alone:
///
/// ```
/// # use lifecycle::program::{GeneratedProgram, VettedProgram};
/// fn replace_text(vetted: VettedProgram, _program: GeneratedProgram) -> VettedProgram {
///     vetted
/// }
/// ```
#[derive(Debug, Clone)]
pub struct VettedProgram {
    program: GeneratedProgram,
    checksum: Checksum,
    inspection: Arc<Inspection>,
    advice: Vec<Violation>,
}

/// The inspection of a program's text, kept so that the same text is not parsed again.
#[derive(Debug, Clone)]
pub struct CachedInspection {
    language: Language,
    source: Arc<str>,
    inspection: Arc<Inspection>,
}

impl CachedInspection {
    /// Inspects a text.
    pub fn new(language: Language, source: &str) -> Result<Self, SyntaxFault> {
        let inspection = dialect::inspect(language, source)?.into();
        Ok(Self { language, source: source.into(), inspection })
    }

    /// The inspection of a vetted program.
    pub fn of(program: &VettedProgram) -> Self {
        let GeneratedProgram { language, source, .. } = &program.program;
        let inspection = Arc::clone(&program.inspection);
        Self { language: *language, source: source.as_str().into(), inspection }
    }

    /// Whether it belongs to this text.
    pub fn is_of(&self, language: Language, source: &str) -> bool {
        self.language == language && *self.source == *source
    }

    /// The text's length.
    pub fn bytes(&self) -> usize {
        self.source.len()
    }
}

impl VettedProgram {
    /// The program itself.
    pub fn program(&self) -> &GeneratedProgram {
        &self.program
    }

    /// Its identity.
    pub fn checksum(&self) -> &Checksum {
        &self.checksum
    }

    /// Its inspection.
    pub fn inspection(&self) -> &Inspection {
        &self.inspection
    }

    /// Whether it imports anything that does not come with its language.
    pub fn imports_packages(&self) -> bool {
        let language = self.program.language;
        self.inspection.imports.iter().any(|i| !stdlib::provides(language, &i.module))
    }

    /// Whether the next program in the same worker would be affected by it.
    pub(crate) fn pollutes_worker(&self) -> bool {
        worker_pollution::pollutes_worker(self.program.language, &self.inspection)
    }

    /// What it should do better; the program may run all the same.
    pub fn advice(&self) -> &[Violation] {
        &self.advice
    }

    /// The memory keys it uses, each once.
    pub fn state_keys(&self) -> StateKeys {
        let of = |access: ContextAccess| {
            let used = self.inspection.context.iter().filter(|used| used.access == access);
            let keys: BTreeSet<&str> = used.map(|used| used.key.as_str()).collect();
            let own = keys.into_iter().filter(|key| !VIEWS.contains(key));
            own.map(str::to_owned).take(MAX_STATE_KEYS).collect()
        };
        StateKeys { reads: of(ContextAccess::Read), writes: of(ContextAccess::Write) }
    }

    /// Whether it may serve other calls of its method, and why; it gave the result of this call from `result_from`.
    pub fn cacheability(&self, request: &CallRequest, result_from: ResultFrom) -> Cacheability {
        let declared = declared(&self.program);
        let input = guardrail_input(&self.program, request, &self.inspection, &declared, &[]);
        match guardrail::cacheability(&input, request.contract.is_some(), result_from) {
            kept if kept.cacheable() && self.advice.iter().any(Violation::forbids_reuse) => {
                Cacheability::AdviceIgnored
            }
            reason => reason,
        }
    }
}

/// Why a program may not run.
#[derive(Debug, Clone, PartialEq)]
pub enum VetFault {
    /// It does not parse.
    Syntax(SyntaxFault),
    /// It breaks one or more guardrails.
    Violations(Vec<Violation>),
}

/// Parses the program with its language's real parser and checks it with every guardrail.
pub fn vet(
    program: GeneratedProgram,
    request: &CallRequest,
    siblings: &[SiblingState],
    policy: &GuardrailPolicy,
) -> Result<VettedProgram, (GeneratedProgram, VetFault)> {
    vet_known(program, request, siblings, policy, &[])
}

/// The same; a text among `known` is not parsed again.
pub fn vet_known(
    program: GeneratedProgram,
    request: &CallRequest,
    siblings: &[SiblingState],
    policy: &GuardrailPolicy,
    known: &[CachedInspection],
) -> Result<VettedProgram, (GeneratedProgram, VetFault)> {
    let (language, source) = (program.language, program.source.as_str());
    let read = known.iter().find(|reading| reading.is_of(language, source));
    let inspection = match read.map(|reading| Arc::clone(&reading.inspection)) {
        Some(inspection) => inspection,
        None => match dialect::inspect(language, source) {
            Ok(inspection) => Arc::new(inspection),
            Err(fault) => return Err((program, VetFault::Syntax(fault))),
        },
    };
    let names = declared(&program);
    let input = guardrail_input(&program, request, &inspection, &names, siblings);
    let found = guardrail::examine(&input, policy);
    let (advice, violations): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|violation| violation.severity(policy) == Severity::Advisory);
    if violations.is_empty() {
        let checksum = program.checksum();
        Ok(VettedProgram { program, checksum, inspection, advice })
    } else {
        Err((program, VetFault::Violations(violations)))
    }
}

/// The program and call, as guardrails read them.
fn guardrail_input<'a>(
    program: &'a GeneratedProgram,
    request: &'a CallRequest,
    inspection: &'a Inspection,
    declared: &'a [String],
    sibling_state: &'a [SiblingState],
) -> GuardrailInput<'a> {
    GuardrailInput {
        language: program.language,
        role: request.role.as_str(),
        method: request.method.as_str(),
        args: &request.arguments.args,
        kwargs: &request.arguments.kwargs,
        declared,
        holds_packages: request.manifest.as_ref().is_some_and(|held| !held.is_empty()),
        sibling_state,
        context: &request.context,
        inspection,
    }
}

fn declared(program: &GeneratedProgram) -> Vec<String> {
    program.manifest.packages().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_read_of_a_text_stands_for_that_text_alone() {
        let reading = CachedInspection::new(Language::Python, "result = 1").unwrap();
        for (language, source, known) in [
            (Language::Python, "result = 1", true),
            (Language::Python, "result = 2", false),
            (Language::Ruby, "result = 1", false),
        ] {
            let manifest = DependencyManifest::default();
            let program = GeneratedProgram { language, source: source.to_owned(), manifest };
            let request = CallRequest::bare("a", "b");
            let policy = GuardrailPolicy::default();
            let vetted =
                vet_known(program, &request, &[], &policy, std::slice::from_ref(&reading)).unwrap();
            let is_shared = Arc::ptr_eq(&vetted.inspection, &reading.inspection);
            assert_eq!(is_shared, known, "{language:?} {source}");
        }
    }

    #[test]
    fn payload_faults_name_the_field() {
        for (payload, expected) in [
            (json!(null), "the payload must be an object"),
            (json!("puts 1"), "the payload must be an object"),
            (json!({}), "`code` must be a text holding the whole program, not missing"),
            (json!({"code": 1}), "not number"),
            (json!({"code": " \n"}), "`code` is blank"),
            (
                json!({"code": "#".repeat(dialect::MAX_SOURCE_BYTES + 1)}),
                "at most 131072 are accepted",
            ),
            (json!({"code": "1", "lang": "ruby"}), "unknown field `lang`"),
            (json!({"code": "1", "dependencies": "x"}), "`dependencies` must be a list"),
            (json!({"code": "1", "dependencies": [1]}), "`dependencies[0]`: must be an object"),
            (
                json!({"code": "1", "dependencies": [{"name": "a"}, {"version": "1"}]}),
                "`dependencies[1]`: `name`",
            ),
            (
                json!({"code": "1", "dependencies": [{"name": "a b"}]}),
                "`dependencies[0]`: `name` \"a b\"",
            ),
            (
                json!({"code": "1", "dependencies": [{"name": "a", "version": 2}]}),
                "`version` must be",
            ),
            (
                json!({"code": "1", "dependencies": [{"name": "a", "version": "1"}, {"name": "A", "version": "2"}]}),
                "declared twice",
            ),
        ] {
            let fault = GeneratedProgram::parse(Language::Ruby, &payload).unwrap_err();
            assert!(fault.to_string().contains(expected), "{payload}: {fault}");
        }
    }
}
