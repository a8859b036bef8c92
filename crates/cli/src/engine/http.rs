//! The engine over HTTP on loopback, in OpenAI's chat form, for programs that speak nothing else.
//!
//! One request per connection. A page in a browser cannot use it: requests must be JSON, which makes a browser ask
//! first, and name this machine as their host.

mod message;

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use recurgent::models::ModelFolder;
use recurgent::provider::ModelProgress;
use recurgent::provider::engine::{AnswerEnding, AnswerForm, EngineAnswer, GenerateRequest};
use serde_json::{Value, json};

use super::queue::{Audience, QueuedRequest, RequestFault, RequestQueue};
use super::socket::is_closed;
use super::{HttpOptions, MAX_CONNECTIONS};
use crate::exit::CommandFault;
use crate::render;
use message::{HttpRequest, read_request};

/// Time a client has to send its request.
const READ_LIMIT: Duration = Duration::from_mins(1);
/// Time a client may take to read a piece of the answer.
const WRITE_LIMIT: Duration = Duration::from_secs(10);
/// Tokens of an answer whose request names no limit.
const DEFAULT_TOKENS: u32 = 1024;
/// Most tokens of an answer.
const MAX_TOKENS: u64 = 1 << 20;
/// Strings at which an answer is cut.
const MAX_STOPS: usize = 8;

