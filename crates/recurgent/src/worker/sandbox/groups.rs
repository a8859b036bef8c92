//! Control groups: what a whole tree of processes may use up together, where the kernel lets us say so.
//!
//! ```text
//! the host's own group                  limits set from outside hold for all below
//! └─ recurgent-PID-ID     Tree          one zygote's, or one installer's
//!    ├─ branch-N          Branch        the zygote or the installer itself
//!    └─ branch-M          Branch        one worker and all it starts
//! ```

mod hierarchy;

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use self::hierarchy::{Hierarchy, Version};
use super::SCRATCH_PREFIX;
use super::tally::Tally;
use crate::worker::locked;

/// Where a tree's directories are noted, in its scratch directory: what a killed host leaves is found there.
const NOTE: &str = "groups";
/// Longest the kernel is waited for to empty a group of killed processes.
const EMPTYING: Duration = Duration::from_secs(2);
/// How often it is looked at meanwhile.
const GLANCE: Duration = Duration::from_millis(1);

/// What the processes of one branch may use up together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    pub(super) memory_bytes: u64,
    /// Threads included.
    pub(super) processes: u64,
}

/// One zygote's groups. Gone with its last branch.
#[derive(Debug)]
pub(super) struct Tree {
    hierarchies: Vec<Hierarchy>,
    name: String,
    /// Branches whose processes had not all ended when they were given up.
    withered: Mutex<Vec<String>>,
}

/// The groups of one process and all it starts, which end with it.
#[derive(Debug)]
pub(super) struct Branch {
    tree: Arc<Tree>,
    name: String,
}

impl Tree {
    /// Groups named as its scratch directory is.
    pub(super) fn plant(scratch: &Path) -> io::Result<Arc<Self>> {
        let name = scratch.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let hierarchies = hierarchy::find()?;
        let tree = Self { hierarchies, name, withered: Mutex::default() };
        let noted: Vec<String> =
            tree.directories().map(|(_, path)| path.display().to_string()).collect();
        fs::write(scratch.join(NOTE), noted.join("\n"))?;
        for (hierarchy, path) in tree.directories() {
            make(&path)?;
            hierarchy.delegate(&path)?;
        }
        Ok(Arc::new(tree))
    }

    /// One more branch, empty yet.
    pub(super) fn branch(self: &Arc<Self>, share: Share) -> io::Result<Branch> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        self.prune();
        let name = format!("branch-{}", MADE.fetch_add(1, Ordering::Relaxed));
        let branch = Branch { tree: Arc::clone(self), name };
        for (hierarchy, path) in branch.directories() {
            make(&path)?;
            hierarchy.limit(&path, share)?;
        }
        Ok(branch)
    }

    fn directories(&self) -> impl Iterator<Item = (&Hierarchy, PathBuf)> {
        self.hierarchies.iter().map(|hierarchy| (hierarchy, hierarchy.own.join(&self.name)))
    }

    /// Removes the branches that have become empty.
    pub(super) fn prune(&self) {
        let withered = std::mem::take(&mut *locked(&self.withered));
        let still: Vec<String> =
            withered.into_iter().filter(|name| !self.has_removed(name)).collect();
        locked(&self.withered).extend(still);
    }

    /// Ends what is in a branch; whether it is gone.
    fn has_removed(&self, branch: &str) -> bool {
        let removed = self.directories().map(|(hierarchy, path)| {
            let path = path.join(branch);
            is_gone(&path) || {
                end_all(hierarchy.version, &path);
                is_gone(&path)
            }
        });
        removed.filter(|is_gone| !is_gone).count() == 0 // each is tried
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let deadline = Instant::now() + EMPTYING;
        loop {
            self.prune();
            if locked(&self.withered).is_empty() || Instant::now() >= deadline {
                break;
            }
            std::thread::sleep(GLANCE);
        }
        for (_, path) in self.directories() {
            let _ = fs::remove_dir(path); // one that is left is swept by the next host
        }
    }
}

impl Branch {
    fn directories(&self) -> impl Iterator<Item = (&Hierarchy, PathBuf)> {
        self.tree.directories().map(|(hierarchy, path)| (hierarchy, path.join(&self.name)))
    }

    /// What a process that has one thread writes `0` to, to be in it with all it starts from then on.
    pub(super) fn cgroup_fds(&self) -> io::Result<Vec<OwnedFd>> {
        let door = |(hierarchy, path): (&Hierarchy, PathBuf)| hierarchy.open_door(&path);
        self.directories().map(door).collect()
    }

    /// Takes in a process, unless it came in by itself.
    pub(super) fn add(&self, pid: Pid) -> io::Result<()> {
        for (_, path) in self.directories().filter(|(_, path)| !members(path).contains(&pid)) {
            set(&path.join("cgroup.procs"), &pid.as_raw_nonzero().to_string())?;
        }
        Ok(())
    }

    /// What tells that it met a limit.
    pub(super) fn tally(&self) -> io::Result<Tally> {
        let mut tally = Tally::default();
        for (hierarchy, path) in self.directories() {
            hierarchy.count(&path, &mut tally)?;
        }
        Ok(tally)
    }
}

impl Drop for Branch {
    fn drop(&mut self) {
        locked(&self.tree.withered).push(std::mem::take(&mut self.name));
        self.tree.prune();
    }
}

