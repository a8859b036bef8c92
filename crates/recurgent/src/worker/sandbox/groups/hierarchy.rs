//! Finds this process's own control groups, in either version of the interface.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use super::super::SCRATCH_PREFIX;
use super::super::tally::{Counter, Tally};
use super::{CgroupLimits, in_file, make, members, open_to_write, set};

/// The two versions of the kernel interface, which name files differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CgroupVersion {
    One,
    Two,
}

/// One hierarchy of groups, and which controllers of it are used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hierarchy {
    pub(super) version: CgroupVersion,
    /// The group this process is in.
    pub(super) own: PathBuf,
    pub(super) memory: bool,
    pub(super) processes: bool,
}

/// The hierarchies that control memory and processes.
pub(super) fn find() -> io::Result<Vec<Hierarchy>> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    let offered =
        |own: &Path| fs::read_to_string(own.join("cgroup.controllers")).unwrap_or_default();
    let found = parse_hierarchies(&mounts, &groups, offered);
    for (controller, is_available) in [
        ("memory", found.iter().any(|it| it.memory)),
        ("pids", found.iter().any(|it| it.processes)),
    ] {
        if !is_available {
            return Err(io::Error::other(format!("the {controller} controller is not available")));
        }
    }
    Ok(found)
}

/// The directories where hierarchies are mounted.
pub(super) fn mount_points() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().filter_map(Mount::parse).map(|mount| PathBuf::from(mount.point)).collect()
}

/// One mount point of each version that is mounted.
#[cfg(test)]
pub(super) fn mount_points_of_each_version() -> Vec<(CgroupVersion, PathBuf)> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounts: Vec<Mount<'_>> = mounts.lines().filter_map(Mount::parse).collect();
    let of = |version| mounts.iter().find(|it| it.version == version && it.options != "rw,cpuset");
    let found = [CgroupVersion::One, CgroupVersion::Two].into_iter().filter_map(of);
    found.map(|mount| (mount.version, PathBuf::from(mount.point))).collect()
}

/// A line of `/proc/self/mountinfo`.
struct Mount<'a> {
    version: CgroupVersion,
    /// The group that is visible at the mount point.
    root: &'a str,
    point: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (root, point) = (place.next()?, place.next()?);
        let mut kind = kind.split(' ');
        let version = match kind.next()? {
            "cgroup" => CgroupVersion::One,
            "cgroup2" => CgroupVersion::Two,
            _ => return None,
        };
        Some(Self { version, root, point, options: kind.nth(1).unwrap_or_default() })
    }

    /// The directory of a group.
    fn directory(&self, group: &str) -> Option<PathBuf> {
        let below = Path::new(group).strip_prefix(self.root).ok()?;
        Some(Path::new(self.point).join(below))
    }
}

fn parse_hierarchies(
    mounts: &str,
    groups: &str,
    offered: impl Fn(&Path) -> String,
) -> Vec<Hierarchy> {
    // `number:controllers:group`; the second version lists no controllers.
    let group_of = |wanted: &str| {
        groups.lines().find_map(|line| {
            let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
            controllers.split(',').any(|it| it == wanted).then_some(group)
        })
    };
    let mut found: Vec<Hierarchy> = Vec::new();
    let (mut memory, mut processes) = (false, false);
    let mut mounts: Vec<Mount<'_>> = mounts.lines().filter_map(Mount::parse).collect();
    mounts.sort_by_key(|mount| mount.version == CgroupVersion::One);
    for mount in mounts {
        let has = |controller: &str, own: &Path| match mount.version {
            CgroupVersion::One => mount.options.split(',').any(|it| it == controller),
            CgroupVersion::Two => offered(own).split_whitespace().any(|it| it == controller),
        };
        let group = match mount.version {
            CgroupVersion::One => ["memory", "pids"]
                .into_iter()
                .find(|it| mount.options.split(',').any(|option| option == *it))
                .and_then(group_of),
            CgroupVersion::Two => group_of(""),
        };
        let Some(own) = group.and_then(|group| mount.directory(group)) else { continue };
        let own = without_leaf(own);
        let hierarchy = Hierarchy {
            version: mount.version,
            memory: !memory && has("memory", &own),
            processes: !processes && has("pids", &own),
            own,
        };
        (memory, processes) = (memory || hierarchy.memory, processes || hierarchy.processes);
        if hierarchy.memory || hierarchy.processes {
            found.push(hierarchy);
        }
    }
    found
}

