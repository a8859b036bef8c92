//! Landlock rulesets: which files may be touched, and that nobody outside may be signalled.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use super::sys::{self, RulesetAttributes};

const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIRECTORY: u64 = 1 << 3;
/// What the first version knows: up to making symbolic links.
const FIRST_VERSION: u64 = (1 << 13) - 1;
const LINK_ELSEWHERE: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const DEVICE_CONTROL: u64 = 1 << 15;

/// What makes sense for something that is no directory.
const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | DEVICE_CONTROL;

const TCP: u64 = 0b11;
const ABSTRACT_SOCKETS_AND_SIGNALS: u64 = 0b11;

/// What may be done beneath a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Read and execute.
    Read,
    /// Read and write, never execute.
    Write,
    /// Everything.
    Own,
}

/// The version from which signals can be kept in. Before it, workers of one zygote can signal each other.
const SCOPES_SIGNALS: u32 = 6;

/// Whether a worker's signals can be kept in.
pub(super) fn scopes_signals() -> bool {
    sys::landlock_version().is_ok_and(|version| version >= SCOPES_SIGNALS)
}

/// A ruleset under construction.
#[derive(Debug)]
pub(super) struct Ruleset {
    descriptor: OwnedFd,
    handled: u64,
}

impl Ruleset {
    /// Refuses everything that is not granted. TCP is refused altogether unless `network`.
    pub(super) fn new(network: bool) -> io::Result<Self> {
        let version = sys::landlock_version()?;
        let known_from = |first, access| if version >= first { access } else { 0 };
        let files = FIRST_VERSION
            | known_from(2, LINK_ELSEWHERE)
            | known_from(3, TRUNCATE)
            | known_from(5, DEVICE_CONTROL);
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

    /// Grants access beneath `path`; a path that is not there grants nothing.
    pub(super) fn allow(&mut self, path: &Path, access: Access) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let Ok(opened) = rustix::fs::open(path, flags, Mode::empty()) else { return Ok(()) };
        let opened = File::from(opened);
        let wanted = match access {
            Access::Read => EXECUTE | READ_FILE | READ_DIRECTORY,
            Access::Write => self.handled & !EXECUTE,
            Access::Own => self.handled,
        };
        let sensible = if opened.metadata()?.is_dir() { self.handled } else { OF_FILES };
        sys::landlock_allow(
            self.descriptor.as_fd(),
            opened.as_fd(),
            wanted & sensible & self.handled,
        )
    }

    /// Done.
    pub(super) fn finish(self) -> OwnedFd {
        self.descriptor
    }
}