/// Removes the groups of a host that was killed, as it noted them in its scratch directory. Programs may have
/// been able to write the note, so it is only followed to where its groups can have been.
pub(super) fn sweep(scratch: &Path) {
    let Some(name) = scratch
        .file_name()
        .filter(|name| name.to_str().is_some_and(|name| name.starts_with(SCRATCH_PREFIX)))
    else {
        return;
    };
    let Ok(noted) = fs::read_to_string(scratch.join(NOTE)) else { return };
    let mounts = hierarchy::mount_points();
    for tree in noted.lines().map(Path::new).filter(|tree| tree.file_name() == Some(name)) {
        let real = tree.canonicalize();
        let is_group =
            real.is_ok_and(|real| real == tree && mounts.iter().any(|at| real.starts_with(at)));
        if is_group {
            uproot(tree);
        }
    }
}

/// Removes those of killed hosts beside our own, whose scratch directory went without them.
pub(super) fn sweep_beside(is_abandoned: impl Fn(&OsStr) -> bool) {
    for hierarchy in hierarchy::find().unwrap_or_default() {
        for group in fs::read_dir(hierarchy.own).into_iter().flatten().flatten() {
            if is_abandoned(&group.file_name()) {
                uproot(&group.path());
            }
        }
    }
}

/// Removes a tree in which nothing runs.
fn uproot(tree: &Path) {
    for branch in fs::read_dir(tree).into_iter().flatten().flatten() {
        let _ = fs::remove_dir(branch.path()); // files are the kernel's, and stay until the end
    }
    let _ = fs::remove_dir(tree);
}

/// Makes a group, where an own one can be made.
fn make(path: &Path) -> io::Result<()> {
    fs::create_dir(path).map_err(|error| in_file(path, &error))
}

fn open_to_write(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path).map_err(|error| in_file(path, &error))
}

/// Writes a setting.
fn set(path: &Path, value: &str) -> io::Result<()> {
    open_to_write(path)?.write_all(value.as_bytes()).map_err(|error| in_file(path, &error))
}

fn in_file(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Whether it is gone, or goes now that nothing runs in it.
fn is_gone(path: &Path) -> bool {
    match fs::remove_dir(path) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Ends all processes in a group.
fn end_all(version: Version, path: &Path) {
    if version == Version::Two && set(&path.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    for pid in members(path) {
        // Held on to before it is looked up again, so that a number that passed to another is not killed.
        let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        if members(path).contains(&pid) {
            let _ = pidfd_send_signal(held, Signal::KILL); // it may have ended meanwhile
        }
    }
}

fn members(path: &Path) -> Vec<Pid> {
    let listed = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    listed.lines().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;

    /// In either version, whatever it controls; where no group can be made there is nothing to show.
    #[test]
    fn what_is_in_a_branch_ends_with_it() {
        let scratch = tempfile::Builder::new().prefix(SCRATCH_PREFIX).tempdir().unwrap();
        for (version, own) in hierarchy::mount_points_of_each_version() {
            let hierarchy = Hierarchy { version, own, memory: false, processes: false };
            let name = scratch.path().file_name().unwrap().to_str().unwrap().to_owned();
            let tree = Tree { hierarchies: vec![hierarchy], name, withered: Mutex::default() };
            let top = tree.directories().next().unwrap().1;
            if make(&top).is_err() {
                continue;
            }
            let tree = Arc::new(tree);
            let branch = tree.branch(Share { memory_bytes: 1, processes: 1 }).unwrap();
            let path = branch.directories().next().unwrap().1;
            let mut added = Command::new("sleep").arg("600").spawn().unwrap();
            branch.add(Pid::from_child(&added)).unwrap();
            assert_eq!(members(&path), [Pid::from_child(&added)]);
            let mut entering = Command::new("sh");
            entering.args(["-c", "printf 0 >&0 && echo in && exec sleep 600"]);
            entering.stdin(branch.cgroup_fds().unwrap().remove(0)).stdout(Stdio::piped());
            let mut entered = entering.spawn().unwrap();
            let mut said = [0; 3];
            entered.stdout.take().unwrap().read_exact(&mut said).unwrap();
            assert!(members(&path).contains(&Pid::from_child(&entered)));
            branch.add(Pid::from_child(&entered)).unwrap();
            drop(branch);
            assert!(!added.wait().unwrap().success() && !entered.wait().unwrap().success());
            drop(tree);
            assert!(!path.exists() && !top.exists());
        }
    }

    #[test]
    fn a_note_is_followed_to_groups_alone() {
        let place = tempfile::tempdir().unwrap();
        let scratch = place.path().join("recurgent-1-x");
        let elsewhere = place.path().join("elsewhere");
        let empty = elsewhere.join("recurgent-1-x");
        fs::create_dir(&scratch).unwrap();
        fs::create_dir_all(&empty).unwrap();
        fs::write(scratch.join(NOTE), empty.display().to_string()).unwrap();
        sweep(&scratch);
        assert!(empty.exists());
    }

    /// Where groups can be made.
    #[test]
    fn groups_whose_scratch_directory_is_gone_are_swept_too() {
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let name = format!("{SCRATCH_PREFIX}{}-x", ended.id());
        for hierarchy in hierarchy::find().unwrap_or_default() {
            let left = hierarchy.own.join(&name);
            if make(&left).is_ok() {
                make(&left.join("branch-1")).unwrap();
                sweep_beside(super::super::is_abandoned);
                assert!(!left.exists());
            }
        }
    }
}
