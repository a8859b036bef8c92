//! A call that needs a model while there is none: on a terminal, one is offered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use recurgent::config::Config;
use recurgent::provider::{
    self, Draft, DraftFault, DraftRequest, Pricing, Prompt, Provider, ProviderChoice,
};
use serde_json::Value;

use super::{has_engine, install};
use crate::exit::CommandFault;

/// Asks a person once whether a model shall be installed, then continues with it.
#[derive(Debug)]
struct OfferingProvider {
    config: Config,
    inner: Arc<dyn Provider>,
    was_offered: AtomicBool,
}

/// The provider of the configuration, if it has no model and a person can be asked.
pub(crate) fn offering(config: &Config) -> Result<Option<Arc<dyn Provider>>, CommandFault> {
    let fault = |fault: provider::ProviderFault| CommandFault::setup(fault.to_string());
    if !install::can_ask() || !config.settings().generate || !has_engine(config) {
        return Ok(None);
    }
    let options = config.provider_options().map_err(fault)?;
    match provider::choose(&options).map_err(fault)? {
        ProviderChoice::None { .. } => {
            let inner = provider::make(&options).map_err(fault)?;
            let was_offered = AtomicBool::new(false);
            Ok(Some(Arc::new(OfferingProvider { config: config.clone(), inner, was_offered })))
        }
        ProviderChoice::Scripted(_)
        | ProviderChoice::Replay(_)
        | ProviderChoice::Service(_)
        | ProviderChoice::Embedded(_) => Ok(None),
    }
}

impl OfferingProvider {
    /// Asks, and once more if a model was installed meanwhile.
    fn ask(
        &self,
        request: &DraftRequest<'_>,
        ask: impl Fn(&dyn Provider) -> Result<Draft, DraftFault>,
    ) -> Result<Draft, DraftFault> {
        match ask(&*self.inner) {
            Err(DraftFault::Auth(_)) if !self.was_offered.swap(true, Ordering::SeqCst) => {
                match install::offer(&self.config, request.cancellation) {
                    Ok(_) => ask(&*self.inner),
                    Err(_) if request.cancellation.is_cancelled() => Err(DraftFault::Cancelled),
                    Err(fault) => Err(DraftFault::Rejected(fault.message)),
                }
            }
            answer => answer,
        }
    }
}

impl Provider for OfferingProvider {
    fn draft(&self, prompt: &Prompt, request: &DraftRequest<'_>) -> Result<Draft, DraftFault> {
        self.ask(request, |inner| inner.draft(prompt, request))
    }

    fn infer(
        &self,
        prompt: &Prompt,
        schema: Option<&Value>,
        request: &DraftRequest<'_>,
    ) -> Result<Draft, DraftFault> {
        self.ask(request, |inner| inner.infer(prompt, schema, request))
    }

    fn is_local(&self) -> bool {
        self.inner.is_local()
    }

    fn model<'a>(&'a self, asked: &'a str) -> &'a str {
        self.inner.model(asked)
    }

    fn pricing(&self, model: &str) -> Pricing {
        self.inner.pricing(model)
    }

    fn max_output_tokens(&self) -> u32 {
        self.inner.max_output_tokens()
    }

    fn unused(&self) -> Vec<(String, usize)> {
        self.inner.unused()
    }
}
