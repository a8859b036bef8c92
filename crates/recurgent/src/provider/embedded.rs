//! The embedded model: a model on this machine that an engine process runs.
//!
//! This side only connects to the engine, starts it when it does not run, and asks. What both sides say is in
//! `specs/engine-protocol.md`.

mod client;
mod launch;
mod protocol;

use std::path::PathBuf;

use lifecycle::dialect::function_name;
use lifecycle::draft::{Draft, DraftFault, Usage, salvage};
use lifecycle::inference::read_reply;
use lifecycle::prompt::{Prompt, PromptForm};
use serde_json::Value;

pub use client::{EngineClient, EngineFailure};
pub use launch::{EngineLaunch, LOG_FILE, SOCKET_FILE, is_own_peer, prepare_folder};
pub use protocol::{
    AnswerEnding, AnswerForm, EngineAnswer, EngineReply, EngineRequest, EngineStatus, EngineUsage,
    FrameReader, GenerateRequest, GeneratedText, LineFault, MAX_REPLY_BYTES, MAX_REQUEST_BYTES,
    PROTOCOL_VERSION, reply_line, request_line,
};

use super::choose::ProviderOptions;
use super::{DraftRequest, ModelProgress, Provider};

/// Most tokens of one answer, unless configured.
pub(super) const OUTPUT_TOKENS: u32 = 1024;
/// Sampling of a first attempt and of a retry, unless configured: small models rarely repair a program but may write
/// another.
pub(super) const TEMPERATURES: (f64, f64) = (0.0, 0.8);
/// Programs that are written and compared for a fresh call, unless configured.
const CANDIDATES: u32 = 5;
/// The share of probability that is sampled from.
const TOP_P: f32 = 0.95;
/// Characters of an unreadable answer that are shown.
const SHOWN_CHARS: usize = 160;

/// A model file that the engine runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddedModel {
    /// What it is called.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// Why this model was chosen.
    pub why: String,
}

/// Asks the engine for programs.
#[derive(Debug)]
pub(super) struct Embedded {
    model: EmbeddedModel,
    client: EngineClient,
    temperature: f64,
    retry_temperature: f64,
    max_output_tokens: u32,
}

impl Embedded {
    pub(super) fn new(model: EmbeddedModel, options: &ProviderOptions) -> Self {
        let (first, retry) = TEMPERATURES;
        Self {
            model,
            client: EngineClient::new(options.engine.clone()),
            temperature: options.temperature.unwrap_or(first),
            retry_temperature: options.retry_temperature.or(options.temperature).unwrap_or(retry),
            max_output_tokens: options.max_output_tokens.unwrap_or(OUTPUT_TOKENS),
        }
    }

    /// Several programs that are compared must differ, so they are sampled at the temperature of a retry. Only the first
    /// one is the most probable program, because it is taken when no two agree.
    #[expect(clippy::cast_possible_truncation, reason = "a temperature has few digits")]
    fn request(
        &self,
        prompt: &Prompt,
        request: &DraftRequest<'_>,
        form: AnswerForm,
        samples: usize,
    ) -> GenerateRequest {
        let longest = request.max_output_tokens.unwrap_or(u32::MAX).min(self.max_output_tokens);
        let is_varied = request.is_retry || request.sample > 0 || samples > 1;
        let temperature = if is_varied { self.retry_temperature } else { self.temperature };
        GenerateRequest {
            model: self.model.path.clone(),
            system: prompt.system.clone(),
            user: prompt.user.clone(),
            form,
            samples,
            temperature: temperature as f32,
            most_probable_first: samples > 1 && !request.is_retry,
            top_p: TOP_P,
            seed: request.seed.wrapping_add(request.sample as u64),
            max_tokens: longest,
        }
    }

    /// Has the engine write answers, and counts their tokens.
    fn generate(
        &self,
        prompt: &Prompt,
        request: &DraftRequest<'_>,
        form: AnswerForm,
        samples: usize,
    ) -> Result<EngineTexts, DraftFault> {
        let order = self.request(prompt, request, form, samples);
        let mut listener = |progress: &ModelProgress| request.progress.report(*progress);
        let answer =
            self.client.generate_with(&order, request.timeout, request.cancellation, &mut listener);
        let answer = answer.map_err(|failure| failure.into_draft_fault(request.timeout))?;
        let usage = Usage {
            input_tokens: answer.usage.prompt_tokens,
            output_tokens: answer.usage.output_tokens,
            cached_tokens: answer.usage.reused_tokens,
            ..Usage::default()
        };
        Ok(EngineTexts { answers: answer.texts, usage })
    }

    /// One answer for each sample, or one fault for all. The prompt is charged to the first answer.
    fn ask(
        &self,
        prompt: &Prompt,
        request: &DraftRequest<'_>,
        samples: usize,
    ) -> Result<Vec<Result<Draft, DraftFault>>, DraftFault> {
        let EngineTexts { answers, usage: total } =
            self.generate(prompt, request, form(prompt, request), samples)?;
        if answers.is_empty() {
            return Err(DraftFault::Charged(Box::new(no_answer()), total));
        }
        let drafts = answers.into_iter().enumerate().map(|(index, text)| {
            let usage = if index == 0 { total } else { Usage::default() };
            draft_of(text, prompt, request, usage)
        });
        Ok(drafts.collect())
    }
}

/// The object that holds the answer to a question, or to the one item of a batch.
fn object_form(schema: &Value) -> AnswerForm {
    let (opening, closing, answer) = match schema.pointer("/properties/answers/items") {
        Some(entry) => ("{\"answers\": [{\"item\": 1, \"answer\": ", "}]}", entry),
        None => ("{\"answer\": ", "}", schema),
    };
    let value = answer.pointer("/properties/answer").map(value_start).unwrap_or_default();
    AnswerForm::Object { opening: opening.to_owned(), value, closing: closing.to_owned() }
}

