//! Programs that do not end by themselves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lifecycle::execution::WorkerFault;

use crate::drive::{Driver, Program, descendants, is_alive};
use crate::fixture::{MeasurementOptions, fail};
use crate::row::{Measurement, Unit};
use crate::timing::{float, pause, quantile};

const ROUNDS: usize = 200;
const LIMIT: Duration = Duration::from_millis(40);
const SURVIVAL_ROUNDS: usize = 40;
/// Longest time for a killed process to disappear.
const EXIT_TIMEOUT: Duration = Duration::from_millis(500);

/// How long after its wall limit a program is reported as timed out (99th percentile).
pub(super) fn overshoot(options: MeasurementOptions) -> Measurement {
    let driver = Driver::new();
    let program = hanging(options, options.pick("while True: pass", "loop {}"));
    driver.boot(options.language);
    let over = beside_spinners(|| {
        let once = || {
            let mut turn = driver.start(&program);
            let begun = Instant::now();
            let reply = turn.listen();
            let took = begun.elapsed();
            assert!(matches!(reply, Err(WorkerFault::TimedOut(_))), "it ended by itself");
            took.saturating_sub(LIMIT).as_secs_f64()
        };
        (0..options.rounds(ROUNDS)).map(|_| once()).collect()
    });
    Measurement::without_floor(quantile(over, 0.99), Unit::Seconds)
}

/// Programs that try to survive their termination: they catch everything, ignore signals, leave threads and, where permitted, processes in
/// their own sessions.
pub(super) fn survivors(options: MeasurementOptions) -> Measurement {
    // Orphans become children of this process from now on, so that `descendants` sees them.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    let code = options.pick(
        "import os, signal, threading\n\
         for n in range(1, 32):\n    \
             try: signal.signal(n, signal.SIG_IGN)\n    \
             except (OSError, ValueError): pass\n\
         def spin():\n    while True: pass\n\
         try:\n    \
             if os.fork() == 0:\n        \
                 os.setsid()\n        \
                 if os.fork() == 0: os.chdir('/')\n        \
                 spin()\n\
         except OSError: pass\n\
         threading.Thread(target=spin, daemon=False).start()\n\
         while True:\n    try: spin()\n    except BaseException: pass",
        "Signal.list.each_key { |name| begin; trap(name, 'IGNORE'); rescue ArgumentError, SystemCallError; nil; end }\n\
         begin; fork { Process.setsid; fork { Dir.chdir('/'); loop {} }; loop {} }; rescue SystemCallError; nil; end\n\
         Thread.new { loop {} }\nat_exit { loop {} }\n\
         begin; loop {}; rescue Exception; retry; ensure; loop {}; end",
    );
    let mut driver = Driver::new();
    driver.boot(options.language);
    pause(); // until the zygote has forked its spare worker
    let before = running().len();
    let program = hanging(options, code);
    for _ in 0..options.rounds(SURVIVAL_ROUNDS) {
        match driver.run(&program) {
            Err(WorkerFault::TimedOut(_)) => {}
            other => fail(&format!("the program was not timed out: {other:?}")),
        }
    }
    let waiting = Instant::now();
    while running().len() > before && waiting.elapsed() < EXIT_TIMEOUT {
        pause();
    }
    let left = running();
    driver.close();
    // Those that outlived their program, and those that live after the pool was closed.
    let after_all = left.iter().filter(|pid| is_alive(**pid)).count();
    let alive = after_all + left.len().saturating_sub(before);
    Measurement::without_floor(float(alive), Unit::Processes)
}

/// Processes below this one that run.
fn running() -> Vec<u32> {
    descendants().into_iter().filter(|pid| is_alive(*pid)).collect()
}

fn hanging(options: MeasurementOptions, code: &str) -> Program<'_> {
    Program { language: options.language, code, limit: LIMIT, ..Program::default() }
}

/// Does something while every core has two threads that spin.
fn beside_spinners<T>(action: impl FnOnce() -> T) -> T {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 * cores {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let _stop = StopOnDrop(&done);
        action()
    })
}

/// Stops the spinning threads when it is dropped.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
