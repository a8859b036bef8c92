//! What an agent offers to correct the programs of its methods.

use lifecycle::admission::Inputs;
use lifecycle::artifact::ArtifactKey;
use lifecycle::contract::{Contract, Fingerprint};
use lifecycle::example::{Example, ExpectedResult};
use lifecycle::request::Method;
use serde::Serialize;
use serde_json::{Map, to_finite_value};

use super::{ProgramFault, RejectionReport, TestedCall};
use crate::agent::Agent;
use crate::arguments::IntoArguments;

impl Agent {
    /// Says that the running program of a method is wrong: see [`StoredPrograms::reject`](super::StoredPrograms::reject).
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
