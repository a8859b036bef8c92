//! What people do with stored programs: list, test, reject, teach, edit, forget.
//!
//! What a person says outranks everything that was recorded: an example replaces a recorded call with the same
//! inputs, and a rejected version takes its recorded calls with it.

use lifecycle::admission::{Inputs, Observed};
use lifecycle::artifact::{Artifact, ArtifactKey, Generation};
use lifecycle::call::StoreFault;
use lifecycle::contract::{Contract, Fingerprint};
use lifecycle::dependency::DependencyManifest;
use lifecycle::example::{Example, ExampleFault, ExpectedResult, MAX_EXAMPLES};
use lifecycle::execution::ReportEnding;
use lifecycle::program::{Checksum, GeneratedProgram, VetFault, vet};
use lifecycle::request::{Method, NameFault, Role};
use serde::Serialize;
use serde_json::{Map, Value, json, to_finite_value};
use thiserror::Error;

use crate::agent::Agent;
use crate::arguments::IntoArguments;
use crate::guest::Cancellation;
use crate::runtime::Runtime;
use crate::store::catalog::{KnownArtifact, StoredVersion};
use crate::trial::{TrialRunner, is_met, trial_request};

/// Stored programs listed at most.
const MAX_LISTED: usize = 10_000;

/// Why something could not be done with a stored program.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ProgramFault {
    /// A bad role or method name.
    #[error(transparent)]
    Name(#[from] NameFault),
    /// Nothing is stored there.
    #[error("no program is stored for {0}; `recurgent tools list` shows what is")]
    NotStored(String),
    /// The program was rejected before.
    #[error("{0} is rejected already; the next call asks the model for another program")]
    AlreadyRejected(String),
    /// The text is not a program that may run.
    #[error("the program was not accepted: {0}")]
    Invalid(String),
    /// Not an example.
    #[error(transparent)]
    Example(#[from] ExampleFault),
    /// There are too many examples.
    #[error("{0} has {MAX_EXAMPLES} examples already; forget one before you teach another")]
    TooManyExamples(String),
    /// The call is not known.
    #[error(
        "call {0} is not in the history; `recurgent trace show` lists calls, or leave the call out"
    )]
    UnknownCall(String),
    /// The program could not be run.
    #[error("the program could not be run to test it: {0}")]
    Untested(String),
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] StoreFault),
}

/// A stored program that runs.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgramSummary {
    /// The program, its version and standing.
    pub program: KnownArtifact,
    /// Whether its role is a forged tool.
    pub is_tool: bool,
    /// Examples of its method.
    pub examples: usize,
}

/// What a rejection did.
#[derive(Debug, Clone, PartialEq)]
pub struct RejectionReport {
    /// The version that left service.
    pub rejected: Checksum,
    /// The version that runs instead; `None`: the next call needs a model.
    pub running: Option<Checksum>,
    /// The wrong answer, kept as an example of what must not come again.
    pub counter_example: Option<Example>,
}

/// Where a tested call comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestSource {
    /// A person gave the answer.
    Example,
    /// It was recorded.
    Recorded,
}

/// What came of one tested call.
#[derive(Debug, Clone, PartialEq)]
pub struct TestedCall {
    /// Where it comes from.
    pub source: TestSource,
    /// What it was given.
    pub inputs: Inputs,
    /// What must come of it; nothing if only a digest is kept.
    pub expected: Option<ExpectedResult>,
    /// What came of it: `{"value": …}` or `{"error_type": …, "message": …}`; nothing if it was not run.
    pub actual: Option<Value>,
    /// Whether that is right; `None`: it could not be checked, since the program's value does not depend on its
    /// inputs alone.
    pub passed: Option<bool>,
}

impl TestedCall {
    /// The example that was tested; `None`: the call was recorded.
    fn as_example(&self) -> Option<Example> {
        let expected = self.expected.clone()?;
        Some(Example { inputs: self.inputs.clone(), expected })
    }
}

/// What came of an edit.
#[derive(Debug, Clone, PartialEq)]
pub struct EditReport {
    /// The new version, if it runs from now on; `None`: a tested call failed.
    pub version: Option<u32>,
    /// Of the new text.
    pub checksum: Checksum,
    /// Every tested call.
    pub tested: Vec<TestedCall>,
    /// Examples that the new version fails and that were forgotten, because it was stored all the same.
    pub withdrawn: Vec<Example>,
}

