//! The sandbox of one zygote and its workers.

mod installer;
mod worker_resources;

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Gid, Resource, Uid};
use serde_json::{Value, json};

use super::entry::{LayerMount, Namespaces, SandboxEntry};
use super::groups::{Branch, CgroupLimits, CgroupTree};
use super::landlock::{self, PathAccess, Ruleset};
use super::limits::ceiling;
use super::mediator::{ConnectionLog, Terms};
use super::seal::{Seal, WorkerLimit};
use super::seccomp::{Filter, Sockets};
use super::spawn_handshake::{SpawnHandshake, receive_descriptor};
use super::sys::MOUNT_NOEXEC;
use super::user::{KeptGroups, SandboxUser, kept_groups, may_mount, tasks_of_user};
use super::view::{self, DEVICES, SCRATCH, c_path};
use super::{Layer, Layers, Sandbox, SandboxAccess, Scratch, Starts, WorkerLimits};
use crate::grants::Network;
pub(crate) use worker_resources::WorkerResources;

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
        let above_copy = access
            .workspace_version
            .as_ref()
            .filter(|_| !isolated)
            .and_then(|it| it.source.parent());
        if let Some((above_copy, user)) = above_copy.zip(user.as_ref()) {
            rustix::fs::chown(above_copy, Some(Uid::from_raw(user.id())), None)?; // to reach the copy
        }
        let groups = layers.has(Layer::Cgroups).then(|| self.limits.zygote_cgroup_limits());
        let mut zygote_sandbox = ZygoteSandbox {
            groups: groups.map(|limits| Groups::make(&directory, limits)).transpose()?,
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
        if let Some(directory) = zygote_sandbox.working_directory() {
            seal.change_directory(directory)?;
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
            // A program that is process 1 itself must be able to signal its own threads.
            let has_zygote = isolated && zygote_sandbox.access.starts != Starts::Program;
            seal.filter(&Filter::worker(has_zygote)?)?;
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
    pub(in crate::worker) fn confine_as(
        &self,
        command: &mut Command,
        zygote_sandbox: &ZygoteSandbox,
        worker: Option<(Seal, Option<OwnedFd>)>,
    ) -> io::Result<SpawnHandshake> {
        command
            .env_clear()
            .envs(zygote_sandbox.environment.iter().map(|(name, value)| (name, value)));
        let has = |layer| zygote_sandbox.layers.has(layer);
        let (mut namespaces, number) = if has(Layer::Namespaces) {
            let (spawn_handshake, writer) = pipe_with(PipeFlags::CLOEXEC)?;
            (Some(zygote_sandbox.namespaces(writer)?), Some(spawn_handshake))
        } else {
            command.current_dir(&zygote_sandbox.directory);
            (None, None)
        };
        let (layer, layer_receiver) = zygote_sandbox.layer_mount(self.limits)?.unzip();
        if let Some(namespaces) = &mut namespaces {
            namespaces.layer = layer;
        }
        let (connections, listener) = zygote_sandbox.mediation()?;
        let uses_host_root = has(Layer::Landlock) && !has(Layer::Namespaces);
        let entry = SandboxEntry {
            host: rustix::process::getpid(),
            groups: zygote_sandbox.cgroup_fds()?,
            limits: if has(Layer::Limits) {
                self.limits.hard_limits(namespaces.is_some())
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
        Ok(SpawnHandshake { number, connections: listener, layer: layer_receiver })
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

    /// Where workers run, instead of their scratch directory. Without a root of their own they run in their version of the
    /// workspace, under its own name.
    fn working_directory(&self) -> Option<&Path> {
        let workspace_version =
            self.access.workspace_version.as_ref().filter(|_| !self.layers.has(Layer::Namespaces));
        workspace_version
            .map(|workspace_version| workspace_version.source.as_path())
            .or(self.access.workspace.as_deref())
    }

    /// Receives the layer over the workspace, which exists only since the zygote started, and permits workers to write to it.
    pub(crate) fn receive_layer(&self, channel: Option<OwnedFd>) -> io::Result<Option<OwnedFd>> {
        let Some(channel) = channel else { return Ok(None) };
        let layer = receive_descriptor(&channel)?;
        self.allow_layer(layer.as_fd())?;
        Ok(Some(layer))
    }

    fn allow_layer(&self, layer: BorrowedFd<'_>) -> io::Result<()> {
        self.ruleset
            .as_ref()
            .map_or(Ok(()), |ruleset| landlock::allow_writes(ruleset.as_fd(), layer))
    }

    pub(in crate::worker) fn take_seal(&mut self) -> Seal {
        std::mem::take(&mut self.seal)
    }

    /// Descriptors with which the zygote joins its control groups.
    fn cgroup_fds(&self) -> io::Result<Vec<OwnedFd>> {
        self.groups.as_ref().map_or_else(|| Ok(Vec::new()), |groups| groups.zygote.cgroup_fds())
    }

    /// Makes what one more worker is given.
    pub(crate) fn worker_resources(&self) -> io::Result<WorkerResources> {
        let limits = self.limits.cgroup_limits();
        let group = self.groups.as_ref().map(|groups| groups.tree.branch(limits)).transpose()?;
        let cgroup_fds = group.as_ref().map(Branch::cgroup_fds).transpose()?.unwrap_or_default();
        if self.layers.has(Layer::Namespaces) {
            let ruleset = self.ruleset.as_ref().map(OwnedFd::try_clone).transpose()?;
            let connections = Arc::clone(&self.connections);
            let scratch = OnceLock::new();
            return Ok(WorkerResources {
                group,
                own: None,
                cgroup_fds,
                ruleset,
                connections,
                scratch,
            });
        }
        let own = self.own_directory()?;
        let has_landlock = self.layers.has(Layer::Landlock);
        let ruleset = has_landlock.then(|| self.host_root_ruleset(own.as_ref())).transpose()?;
        let connections = Arc::clone(&self.connections);
        let scratch = OnceLock::new();
        Ok(WorkerResources { group, own: Some(own), cgroup_fds, ruleset, connections, scratch })
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
            for part in self.visible(&path) {
                ruleset.allow(&part, PathAccess::Read)?;
            }
        }
        if self.access.network.is_mediated() {
            for path in view::NAMES {
                ruleset.allow(Path::new(path), PathAccess::Read)?; // so that `localhost` resolves
            }
        }
        if let Some(workspace) =
            self.access.workspace.as_ref().filter(|_| self.access.workspace_version.is_some())
        {
            for part in self.visible(workspace) {
                ruleset.allow(&part, PathAccess::Read)?;
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
        let workspace_version = self
            .access
            .workspace_version
            .iter()
            .filter(|workspace_version| !workspace_version.is_layer);
        let granted = self
            .access
            .write
            .iter()
            .chain(workspace_version.map(|workspace_version| &workspace_version.source));
        for path in DEVICES.iter().map(PathBuf::from).chain(granted.cloned()) {
            for part in self.visible(&path) {
                ruleset.allow(&part, PathAccess::Write)?;
            }
        }
        Ok(())
    }

    /// What of a path may be shown. A granted directory in which only a supplementary group may read something is shown in
    /// parts, unless that is hidden by a mount.
    fn visible(&self, path: &Path) -> Vec<PathBuf> {
        let hides =
            self.layers.has(Layer::Namespaces) || !self.access.granted.iter().any(|it| it == path);
        let groups = if hides { KeptGroups::default() } else { kept_groups() };
        if groups.paths_that_need_them(path).is_empty() {
            return vec![path.to_owned()];
        }
        groups.reachable_without(path)
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
            layer: None,
            unmounts_in_child: self.unmounts_in_child(),
            root: c_path(&root)?,
            spawn_handshake,
        })
    }

    /// How a layer over the workspace is mounted, and the socket on which the host gets it.
    fn layer_mount(&self, limits: WorkerLimits) -> io::Result<Option<(LayerMount, OwnedFd)>> {
        let workspace_version = self
            .access
            .workspace_version
            .as_ref()
            .filter(|workspace_version| workspace_version.is_layer);
        let Some((workspace, workspace_version)) =
            self.access.workspace.as_ref().zip(workspace_version)
        else {
            return Ok(None);
        };
        let directory = self.directory.as_ref().join("workspace");
        std::fs::create_dir(&directory)?;
        std::fs::create_dir(directory.join("layer"))?;
        std::os::unix::fs::symlink(
            std::fs::canonicalize(&workspace_version.source)?,
            directory.join("lower"),
        )?;
        let real = std::fs::canonicalize(workspace)?;
        let target = self.root()?.join(real.strip_prefix("/").unwrap_or(&real));
        let meta = workspace.metadata()?;
        let (host_socket, child_end) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let (bytes, files) = (limits.scratch_bytes, limits.scratch_files);
        let limits = format!("size={bytes},nr_inodes={files},mode=700");
        let layer = LayerMount {
            directory: c_path(&directory)?,
            limits: CString::new(limits).map_err(io::Error::other)?,
            owner: may_mount().then(|| (meta.uid(), meta.gid())),
            mode: meta.mode() & 0o7777,
            target: c_path(&target)?,
            executes: self.access.version_attributes() & MOUNT_NOEXEC == 0,
            host_socket: child_end,
        };
        Ok(Some((layer, host_socket)))
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
    fn make(directory: &Scratch, limits: CgroupLimits) -> io::Result<Self> {
        let tree = CgroupTree::create(directory.as_ref())?;
        Ok(Self { zygote: tree.branch(limits)?, tree })
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
