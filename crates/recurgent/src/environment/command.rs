//! Runs a package manager: confined, with constructed variables, within a time and disk limit, with bounded output, and
//! until it is cancelled.

mod job;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::pipe::{PipeFlags, pipe_with};

use super::inspection::{disk_use, find_hostile_path};
use crate::guest::Cancellation;
use crate::worker::InstallerLimits;
use crate::worker::sandbox::{InstallPhase, InstallerCommand, Sandbox, ZygoteSandbox};
use job::Job;

/// What every command of one build shares.
#[derive(Debug, Clone)]
pub(super) struct CommandEnv<'a> {
    /// The working directory.
    pub(super) directory: &'a Path,
    /// All their environment variables: nothing is inherited from the host.
    pub(super) variables: Vec<(OsString, OsString)>,
    /// The lock of the directory that they write to. A command that could outlive a killed host gets it as standard
    /// input, so that no other process gets the lock before the command ends.
    pub(super) lock: &'a File,
    /// Ends a command early.
    pub(super) cancellation: &'a Cancellation,
    /// What confines them.
    pub(super) sandbox: &'a Sandbox,
    /// What they see beside the system.
    pub(super) read: Vec<PathBuf>,
    /// Where they may write beside `home`.
    pub(super) write: Vec<PathBuf>,
    /// A private directory for whatever else they write.
    pub(super) home: &'a Path,
    pub(super) limits: InstallerLimits,
    /// The standard input of a command. It can be read once, so processes that the command starts find nothing there.
    pub(super) input: Option<Vec<u8>>,
}

/// A command that ran to its end.
#[derive(Debug)]
pub(super) struct FinishedCommand {
    /// Its exit status; `None`: a signal ended it.
    pub(super) status: Option<i32>,
    /// The end of its output.
    pub(super) output: String,
}

/// Why a command was not run to its end.
#[derive(Debug)]
pub(super) enum InstallerFault {
    /// It cannot be run.
    Unusable(io::Error),
    /// It did not end in time.
    TimedOut {
        /// The time it had.
        limit: Duration,
        /// The end of its output.
        output: String,
    },
    /// It used more disk space than its limit.
    Oversized {
        /// Its limit in bytes.
        limit: u64,
    },
    /// It left a path that the host must not use, such as a link that points outside.
    HostilePath(PathBuf),
    /// The caller cancelled.
    Cancelled,
}

impl CommandEnv<'_> {
    /// Runs a command to its end.
    pub(super) fn run<A: AsRef<OsStr>>(
        &self,
        install_phase: &InstallPhase,
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
        limit: Duration,
    ) -> Result<FinishedCommand, InstallerFault> {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        let mut read = self.read.clone();
        read.push(program.to_owned());
        let installer_command = InstallerCommand {
            install_phase,
            read: &read,
            write: &self.write,
            home: self.home,
            directory: self.directory,
            limits: self.limits,
        };
        let (zygote_sandbox, spawn_handshake) = self
            .sandbox
            .confine_installer(&mut command, &installer_command)
            .map_err(InstallerFault::Unusable)?;
        let input = self.input(&zygote_sandbox).map_err(InstallerFault::Unusable)?;
        let mut job =
            Job::start(command, spawn_handshake, input).map_err(InstallerFault::Unusable)?;
        let ended = job.finish(Instant::now() + limit, limit, self);
        drop(job); // ends everything it started
        if !install_phase.runs_fetched_code() {
            return ended;
        }
        let handed = || self.write.iter().map(AsRef::as_ref).chain([self.home]);
        zygote_sandbox.take_back(handed()).map_err(InstallerFault::Unusable)?;
        match self.write.iter().find_map(|top| find_hostile_path(top, top, &self.read)) {
            Some(path) => Err(InstallerFault::HostilePath(path)),
            None => ended,
        }
    }

    /// The same with further variables.
    pub(super) fn with(&self, more: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let mut changed = self.clone();
        changed.variables.extend(more);
        changed
    }

    fn input(&self, zygote_sandbox: &ZygoteSandbox) -> io::Result<Stdio> {
        let Some(text) = &self.input else {
            let held =
                (!zygote_sandbox.is_isolated()).then(|| self.lock.try_clone()).transpose()?;
            return Ok(held.map_or_else(Stdio::null, Stdio::from));
        };
        // It fits into the pipe, so the write does not block.
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        File::from(write).write_all(text)?;
        rustix::fs::fcntl_setfl(&read, rustix::fs::OFlags::empty())?;
        zygote_sandbox.give_to_user(&read)?;
        Ok(read.into())
    }

    fn is_oversized(&self) -> bool {
        let taken = [self.directory, self.home].map(disk_use);
        taken.into_iter().fold(0, u64::saturating_add) > self.limits.disk_bytes
    }
}

#[cfg(test)]
mod tests;
