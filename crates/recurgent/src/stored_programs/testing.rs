//! Tests of a version: the examples of people and the recorded calls, run again.

use lifecycle::admission::{Inputs, Observed};
use lifecycle::artifact::{Artifact, ArtifactKey};
use lifecycle::contract::Contract;
use lifecycle::example::{Example, ExpectedResult};
use lifecycle::execution::ReportEnding;
use lifecycle::outcome::FailureKind;
use serde_json::{Value, json};

use super::{ProgramFault, StoredPrograms, not_stored};
use crate::guest::Cancellation;
use crate::trial::{TrialRunner, is_met};

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
    pub(super) fn as_example(&self) -> Option<Example> {
        let expected = self.expected.clone()?;
        Some(Example { inputs: self.inputs.clone(), expected })
    }
}

impl StoredPrograms<'_> {
    /// Runs the examples and the recorded calls on the version that runs. Examples are those that people taught, those of
    /// the files of `tools_dir`, and those of the tool's contract.
    pub fn test(&self, key: &ArtifactKey) -> Result<Vec<TestedCall>, ProgramFault> {
        self.test_under(key, None)
    }

    /// The same, with the examples of this contract too.
    pub(super) fn test_under(
        self,
        key: &ArtifactKey,
        contract: Option<&Contract>,
    ) -> Result<Vec<TestedCall>, ProgramFault> {
        let (artifact, pure) = self.running(key)?.ok_or_else(|| not_stored(key))?;
        self.tested(key, &artifact, pure, contract)
    }

    /// Runs a taught example on the version that runs. If it misses the example, the calls recorded of it no longer bind
    /// its successors.
    pub fn test_example(
        &self,
        key: &ArtifactKey,
        example: Example,
    ) -> Result<TestedCall, ProgramFault> {
        let (artifact, pure) = self.running(key)?.ok_or_else(|| not_stored(key))?;
        let tested = self.tested_example(key, &artifact, pure, example)?;
        if tested.passed == Some(false) {
            self.forget_recorded(key)?;
        }
        Ok(tested)
    }

    /// Whether a program misses an example.
    pub(super) fn misses_example(
        self,
        key: &ArtifactKey,
        artifact: &Artifact,
        pure: bool,
    ) -> Result<bool, ProgramFault> {
        for example in self.runtime.examples_for(key, None)? {
            if self.tested_example(key, artifact, pure, example)?.passed == Some(false) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Runs the examples and the recorded calls on a version.
    pub(super) fn tested(
        self,
        key: &ArtifactKey,
        artifact: &Artifact,
        pure: bool,
        contract: Option<&Contract>,
    ) -> Result<Vec<TestedCall>, ProgramFault> {
        let store = self.runtime.store();
        let runner = self.runtime.trials().runner();
        let mut tested = Vec::new();
        for example in self.runtime.examples_for(key, contract)? {
            tested.push(self.tested_example(key, artifact, pure, example)?);
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

    fn tested_example(
        self,
        key: &ArtifactKey,
        artifact: &Artifact,
        pure: bool,
        example: Example,
    ) -> Result<TestedCall, ProgramFault> {
        let runner = self.runtime.trials().runner();
        let result = if pure { Some(run(runner, key, artifact, &example.inputs)?) } else { None };
        Ok(TestedCall {
            source: TestSource::Example,
            passed: result.as_ref().map(|result| is_met(&example, &result.ending)),
            actual: result.map(|result| result.to_json()),
            expected: Some(example.expected),
            inputs: example.inputs,
        })
    }
}

/// What came of running a program on the inputs of one call.
struct TestRun {
    observed: Option<Observed>,
    ending: ReportEnding,
}

impl TestRun {
    fn to_json(&self) -> Value {
        let failed = FailureKind::Execution.code();
        match &self.ending {
            ReportEnding::Value(value) => json!({ "value": value }),
            ReportEnding::Reported { reported, .. } => json!({"error_type": reported.code}),
            ReportEnding::Raised { message, .. } => {
                json!({"error_type": failed, "message": message})
            }
            ReportEnding::Malformed(fault) => {
                json!({"error_type": failed, "message": fault.message})
            }
            ReportEnding::Unserializable { message, .. } | ReportEnding::Limited(_, message) => {
                json!({"error_type": failed, "message": message})
            }
            ReportEnding::Looked(_) | ReportEnding::Exited { .. } => {
                json!({"error_type": failed})
            }
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
