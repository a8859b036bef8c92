//! The sandbox of one zygote and its workers.

mod installer;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lifecycle::provenance::ObservedSource;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Gid, Pid, Resource, Uid};
use serde_json::{Value, json};

use super::entry::{Namespaces, SandboxEntry};
use super::groups::{Branch, CgroupTree, Share};
use super::landlock::{self, PathAccess, Ruleset};
use super::limits::ceiling;
use super::mediator::{ConnectionLog, Terms};
use super::seal::{Seal, WorkerLimit};
use super::seccomp::{Filter, Sockets};
use super::spawn_handshake::SpawnHandshake;
use super::tally::Tally;
use super::user::{SandboxUser, may_mount, tasks_of_user};
use super::view::{self, DEVICES, SCRATCH, c_path};
use super::{Layer, Layers, Sandbox, SandboxAccess, Scratch, Starts, WorkerLimits};
use crate::grants::Network;

/// Workers of one zygote that share a limit counted per user, where workers have no user namespace.
const SHARERS: u64 = 8;

/// One zygote's sandbox. Dropping it removes its directory and control groups.
#[derive(Debug)]
pub(crate) struct ZygoteSandbox {
    groups: Option<Groups>,
    directory: Scratch,
    layers: Layers,
    access: SandboxAccess,
    /// The user its processes run as; `None`: the host's user.
    user: Option<SandboxUser>,
    /// The ruleset of workers with their own root; each worker still gets its own Landlock domain.
    ruleset: Option<OwnedFd>,
    seal: Seal,
    limits: WorkerLimits,
    environment: Vec<(&'static str, OsString)>,
    connections: Arc<ConnectionLog>,
}

/// Its control groups: the zygote's, and the tree that holds the workers'.
#[derive(Debug)]
struct Groups {
    zygote: Branch,
    tree: Arc<CgroupTree>,
}

/// What one worker is given; removed when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct WorkerResources {
    group: Option<Branch>,
    /// Its scratch directory, where its seal does not mount one.
    own: Option<Scratch>,
    /// Descriptors to join its control groups.
    cgroup_fds: Vec<OwnedFd>,
    ruleset: Option<OwnedFd>,
    connections: Arc<ConnectionLog>,
}

impl Sandbox {
    /// A sandbox for a zygote, as strong as this machine allows.
    pub(crate) fn zygote_sandbox(&self, access: SandboxAccess) -> io::Result<ZygoteSandbox> {
        self.zygote_sandbox_with(self.reached().layers, access)
    }

    /// A sandbox for a zygote made of these layers.
    pub(super) fn zygote_sandbox_with(
        &self,
        layers: Layers,
        access: SandboxAccess,
    ) -> io::Result<ZygoteSandbox> {
        let directory = self.directory()?;
        let isolated = layers.has(Layer::Namespaces);
        let changes_user = layers.has(Layer::Identity) && (isolated || access.is_open_to_all());
        let user = changes_user.then(SandboxUser::reserve).transpose()?.flatten();
        let groups = layers.has(Layer::Cgroups).then(|| self.limits.zygote_share());
        let mut zygote_sandbox = ZygoteSandbox {
            groups: groups.map(|share| Groups::make(&directory, share)).transpose()?,
            seal: Seal::default(),
            ruleset: None,
            environment: Vec::new(),
            connections: Arc::default(),
            limits: self.limits,
            directory,
            layers,
            access,
            user,
        };
        if isolated && layers.has(Layer::Landlock) {
            zygote_sandbox.ruleset = Some(zygote_sandbox.own_root_ruleset()?);
        }
        zygote_sandbox.seal = self.seal(&zygote_sandbox)?;
        zygote_sandbox.environment = self.environment(&zygote_sandbox);
        Ok(zygote_sandbox)
    }

