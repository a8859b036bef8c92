//! One request to a model service: a deadline for all of it, an early end when the caller gives up, a
//! bound on what is read, and a typed fault for everything else that can happen.

use std::io::{self, BufReader, Read as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use lifecycle::draft::DraftFault;
use lifecycle::event::ModelProgress;
use lifecycle::excerpt::shortened;
use serde_json::Value;
use ureq::http::{HeaderMap, Response, StatusCode};
use ureq::tls::{RootCerts, TlsConfig};

use super::secret::Secret;
use super::setting::ProxyAddress;
use super::stream::Streaming;
use super::{ProgressListener, ProviderFault, delay};
use crate::guest::Cancellation;

/// Most bytes of one reply that are read: far more than any program needs.
const MAX_REPLY_BYTES: u64 = 8 * 1024 * 1024;
/// Most bytes of a reply's header.
const MAX_HEADER_BYTES: usize = 64 * 1024;
/// Time to reach a service.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);
/// How often a waiting caller looks whether it was cancelled.
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// Requests under way in a process, those whose callers gave up included.
const MAX_REQUESTS: usize = 256;
/// Reports of progress that may wait for the caller; it misses those that come while more wait.
const MAX_WAITING_REPORTS: usize = 16;
/// Characters of a service's own words that are passed on.
const MAX_SAID_CHARS: usize = 400;

static REQUESTS: AtomicUsize = AtomicUsize::new(0);

/// How a service is reached.
#[derive(Debug, Clone, Default)]
pub(super) struct Route {
    /// The proxy to go through, as configured; never taken from the environment.
    pub(super) proxy: Option<ProxyAddress>,
    /// The authorities that certify services, instead of the public ones.
    pub(super) roots: Option<RootCerts>,
}

impl Route {
    fn proxy(&self) -> Result<Option<ureq::Proxy>, DraftFault> {
        let proxy = self.proxy.as_ref().map(|address| {
            let fault = || DraftFault::Rejected(ProviderFault::Proxy.to_string());
            address.for_services().ok_or_else(fault)
        });
        proxy.transpose()
    }
}

/// One request.
#[derive(Debug)]
pub(super) struct Post {
    pub(super) url: String,
    pub(super) headers: Vec<(&'static str, Secret)>,
    pub(super) body: Value,
}

/// What came back, whatever its status.
#[derive(Debug)]
pub(super) struct HttpReply {
    pub(super) status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
    /// The key that was sent: keys echoed by a service are redacted.
    pub(super) key: Option<Secret>,
}

/// Sends `post` and waits for its reply: for `limit`, and no longer than the caller does. Each piece of a reply that comes
/// in pieces is reported as a token.
pub(super) fn send(
    post: Post,
    route: &Route,
    limit: Duration,
    cancellation: &Cancellation,
    progress: ProgressListener<'_>,
) -> Result<HttpReply, DraftFault> {
    in_thread(route, limit, cancellation, progress, move |agent, sender| {
        exchange(agent, &post, sender)
    })
}

/// Reads what is at an address, within the same bounds.
pub(super) fn fetch(
    url: &str,
    headers: Vec<(&'static str, Secret)>,
    route: &Route,
    limit: Duration,
    cancellation: &Cancellation,
) -> Result<HttpReply, DraftFault> {
    let url = url.to_owned();
    in_thread(route, limit, cancellation, ProgressListener::default(), move |agent, sender| {
        let mut request = agent.get(&url);
        for (name, value) in &headers {
            request = request.header(*name, value.reveal());
        }
        read_reply(request.call()?, sender)
    })
}

/// Makes a request and waits for its reply.
///
/// The request has a thread of its own, because reaching a host cannot be interrupted. When the caller
/// gives up the connection is closed, which ends the thread; only one still resolving or connecting
/// lives on, to the end of [`CONNECT_LIMIT`] at most.
fn in_thread(
    route: &Route,
    limit: Duration,
    cancellation: &Cancellation,
    progress: ProgressListener<'_>,
    request: impl FnOnce(&ureq::Agent, &SyncSender<Received>) -> Result<HttpReply, TransportFault>
    + Send
    + 'static,
) -> Result<HttpReply, DraftFault> {
    let slot = Slot::take()?;
    let deadline = Instant::now() + limit;
    let agent = agent(route, limit)?;
    let (sender, receiver) = sync_channel(MAX_WAITING_REPORTS);
    let worker = agent.clone();
    let spawned = std::thread::Builder::new().name("recurgent-model".to_owned()).spawn(move || {
        let _slot = slot;
        // The caller may have left.
        let _ = sender.send(Received::Reply(request(&worker, &sender)));
    });
    spawned
        .map_err(|error| DraftFault::Unavailable(format!("no thread for a request: {error}")))?;
    let answer = wait(&receiver, deadline, cancellation, progress);
    agent.shutdown();
    match answer {
        Ok(reply) => reply.map_err(|fault| fault.judged(limit)),
        Err(NoReply::Cancelled) => Err(DraftFault::Cancelled),
        Err(NoReply::Late) => Err(DraftFault::TimedOut(limit)),
        Err(NoReply::Lost) => {
            Err(DraftFault::Unavailable("the request was lost; try again".to_owned()))
        }
    }
}

/// What the thread of a request sends to its caller.
enum Received {
    /// So many pieces of the reply are there.
    Pieces(u64),
    Reply(Result<HttpReply, TransportFault>),
}

/// Why a wait ended without a reply.
enum NoReply {
    Cancelled,
    Late,
    Lost,
}

fn wait(
    receiver: &Receiver<Received>,
    deadline: Instant,
    cancellation: &Cancellation,
    progress: ProgressListener<'_>,
) -> Result<Result<HttpReply, TransportFault>, NoReply> {
    loop {
        if cancellation.is_cancelled() {
            return Err(NoReply::Cancelled);
        }
        let left = deadline.checked_duration_since(Instant::now()).ok_or(NoReply::Late)?;
        match receiver.recv_timeout(left.min(POLL_INTERVAL)) {
            Ok(Received::Reply(answer)) => return Ok(answer),
            Ok(Received::Pieces(tokens)) => progress.report(ModelProgress::Writing { tokens }),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(NoReply::Lost),
        }
    }
}

/// One of the requests a process may have under way.
struct Slot;

impl Slot {
    fn take() -> Result<Self, DraftFault> {
        let taken = REQUESTS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| {
            (count < MAX_REQUESTS).then_some(count + 1)
        });
        taken.map(|_| Self).map_err(|count| {
            DraftFault::Unavailable(format!("{count} model requests are under way; wait for some"))
        })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        REQUESTS.fetch_sub(1, Ordering::SeqCst);
    }
}

fn agent(route: &Route, limit: Duration) -> Result<ureq::Agent, DraftFault> {
    let roots = route.roots.clone().unwrap_or(RootCerts::WebPki);
    let config = ureq::Agent::config_builder()
        .proxy(route.proxy()?)
        .tls_config(TlsConfig::builder().root_certs(roots).build())
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .max_response_header_size(MAX_HEADER_BYTES)
        .max_idle_connections(0)
        .timeout_global(Some(limit))
        .timeout_connect(Some(CONNECT_LIMIT.min(limit)))
        .timeout_resolve(Some(CONNECT_LIMIT.min(limit)))
        .user_agent(concat!("recurgent/", env!("CARGO_PKG_VERSION")))
        .build();
    Ok(config.new_agent())
}

/// Why a request has no reply.
enum TransportFault {
    Late,
    TooLong,
    /// No trusted authority certifies the service.
    Untrusted(String),
    /// The proxy refused the connection.
    Barred(String),
    Broken(String),
}

impl TransportFault {
    fn judged(self, limit: Duration) -> DraftFault {
        match self {
            Self::Late => DraftFault::TimedOut(limit),
            Self::TooLong => DraftFault::Unavailable(format!(
                "the reply has more than {MAX_REPLY_BYTES} bytes; is base_url a model service?"
            )),
            Self::Untrusted(problem) => DraftFault::Rejected(format!(
                "the model service is not trusted: {problem}; if its authority is one of your own, name its certificate in provider_ca_file"
            )),
            Self::Barred(problem) => DraftFault::Unavailable(format!(
                "the proxy does not lead to the model service: {problem}; check provider_proxy"
            )),
            Self::Broken(problem) => DraftFault::Unavailable(format!(
                "the model service cannot be reached: {problem}; check base_url and the network"
            )),
        }
    }
}

impl From<ureq::Error> for TransportFault {
    fn from(error: ureq::Error) -> Self {
        let is_slow = |error: &std::io::Error| error.kind() == std::io::ErrorKind::TimedOut;
        let is_late = matches!(&error, ureq::Error::Timeout(_))
            || matches!(&error, ureq::Error::Io(io) if is_slow(io));
        // Without a connection no model was asked.
        let is_unconnected =
            matches!(&error, ureq::Error::Timeout(ureq::Timeout::Resolve | ureq::Timeout::Connect));
        let problem = error.to_string();
        if is_unconnected {
            Self::Broken(problem)
        } else if is_late {
            Self::Late
        } else if let ureq::Error::ConnectProxyFailed(problem) = error {
            Self::Barred(problem)
        } else if problem.contains("invalid peer certificate") {
            Self::Untrusted(problem)
        } else {
            Self::Broken(problem)
        }
    }
}

fn exchange(
    agent: &ureq::Agent,
    post: &Post,
    sender: &SyncSender<Received>,
) -> Result<HttpReply, TransportFault> {
    let mut request = agent.post(&post.url).content_type("application/json");
    for (name, value) in &post.headers {
        request = request.header(*name, value.reveal());
    }
    read_reply(request.send(post.body.to_string())?, sender)
}

fn read_reply(
    mut response: Response<ureq::Body>,
    sender: &SyncSender<Received>,
) -> Result<HttpReply, TransportFault> {
    let mut body = Vec::new();
    let is_in_pieces = comes_in_pieces(response.headers());
    // One byte more than may be, so that too much is seen.
    let mut reader = response.body_mut().as_reader().take(MAX_REPLY_BYTES + 1);
    let read = if is_in_pieces {
        read_pieces(BufReader::new(reader), &mut body, sender)
    } else {
        reader.read_to_end(&mut body).map(drop)
    };
    match read {
        Ok(()) if body.len() as u64 > MAX_REPLY_BYTES => Err(TransportFault::TooLong),
        Ok(()) => Ok(HttpReply {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body,
            key: None,
        }),
        Err(error) => Err(ureq::Error::from(error).into()),
    }
}

/// Whether a reply is a stream of server-sent events.
fn comes_in_pieces(headers: &HeaderMap) -> bool {
    let kind = headers.get("content-type").and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
}

/// Reads server-sent events and reports how many there are.
fn read_pieces(
    mut reader: impl io::BufRead,
    body: &mut Vec<u8>,
    sender: &SyncSender<Received>,
) -> io::Result<()> {
    let mut pieces = 0;
    loop {
        let start = body.len();
        if reader.read_until(b'\n', body)? == 0 {
            return Ok(());
        }
        if body.get(start..).is_some_and(|line| line.starts_with(b"data:")) {
            pieces += 1;
            // The caller misses a report if it is slow.
            let _ = sender.try_send(Received::Pieces(pieces));
        }
    }
}

impl HttpReply {
    /// The reply in one piece, if it came in several.
    pub(super) fn joined(self, streaming: &Streaming) -> Result<Self, DraftFault> {
        if !comes_in_pieces(&self.headers) {
            return Ok(self);
        }
        let Some(body) = streaming.joined(&self.text()) else {
            return Err(DraftFault::Unavailable(
                "the service's answer ended before it was complete; try again".to_owned(),
            ));
        };
        Ok(Self { body: body.to_string().into_bytes(), ..self })
    }

    /// The JSON of a success, or the fault that anything else is.
    pub(super) fn json(self) -> Result<Value, DraftFault> {
        let status = self.status;
        if !(200..300).contains(&status) {
            return Err(self.fault(status));
        }
        let Some(body) = self.parsed() else {
            return Err(DraftFault::Unavailable(format!(
                "the service answered {status} with {} instead of JSON: {}; is base_url right?",
                self.kind(),
                self.said()
            )));
        };
        // Gateways pass on a fault of the service behind them as a success. The Responses API reports its own by `status`.
        match body.get("error") {
            Some(Value::Object(error)) if body.get("status").is_none() => {
                let code = error.get("code").and_then(Value::as_u64);
                let code = code.and_then(|code| u16::try_from(code).ok());
                let code = code.filter(|code| (400..600).contains(code));
                Err(self.fault(code.unwrap_or(StatusCode::BAD_GATEWAY.as_u16())))
            }
            Some(_) | None => Ok(self.hiding(body)),
        }
    }

    fn parsed(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// A value without the key that was sent.
    fn hiding(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.hidden(text)),
            Value::Array(items) => items.into_iter().map(|item| self.hiding(item)).collect(),
            Value::Object(fields) => {
                let fields = fields.into_iter();
                fields.map(|(name, value)| (self.hidden(name), self.hiding(value))).collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value,
        }
    }

    fn hidden(&self, text: String) -> String {
        match &self.key {
            Some(key) => key.out_of(text),
            None => text,
        }
    }

    /// The fault a status stands for. What services document:
    /// 401, 403 the key; 402 and some 429 the account; 429 the rate; 408, 409 and 5xx (529 too) the
    /// service; every other 4xx, and redirects, this request.
    fn fault(&self, status: u16) -> DraftFault {
        let message = format!("the model service answered {status}: {}", self.said());
        let body = self.parsed();
        let retry_after = delay::asked_for(&self.headers, body.as_ref(), SystemTime::now());
        match status {
            401 | 403 => DraftFault::Auth(format!("{message}; check the key and what it may use")),
            402 => DraftFault::Auth(format!("{message}; the account cannot pay for this")),
            429 if body.as_ref().is_some_and(cannot_pay) => {
                DraftFault::Auth(format!("{message}; the account's credit or limit is used up"))
            }
            400 if body.as_ref().is_some_and(is_filtered) => DraftFault::Refused(message),
            400 if self.text().contains("API_KEY_INVALID") => {
                DraftFault::Auth(format!("{message}; check the key"))
            }
            429 => DraftFault::RateLimited { message, retry_after },
            408 | 409 | 425 | 500..=599 => DraftFault::Overloaded { message, retry_after },
            300..=399 => DraftFault::Rejected(format!(
                "the model service redirects ({status}){}; set base_url to where it is",
                self.location().map_or(String::new(), |to| format!(" to {to}"))
            )),
            404 => DraftFault::Rejected(format!("{message}; check model and base_url")),
            _ => DraftFault::Rejected(message),
        }
    }

    fn location(&self) -> Option<String> {
        let to = self.headers.get("location")?.to_str().ok()?;
        Some(short(&self.hidden(to.to_owned())))
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn kind(&self) -> &'static str {
        let text = self.text();
        let start = text.trim_start();
        if start.is_empty() {
            "nothing"
        } else if start.starts_with('<') {
            "a page"
        } else {
            "text"
        }
    }

    /// The service's own words, short.
    fn said(&self) -> String {
        let body = self.parsed();
        let pointers = ["/error/message", "/0/error/message", "/message", "/detail", "/error"];
        let message = body
            .as_ref()
            .and_then(|body| pointers.iter().find_map(|pointer| body.pointer(pointer)?.as_str()));
        let words = message.map_or_else(|| self.text(), str::to_owned);
        // Redacted before it is cut: half a key is half a secret.
        short(&self.hidden(words))
    }
}

/// Azure's filter answers before its models do.
fn is_filtered(body: &Value) -> bool {
    body.pointer("/error/code").and_then(Value::as_str) == Some("content_filter")
}

/// Codes of services for accounts without credit: waiting does not help.
fn cannot_pay(body: &Value) -> bool {
    let pointers = ["/error/code", "/error/type", "/error/details/error_code"];
    let mut codes = pointers.iter().filter_map(|pointer| body.pointer(pointer)?.as_str());
    codes.any(|code| {
        matches!(
            code,
            "insufficient_quota"
                | "credit_balance_exhausted"
                | "billing_hard_limit_reached"
                | "enforced_spend_limit_reached"
        )
    })
}

/// On one line, cut.
fn short(text: &str) -> String {
    shortened(&text.split_whitespace().collect::<Vec<_>>().join(" "), MAX_SAID_CHARS)
}
