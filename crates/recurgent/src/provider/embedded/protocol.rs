//! What the engine and its clients say: JSON lines, one request per connection. `specs/engine-protocol.md` describes it.

use std::io::{self, Read};
use std::path::PathBuf;

use lifecycle::event::ModelProgress;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

/// The version that both sides must have.
pub const PROTOCOL_VERSION: u64 = 1;
/// Most bytes of a request.
pub const MAX_REQUEST_BYTES: usize = 8 << 20;
/// Most bytes of one line of a reply.
pub const MAX_REPLY_BYTES: usize = 16 << 20;
/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 16 * 1024;

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineRequest {
    /// Text.
    Generate(GenerateRequest),
    /// What the engine does.
    Status,
    /// That the engine ends.
    Stop,
}

/// A prompt, and how it is answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GenerateRequest {
    /// The file of the model.
    pub model: PathBuf,
    /// The part of the prompt that is the same for many requests.
    pub system: String,
    /// The part that differs.
    pub user: String,
    /// What the answer is.
    #[serde(default)]
    pub form: AnswerForm,
    /// The number of answers.
    #[serde(default = "one")]
    pub samples: usize,
    /// How freely tokens are chosen.
    #[serde(default)]
    pub temperature: f32,
    /// The first of several answers takes the most probable token each time.
    #[serde(default)]
    pub most_probable_first: bool,
    /// The share of probability that is sampled from.
    #[serde(default = "all")]
    pub top_p: f32,
    /// The start of the random numbers.
    #[serde(default)]
    pub seed: u64,
    /// Most tokens of each answer.
    pub max_tokens: u32,
}

fn one() -> usize {
    1
}

fn all() -> f32 {
    1.0
}

/// What an answer is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerForm {
    /// Any text.
    #[default]
    Text,
    /// One JSON object around one value.
    Object {
        /// How the object begins.
        opening: String,
        /// How the value begins.
        value: String,
        /// How the object ends after the value.
        closing: String,
    },
    /// A program that defines one function.
    Program {
        /// The language, as `provider` settings name it.
        language: String,
        /// The line that begins the function.
        head: String,
        /// The name of the function.
        method: String,
    },
}

/// What the engine says. The last line of a connection is not progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineReply {
    /// How far it is.
    Progress(ModelProgress),
    /// The answers.
    Answer(EngineAnswer),
    /// What it does.
    Status(EngineStatus),
    /// It ends.
    Stopping,
    /// It cannot do what was asked.
    Fault {
        /// Whether the same request may succeed later.
        is_transient: bool,
        /// What happened, and what to do next.
        message: String,
    },
}

/// The answers to one request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EngineAnswer {
    /// Each answer.
    pub texts: Vec<GeneratedText>,
    /// What they cost.
    pub usage: EngineUsage,
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GeneratedText {
    /// The text.
    pub text: String,
    /// Its tokens.
    pub tokens: u64,
    /// Why it ended.
    pub ending: AnswerEnding,
    /// The sum of the logarithms of its tokens' probabilities.
    #[serde(default)]
    pub log_probability: f32,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerEnding {
    /// It is complete.
    Stop,
    /// It reached the limit.
    Length,
    /// It began to repeat itself.
    Repetition,
    /// The client hung up.
    Cancelled,
}

/// What a request cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct EngineUsage {
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Of them, those that were computed before.
    pub reused_tokens: u64,
    /// Tokens of all answers, with those that were taken back.
    pub output_tokens: u64,
    /// Time for reading the prompt.
    pub prompt_seconds: f64,
    /// Time for writing the answers.
    pub answer_seconds: f64,
}

/// What an engine does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EngineStatus {
    /// Its process.
    pub pid: u32,
    /// The version of the program.
    pub version: String,
    /// The model that is loaded.
    pub model: Option<PathBuf>,
    /// Requests that wait or are answered.
    pub requests: usize,
    /// Requests that were answered.
    pub answered: u64,
    /// Its memory.
    pub memory_bytes: u64,
    /// Time since it started.
    pub running_seconds: u64,
    /// Time without a request after which it ends.
    pub idle_limit_seconds: u64,
}

/// Why a line is not a frame.
#[derive(Debug, Error)]
pub enum LineFault {
    /// The other side hung up.
    #[error("the connection was closed")]
    Closed,
    /// A line is too long.
    #[error("a line has more than {0} bytes")]
    TooLong(usize),
    /// The other side has another version.
    #[error(
        "the other side speaks version {found} of the engine protocol, and this one version {PROTOCOL_VERSION}; stop the engine with `recurgent model stop`, then try again"
    )]
    Version {
        /// What it says.
        found: String,
    },
    /// The line is not a message.
    #[error("a line is not a message of the engine protocol: {0}")]
    Malformed(String),
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Broken(#[from] io::Error),
}

/// A request as a line.
pub fn request_line(request: &EngineRequest) -> Result<Vec<u8>, LineFault> {
    line("request", request, MAX_REQUEST_BYTES)
}

/// A reply as a line.
pub fn reply_line(reply: &EngineReply) -> Result<Vec<u8>, LineFault> {
    line("reply", reply, MAX_REPLY_BYTES)
}

fn line(field: &str, message: &impl Serialize, limit: usize) -> Result<Vec<u8>, LineFault> {
    let message =
        serde_json::to_string(message).map_err(|error| LineFault::Malformed(error.to_string()))?;
    let line = format!("{{\"protocol\":{PROTOCOL_VERSION},\"{field}\":{message}}}\n");
    if line.len() > limit {
        return Err(LineFault::TooLong(limit));
    }
    Ok(line.into_bytes())
}

