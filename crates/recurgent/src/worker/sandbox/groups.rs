//! Control groups: limits of a whole tree of processes, where the host may set them.
//!
//! ```text
//! the host's own group                  limits set from outside apply to all below
//! └─ recurgent-PID-ID     CgroupTree    one zygote's, or one installer's
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

use self::hierarchy::{CgroupVersion, Hierarchy};
use super::SCRATCH_PREFIX;
use super::tally::Tally;
use crate::worker::locked;

/// File in the scratch directory that lists a tree's groups, so that those of a killed host are found.
const NOTE: &str = "groups";
/// Longest time the kernel may take to end the killed processes of a group.
const EMPTYING: Duration = Duration::from_secs(10);
/// Interval at which the group is checked meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// What the processes of one branch may use together.
#[derive(Debug, Clone, Copy)]
pub(super) struct CgroupLimits {
    pub(super) memory_bytes: u64,
    /// Threads included.
    pub(super) processes: u64,
}

/// One zygote's groups. Removed with the last branch.
#[derive(Debug)]
pub(super) struct CgroupTree {
    hierarchies: Vec<Hierarchy>,
    name: String,
    /// Dropped branches whose processes had not all ended.
    dropped: Mutex<Vec<String>>,
}

/// The groups of one process and all it starts. Dropping it ends them.
#[derive(Debug)]
pub(super) struct Branch {
    tree: Arc<CgroupTree>,
    name: String,
}

impl CgroupTree {
    /// Makes groups named like the scratch directory.
    pub(super) fn create(scratch: &Path) -> io::Result<Arc<Self>> {
        let name = scratch.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let hierarchies = hierarchy::find()?;
        let tree = Self { hierarchies, name, dropped: Mutex::default() };
        let listed: Vec<String> =
            tree.directories().map(|(_, path)| path.display().to_string()).collect();
        fs::write(scratch.join(NOTE), listed.join("\n"))?;
        for (hierarchy, path) in tree.directories() {
            make(&path)?;
            hierarchy.delegate(&path)?;
        }
        Ok(Arc::new(tree))
    }

    /// Makes one more branch, without processes.
    pub(super) fn branch(self: &Arc<Self>, limits: CgroupLimits) -> io::Result<Branch> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        self.prune();
        let name = format!("branch-{}", MADE.fetch_add(1, Ordering::Relaxed));
        let branch = Branch { tree: Arc::clone(self), name };
        for (hierarchy, path) in branch.directories() {
            make(&path)?;
            hierarchy.limit(&path, limits)?;
        }
        Ok(branch)
    }

    fn directories(&self) -> impl Iterator<Item = (&Hierarchy, PathBuf)> {
        self.hierarchies.iter().map(|hierarchy| (hierarchy, hierarchy.own.join(&self.name)))
    }

    /// Removes dropped branches that have become empty.
    pub(super) fn prune(&self) {
        let dropped = std::mem::take(&mut *locked(&self.dropped));
        let still: Vec<String> =
            dropped.into_iter().filter(|name| !self.has_removed(name)).collect();
        locked(&self.dropped).extend(still);
    }

    /// Ends the processes of a branch; returns whether its groups are removed.
    fn has_removed(&self, branch: &str) -> bool {
        let removed = self.directories().map(|(hierarchy, path)| {
            let path = path.join(branch);
            is_gone(&path) || {
                end_all(hierarchy.version, &path);
                is_gone(&path)
            }
        });
        removed.filter(|is_gone| !is_gone).count() == 0 // tries each
    }
}

