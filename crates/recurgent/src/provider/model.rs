//! A model service as a provider.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use lifecycle::draft::{Draft, DraftFault, Usage};
use lifecycle::prompt::Prompt;
use serde_json::Value;

use super::choose::{ProviderOptions, Service, check_model};
use super::http::{Reply, send};
use super::price::{Prices, Pricing};
use super::wire::{Inquiry, Shape, Wire};
use super::{DraftLimits, Provider};

/// Most tokens of one answer where nobody says, from a service.
const SERVICE_OUTPUT_TOKENS: u32 = 16_384;
/// The same from a server of one's own, whose models have smaller windows.
const COMPATIBLE_OUTPUT_TOKENS: u32 = 4096;
/// Sampling of a server of one's own where nobody says: steady first, then otherwise, since small models
/// rarely mend a program but may write another.
const COMPATIBLE_TEMPERATURES: (f64, f64) = (0.0, 0.8);

/// How servers were last asked for JSON, by address: what one refused is not asked again.
static SHAPES: Mutex<BTreeMap<String, Shape>> = Mutex::new(BTreeMap::new());

/// Asks a model service for programs.
#[derive(Debug)]
pub struct Model {
    service: Service,
    prices: Prices,
    temperature: Option<f64>,
    retry_temperature: Option<f64>,
    max_output_tokens: u32,
}

impl Model {
    /// Asks `service`, as the options say.
    pub fn new(service: Service, options: &ProviderOptions) -> Self {
        let (steady, otherwise, most) = match service.wire {
            Wire::Chat { compatible: true } => {
                let (steady, otherwise) = COMPATIBLE_TEMPERATURES;
                (Some(steady), Some(otherwise), COMPATIBLE_OUTPUT_TOKENS)
            }
            Wire::Messages | Wire::Responses | Wire::Chat { .. } | Wire::Gemini => {
                (None, None, SERVICE_OUTPUT_TOKENS)
            }
        };
        let temperature = options.temperature.or(steady);
        Self {
            prices: options.prices.clone(),
            temperature,
            retry_temperature: options.retry_temperature.or(otherwise).or(temperature),
            max_output_tokens: options.max_output_tokens.unwrap_or(most),
            service,
        }
    }

    /// Asks until the server takes how JSON is asked for.
    fn converse(
        &self,
        inquiry: &Inquiry<'_>,
        limits: &DraftLimits<'_>,
    ) -> Result<Reply, DraftFault> {
        let (wire, address) = (self.service.wire, &self.service.base_url);
        let deadline = Instant::now() + limits.timeout;
        let is_chat = matches!(wire, Wire::Chat { .. });
        let mut shape = if is_chat { known_shape(address) } else { Shape::default() };
        loop {
            let left = deadline.checked_duration_since(Instant::now());
            let left = left.ok_or(DraftFault::TimedOut(limits.timeout))?;
            let reply =
                send(wire.post(inquiry, shape), &self.service.route, left, limits.cancellation)
                    .map_err(|fault| {
                        let is_late = matches!(fault, DraftFault::TimedOut(_));
                        if is_late { DraftFault::TimedOut(limits.timeout) } else { fault }
                    })?;
            match shape.simpler() {
                Some(simpler) if Shape::is_refused(wire, reply.status, &reply.text()) => {
                    shape = simpler;
                }
                Some(_) | None => {
                    if is_chat && reply.status == 200 {
                        remember_shape(address, shape);
                    }
                    return Ok(reply);
                }
            }
        }
    }

    fn ask(&self, prompt: &Prompt, limits: &DraftLimits<'_>) -> Result<Draft, DraftFault> {
        let model = self.model(limits.model);
        check_model(model).map_err(|fault| DraftFault::Rejected(fault.to_string()))?;
        if self.service.key.is_none()
            && let Some(variable) = self.service.wire.key_variable()
        {
            return Err(DraftFault::Auth(format!(
                "{model} needs a key; set {variable}, or api_key_file to a file only you can read"
            )));
        }
        let inquiry = Inquiry {
            base_url: &self.service.base_url,
            key: self.service.key.as_ref(),
            model,
            system: &prompt.system,
            user: &prompt.user,
            max_output_tokens: limits
                .max_output_tokens
                .unwrap_or(u32::MAX)
                .min(self.max_output_tokens),
            temperature: if limits.is_retry { self.retry_temperature } else { self.temperature },
        };
        let body = self.converse(&inquiry, limits)?.json()?;
        let usage = self.usage(model, &body);
        match self.service.wire.payload(&body) {
            Ok(payload) => Ok(Draft { payload, usage }),
            Err(fault) => Err(DraftFault::Charged(Box::new(fault), usage)),
        }
    }

    fn usage(&self, model: &str, body: &Value) -> Usage {
        let usage = self.service.wire.usage(body);
        Usage { cost: self.prices.of(model).map(|price| price.of(&usage)), ..usage }
    }

    /// A service may repeat the key it was sent.
    fn without_key(&self, fault: DraftFault) -> DraftFault {
        let Some(key) = &self.service.key else { return fault };
        let clean = |words: String| key.out_of(&words);
        match fault {
            DraftFault::Unavailable(words) => DraftFault::Unavailable(clean(words)),
            DraftFault::RateLimited { message, retry_after } => {
                DraftFault::RateLimited { message: clean(message), retry_after }
            }
            DraftFault::Overloaded { message, retry_after } => {
                DraftFault::Overloaded { message: clean(message), retry_after }
            }
            DraftFault::Rejected(words) => DraftFault::Rejected(clean(words)),
            DraftFault::Auth(words) => DraftFault::Auth(clean(words)),
            DraftFault::Refused(words) => DraftFault::Refused(clean(words)),
            DraftFault::Malformed(words) => DraftFault::Malformed(clean(words)),
            DraftFault::Diverged(words) => DraftFault::Diverged(clean(words)),
            DraftFault::Charged(fault, usage) => {
                DraftFault::Charged(Box::new(self.without_key(*fault)), usage)
            }
            fault @ (DraftFault::TimedOut(_)
            | DraftFault::Truncated
            | DraftFault::AllowanceSpent(_)
            | DraftFault::Cancelled) => fault,
        }
    }
}

impl Provider for Model {
    fn draft(&self, prompt: &Prompt, limits: &DraftLimits<'_>) -> Result<Draft, DraftFault> {
        self.ask(prompt, limits).map_err(|fault| self.without_key(fault))
    }

    fn model<'a>(&'a self, asked: &'a str) -> &'a str {
        if asked == "auto" { &self.service.model } else { asked }
    }

    fn pricing(&self, model: &str) -> Pricing {
        self.prices.of(self.model(model)).map_or(Pricing::Unknown, Pricing::Known)
    }

    fn max_output_tokens(&self) -> u32 {
        self.max_output_tokens
    }
}

fn known_shape(address: &str) -> Shape {
    let shapes = SHAPES.lock().unwrap_or_else(PoisonError::into_inner);
    shapes.get(address).copied().unwrap_or_default()
}

fn remember_shape(address: &str, shape: Shape) {
    let mut shapes = SHAPES.lock().unwrap_or_else(PoisonError::into_inner);
    if shape == Shape::default() {
        shapes.remove(address);
    } else {
        shapes.insert(address.to_owned(), shape);
    }
}
