//! The model of this machine when no service is configured: a model server that answers on loopback, else the embedded
//! model. It is chosen when a model is first needed, so that stored programs run without a look at it.

use std::io::Read as _;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lifecycle::draft::{Draft, DraftFault};
use lifecycle::prompt::{Prompt, PromptForm};
use serde_json::Value;

use super::choose::{ProviderChoice, ProviderOptions, choose_local, no_model};
use super::price::Pricing;
use super::served::preferred;
use super::setting::ModelName;
use super::{DraftRequest, Provider, ProviderFault, provider_of};

/// Time to connect to a port of this machine: a port where nothing listens refuses at once.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// Time a server of this machine has to list its models, on a busy machine too.
const LIST_LIMIT: Duration = Duration::from_secs(10);
/// Most bytes of such a list.
const MAX_LIST_BYTES: u64 = 1 << 20;

/// Chooses on the first request.
#[derive(Debug)]
pub(super) struct Local {
    options: ProviderOptions,
    chosen: OnceLock<Arc<dyn Provider>>,
}

impl Local {
    pub(super) fn new(options: ProviderOptions) -> Self {
        Self { options, chosen: OnceLock::new() }
    }

    /// The provider. A choice is kept; without one, the next request looks again.
    fn provider(&self) -> Result<&Arc<dyn Provider>, String> {
        if let Some(provider) = self.chosen.get() {
            return Ok(provider);
        }
        let choice = choose_local(&self.options).map_err(|fault| fault.to_string())?;
        if let ProviderChoice::None { why } = choice {
            return Err(why);
        }
        let made = provider_of(choice, &self.options);
        let provider = made.map_err(|fault: ProviderFault| fault.to_string())?;
        Ok(self.chosen.get_or_init(|| provider))
    }
}

impl Provider for Local {
    fn draft(&self, prompt: &Prompt, request: &DraftRequest<'_>) -> Result<Draft, DraftFault> {
        match self.provider() {
            Ok(provider) => provider.draft(prompt, request),
            Err(why) => Err(no_model(request, &why)),
        }
    }

    fn drafts(
        &self,
        prompt: &Prompt,
        request: &DraftRequest<'_>,
        count: usize,
    ) -> Vec<Result<Draft, DraftFault>> {
        match self.provider() {
            Ok(provider) => provider.drafts(prompt, request, count),
            Err(why) => vec![Err(no_model(request, &why))],
        }
    }

    fn infer(
        &self,
        prompt: &Prompt,
        schema: Option<&Value>,
        request: &DraftRequest<'_>,
    ) -> Result<Draft, DraftFault> {
        match self.provider() {
            Ok(provider) => provider.infer(prompt, schema, request),
            Err(why) => Err(no_model(request, &why)),
        }
    }

    fn is_local(&self) -> bool {
        true
    }

    /// Without a model of this machine there is nothing to compare, and the prompt is not sent.
    fn candidates(&self) -> u32 {
        self.provider().map_or(1, |provider| provider.candidates())
    }

    fn form(&self) -> PromptForm {
        self.provider().map_or(PromptForm::Payload, |provider| provider.form())
    }

    fn model<'a>(&'a self, asked: &'a str) -> &'a str {
        self.chosen.get().map_or(asked, |provider| provider.model(asked))
    }

    fn pricing(&self, model: &str) -> Pricing {
        self.chosen.get().map_or(Pricing::Free, |provider| provider.pricing(model))
    }

    fn max_output_tokens(&self) -> u32 {
        self.provider().map_or(0, |provider| provider.max_output_tokens())
    }
}

/// A model server on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LocalServer {
    pub(super) port: u16,
    pub(super) model: ModelName,
}

/// The first server that lists a model, or the model that is asked for.
pub(super) fn find_server(ports: &[u16], asked: Option<&str>) -> Option<LocalServer> {
    ports.iter().find_map(|port| {
        let model = choose_model(&list(*port)?, asked)?;
        Some(LocalServer { port: *port, model })
    })
}

fn list(port: u16) -> Option<Value> {
    let config = ureq::Agent::config_builder()
        .proxy(None)
        .max_redirects(0)
        .timeout_connect(Some(CONNECT_LIMIT))
        .timeout_global(Some(LIST_LIMIT))
        .user_agent(concat!("recurgent/", env!("CARGO_PKG_VERSION")))
        .build();
    let agent = config.new_agent();
    let mut response = agent.get(format!("http://127.0.0.1:{port}/v1/models")).call().ok()?;
    let mut body = Vec::new();
    response.body_mut().as_reader().take(MAX_LIST_BYTES).read_to_end(&mut body).ok()?;
    serde_json::from_slice(&body).ok()
}

fn choose_model(list: &Value, asked: Option<&str>) -> Option<ModelName> {
    let models = list.get("data")?.as_array()?.iter();
    let names: Vec<ModelName> =
        models.filter_map(|model| model.get("id")?.as_str()?.parse().ok()).collect();
    match asked {
        Some(asked) => names.iter().find(|name| name.as_str() == asked).cloned(),
        None => preferred(&names).cloned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_model_that_is_asked_for_or_one_for_programs_is_chosen() {
        let list = json!({"data": [{"id": "llama3"}, {"id": "qwen2.5-coder:7b"}, {"id": 4}]});
        let check = |list: &Value, asked: Option<&str>, expected: Option<&str>| {
            let chosen = choose_model(list, asked);
            assert_eq!(chosen.as_ref().map(ModelName::as_str), expected);
        };
        check(&list, None, Some("qwen2.5-coder:7b"));
        check(&list, Some("llama3"), Some("llama3"));
        check(&list, Some("other"), None);
        check(&json!({"data": [{"id": "a"}]}), None, Some("a"));
        check(
            &json!({"data": [{"id": "nomic-embed-text"}, {"id": "llama3"}]}),
            None,
            Some("llama3"),
        );
        check(&json!({"data": [{"id": "nomic-embed-text"}]}), None, Some("nomic-embed-text"));
        check(&json!({"data": []}), None, None);
        check(&json!({"models": []}), None, None);
        check(&json!({"data": [{"id": "not a name\n"}]}), None, None);
    }
}
