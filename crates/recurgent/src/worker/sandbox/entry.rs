//! How a process enters its sandbox, between fork and exec.
//!
//! Everything it needs is made before the fork; between fork and exec there are bare system calls only.

use std::ffi::{CStr, CString};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::{Gid, Pid, Resource, Rlimit, Signal, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::seal::Seal;
use super::seccomp::Filter;
use super::sys::{self, MOUNT_NODEV, MOUNT_NOSUID, MOUNT_RDONLY};
use super::view::Bind;

/// The highest capability number the kernel interface can hold.
const CAPABILITIES: u32 = 63;

/// What a process does to enter its sandbox.
#[derive(Debug)]
pub(super) struct SandboxEntry {
    pub(super) host: Pid,
    /// Descriptors of the control groups to join.
    pub(super) groups: Vec<OwnedFd>,
    pub(super) limits: Vec<(Resource, Rlimit)>,
    pub(super) namespaces: Option<Namespaces>,
    /// Whether capabilities are given up.
    pub(super) drop_capabilities: bool,
    /// The user to change to.
    pub(super) user: Option<u32>,
    pub(super) ruleset: Option<OwnedFd>,
    pub(super) filter: Option<Filter>,
    /// The filter that passes connections to the host, and the socket on which the host gets its listener.
    pub(super) connections: Option<(Filter, OwnedFd)>,
    /// A probe also makes the calls of a worker's seal.
    pub(super) seal: Option<(Seal, Option<OwnedFd>)>,
}

/// New namespaces with their own root directory.
#[derive(Debug)]
pub(super) struct Namespaces {
    /// `unshare` flags.
    pub(super) flags: i32,
    /// Files and their new content, where a user namespace is needed.
    pub(super) maps: Vec<(CString, Vec<u8>)>,
    pub(super) root: CString,
    pub(super) binds: Vec<Bind>,
    /// Mounted after the binds.
    pub(super) layer: Option<LayerMount>,
    /// Below `root`.
    pub(super) processes: CString,
    /// Whether a child unmounts the host's files. It is waited for before anything hostile runs.
    pub(super) unmounts_in_child: bool,
    /// Receives the number of the process that continues inside.
    pub(super) spawn_handshake: OwnedFd,
}

/// A file system over a workspace that keeps in memory what programs change.
#[derive(Debug)]
pub(super) struct LayerMount {
    /// A private directory with `lower`, a link to the workspace, and `layer`, where the memory is mounted. The host's
    /// files are unmounted later, so programs never see it.
    pub(super) directory: CString,
    /// Size limits of the memory.
    pub(super) limits: CString,
    /// Owner and permissions of the workspace.
    pub(super) owner: Option<(u32, u32)>,
    pub(super) mode: u32,
    /// Below the new root.
    pub(super) target: CString,
    pub(super) executes: bool,
    /// Receives a descriptor of what programs see.
    pub(super) host_socket: OwnedFd,
}

impl LayerMount {
    /// Paths in options are relative, because a name of the user's could have characters that separate options.
    fn mount(&self) -> io::Result<()> {
        const UPPER: &CStr = c"layer/upper";
        const OPTIONS: &CStr = c"userxattr,lowerdir=lower,upperdir=layer/upper,workdir=layer/work";
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::process::chdir(self.directory.as_c_str())?;
        rustix::mount::mount(c"tmpfs", c"layer", c"tmpfs", flags, self.limits.as_c_str())?;
        for directory in [UPPER, c"layer/work"] {
            rustix::fs::mkdir(directory, Mode::RWXU)?;
        }
        if let Some((user, group)) = self.owner {
            let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
            rustix::fs::chown(UPPER, Some(user), Some(group))?;
        }
        rustix::fs::chmod(UPPER, Mode::from(self.mode))?;
        let flags = if self.executes { flags } else { flags | MountFlags::NOEXEC };
        let target = self.target.as_c_str();
        rustix::mount::mount(c"overlay", target, c"overlay", flags, OPTIONS)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mounted = rustix::fs::open(target, flags, Mode::empty())?;
        send_descriptor(&self.host_socket, &mounted)
    }
}

impl SandboxEntry {
    /// In the child, between fork and exec.
    pub(super) fn enter(&self) -> io::Result<()> {
        rustix::process::setsid()?;
        die_with(self.host)?;
        for cgroup in &self.groups {
            rustix::io::write(cgroup, b"0")?;
        }
        if let Some(namespaces) = &self.namespaces {
            namespaces.enter()?;
        }
        for (resource, limit) in &self.limits {
            rustix::process::setrlimit(*resource, *limit)?;
        }
        // Descendants that lose their parent become the zygote's, which ends and waits for them.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        sys::close_on_exec()?;
        if self.drop_capabilities {
            drop_bounding_set();
        }
        if let Some(user) = self.user {
            become_user(user)?;
        } else if self.drop_capabilities {
            // Without a user change, drop supplementary groups if that is permitted.
            let _ = rustix::thread::set_thread_groups(&[]);
        }
        if self.drop_capabilities {
            clear_capabilities()?;
        }
        // A change of user disarms it.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        rustix::thread::set_no_new_privs(true)?;
        if let Some(ruleset) = &self.ruleset {
            sys::landlock_enter(ruleset.as_fd())?;
        }
        if let Some((filter, host_socket)) = &self.connections {
            let listener = sys::filter_with_notifications(filter.instructions())?;
            send_descriptor(host_socket, &listener)?;
        }
        if let Some(filter) = &self.filter {
            sys::filter_system_calls(filter.instructions())?;
        }
        if let Some((seal, ruleset)) = &self.seal {
            // A worker has executed a program before it seals itself, which makes its files in /proc its own.
            rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable)?;
            seal.apply(ruleset.as_ref().map(AsFd::as_fd))?;
        }
        Ok(())
    }
}

