//! A file server on loopback that misbehaves as it is asked to.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// How a request is answered.
#[derive(Debug, Clone)]
pub(crate) enum Manner {
    /// The bytes that are asked for.
    Serve(Vec<u8>),
    /// All bytes, whatever range is asked for.
    Whole(Vec<u8>),
    /// The first of these bytes, then the connection breaks.
    Break(Vec<u8>, usize),
    /// The first of these bytes, then nothing until the client leaves.
    Stall(Vec<u8>, usize),
    /// Only a status.
    Refuse(u16),
}

pub(crate) struct FileServer {
    pub(crate) address: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl FileServer {
    /// Answers each request in the next manner; the last one repeats.
    pub(crate) fn start(manners: Vec<Manner>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        thread::spawn(move || {
            for (number, stream) in listener.incoming().flatten().enumerate() {
                let manner = manners.get(number).or(manners.last()).unwrap().clone();
                let seen = Arc::clone(&seen);
                thread::spawn(move || answer(&stream, manner, &seen));
            }
        });
        Self { address, requests }
    }

    /// The path and the range of each request.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn answer(mut stream: &TcpStream, manner: Manner, seen: &Mutex<Vec<String>>) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let first = lines.next().unwrap_or_default();
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let headers: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let range = headers
        .iter()
        .find_map(|line| line.to_lowercase().strip_prefix("range: bytes=").map(str::to_owned));
    let from: usize =
        range.as_deref().and_then(|range| range.trim_end_matches('-').parse().ok()).unwrap_or(0);
    seen.lock().unwrap().push(format!("{path} {from}"));
    let head = |status: &str, length: usize| {
        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n")
    };
    let partial = |bytes: &[u8]| {
        head(if from > 0 { "206 Partial Content" } else { "200 OK" }, bytes.len() - from)
    };
    let _ = match manner {
        Manner::Serve(bytes) => stream
            .write_all(partial(&bytes).as_bytes())
            .and_then(|()| stream.write_all(&bytes[from..])),
        Manner::Whole(bytes) => stream
            .write_all(head("200 OK", bytes.len()).as_bytes())
            .and_then(|()| stream.write_all(&bytes)),
        Manner::Break(bytes, count) => stream
            .write_all(partial(&bytes).as_bytes())
            .and_then(|()| stream.write_all(&bytes[from..(from + count).min(bytes.len())])),
        Manner::Stall(bytes, count) => stream
            .write_all(partial(&bytes).as_bytes())
            .and_then(|()| stream.write_all(&bytes[from..(from + count).min(bytes.len())]))
            .and_then(|()| {
                // Ends when the client hangs up.
                let mut rest = Vec::new();
                std::io::Read::read_to_end(&mut stream, &mut rest).map(drop)
            }),
        Manner::Refuse(status) => stream.write_all(head(&format!("{status} No"), 0).as_bytes()),
    };
}
