//! What the library adds to a program that depends on it.

use std::process::Command;

use crate::fixture::MeasurementOptions;
use crate::row::{Measurement, Unit};
use crate::timing::float;

const ASYNC_RUNTIMES: [&str; 10] = [
    "tokio",
    "async-std",
    "smol",
    "async-executor",
    "async-global-executor",
    "futures-executor",
    "actix-rt",
    "glommio",
    "monoio",
    "compio",
];
/// Packages that build or link C++.
const C_PLUS_PLUS: [&str; 5] = ["cxx", "cxx-build", "link-cplusplus", "autocxx", "cpp"];
/// Shared libraries of the C++ runtimes.
const C_PLUS_PLUS_LIBRARIES: [&str; 2] = ["libstdc++", "libc++"];

pub(super) fn async_runtimes(_: MeasurementOptions) -> Measurement {
    Measurement::without_floor(float(count_dependencies(&ASYNC_RUNTIMES)), Unit::Packages)
}

/// Counts the C++ packages that the library depends on, and the C++ runtimes loaded in this process, which links the
/// library.
pub(super) fn c_plus_plus(_: MeasurementOptions) -> Measurement {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let loaded = C_PLUS_PLUS_LIBRARIES.iter().filter(|library| maps.contains(**library)).count();
    Measurement::without_floor(float(loaded + count_dependencies(&C_PLUS_PLUS)), Unit::Packages)
}

/// How many of these packages the library depends on, to build or to run.
fn count_dependencies(packages: &[&str]) -> usize {
    let tree = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--locked",
            "-q",
            "-p",
            "recurgent",
            "-e",
            "normal,build",
            "--prefix",
            "none",
            "-f",
            "{p}",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let listed = String::from_utf8_lossy(&tree.stdout);
    let dependencies: Vec<&str> =
        listed.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(
        dependencies.contains(&"recurgent-lifecycle"),
        "`cargo tree` does not list recurgent-lifecycle; its output has changed"
    );
    packages.iter().filter(|name| dependencies.contains(name)).count()
}
