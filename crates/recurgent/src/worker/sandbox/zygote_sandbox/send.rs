//! How a package manager is sent out: into a place like a zygote's, for one command.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::{AtFlags, CWD};
use rustix::process::{Gid, Resource, Uid};
use rustix::thread::CapabilitySet;

use super::super::entry::Entry;
use super::super::installer_command::InstallerCommand;
use super::super::landlock::{Access, Ruleset};
use super::super::limits::ceiling;
use super::super::mediator::Terms;
use super::super::seal::{Seal, WorkerLimit};
use super::super::seccomp::Filter;
use super::super::spawn_handshake::SpawnHandshake;
use super::super::sys::{MOUNT_NO_DEVICES, MOUNT_NO_SUID};
use super::super::user::{has_capability, made_up_user, tasks_of_user};
use super::super::view::{self, Bind, DEVICES, SCRATCH, c_path};
use super::super::{Layer, Sandbox, Seen, Starts};
use super::{Groups, ZygoteSandbox, pipe_with};
use crate::grants::Network;

impl Sandbox {
    /// Makes `command` start where its errand leads. The place must last as long as the command does.
    pub(crate) fn send(
        &self,
        command: &mut Command,
        installer_command: &InstallerCommand<'_>,
    ) -> io::Result<(ZygoteSandbox, SpawnHandshake)> {
        let zygote_sandbox = self.house_for(installer_command)?;
        let has = |layer| zygote_sandbox.layers.has(layer);
        let (namespaces, number) = if has(Layer::Namespaces) {
            let (spawn_handshake, told) = pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
            let mut namespaces = zygote_sandbox.namespaces(told)?;
            // So that programs which do not ask where temporary files go have a place for them.
            namespaces.binds.push(Bind {
                source: c_path(installer_command.home)?,
                target: c_path(&zygote_sandbox.root()?.join(SCRATCH.trim_start_matches('/')))?,
                attributes: MOUNT_NO_SUID | MOUNT_NO_DEVICES,
            });
            (Some(namespaces), Some(spawn_handshake))
        } else {
            (None, None)
        };
        let (connections, listener) = zygote_sandbox.mediation()?;
        let listener = listener.map(|(told, terms)| (told, Terms { for_tool: true, ..terms }));
        let entry = Entry {
            host: rustix::process::getpid(),
            groups: zygote_sandbox.cgroup_fds()?,
            limits: if has(Layer::Limits) {
                installer_command.limits.lowered()
            } else {
                Vec::new()
            },
            namespaces,
            drop_capabilities: has(Layer::Identity),
            user: zygote_sandbox.user,
            ruleset: has(Layer::Landlock)
                .then(|| zygote_sandbox.errand_ruleset(installer_command))
                .transpose()?,
            filter: has(Layer::Seccomp)
                .then(|| Filter::zygote(zygote_sandbox.sockets()))
                .transpose()?,
            connections,
            seal: Some((zygote_sandbox.errand_seal(installer_command)?, None)),
        };
        let directory = c_path(installer_command.directory)?;
        #[expect(unsafe_code, reason = "the only way to run code between fork and exec")]
        // SAFETY: as in `confine_as`: bare system calls on values made beforehand.
        unsafe {
            command.pre_exec(move || {
                entry.enter()?;
                Ok(rustix::process::chdir(directory.as_c_str())?)
            });
        }
        Ok((zygote_sandbox, SpawnHandshake { number, connections: listener }))
    }

