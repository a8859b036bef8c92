//! What people do with stored programs: list, test, reject, teach, edit, roll back, pin, forget.
//!
//! What a person says outranks everything that was recorded: an example replaces a recorded call with the same
//! inputs, and a rejected version takes its recorded calls with it.

mod by_agent;
mod testing;

use std::collections::BTreeSet;

use lifecycle::admission::Inputs;
use lifecycle::artifact::{Artifact, ArtifactKey, Generation};
use lifecycle::call::StoreFault;
use lifecycle::dependency::DependencyManifest;
use lifecycle::example::{Example, ExampleFault, ExpectedResult, MAX_EXAMPLES};
use lifecycle::person_policy::{
    self, EditEffect, EditTest, RejectionEffect, RejectionFacts, depends_on_running,
};
use lifecycle::program::{Checksum, GeneratedProgram, VetFault, VettedProgram, vet};
use lifecycle::request::{Method, NameFault, Role};
use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::runtime::Runtime;
use crate::store::catalog::{KnownArtifact, StandingChange, TaughtMethod};
use crate::trial::trial_request;

pub use testing::{TestSource, TestedCall};

pub use by_agent::ExpectedCall;
use by_agent::unexpected_reason;

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
    /// There is no such example.
    #[error("{0} has no example of this call; `recurgent tools show` lists its examples")]
    UnknownExample(String),
    /// The call is not known.
    #[error(
        "call {0} is not in the history; `recurgent trace show` lists calls, or leave the call out"
    )]
    UnknownCall(String),
    /// The call is one of another role or method.
    #[error(
        "call {call} is a call of {called}, not of {meant}; name {called}, or give a call of {meant}"
    )]
    OtherCall {
        /// Its id.
        call: String,
        /// What it called.
        called: String,
        /// What was named.
        meant: String,
    },
    /// The program could not be run.
    #[error("the program could not be run to test it: {0}")]
    Untested(String),
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] StoreFault),
}

/// Where a program is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramOrigin {
    /// In the store.
    Store,
    /// In the directory of exported tools (`tools_dir`), which is only read: it is pinned, and its calls are not counted.
    ToolsDirectory,
}

/// A stored program that runs.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgramSummary {
    /// The program, its version and standing.
    pub program: KnownArtifact,
    /// Where it is kept.
    pub origin: ProgramOrigin,
    /// Whether its role is a forged tool.
    pub is_tool: bool,
    /// Examples of its method.
    pub examples: usize,
}

/// What was forgotten of a method or a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forgotten {
    /// Methods' programs, in one language and under one contract each.
    pub programs: usize,
    /// Examples that people taught.
    pub examples: usize,
}