/// What people do with the stored programs of a runtime; see [`Runtime::programs`].
#[derive(Debug, Clone, Copy)]
pub struct StoredPrograms<'a> {
    runtime: &'a Runtime,
}

impl Runtime {
    /// The stored programs: to list, test, reject, teach, edit and forget.
    pub fn programs(&self) -> StoredPrograms<'_> {
        StoredPrograms { runtime: self }
    }
}

impl StoredPrograms<'_> {
    /// Every stored program that runs, of forged tools and plain methods alike; of one role if given.
    pub fn list(&self, role: Option<&Role>) -> Result<Vec<ProgramSummary>, ProgramFault> {
        let store = self.runtime.store();
        let mut summaries = Vec::new();
        for program in store.artifacts(role, MAX_LISTED)? {
            let (role, method) = (&program.current.role, &program.current.method);
            let is_tool = !store.tools(Some(role), 1)?.is_empty();
            let examples = store.examples(role, method)?.len();
            summaries.push(ProgramSummary { program, is_tool, examples });
        }
        Ok(summaries)
    }

    /// What the programs of a method are stored under: one key per language and contract.
    pub fn keys(&self, role: &Role, method: &Method) -> Result<Vec<ArtifactKey>, ProgramFault> {
        let found = self.runtime.store().artifacts(Some(role), MAX_LISTED)?;
        let of_method = found.iter().filter(|known| known.current.method == *method);
        Ok(of_method.map(|known| known.current.key()).collect())
    }

    /// Takes the running version out of service at once. The last good version before it runs again, the reason is
    /// shown to the model that writes the next one, and the wrong answer of `call`, if given, becomes an example of
    /// what must not come again.
    pub fn reject(
        &self,
        key: &ArtifactKey,
        because: &str,
        call: Option<&str>,
    ) -> Result<RejectionReport, ProgramFault> {
        let counter_example = match call {
            Some(call) => self.counter_example(key, call)?,
            None => None,
        };
        let store = self.runtime.store();
        let Some(rejected) = store.reject(key, because)? else {
            return Err(match self.running(key)? {
                Some(_) => ProgramFault::AlreadyRejected(title(key)),
                None => not_stored(key),
            });
        };
        if let Some(example) = &counter_example {
            let known = store.examples(&key.role, &key.method)?;
            // A right answer that was taught says more.
            if known.iter().all(|known| known.inputs != example.inputs) {
                self.teach(&key.role, &key.method, example)?;
            }
        }
        Ok(RejectionReport {
            rejected: rejected.rejected,
            running: rejected.running,
            counter_example,
        })
    }

    /// Keeps an example of a method: a call and its right answer, or an answer that is wrong.
    pub fn teach(
        &self,
        role: &Role,
        method: &Method,
        example: &Example,
    ) -> Result<(), ProgramFault> {
        if self.runtime.store().teach(role, method, example)? {
            Ok(())
        } else {
            Err(ProgramFault::TooManyExamples(format!("{role}.{method}")))
        }
    }

    /// Forgets the programs of a method, or of a whole role with its tool entry. Says whether there were any.
    pub fn forget(&self, role: &Role, method: Option<&Method>) -> Result<bool, ProgramFault> {
        let store = self.runtime.store();
        Ok(match method {
            Some(method) => store.forget_method(role, method)? > 0,
            None => store.forget_tool(role, None)?,
        })
    }

    /// Runs the examples and the recorded calls on the version that runs.
    pub fn test(&self, key: &ArtifactKey) -> Result<Vec<TestedCall>, ProgramFault> {
        let running = self.running(key)?.ok_or_else(|| not_stored(key))?;
        self.tested(key, &running.artifact, running.pure)
    }

    /// Makes a person's text the version that runs: vetted, and tested on the examples and the recorded calls. With
    /// `force` it runs although a test fails: the recorded calls then no longer bind, and the examples it fails are
    /// forgotten. Without `dependencies` it keeps those of the version that runs.
    pub fn edit(
        &self,
        key: &ArtifactKey,
        code: &str,
        dependencies: Option<&Value>,
        force: bool,
    ) -> Result<EditReport, ProgramFault> {
        let invalid = |why: String| ProgramFault::Invalid(why);
        let running = self.running(key)?;
        let mut program = GeneratedProgram::parse(
            key.language,
            &json!({"code": code, "dependencies": dependencies.unwrap_or(&json!([]))}),
        )
        .map_err(|fault| invalid(fault.to_string()))?;
        if let (None, Some(running)) = (dependencies, &running) {
            program.manifest = DependencyManifest::clone(&running.artifact.manifest);
        }
        let guardrails = self.runtime.config().agent_options().guardrails;
        let vetted = vet(program, &trial_request(key), &[], &guardrails)
            .map_err(|(_, fault)| invalid(explained(&fault)))?;
        let parent = running.map(|running| running.artifact.checksum);
        let mut generation = Generation::by_person(key, &vetted, parent);
        let tested = self.tested(key, &generation.artifact, generation.pure)?;
        let checksum = generation.artifact.checksum.clone();
        let failed: Vec<&TestedCall> =
            tested.iter().filter(|call| call.passed == Some(false)).collect();
        if !force && !failed.is_empty() {
            return Ok(EditReport { version: None, checksum, tested, withdrawn: Vec::new() });
        }
        generation.outranks_recorded = failed.iter().any(|c| c.source == TestSource::Recorded);
        let withdrawn: Vec<Example> = failed.iter().filter_map(|call| call.as_example()).collect();
        let store = self.runtime.store();
        let receipt = store.replace(&generation)?;
        for example in &withdrawn {
            store.forget_example(&key.role, &key.method, example)?;
        }
        Ok(EditReport { version: receipt.generations, checksum, tested, withdrawn })
    }

    fn running(self, key: &ArtifactKey) -> Result<Option<StoredVersion>, ProgramFault> {
        let versions = self.runtime.store().versions(key)?;
        Ok(versions.into_iter().find(|version| version.is_current))
    }

    fn tested(
        self,
        key: &ArtifactKey,
        artifact: &Artifact,
        pure: bool,
    ) -> Result<Vec<TestedCall>, ProgramFault> {
        let store = self.runtime.store();
        let runner = self.runtime.trials().runner();
        let mut tested = Vec::new();
        for example in store.examples(&key.role, &key.method)? {
            let result =
                if pure { Some(run(runner, key, artifact, &example.inputs)?) } else { None };
            tested.push(TestedCall {
                source: TestSource::Example,
                passed: result.as_ref().map(|result| is_met(&example, &result.ending)),
                actual: result.map(|result| result.to_json()),
                expected: Some(example.expected),
                inputs: example.inputs,
            });
        }
        for case in store.corpus(key)? {
            let result = if pure { Some(run(runner, key, artifact, &case.inputs)?) } else { None };
            tested.push(TestedCall {
                source: TestSource::Recorded,
                passed: result
                    .as_ref()
                    .map(|result| result.observed.as_ref() == Some(&case.observed)),
                actual: result.map(|result| result.to_json()),
                expected: None,
                inputs: case.inputs,
            });
        }
        Ok(tested)
    }

    /// What a recorded call was given and wrongly answered; `None`: not all of it is kept.
    fn counter_example(
        self,
        key: &ArtifactKey,
        call: &str,
    ) -> Result<Option<Example>, ProgramFault> {
        let store = self.runtime.store();
        let record =
            store.call_record(call)?.ok_or_else(|| ProgramFault::UnknownCall(call.to_owned()))?;
        if record.get("method_name").and_then(Value::as_str) != Some(key.method.as_str()) {
            return Err(ProgramFault::UnknownCall(call.to_owned()));
        }
        let Some(reference) =
            record.pointer("/outcome_summary/content_ref").and_then(Value::as_str)
        else {
            return Ok(None);
        };
        let Some(wrong) = store.content(reference, None)? else { return Ok(None) };
        let args = record.get("args").and_then(Value::as_array).cloned().unwrap_or_default();
        let kwargs = record.get("kwargs").and_then(Value::as_object).cloned().unwrap_or_default();
        let is_whole =
            |value: &Value| value.get("preview").is_none() || value.get("bytes").is_none();
        if !args.iter().chain(kwargs.values()).all(is_whole) {
            return Ok(None);
        }
        let inputs = Inputs { args, kwargs, context: Map::new() };
        Ok(Some(Example { inputs, expected: ExpectedResult::NotValue(wrong) }))
    }
}

