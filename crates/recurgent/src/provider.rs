//! The provider seam: the source of programs.

mod choose;
mod delay;
mod embedded;
mod http;
mod local;
mod model;
mod price;
mod recording;
mod scripted;
mod secret;
mod served;
mod setting;
mod stream;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lifecycle::dialect::Language;
use lifecycle::request::{Method, Role};
use serde_json::Value;
use thiserror::Error;

use crate::guest::Cancellation;
use crate::toolbox::RecordedTools;

#[doc(hidden)]
pub mod engine {
    //! The engine's protocol and client.
    pub use super::embedded::*;
}
pub(crate) use choose::read_roots;
#[doc(hidden)]
pub use choose::{ProviderChoice, ProviderOptions, Service, choose};
pub use lifecycle::draft::{Draft, DraftFault, SpentAllowance, Usage};
pub use lifecycle::event::ModelProgress;
pub use lifecycle::prompt::{Prompt, PromptForm};
pub(crate) use model::Model;
#[doc(hidden)]
pub use price::Prices;
pub use price::{Price, Pricing};
pub(crate) use recording::Recorder;
pub use recording::Replay;
pub use scripted::Scripted;
#[doc(hidden)]
pub use secret::Secret;
pub use setting::{ModelName, ProviderSetting, ProxyAddress, ServiceAddress};
#[doc(hidden)]
pub use wire::Wire;
/// The ports where local model servers usually listen: Ollama, LM Studio, llama.cpp, vLLM.
pub(crate) const LOCAL_SERVERS: [u16; 4] = [11434, 1234, 8080, 8000];

#[doc(hidden)]
pub use wire::service_names;
pub(crate) use wire::{
    address_variables, key_variables, key_variables_help, names_help, output_tokens_help,
    retry_temperature_help, temperature_help,
};

/// Writes programs.
pub trait Provider: fmt::Debug + Send + Sync {
    /// Asks for one program.
    fn draft(&self, prompt: &Prompt, request: &DraftRequest<'_>) -> Result<Draft, DraftFault>;

    /// Asks for `count` programs that are sampled independently: an answer or a fault for each, or a fault for all.
    fn drafts(
        &self,
        prompt: &Prompt,
        request: &DraftRequest<'_>,
        count: usize,
    ) -> Vec<Result<Draft, DraftFault>> {
        let mut replies = vec![self.draft(prompt, request)];
        for sample in 1..count {
            if replies.last().is_some_and(Result::is_err) {
                break; // a service that fails is not asked again at once
            }
            replies.push(self.draft(prompt, &DraftRequest { sample, ..*request }));
        }
        replies
    }

    /// Answers a question of a program about data. The payload has an `answer`, or the `answers` to several items.
    /// `schema` says what it must be; `None`: the whole text is the answer.
    fn infer(
        &self,
        _prompt: &Prompt,
        _schema: Option<&Value>,
        _request: &DraftRequest<'_>,
    ) -> Result<Draft, DraftFault> {
        let message = "this provider writes programs only, and a program asked it about data with `infer`; use \
                       another provider";
        Err(DraftFault::Rejected(message.to_owned()))
    }

    /// Whether what it is sent stays on this machine.
    fn is_local(&self) -> bool {
        false
    }

    /// How many programs are asked for at once unless configured.
    fn candidates(&self) -> u32 {
        1
    }

    /// What the prompt asks for: a JSON payload, or a program.
    fn form(&self) -> PromptForm {
        PromptForm::Payload
    }

    /// The model that is used for an agent whose configured model is `asked`.
    fn model<'a>(&'a self, asked: &'a str) -> &'a str {
        asked
    }

    /// What a model's tokens cost.
    fn pricing(&self, _model: &str) -> Pricing {
        Pricing::Free
    }

    /// Most tokens one answer may have; 0 if answers use no tokens.
    fn max_output_tokens(&self) -> u32 {
        0
    }

    /// What people should know about the choice of the model.
    fn notice(&self) -> Option<String> {
        None
    }

    /// The number of recorded answers that were not used, by `role.method`. Some are left if a replay takes another
    /// path than the recording.
    fn unused(&self) -> Vec<(String, usize)> {
        Vec::new()
    }

    /// The outside tools that answer instead of the real ones, if this replays a recording.
    #[doc(hidden)]
    fn recorded_tools(&self) -> Option<Arc<RecordedTools>> {
        None
    }
}

/// The call a program is written for, and the bounds of the request.
#[derive(Debug, Clone, Copy)]
pub struct DraftRequest<'a> {
    /// The agent that was called.
    pub role: &'a Role,
    /// The method that was called.
    pub method: &'a Method,
    /// The language of the program.
    pub language: Language,
    /// Which model to ask.
    pub model: &'a str,
    /// Time the answer may take.
    pub timeout: Duration,
    /// Most tokens the answer may have, if fewer than the provider's own limit.
    pub max_output_tokens: Option<u32>,
    /// Whether the prompt says what was wrong with an earlier program.
    pub is_retry: bool,
    /// Which of the programs that are asked for at once this is, from 0; all but the first are sampled more freely.
    pub sample: usize,
    /// For a model that samples with a seed: another one for each attempt.
    pub seed: u64,
    /// Ends the wait early.
    pub cancellation: &'a Cancellation,
    /// Where a provider that knows says how far the answer is.
    pub progress: ProgressListener<'a>,
}