    fn seal(&self, zygote_sandbox: &ZygoteSandbox) -> io::Result<Seal> {
        let mut seal = Seal::default();
        let isolated = zygote_sandbox.layers.has(Layer::Namespaces);
        if isolated {
            seal.set_dumpable(true); // otherwise it cannot write its own user maps
            seal.private_scratch(
                zygote_sandbox.id(),
                self.limits.scratch_bytes,
                self.limits.scratch_files,
            );
        }
        seal.links(&zygote_sandbox.access.names)?;
        if let Some(workspace) = &zygote_sandbox.access.workspace {
            seal.change_directory(workspace)?;
        }
        if zygote_sandbox.layers.has(Layer::Limits) {
            let value = match (isolated, &zygote_sandbox.user) {
                (true, _) => self.limits.processes,
                (false, Some(_)) => self.limits.processes * SHARERS,
                (false, None) => {
                    self.limits.processes * SHARERS + tasks_of_user(zygote_sandbox.id())
                }
            };
            let value = value.min(ceiling(Resource::Nproc));
            seal.limit(WorkerLimit { resource: libc::RLIMIT_NPROC, soft: value, hard: value });
            let seconds = self.limits.cpu_seconds;
            // A program that ignores SIGXCPU is killed one second later.
            let hard = seconds.saturating_add(1);
            seal.limit(WorkerLimit { resource: libc::RLIMIT_CPU, soft: seconds, hard });
            seal.reset_signal(libc::SIGBUS); // scratch space is full; Ruby's handler would abort
        }
        if zygote_sandbox.layers.has(Layer::Landlock) {
            seal.landlock();
        }
        if zygote_sandbox.layers.has(Layer::Seccomp) {
            seal.filter(&Filter::worker(isolated)?)?;
        }
        if zygote_sandbox.hides_from_user() {
            seal.set_dumpable(false);
        }
        Ok(seal)
    }

    /// The calls that the harness makes: the zygote before it is ready, each worker after its fork.
    fn seals(zygote_sandbox: &ZygoteSandbox) -> Value {
        let mut zygote = Seal::default();
        if zygote_sandbox.unmounts_in_child() {
            zygote.await_child();
        }
        if zygote_sandbox.hides_from_user() {
            zygote.set_dumpable(false);
        }
        json!({
            "zygote": zygote.to_json(),
            "worker": zygote_sandbox.seal.to_json(),
            "network": zygote_sandbox.access.network != Network::Off,
        })
    }

    /// All environment variables of a worker: nothing is inherited from the host.
    fn environment(&self, zygote_sandbox: &ZygoteSandbox) -> Vec<(&'static str, OsString)> {
        let scratch = if zygote_sandbox.layers.has(Layer::Namespaces) {
            OsStr::new(SCRATCH)
        } else {
            zygote_sandbox.directory.as_ref().as_os_str()
        };
        vec![
            ("PATH", self.path.clone()),
            ("LANG", "C.UTF-8".into()),
            ("HOME", scratch.to_owned()),
            ("TMPDIR", scratch.to_owned()),
            ("RECURGENT_SEAL", Self::seals(zygote_sandbox).to_string().into()),
        ]
    }

    /// Makes `command` start inside the sandbox.
    pub(crate) fn confine(
        &self,
        command: &mut Command,
        zygote_sandbox: &ZygoteSandbox,
    ) -> io::Result<SpawnHandshake> {
        self.confine_as(command, zygote_sandbox, None)
    }

