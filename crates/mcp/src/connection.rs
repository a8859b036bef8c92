//! One connection to a server: started, spoken to, and ended with its process.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lifecycle::redact::NamedSecrets;
use recurgent::config::{McpServerOptions, McpTransport};
use recurgent::json::{Map, Value};
use recurgent::toolbox::{MAX_METHODS, OutsideOrigin, OutsideTool, ToolFault, plain};
use recurgent::worker::outside_process::{OutsideCommand, OutsideProcess, OutsideSandbox};
use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, Implementation,
    PaginatedRequestParams, ProtocolVersion, Tool,
};
use rmcp::service::{ClientInitializeError, NotificationContext, RunningService, ServiceError};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt as _, RoleClient};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;

use crate::content;

/// Longest message of a server.
const MAX_MESSAGE_BYTES: usize = 8 << 20;
/// Pages of the list of tools that are read.
const MAX_PAGES: usize = 64;
/// Bytes kept of a process's standard error.
const MAX_STDERR_BYTES: usize = 4096;
/// Characters of standard error that a message shows.
const SHOWN_STDERR_CHARS: usize = 300;
/// Characters of a protocol error that a message shows.
const SHOWN_FAULT_CHARS: usize = 400;
/// Time a server on the network may take to accept a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Time in which the last output of a process that has ended arrives.
const STDERR_WAIT: Duration = Duration::from_millis(100);

/// The client side of a connection. A server can request nothing of it, and can notify it that its tools have changed.
#[derive(Debug, Clone, Default)]
struct Client {
    changed: Arc<AtomicBool>,
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let own = Implementation::new("recurgent", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), own)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.changed.store(true, Ordering::SeqCst);
    }
}

/// An open connection to a server.
pub(crate) struct Connection {
    service: RunningService<RoleClient, Client>,
    changed: Arc<AtomicBool>,
    /// Ended when the connection is dropped.
    process: Option<Mutex<OutsideProcess>>,
    /// The end of the process's standard error.
    stderr_tail: Arc<Mutex<Vec<u8>>>,
    /// What no message may say.
    secrets: NamedSecrets,
    /// The revision of the protocol in use.
    pub(crate) revision: Option<String>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("revision", &self.revision).finish_non_exhaustive()
    }
}

impl Connection {
    /// Starts a server's process, or connects to its address. `revision` is the revision of the protocol that it used
    /// before.
    pub(crate) async fn open(
        options: McpServerOptions,
        sandbox: Arc<OutsideSandbox>,
        revision: Option<String>,
    ) -> Result<Self, ToolFault> {
        let client = Client::default();
        let changed = Arc::clone(&client.changed);
        let stderr_tail: Arc<Mutex<Vec<u8>>> = Arc::default();
        let lifecycle = lifecycle(revision.as_deref());
        let secrets = secrets(&options.transport);
        let (service, process) = match &options.transport {
            McpTransport::Stdio { program, arguments, variables } => {
                let command = OutsideCommand {
                    program: program.clone(),
                    arguments: arguments.iter().map(OsString::from).collect(),
                    variables: variables
                        .iter()
                        .map(|(name, text)| (name.into(), text.into()))
                        .collect(),
                    grants: options.grants.clone(),
                    uncontained: options.uncontained,
                };
                let unusable = |error: std::io::Error| {
                    ToolFault::Unreachable(format!("it cannot be started: {error}"))
                };
                let mut process = sandbox.start_server(&command).map_err(unusable)?;
                let streams = (process.stdin.take(), process.stdout.take(), process.stderr.take());
                let (Some(stdin), Some(stdout), Some(stderr)) = streams else {
                    return Err(ToolFault::Unreachable("it has no streams".to_owned()));
                };
                let stdin = pipe::Sender::from_owned_fd(stdin).map_err(unusable)?;
                let stdout = pipe::Receiver::from_owned_fd(stdout).map_err(unusable)?;
                let stderr = pipe::Receiver::from_owned_fd(stderr).map_err(unusable)?;
                tokio::spawn(keep_tail(stderr, Arc::clone(&stderr_tail)));
                let transport =
                    AsyncRwTransport::new(stdout, stdin).with_max_line_length(MAX_MESSAGE_BYTES);
                let served = client.serve_with_lifecycle(transport, lifecycle).await;
                match served {
                    Ok(service) => (service, Some(Mutex::new(process))),
                    Err(error) => {
                        let how =
                            if process.has_ended() { "it ended" } else { "it does not speak MCP" };
                        tokio::time::sleep(STDERR_WAIT).await;
                        let note = stderr_note(&stderr_tail, &secrets);
                        return Err(cannot_open(how, &error, &note, &secrets));
                    }
                }
            }
            McpTransport::Http { url, headers } => {
                let transport = http_transport(url, headers)?;
                let served = client.serve_with_lifecycle(transport, lifecycle).await;
                let service = served.map_err(|error| {
                    cannot_open("it cannot be connected to", &error, "", &secrets)
                })?;
                (service, None)
            }
        };
        let revision = service.peer_info().map(|info| info.protocol_version.to_string());
        Ok(Self { service, changed, process, stderr_tail, secrets, revision })
    }