/// Listens on a port of loopback, in a thread of its own.
pub(super) fn start(
    options: HttpOptions,
    models: Option<ModelFolder>,
    queue: &Arc<RequestQueue>,
) -> Result<(), CommandFault> {
    let port = options.port;
    let fault = |error: io::Error| {
        CommandFault::setup(format!("cannot listen at port {port}: {error}; choose another one"))
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(fault)?;
    let address = listener.local_addr().map_err(fault)?;
    render::note(&format!("listening at http://{address}/v1"));
    let site = Arc::new(HttpSite { models, token: options.token, queue: Arc::clone(queue) });
    let serve = move || {
        for stream in listener.incoming().flatten() {
            let Some(connection) = site.queue.connection(MAX_CONNECTIONS) else { continue };
            let site = Arc::clone(&site);
            let _ = thread::Builder::new().name("http".to_owned()).spawn(move || {
                let _connection = connection;
                site.answer(stream);
            });
        }
    };
    thread::Builder::new().name("http".to_owned()).spawn(serve).map_err(fault)?;
    Ok(())
}

struct HttpSite {
    models: Option<ModelFolder>,
    token: Option<String>,
    queue: Arc<RequestQueue>,
}

/// A reply that is an error: its status and what is wrong.
struct HttpFault(u16, String);

impl HttpSite {
    fn answer(&self, stream: TcpStream) {
        let limits = stream
            .set_read_timeout(Some(READ_LIMIT))
            .and_then(|()| stream.set_write_timeout(Some(WRITE_LIMIT)));
        if limits.is_err() {
            return;
        }
        let request = match read_request(&stream) {
            Ok(request) => request,
            Err(message::Unreadable::Gone) => return,
            Err(message::Unreadable::Wrong(status, problem)) => {
                return send_json(&stream, status, &error_json(&problem));
            }
        };
        match self.route(&request) {
            Ok(Routed::Json(body)) => send_json(&stream, 200, &body),
            Ok(Routed::Chat(chat)) => {
                let job = QueuedRequest {
                    request: chat.request.clone(),
                    audience: Box::new(HttpClient {
                        stream,
                        chat,
                        is_broken: false,
                        streamed: false,
                    }),
                };
                self.queue.add(job);
            }
            Err(HttpFault(status, problem)) => send_json(&stream, status, &error_json(&problem)),
        }
    }

    fn route(&self, request: &HttpRequest) -> Result<Routed, HttpFault> {
        if !request.is_for_this_machine() {
            return Err(HttpFault(403, "the host must be localhost or 127.0.0.1".to_owned()));
        }
        if let Some(token) = &self.token
            && request.bearer() != Some(token.as_str())
        {
            return Err(HttpFault(401, "the token is missing or wrong".to_owned()));
        }
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/v1/models") => Ok(Routed::Json(self.models_json())),
            ("POST", "/v1/chat/completions") => {
                if !request.is_json() {
                    return Err(HttpFault(415, "content-type must be application/json".to_owned()));
                }
                let body = serde_json::from_slice(&request.body)
                    .map_err(|error| HttpFault(400, format!("the body is not JSON: {error}")))?;
                self.chat(&body).map(Routed::Chat)
            }
            (_, "/v1/models" | "/v1/chat/completions") => {
                Err(HttpFault(405, "another method is needed here".to_owned()))
            }
            _ => Err(HttpFault(404, "there are /v1/models and /v1/chat/completions".to_owned())),
        }
    }

    fn models_json(&self) -> Value {
        let installed = self.models.as_ref().map(ModelFolder::installed).unwrap_or_default();
        let entry = |name: &str| json!({"id": name, "object": "model", "owned_by": "recurgent"});
        let models: Vec<Value> = installed.iter().map(|model| entry(&model.name)).collect();
        json!({"object": "list", "data": models})
    }

    /// The file of the model a request names. `default` and names that are not installed mean the loaded or first one:
    /// programs made for a service send its names.
    fn model(&self, name: Option<&str>) -> Result<PathBuf, HttpFault> {
        let folder = self.models.as_ref();
        let named = folder.and_then(|folder| folder.find(Some(name?)));
        let first = || self.queue.model().or_else(|| Some(folder?.find(None)?.path));
        named.map(|model| model.path).or_else(first).ok_or_else(|| {
            HttpFault(404, "no model is installed; run `recurgent model install`".to_owned())
        })
    }

    fn chat(&self, body: &Value) -> Result<Chat, HttpFault> {
        let wrong = |problem: &str| HttpFault(400, problem.to_owned());
        let format = body.pointer("/response_format/type").and_then(Value::as_str);
        if format.is_some_and(|format| format != "text") {
            return Err(wrong("response_format is not supported; ask for text"));
        }
        let name = body.get("model").and_then(Value::as_str);
        let messages = body.get("messages").and_then(Value::as_array);
        let (system, user) = turns(messages.ok_or_else(|| wrong("messages are missing"))?)
            .ok_or_else(|| wrong("each message needs a role and a content that is text"))?;
        let number = |field: &str| body.get(field).and_then(Value::as_f64);
        let count = |field: &str| body.get(field).and_then(Value::as_u64);
        let limit = count("max_completion_tokens").or_else(|| count("max_tokens"));
        let limit = limit.map(|limit| limit.min(MAX_TOKENS));
        let max_tokens = limit.and_then(|limit| u32::try_from(limit).ok());
        let stops = match body.get("stop") {
            Some(Value::String(stop)) => vec![stop.clone()],
            Some(Value::Array(stops)) => {
                stops.iter().filter_map(Value::as_str).map(str::to_owned).take(MAX_STOPS).collect()
            }
            Some(_) | None => Vec::new(),
        };
        Ok(Chat {
            name: name.unwrap_or("default").to_owned(),
            is_stream: body.get("stream").and_then(Value::as_bool).unwrap_or_default(),
            stops,
            request: GenerateRequest {
                model: self.model(name)?,
                system,
                user,
                form: AnswerForm::Text,
                samples: count("n").and_then(|n| usize::try_from(n).ok()).unwrap_or(1),
                temperature: as_f32(number("temperature").unwrap_or(1.0)),
                most_probable_first: false,
                top_p: as_f32(number("top_p").unwrap_or(1.0)),
                seed: count("seed").unwrap_or_default(),
                max_tokens: max_tokens.unwrap_or(DEFAULT_TOKENS),
            },
        })
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a share or a temperature has few digits")]
fn as_f32(number: f64) -> f32 {
    number as f32
}

/// The system part and the user part. The engine knows one turn of each; earlier turns are quoted in the user part.
fn turns(messages: &[Value]) -> Option<(String, String)> {
    let mut system = Vec::new();
    let mut rest = Vec::new();
    for message in messages {
        let role = message.get("role")?.as_str()?;
        let text = content(message.get("content")?)?;
        match role {
            "system" | "developer" => system.push(text),
            _ => rest.push((role, text)),
        }
    }
    let user = match rest.as_slice() {
        [(_, text)] => text.clone(),
        turns => turns
            .iter()
            .map(|(role, text)| format!("[{role}]\n{text}"))
            .collect::<Vec<_>>()
            .join("\n\n"),
    };
    Some((system.join("\n\n"), user))
}

/// Text, or parts that are texts.
fn content(content: &Value) -> Option<String> {
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => parts.iter().map(|part| part.get("text")?.as_str()).collect(),
        Value::Null => Some(String::new()),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

enum Routed {
    Json(Value),
    Chat(Chat),
}

/// A chat request, and how its answer is written.
#[derive(Debug, Clone)]
struct Chat {
    name: String,
    is_stream: bool,
    stops: Vec<String>,
    request: GenerateRequest,
}

impl Chat {
    fn envelope(&self, object: &str, choices: &[Value]) -> Value {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        json!({
            "id": format!("chatcmpl-{}", since.as_nanos()), "object": object,
            "created": since.as_secs(), "model": self.name, "choices": choices,
        })
    }

    fn completion(&self, answer: &EngineAnswer) -> Value {
        let choice = |(index, text): (usize, &recurgent::provider::engine::GeneratedText)| {
            let (content, was_cut) = self.cut(&text.text);
            let finish = finish_reason(if was_cut { AnswerEnding::Stop } else { text.ending });
            json!({
                "index": index, "finish_reason": finish,
                "message": {"role": "assistant", "content": content},
            })
        };
        let choices: Vec<Value> = answer.texts.iter().enumerate().map(choice).collect();
        let mut body = self.envelope("chat.completion", &choices);
        if let Some(fields) = body.as_object_mut() {
            let usage = &answer.usage;
            let used = json!({
                "prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.output_tokens,
                "total_tokens": usage.prompt_tokens + usage.output_tokens,
                "prompt_tokens_details": {"cached_tokens": usage.reused_tokens},
            });
            fields.insert("usage".to_owned(), used);
        }
        body
    }

    /// The text before the first stop string, and whether there was one.
    fn cut<'a>(&self, text: &'a str) -> (&'a str, bool) {
        let ends = self.stops.iter().filter(|stop| !stop.is_empty());
        let end = ends.filter_map(|stop| text.find(stop.as_str())).min();
        match end.and_then(|end| text.get(..end)) {
            Some(before) => (before, true),
            None => (text, false),
        }
    }
}

fn finish_reason(ending: AnswerEnding) -> &'static str {
    match ending {
        AnswerEnding::Length => "length",
        AnswerEnding::Stop | AnswerEnding::Repetition | AnswerEnding::Cancelled => "stop",
    }
}

/// A client over HTTP.
struct HttpClient {
    stream: TcpStream,
    chat: Chat,
    is_broken: bool,
    /// Whether pieces of the answer were sent.
    streamed: bool,
}

impl HttpClient {
    /// Sends a piece of a streamed answer.
    fn send_event(&mut self, choice: Value) {
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        let text = if self.streamed { "" } else { head };
        self.streamed = true;
        let chunk = self.chat.envelope("chat.completion.chunk", &[choice]);
        let piece = format!("{text}data: {chunk}\n\n");
        self.is_broken |= self.stream.write_all(piece.as_bytes()).is_err();
    }
}

impl Audience for HttpClient {
    fn report(&mut self, _progress: &ModelProgress) {}

    fn add_text(&mut self, sample: usize, text: &str) {
        if self.chat.is_stream && !text.is_empty() {
            let delta = json!({"role": "assistant", "content": text});
            self.send_event(json!({"index": sample, "delta": delta, "finish_reason": null}));
        }
    }

    fn is_gone(&self) -> bool {
        self.is_broken || is_closed(&self.stream)
    }

    fn finish(mut self: Box<Self>, answer: Result<EngineAnswer, RequestFault>) {
        match answer {
            Ok(answer) if self.chat.is_stream => {
                for (index, text) in answer.texts.iter().enumerate() {
                    let finish = finish_reason(text.ending);
                    self.send_event(json!({"index": index, "delta": {}, "finish_reason": finish}));
                }
                let _ = self.stream.write_all(b"data: [DONE]\n\n");
            }
            Ok(answer) => send_json(&self.stream, 200, &self.chat.completion(&answer)),
            // The connection just ends: the client sees an answer without an end.
            Err(_) if self.streamed => {}
            Err(fault) => {
                let status = if fault.is_transient { 503 } else { 400 };
                send_json(&self.stream, status, &error_json(&fault.message));
            }
        }
    }
}

fn error_json(problem: &str) -> Value {
    json!({"error": {"message": problem, "type": "invalid_request_error"}})
}

fn send_json(mut stream: &TcpStream, status: u16, body: &Value) {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status} {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        reason(status),
        body.len()
    );
    // A client that is gone needs no answer.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
    let _ = stream.shutdown(std::net::Shutdown::Write);
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        411 => "Length Required",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        431 => "Request Header Fields Too Large",
        _ => "Service Unavailable",
    }
}