/// The beginning that every value of a schema has, as far as it is known. Since a small model continues the type that was
/// begun, this makes it keep to the schema.
fn value_start(schema: &Value) -> String {
    match schema.get("type").and_then(Value::as_str) {
        Some("string") => "\"".to_owned(),
        Some("array") => "[".to_owned(),
        Some("object") => {
            let required = schema.pointer("/required/0").and_then(Value::as_str);
            let first =
                required.and_then(|name| Some((name, schema.get("properties")?.get(name)?)));
            first.map_or_else(
                || "{".to_owned(),
                |(name, of)| format!("{{{}: {}", Value::String(name.to_owned()), value_start(of)),
            )
        }
        Some(_) | None => String::new(),
    }
}

/// The form of an answer: a program that begins with the head of the prompt or, without a head, any text.
fn form(prompt: &Prompt, request: &DraftRequest<'_>) -> AnswerForm {
    match &prompt.head {
        Some(head) => AnswerForm::Program {
            language: request.language.name().to_owned(),
            head: head.clone(),
            method: function_name(request.language, request.method.as_str()),
        },
        None => AnswerForm::Text,
    }
}

/// What the engine wrote, and what it cost.
struct EngineTexts {
    answers: Vec<GeneratedText>,
    usage: Usage,
}

fn no_answer() -> DraftFault {
    DraftFault::Unavailable("the engine sent no answer".to_owned())
}

/// The text of an answer, unless it was cut off.
fn complete_text(answer: GeneratedText) -> Result<String, DraftFault> {
    match answer.ending {
        AnswerEnding::Length => Err(DraftFault::Truncated),
        AnswerEnding::Cancelled => Err(DraftFault::Cancelled),
        AnswerEnding::Stop | AnswerEnding::Repetition => Ok(answer.text),
    }
}

fn draft_of(
    text: GeneratedText,
    prompt: &Prompt,
    request: &DraftRequest<'_>,
    usage: Usage,
) -> Result<Draft, DraftFault> {
    let charged = |fault| DraftFault::Charged(Box::new(fault), usage);
    let text = complete_text(text).map_err(charged)?;
    let has_program = prompt.head.is_some() || salvage(&text).is_some();
    if has_program && !text.trim().is_empty() {
        Ok(Draft::of_program(request.language, &text, usage))
    } else {
        Err(charged(unreadable(&text)))
    }
}

impl Provider for Embedded {
    fn draft(&self, prompt: &Prompt, request: &DraftRequest<'_>) -> Result<Draft, DraftFault> {
        self.drafts(prompt, request, 1).into_iter().next().unwrap_or_else(|| Err(no_answer()))
    }

    /// With a schema the engine is forced to write a JSON object around the answer; without one it writes any text. The
    /// caller checks the answer.
    fn infer(
        &self,
        prompt: &Prompt,
        schema: Option<&Value>,
        request: &DraftRequest<'_>,
    ) -> Result<Draft, DraftFault> {
        let form = schema.map_or(AnswerForm::Text, object_form);
        let texts = self.generate(prompt, request, form, 1)?;
        let usage = texts.usage;
        let charged = |fault| DraftFault::Charged(Box::new(fault), usage);
        let answer = texts.answers.into_iter().next();
        let answer = answer.ok_or_else(|| charged(no_answer()))?;
        let text = complete_text(answer).map_err(charged)?;
        let payload = read_reply(&text, schema.is_some()).map_err(charged)?;
        Ok(Draft { payload, usage })
    }

    fn is_local(&self) -> bool {
        true
    }

    /// All samples are written after one reading of the prompt.
    fn drafts(
        &self,
        prompt: &Prompt,
        request: &DraftRequest<'_>,
        count: usize,
    ) -> Vec<Result<Draft, DraftFault>> {
        self.ask(prompt, request, count).unwrap_or_else(|fault| vec![Err(fault)])
    }

    fn candidates(&self) -> u32 {
        CANDIDATES
    }

    /// A small model writes programs better than JSON that holds programs.
    fn form(&self) -> PromptForm {
        PromptForm::Program
    }

    fn model<'a>(&'a self, _asked: &'a str) -> &'a str {
        &self.model.name
    }

    fn max_output_tokens(&self) -> u32 {
        self.max_output_tokens
    }
}

fn unreadable(text: &str) -> DraftFault {
    let start: String = text.trim().chars().take(SHOWN_CHARS).collect();
    DraftFault::Malformed(format!("the answer has no program; it begins: {start:?}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_beginning_of_an_answer_follows_from_its_schema() {
        for (schema, start) in [
            (json!({"type": "string", "enum": ["a"]}), "\""),
            (json!({"type": "integer"}), ""),
            (json!({"type": ["string", "null"]}), ""),
            (json!({"type": "array", "items": {"type": "string"}}), "["),
            (json!({"type": "object", "properties": {}}), "{"),
            (
                json!({"type": "object", "required": ["n\"m"], "properties": {"a": {}, "n\"m": {"type": "string"}}}),
                "{\"n\\\"m\": \"",
            ),
        ] {
            assert_eq!(value_start(&schema), start, "{schema}");
        }
        let many = json!({"properties": {"answers": {"items": {"properties": {"answer": {"type": "string"}}}}}});
        let expected = AnswerForm::Object {
            opening: "{\"answers\": [{\"item\": 1, \"answer\": ".to_owned(),
            value: "\"".to_owned(),
            closing: "}]}".to_owned(),
        };
        assert_eq!(object_form(&many), expected);
    }
}