/// An optional callback for progress reports.
#[derive(Clone, Copy, Default)]
pub struct ProgressListener<'a>(Option<&'a dyn Fn(ModelProgress)>);

impl<'a> ProgressListener<'a> {
    /// Calls a function with every report.
    pub fn new(listener: &'a dyn Fn(ModelProgress)) -> Self {
        Self(Some(listener))
    }

    /// Whether anything is called.
    pub fn listens(self) -> bool {
        self.0.is_some()
    }

    /// Reports how far the model is.
    pub fn report(self, progress: ModelProgress) {
        if let Some(listener) = self.0 {
            listener(progress);
        }
    }
}

impl fmt::Debug for ProgressListener<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgressListener").field("listens", &self.listens()).finish()
    }
}

impl DraftRequest<'_> {
    /// `role.method`, the key of scripts and recordings.
    pub fn key(&self) -> String {
        format!("{}.{}", self.role, self.method)
    }

    /// `infer:role.method`, the key of answers to questions of its programs.
    pub fn infer_key(&self) -> String {
        format!("infer:{}", self.key())
    }
}

/// Why no provider could be made from the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProviderFault {
    /// The configured name is not that of a provider.
    #[error("unknown provider {name:?}; use {}", names_help())]
    Unknown {
        /// The configured name.
        name: String,
    },
    /// A file of the provider cannot be used.
    #[error("cannot use {path}: {problem}")]
    File {
        /// The path of the file.
        path: String,
        /// Why it cannot be used, and what it must contain.
        problem: String,
    },
    /// `base_url` is not an address of a service.
    #[error(
        "base_url must be http://HOST[:PORT]/PATH or https://…, without a query or credentials; a key goes into api_key_file"
    )]
    Address,
    /// The key belongs to another service.
    #[error(
        "the key of api_key_file ({key}) was set together with another address than that of {address}, and is not sent there; set api_key_file and the address in one place, such as [provider.NAME], or give both as flags (--set api_key_file=FILE)"
    )]
    KeyOfAnotherAddress {
        /// Where the key was set.
        key: String,
        /// Where the address was set.
        address: String,
    },
    /// The text is not a model name.
    #[error("{0:?} is not a model name; use letters, digits and . _ - / : only")]
    Model(String),
    /// The variable does not contain a key. Its value is not shown.
    #[error("{0} does not hold a key: a key is printable ASCII without spaces")]
    Key(&'static str),
    /// `provider_proxy` is not the address of a proxy. It is not shown, because it may contain credentials.
    #[error(
        "provider_proxy is not the address of a proxy; use http://HOST:PORT or https://HOST:PORT"
    )]
    Proxy,
    /// A price of every model is set without another that it needs.
    #[error(
        "{set} is set and {missing} is not; set price_input_per_mtok and price_output_per_mtok, or neither"
    )]
    Price {
        /// The setting that is set.
        set: &'static str,
        /// The setting that is not.
        missing: &'static str,
    },
    /// The key would be sent unencrypted.
    #[error("a key is not sent to {0} unencrypted; use https://, or remove the key")]
    Unsafe(String),
}

/// Makes the provider that a configuration names. No connection is made: if it names none, the model of this machine is
/// looked for when it is first needed.
#[doc(hidden)]
pub fn make(options: &ProviderOptions) -> Result<Arc<dyn Provider>, ProviderFault> {
    match choose::choose_configured(options)? {
        Some(choice) => provider_of(choice, options),
        None => Ok(Arc::new(local::Local::new(options.clone()))),
    }
}

/// The provider of a choice.
fn provider_of(
    choice: ProviderChoice,
    options: &ProviderOptions,
) -> Result<Arc<dyn Provider>, ProviderFault> {
    Ok(match choice {
        ProviderChoice::Scripted(file) => Arc::new(Scripted::from_file(&file)?),
        ProviderChoice::Replay(file) => Arc::new(Replay::from_file(&file)?),
        ProviderChoice::Service(service) => Arc::new(Model::new(*service, options)),
        ProviderChoice::Embedded(model) => Arc::new(embedded::Embedded::new(model, options)),
        ProviderChoice::None { why } => Arc::new(Unconfigured { why }),
    })
}

/// The provider when no model is configured: stored programs run, and any other call fails with an error that says
/// what to do.
#[derive(Debug)]
struct Unconfigured {
    why: String,
}

impl Provider for Unconfigured {
    fn draft(&self, _prompt: &Prompt, request: &DraftRequest<'_>) -> Result<Draft, DraftFault> {
        Err(choose::no_model(request, &self.why))
    }

    fn infer(
        &self,
        _prompt: &Prompt,
        _schema: Option<&Value>,
        request: &DraftRequest<'_>,
    ) -> Result<Draft, DraftFault> {
        Err(choose::no_model(request, &self.why))
    }
}
