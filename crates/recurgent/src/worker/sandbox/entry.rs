//! How a process enters the sandbox, between fork and exec.
//!
//! Everything it needs was made before the fork; here are bare system calls only.

use std::ffi::{CStr, CString};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::{Pid, Resource, Rlimit, Signal};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::seal::Seal;
use super::seccomp::Filter;
use super::sys::{self, MOUNT_NO_DEVICES, MOUNT_NO_SUID, MOUNT_READ_ONLY};
use super::view::Bind;

/// The last capability there may be.
const CAPABILITIES: u32 = 63;

/// A way in.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) host: Pid,
    /// Doors of the control groups to be in.
    pub(super) groups: Vec<OwnedFd>,
    pub(super) limits: Vec<(Resource, Rlimit)>,
    pub(super) namespaces: Option<Namespaces>,
    /// Whether capabilities are given up.
    pub(super) drop_capabilities: bool,
    /// The user to become.
    pub(super) user: Option<u32>,
    pub(super) ruleset: Option<OwnedFd>,
    pub(super) filter: Option<Filter>,
    /// Where to send the descriptor connections are put to.
    pub(super) connections: Option<(Filter, OwnedFd)>,
    /// A probe goes as far as a worker does.
    pub(super) seal: Option<(Seal, Option<OwnedFd>)>,
}

/// Own namespaces, with an own root.
#[derive(Debug)]
pub(super) struct Namespaces {
    /// `unshare` flags.
    pub(super) namespaces: i32,
    /// Files and what to write into them, where an own user namespace is needed.
    pub(super) maps: Vec<(CString, Vec<u8>)>,
    pub(super) root: CString,
    pub(super) binds: Vec<Bind>,
    /// Below `root`.
    pub(super) processes: CString,
    /// Whether the host's files are let go of by a child, which is waited for before anything hostile runs.
    pub(super) let_go_beside: bool,
    /// Told the number of the process that goes on inside.
    pub(super) spawn_handshake: OwnedFd,
}

impl Entry {
    /// In the child, between fork and exec.
    pub(super) fn enter(&self) -> io::Result<()> {
        rustix::process::setsid()?;
        die_with(self.host)?;
        for door in &self.groups {
            rustix::io::write(door, b"0")?;
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
            // Who stays who he is keeps no groups either, where he has a right to leave them.
            let _ = rustix::thread::set_thread_groups(&[]);
        }
        if self.drop_capabilities {
            give_up_capabilities()?;
        }
        // A change of user disarms it.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        rustix::thread::set_no_new_privs(true)?;
        if let Some(ruleset) = &self.ruleset {
            sys::landlock_enter(ruleset.as_fd())?;
        }
        if let Some((filter, told)) = &self.connections {
            let listener = sys::filter_with_notices(filter.instructions())?;
            send_descriptor(told, &listener)?;
        }
        if let Some(filter) = &self.filter {
            sys::filter_system_calls(filter.instructions())?;
        }
        if let Some((seal, ruleset)) = &self.seal {
            // As after exec, which a worker has behind it: its own files in /proc are its own again.
            rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable)?;
            seal.apply(ruleset.as_ref().map(AsFd::as_fd))?;
        }
        Ok(())
    }
}

impl Namespaces {
    fn enter(&self) -> io::Result<()> {
        sys::unshare(self.namespaces)?;
        for (path, content) in &self.maps {
            let file = rustix::fs::open(path.as_c_str(), OFlags::WRONLY, Mode::empty())?;
            rustix::io::write(&file, content)?;
        }
        // Only a child is in the new process namespace. It is the host's child, so that the host, and
        // not a process left here for nothing else, waits for it.
        if let Some(inside) = sys::fork_sibling()? {
            let told = rustix::io::write(&self.spawn_handshake, &inside.to_ne_bytes());
            sys::exit(i32::from(told.is_err()));
        }
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        self.furnish()
    }

    fn furnish(&self) -> io::Result<()> {
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        rustix::mount::mount_change(c"/", private)?;
        rustix::mount::mount_bind(self.root.as_c_str(), self.root.as_c_str())?;
        for Bind { source, target, attributes } in &self.binds {
            rustix::mount::mount_bind_recursive(source.as_c_str(), target.as_c_str())?;
            sys::restrict_mount(target, *attributes, true)?;
        }
        self.mount_processes()?;
        rustix::process::chdir(self.root.as_c_str())?;
        rustix::process::pivot_root(c".", c".")?;
        if self.let_go_beside {
            let_go_beside()?;
        } else {
            let_go()?;
        }
        rustix::process::chdir(c"/")?;
        sys::restrict_mount(c"/", MOUNT_READ_ONLY | MOUNT_NO_SUID | MOUNT_NO_DEVICES, false)?;
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

/// Unmounts the host's files, which lie over the own root. It takes the kernel milliseconds.
fn let_go() -> io::Result<()> {
    Ok(rustix::mount::unmount(c".", UnmountFlags::DETACH)?)
}

/// The same, while the interpreter starts. A child that fails never ends, and who waits for it never goes on.
fn let_go_beside() -> io::Result<()> {
    if sys::fork()?.is_some() {
        return Ok(());
    }
    match sys::close_all().and_then(|()| let_go()) {
        Ok(()) => sys::exit(0),
        Err(_) => sys::stay(),
    }
}

/// Ends this process when the thread that spawned it ends.
fn die_with(host: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid() != Some(host) {
        // It died before the signal was armed.
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
    use rustix::process::{Gid, Uid};
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}

fn drop_bounding_set() {
    for number in 0..=CAPABILITIES {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        // Unknown ones, and those there is no right to drop, are not held either.
        let _ = rustix::thread::remove_capability_from_bounding_set(capability);
    }
}

fn give_up_capabilities() -> io::Result<()> {
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets)?;
    Ok(())
}
