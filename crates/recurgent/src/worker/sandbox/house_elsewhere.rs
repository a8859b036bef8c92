//! Where one zygote and its workers live, on systems whose kernel offers no containment we know.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Pid;

use super::{Errand, Sandbox, Scratch, Seen, Tally, WorkerLimits};

/// One zygote's place.
#[derive(Debug)]
pub(crate) struct House {
    directory: Scratch,
    limits: WorkerLimits,
    environment: Vec<(&'static str, OsString)>,
}

/// What one worker is given.
#[derive(Debug, Default)]
pub(crate) struct Berth(Option<Scratch>);

/// Nothing is to be told: the process started is the one inside.
#[derive(Debug)]
pub(crate) struct Birth;

impl Sandbox {
    /// A place for a zygote.
    pub(crate) fn house(&self, _seen: Seen) -> io::Result<House> {
        let directory = self.directory()?;
        let scratch = directory.as_ref().as_os_str().to_owned();
        let environment = vec![
            ("PATH", self.path.clone()),
            ("LANG", "C.UTF-8".into()),
            ("HOME", scratch.clone()),
            ("TMPDIR", scratch),
        ];
        Ok(House { directory, limits: self.limits, environment })
    }

    /// Makes `command` start with limits.
    pub(crate) fn confine(&self, command: &mut Command, house: &House) -> io::Result<Birth> {
        command
            .env_clear()
            .envs(house.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&house.directory);
        let limits = self.limits.lowered(false);
        #[expect(unsafe_code, reason = "the only way to run code between fork and exec")]
        // SAFETY: bare system calls on values made beforehand.
        unsafe {
            command.pre_exec(move || {
                rustix::process::setsid()?;
                for (resource, limit) in &limits {
                    rustix::process::setrlimit(*resource, *limit)?;
                }
                Ok(())
            });
        }
        Ok(Birth)
    }

    /// Makes `command` start with the limits of its errand.
    pub(crate) fn send(
        &self,
        command: &mut Command,
        errand: &Errand<'_>,
    ) -> io::Result<(House, Birth)> {
        command.current_dir(errand.directory);
        let limits = errand.limits.lowered();
        #[expect(unsafe_code, reason = "the only way to run code between fork and exec")]
        // SAFETY: bare system calls on values made beforehand.
        unsafe {
            command.pre_exec(move || {
                rustix::process::setsid()?;
                for (resource, limit) in &limits {
                    rustix::process::setrlimit(*resource, *limit)?;
                }
                Ok(())
            });
        }
        Ok((self.house(Seen::default())?, Birth))
    }
}

impl House {
    /// There is no other user to hand it over to.
    pub(crate) fn hand_over(&self, _descriptor: &OwnedFd) -> io::Result<()> {
        Ok(())
    }

    /// Nothing was handed over.
    pub(crate) fn take_back<'p>(
        &self,
        _paths: impl IntoIterator<Item = &'p Path>,
    ) -> io::Result<()> {
        Ok(())
    }

    /// Whether all it started ends with it.
    pub(crate) fn is_walled(&self) -> bool {
        false
    }

    /// What a worker may use up.
    pub(crate) fn limits(&self) -> &WorkerLimits {
        &self.limits
    }

    /// What one more worker is given.
    pub(crate) fn berth(&self) -> io::Result<Berth> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("worker-{}", MADE.fetch_add(1, Ordering::Relaxed));
        let own = self.directory.as_ref().join(name);
        std::fs::DirBuilder::new().mode(0o700).create(&own)?;
        Ok(Berth(Some(Scratch(own))))
    }
}

impl Berth {
    pub(crate) fn scratch(&self) -> Option<&Path> {
        self.0.as_ref().map(AsRef::as_ref)
    }

    pub(crate) fn doors(&self) -> &[OwnedFd] {
        &[]
    }

    pub(crate) fn ruleset(&self) -> Option<&OwnedFd> {
        None
    }

    pub(crate) fn tally(&self) -> io::Result<Tally> {
        Ok(Tally::default())
    }

    pub(crate) fn occupy(&mut self, _worker: Pid) -> io::Result<()> {
        Ok(())
    }
}

impl Birth {
    pub(crate) fn pid(&self, started: Option<Pid>) -> Option<Pid> {
        started
    }

    pub(crate) fn is_another(&self) -> bool {
        false
    }

    pub(crate) fn attend(self, _inside: Option<Pid>) -> io::Result<()> {
        Ok(())
    }
}
