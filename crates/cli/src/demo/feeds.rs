//! Three news feeds on loopback, so that the demo fetches for real and needs no network.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest request that is read.
const MAX_REQUEST_BYTES: usize = 8 * 1024;
/// Longest wait for a client.
const IO_TIMEOUT: Duration = Duration::from_secs(10);

/// The paths that are served, and what is there.
const PAGES: [(&str, &str); 3] = [
    ("/harbour.xml", include_str!("feeds/harbour.xml")),
    ("/workshop.xml", include_str!("feeds/workshop.xml")),
    ("/sky.xml", include_str!("feeds/sky.xml")),
];

/// A small HTTP server on a free port of 127.0.0.1; gone when dropped.
#[derive(Debug)]
pub(crate) struct Feeds {
    address: SocketAddr,
    closing: Arc<AtomicBool>,
    server: Option<JoinHandle<()>>,
}

impl Feeds {
    /// Starts serving.
    pub(crate) fn serve() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let closing = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&closing);
        let server = std::thread::Builder::new().name("feeds".to_owned()).spawn(move || {
            for stream in listener.incoming() {
                if flag.load(Ordering::SeqCst) {
                    return;
                }
                // An error ends only this connection.
                let _ = stream.and_then(answer);
            }
        })?;
        Ok(Self { address, closing, server: Some(server) })
    }

    /// The address of a page, such as `harbour.xml`.
    pub(crate) fn url(&self, page: &str) -> String {
        format!("http://{}/{page}", self.address)
    }
}

impl Drop for Feeds {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::SeqCst);
        // Wakes the server, which then sees the flag; when it cannot be woken it ends with the process.
        if TcpStream::connect_timeout(&self.address, IO_TIMEOUT).is_ok()
            && let Some(server) = self.server.take()
        {
            let _ = server.join();
        }
    }
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    stream.set_write_timeout(Some(IO_TIMEOUT))?;
    let head = request_head(&mut stream)?;
    let mut words = head.split_whitespace();
    let page = match (words.next(), words.next()) {
        (Some("GET"), Some(path)) => PAGES.iter().find(|(known, _)| *known == path),
        _ => None,
    };
    let (status, body) = page.map_or(("404 Not Found", ""), |(_, body)| ("200 OK", *body));
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: application/rss+xml; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )?;
    stream.flush()
}

/// Everything up to the empty line.
fn request_head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    let mut chunk = [0; 1024];
    while head.len() < MAX_REQUEST_BYTES && !head.ends_with(b"\r\n\r\n") {
        let count = stream.read(&mut chunk)?;
        if count == 0 {
            break;
        }
        head.extend_from_slice(chunk.get(..count).unwrap_or_default());
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetch(feeds: &Feeds, path: &str) -> String {
        let mut stream = TcpStream::connect(feeds.address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    }

    #[test]
    fn pages_are_served_until_the_server_is_dropped() {
        let feeds = Feeds::serve().unwrap();
        let address = feeds.address;
        let reply = fetch(&feeds, "/sky.xml");
        assert!(reply.starts_with("HTTP/1.1 200 OK\r\n") && reply.ends_with("</rss>\n"), "{reply}");
        assert!(fetch(&feeds, "/none").starts_with("HTTP/1.1 404 "));
        drop(TcpStream::connect(address).unwrap());
        assert!(fetch(&feeds, "/harbour.xml").contains("Harbour Gazette"));
        drop(feeds);
        assert!(TcpStream::connect(address).is_err());
    }
}