/// What came of running a program on the inputs of one call.
struct TestRun {
    observed: Option<Observed>,
    ending: ReportEnding,
}

impl TestRun {
    fn to_json(&self) -> Value {
        match &self.ending {
            ReportEnding::Value(value) => json!({ "value": value }),
            ReportEnding::Reported { reported, .. } => json!({"error_type": reported.code}),
            ReportEnding::Raised { message, .. } => {
                json!({"error_type": "execution", "message": message})
            }
            ReportEnding::Malformed(fault) => {
                json!({"error_type": "execution", "message": fault.message})
            }
            ReportEnding::Unserializable { message, .. } | ReportEnding::Limited(_, message) => {
                json!({"error_type": "execution", "message": message})
            }
            ReportEnding::Exited { .. } => json!({"error_type": "execution"}),
        }
    }
}

fn run(
    runner: &TrialRunner,
    key: &ArtifactKey,
    artifact: &Artifact,
    inputs: &Inputs,
) -> Result<TestRun, ProgramFault> {
    let done = runner
        .run(key, artifact, inputs, &Cancellation::default())
        .map_err(|untried| ProgramFault::Untested(untried.to_string()))?;
    let (ending, changes) = done;
    Ok(TestRun { observed: Observed::of_report(&ending, &changes), ending })
}

