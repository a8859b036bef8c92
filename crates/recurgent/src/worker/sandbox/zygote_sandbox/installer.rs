//! The sandbox of a package manager: like a zygote's, for one command.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD};
use rustix::process::{Gid, Resource, Uid};
use rustix::thread::CapabilitySet;

use super::super::entry::SandboxEntry;
use super::super::installer_command::InstallerCommand;
use super::super::landlock::{PathAccess, Ruleset};
use super::super::limits::ceiling;
use super::super::mediator::Terms;
use super::super::seal::{Seal, WorkerLimit};
use super::super::seccomp::Filter;
use super::super::spawn_handshake::SpawnHandshake;
use super::super::sys::{MOUNT_NODEV, MOUNT_NOSUID};
use super::super::user::{SandboxUser, has_capability, tasks_of_user};
use super::super::view::{self, Bind, DEVICES, SCRATCH, c_path};
use super::super::{Layer, Sandbox, SandboxAccess, Starts};
use super::{Groups, ZygoteSandbox, pipe_with};
use crate::grants::Network;

impl Sandbox {
    /// Makes `command` start inside a sandbox of its own, which must live as long as the command.
    pub(crate) fn confine_installer(
        &self,
        command: &mut Command,
        installer_command: &InstallerCommand<'_>,
    ) -> io::Result<(ZygoteSandbox, SpawnHandshake)> {
        let zygote_sandbox = self.installer_sandbox(installer_command)?;
        let has = |layer| zygote_sandbox.layers.has(layer);
        let (namespaces, number) = if has(Layer::Namespaces) {
            let (spawn_handshake, writer) = pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
            let mut namespaces = zygote_sandbox.namespaces(writer)?;
            // For programs that use the home directory without reading TMPDIR.
            namespaces.binds.push(Bind {
                source: c_path(installer_command.home)?,
                target: c_path(&zygote_sandbox.root()?.join(SCRATCH.trim_start_matches('/')))?,
                attributes: MOUNT_NOSUID | MOUNT_NODEV,
            });
            (Some(namespaces), Some(spawn_handshake))
        } else {
            (None, None)
        };
        let (connections, listener) = zygote_sandbox.mediation()?;
        let listener = listener.map(|(writer, terms)| (writer, Terms { for_tool: true, ..terms }));
        let entry = SandboxEntry {
            host: rustix::process::getpid(),
            groups: zygote_sandbox.cgroup_fds()?,
            limits: if has(Layer::Limits) {
                installer_command.limits.hard_limits()
            } else {
                Vec::new()
            },
            namespaces,
            drop_capabilities: has(Layer::Identity),
            user: zygote_sandbox.user.as_ref().map(SandboxUser::id),
            ruleset: has(Layer::Landlock)
                .then(|| zygote_sandbox.installer_ruleset(installer_command))
                .transpose()?,
            filter: has(Layer::Seccomp)
                .then(|| Filter::zygote(zygote_sandbox.sockets()))
                .transpose()?,
            connections,
            seal: Some((zygote_sandbox.installer_seal(installer_command)?, None)),
        };
        let directory = c_path(installer_command.directory)?;
        #[expect(unsafe_code, reason = "the only way to run code between fork and exec")]
        // SAFETY: as in `confine_as`: bare system calls on values made before the fork.
        unsafe {
            command.pre_exec(move || {
                entry.enter()?;
                Ok(rustix::process::chdir(directory.as_c_str())?)
            });
        }
        Ok((zygote_sandbox, SpawnHandshake { number, connections: listener, layer: None }))
    }

