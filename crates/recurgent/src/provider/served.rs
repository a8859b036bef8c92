//! The model that a server on the user's own machines has: if no model is named, the server is asked for its list.

use std::sync::OnceLock;
use std::time::Duration;

use lifecycle::draft::DraftFault;
use serde_json::Value;

use super::choose::Service;
use super::http::fetch;
use super::setting::ModelName;
use super::wire::bearer;
use crate::guest::Cancellation;

/// Longest wait for the list of models.
const LIST_LIMIT: Duration = Duration::from_secs(20);
/// Names of a list that are read.
const MAX_LISTED: usize = 200;
/// Names that are shown.
const MAX_SHOWN: usize = 5;
/// What the name of a model for programs contains.
const FOR_PROGRAMS: &str = "coder";
/// What the names of models that write nothing contain.
const WRITES_NOTHING: [&str; 3] = ["embed", "rerank", "whisper"];

/// The name of the model that a server serves, and what is said about it.
#[derive(Debug, Default)]
pub(super) struct ServedModel(OnceLock<(ModelName, Option<String>)>);

impl ServedModel {
    /// The model, if the server was asked before.
    pub(super) fn known(&self) -> Option<&ModelName> {
        self.0.get().map(|(model, _)| model)
    }

    /// Why this model, if there were others.
    pub(super) fn notice(&self) -> Option<String> {
        self.0.get().and_then(|(_, notice)| notice.clone())
    }

    /// Asks the server, once.
    pub(super) fn ask(
        &self,
        service: &Service,
        limit: Duration,
        cancellation: &Cancellation,
    ) -> Result<&ModelName, DraftFault> {
        if let Some(model) = self.known() {
            return Ok(model);
        }
        let found = list(service, limit.min(LIST_LIMIT), cancellation)?;
        let (model, _) = self.0.get_or_init(|| found);
        Ok(model)
    }
}

/// The model of a list that is asked if none is named: one for programs, else the first that writes.
pub(super) fn preferred(names: &[ModelName]) -> Option<&ModelName> {
    let contains = |name: &ModelName, part: &str| name.as_str().to_lowercase().contains(part);
    let writes = |name: &&ModelName| !WRITES_NOTHING.iter().any(|part| contains(name, part));
    let for_programs = names.iter().filter(writes).find(|name| contains(name, FOR_PROGRAMS));
    for_programs.or_else(|| names.iter().find(writes)).or_else(|| names.first())
}

/// The preferred model of the server's list. A server without a list serves one model, whatever it is called.
fn list(
    service: &Service,
    limit: Duration,
    cancellation: &Cancellation,
) -> Result<(ModelName, Option<String>), DraftFault> {
    let url = format!("{}/models", service.base_url);
    let mut reply = fetch(&url, bearer(service.key.as_ref()), &service.route, limit, cancellation)?;
    if matches!(reply.status, 404 | 405 | 501) {
        return Ok((service.model.clone(), None));
    }
    reply.key.clone_from(&service.key);
    let names = names(&reply.json()?);
    match preferred(&names) {
        None => Err(DraftFault::Rejected(format!(
            "{url} lists no model; load one into the server, or name one with --model"
        ))),
        Some(only) if names.len() == 1 => Ok((only.clone(), None)),
        Some(model) => {
            let shown: Vec<&str> = names.iter().take(MAX_SHOWN).map(ModelName::as_str).collect();
            let more = if names.len() > MAX_SHOWN { ", …" } else { "" };
            let notice = format!(
                "{} serves {} models ({}{more}); {model} is asked, because no model is named: choose with --model",
                service.base_url,
                names.len(),
                shown.join(", ")
            );
            Ok((model.clone(), Some(notice)))
        }
    }
}

/// The names in a list of models, as OpenAI's form has it. Names that no request can carry are left out.
fn names(body: &Value) -> Vec<ModelName> {
    let listed = body.get("data").and_then(Value::as_array).into_iter().flatten();
    let named = |model: &Value| model.get("id")?.as_str()?.parse().ok();
    listed.take(MAX_LISTED).filter_map(named).collect()
}
