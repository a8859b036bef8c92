//! The pages of a story.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A web server on loopback that can be stopped and started at one address. It ends with the test process.
pub(crate) struct Pages {
    address: SocketAddr,
    by_path: Arc<BTreeMap<String, String>>,
    up: Arc<AtomicBool>,
    server: Option<JoinHandle<()>>,
}

impl Pages {
    pub(crate) fn serve(pages: BTreeMap<String, String>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let up = Arc::new(AtomicBool::new(true));
        let mut served = Self { address, by_path: Arc::new(pages), up, server: None };
        served.listen(listener);
        served
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Refuses connections from now on.
    pub(crate) fn stop(&mut self) {
        self.up.store(false, Ordering::SeqCst);
        // The server checks the flag after each connection.
        let _ = TcpStream::connect(self.address);
        if let Some(server) = self.server.take() {
            server.join().unwrap();
        }
    }

    /// Accepts connections again.
    pub(crate) fn start(&mut self) {
        self.up.store(true, Ordering::SeqCst);
        self.listen(TcpListener::bind(self.address).unwrap());
    }

    fn listen(&mut self, listener: TcpListener) {
        let (pages, up) = (Arc::clone(&self.by_path), Arc::clone(&self.up));
        self.server = Some(thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if !up.load(Ordering::SeqCst) {
                    return;
                }
                let _ = answer(stream, &pages);
            }
        }));
    }
}

fn answer(mut stream: TcpStream, pages: &BTreeMap<String, String>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_mins(1)))?;
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && head.len() < 8192 && stream.read(&mut byte)? == 1 {
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let page = head.split_whitespace().nth(1).and_then(|path| pages.get(path));
    let (status, body) = page.map_or(("404 Not Found", ""), |body| ("200 OK", body));
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/xml; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