    /// The same; for a probe, `worker` is the seal of a worker to apply as well.
    pub(super) fn confine_as(
        &self,
        command: &mut Command,
        zygote_sandbox: &ZygoteSandbox,
        worker: Option<(Seal, Option<OwnedFd>)>,
    ) -> io::Result<SpawnHandshake> {
        command
            .env_clear()
            .envs(zygote_sandbox.environment.iter().map(|(name, value)| (name, value)));
        let has = |layer| zygote_sandbox.layers.has(layer);
        let (namespaces, number) = if has(Layer::Namespaces) {
            let (spawn_handshake, writer) = pipe_with(PipeFlags::CLOEXEC)?;
            (Some(zygote_sandbox.namespaces(writer)?), Some(spawn_handshake))
        } else {
            command.current_dir(&zygote_sandbox.directory);
            (None, None)
        };
        let (connections, listener) = zygote_sandbox.mediation()?;
        let uses_host_root = has(Layer::Landlock) && !has(Layer::Namespaces);
        let entry = SandboxEntry {
            host: rustix::process::getpid(),
            groups: zygote_sandbox.cgroup_fds()?,
            limits: if has(Layer::Limits) {
                self.limits.lowered(namespaces.is_some())
            } else {
                Vec::new()
            },
            namespaces,
            drop_capabilities: has(Layer::Identity),
            user: zygote_sandbox.user.as_ref().map(SandboxUser::id),
            ruleset: uses_host_root
                .then(|| zygote_sandbox.host_root_ruleset(zygote_sandbox.directory.as_ref()))
                .transpose()?,
            filter: has(Layer::Seccomp)
                .then(|| Filter::zygote(zygote_sandbox.sockets()))
                .transpose()?,
            connections,
            seal: worker,
        };
        #[expect(unsafe_code, reason = "the only way to run code between fork and exec")]
        // SAFETY: `enter` runs in the forked child of a threaded process, so it may make only
        // async-signal-safe calls. It makes bare system calls on values made before the fork: it allocates
        // nothing, takes no lock, and touches no memory that the parent's threads may be changing.
        unsafe {
            command.pre_exec(move || entry.enter());
        }
        Ok(SpawnHandshake { number, connections: listener })
    }
}

impl ZygoteSandbox {
    /// Whether its processes must refuse to be traced, because no Landlock domain does so for them.
    fn hides_from_user(&self) -> bool {
        self.layers.has(Layer::Namespaces) && !self.layers.has(Layer::Landlock)
    }

    /// Whether a child of the zygote unmounts the host's files; the zygote waits for it before anything hostile runs.
    fn unmounts_in_child(&self) -> bool {
        self.layers.has(Layer::Namespaces) && self.access.starts == Starts::Harness
    }

    /// What a worker may use up.
    pub(crate) fn limits(&self) -> &WorkerLimits {
        &self.limits
    }

    /// The user its processes count as.
    fn id(&self) -> u32 {
        self.user.as_ref().map_or_else(|| rustix::process::geteuid().as_raw(), SandboxUser::id)
    }

    pub(super) fn take_seal(&mut self) -> Seal {
        std::mem::take(&mut self.seal)
    }

    /// Descriptors with which the zygote joins its control groups.
    fn cgroup_fds(&self) -> io::Result<Vec<OwnedFd>> {
        self.groups.as_ref().map_or_else(|| Ok(Vec::new()), |groups| groups.zygote.cgroup_fds())
    }

    /// Makes what one more worker is given.
    pub(crate) fn worker_resources(&self) -> io::Result<WorkerResources> {
        let share = self.limits.share();
        let group = self.groups.as_ref().map(|groups| groups.tree.branch(share)).transpose()?;
        let cgroup_fds = group.as_ref().map(Branch::cgroup_fds).transpose()?.unwrap_or_default();
        if self.layers.has(Layer::Namespaces) {
            let ruleset = self.ruleset.as_ref().map(OwnedFd::try_clone).transpose()?;
            let connections = Arc::clone(&self.connections);
            return Ok(WorkerResources { group, own: None, cgroup_fds, ruleset, connections });
        }
        let own = self.own_directory()?;
        let has_landlock = self.layers.has(Layer::Landlock);
        let ruleset = has_landlock.then(|| self.host_root_ruleset(own.as_ref())).transpose()?;
        let connections = Arc::clone(&self.connections);
        Ok(WorkerResources { group, own: Some(own), cgroup_fds, ruleset, connections })
    }

