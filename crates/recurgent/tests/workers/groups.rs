//! Control groups, where they can be made: what a program and all it starts use up together. Elsewhere
//! each process has its limits alone, as docs/security.md says.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lifecycle::dialect::Language;
use lifecycle::execution::{ReportEnding, WorkerFault};
use lifecycle::outcome::Limit;
use recurgent::guest::Done;
use recurgent::worker::{Layer, Layers, Tier};
use serde_json::{Value, json};

use crate::drive::{BOTH, Driver, Program};
use crate::{HANG_TIMEOUT, value};

/// Processes that each hold an eighth of the memory there is for all, and are more than eight.
const A_TREE: [(Language, &str); 2] = [
    (
        Language::Python,
        "import os, time\nr, w = os.pipe()\nfor _ in range(12):\n    if os.fork() == 0:\n        kept = b'x' * (96 << 20)\n        os.write(w, b'.')\n        time.sleep(600)\nseen = 0\nwhile seen < 12: seen += len(os.read(r, 12))\nresult = True",
    ),
    (
        Language::Ruby,
        "r, w = IO.pipe\n12.times { fork { kept = 'x' * (96 << 20); w.syswrite('.'); sleep 600 } }\nr.read(12)\ntrue",
    ),
];

/// Whether groups can be made here at all: as root, or where one was given to us.
fn are_there() -> bool {
    let driver = Driver::new();
    let reached = driver.containment();
    let has = reached.layers.has(Layer::Cgroups);
    let why = reached.missing.iter().find(|(layer, _)| *layer == Layer::Cgroups);
    assert_ne!(has, why.is_some_and(|(_, why)| why.contains("Delegate=yes")), "{why:?}");
    has
}

fn limited(ended: &Result<Done, WorkerFault>) -> Option<Limit> {
    match ended {
        Ok(Done { ending: ReportEnding::Limited(limit, _), .. })
        | Err(WorkerFault::Limited(limit, _)) => Some(*limit),
        _ => None,
    }
}

#[test]
fn memory_is_limited_for_a_tree_of_processes() {
    let are_there = are_there();
    let grouped = Tier::ALL.map(Tier::layers).into_iter().chain([Layers::NONE]);
    let cases = grouped
        .map(|layers| (layers.with(Layer::Cgroups), are_there))
        .chain([(Tier::Sealed.layers(), false)]);
    for (layers, grouped) in cases {
        for (language, code) in A_TREE {
            let driver = Driver::with(|options| {
                options.layers = layers;
                options.limits.memory_bytes = 768 << 20;
            });
            let ended =
                driver.run(&Program { language, code, limit: HANG_TIMEOUT, ..Program::default() });
            if grouped {
                assert_eq!(limited(&ended), Some(Limit::Memory), "{layers:?}: {ended:?}");
            } else {
                assert_eq!(value(&ended), Some(&json!(true)), "{layers:?}: {ended:?}");
            }
        }
    }
}

/// As above, when the program does not wait for those it started.
#[test]
fn a_program_whose_processes_ran_out_of_memory_has_not_succeeded() {
    if !are_there() {
        return;
    }
    let driver = Driver::with(|options| options.limits.memory_bytes = 768 << 20);
    for (language, code) in [
        (
            Language::Python,
            "import os\nchildren = []\nfor _ in range(12):\n    r, w = os.pipe()\n    pid = os.fork()\n    if pid == 0:\n        kept = b'x' * (96 << 20)\n        os.close(r)\n        os.write(w, b'.')\n        os.read(os.pipe()[0], 1)\n    os.close(w)\n    os.read(r, 1)\nresult = True",
        ),
        (
            Language::Ruby,
            "12.times do\n  r, w = IO.pipe\n  fork { kept = 'x' * (96 << 20); w.syswrite('.'); sleep 600 }\n  w.close\n  r.read(1)\nend\ntrue",
        ),
    ] {
        let ended = driver.run(&Program { language, code, ..Program::default() });
        assert_eq!(limited(&ended), Some(Limit::Memory), "{ended:?}");
        // Others of the same zygote are none the worse for it.
        driver.boot(language);
    }
}

