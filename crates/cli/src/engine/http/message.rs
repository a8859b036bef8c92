//! One HTTP/1.1 request, read with bounds.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use recurgent::provider::engine::MAX_REQUEST_BYTES;

/// Most bytes of the request line and the headers.
const MAX_HEADER_BYTES: usize = 64 * 1024;
/// Most headers.
const MAX_HEADERS: usize = 100;
/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 16 * 1024;
/// The end of the headers.
const END: &[u8] = b"\r\n\r\n";

/// A request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HttpRequest {
    pub(super) method: String,
    /// Without its query.
    pub(super) path: String,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

/// Why there is no request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// The client hung up or is too slow.
    Gone,
    /// The status of the refusal, and why.
    Wrong(u16, String),
}

impl HttpRequest {
    fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Whether its host is a name of this machine. Requests with another `Host` are refused, against DNS rebinding.
    pub(super) fn is_for_this_machine(&self) -> bool {
        let host = self.header("host").unwrap_or_default();
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            Some(_) | None => host,
        };
        matches!(name, "localhost" | "127.0.0.1")
    }

    pub(super) fn is_json(&self) -> bool {
        let kind = self.header("content-type").unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default();
        kind.trim().eq_ignore_ascii_case("application/json")
    }

    pub(super) fn bearer(&self) -> Option<&str> {
        self.header("authorization")?.strip_prefix("Bearer ")
    }
}

/// Reads a request.
pub(super) fn read_request(mut stream: &TcpStream) -> Result<HttpRequest, Unreadable> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(END.len()).position(|window| window == END) {
            break end + END.len();
        }
        if bytes.len() > MAX_HEADER_BYTES {
            return Err(Unreadable::Wrong(431, "the headers are too long".to_owned()));
        }
        read_some(stream, &mut bytes)?;
    };
    let mut body = bytes.split_off(head);
    let mut request = parse_head(&bytes)?;
    let length = length(&request)?;
    if request.header("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
        let _ = stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n");
    }
    while body.len() < length {
        read_some(stream, &mut body)?;
    }
    body.truncate(length);
    request.body = body;
    Ok(request)
}

fn read_some(mut stream: &TcpStream, bytes: &mut Vec<u8>) -> Result<(), Unreadable> {
    let mut chunk = [0; CHUNK_BYTES];
    match stream.read(&mut chunk) {
        Ok(0) | Err(_) => Err(Unreadable::Gone),
        Ok(read) => {
            bytes.extend(chunk.iter().take(read));
            Ok(())
        }
    }
}

fn parse_head(bytes: &[u8]) -> Result<HttpRequest, Unreadable> {
    let wrong = |problem: String| Unreadable::Wrong(400, problem);
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    parsed.parse(bytes).map_err(|error| wrong(format!("this is not HTTP: {error}")))?;
    let path = parsed.path.unwrap_or_default();
    Ok(HttpRequest {
        method: parsed.method.unwrap_or_default().to_owned(),
        path: path.split('?').next().unwrap_or_default().to_owned(),
        headers: parsed
            .headers
            .iter()
            .map(|header| {
                let value = String::from_utf8_lossy(header.value).trim().to_owned();
                (header.name.to_ascii_lowercase(), value)
            })
            .collect(),
        body: Vec::new(),
    })
}

fn length(request: &HttpRequest) -> Result<usize, Unreadable> {
    if request.header("transfer-encoding").is_some() {
        return Err(Unreadable::Wrong(411, "the body needs a content-length".to_owned()));
    }
    let Some(text) = request.header("content-length") else { return Ok(0) };
    match text.parse::<usize>() {
        Ok(length) if length <= MAX_REQUEST_BYTES => Ok(length),
        Ok(_) => Err(Unreadable::Wrong(413, format!("at most {MAX_REQUEST_BYTES} bytes"))),
        Err(_) => Err(Unreadable::Wrong(400, "content-length is not a number".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Shutdown, TcpListener};

    fn read(bytes: &[u8]) -> Result<HttpRequest, Unreadable> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let bytes = bytes.to_vec();
        let writer = std::thread::spawn(move || {
            let _ = client.write_all(&bytes);
            let _ = client.shutdown(Shutdown::Write);
            client
        });
        let request = read_request(&server);
        drop(server);
        writer.join().unwrap();
        request
    }

    #[test]
    fn requests_are_read_and_hostile_ones_refused() {
        let post = b"POST /v1/x?q HTTP/1.1\r\nHost: localhost:80\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: 2\r\nAuthorization: Bearer t\r\n\r\n{}";
        let request = read(post).unwrap();
        assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/x"));
        assert!(request.is_for_this_machine() && request.is_json());
        assert_eq!((request.bearer(), request.body.as_slice()), (Some("t"), b"{}".as_slice()));
        let other = read(b"GET / HTTP/1.1\r\nHost: localhost.example.com\r\n\r\n").unwrap();
        assert!(!other.is_for_this_machine() && !other.is_json());
        let status = |bytes: &[u8]| match read(bytes) {
            Err(Unreadable::Wrong(status, _)) => Some(status),
            Ok(_) | Err(Unreadable::Gone) => None,
        };
        assert_eq!(status(b"\x16\x03\x01\r\n\r\n"), Some(400));
        assert_eq!(
            status(&[b"GET / HTTP/1.1\r\na: ".as_slice(), &vec![b'x'; 70_000]].concat()),
            Some(431)
        );
        assert_eq!(status(b"POST / HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n"), Some(413));
        assert_eq!(status(b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n"), Some(400));
        assert_eq!(status(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"), Some(411));
        assert_eq!(read(b"GET / HT"), Err(Unreadable::Gone));
    }
}
