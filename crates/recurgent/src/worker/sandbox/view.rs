//! What a zygote and its workers see of the file system, and the root directory it is mounted on.

use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use super::sys::{MOUNT_NODEV, MOUNT_NOEXEC, MOUNT_NOSUID, MOUNT_RDONLY};
use super::{SandboxAccess, Starts, VersionMount, mediator, user};
use crate::grants::Network;

/// A worker's scratch directory in its own root. It has a parent because Landlock ignores the rule of a directory that
/// is mounted over, but not the rule of the directory above.
pub(super) const SCRATCH: &str = "/home/worker";

/// System directories every program may read.
const SYSTEM: &[&str] = &["/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin"];
/// Files of /etc without which programs cannot start, use TLS or read the time zone.
const SETTINGS: &[&str] = &[
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/ssl/certs",
    "/etc/ssl/cert.pem",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/tls/openssl.cnf",
    "/etc/pki/ca-trust/extracted",
    "/etc/crypto-policies/back-ends",
    "/etc/ca-certificates",
    "/etc/mime.types",
];
/// The same, where the network is open.
const NETWORK_SETTINGS: &[&str] =
    &["/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/services", "/etc/gai.conf"];
/// Files that resolve names of this machine.
pub(super) const NAMES: [&str; 2] = ["/etc/hosts", "/etc/nsswitch.conf"];
/// In the root, what is mounted over a directory or a file that programs may not read.
const HIDDEN_DIRECTORY: &str = "etc/hidden.d";
const HIDDEN_FILE: &str = "etc/hidden";
/// Devices that hold no data.
pub(super) const DEVICES: &[&str] =
    &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// One bind mount of a root.
#[derive(Debug)]
pub(super) struct Bind {
    pub(super) source: CString,
    pub(super) target: CString,
    pub(super) attributes: u64,
}

/// Every existing path that may be read.
pub(super) fn readable(access: &SandboxAccess) -> Vec<PathBuf> {
    let settings = match &access.network {
        Network::Off | Network::Loopback | Network::Hosts(_) => &[][..],
        Network::Open => NETWORK_SETTINGS,
    };
    let groups = user::kept_groups();
    let settings = SETTINGS.iter().chain(settings);
    let settings = settings.flat_map(|path| groups.reachable_without(Path::new(path)));
    let system = SYSTEM.iter().map(PathBuf::from);
    let mut all: Vec<PathBuf> = system.chain(settings).chain(access.read.iter().cloned()).collect();
    all.retain(|path| path.exists() && !groups.are_needed_for(path));
    all
}

impl SandboxAccess {
    /// Whether files in a writable directory may be executed: for a build, or because the interpreter is in
    /// there and could not start otherwise.
    fn executes_in(&self, written: &Path) -> bool {
        let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let written = real(written);
        self.starts == Starts::WrittenFiles
            || self.read.iter().any(|path| real(path).starts_with(&written))
    }
}

impl SandboxAccess {
    /// How the version of a workspace that programs may change is mounted.
    pub(super) fn version_attributes(&self) -> u64 {
        let executes = self.workspace.as_ref().is_some_and(|workspace| self.executes_in(workspace));
        MOUNT_NOSUID | MOUNT_NODEV | if executes { 0 } else { MOUNT_NOEXEC }
    }
}

/// Makes the directories and files that every root has.
pub(super) fn build_root(root: &Path, network: &Network, id: u32) -> io::Result<()> {
    for directory in ["proc", "dev", "etc", "home/worker"] {
        make_directories(root, Path::new(directory))?;
    }
    for (name, content) in [
        ("etc/passwd", format!("worker:x:{id}:{id}::{SCRATCH}:/bin/sh\n")),
        ("etc/group", format!("worker:x:{id}:\n")),
        ("etc/nsswitch.conf", "hosts: files dns\n".to_owned()),
        ("etc/hosts", mediator::hosts_file(network)),
    ] {
        let path = root.join(name);
        fs::write(&path, content)?;
        open_to_all(&path, 0o644)?;
    }
    Ok(())
}

/// Sets the mode, whatever the host's umask is.
pub(super) fn open_to_all(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Makes the mount points in `root`, and the links the host has.
pub(super) fn binds(root: &Path, access: &SandboxAccess) -> io::Result<Vec<Bind>> {
    let mut binds = Binds { root, made: Vec::new(), list: Vec::new() };
    let read_only = MOUNT_RDONLY | MOUNT_NOSUID | MOUNT_NODEV;
    for path in readable(access) {
        binds.show(&path, read_only)?;
    }
    for path in DEVICES {
        binds.show(Path::new(path), MOUNT_NOSUID)?;
    }
    let groups = user::kept_groups();
    for path in access.write.iter().filter(|path| !groups.are_needed_for(path)) {
        let programs = if access.executes_in(path) { 0 } else { MOUNT_NOEXEC };
        binds.show(path, MOUNT_NOSUID | MOUNT_NODEV | programs)?;
    }
    for granted in &access.granted {
        for (hidden, is_directory) in groups.paths_that_need_them(&fs::canonicalize(granted)?) {
            binds.hide(&hidden, is_directory)?;
        }
    }
    if let Some((workspace, workspace_version)) =
        access.workspace.as_ref().zip(access.workspace_version.as_ref())
        && !groups.are_needed_for(workspace)
    {
        binds.show_version(workspace, workspace_version, access.version_attributes())?;
    }
    let list = binds.list;
    // For programs that do not read TMPDIR, and for the semaphores and shared memory of the C library.
    for link in ["tmp", "dev/shm"].map(|path| root.join(path)) {
        if !link.exists() {
            std::os::unix::fs::symlink(SCRATCH, link)?;
        }
    }
    Ok(list)
}

struct Binds<'a> {
    root: &'a Path,
    made: Vec<(PathBuf, u64)>,
    list: Vec<Bind>,
}