    /// Whether it can no longer be used.
    pub(crate) fn is_closed(&self) -> bool {
        let ended = self.process.as_ref().is_some_and(|process| {
            process.lock().unwrap_or_else(PoisonError::into_inner).has_ended()
        });
        ended || self.service.is_closed() || self.service.is_transport_closed()
    }

    /// Whether it said that its tools have changed since they were listed last.
    pub(crate) fn has_changed(&self) -> bool {
        self.changed.load(Ordering::SeqCst)
    }

    /// The number of its process.
    pub(crate) fn pid(&self) -> Option<i32> {
        let process = self.process.as_ref()?;
        Some(process.lock().unwrap_or_else(PoisonError::into_inner).pid())
    }

    /// Its tools, of a bounded number of pages.
    pub(crate) async fn list(
        &self,
        name: &str,
        reads_only: &[String],
    ) -> Result<OutsideTool, ToolFault> {
        self.changed.store(false, Ordering::SeqCst);
        let mut tools: Vec<Tool> = Vec::new();
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let page = PaginatedRequestParams::default().with_cursor(cursor);
            let page = self.service.list_tools(Some(page)).await;
            let page = page.map_err(|error| self.fault(&error))?;
            tools.extend(page.tools);
            cursor = page.next_cursor;
            if cursor.is_none() || tools.len() > MAX_METHODS {
                break;
            }
        }
        let definitions = tools.iter().map(|tool| content::definition(tool, reads_only)).collect();
        Ok(OutsideTool::new(name, OutsideOrigin::Mcp, definitions))
    }

    /// Calls a tool by its server's own name.
    pub(crate) async fn call(
        &self,
        tool: String,
        arguments: Map<String, Value>,
    ) -> Result<Value, ToolFault> {
        let arguments = serde_json::to_standard(&Value::Object(arguments));
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        let params = CallToolRequestParams::new(tool).with_arguments(arguments);
        match self.service.call_tool(params).await {
            Ok(result) => match content::result(&result) {
                Err(ToolFault::Failed(text)) => {
                    Err(ToolFault::Failed(self.secrets.out_of_text(text)))
                }
                answer => answer,
            },
            Err(error) => Err(self.fault(&error)),
        }
    }

    /// The fault of a failed exchange. An error that the server itself returns is a failure of the tool.
    fn fault(&self, error: &ServiceError) -> ToolFault {
        if let ServiceError::McpError(returned) = error {
            let message = self.secrets.out_of_text(returned.message.to_string());
            return ToolFault::Failed(plain(&message, SHOWN_FAULT_CHARS));
        }
        if let ServiceError::Timeout { timeout } = error {
            return ToolFault::TimedOut(*timeout);
        }
        let problem = plain(&self.secrets.out_of_text(error.to_string()), SHOWN_FAULT_CHARS);
        let note = stderr_note(&self.stderr_tail, &self.secrets);
        ToolFault::Unreachable(format!("its connection ended ({problem}){note}"))
    }
}

