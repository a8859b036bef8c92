//! A model service on loopback that says exactly what a test wants, and remembers what it was asked.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

/// What the server does with one request.
#[derive(Debug, Clone)]
pub(crate) enum CannedReply {
    /// A status, headers, a body.
    Says(u16, Vec<(&'static str, String)>, String),
    /// Bytes as they are, then the end.
    Raw(Vec<u8>),
    /// Promises a body, sends some of it, closes its side.
    Breaks,
    /// Sends a byte now and then, for ever.
    Drips,
    /// Never answers.
    Silent,
    /// A body of so many bytes.
    Floods(usize),
}

/// A chat answer with this program, of so many tokens sent and received.
pub(crate) fn writes(code: &str, (sent, received): (u64, u64)) -> CannedReply {
    let content = json!({"code": code, "dependencies": []}).to_string();
    let body = json!({
        "choices": [{"finish_reason": "stop", "message": {"content": content}}],
        "usage": {"prompt_tokens": sent, "completion_tokens": received},
    });
    CannedReply::Says(200, vec![], body.to_string())
}

/// What the server was asked.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// A server; it ends when it is dropped.
pub(crate) struct ProviderServer {
    address: String,
    requests: Receiver<Request>,
    /// Notified when a connection has ended.
    closed: Receiver<()>,
    accepting: Option<JoinHandle<()>>,
}

impl ProviderServer {
    /// Answers its requests in this order; the last answer repeats.
    pub(crate) fn new(answers: Vec<CannedReply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (asked, requests) = channel();
        let (over, closed) = channel();
        let answers = Arc::new(Mutex::new(answers));
        let accepting = std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { break };
                let (asked, over, answers) = (asked.clone(), over.clone(), Arc::clone(&answers));
                let served = std::thread::spawn(move || serve(&stream, &answers, &asked, &over));
                if !served.join().unwrap() {
                    break;
                }
            }
        });
        Self { address, requests, closed, accepting: Some(accepting) }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The next request it was sent.
    pub(crate) fn request(&self) -> Request {
        self.requests.recv_timeout(Duration::from_mins(2)).expect("a request")
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.try_iter().collect()
    }

    /// Waits until its connection was closed.
    pub(crate) fn wait_closed(&self) {
        self.closed.recv_timeout(Duration::from_mins(2)).expect("the connection is closed");
    }
}

impl Drop for ProviderServer {
    fn drop(&mut self) {
        // A request without a line ends it.
        if let Ok(stream) = TcpStream::connect(&self.address) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

/// Serves one request; `false`: there was none.
fn serve(
    stream: &TcpStream,
    answers: &Mutex<Vec<CannedReply>>,
    asked: &Sender<Request>,
    over: &Sender<()>,
) -> bool {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return false;
    }
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).unwrap();
        let Some((name, value)) = header.trim_end().split_once(": ") else { break };
        headers.push((name.to_lowercase(), value.to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.map_or(0, |(_, length)| length.parse().unwrap())];
    reader.read_exact(&mut body).unwrap();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let _ = asked.send(Request { line: line.trim_end().to_owned(), headers, body });
    let answer = {
        let mut answers = answers.lock().unwrap();
        if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() }
    };
    respond(stream, answer);
    let _ = over.send(());
    true
}

fn respond(mut stream: &TcpStream, answer: CannedReply) {
    match answer {
        CannedReply::Says(status, headers, body) => {
            let headers: Vec<String> =
                headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            let headers = headers.concat();
            let length = body.len();
            let _ = write!(
                stream,
                "HTTP/1.1 {status} TurnEvent\r\ncontent-length: {length}\r\nconnection: close\r\n{headers}\r\n{body}"
            );
        }
        CannedReply::Raw(bytes) => {
            let _ = stream.write_all(&bytes);
        }
        CannedReply::Breaks => {
            let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{{\"half\":");
            let _ = stream.shutdown(Shutdown::Write);
        }
        CannedReply::Drips => {
            let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n");
            while stream.write_all(b" ").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        CannedReply::Silent => {
            // Until the other side is gone.
            let _ = stream.read(&mut [0; 1]);
        }
        CannedReply::Floods(bytes) => {
            let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n");
            let chunk = vec![b' '; 64 * 1024];
            for _ in 0..bytes / chunk.len() {
                if stream.write_all(&chunk).is_err() {
                    break;
                }
            }
        }
    }
}
