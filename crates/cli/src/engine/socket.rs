//! One connection of the engine protocol.

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use recurgent::provider::ModelProgress;
use recurgent::provider::engine::{
    EngineAnswer, EngineReply, EngineRequest, FrameReader, LineFault, MAX_REQUEST_BYTES, reply_line,
};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::queue::{Audience, QueuedRequest, RequestFault, RequestQueue};

/// Time a client has to send its request.
const READ_LIMIT: Duration = Duration::from_mins(1);
/// Time a client may take to read a line. One that does not read counts as gone.
const WRITE_LIMIT: Duration = Duration::from_secs(10);
/// Bytes of a refused request that are read, so that the client reads why it is refused instead of a broken pipe.
const MAX_DRAINED_BYTES: u64 = 64 << 20;

/// Reads the request of a connection and answers it or passes it on.
pub(super) fn converse(stream: UnixStream, queue: &Arc<RequestQueue>) {
    let limits = stream
        .set_read_timeout(Some(READ_LIMIT))
        .and_then(|()| stream.set_write_timeout(Some(WRITE_LIMIT)));
    let Ok(writer) = limits.and_then(|()| stream.try_clone()) else { return };
    let mut client = SocketClient { stream: writer, is_broken: false };
    let mut reader = FrameReader::new(stream, MAX_REQUEST_BYTES);
    match reader.request() {
        Ok(EngineRequest::Generate(request)) => {
            queue.add(QueuedRequest { request, audience: Box::new(client) });
        }
        Ok(EngineRequest::Status) => client.send(&EngineReply::Status(queue.status())),
        Ok(EngineRequest::Stop) => {
            queue.log().line("a client asks to end");
            client.send(&EngineReply::Stopping);
            queue.stop();
        }
        Err(LineFault::Closed | LineFault::Broken(_)) => {}
        Err(fault) => {
            queue.log().line(&format!("refused a request: {fault}"));
            let message = fault.to_string();
            client.send(&EngineReply::Fault { is_transient: false, message });
            drain(&client.stream);
        }
    }
}

fn drain(stream: &UnixStream) {
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let _ = std::io::copy(&mut stream.take(MAX_DRAINED_BYTES), &mut std::io::sink());
}

/// Whether the other side of a connection hung up.
pub(super) fn is_closed(stream: impl AsFd) -> bool {
    let mut byte = [0; 1];
    let peeked = rustix::net::recv(stream, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
    !matches!(peeked, Ok((1.., _)) | Err(Errno::AGAIN | Errno::INTR))
}

/// A client on a socket.
struct SocketClient {
    stream: UnixStream,
    is_broken: bool,
}

impl SocketClient {
    fn send(&mut self, reply: &EngineReply) {
        let sent = reply_line(reply).map(|line| self.stream.write_all(&line));
        self.is_broken |= !matches!(sent, Ok(Ok(())));
    }
}

impl Audience for SocketClient {
    fn report(&mut self, progress: &ModelProgress) {
        self.send(&EngineReply::Progress(*progress));
    }

    fn add_text(&mut self, _sample: usize, _text: &str) {}

    fn is_gone(&self) -> bool {
        self.is_broken || is_closed(&self.stream)
    }

    fn finish(mut self: Box<Self>, answer: Result<EngineAnswer, RequestFault>) {
        let reply = match answer {
            Ok(answer) => EngineReply::Answer(answer),
            Err(RequestFault { is_transient, message }) => {
                EngineReply::Fault { is_transient, message }
            }
        };
        self.send(&reply);
    }
}
