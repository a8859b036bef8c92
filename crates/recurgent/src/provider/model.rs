//! A model service as a provider.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use lifecycle::draft::{Draft, DraftFault, Usage};
use lifecycle::program::Checksum;
use lifecycle::prompt::Prompt;
use serde_json::{Value, json};

use super::choose::{ProviderOptions, Service};
use super::http::{HttpReply, send};
use super::price::{Prices, Pricing};
use super::served::ServedModel;
use super::setting::{ModelName, is_auto};
use super::stream::refuses_streaming;
use super::wire::{ModelRequest, PayloadKind, Shape};
use super::{DraftRequest, Provider};

/// The way each model was last asked for JSON, by service and model: a refused way is not tried again.
static SHAPES: Mutex<BTreeMap<String, Shape>> = Mutex::new(BTreeMap::new());
/// Most entries of [`SHAPES`], and of [`UNSTREAMED`].
const MAX_SHAPES: usize = 1000;
/// Services and models that refuse to answer in pieces.
static UNSTREAMED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Asks a model service for programs.
#[derive(Debug)]
pub(crate) struct Model {
    service: Service,
    prices: Prices,
    temperature: Option<f64>,
    retry_temperature: Option<f64>,
    max_output_tokens: u32,
    /// The model of a server that is asked for it.
    served: ServedModel,
}

impl Model {
    /// Asks `service`, as the options say.
    pub(crate) fn new(service: Service, options: &ProviderOptions) -> Self {
        let (first, retry) = service.wire.temperatures.unzip();
        let temperature = options.temperature.or(first);
        Self {
            prices: options.prices.clone(),
            temperature,
            retry_temperature: options.retry_temperature.or(retry).or(temperature),
            max_output_tokens: options.max_output_tokens.unwrap_or(service.wire.max_output_tokens),
            served: ServedModel::default(),
            service,
        }
    }

    /// The model to ask; a server of one's own may have to name it first.
    fn model_for<'a>(&'a self, request: &DraftRequest<'a>) -> Result<&'a str, DraftFault> {
        if !is_auto(request.model) || !self.service.asks_for_model {
            return Ok(self.model(request.model));
        }
        let served = self.served.ask(&self.service, request.timeout, request.cancellation)?;
        Ok(served.as_str())
    }

    /// Asks until the server accepts a way to ask for JSON. A refused way is remembered; after a failure that is not a
    /// refusal the same way is tried again the next time.
    fn converse(
        &self,
        model_request: &ModelRequest<'_>,
        request: &DraftRequest<'_>,
    ) -> Result<HttpReply, DraftFault> {
        let wire = self.service.wire;
        let served = format!("{} {} {}", wire.name, self.service.base_url, model_request.model);
        // A service may refuse one schema and accept another.
        let asked = match model_request.kind {
            PayloadKind::Program => served.clone(),
            PayloadKind::Answer(schema) => {
                format!("{served} {}", Checksum::of(&schema.to_string()))
            }
        };
        let deadline = Instant::now() + request.timeout;
        let mut shape = known_shape(&asked);
        let mut is_refused = true;
        let mut streaming = wire.streaming.as_ref();
        streaming = streaming.filter(|_| request.progress.listens() && is_streamed(&served));
        loop {
            let left = deadline.checked_duration_since(Instant::now());
            let left = left.ok_or(DraftFault::TimedOut(request.timeout))?;
            let mut post = (wire.post)(model_request, shape);
            if let Some(streaming) = streaming {
                streaming.ask(&mut post.body);
            }
            let mut reply =
                send(post, &self.service.route, left, request.cancellation, request.progress)
                    .map_err(|fault| {
                        let is_late = matches!(fault, DraftFault::TimedOut(_));
                        if is_late { DraftFault::TimedOut(request.timeout) } else { fault }
                    })?;
            if let Some(asked_streaming) = streaming {
                if refuses_streaming(reply.status, &reply.text()) {
                    streaming = None;
                    remember_unstreamed(served.clone());
                    continue;
                }
                reply = reply.joined(asked_streaming)?;
            }
            let refuses = (wire.refuses_shape)(reply.status, &reply.text());
            match wire.next_shape(shape) {
                Some(other) if refuses || (wire.may_refuse_shape)(reply.status) => {
                    shape = other;
                    is_refused &= refuses;
                }
                Some(_) | None => {
                    if reply.status == 200 && is_refused {
                        remember_shape(asked, shape);
                    }
                    reply.key.clone_from(&self.service.key);
                    return Ok(reply);
                }
            }
        }
    }

