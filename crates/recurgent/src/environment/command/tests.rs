use std::time::Instant;

use super::job::OUTPUT_BYTES;
use super::*;

fn run(
    script: &str,
    limit: Duration,
    cancellation: &Cancellation,
) -> Result<FinishedCommand, InstallerFault> {
    run_as(&InstallPhase::Build(Vec::new()), script, limit, cancellation)
}

fn run_as(
    install_phase: &InstallPhase,
    script: &str,
    limit: Duration,
    cancellation: &Cancellation,
) -> Result<FinishedCommand, InstallerFault> {
    let directory = tempfile::tempdir().unwrap();
    let lock = tempfile::tempfile().unwrap();
    let variables = vec![("PATH".into(), "/usr/bin:/bin".into())];
    let home = tempfile::tempdir().unwrap();
    let options = crate::worker::WorkerOptions::new("/usr/bin:/bin", tempfile::env::temp_dir());
    let command_env = CommandEnv {
        directory: directory.path(),
        variables,
        lock: &lock,
        cancellation,
        sandbox: &Sandbox::new(&options),
        read: Vec::new(),
        write: vec![directory.path().to_owned()],
        home: home.path(),
        limits: InstallerLimits { memory_bytes: 1 << 30, processes: 64, disk_bytes: 8 << 20 },
        input: None,
    };
    command_env.run(install_phase, Path::new("/bin/sh"), ["-c", script], limit)
}

const HANG_TIMEOUT: Duration = Duration::from_mins(2);

#[test]
fn a_command_has_only_its_own_variables_and_its_status_is_reported() {
    let ended = run("env; echo err >&2; exit 7", HANG_TIMEOUT, &Cancellation::default()).unwrap();
    assert_eq!(ended.status, Some(7));
    let lines: Vec<&str> = ended.output.lines().filter(|line| !line.starts_with("_=")).collect();
    assert!(lines.contains(&"PATH=/usr/bin:/bin") && lines.contains(&"err"), "{lines:?}");
    assert!(!ended.output.contains("HOME="), "{lines:?}");
}

#[test]
fn long_output_is_cut_and_its_end_kept() {
    let ended =
        run("yes | head -c 1000000; echo last", HANG_TIMEOUT, &Cancellation::default()).unwrap();
    assert!(ended.output.len() <= OUTPUT_BYTES && ended.output.ends_with("last"));
}

#[test]
fn endless_output_is_ended_in_time() {
    let limit = Duration::from_millis(500);
    let begun = Instant::now();
    let ended = run("yes & yes & yes", limit, &Cancellation::default());
    assert!(matches!(ended, Err(InstallerFault::TimedOut { .. })), "{ended:?}");
    assert!(begun.elapsed() < HANG_TIMEOUT);
}

#[test]
fn a_hang_is_ended_with_everything_it_started() {
    let begun = Instant::now();
    let sleep = format!("300.{}", std::process::id());
    let script =
        format!("sleep {sleep} & (sleep {sleep} &); echo on; exec >/dev/null 2>&1; sleep {sleep}");
    let ended = run(&script, Duration::from_secs(5), &Cancellation::default());
    let Err(InstallerFault::TimedOut { output, .. }) = ended else { panic!("{ended:?}") };
    assert_eq!(output, "on");
    assert!(begun.elapsed() < HANG_TIMEOUT);
    assert_eq!(sleepers(&sleep), 0, "every process has ended when the end is reported");
}

#[test]
fn a_daemon_does_not_outlive_its_command() {
    let sleep = format!("301.{}", std::process::id());
    let script = format!("(setsid sleep {sleep} & sleep {sleep} &) >/dev/null 2>&1; exit 0");
    assert_eq!(run(&script, HANG_TIMEOUT, &Cancellation::default()).unwrap().status, Some(0));
    assert_eq!(sleepers(&sleep), 0);
}

/// Living processes with this argument.
fn sleepers(argument: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|it| std::fs::read(it.path().join("cmdline")).ok());
    let wanted = [b"sleep\0", argument.as_bytes()].concat();
    lines.filter(|line| line.starts_with(&wanted)).count()
}

/// Where there are control groups: elsewhere each has its memory alone.
#[test]
fn memory_is_limited_for_all_it_starts() {
    let hold =
        "x = b'x' * (200 << 20); open('held', 'a').write('.'); __import__('time').sleep(600)";
    let script = format!(
        "for at in 1 2 3 4 5 6; do python3 -I -S -c \"{hold}\" & done; \
         while [ $(cat held 2>/dev/null | wc -c) -lt 6 ]; do \
         [ $(jobs -r | wc -l) -lt 6 ] && exit 3; sleep 0.05; done"
    );
    let options = crate::worker::WorkerOptions::new("/usr/bin:/bin", tempfile::env::temp_dir());
    let workers = crate::worker::Workers::start(&options).unwrap();
    let are_there = workers.containment().layers.has(crate::worker::Layer::Cgroups);
    let ended = run(&script, HANG_TIMEOUT, &Cancellation::default()).unwrap();
    assert_eq!(ended.status, Some(if are_there { 3 } else { 0 }), "{}", ended.output);
}

#[test]
fn a_fetching_command_can_start_no_process() {
    let cancellation = Cancellation::default();
    let ended =
        run_as(&InstallPhase::Fetch, "/bin/true; echo on", HANG_TIMEOUT, &cancellation).unwrap();
    assert_ne!(ended.status, Some(0), "{}", ended.output);
    assert!(!ended.output.contains("on"), "{}", ended.output);
}

#[test]
fn disk_use_is_limited() {
    for script in [
        "dd if=/dev/zero of=one bs=1M count=64",
        "for at in 1 2 3 4 5 6 7 8; do dd if=/dev/zero of=$at bs=1M count=4; done; sleep 300",
    ] {
        let ended = run(script, HANG_TIMEOUT, &Cancellation::default());
        match ended {
            Err(InstallerFault::Oversized { limit }) => assert_eq!(limit, 8 << 20),
            Ok(ended) => assert_ne!(ended.status, Some(0), "{}", ended.output),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn links_out_of_the_environment_are_found() {
    for script in
        ["ln -s /etc/shadow uv.lock", "mkdir a; ln -s ../../../../root a/b", "ln -s nowhere .built"]
    {
        let ended = run(script, HANG_TIMEOUT, &Cancellation::default());
        assert!(matches!(ended, Err(InstallerFault::HostilePath(_))), "{script}: {ended:?}");
    }
    let harmless = "mkdir a; ln -s a b; ln -s /usr/bin/env c; touch d; ln d e";
    assert_eq!(run(harmless, HANG_TIMEOUT, &Cancellation::default()).unwrap().status, Some(0));
}

#[test]
fn cancellation_ends_the_wait() {
    let cancellation = Cancellation::default();
    cancellation.cancel();
    assert!(matches!(
        run("sleep 300", HANG_TIMEOUT, &cancellation),
        Err(InstallerFault::Cancelled)
    ));
}