    fn own_directory(&self) -> io::Result<Scratch> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("worker-{}", MADE.fetch_add(1, Ordering::Relaxed));
        let own = self.directory.as_ref().join(name);
        std::fs::DirBuilder::new().mode(0o700).create(&own)?;
        let own = Scratch(own);
        if let Some(user) = &self.user {
            let (uid, gid) = (Uid::from_raw(user.id()), Gid::from_raw(user.id()));
            rustix::fs::chown(self.directory.as_ref(), Some(uid), Some(gid))?;
            rustix::fs::chown(own.as_ref(), Some(uid), Some(gid))?;
        }
        Ok(own)
    }

    /// For the host's root: only what is visible may be read, only `own` written.
    fn host_root_ruleset(&self, own: &Path) -> io::Result<OwnedFd> {
        let mut ruleset = Ruleset::new(self.access.network == Network::Open)?;
        for path in view::readable(&self.access) {
            ruleset.allow(&path, PathAccess::Read)?;
        }
        if self.access.network.is_mediated() {
            for path in view::NAMES {
                ruleset.allow(Path::new(path), PathAccess::Read)?; // so that `localhost` resolves
            }
        }
        self.allow_writes(&mut ruleset, own)?;
        Ok(ruleset.finish())
    }

    /// For its own root, which holds only what is visible.
    fn own_root_ruleset(&self) -> io::Result<OwnedFd> {
        let root = self.root()?;
        let mut ruleset = Ruleset::new(self.access.network == Network::Open)?;
        ruleset.allow(&root, PathAccess::Read)?;
        self.allow_writes(&mut ruleset, &root.join("home"))?;
        Ok(ruleset.finish())
    }

    fn allow_writes(&self, ruleset: &mut Ruleset, own: &Path) -> io::Result<()> {
        ruleset.allow(own, PathAccess::Write)?;
        for path in DEVICES.iter().map(Path::new).chain(self.access.write.iter().map(AsRef::as_ref))
        {
            ruleset.allow(path, PathAccess::Write)?;
        }
        Ok(())
    }

    /// The directory tree to mount its root on, made when first needed.
    fn root(&self) -> io::Result<PathBuf> {
        let root = self.directory.as_ref().join("root");
        if !root.exists() {
            std::fs::create_dir(&root)?;
            view::open_to_all(&root, 0o755)?;
            view::build_root(&root, &self.access.network, self.id())?;
        }
        Ok(root)
    }

    fn namespaces(&self, spawn_handshake: OwnedFd) -> io::Result<Namespaces> {
        let root = self.root()?;
        let mut namespaces = libc::CLONE_NEWNS
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUTS
            | libc::CLONE_NEWCGROUP;
        if self.access.network != Network::Open {
            namespaces |= libc::CLONE_NEWNET;
        }
        let mut maps = Vec::new();
        if !may_mount() {
            namespaces |= libc::CLONE_NEWUSER;
            let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
            maps = vec![
                (c"/proc/self/setgroups".into(), b"deny".to_vec()),
                (c"/proc/self/uid_map".into(), format!("{user} {user} 1").into_bytes()),
                (c"/proc/self/gid_map".into(), format!("{group} {group} 1").into_bytes()),
            ];
        }
        Ok(Namespaces {
            flags: namespaces,
            maps,
            processes: c_path(&root.join("proc"))?,
            binds: view::binds(&root, &self.access)?,
            unmounts_in_child: self.unmounts_in_child(),
            root: c_path(&root)?,
            spawn_handshake,
        })
    }

    /// The two ends of the channel on which connections are passed to the host: the child's and the host's.
    #[expect(clippy::type_complexity, reason = "two ends of one channel")]
    fn mediation(&self) -> io::Result<(Option<(Filter, OwnedFd)>, Option<(OwnedFd, Terms)>)> {
        if !self.access.network.is_mediated() {
            return Ok((None, None));
        }
        let (host_end, child_end) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let host_end = (
            host_end,
            Terms {
                network: self.access.network.clone(),
                for_tool: false,
                log: Arc::clone(&self.connections),
            },
        );
        Ok((Some((Filter::connections()?, child_end)), Some(host_end)))
    }

    /// The sockets that may be created. Unix sockets are safe in an isolated root, where they reach nothing, unless a
    /// granted directory holds one or the host's network namespace is shared, which holds the abstract ones.
    fn sockets(&self) -> Sockets {
        const LOCAL: u32 = libc::AF_UNIX as u32;
        const INET: u32 = libc::AF_INET as u32;
        const INET6: u32 = libc::AF_INET6 as u32;
        const ROUTES: u32 = libc::AF_NETLINK as u32;
        let scoped = self.access.network != Network::Open
            || (self.layers.has(Layer::Landlock) && landlock::scopes_signals());
        let local = self.layers.has(Layer::Namespaces) && self.access.local_sockets && scoped;
        let families: &[u32] = match (&self.access.network, local) {
            (Network::Off, false) => &[],
            (Network::Off, true) => &[LOCAL],
            (Network::Loopback | Network::Hosts(_), _) => &[INET, INET6],
            (Network::Open, false) => &[INET, INET6, ROUTES],
            (Network::Open, true) => &[LOCAL, INET, INET6, ROUTES],
        };
        Sockets { families, mediated: self.access.network.is_mediated() }
    }
}

