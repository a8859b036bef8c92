//! Tools from outside, called by real programs in both guests: functions of the embedding program, and commands.
#![cfg(test)]

mod commands;
#[path = "../common/fixture.rs"]
mod fixture;
mod functions;
mod recordings;

use recurgent::{AgentBuilder, Outcome, Runtime};

use fixture::{GuestFixture, check, code};

impl GuestFixture {
    fn agent(&self, runtime: &Runtime, role: &str) -> AgentBuilder {
        runtime.agent(role).guest(self.language)
    }
}

fn message(outcome: &Outcome) -> &str {
    outcome.failure().map_or("", |failure| failure.message.as_str())
}
