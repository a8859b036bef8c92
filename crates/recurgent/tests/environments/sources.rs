//! Package sources on loopback: a compact index of gems and a simple index of wheels, written by hand.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use lifecycle::program::Checksum;
use recurgent::Language;

use crate::fixture::EnvironmentFixture;

/// What is served, built once.
struct Goods {
    tool: &'static str,
    script: &'static str,
    place: &'static str,
}

const GEMS: Goods = Goods { tool: "ruby", script: "gems.rb", place: "gem-source" };
const WHEELS: Goods = Goods { tool: "python3", script: "wheels.py", place: "wheel-source" };

impl Goods {
    fn files(&self, built: &'static OnceLock<PathBuf>) -> &'static Path {
        built.get_or_init(|| {
            let script =
                Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/environments").join(self.script);
            let shared = Path::new(env!("CARGO_TARGET_TMPDIR"));
            std::fs::create_dir_all(shared).unwrap();
            let checksum = Checksum::of(&std::fs::read_to_string(&script).unwrap());
            let place = shared.join(format!("{}-{}", self.place, &checksum.as_str()[7..19]));
            if !place.exists() {
                // Built beside and moved into place, for several test processes may do it at once.
                let desk = tempfile::tempdir_in(shared).unwrap();
                let made = Command::new(self.tool).arg(&script).arg(desk.path()).output().unwrap();
                assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
                let _ = std::fs::rename(desk.path(), &place); // or another was faster
            }
            place
        })
    }
}

/// Serves packages as long as the test runs.
pub(crate) struct PackageServer {
    language: Language,
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    /// Second versions are not listed yet.
    outdated: Arc<AtomicBool>,
    /// Packages it does not have.
    withheld: Arc<Mutex<Vec<String>>>,
    /// The status with which it refuses every request, if it does.
    denial: Arc<Mutex<Option<&'static str>>>,
}

impl PackageServer {
    pub(crate) fn gems() -> Self {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        Self::of(Language::Ruby, GEMS.files(&BUILT))
    }

    pub(crate) fn wheels() -> Self {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        Self::of(Language::Python, WHEELS.files(&BUILT))
    }

    /// Serves the files of a directory.
    pub(crate) fn of(language: Language, files: &'static Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let outdated = Arc::<AtomicBool>::default();
        let withheld = Arc::<Mutex<Vec<String>>>::default();
        let lacks = Arc::clone(&withheld);
        let (seen, old) = (Arc::clone(&requests), Arc::clone(&outdated));
        let denial = Arc::<Mutex<Option<&'static str>>>::default();
        let denies = Arc::clone(&denial);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (seen, old) = (Arc::clone(&seen), Arc::clone(&old));
                let lacks = lacks.lock().unwrap().clone();
                if let Some(status) = *denies.lock().unwrap() {
                    thread::spawn(move || deny(&stream, status));
                    continue;
                }
                thread::spawn(move || answer(stream, files, &seen, &old, &lacks));
            }
        });
        Self { language, address, requests, outdated, withheld, denial }
    }

    /// From now on it does not have this.
    pub(crate) fn withhold(&self, name: &str) {
        self.withheld.lock().unwrap().push(name.to_owned());
    }

    /// From now on it refuses every request with this status.
    pub(crate) fn deny(&self, status: &'static str) {
        *self.denial.lock().unwrap() = Some(status);
    }

    /// Whether it has second versions of anything, from now on.
    pub(crate) fn set_outdated(&self, outdated: bool) {
        self.outdated.store(outdated, Ordering::SeqCst);
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        self.url_with("")
    }

    /// With `user:password@` in it.
    pub(crate) fn url_with(&self, credentials: &str) -> String {
        let path = if self.language == Language::Python { "simple/" } else { "" };
        format!("http://{credentials}{}/{path}", self.address)
    }

    /// Where it listens, as a proxy.
    pub(crate) fn proxy(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Requests so far, heads and all.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// How often something was asked for.
    pub(crate) fn asked_for(&self, path: &str) -> usize {
        self.requests().iter().filter(|request| request.contains(path)).count()
    }

    /// The key that names such sources.
    pub(crate) fn key(&self) -> &'static str {
        match self.language {
            Language::Python => "python_indexes",
            Language::Ruby => "gem_sources",
        }
    }

    /// A fixture whose packages come from here and nowhere else.
    pub(crate) fn fixture(&self) -> EnvironmentFixture {
        let mut fixture = EnvironmentFixture::new(self.language);
        fixture.set("source_mode", "internal_only");
        fixture.set(self.key(), &self.url());
        fixture
    }
}

/// A page of an index, without second versions: a line `2.0.0 …|…` of gems, a link to `…-2.0-…` of wheels.
fn first_versions(page: &str) -> String {
    let first = |line: &&str| !line.starts_with("2.0") && !line.contains("-2.0-");
    page.lines().filter(first).flat_map(|line| [line, "\n"]).collect()
}

fn deny(stream: &TcpStream, status: &str) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut request = String::new();
    while reader.read_line(&mut request).is_ok_and(|read| read > 2) {}
    let head = format!(
        "HTTP/1.1 {status}\r\nWWW-Authenticate: Basic realm=\"x\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    let _ = { stream }.write_all(head.as_bytes());
}

fn answer(
    stream: TcpStream,
    files: &Path,
    seen: &Mutex<Vec<String>>,
    outdated: &AtomicBool,
    lacks: &[String],
) {
    stream.set_read_timeout(Some(Duration::from_mins(2))).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    let mut request = String::new();
    while reader.read_line(&mut request).is_ok_and(|read| read > 2) {}
    let Some(path) = request.split_whitespace().nth(1) else { return };
    // As a proxy it is asked for whole addresses.
    let path = path
        .strip_prefix("http://")
        .and_then(|rest| rest.split_once('/'))
        .map_or_else(|| path.to_owned(), |(_host, path)| format!("/{path}"));
    seen.lock().unwrap().push(request);
    let mut file = files.join(path.trim_start_matches('/'));
    if file.is_dir() {
        file.push("index.html");
    }
    let listed = |line: &&str| !lacks.iter().any(|name| line.starts_with(name.as_str()));
    let (status, body) = match std::fs::read(&file) {
        Ok(_) if lacks.iter().any(|name| path.contains(name.as_str())) => {
            ("404 Not Found", Vec::new())
        }
        Ok(body) if path == "/versions" => {
            let page = String::from_utf8(body).unwrap();
            let left: String = page.lines().filter(listed).flat_map(|line| [line, "\n"]).collect();
            ("200 OK", left.into_bytes())
        }
        Ok(body) => match String::from_utf8(body) {
            Ok(page) if outdated.load(Ordering::SeqCst) => {
                ("200 OK", first_versions(&page).into_bytes())
            }
            Ok(page) => ("200 OK", page.into_bytes()),
            Err(package) => ("200 OK", package.into_bytes()),
        },
        Err(_) => ("404 Not Found", Vec::new()),
    };
    let kind = if file.ends_with("index.html") { "text/html" } else { "application/octet-stream" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let _ = writer.write_all(head.as_bytes()).and_then(|()| writer.write_all(&body));
}
