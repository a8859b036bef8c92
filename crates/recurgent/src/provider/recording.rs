//! Recordings: the answers of a model, kept so that they can be replayed offline.
//!
//! A recording is a text file of JSON lines. The first is `{"recording":2,"model":…}`; then one line per
//! model call, in order: `key` (`role.method`; `infer:role.method` for a question of its program), `prompt` (a digest of the stable part, and the part that
//! describes this call, without secrets), its result (`payload` or `fault`), and `usage`. Between them are the
//! definitions of outside tools, and their calls (see [`crate::toolbox`]).
//!
//! A replay answers each key's requests in the order they were recorded. It opens no connection, and it
//! fails loudly when it is asked for more, or for something else than was recorded.

mod difference;
mod fault;

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use lifecycle::draft::{Draft, DraftFault, Usage};
use lifecycle::program::Checksum;
use lifecycle::prompt::{Prompt, PromptForm};
use lifecycle::redact::{NamedSecrets, redacted, redacted_text};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::price::Pricing;
use super::{DraftRequest, Provider, ProviderFault};
use crate::regular_file::read_regular;
use crate::toolbox::{RecordedToolLine, RecordedTools};
use difference::{difference, masked};
use fault::RecordedFault;

/// The format this module writes. Format 1 held payloads only; it is read as well.
const FORMAT: u32 = 2;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    recording: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// The tokens that are reserved before a model is asked depend on these; a recording written by hand reserves
    /// nothing.
    #[serde(default, skip_serializing_if = "is_zero")]
    max_output_tokens: u32,
    #[serde(default)]
    pricing: Pricing,
    /// What the prompts asked for.
    #[serde(default, skip_serializing_if = "PromptForm::is_default")]
    form: PromptForm,
    /// How many programs were asked for at once.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    candidates: u32,
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_one(count: &u32) -> bool {
    *count == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedReply {
    key: String,
    /// What was asked; a recording written by hand need not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prompt: Option<Asked>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fault: Option<RecordedFault>,
    #[serde(default)]
    usage: Usage,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    /// Of the stable part: other words for the same task do not make another request.
    system: Checksum,
    user: String,
}

impl Asked {
    fn of(prompt: &Prompt) -> Self {
        Self { system: Checksum::of(&prompt.system), user: clean(&prompt.user) }
    }
}

/// A prompt without its secrets, also where they stand without their names.
fn clean(prompt: &str) -> String {
    NamedSecrets::in_text(prompt).out_of_text(redacted_text(prompt.to_owned()))
}

/// Passes requests on and records every answer and fault.
#[derive(Debug)]
pub(crate) struct Recorder {
    inner: Arc<dyn Provider>,
    file: Arc<Mutex<File>>,
}

impl Recorder {
    /// Records what `inner` answers into a new file; `model` is what agents ask for unless they say.
    pub(crate) fn new(
        inner: Arc<dyn Provider>,
        model: &str,
        path: &Path,
    ) -> Result<Self, ProviderFault> {
        let fault = |error: std::io::Error| ProviderFault::File {
            path: path.display().to_string(),
            problem: format!("{error}; a recording is written to a new file"),
        };
        let header = Header {
            recording: FORMAT,
            model: Some(inner.model(model).to_owned()),
            max_output_tokens: inner.max_output_tokens(),
            pricing: inner.pricing(model),
            form: inner.form(),
            candidates: inner.candidates(),
        };
        // It contains prompts: only its owner may read it, as with the log.
        let file = File::options().write(true).create_new(true).mode(0o600).open(path);
        let mut file = file.map_err(fault)?;
        let line = serde_json::to_string(&header).map_err(|error| fault(error.into()))?;
        writeln!(file, "{line}").map_err(fault)?;
        Ok(Self { inner, file: Arc::new(Mutex::new(file)) })
    }

    /// The file, for the calls of outside tools.
    pub(crate) fn file(&self) -> Arc<Mutex<File>> {
        Arc::clone(&self.file)
    }

    fn write(&self, reply: &RecordedReply) -> Result<(), DraftFault> {
        let line = serde_json::to_string(reply).map_err(|error| {
            DraftFault::Malformed(format!("the answer cannot be recorded: {error}"))
        })?;
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(file, "{line}").map_err(|error| {
            DraftFault::Unavailable(format!("the recording cannot be written: {error}"))
        })
    }

    /// Records an answer or a fault, and passes it on.
    fn recorded(
        &self,
        prompt: &Prompt,
        key: String,
        result: Result<Draft, DraftFault>,
    ) -> Result<Draft, DraftFault> {
        let blank = RecordedReply {
            key,
            prompt: Some(Asked::of(prompt)),
            payload: None,
            fault: None,
            usage: Usage::default(),
        };
        match &result {
            Ok(draft) => {
                let named = NamedSecrets::in_text(&prompt.user);
                let payload = Some(named.out_of(redacted(draft.payload.clone())));
                self.write(&RecordedReply { payload, usage: draft.usage, ..blank })?;
            }
            Err(fault) => {
                // Faults that do not come from the service are not recorded.
                if let Some((fault, usage)) = RecordedFault::of(fault) {
                    self.write(&RecordedReply { fault: Some(fault), usage, ..blank })?;
                }
            }
        }
        result
    }
}

impl Provider for Recorder {
    fn draft(&self, prompt: &Prompt, request: &DraftRequest<'_>) -> Result<Draft, DraftFault> {
        self.recorded(prompt, request.key(), self.inner.draft(prompt, request))
    }

    fn infer(
        &self,
        prompt: &Prompt,
        schema: Option<&Value>,
        request: &DraftRequest<'_>,
    ) -> Result<Draft, DraftFault> {
        self.recorded(prompt, request.infer_key(), self.inner.infer(prompt, schema, request))
    }

    fn is_local(&self) -> bool {
        self.inner.is_local()
    }

    fn drafts(
        &self,
        prompt: &Prompt,
        request: &DraftRequest<'_>,
        count: usize,
    ) -> Vec<Result<Draft, DraftFault>> {
        let replies = self.inner.drafts(prompt, request, count);
        replies.into_iter().map(|reply| self.recorded(prompt, request.key(), reply)).collect()
    }

    fn candidates(&self) -> u32 {
        self.inner.candidates()
    }

    fn form(&self) -> PromptForm {
        self.inner.form()
    }

    fn model<'a>(&'a self, asked: &'a str) -> &'a str {
        self.inner.model(asked)
    }

    fn notice(&self) -> Option<String> {
        self.inner.notice()
    }

    fn pricing(&self, model: &str) -> Pricing {
        self.inner.pricing(model)
    }

    fn max_output_tokens(&self) -> u32 {
        self.inner.max_output_tokens()
    }
}

/// Answers from a recording.
#[derive(Debug)]
pub struct Replay {
    name: String,
    header: Header,
    replies: Mutex<BTreeMap<String, VecDeque<RecordedReply>>>,
    tools: Arc<RecordedTools>,
}

impl Replay {
    /// Reads a recording.
    pub fn from_file(path: &Path) -> Result<Self, ProviderFault> {
        let name = path.display().to_string();
        match read_regular(path) {
            Ok(text) => Self::from_text(&name, &text),
            Err(error) => Err(ProviderFault::File { path: name, problem: error.to_string() }),
        }
    }

    /// Reads a recording that is already in memory; `name` is used in messages.
    pub fn from_text(name: &str, text: &str) -> Result<Self, ProviderFault> {
        let fault = |line: usize, problem: String| ProviderFault::File {
            path: name.to_owned(),
            problem: format!("line {line}: {problem}"),
        };
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let (_, first) = lines.next().ok_or_else(|| fault(1, "it is empty".to_owned()))?;
        let header: Header = serde_json::from_str(first).map_err(|error| {
            fault(
                1,
                format!("not a recording ({error}); it must begin with {{\"recording\":{FORMAT}}}"),
            )
        })?;
        if !(1..=FORMAT).contains(&header.recording) {
            return Err(fault(
                1,
                format!(
                    "format {} is not known; this version reads formats 1 to {FORMAT}",
                    header.recording
                ),
            ));
        }
        let mut replies: BTreeMap<String, VecDeque<RecordedReply>> = BTreeMap::new();
        let mut tools = RecordedTools::default();
        for (index, line) in lines {
            if let Ok(line) = serde_json::from_str::<RecordedToolLine>(line) {
                tools.add(line);
                continue;
            }
            let reply: RecordedReply =
                serde_json::from_str(line).map_err(|error| fault(index + 1, error.to_string()))?;
            if reply.payload.is_some() == reply.fault.is_some() {
                return Err(fault(index + 1, "a reply has a payload or a fault".to_owned()));
            }
            replies.entry(reply.key.clone()).or_default().push_back(reply);
        }
        let (name, tools) = (name.to_owned(), Arc::new(tools));
        Ok(Self { name, header, replies: Mutex::new(replies), tools })
    }

    fn exhausted(&self, key: &str) -> DraftFault {
        let left: Vec<String> =
            self.unused().iter().map(|(key, count)| format!("{key} ×{count}")).collect();
        DraftFault::Diverged(format!(
            "{} holds no further reply for {key:?}; unused replies: {}. Record this run again",
            self.name,
            if left.is_empty() { "none".to_owned() } else { left.join(", ") }
        ))
    }

    /// The next reply of a key, if it was recorded for this prompt.
    fn replayed(&self, prompt: &Prompt, key: &str) -> Result<Draft, DraftFault> {
        let next = {
            let mut replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
            replies.get_mut(key).and_then(VecDeque::pop_front)
        };
        let reply = next.ok_or_else(|| self.exhausted(key))?;
        self.compare(&reply, prompt)?;
        let usage = reply.usage;
        match (reply.payload, reply.fault) {
            (Some(payload), _) => Ok(Draft { payload, usage }),
            (None, Some(fault)) => Err(fault.into_fault(usage)),
            (None, None) => Err(self.exhausted(key)),
        }
    }

    /// Whether this is what was asked when the reply was recorded.
    fn compare(&self, reply: &RecordedReply, prompt: &Prompt) -> Result<(), DraftFault> {
        let Some(recorded) = &reply.prompt else { return Ok(()) };
        // Older recordings redact less.
        let (now, then) = (clean(&prompt.user), clean(&recorded.user));
        if masked(&then) == masked(&now) {
            return Ok(());
        }
        Err(DraftFault::Diverged(format!(
            "{} was recorded for another request to {:?}:\n{}\nRecord this run again, or run it as it was recorded",
            self.name,
            reply.key,
            difference(&then, &now)
        )))
    }
}

impl Provider for Replay {
    fn draft(&self, prompt: &Prompt, request: &DraftRequest<'_>) -> Result<Draft, DraftFault> {
        self.replayed(prompt, &request.key())
    }

    fn infer(
        &self,
        prompt: &Prompt,
        _schema: Option<&Value>,
        request: &DraftRequest<'_>,
    ) -> Result<Draft, DraftFault> {
        self.replayed(prompt, &request.infer_key())
    }

    fn is_local(&self) -> bool {
        true
    }

    fn candidates(&self) -> u32 {
        self.header.candidates
    }

    fn form(&self) -> PromptForm {
        self.header.form
    }

    fn model<'a>(&'a self, asked: &'a str) -> &'a str {
        match &self.header.model {
            Some(model) if asked == "auto" => model,
            Some(_) | None => asked,
        }
    }

    fn pricing(&self, _model: &str) -> Pricing {
        self.header.pricing
    }

    fn max_output_tokens(&self) -> u32 {
        self.header.max_output_tokens
    }

    fn unused(&self) -> Vec<(String, usize)> {
        let replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        let left = replies.iter().filter(|(_, replies)| !replies.is_empty());
        let left = left.map(|(key, replies)| (key.clone(), replies.len()));
        left.chain(self.tools.unused()).collect()
    }

    fn recorded_tools(&self) -> Option<Arc<RecordedTools>> {
        Some(Arc::clone(&self.tools))
    }
}