/// What a rejection did.
#[derive(Debug, Clone, PartialEq)]
pub struct RejectionReport {
    /// The version that left service.
    pub rejected: Checksum,
    /// Whether it was the version that ran. Else the running version stays.
    pub was_running: bool,
    /// The version that runs from now on; `None`: the next call needs a model.
    pub running: Option<Checksum>,
    /// The wrong answer, kept as an example of what must not come again.
    pub counter_example: Option<Example>,
    /// Where the rejected program is kept. One of `tools_dir` stays in its file; the store records that it may not run.
    pub origin: ProgramOrigin,
    /// Calls recorded of the rejected version: they bind nothing any more.
    pub recorded_calls: usize,
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
        let stored = store.artifacts(role, MAX_LISTED)?;
        let pinned = self.runtime.pinned_tools().list(role, store)?;
        let pinned = pinned.into_iter().map(|current| {
            let program = KnownArtifact { current, version: 1, pinned: true };
            (program, ProgramOrigin::ToolsDirectory)
        });
        let all = stored.into_iter().map(|program| (program, ProgramOrigin::Store)).chain(pinned);
        let summary = |(program, origin): (KnownArtifact, ProgramOrigin)| {
            let role = &program.current.role;
            let is_tool = self.runtime.registered_tool(role)?.is_some();
            let examples = self.runtime.examples_for(&program.current.key(), None)?.len();
            Ok(ProgramSummary { program, origin, is_tool, examples })
        };
        all.map(summary).collect()
    }

    /// The methods that people taught examples of, with or without a program; of one role if given.
    pub fn taught(&self, role: Option<&Role>) -> Result<Vec<TaughtMethod>, ProgramFault> {
        Ok(self.runtime.store().taught(role, MAX_LISTED)?)
    }

    /// What the programs of a method are stored under: one key per language and contract.
    pub fn keys(&self, role: &Role, method: &Method) -> Result<Vec<ArtifactKey>, ProgramFault> {
        let found = self.list(Some(role))?;
        let of_method = found.iter().filter(|found| found.program.current.method == *method);
        let keys: BTreeSet<ArtifactKey> = of_method.map(|it| it.program.current.key()).collect();
        Ok(keys.into_iter().collect())
    }

    /// Takes a version out of service at once: the one that answered `call`, if given, else the running one. If it runs,
    /// the last good version before it runs again, or the program of `tools_dir` if there is one; else the running version
    /// stays. The reason is shown to the model that writes the next one, and the wrong answer of
    /// `call` becomes an example of what must not come again. A program of `tools_dir` is rejected by a record in
    /// the store; its file stays as it is.
    pub fn reject(
        &self,
        key: &ArtifactKey,
        because: &str,
        call: Option<&str>,
    ) -> Result<RejectionReport, ProgramFault> {
        let record = call.map(|call| self.call_record(key, call)).transpose()?;
        let answered_by = record.as_ref().and_then(|it| it.get("program_checksum")?.as_str());
        let version = answered_by.map(|checksum| Checksum::stored(checksum.to_owned()));
        let report = self.rejected(key, version.as_ref(), because)?;
        let counter_example = match &record {
            Some(record) => self.counter_example(record)?,
            None => None,
        };
        if let Some(example) = &counter_example {
            let known = self.runtime.store().examples(&key.role, &key.method)?;
            // A right answer that was taught says more.
            if known.iter().all(|known| known.inputs != example.inputs) {
                self.teach(&key.role, &key.method, example)?;
            }
        }
        Ok(RejectionReport { counter_example, ..report })
    }

    /// Takes a version out of service, the running one if none is named.
    fn rejected(
        self,
        key: &ArtifactKey,
        version: Option<&Checksum>,
        because: &str,
    ) -> Result<RejectionReport, ProgramFault> {
        let store = self.runtime.store();
        let recorded_calls = store.corpus(key)?.len();
        let before = self.in_service(key)?;
        let pinned = self.runtime.pinned_tools().find(key, store)?;
        let pinned = pinned.filter(|artifact| {
            !artifact.track_record.rejected && version.is_none_or(|it| artifact.checksum == *it)
        });
        let known = store.rejections(&key.role, &key.method)?;
        let stored = store.reject(key, version, because)?.map(|rejected| rejected.rejected);
        let effect = person_policy::rejection(RejectionFacts {
            stored: stored.as_ref(),
            in_directory: pinned.as_ref().map(|artifact| &artifact.checksum),
            named: version,
            is_known: version.is_some_and(|version| known.iter().any(|it| it.checksum == *version)),
            is_kept: self.keys(&key.role, &key.method)?.contains(key),
        });
        let (rejected, origin) = match effect {
            RejectionEffect::Stored(checksum) => (checksum, ProgramOrigin::Store),
            RejectionEffect::BarsFile(checksum) => {
                store.reject_text(key, &checksum, because)?;
                (checksum, ProgramOrigin::ToolsDirectory)
            }
            RejectionEffect::BarsText(checksum) => {
                store.reject_text(key, &checksum, because)?;
                (checksum, ProgramOrigin::Store)
            }
            RejectionEffect::AlreadyRejected => {
                return Err(ProgramFault::AlreadyRejected(title(key)));
            }
            RejectionEffect::NotStored => return Err(not_stored(key)),
        };
        Ok(RejectionReport {
            was_running: before.as_ref() == Some(&rejected),
            rejected,
            running: self.in_service(key)?,
            counter_example: None,
            origin,
            recorded_calls: recorded_calls.saturating_sub(store.corpus(key)?.len()),
        })
    }

    /// The version that answers the next call: of the store, or else of `tools_dir`; not a rejected one.
    fn in_service(self, key: &ArtifactKey) -> Result<Option<Checksum>, ProgramFault> {
        let store = self.runtime.store();
        let current = store.versions(key)?.into_iter().find(|version| version.is_current);
        let current = current.map(|version| version.artifact);
        let pinned = self.runtime.pinned_tools().find(key, store)?;
        let mut usable = current.into_iter().chain(pinned).filter(|it| !it.track_record.rejected);
        Ok(usable.next().map(|artifact| artifact.checksum))
    }

    /// Keeps an example of a method: a call and its right answer, or an answer that is wrong.
    pub fn teach(
        &self,
        role: &Role,
        method: &Method,
        example: &Example,
    ) -> Result<(), ProgramFault> {
        let store = self.runtime.store();
        let earlier = store.examples(role, method)?.into_iter();
        let contradicted = earlier
            .filter(|known| known.inputs == example.inputs)
            .find(|known| known.expected != example.expected);
        if !store.teach(role, method, example)? {
            return Err(ProgramFault::TooManyExamples(format!("{role}.{method}")));
        }
        contradicted.map_or(Ok(()), |earlier| self.take_back(role, method, &earlier))
    }

    /// Lets a program run again that was rejected only because it missed this example, which its person has taken back.
    /// It is vetted and tested like a person's text; if another runs in its place, that one stays.
    fn take_back(
        self,
        role: &Role,
        method: &Method,
        example: &Example,
    ) -> Result<(), ProgramFault> {
        let ExpectedResult::Value(value) = &example.expected else { return Ok(()) };
        let because = unexpected_reason(value);
        let store = self.runtime.store();
        for rejection in store.rejections(role, method)?.iter().filter(|it| it.because == because) {
            let Some(code) = &rejection.code else { continue };
            for key in self.keys(role, method)? {
                let mut versions = store.versions(&key)?.into_iter();
                let holds = key.language == rejection.language
                    && versions.any(|it| it.artifact.checksum == rejection.checksum)
                    && self.is_rejected(&key)?;
                // A text that is refused now stays rejected.
                if holds
                    && let Err(fault) = self.edit(&key, code, None, false)
                    && !matches!(fault, ProgramFault::Invalid(_))
                {
                    return Err(fault);
                }
            }
        }
        Ok(())
    }

    /// Withdraws the example of a call; gives it.
    pub fn withdraw(
        &self,
        role: &Role,
        method: &Method,
        inputs: &Inputs,
    ) -> Result<Example, ProgramFault> {
        let store = self.runtime.store();
        let unknown = || ProgramFault::UnknownExample(format!("{role}.{method}"));
        let mut known = store.examples(role, method)?.into_iter();
        let example = known.find(|known| known.inputs == *inputs).ok_or_else(unknown)?;
        if !store.forget_example(role, method, &example)? {
            return Err(unknown());
        }
        self.take_back(role, method, &example)?;
        Ok(example)
    }

    /// Forgets the programs of a method with its examples, or a whole role with its tool entry. `None`: nothing was
    /// stored. Files of `tools_dir` stay as they are.
    pub fn forget(
        &self,
        role: &Role,
        method: Option<&Method>,
    ) -> Result<Option<Forgotten>, ProgramFault> {
        let store = self.runtime.store();
        let is_meant = |found: &Method| method.is_none_or(|method| found == method);
        let programs = store.artifacts(Some(role), MAX_LISTED)?;
        let programs = programs.iter().filter(|known| is_meant(&known.current.method)).count();
        let taught = store.taught(Some(role), MAX_LISTED)?;
        let examples = taught.iter().filter(|it| is_meant(&it.method)).map(|it| it.examples).sum();
        let is_forgotten = match method {
            Some(method) => store.forget_method(role, method)? + examples > 0,
            None => store.forget_tool(role, None)?,
        };
        Ok(is_forgotten.then_some(Forgotten { programs, examples }))
    }

    /// Forgets the calls that successors of the running version would have to reproduce.
    fn forget_recorded(self, key: &ArtifactKey) -> Result<(), ProgramFault> {
        let store = self.runtime.store();
        for case in store.corpus(key)? {
            store.forget_case(key, &case)?;
        }
        Ok(())
    }

    /// Lets an earlier version run again: the last one that ran before the running one, or the one named, if it ever
    /// worked. Gives its checksum; `None`: there is no such version.
    pub fn roll_back(
        &self,
        key: &ArtifactKey,
        to: Option<&Checksum>,
    ) -> Result<Option<Checksum>, ProgramFault> {
        Ok(self.runtime.store().rollback(key, to)?)
    }

    /// Keeps the running version from being replaced, or allows it again.
    pub fn pin(&self, key: &ArtifactKey, pinned: bool) -> Result<(), ProgramFault> {
        let is_stored = self.runtime.store().pin(key, pinned)?;
        if is_stored { Ok(()) } else { Err(not_stored(key)) }
    }

    /// The last changes of standing, newest first, each with its reasons.
    pub fn decisions(&self, key: &ArtifactKey) -> Result<Vec<StandingChange>, ProgramFault> {
        Ok(self.runtime.store().decisions(key)?)
    }

    /// The text of the version that runs.
    pub fn code(&self, key: &ArtifactKey) -> Result<String, ProgramFault> {
        let (artifact, _) = self.running(key)?.ok_or_else(|| not_stored(key))?;
        Ok(artifact.code)
    }

    /// Whether a person rejected that version, and no other runs in its place.
    pub fn is_rejected(&self, key: &ArtifactKey) -> Result<bool, ProgramFault> {
        Ok(self.running(key)?.is_some_and(|(artifact, _)| artifact.track_record.rejected))
    }

    /// Makes a person's text the version that runs: vetted, and tested on the examples and the recorded calls. Calls
    /// that were recorded of a version which misses an example do not count. With
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
        if let (None, Some((running, _))) = (dependencies, &running) {
            program.manifest = DependencyManifest::clone(&running.manifest);
        }
        let vetted = self.vetted(key, program)?;
        let parent = running.as_ref().map(|(running, _)| running.checksum.clone());
        let mut generation = Generation::by_person(key, &vetted, parent);
        let mut tested = self.tested(key, &generation.artifact, generation.pure, None)?;
        if let (true, Some((running, pure))) = (depends_on_running(&tests(&tested)), &running)
            && self.misses_example(key, running, *pure)?
        {
            self.forget_recorded(key)?;
            tested.retain(|call| call.source != TestSource::Recorded);
        }
        let checksum = generation.artifact.checksum.clone();
        match person_policy::edit(&tests(&tested), force) {
            EditEffect::Runs { outranks_recorded } => {
                generation.outranks_recorded = outranks_recorded;
            }
            EditEffect::Refused => {
                return Ok(EditReport { version: None, checksum, tested, withdrawn: Vec::new() });
            }
        }
        let failed = tested.iter().filter(|call| call.passed == Some(false));
        let missed: Vec<Example> = failed.filter_map(TestedCall::as_example).collect();
        let store = self.runtime.store();
        let receipt = store.replace(&generation)?;
        // Examples of a contract or of a file stay where they are.
        let mut withdrawn = Vec::new();
        for example in missed {
            if store.forget_example(&key.role, &key.method, &example)? {
                withdrawn.push(example);
            }
        }
        Ok(EditReport { version: receipt.generations, checksum, tested, withdrawn })
    }

    /// The version that runs, of the store or else of `tools_dir`, and whether its value depends on its inputs alone.
    fn running(self, key: &ArtifactKey) -> Result<Option<(Artifact, bool)>, ProgramFault> {
        let store = self.runtime.store();
        let versions = store.versions(key)?;
        if let Some(version) = versions.into_iter().find(|version| version.is_current) {
            return Ok(Some((version.artifact, version.pure)));
        }
        let Some(artifact) = self.runtime.pinned_tools().find(key, store)? else {
            return Ok(None);
        };
        let (source, manifest) = (artifact.code.clone(), artifact.manifest.clone());
        let program = GeneratedProgram { language: key.language, source, manifest };
        let pure = Generation::by_person(key, &self.vetted(key, program)?, None).pure;
        Ok(Some((artifact, pure)))
    }

    fn vetted(
        self,
        key: &ArtifactKey,
        program: GeneratedProgram,
    ) -> Result<VettedProgram, ProgramFault> {
        let guardrails = self.runtime.config().agent_options().guardrails;
        vet(program, &trial_request(key), &[], &guardrails)
            .map_err(|(_, fault)| ProgramFault::Invalid(explained(&fault)))
    }

    /// The record of a call of this method.
    fn call_record(self, key: &ArtifactKey, call: &str) -> Result<Value, ProgramFault> {
        let found = self.runtime.store().call_record(call)?;
        let found = found.ok_or_else(|| ProgramFault::UnknownCall(call.to_owned()))?;
        let method = found.record.get("method_name").and_then(Value::as_str).unwrap_or_default();
        if found.role == key.role.as_str() && method == key.method.as_str() {
            return Ok(found.record);
        }
        Err(ProgramFault::OtherCall {
            call: call.to_owned(),
            called: format!("{}.{method}", found.role),
            meant: format!("{}.{}", key.role, key.method),
        })
    }

    /// What a recorded call was given and wrongly answered; `None`: not all of it is kept.
    fn counter_example(self, record: &Value) -> Result<Option<Example>, ProgramFault> {
        let store = self.runtime.store();
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

/// The tested calls, as the policy reads them.
fn tests(tested: &[TestedCall]) -> Vec<EditTest> {
    let test = |call: &TestedCall| EditTest {
        is_recorded: call.source == TestSource::Recorded,
        passed: call.passed,
    };
    tested.iter().map(test).collect()
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
        VetFault::Violations(violations) => {
            let messages: Vec<&str> =
                violations.iter().map(|violation| violation.message.as_str()).collect();
            messages.join("; ")
        }
    }
}