impl Binds<'_> {
    /// Makes `path` visible under its own name; a link stays a link, and its target is visible too.
    fn show(&mut self, path: &Path, attributes: u64) -> io::Result<()> {
        let real = fs::canonicalize(path)?;
        self.link(path, &real)?;
        let is_covered =
            |(above, has): &(PathBuf, u64)| real.starts_with(above) && *has == attributes;
        if self.made.iter().any(is_covered) {
            return Ok(());
        }
        let target = self.make_target(&real)?;
        self.list.push(Bind { source: c_path(&real)?, target: c_path(&target)?, attributes });
        self.made.push((real, attributes));
        Ok(())
    }

    /// Mounts an empty directory, or a file that cannot be read, over a path. What is not visible needs none: of a
    /// workspace that programs may change they see a version.
    fn hide(&mut self, path: &Path, is_directory: bool) -> io::Result<()> {
        if !self.made.iter().any(|(shown, _)| path.starts_with(shown)) {
            return Ok(());
        }
        // A directory that its owner cannot read cannot be removed either: it is empty.
        let (nothing, mode) =
            if is_directory { (HIDDEN_DIRECTORY, 0o500) } else { (HIDDEN_FILE, 0) };
        let nothing = self.root.join(nothing);
        if !nothing.exists() {
            if is_directory {
                fs::create_dir(&nothing)?;
            } else {
                fs::write(&nothing, "")?;
            }
            open_to_all(&nothing, mode)?;
        }
        let attributes = MOUNT_RDONLY | MOUNT_NOSUID | MOUNT_NODEV;
        let target = c_path(&self.under_root(path))?;
        self.list.push(Bind { source: c_path(&nothing)?, target, attributes });
        Ok(())
    }

    /// Makes a version of a workspace visible under the workspace's name. A layer is mounted later.
    fn show_version(
        &mut self,
        workspace: &Path,
        workspace_version: &VersionMount,
        attributes: u64,
    ) -> io::Result<()> {
        let real = fs::canonicalize(workspace)?;
        self.link(workspace, &real)?;
        let target = c_path(&self.make_target(&real)?)?;
        if !workspace_version.is_layer {
            self.list.push(Bind { source: c_path(&workspace_version.source)?, target, attributes });
        }
        Ok(())
    }

    /// Makes the mount point of a path.
    fn make_target(&self, real: &Path) -> io::Result<PathBuf> {
        let target = self.under_root(real);
        if !target.exists() {
            if real.is_dir() {
                make_directories(self.root, &relative(real))?;
            } else {
                make_directories(self.root, &relative(real.parent().unwrap_or(real)))?;
                fs::write(&target, "")?;
            }
        }
        Ok(target)
    }

    /// Makes the links that lead from `path` to `real`, where they are not on a mount.
    fn link(&self, path: &Path, real: &Path) -> io::Result<()> {
        let mut walked = PathBuf::from("/");
        for component in relative(path).components() {
            walked.push(component);
            let is_link = fs::symlink_metadata(&walked).is_ok_and(|meta| meta.is_symlink());
            let is_shown = self.made.iter().any(|(above, _)| walked.starts_with(above));
            if is_link && !is_shown {
                let target = self.under_root(&walked);
                make_directories(self.root, &relative(walked.parent().unwrap_or(&walked)))?;
                // Absolute and resolved, so one link replaces a chain of links.
                let to = fs::canonicalize(&walked)?;
                if target.symlink_metadata().is_err() {
                    std::os::unix::fs::symlink(&to, &target)?;
                }
                let rest = path.strip_prefix(&walked).unwrap_or(Path::new(""));
                let further = if rest.as_os_str().is_empty() { to } else { to.join(rest) };
                return if further == *real { Ok(()) } else { self.link(&further, real) };
            }
        }
        Ok(())
    }

    fn under_root(&self, path: &Path) -> PathBuf {
        self.root.join(relative(path))
    }
}

/// Makes directories that every user may enter: workers of root run as a user that owns nothing.
fn make_directories(root: &Path, relative: &Path) -> io::Result<()> {
    let mut made = root.to_owned();
    for component in relative.components() {
        made.push(component);
        if made.symlink_metadata().is_err() {
            fs::create_dir(&made)?;
            open_to_all(&made, 0o755)?;
        }
    }
    Ok(())
}

fn relative(path: &Path) -> PathBuf {
    path.components().filter(|part| matches!(part, Component::Normal(_))).collect()
}

pub(super) fn c_path(path: &Path) -> io::Result<CString> {
    c_string(path.as_os_str())
}

pub(super) fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_files_are_executable_only_where_the_interpreter_is() {
        let dir = tempfile::tempdir().unwrap();
        let granted = dir.path().join("granted");
        let inside = granted.join("inside");
        fs::create_dir_all(&inside).unwrap();
        for (read, starts, executed) in [
            (None, Starts::Packages, false),
            (Some(inside.clone()), Starts::Packages, true),
            (None, Starts::WrittenFiles, true),
        ] {
            let access = SandboxAccess {
                read: read.into_iter().collect(),
                write: vec![granted.clone()],
                starts,
                ..SandboxAccess::default()
            };
            let root = tempfile::tempdir().unwrap();
            let binds = binds(root.path(), &access).unwrap();
            let written = binds.last().unwrap();
            assert_eq!(written.source, c_path(&fs::canonicalize(&granted).unwrap()).unwrap());
            assert_eq!(written.attributes & MOUNT_NOEXEC == 0, executed, "{access:?}");
        }
    }
}
