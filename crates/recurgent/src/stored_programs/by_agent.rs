//! What an agent offers to correct the programs of its methods.

use lifecycle::admission::Inputs;
use lifecycle::artifact::ArtifactKey;
use lifecycle::contract::{Contract, Fingerprint};
use lifecycle::example::{Example, ExpectedResult, same_value};
use lifecycle::outcome::{Cause, FailureKind, Outcome, UnexpectedAnswer};
use lifecycle::program::Checksum;
use lifecycle::request::{Arguments, Method};
use serde::Serialize;
use serde_json::{Map, Value, to_finite_value};

use super::{ProgramFault, RejectionReport, TestedCall};
use crate::agent::{Agent, AgentFault};
use crate::arguments::IntoArguments;

/// What came of a call whose right value is known: see [`Agent::call_expecting`].
#[derive(Debug, Clone, PartialEq)]
pub struct ExpectedCall {
    /// How the call ended.
    pub outcome: Outcome,
    /// Whether it gave the expected value.
    pub is_met: bool,
    /// Programs that gave another value by themselves. They are rejected: none of them runs again.
    pub rejected: Vec<Checksum>,
    /// Whether the call is kept as an example.
    pub is_example: bool,
}

/// Why a program was rejected that gave another value than a person expects.
pub(super) fn unexpected_reason(expected: &Value) -> String {
    format!("it did not give {expected}, which a person expects")
}

impl Agent {
    /// Says that the running program of a method is wrong: see [`StoredPrograms::reject`](super::StoredPrograms::reject).
    pub fn reject(&self, method: &str, because: &str) -> Result<RejectionReport, ProgramFault> {
        self.runtime().programs().reject(&self.key(method)?, because, None)
    }

    /// Calls a method whose right value is known. A program that gives another value is rejected within the call, and the
    /// model that writes the next one is shown both values. If a program was rejected, or none gave the value, the
    /// call is kept as an example.
    pub fn call_expecting(
        &self,
        method: &str,
        arguments: impl IntoArguments,
        expected: impl Serialize,
    ) -> Result<ExpectedCall, AgentFault> {
        let invalid = |why: String| ProgramFault::Invalid(why);
        let arguments = arguments.into_arguments().map_err(invalid)?;
        let expected = to_finite_value(&expected).map_err(|error| invalid(error.to_string()))?;
        let Arguments { args, kwargs } = arguments.clone();
        let inputs = Inputs { args, kwargs, context: self.runtime_context().to_object() };
        let example = Example { inputs, expected: ExpectedResult::Value(expected.clone()) };
        // Parsed like any other example before the call, so that its size is checked.
        let example = Example::parse(&example.to_json()).map_err(ProgramFault::from)?;
        let key = self.key(method)?;
        let called = key.method.clone();
        // What the person expected of the same call before does not hold any more.
        let programs = self.runtime().programs();
        let known = self.runtime().store().examples(&key.role, &key.method);
        let known = known.map_err(ProgramFault::from)?;
        let is_contradicted = |known: &Example| match &known.expected {
            ExpectedResult::Value(value) => !same_value(value, &expected),
            ExpectedResult::Error(_) => true,
            ExpectedResult::NotValue(value) => same_value(value, &expected),
        };
        if known.iter().any(|known| known.inputs == example.inputs && is_contradicted(known)) {
            programs.teach(&key.role, &key.method, &example)?;
        }
        let outcome = self.call_with_expectation(called, arguments, expected.clone())?;
        let is_met = outcome.value().is_some_and(|value| same_value(&expected, value));
        let missed = outcome.details.as_ref().map(|details| details.unexpected.as_slice());
        let rejected = self.reject_unexpected(&key, missed.unwrap_or_default(), &expected)?;
        // A call that no program could answer says nothing about programs.
        let of_program = outcome.failure().is_none_or(|failure| is_of_program(&failure.kind));
        let was_missed = missed.is_some_and(|missed| !is_met || !missed.is_empty());
        let is_example = was_missed && of_program;
        if is_example {
            self.runtime().programs().teach(&key.role, &key.method, &example)?;
        }
        Ok(ExpectedCall { outcome, is_met, rejected, is_example })
    }

    /// Rejects the programs of a call that gave another value than this by themselves; gives those that were not rejected before.
    fn reject_unexpected(
        &self,
        key: &ArtifactKey,
        missed: &[UnexpectedAnswer],
        expected: &Value,
    ) -> Result<Vec<Checksum>, ProgramFault> {
        let because = unexpected_reason(expected);
        let mut rejected = Vec::new();
        for answer in missed.iter().filter(|answer| answer.is_own) {
            match self.runtime().programs().rejected(key, Some(&answer.program), &because) {
                Ok(report) => rejected.push(report.rejected),
                Err(ProgramFault::NotStored(_) | ProgramFault::AlreadyRejected(_)) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(rejected)
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
        // Parsed like any other example, so that its size is checked.
        let example = Example::parse(&example.to_json())?;
        let key = self.key(method)?;
        self.runtime().programs().teach(&key.role, &key.method, &example)
    }

    /// Forgets the programs of a method, in every language and under every contract. Says whether there were any.
    pub fn forget(&self, method: &str) -> Result<bool, ProgramFault> {
        let key = self.key(method)?;
        Ok(self.runtime().programs().forget(&key.role, Some(&key.method))?.is_some())
    }

    /// Withdraws the example of a call of a method; gives it.
    pub fn withdraw(
        &self,
        method: &str,
        arguments: impl IntoArguments,
    ) -> Result<Example, ProgramFault> {
        let arguments = arguments.into_arguments().map_err(ProgramFault::Invalid)?;
        let inputs = Inputs { args: arguments.args, kwargs: arguments.kwargs, context: Map::new() };
        let key = self.key(method)?;
        self.runtime().programs().withdraw(&key.role, &key.method, &inputs)
    }

    /// Runs the examples and the recorded calls of a method on its running program.
    pub fn test(&self, method: &str) -> Result<Vec<TestedCall>, ProgramFault> {
        let contract = self.as_tool().contract;
        self.runtime().programs().test_under(&self.key(method)?, contract.as_ref())
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

/// Whether a failure is that of a program that ran.
fn is_of_program(kind: &FailureKind) -> bool {
    kind.cause() != Cause::Extrinsic && *kind != FailureKind::InvalidCall
}