/// The values of an entry that no message may repeat: variables with the name of a secret, headers, and what an address
/// has beside its host and path.
fn secrets(transport: &McpTransport) -> NamedSecrets {
    let mut secrets = NamedSecrets::default();
    match transport {
        McpTransport::Stdio { variables, .. } => {
            for (name, text) in variables {
                secrets.note(name, &Value::from(text.as_str()));
            }
        }
        McpTransport::Http { url, headers } => {
            let mut note = |text: &str| secrets.note("secret", &Value::from(text));
            for (_, text) in headers {
                note(text);
                // `Bearer TOKEN`
                note(text.split_whitespace().last().unwrap_or_default());
            }
            if let Ok(url) = Url::parse(url) {
                note(url.query().unwrap_or_default());
                note(url.password().unwrap_or_default());
                url.query_pairs().for_each(|(_, value)| note(&value));
            }
        }
    }
    secrets
}

/// An address as people may see it: without its query, and without a name and a password.
pub(crate) fn address_without_secrets(address: &str) -> String {
    let Ok(mut url) = Url::parse(address) else { return "(not an address)".to_owned() };
    // They fail for addresses without a host, which hold neither.
    let _ = (url.set_username(""), url.set_password(None));
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}

/// How a connection begins: as it did with the revision that the server used before. Otherwise the newest revision is tried
/// first, and then the last one that has a handshake.
fn lifecycle(revision: Option<&str>) -> ClientLifecycleMode {
    let newest = ProtocolVersion::V_2026_07_28;
    match revision {
        Some(known) if known < newest.as_str() => ClientLifecycleMode::Initialize,
        Some(_) | None => ClientLifecycleMode::Auto {
            preferred_versions: vec![newest],
            legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
        },
    }
}

/// The fault of a connection that cannot be opened.
fn cannot_open(
    how: &str,
    error: &ClientInitializeError,
    note: &str,
    secrets: &NamedSecrets,
) -> ToolFault {
    let problem = plain(&secrets.out_of_text(error.to_string()), SHOWN_FAULT_CHARS);
    ToolFault::Unreachable(format!("{how} ({problem}){note}"))
}

/// The end of a process's standard error, to be added to a message.
fn stderr_note(tail: &Mutex<Vec<u8>>, secrets: &NamedSecrets) -> String {
    let tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
    let text = secrets.out_of_text(String::from_utf8_lossy(&tail).into_owned());
    let text = plain(&text, MAX_STDERR_BYTES);
    let skipped = text.chars().count().saturating_sub(SHOWN_STDERR_CHARS);
    let text: String = text.chars().skip(skipped).collect();
    if text.is_empty() { text } else { format!("; it reported: {text}") }
}

/// Reads a process's standard error and keeps its end.
async fn keep_tail(mut stderr: pipe::Receiver, tail: Arc<Mutex<Vec<u8>>>) {
    let mut buffer = vec![0; MAX_STDERR_BYTES];
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend_from_slice(buffer.get(..count).unwrap_or_default());
        let excess = tail.len().saturating_sub(MAX_STDERR_BYTES);
        tail.drain(..excess);
    }
}

/// Headers go to this address only: redirects are not followed, and no proxy is used.
fn http_transport(
    url: &str,
    headers: &[(String, String)],
) -> Result<StreamableHttpClientTransport<reqwest::Client>, ToolFault> {
    let invalid = |what: &str| ToolFault::Unreachable(format!("the header {what} cannot be sent"));
    let mut custom: HashMap<HeaderName, HeaderValue> = HashMap::new();
    for (name, text) in headers {
        let header: HeaderName = name.parse().map_err(|_| invalid(name))?;
        let mut value: HeaderValue = text.parse().map_err(|_| invalid(name))?;
        value.set_sensitive(true);
        custom.insert(header, value);
    }
    // Fails if it was installed before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder()
        .redirect(Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT_LIMIT)
        .build()
        .map_err(|error| ToolFault::Unreachable(error.to_string()))?;
    let config = StreamableHttpClientTransportConfig::with_uri(url)
        .custom_headers(custom)
        .max_sse_event_size(MAX_MESSAGE_BYTES)
        .reinit_on_expired_session(true);
    Ok(StreamableHttpClientTransport::with_client(client, config))
}
