//! Do we speak the real wire? Every request is held against a schema written from the services' public
//! documents and against a snapshot; every documented answer has its typed end, and none hangs.
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "test"
)]

mod allowance;
mod choosing;
mod faults;
mod outages;
mod questions;
mod reaching;
mod secrets;
mod served;
mod server;
mod streams;
mod wires;

use std::time::Duration;

use lifecycle::dialect::Language;
use lifecycle::draft::{Draft, DraftFault};
use lifecycle::prompt::Prompt;
use lifecycle::request::{Method, Role};
use recurgent::Cancellation;
use recurgent::provider::{
    DraftRequest, ProgressListener, Provider, ProviderOptions, Secret, make,
};

/// A key that must be seen in one header and nowhere else.
pub(crate) const CANARY: &str = "sk-canary-0123456789abcdef";

/// Options for a service at `base_url`, with every key there is.
pub(crate) fn options(provider: &str, base_url: impl Into<String>) -> ProviderOptions {
    ProviderOptions {
        provider: provider.parse().unwrap(),
        model: "test-model".parse().unwrap(),
        base_url: Some(base_url.into().parse().unwrap()),
        keys: ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"]
            .map(|name| (name, Secret::new(CANARY)))
            .into(),
        ..ProviderOptions::default()
    }
}

pub(crate) fn prompt() -> Prompt {
    Prompt {
        system: "Write a program.".to_owned(),
        user: "invocation: {\"role\": \"calculator\"}\n".to_owned(),
        head: None,
    }
}

/// Asks for `calculator.add` and waits no longer than `limit`.
pub(crate) fn ask(
    provider: &dyn Provider,
    limit: Duration,
    is_retry: bool,
) -> Result<Draft, DraftFault> {
    ask_until(provider, limit, is_retry, &Cancellation::default())
}

pub(crate) fn ask_until(
    provider: &dyn Provider,
    timeout: Duration,
    is_retry: bool,
    cancellation: &Cancellation,
) -> Result<Draft, DraftFault> {
    let (timing, unobserved) = ((timeout, is_retry), ProgressListener::default());
    ask_listening(provider, timing, cancellation, unobserved)
}

pub(crate) fn ask_listening(
    provider: &dyn Provider,
    (timeout, is_retry): (Duration, bool),
    cancellation: &Cancellation,
    progress: ProgressListener<'_>,
) -> Result<Draft, DraftFault> {
    let (role, method) = (Role::parse("calculator").unwrap(), Method::parse("add").unwrap());
    let request = DraftRequest {
        role: &role,
        method: &method,
        language: Language::Python,
        model: "auto",
        timeout,
        max_output_tokens: None,
        is_retry,
        sample: 0,
        seed: 0,
        cancellation,
        progress,
    };
    provider.draft(&prompt(), &request)
}

/// Long enough for any answer on a busy machine.
pub(crate) const PATIENT: Duration = Duration::from_mins(1);

pub(crate) fn ask_at(provider: &str, base_url: String) -> Result<Draft, DraftFault> {
    ask(make(&options(provider, base_url)).unwrap().as_ref(), PATIENT, false)
}

/// The fault itself, when a model was paid for it.
pub(crate) fn bare(fault: DraftFault) -> DraftFault {
    if let DraftFault::Charged(fault, _) = fault {
        return *fault;
    }
    fault
}