impl Groups {
    fn make(directory: &Scratch, share: Share) -> io::Result<Self> {
        let tree = CgroupTree::create(directory.as_ref())?;
        Ok(Self { zygote: tree.branch(share)?, tree })
    }
}

impl WorkerResources {
    /// The worker's directory, where its seal does not mount one.
    pub(crate) fn scratch(&self) -> Option<&Path> {
        self.own.as_ref().map(AsRef::as_ref)
    }

    /// Descriptors with which the worker joins its control groups.
    pub(crate) fn cgroup_fds(&self) -> &[OwnedFd] {
        &self.cgroup_fds
    }

    pub(crate) fn ruleset(&self) -> Option<&OwnedFd> {
        self.ruleset.as_ref()
    }

    /// The connections made for its worker since this was last called.
    pub(crate) fn take_connections(&self, worker: Pid) -> Vec<ObservedSource> {
        self.connections.take(worker)
    }

    /// The kernel's counters of the worker and all processes it starts.
    pub(crate) fn tally(&self) -> io::Result<Tally> {
        self.group.as_ref().map_or_else(|| Ok(Tally::default()), Branch::tally)
    }

    /// Adds its worker to the control groups and closes the descriptors, which the worker has by now.
    pub(crate) fn assign(&mut self, worker: Pid) -> io::Result<()> {
        (self.cgroup_fds, self.ruleset) = (Vec::new(), None);
        self.group.as_ref().map_or(Ok(()), |group| group.add(worker))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    /// Where there are namespaces; elsewhere nothing is unmounted.
    #[test]
    fn host_files_are_unmounted_before_packages_load() {
        let sandbox = Sandbox::new(&Config::defaults().worker_options());
        for starts in [Starts::Harness, Starts::Packages, Starts::WrittenFiles] {
            let access = SandboxAccess { starts, ..SandboxAccess::default() };
            let zygote_sandbox = sandbox.zygote_sandbox(access).unwrap();
            let waits = Sandbox::seals(&zygote_sandbox)["zygote"]
                .as_array()
                .unwrap()
                .iter()
                .any(|step| step[0] == libc::SYS_wait4);
            assert_eq!(
                waits,
                starts == Starts::Harness && zygote_sandbox.layers.has(Layer::Namespaces)
            );
            if zygote_sandbox.layers.has(Layer::Namespaces) {
                let (_, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
                assert_eq!(zygote_sandbox.namespaces(writer).unwrap().unmounts_in_child, waits);
            }
        }
    }
}