/// The group this process was started in, given the group it is in now.
fn without_leaf(own: PathBuf) -> PathBuf {
    match own.parent() {
        Some(parent) if own.ends_with(own_leaf()) => parent.to_owned(),
        Some(_) | None => own,
    }
}

/// The group a host moves itself to, because only a group without processes can have child groups with limits.
fn own_leaf() -> String {
    format!("{SCRATCH_PREFIX}{}-host", std::process::id())
}

impl Hierarchy {
    /// Opens the file with which a single-threaded process joins a group. In the first version a thread that moves
    /// itself moves at once; any other move waits about ten milliseconds for every processor to enter the kernel.
    pub(super) fn open_to_join(&self, group: &Path) -> io::Result<OwnedFd> {
        let name = match self.version {
            CgroupVersion::One => "tasks",
            CgroupVersion::Two => "cgroup.procs",
        };
        open_to_write(&group.join(name)).map(OwnedFd::from)
    }

    /// Enables limits for the child groups of `group`, which was just made in this process's own group.
    pub(super) fn delegate(&self, group: &Path) -> io::Result<()> {
        if self.version == CgroupVersion::One {
            return Ok(());
        }
        if self.enable_controllers(&self.own).is_err() {
            self.move_to_leaf()?;
            self.enable_controllers(&self.own)?;
        }
        self.enable_controllers(group)
    }

    fn enable_controllers(&self, group: &Path) -> io::Result<()> {
        let named = [(self.memory, "+memory"), (self.processes, "+pids")];
        named
            .iter()
            .filter(|(has, _)| *has)
            .try_for_each(|(_, name)| set(&group.join("cgroup.subtree_control"), name))
    }

    /// Moves this process into a child group: a group with processes cannot have child groups with limits. Fails if
    /// the group has other processes.
    fn move_to_leaf(&self) -> io::Result<()> {
        let me = rustix::process::getpid();
        if members(&self.own).iter().any(|member| *member != me) {
            let shared = format!("{} has other processes in it", self.own.display());
            return Err(io::Error::other(shared));
        }
        let leaf = self.own.join(own_leaf());
        if !leaf.is_dir() {
            make(&leaf)?;
        }
        set(&leaf.join("cgroup.procs"), "0")
    }

    /// Sets the limits of a branch.
    pub(super) fn limit(&self, branch: &Path, limits: CgroupLimits) -> io::Result<()> {
        if self.memory {
            let bytes = limits.memory_bytes.to_string();
            match self.version {
                CgroupVersion::One => {
                    set(&branch.join("memory.limit_in_bytes"), &bytes)?;
                    // Missing where swap is not accounted.
                    let _ = set(&branch.join("memory.memsw.limit_in_bytes"), &bytes);
                }
                CgroupVersion::Two => {
                    set(&branch.join("memory.max"), &bytes)?;
                    let _ = set(&branch.join("memory.swap.max"), "0"); // missing likewise
                    // The kernel ends all processes together; where it cannot, the host does.
                    let _ = set(&branch.join("memory.oom.group"), "1");
                }
            }
        }
        if self.processes {
            set(&branch.join("pids.max"), &limits.processes.to_string())?;
        }
        Ok(())
    }

