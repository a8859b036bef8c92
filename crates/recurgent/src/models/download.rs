//! A model from an http(s) address: continued where it stopped, and given up when nothing arrives.

use std::io::Read as _;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use ureq::tls::{RootCerts, TlsConfig};

use super::install::InstallRequest;
use super::partial::{PartialFile, SourceFault};
use crate::provider::{ProxyAddress, ServiceAddress, read_roots};

/// Time to reach a server.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);
/// Time without a byte after which a connection counts as broken.
const STALL_LIMIT: Duration = Duration::from_mins(1);
/// Time between two looks at whether the caller gave up.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Connections in a row that deliver nothing before the source counts as failed.
const MAX_EMPTY_CONNECTIONS: u32 = 2;
/// Redirections that are followed: hubs keep files elsewhere.
const MAX_REDIRECTS: u32 = 5;
/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 256 * 1024;
/// Chunks that are read ahead.
const CHUNKS_AHEAD: usize = 4;

/// What a connection delivers.
enum Delivery {
    /// The answer begins: its status.
    Status(u16),
    Chunk(Vec<u8>),
    Broken(String),
}

/// Fetches what is missing. A connection that breaks after it delivered something is made again.
pub(super) fn fetch(
    address: &str,
    partial: &mut PartialFile<'_>,
    request: &InstallRequest<'_>,
) -> Result<(), SourceFault> {
    let mut empty = 0;
    while partial.missing() > 0 {
        let before = partial.done();
        match fetch_once(address, partial, request) {
            Ok(()) => return Ok(()),
            Err(SourceFault::Source(_)) if partial.done() > before => empty = 0,
            Err(SourceFault::Source(_)) if before > 0 && empty + 1 < MAX_EMPTY_CONNECTIONS => {
                empty += 1;
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok(())
}

fn fetch_once(
    address: &str,
    partial: &mut PartialFile<'_>,
    request: &InstallRequest<'_>,
) -> Result<(), SourceFault> {
    let agent = agent(address, request)?;
    let (sender, receiver) = sync_channel(CHUNKS_AHEAD);
    let (worker, address, from) = (agent.clone(), address.to_owned(), partial.done());
    let spawned = std::thread::Builder::new()
        .name("recurgent-download".to_owned())
        .spawn(move || deliver(&worker, &address, from, &sender));
    spawned.map_err(|error| SourceFault::Source(format!("no thread for a download: {error}")))?;
    let answer = receive(&receiver, partial, request);
    drop(receiver); // the thread ends at its next chunk
    agent.shutdown();
    answer
}

fn agent(address: &str, request: &InstallRequest<'_>) -> Result<ureq::Agent, SourceFault> {
    let options = request.options;
    let fault = |problem: String| SourceFault::Source(problem);
    let roots = options.ca_file.as_deref().map(read_roots).transpose();
    let roots = roots.map_err(|problem| fault(problem.to_string()))?;
    let parsed = address.parse::<ServiceAddress>().map_err(|problem| fault(problem.to_string()))?;
    let proxy = options.proxy.as_ref().filter(|_| !parsed.is_this_machine());
    let config = ureq::Agent::config_builder()
        .proxy(proxy.and_then(ProxyAddress::for_services))
        .tls_config(TlsConfig::builder().root_certs(roots.unwrap_or(RootCerts::WebPki)).build())
        .https_only(parsed.is_encrypted())
        .http_status_as_error(false)
        .max_redirects(MAX_REDIRECTS)
        .max_idle_connections(0)
        .timeout_connect(Some(CONNECT_LIMIT))
        .timeout_resolve(Some(CONNECT_LIMIT))
        .user_agent(concat!("recurgent/", env!("CARGO_PKG_VERSION")))
        .build();
    Ok(config.new_agent())
}

/// Runs in a thread of its own, because a read cannot be interrupted. It ends when the receiver is gone.
fn deliver(agent: &ureq::Agent, address: &str, from: u64, sender: &SyncSender<Delivery>) {
    let mut request = agent.get(address).header("accept-encoding", "identity");
    if from > 0 {
        request = request.header("range", format!("bytes={from}-"));
    }
    let broken = |error: String| drop(sender.send(Delivery::Broken(error)));
    let mut response = match request.call() {
        Ok(response) => response,
        Err(error) => return broken(error.to_string()),
    };
    if sender.send(Delivery::Status(response.status().as_u16())).is_err() {
        return;
    }
    let mut body = response.body_mut().with_config().limit(u64::MAX).reader();
    loop {
        let mut chunk = vec![0; CHUNK_BYTES];
        match body.read(&mut chunk) {
            Ok(0) => return,
            Ok(read) => {
                chunk.truncate(read);
                if sender.send(Delivery::Chunk(chunk)).is_err() {
                    return;
                }
            }
            Err(error) => return broken(error.to_string()),
        }
    }
}

fn receive(
    receiver: &Receiver<Delivery>,
    partial: &mut PartialFile<'_>,
    request: &InstallRequest<'_>,
) -> Result<(), SourceFault> {
    let mut last = Instant::now();
    loop {
        if request.cancellation.is_cancelled() {
            return Err(SourceFault::Cancelled);
        }
        match receiver.recv_timeout(POLL_INTERVAL) {
            Ok(delivery) => {
                last = Instant::now();
                accept(delivery, partial)?;
            }
            Err(RecvTimeoutError::Disconnected) if partial.missing() == 0 => return Ok(()),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(SourceFault::Source(format!(
                    "the connection ended {} bytes too early",
                    partial.missing()
                )));
            }
            Err(RecvTimeoutError::Timeout) if last.elapsed() > STALL_LIMIT => {
                let limit = STALL_LIMIT.as_secs();
                return Err(SourceFault::Source(format!("nothing arrived for {limit} s")));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

fn accept(delivery: Delivery, partial: &mut PartialFile<'_>) -> Result<(), SourceFault> {
    match delivery {
        Delivery::Status(206) => Ok(()),
        // A server that does not know ranges sends everything.
        Delivery::Status(200) => partial.restart(),
        Delivery::Status(status) => Err(SourceFault::Source(format!("it answered {status}"))),
        Delivery::Chunk(bytes) => partial.append(&bytes),
        Delivery::Broken(problem) => Err(SourceFault::Source(problem)),
    }
}