/// Reads lines that another process writes.
#[derive(Debug)]
pub struct FrameReader<R> {
    source: R,
    buffer: Vec<u8>,
    limit: usize,
}

impl<R: Read> FrameReader<R> {
    /// Reads lines of at most `limit` bytes.
    pub fn new(source: R, limit: usize) -> Self {
        Self { source, buffer: Vec::new(), limit }
    }

    /// The stream.
    pub fn source(&self) -> &R {
        &self.source
    }

    /// The next request.
    pub fn request(&mut self) -> Result<EngineRequest, LineFault> {
        self.message("request")
    }

    /// The next reply. A time limit of the stream is a fault `Broken`, after which reading can go on.
    pub fn reply(&mut self) -> Result<EngineReply, LineFault> {
        self.message("reply")
    }

    fn message<T: DeserializeOwned>(&mut self, field: &str) -> Result<T, LineFault> {
        let line = self.line()?;
        let malformed = |error: serde_json::Error| LineFault::Malformed(error.to_string());
        let mut frame: Value = serde_json::from_slice(&line).map_err(malformed)?;
        match frame.get("protocol") {
            Some(version) if version.as_u64() == Some(PROTOCOL_VERSION) => {}
            Some(version) => return Err(LineFault::Version { found: version.to_string() }),
            None => return Err(LineFault::Version { found: "none".to_owned() }),
        }
        let message = frame.as_object_mut().and_then(|fields| fields.remove(field));
        let message = message.ok_or_else(|| LineFault::Malformed(format!("no `{field}`")))?;
        serde_json::from_value(message).map_err(malformed)
    }

    fn line(&mut self) -> Result<Vec<u8>, LineFault> {
        let mut searched = 0;
        loop {
            let fresh = self.buffer.get(searched..).unwrap_or_default();
            if let Some(end) = memchr::memchr(b'\n', fresh) {
                let rest = self.buffer.split_off(searched + end + 1);
                return Ok(std::mem::replace(&mut self.buffer, rest));
            }
            searched = self.buffer.len();
            if searched > self.limit {
                return Err(LineFault::TooLong(self.limit));
            }
            let mut chunk = [0; CHUNK_BYTES];
            match self.source.read(&mut chunk) {
                Ok(0) => return Err(LineFault::Closed),
                Ok(read) => self.buffer.extend(chunk.iter().take(read)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generate() -> EngineRequest {
        EngineRequest::Generate(GenerateRequest {
            model: "/models/a.gguf".into(),
            system: "s\n".to_owned(),
            user: "ü".to_owned(),
            form: AnswerForm::Program {
                language: "python".to_owned(),
                head: "def total(items):".to_owned(),
                method: "total".to_owned(),
            },
            samples: 3,
            temperature: 0.5,
            most_probable_first: false,
            top_p: 0.25,
            seed: 1 << 47,
            max_tokens: 64,
        })
    }

    #[test]
    fn requests_and_replies_survive_the_way() {
        for request in [generate(), EngineRequest::Status, EngineRequest::Stop] {
            let line = request_line(&request).unwrap();
            let read = FrameReader::new(line.as_slice(), MAX_REQUEST_BYTES).request().unwrap();
            assert_eq!(read, request);
        }
        let usage = EngineUsage { prompt_tokens: 4, answer_seconds: 0.25, ..Default::default() };
        let text = GeneratedText {
            text: "a\nb".to_owned(),
            tokens: 2,
            ending: AnswerEnding::Stop,
            log_probability: -1.5,
        };
        let replies = [
            EngineReply::Progress(ModelProgress::Queued(2)),
            EngineReply::Progress(ModelProgress::Reading { done: 1, total: 2 }),
            EngineReply::Answer(EngineAnswer { texts: vec![text], usage }),
            EngineReply::Stopping,
            EngineReply::Fault { is_transient: true, message: "m".to_owned() },
        ];
        let lines: Vec<u8> = replies.iter().flat_map(|reply| reply_line(reply).unwrap()).collect();
        let mut reader = FrameReader::new(lines.as_slice(), MAX_REPLY_BYTES);
        for reply in replies {
            assert_eq!(reader.reply().unwrap(), reply);
        }
        assert!(matches!(reader.reply(), Err(LineFault::Closed)));
    }

    #[test]
    fn hostile_lines_are_refused() {
        let read = |bytes: &[u8]| FrameReader::new(bytes, 100).request();
        let check = |bytes: &[u8], part: &str| {
            let fault = read(bytes).unwrap_err().to_string();
            assert!(fault.contains(part), "{}: {fault}", String::from_utf8_lossy(bytes));
        };
        check(b"", "closed");
        check(b"{\"protocol\":1", "closed");
        check(&[b'x'; 200], "more than 100 bytes");
        check(b"\n", "not a message");
        check(b"\xff\xfe\n", "not a message");
        check(b"[]\n", "version none");
        check(b"{\"request\":\"status\"}\n", "version none");
        check(b"{\"protocol\":2,\"request\":\"status\"}\n", "version 2");
        check(b"{\"protocol\":\"1\",\"request\":\"status\"}\n", "version \"1\"");
        check(b"{\"protocol\":1,\"request\":\"run\"}\n", "not a message");
        check(b"{\"protocol\":1}\n", "no `request`");
        check(b"{\"protocol\":1,\"request\":{\"generate\":{}}}\n", "not a message");
        let known = b"{\"protocol\":1,\"request\":\"status\",\"later\":[1]}\n";
        assert_eq!(read(known).unwrap(), EngineRequest::Status, "unknown fields are ignored");
    }
}