    /// Adds the counters of a branch to `tally`.
    pub(super) fn add_counters(&self, branch: &Path, tally: &mut Tally) -> io::Result<()> {
        if self.memory {
            let file = match self.version {
                CgroupVersion::One => "memory.oom_control",
                CgroupVersion::Two => "memory.events",
            };
            let path = branch.join(file);
            let file = File::open(&path).map_err(|error| in_file(&path, &error))?;
            tally.memory = Some(Counter { file, name: "oom_kill" });
        }
        if self.processes {
            tally.processes = Some(branch.join("pids.events"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use lifecycle::outcome::Limit;

    use super::*;

    fn found(
        mounts: &str,
        groups: &str,
        offered: &str,
    ) -> Vec<(CgroupVersion, String, bool, bool)> {
        let found = parse_hierarchies(mounts, groups, |_| offered.to_owned());
        let summary =
            |it: Hierarchy| (it.version, it.own.display().to_string(), it.memory, it.processes);
        found.into_iter().map(summary).collect()
    }

    #[test]
    fn own_groups_are_found_in_either_version_and_in_a_mixture() {
        let (one, two) = (CgroupVersion::One, CgroupVersion::Two);
        let unified = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        let in_scope = "0::/user.slice/app.slice/run.scope\n";
        let scope = "/sys/fs/cgroup/user.slice/app.slice/run.scope".to_owned();
        let old = "35 31 0:32 / /cg/memory rw - cgroup cgroup rw,memory\n\
                   39 31 0:36 / /cg/pids rw - cgroup cgroup rw,pids\n\
                   41 31 0:38 / /cg/unified rw - cgroup2 cgroup2 rw\n\
                   42 31 0:39 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n";
        let in_old = "8:pids:/\n4:memory:/a/b\n1:cpu,cpuacct:/c\n0::/u\n";
        for (mounts, groups, offered, expected) in [
            (unified, in_scope, "cpu memory pids", vec![(two, scope.clone(), true, true)]),
            (unified, in_scope, "cpu pids", vec![(two, scope, false, true)]),
            (unified, in_scope, "", vec![]),
            (
                old,
                in_old,
                "hugetlb",
                vec![
                    (one, "/cg/memory/a/b".into(), true, false),
                    (one, "/cg/pids/".into(), false, true),
                ],
            ),
            (
                old,
                in_old,
                "pids",
                vec![
                    (two, "/cg/unified/u".into(), false, true),
                    (one, "/cg/memory/a/b".into(), true, false),
                ],
            ),
            // A container sees its own group at the top, whatever it is called outside.
            (
                "1 2 0:1 /box/7 /cg ro - cgroup2 cgroup rw\n",
                "0::/box/7/in\n",
                "memory pids",
                vec![(two, "/cg/in".into(), true, true)],
            ),
            // A group that is not shown has no directory.
            ("1 2 0:1 /box/7 /cg ro - cgroup2 cgroup rw\n", "0::/else\n", "memory pids", vec![]),
            ("", "", "memory", vec![]),
        ] {
            assert_eq!(found(mounts, groups, offered), expected, "{mounts}{groups}");
        }
    }

    #[test]
    fn limits_are_set_as_each_version_names_them() {
        let limits = CgroupLimits { memory_bytes: 1 << 20, processes: 7 };
        let (memory, processes) = (true, true);
        for (version, files) in [
            (
                CgroupVersion::One,
                &[
                    ("memory.limit_in_bytes", "1048576"),
                    ("memory.memsw.limit_in_bytes", "1048576"),
                    ("pids.max", "7"),
                ][..],
            ),
            (
                CgroupVersion::Two,
                &[
                    ("memory.max", "1048576"),
                    ("memory.swap.max", "0"),
                    ("memory.oom.group", "1"),
                    ("pids.max", "7"),
                ][..],
            ),
        ] {
            let place = tempfile::tempdir().unwrap();
            let own = place.path().to_owned();
            let hierarchy = Hierarchy { version, own: own.clone(), memory, processes };
            assert!(hierarchy.limit(&own, limits).is_err(), "it is not a group");
            for (file, _) in files {
                fs::write(own.join(file), "").unwrap();
            }
            hierarchy.limit(&own, limits).unwrap();
            for (file, value) in files {
                assert_eq!(fs::read_to_string(own.join(file)).unwrap(), *value, "{file}");
            }
        }
    }

    #[test]
    fn reached_limits_are_read_from_the_files_of_each_version() {
        let place = tempfile::tempdir().unwrap();
        let own = place.path().to_owned();
        for (version, file, before, after) in [
            (
                CgroupVersion::One,
                "memory.oom_control",
                "oom_kill_disable 0\nunder_oom 1\noom_kill 0\n",
                "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
            ),
            (
                CgroupVersion::Two,
                "memory.events",
                "low 0\nhigh 0\nmax 9\noom 1\noom_kill 0\noom_group_kill 0\n",
                "low 0\nhigh 0\nmax 9\noom 1\noom_kill 12\noom_group_kill 1\n",
            ),
        ] {
            fs::write(own.join("pids.events"), "max 0\n").unwrap();
            fs::write(own.join(file), before).unwrap();
            let hierarchy = Hierarchy { version, own: own.clone(), memory: true, processes: true };
            let mut tally = Tally::default();
            hierarchy.add_counters(&own, &mut tally).unwrap();
            assert!(!tally.is_out_of_memory() && tally.limit_reached().is_none());
            fs::write(own.join("pids.events"), "max 3\n").unwrap();
            assert_eq!(tally.limit_reached(), Some(Limit::Processes));
            fs::write(own.join(file), after).unwrap();
            assert!(tally.is_out_of_memory());
            assert_eq!(tally.limit_reached(), Some(Limit::Memory));
        }
    }
}