    fn house_for(&self, installer_command: &InstallerCommand<'_>) -> io::Result<ZygoteSandbox> {
        let layers = self.reached().layers;
        let walled = layers.has(Layer::Namespaces);
        let written =
            || installer_command.write.iter().cloned().chain([installer_command.home.to_owned()]);
        let seen = Seen {
            read: installer_command.read.to_vec(),
            write: written().collect(),
            network: installer_command.install_phase.network(walled),
            local_sockets: true,
            starts: Starts::WhatItWrites,
        };
        let parents = written().filter_map(|path| path.parent().map(Path::to_owned));
        let above = Seen { read: parents.collect(), ..Seen::default() };
        let hands_over = installer_command.install_phase.is_hostile()
            && layers.has(Layer::Identity)
            && has_capability(CapabilitySet::CHOWN)
            && (walled || (seen.is_open_to_all() && above.is_open_to_all()));
        let user = hands_over.then(made_up_user).flatten();
        if let Some(user) = user {
            for path in written() {
                give(&path, Uid::from_raw(user), Gid::from_raw(user))?;
            }
        }
        let directory = self.directory()?;
        let groups = layers.has(Layer::Cgroups).then(|| installer_command.limits.share());
        Ok(ZygoteSandbox {
            groups: groups.map(|share| Groups::make(&directory, share)).transpose()?,
            directory,
            layers,
            seen,
            user,
            ruleset: None,
            seal: Seal::default(),
            limits: self.limits,
            environment: Vec::new(),
        })
    }
}

impl ZygoteSandbox {
    /// Lets its user open what it is given.
    pub(crate) fn hand_over(&self, descriptor: &OwnedFd) -> io::Result<()> {
        let user = self.user.map(|user| (Uid::from_raw(user), Gid::from_raw(user)));
        Ok(user.map_or(Ok(()), |(uid, gid)| rustix::fs::fchown(descriptor, Some(uid), Some(gid)))?)
    }

    /// What was handed over to another user is ours again.
    pub(crate) fn take_back<'p>(
        &self,
        paths: impl IntoIterator<Item = &'p Path>,
    ) -> io::Result<()> {
        if self.user.is_none() {
            return Ok(());
        }
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        paths.into_iter().try_for_each(|path| give(path, uid, gid))
    }

    /// Whether all it started ends with it, and it with the host, whatever they do.
    pub(crate) fn is_walled(&self) -> bool {
        self.layers.has(Layer::Namespaces)
    }

    /// By what was shown, not by what an own root holds: the processes beside it are nobody's business,
    /// a package manager's own, with what it knows, least of all.
    fn errand_ruleset(&self, installer_command: &InstallerCommand<'_>) -> io::Result<OwnedFd> {
        let mut ruleset = Ruleset::new(self.seen.network == Network::Open)?;
        for path in view::readable(&self.seen) {
            ruleset.allow(&path, Access::Read)?;
        }
        if self.is_walled() {
            ruleset.allow(&self.root()?.join("etc"), Access::Read)?;
        }
        for path in DEVICES {
            ruleset.allow(Path::new(path), Access::Write)?;
        }
        for path in
            installer_command.write.iter().map(AsRef::as_ref).chain([installer_command.home])
        {
            ruleset.allow(path, Access::Own)?;
        }
        Ok(ruleset.finish())
    }

    fn errand_seal(&self, installer_command: &InstallerCommand<'_>) -> io::Result<Seal> {
        let mut seal = Seal::default();
        if self.layers.has(Layer::Limits) && installer_command.install_phase.is_hostile() {
            let own_count = self.is_walled() || self.user.is_some();
            let others = if own_count { 0 } else { tasks_of_user(self.id()) };
            let value = (installer_command.limits.processes + others).min(ceiling(Resource::Nproc));
            seal.limit(WorkerLimit { resource: libc::RLIMIT_NPROC, value, most: value });
        }
        if self.layers.has(Layer::Seccomp) {
            // The first process is the installer itself: its threads must be able to wake each other.
            seal.filter(&Filter::worker(false)?);
            if !installer_command.install_phase.employs() {
                seal.filter(&Filter::alone()?);
            }
        }
        Ok(seal)
    }
}

/// Has a tree belong to somebody; links themselves, never what they lead to.
fn give(path: &Path, uid: Uid, gid: Gid) -> io::Result<()> {
    rustix::fs::chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    if path.symlink_metadata()?.is_dir() {
        for entry in std::fs::read_dir(path)? {
            give(&entry?.path(), uid, gid)?;
        }
    }
    Ok(())
}
