//! Landlock rulesets: which files may be used, and that processes outside cannot be signalled.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use super::sys::{self, RulesetAttributes};

const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIRECTORY: u64 = 1 << 3;
/// The rights of the first version: up to making symbolic links.
const FIRST_VERSION: u64 = (1 << 13) - 1;
const LINK_ELSEWHERE: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const DEVICE_CONTROL: u64 = 1 << 15;

/// Rights that apply to files that are not directories.
const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | DEVICE_CONTROL;

const TCP: u64 = 0b11;
const ABSTRACT_SOCKETS_AND_SIGNALS: u64 = 0b11;

/// What may be done beneath a path, as Landlock grants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathAccess {
    /// Read and execute.
    Read,
    /// Read and write, never execute.
    Write,
    /// Read, write and execute.
    All,
}

/// The first version that restricts signals. Before it, workers of one zygote can signal each other.
const SCOPES_SIGNALS: u32 = 6;

/// Whether this kernel can keep a worker from signalling processes outside its domain.
pub(super) fn scopes_signals() -> bool {
    sys::landlock_version().is_ok_and(|version| version >= SCOPES_SIGNALS)
}

/// The rights to files that this version of Landlock knows.
fn handled_files(version: u32) -> u64 {
    let known_from = |first, access| if version >= first { access } else { 0 };
    FIRST_VERSION
        | known_from(2, LINK_ELSEWHERE)
        | known_from(3, TRUNCATE)
        | known_from(5, DEVICE_CONTROL)
}

/// Grants writing beneath an open directory, by a ruleset that is finished but not in force yet.
pub(super) fn allow_writes(ruleset: BorrowedFd<'_>, directory: BorrowedFd<'_>) -> io::Result<()> {
    let handled = handled_files(sys::landlock_version()?);
    sys::landlock_allow(ruleset, directory, handled & !EXECUTE)
}

/// A ruleset under construction.
#[derive(Debug)]
pub(super) struct Ruleset {
    descriptor: OwnedFd,
    handled: u64,
}

impl Ruleset {
    /// Refuses everything that is not granted. TCP is refused altogether unless `network` is true.
    pub(super) fn new(network: bool) -> io::Result<Self> {
        let version = sys::landlock_version()?;
        let known_from = |first, access| if version >= first { access } else { 0 };
        let files = handled_files(version);
        let attributes = RulesetAttributes {
            files,
            network: if network { 0 } else { known_from(4, TCP) },
            scoped: known_from(SCOPES_SIGNALS, ABSTRACT_SOCKETS_AND_SIGNALS),
        };
        let size = match version {
            ..4 => 8,
            4 | 5 => 16,
            6.. => 24,
        };
        Ok(Self { descriptor: sys::landlock_ruleset(&attributes, size)?, handled: files })
    }

    /// Grants access beneath `path`; a path that does not exist grants nothing.
    pub(super) fn allow(&mut self, path: &Path, access: PathAccess) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let Ok(opened) = rustix::fs::open(path, flags, Mode::empty()) else { return Ok(()) };
        let opened = File::from(opened);
        let wanted = match access {
            PathAccess::Read => EXECUTE | READ_FILE | READ_DIRECTORY,
            PathAccess::Write => self.handled & !EXECUTE,
            PathAccess::All => self.handled,
        };
        let applicable = if opened.metadata()?.is_dir() { self.handled } else { OF_FILES };
        sys::landlock_allow(
            self.descriptor.as_fd(),
            opened.as_fd(),
            wanted & applicable & self.handled,
        )
    }

    /// The finished ruleset's descriptor.
    pub(super) fn finish(self) -> OwnedFd {
        self.descriptor
    }
}