impl Namespaces {
    fn enter(&self) -> io::Result<()> {
        sys::unshare(self.flags)?;
        for (path, content) in &self.maps {
            let file = rustix::fs::open(path.as_c_str(), OFlags::WRONLY, Mode::empty())?;
            rustix::io::write(&file, content)?;
        }
        // Only a child is in the new process namespace. It becomes the host's child, so the host itself can
        // wait for it.
        if let Some(inside) = sys::fork_sibling()? {
            let sent = rustix::io::write(&self.spawn_handshake, &inside.to_ne_bytes());
            sys::exit(i32::from(sent.is_err()));
        }
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        self.mount_root()
    }

    fn mount_root(&self) -> io::Result<()> {
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        rustix::mount::mount_change(c"/", private)?;
        rustix::mount::mount_bind(self.root.as_c_str(), self.root.as_c_str())?;
        for Bind { source, target, attributes } in &self.binds {
            rustix::mount::mount_bind_recursive(source.as_c_str(), target.as_c_str())?;
            sys::restrict_mount(target, *attributes, true)?;
        }
        if let Some(layer) = &self.layer {
            layer.mount()?;
        }
        self.mount_processes()?;
        rustix::process::chdir(self.root.as_c_str())?;
        rustix::process::pivot_root(c".", c".")?;
        if self.unmounts_in_child {
            unmount_host_in_child()?;
        } else {
            unmount_host()?;
        }
        rustix::process::chdir(c"/")?;
        sys::restrict_mount(c"/", MOUNT_RDONLY | MOUNT_NOSUID | MOUNT_NODEV, false)?;
        rustix::system::sethostname(b"worker")?;
        Ok(())
    }

    fn mount_processes(&self) -> io::Result<()> {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        let options: &CStr = c"hidepid=ptraceable,subset=pid";
        rustix::mount::mount(c"proc", self.processes.as_c_str(), c"proc", flags, options)?;
        Ok(())
    }
}

/// Unmounts the host's files, which lie over the new root. It takes the kernel milliseconds.
fn unmount_host() -> io::Result<()> {
    Ok(rustix::mount::unmount(c".", UnmountFlags::DETACH)?)
}

/// The same in a child, while the interpreter starts. On failure the child blocks forever, so the zygote,
/// which waits for it, never starts.
fn unmount_host_in_child() -> io::Result<()> {
    if sys::fork()?.is_some() {
        return Ok(());
    }
    #[expect(unsafe_code, reason = "a bare system call")]
    // SAFETY: this child uses no descriptor from here on; it unmounts and exits, or blocks.
    let closed = unsafe { sys::close_all() };
    match closed.and_then(|()| unmount_host()) {
        Ok(()) => sys::exit(0),
        Err(_) => sys::block_forever(),
    }
}

/// Ends this process when the thread that spawned it ends.
fn die_with(host: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid() != Some(host) {
        // The host died before the signal was set.
        return Err(rustix::io::Errno::SRCH.into());
    }
    rustix::thread::set_no_new_privs(true)?;
    Ok(())
}

fn send_descriptor(to: &OwnedFd, descriptor: &OwnedFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor.as_fd()];
    rights.push(SendAncillaryMessage::ScmRights(&descriptors));
    rustix::net::sendmsg(to, &[IoSlice::new(b"+")], &mut rights, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn become_user(user: u32) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}

fn drop_bounding_set() {
    for number in 0..=CAPABILITIES {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        // Capabilities that the kernel does not know, or that may not be dropped, are not held.
        let _ = rustix::thread::remove_capability_from_bounding_set(capability);
    }
}

fn clear_capabilities() -> io::Result<()> {
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets)?;
    Ok(())
}