#[test]
fn processes_are_limited_for_a_tree_of_them() {
    let are_there = are_there();
    for (language, code) in [
        (
            Language::Python,
            "import os, time\nfor _ in range(100):\n    if os.fork() == 0:\n        time.sleep(600)\nresult = True",
        ),
        (Language::Ruby, "100.times { fork { sleep 600 } }\ntrue"),
        (
            Language::Python,
            "import threading, time\nfor _ in range(100): threading.Thread(target=time.sleep, args=(30,), daemon=True).start()\nresult = True",
        ),
        (Language::Ruby, "100.times { Thread.new { sleep 30 } }\ntrue"),
    ] {
        for (layers, grouped) in
            [(Layers::NONE, false), (Layers::NONE.with(Layer::Cgroups), are_there)]
        {
            let driver = Driver::with(|options| options.layers = layers);
            // Ruby waits for room to fork for as long as it is let.
            let limit = if grouped { Duration::from_secs(10) } else { HANG_TIMEOUT };
            let ended = driver.run(&Program { language, code, limit, ..Program::default() });
            if grouped {
                assert_eq!(limited(&ended), Some(Limit::Processes), "{code}: {ended:?}");
            } else {
                assert_eq!(value(&ended), Some(&json!(true)), "{code}: {ended:?}");
            }
        }
    }
}

/// Without groups nothing at this tier would.
#[test]
fn a_group_ends_with_its_worker() {
    if !are_there() {
        return;
    }
    for (language, code) in [
        (
            Language::Python,
            "import os, time\nr, w = os.pipe()\nif os.fork() == 0:\n    os.setsid()\n    pid = os.fork()\n    if pid == 0: time.sleep(600)\n    os.write(w, str(pid).encode())\n    os._exit(0)\nresult = int(os.read(r, 20))",
        ),
        (
            Language::Ruby,
            "r, w = IO.pipe\nfork do\n  Process.setsid\n  w.syswrite(fork { sleep 600 }.to_s)\n  exit!\nend\nr.readpartial(20).to_i",
        ),
    ] {
        let layers = Tier::Process.layers().with(Layer::Cgroups);
        let driver = Driver::with(|options| options.layers = layers);
        let ended = driver.run(&Program { language, code, ..Program::default() });
        crate::await_exit(value(&ended).and_then(Value::as_u64).unwrap().try_into().unwrap());
    }
}

#[test]
fn groups_are_gone_when_their_workers_are() {
    let are_there = are_there();
    for tier in Tier::ALL {
        let driver = Driver::with(|options| options.layers = tier.layers().with(Layer::Cgroups));
        for language in BOTH {
            for proven in [false, true] {
                let code = "1";
                driver.run(&Program { language, code, proven, ..Program::default() }).unwrap();
            }
        }
        let names = zygote_directories(driver.scratch());
        assert_eq!(!groups_named(&names).is_empty(), are_there, "{tier}: {names:?}");
        drop(driver);
        assert_eq!(groups_named(&names), Vec::<PathBuf>::new(), "{tier}");
    }
}

/// The names of zygotes' directories, which their groups share.
pub(crate) fn zygote_directories(scratch: &Path) -> BTreeSet<std::ffi::OsString> {
    std::fs::read_dir(scratch).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

/// Groups of these names, wherever they are.
pub(crate) fn groups_named(names: &BTreeSet<std::ffi::OsString>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut unseen = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = unseen.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        let directories =
            entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        for entry in directories {
            if names.contains(&entry.file_name()) {
                found.push(entry.path());
            }
            unseen.push(entry.path());
        }
    }
    found
}

/// Packages are loaded in a zygote, so what it uses up ends somewhere too.
#[test]
fn a_zygote_is_in_a_group_apart_from_its_workers() {
    if !are_there() {
        return;
    }
    let driver = Driver::new();
    let kept = Program { code: "1", proven: true, ..Program::default() };
    let worker = driver.run(&kept).unwrap().worker.pid.unwrap();
    let groups = |pid: u32| -> BTreeSet<String> {
        let listed = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        listed.lines().filter(|line| line.contains("/recurgent-")).map(str::to_owned).collect()
    };
    let (of_zygote, of_worker) = (groups(crate::drive::parent(worker)), groups(worker));
    assert!(!of_zygote.is_empty() && !of_worker.is_empty(), "{of_zygote:?} {of_worker:?}");
    assert!(of_zygote.is_disjoint(&of_worker), "{of_zygote:?} {of_worker:?}");
}
