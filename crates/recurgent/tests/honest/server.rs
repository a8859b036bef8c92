//! The server that programs under test talk to, on loopback.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::json;

const PAGE: &str = "<html><head><title>Hello</title></head><body><a href='/a'>A</a><a href='/b'>B</a></body></html>";

/// A running server, and a port where nothing listens.
pub(crate) struct PageServer {
    pub(crate) port: u16,
    pub(crate) dead_port: u16,
    received: Arc<Received>,
}

/// How many requests it received.
#[derive(Default)]
struct Received {
    reading: AtomicUsize,
    sending: AtomicUsize,
}

impl PageServer {
    /// Starts one; it ends with the process.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let dead = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
        let received = Arc::new(Received::default());
        let server =
            Self { port: port(&listener), dead_port: port(&dead), received: Arc::clone(&received) };
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let received = Arc::clone(&received);
                thread::spawn(move || answer(&stream, &received));
            }
        });
        server
    }

    /// How many requests it received: those that only read, and others.
    pub(crate) fn requests(&self) -> [usize; 2] {
        [&self.received.reading, &self.received.sending].map(|count| count.load(Ordering::SeqCst))
    }

    /// The places that programs may reach.
    pub(crate) fn network(&self) -> String {
        format!("127.0.0.1:{},127.0.0.1:{}", self.port, self.dead_port)
    }
}

/// Answers one request; a client that only connects gets nothing.
fn answer(mut stream: &TcpStream, received: &Received) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let only_reads = matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS");
    let count = if only_reads { &received.reading } else { &received.sending };
    count.fetch_add(1, Ordering::SeqCst);
    let (status, kind, text) = reply(&method, &target, length);
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    stream.write_all((head + &text).as_bytes()).ok()
}

fn reply(method: &str, target: &str, length: usize) -> (&'static str, &'static str, String) {
    const JSON: &str = "application/json";
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    match (method, path) {
        ("HEAD", _) => ("200 OK", "text/plain", String::new()),
        ("POST", _) => ("200 OK", JSON, json!({"received": true, "bytes": length}).to_string()),
        (_, "/items.json") => {
            let items = json!({"items": [
                {"id": 1, "name": "pen", "price": 1.5}, {"id": 2, "name": "ink", "price": 4.0}]});
            ("200 OK", JSON, items.to_string())
        }
        (_, "/page.html") => ("200 OK", "text/html", PAGE.to_owned()),
        (_, "/data.csv") => ("200 OK", "text/csv", "city,temp\nOslo,3\nRome,18\n".to_owned()),
        (_, "/page") => {
            let number = query.strip_prefix("n=").and_then(|n| n.parse::<i64>().ok()).unwrap_or(1);
            let next = (number < 3).then_some(number + 1);
            let page = json!({"page": number, "next": next, "rows": [number, number * 10]});
            ("200 OK", JSON, page.to_string())
        }
        (_, "/health") => ("200 OK", "text/plain", "ok".to_owned()),
        _ => ("404 Not Found", "text/plain", "no".to_owned()),
    }
}