impl Drop for CgroupTree {
    fn drop(&mut self) {
        let deadline = Instant::now() + EMPTYING;
        loop {
            self.prune();
            if locked(&self.dropped).is_empty() || Instant::now() >= deadline {
                break;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        for (_, path) in self.directories() {
            let _ = fs::remove_dir(path); // a leftover is removed by the next host
        }
    }
}

impl Branch {
    fn directories(&self) -> impl Iterator<Item = (&Hierarchy, PathBuf)> {
        self.tree.directories().map(|(hierarchy, path)| (hierarchy, path.join(&self.name)))
    }

    /// Descriptors to which a single-threaded process writes `0` to join the groups.
    pub(super) fn cgroup_fds(&self) -> io::Result<Vec<OwnedFd>> {
        let open = |(hierarchy, path): (&Hierarchy, PathBuf)| hierarchy.open_to_join(&path);
        self.directories().map(open).collect()
    }

    /// Adds a process, unless it has joined by itself.
    pub(super) fn add(&self, pid: Pid) -> io::Result<()> {
        for (_, path) in self.directories().filter(|(_, path)| !members(path).contains(&pid)) {
            set(&path.join("cgroup.procs"), &pid.as_raw_nonzero().to_string())?;
        }
        Ok(())
    }

    /// The counters that show whether it reached a limit.
    pub(super) fn tally(&self) -> io::Result<Tally> {
        let mut tally = Tally::default();
        for (hierarchy, path) in self.directories() {
            hierarchy.add_counters(&path, &mut tally)?;
        }
        Ok(tally)
    }
}

impl Drop for Branch {
    fn drop(&mut self) {
        locked(&self.tree.dropped).push(std::mem::take(&mut self.name));
        self.tree.prune();
    }
}

/// Removes the groups of a killed host, as listed in its scratch directory. Programs may have been able to write
/// that list, so only paths that can be such groups are used.
pub(super) fn sweep(scratch: &Path) {
    let Some(name) = scratch
        .file_name()
        .filter(|name| name.to_str().is_some_and(|name| name.starts_with(SCRATCH_PREFIX)))
    else {
        return;
    };
    let Ok(listed) = fs::read_to_string(scratch.join(NOTE)) else { return };
    let mounts = hierarchy::mount_points();
    for tree in listed.lines().map(Path::new).filter(|tree| tree.file_name() == Some(name)) {
        let real = tree.canonicalize();
        let is_group =
            real.is_ok_and(|real| real == tree && mounts.iter().any(|at| real.starts_with(at)));
        if is_group {
            remove_tree(tree);
        }
    }
}

/// Removes groups of killed hosts in this host's group, whose scratch directory was removed before.
pub(super) fn sweep_beside(is_abandoned: impl Fn(&OsStr) -> bool) {
    for hierarchy in hierarchy::find().unwrap_or_default() {
        for group in fs::read_dir(hierarchy.own).into_iter().flatten().flatten() {
            if is_abandoned(&group.file_name()) {
                remove_tree(&group.path());
            }
        }
    }
}

/// Removes a tree without processes.
fn remove_tree(tree: &Path) {
    for branch in fs::read_dir(tree).into_iter().flatten().flatten() {
        let _ = fs::remove_dir(branch.path()); // files in it belong to the kernel and go with it
    }
    let _ = fs::remove_dir(tree);
}

/// Makes a group.
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

/// Removes an empty group; returns whether it does not exist any more.
fn is_gone(path: &Path) -> bool {
    match fs::remove_dir(path) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Ends all processes in a group.
fn end_all(version: CgroupVersion, path: &Path) {
    if version == CgroupVersion::Two && set(&path.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    for pid in members(path) {
        // Opened before it is looked up again, so that a reused process number is not killed.
        let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        if members(path).contains(&pid) {
            let _ = pidfd_send_signal(held, Signal::KILL); // fails if it has ended meanwhile
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

    /// In either version, whatever it controls. Skipped where no group can be made.
    #[test]
    fn processes_of_a_branch_end_with_it() {
        let scratch = tempfile::Builder::new().prefix(SCRATCH_PREFIX).tempdir().unwrap();
        for (version, own) in hierarchy::mount_points_of_each_version() {
            let hierarchy = Hierarchy { version, own, memory: false, processes: false };
            let name = scratch.path().file_name().unwrap().to_str().unwrap().to_owned();
            let tree = CgroupTree { hierarchies: vec![hierarchy], name, dropped: Mutex::default() };
            let top = tree.directories().next().unwrap().1;
            if make(&top).is_err() {
                continue;
            }
            let tree = Arc::new(tree);
            let branch = tree.branch(CgroupLimits { memory_bytes: 1, processes: 1 }).unwrap();
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
    fn a_list_is_used_only_for_control_groups() {
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
    fn groups_without_a_scratch_directory_are_removed() {
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
