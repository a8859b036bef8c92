//! The way to a service: encrypted, vouched for by whom we trust, through a proxy that learns nothing.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use lifecycle::draft::DraftFault;
use recurgent::provider::{ProviderOptions, choose, make};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::server::ProviderServer;
use super::wires::{good, says};
use super::{CANARY, PATIENT, ask, options};

/// The authority that certifies `models.example` and 127.0.0.1.
fn authority() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/providers/tls/authority.pem")
}

/// Accepts one connection and passes it to `with`.
fn meets_one(with: impl FnOnce(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || with(listener.accept().unwrap().0));
    address
}

/// Reads the head of a message; its body, if any, stays.
fn head(stream: &mut impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
        bytes.push(byte[0]);
    }
    bytes
}

/// The address at which `server` is spoken to encrypted.
fn encrypted(server: &ProviderServer) -> String {
    let behind = server.url("").replace("http://", "");
    meets_one(move |stream| {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain = vec![CertificateDer::from_pem_slice(include_bytes!("tls/server.pem")).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(include_bytes!("tls/server-key.pem")).unwrap();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let connection = ServerConnection::new(Arc::new(config)).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        let asked = head(&mut stream);
        if asked.is_empty() {
            return; // The handshake failed.
        }
        let text = String::from_utf8(asked.clone()).unwrap().to_lowercase();
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        stream.read_exact(&mut body).unwrap();
        let mut plain = TcpStream::connect(behind).unwrap();
        plain.write_all(&[asked, body].concat()).unwrap();
        let mut answer = Vec::new();
        plain.read_to_end(&mut answer).unwrap();
        let _ = stream.write_all(&answer);
        stream.conn.send_close_notify();
        let _ = stream.flush();
    })
}

/// A proxy that connects every client to `behind` and records all it received.
fn proxy(behind: String) -> (String, Receiver<Vec<u8>>) {
    let (heard, hears) = channel();
    let address = meets_one(move |mut client| {
        heard.send(head(&mut client)).unwrap();
        client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").unwrap();
        let mut service = TcpStream::connect(behind).unwrap();
        let (mut from, mut to) = (client.try_clone().unwrap(), service.try_clone().unwrap());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                let _ = heard.send(bytes[..count].to_vec());
                if to.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Both);
        });
        let _ = std::io::copy(&mut service, &mut client);
        let _ = client.shutdown(Shutdown::Both);
    });
    (format!("http://user:pass@{address}"), hears)
}

#[test]
fn an_encrypted_service_is_asked_when_it_is_trusted() {
    let server = ProviderServer::new(vec![says(&good("openai-chat"))]);
    let at = |host: &str| {
        let port = encrypted(&server).rsplit_once(':').unwrap().1.to_owned();
        options("openai-chat", format!("https://{host}:{port}/v1"))
    };
    let trusting = ProviderOptions { ca_file: Some(authority()), ..at("127.0.0.1") };
    ask(make(&trusting).unwrap().as_ref(), PATIENT, false).unwrap();
    let bearer = format!("Bearer {CANARY}");
    assert_eq!(server.request().header("authorization"), Some(bearer.as_str()));

    // An unknown authority; a service that has another name.
    let other = ProviderOptions { ca_file: Some(authority()), ..at("localhost") };
    for doubted in [at("127.0.0.1"), other] {
        let fault = ask(make(&doubted).unwrap().as_ref(), PATIENT, false).unwrap_err();
        assert!(
            matches!(&fault, DraftFault::Rejected(words) if words.contains("provider_ca_file")),
            "{fault:?}"
        );
        assert!(
            server.requests().is_empty(),
            "the key was sent to a service without a valid certificate"
        );
    }
}

#[test]
fn a_proxy_learns_where_to_and_nothing_else() {
    let server = ProviderServer::new(vec![says(&good("openai-chat"))]);
    let (address, heard) = proxy(encrypted(&server));
    let mut through = options("openai-chat", "https://models.example/v1".to_owned());
    through.proxy = Some(address.parse().unwrap());
    through.ca_file = Some(authority());
    let draft = ask(make(&through).unwrap().as_ref(), PATIENT, false).unwrap();
    assert_eq!(draft.usage.input_tokens, 100);
    assert!(server.request().header("authorization").is_some());
    let asked = String::from_utf8(heard.recv().unwrap()).unwrap();
    assert!(asked.starts_with("CONNECT models.example:443 HTTP/1.1\r\n"), "{asked}");
    assert!(asked.contains("Proxy-Authorization: Basic dXNlcjpwYXNz\r\n"), "{asked}");
    let heard = heard.into_iter().flatten().collect::<Vec<_>>();
    assert!(heard.len() > 200 && !String::from_utf8_lossy(&heard).contains(CANARY));
}

#[test]
fn a_proxy_that_refuses_is_reported() {
    let address = meets_one(|mut client| {
        head(&mut client);
        let _ = client.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n");
    });
    let mut through = options("openai-chat", "https://models.example/v1".to_owned());
    through.proxy = Some(format!("http://user:hunter2secret@{address}").parse().unwrap());
    let fault = ask(make(&through).unwrap().as_ref(), PATIENT, false).unwrap_err();
    let words = fault.to_string();
    assert!(matches!(fault, DraftFault::Unavailable(_)), "{words}");
    assert!(words.contains("407") && words.contains("check provider_proxy"), "{words}");
    assert!(!words.contains("hunter2"), "{words}");
}

/// Its key is not encrypted, so a remote proxy would see it.
#[test]
fn what_is_on_this_machine_is_not_reached_through_a_proxy() {
    let server = ProviderServer::new(vec![says(&good("openai-chat"))]);
    let (address, heard) = proxy(server.url("").replace("http://", ""));
    let mut options = options("openai-chat", server.url("/v1"));
    options.proxy = Some(address.parse().unwrap());
    ask(make(&options).unwrap().as_ref(), PATIENT, false).unwrap();
    assert!(server.request().header("authorization").is_some());
    assert!(heard.try_recv().is_err());
}

#[test]
fn an_impossible_route_is_reported_before_any_request() {
    let far = || options("openai", "https://models.example/v1".to_owned());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ca.pem");
    for (text, words) in [(None, "No such file"), (Some("hello"), "holds no certificate")] {
        if let Some(text) = text {
            std::fs::write(&path, text).unwrap();
        }
        let fault = choose(&ProviderOptions { ca_file: Some(path.clone()), ..far() }).unwrap_err();
        assert!(fault.to_string().contains(words), "{fault}");
    }
}
