//! One request to a model service: a deadline for all of it, an early end when the caller gives up, a
//! bound on what is read, and a typed fault for everything else that can happen.

use std::io::Read as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use lifecycle::draft::DraftFault;
use serde_json::Value;
use ureq::http::HeaderMap;

use super::secret::Secret;
use crate::guest::Cancellation;

/// Most bytes of one reply that are read: far more than any program needs.
const MAX_REPLY_BYTES: u64 = 8 * 1024 * 1024;
/// Most bytes of a reply's header.
const MAX_HEADER_BYTES: usize = 64 * 1024;
/// Time to reach a service.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);
/// How often a waiting caller looks whether it was cancelled.
const GLANCE: Duration = Duration::from_millis(25);
/// Requests under way in a process, those whose callers gave up included.
const MAX_REQUESTS: usize = 256;
/// Characters of a service's own words that are passed on.
const MAX_SAID_CHARS: usize = 400;

static REQUESTS: AtomicUsize = AtomicUsize::new(0);

/// How a service is reached.
#[derive(Debug, Clone, Default)]
pub(super) struct Route {
    /// The proxy to go through, as configured; never taken from the environment.
    pub(super) proxy: Option<Secret>,
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
pub(super) struct Reply {
    pub(super) status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

/// Sends `post` and waits for its reply: until `deadline`, and no longer than the caller does.
///
/// The request has a thread of its own, because reaching a host cannot be interrupted. When the caller
/// gives up the connection is closed, which ends the thread; only one still resolving or connecting
/// lives on, to the end of [`CONNECT_LIMIT`] at most.
pub(super) fn send(
    post: Post,
    route: &Route,
    limit: Duration,
    cancellation: &Cancellation,
) -> Result<Reply, DraftFault> {
    let slot = Slot::take()?;
    let deadline = Instant::now() + limit;
    let agent = agent(route, limit)?;
    let (sender, receiver) = sync_channel(1);
    let worker = agent.clone();
    let spawned = std::thread::Builder::new().name("recurgent-model".to_owned()).spawn(move || {
        let _slot = slot;
        // Nobody may be waiting any more.
        let _ = sender.send(exchange(&worker, &post));
    });
    spawned
        .map_err(|error| DraftFault::Unavailable(format!("no thread for a request: {error}")))?;
    let answer = wait(&receiver, deadline, cancellation);
    agent.shutdown();
    match answer {
        Ok(reply) => reply.map_err(|fault| fault.judged(limit)),
        Err(Gone::Cancelled) => Err(DraftFault::Cancelled),
        Err(Gone::Late) => Err(DraftFault::TimedOut(limit)),
        Err(Gone::Lost) => {
            Err(DraftFault::Unavailable("the request was lost; try again".to_owned()))
        }
    }
}

/// Why nothing was waited for any longer.
enum Gone {
    Cancelled,
    Late,
    Lost,
}

fn wait(
    receiver: &Receiver<Result<Reply, TransportFault>>,
    deadline: Instant,
    cancellation: &Cancellation,
) -> Result<Result<Reply, TransportFault>, Gone> {
    loop {
        if cancellation.is_cancelled() {
            return Err(Gone::Cancelled);
        }
        let left = deadline.checked_duration_since(Instant::now()).ok_or(Gone::Late)?;
        match receiver.recv_timeout(left.min(GLANCE)) {
            Ok(answer) => return Ok(answer),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(Gone::Lost),
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
    let proxy = match &route.proxy {
        // Its message would show the address, credentials included.
        Some(address) => Some(ureq::Proxy::new(address.reveal()).map_err(|_| {
            DraftFault::Rejected(
                "provider_proxy is no proxy address; use http://host:port".to_owned(),
            )
        })?),
        None => None,
    };
    let config = ureq::Agent::config_builder()
        .proxy(proxy)
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

/// Why there is no reply.
enum TransportFault {
    Late,
    TooLong,
    Broken(String),
}

impl TransportFault {
    fn judged(self, limit: Duration) -> DraftFault {
        match self {
            Self::Late => DraftFault::TimedOut(limit),
            Self::TooLong => DraftFault::Unavailable(format!(
                "the reply has more than {MAX_REPLY_BYTES} bytes; is base_url a model service?"
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
        if is_late { Self::Late } else { Self::Broken(error.to_string()) }
    }
}

fn exchange(agent: &ureq::Agent, post: &Post) -> Result<Reply, TransportFault> {
    let mut request = agent.post(&post.url).content_type("application/json");
    for (name, value) in &post.headers {
        request = request.header(*name, value.reveal());
    }
    let mut response = request.send(post.body.to_string())?;
    let mut body = Vec::new();
    // One byte more than may be, so that too much is seen.
    let read = response.body_mut().as_reader().take(MAX_REPLY_BYTES + 1).read_to_end(&mut body);
    match read {
        Ok(_) if body.len() as u64 > MAX_REPLY_BYTES => Err(TransportFault::TooLong),
        Ok(_) => Ok(Reply {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body,
        }),
        Err(error) => Err(ureq::Error::from(error).into()),
    }
}

impl Reply {
    /// The JSON of a success, or the fault that anything else is.
    pub(super) fn json(self) -> Result<Value, DraftFault> {
        let status = self.status;
        if !(200..300).contains(&status) {
            return Err(self.fault());
        }
        serde_json::from_slice(&self.body).map_err(|_| {
            DraftFault::Unavailable(format!(
                "the service answered {status} with {} instead of JSON: {}; is base_url right?",
                self.kind(),
                self.said()
            ))
        })
    }

    /// The fault a status stands for. What services document:
    /// 401, 403 the key; 402 and some 429 the account; 429 the rate; 408, 409 and 5xx (529 too) the
    /// service; every other 4xx, and redirects, this request.
    fn fault(&self) -> DraftFault {
        let status = self.status;
        let message = format!("the model service answered {status}: {}", self.said());
        let retry_after = self.retry_after();
        match status {
            401 | 403 => DraftFault::Auth(format!("{message}; check the key and what it may use")),
            402 => DraftFault::Auth(format!("{message}; the account cannot pay for this")),
            429 if self.cannot_pay() => {
                DraftFault::Auth(format!("{message}; the account's credit or limit is used up"))
            }
            400 if self.text().contains("API_KEY_INVALID") => {
                DraftFault::Auth(format!("{message}; check the key"))
            }
            429 => DraftFault::RateLimited { message, retry_after },
            408 | 409 | 425 | 500..=599 => DraftFault::Overloaded { message, retry_after },
            300..=399 => DraftFault::Rejected(format!(
                "the model service redirects ({status}){}; set base_url to where it is",
                self.header("location").map_or(String::new(), |to| format!(" to {}", short(to)))
            )),
            404 => DraftFault::Rejected(format!("{message}; check model and base_url")),
            _ => DraftFault::Rejected(message),
        }
    }

    /// Codes of services for accounts without credit: waiting does not help.
    fn cannot_pay(&self) -> bool {
        let Ok(body) = serde_json::from_slice::<Value>(&self.body) else { return false };
        let error = body.get("error");
        let codes = [
            error.and_then(|error| error.get("code")),
            error.and_then(|error| error.get("type")),
            error.and_then(|error| error.pointer("/details/error_code")),
        ];
        codes.into_iter().flatten().filter_map(Value::as_str).any(|code| {
            matches!(
                code,
                "insufficient_quota"
                    | "credit_balance_exhausted"
                    | "billing_hard_limit_reached"
                    | "enforced_spend_limit_reached"
            )
        })
    }

    /// How long the service asks us to wait: `retry-after-ms`, `retry-after` in seconds or as a date, or
    /// Google's `retryDelay`.
    fn retry_after(&self) -> Option<Duration> {
        let millis = self.header("retry-after-ms").and_then(|text| text.trim().parse::<f64>().ok());
        if let Some(millis) = millis {
            return Duration::try_from_secs_f64(millis / 1000.0).ok();
        }
        let asked = self.header("retry-after").and_then(|text| after(text, SystemTime::now()));
        asked.or_else(|| {
            let body = serde_json::from_slice::<Value>(&self.body).ok()?;
            let details = body.pointer("/error/details")?.as_array()?;
            let delay = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str())?;
            Duration::try_from_secs_f64(delay.strip_suffix('s')?.parse().ok()?).ok()
        })
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
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
        let body = serde_json::from_slice::<Value>(&self.body).ok();
        let pointers = ["/error/message", "/0/error/message", "/message", "/detail", "/error"];
        let message = body
            .as_ref()
            .and_then(|body| pointers.iter().find_map(|pointer| body.pointer(pointer)?.as_str()));
        match message {
            Some(message) => short(message),
            None => short(&self.text()),
        }
    }
}

/// On one line, cut.
fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_SAID_CHARS) {
        None => line,
        Some((cut, _)) => format!("{}…", line.get(..cut).unwrap_or_default()),
    }
}

/// A `retry-after`: seconds, or the date to come back at.
fn after(text: &str, now: SystemTime) -> Option<Duration> {
    if let Ok(seconds) = text.trim().parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text.trim()).ok()?;
    let now = jiff::Timestamp::try_from(now).ok()?;
    Some(Duration::try_from(date.duration_since(now)).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_read_in_every_form() {
        let now: SystemTime = "2026-11-15T18:00:00Z".parse::<jiff::Timestamp>().unwrap().into();
        for (text, millis) in [
            ("7", Some(7_000)),
            (" 0.5 ", Some(500)),
            ("Sun, 15 Nov 2026 18:00:09 GMT", Some(9_000)),
            ("Sun, 15 Nov 2026 17:00:00 GMT", Some(0)),
            ("-1", None),
            ("soon", None),
            ("NaN", None),
        ] {
            assert_eq!(after(text, now), millis.map(Duration::from_millis), "{text}");
        }
    }
}