    fn ask(
        &self,
        prompt: &Prompt,
        kind: PayloadKind<'_>,
        request: &DraftRequest<'_>,
    ) -> Result<Draft, DraftFault> {
        let model = self.model_for(request)?;
        model.parse::<ModelName>().map_err(|fault| DraftFault::Rejected(fault.to_string()))?;
        if self.service.key.is_none()
            && let Some(variable) = self.service.wire.key_variable
        {
            return Err(DraftFault::Auth(format!(
                "{model} needs a key; set {variable}, or api_key_file to a file only you can read"
            )));
        }
        let model_request = ModelRequest {
            base_url: self.service.base_url.as_str(),
            key: self.service.key.as_ref(),
            model,
            system: &prompt.system,
            user: &prompt.user,
            max_output_tokens: request
                .max_output_tokens
                .unwrap_or(u32::MAX)
                .min(self.max_output_tokens),
            temperature: if request.is_retry || request.sample > 0 {
                self.retry_temperature
            } else {
                self.temperature
            },
            kind,
        };
        let body = self.converse(&model_request, request)?.json()?;
        let usage = self.usage(model, &body);
        match (self.service.wire.payload)(&body, kind) {
            Ok(payload) => Ok(Draft { payload, usage }),
            Err(fault) => Err(DraftFault::Charged(Box::new(fault), usage)),
        }
    }

    fn usage(&self, model: &str, body: &Value) -> Usage {
        let usage = (self.service.wire.usage)(body);
        Usage { cost: self.prices.of(model).map(|price| price.of(&usage)), ..usage }
    }
}

impl Provider for Model {
    fn draft(&self, prompt: &Prompt, request: &DraftRequest<'_>) -> Result<Draft, DraftFault> {
        self.ask(prompt, PayloadKind::Program, request)
    }

    fn infer(
        &self,
        prompt: &Prompt,
        schema: Option<&Value>,
        request: &DraftRequest<'_>,
    ) -> Result<Draft, DraftFault> {
        let any = json!({});
        self.ask(prompt, PayloadKind::Answer(schema.unwrap_or(&any)), request)
    }

    fn is_local(&self) -> bool {
        self.service.base_url.is_this_machine()
    }

    fn model<'a>(&'a self, asked: &'a str) -> &'a str {
        match self.served.known() {
            _ if !is_auto(asked) => asked,
            Some(served) => served.as_str(),
            None => self.service.model.as_str(),
        }
    }

    fn notice(&self) -> Option<String> {
        self.served.notice()
    }

    fn pricing(&self, model: &str) -> Pricing {
        self.prices.of(self.model(model)).map_or(Pricing::Unknown, Pricing::Known)
    }

    fn max_output_tokens(&self) -> u32 {
        self.max_output_tokens
    }
}

fn known_shape(asked: &str) -> Shape {
    let shapes = SHAPES.lock().unwrap_or_else(PoisonError::into_inner);
    shapes.get(asked).copied().unwrap_or_default()
}

fn is_streamed(served: &str) -> bool {
    !UNSTREAMED.lock().unwrap_or_else(PoisonError::into_inner).contains(served)
}

fn remember_unstreamed(served: String) {
    let mut unstreamed = UNSTREAMED.lock().unwrap_or_else(PoisonError::into_inner);
    if unstreamed.len() >= MAX_SHAPES {
        unstreamed.clear(); // they are found again
    }
    unstreamed.insert(served);
}

fn remember_shape(asked: String, shape: Shape) {
    let mut shapes = SHAPES.lock().unwrap_or_else(PoisonError::into_inner);
    if shapes.len() >= MAX_SHAPES {
        shapes.clear(); // they are found again
    }
    if shape == Shape::default() {
        shapes.remove(&asked);
    } else {
        shapes.insert(asked, shape);
    }
}