    fn installer_sandbox(
        &self,
        installer_command: &InstallerCommand<'_>,
    ) -> io::Result<ZygoteSandbox> {
        let layers = self.reached().layers;
        let isolated = layers.has(Layer::Namespaces);
        let written =
            || installer_command.write.iter().cloned().chain([installer_command.home.to_owned()]);
        let access = SandboxAccess {
            read: installer_command.read.to_vec(),
            write: written().collect(),
            network: installer_command.install_phase.network(isolated),
            local_sockets: true,
            starts: Starts::WrittenFiles,
            ..SandboxAccess::default()
        };
        let parents = written().filter_map(|path| path.parent().map(Path::to_owned));
        let above = SandboxAccess { read: parents.collect(), ..SandboxAccess::default() };
        let changes_user = installer_command.install_phase.runs_fetched_code()
            && layers.has(Layer::Identity)
            && has_capability(CapabilitySet::CHOWN)
            && (isolated || (access.is_open_to_all() && above.is_open_to_all()));
        let user = changes_user.then(SandboxUser::reserve).transpose()?.flatten();
        if let Some(user) = &user {
            for path in written() {
                change_owner(&path, Uid::from_raw(user.id()), Gid::from_raw(user.id()))?;
            }
        }
        let directory = self.directory()?;
        let groups = layers.has(Layer::Cgroups).then(|| installer_command.limits.cgroup_limits());
        Ok(ZygoteSandbox {
            groups: groups.map(|limits| Groups::make(&directory, limits)).transpose()?,
            directory,
            layers,
            access,
            user,
            ruleset: None,
            seal: Seal::default(),
            limits: self.limits,
            environment: Vec::new(),
            connections: Arc::default(),
        })
    }
}

impl ZygoteSandbox {
    /// Makes a descriptor's file belong to the sandbox's user.
    pub(crate) fn give_to_user(&self, descriptor: &OwnedFd) -> io::Result<()> {
        let Some(user) = &self.user else { return Ok(()) };
        let (uid, gid) = (Uid::from_raw(user.id()), Gid::from_raw(user.id()));
        Ok(rustix::fs::fchown(descriptor, Some(uid), Some(gid))?)
    }

    /// Makes files that were given to the sandbox's user belong to the host's user again.
    pub(crate) fn take_back<'p>(
        &self,
        paths: impl IntoIterator<Item = &'p Path>,
    ) -> io::Result<()> {
        if self.user.is_none() {
            return Ok(());
        }
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        paths.into_iter().try_for_each(|path| change_owner(path, uid, gid))
    }

    /// Whether it has its own namespaces: then all it started ends with it, and it ends with the host.
    pub(crate) fn is_isolated(&self) -> bool {
        self.layers.has(Layer::Namespaces)
    }

    /// Lists what is visible instead of allowing the whole root: `/proc` shows the package manager's own
    /// processes, whose environment may hold credentials.
    fn installer_ruleset(&self, installer_command: &InstallerCommand<'_>) -> io::Result<OwnedFd> {
        let mut ruleset = Ruleset::new(self.access.network == Network::Open)?;
        for path in view::readable(&self.access) {
            ruleset.allow(&path, PathAccess::Read)?;
        }
        if self.is_isolated() {
            ruleset.allow(&self.root()?.join("etc"), PathAccess::Read)?;
        }
        for path in DEVICES {
            ruleset.allow(Path::new(path), PathAccess::Write)?;
        }
        for path in
            installer_command.write.iter().map(AsRef::as_ref).chain([installer_command.home])
        {
            ruleset.allow(path, PathAccess::All)?;
        }
        Ok(ruleset.finish())
    }

    fn installer_seal(&self, installer_command: &InstallerCommand<'_>) -> io::Result<Seal> {
        let mut seal = Seal::default();
        if self.layers.has(Layer::Limits) && installer_command.install_phase.runs_fetched_code() {
            let is_counted_alone = self.is_isolated() || self.user.is_some();
            let others = if is_counted_alone { 0 } else { tasks_of_user(self.id()) };
            let value = (installer_command.limits.processes + others).min(ceiling(Resource::Nproc));
            seal.limit(WorkerLimit { resource: libc::RLIMIT_NPROC, soft: value, hard: value });
        }
        if self.layers.has(Layer::Seccomp) {
            // Process 1 is the installer itself, whose threads must be able to signal each other.
            seal.filter(&Filter::worker(false)?)?;
            if !installer_command.install_phase.starts_processes() {
                seal.filter(&Filter::no_children()?)?;
            }
        }
        Ok(seal)
    }
}

/// Changes the owner of a tree; of links themselves, never of their targets.
fn change_owner(path: &Path, uid: Uid, gid: Gid) -> io::Result<()> {
    rustix::fs::chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    if path.symlink_metadata()?.is_dir() {
        for entry in std::fs::read_dir(path)? {
            change_owner(&entry?.path(), uid, gid)?;
        }
    }
    Ok(())
}