fn not_stored(key: &ArtifactKey) -> ProgramFault {
    ProgramFault::NotStored(title(key))
}

fn title(key: &ArtifactKey) -> String {
    format!("{}.{} ({})", key.role, key.method, key.language)
}

fn explained(fault: &VetFault) -> String {
    match fault {
        VetFault::Syntax(fault) => fault.to_string(),
        VetFault::Barred(violations) => {
            let messages: Vec<&str> =
                violations.iter().map(|violation| violation.message.as_str()).collect();
            messages.join("; ")
        }
    }
}

impl Agent {
    /// Says that the running program of a method is wrong: see [`StoredPrograms::reject`].
    pub fn reject(&self, method: &str, because: &str) -> Result<RejectionReport, ProgramFault> {
        self.runtime().programs().reject(&self.key(method)?, because, None)
    }

    /// Teaches a method the right answer to a call.
    pub fn teach(
        &self,
        method: &str,
        arguments: impl IntoArguments,
        value: impl Serialize,
    ) -> Result<(), ProgramFault> {
        let invalid = |why: String| ProgramFault::Invalid(why);
        let arguments = arguments.into_arguments().map_err(invalid)?;
        let value = to_finite_value(&value).map_err(|error| invalid(error.to_string()))?;
        let inputs = Inputs { args: arguments.args, kwargs: arguments.kwargs, context: Map::new() };
        let example = Example { inputs, expected: ExpectedResult::Value(value) };
        // Checked as any other: its size counts.
        let example = Example::parse(&example.to_json())?;
        let key = self.key(method)?;
        self.runtime().programs().teach(&key.role, &key.method, &example)
    }

    /// Forgets the programs of a method, in every language and under every contract. Says whether there were any.
    pub fn forget(&self, method: &str) -> Result<bool, ProgramFault> {
        let key = self.key(method)?;
        self.runtime().programs().forget(&key.role, Some(&key.method))
    }

    /// Runs the examples and the recorded calls of a method on its running program.
    pub fn test(&self, method: &str) -> Result<Vec<TestedCall>, ProgramFault> {
        self.runtime().programs().test(&self.key(method)?)
    }

    /// What the programs of its methods are stored under.
    fn key(&self, method: &str) -> Result<ArtifactKey, ProgramFault> {
        let contract = self.as_tool().contract;
        Ok(ArtifactKey {
            role: self.role().clone(),
            method: Method::parse(method)?,
            language: self.options().language,
            contract_fingerprint: contract
                .as_ref()
                .map_or_else(Fingerprint::none, Contract::fingerprint),
        })
    }
}
