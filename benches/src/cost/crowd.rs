//! Many agents at once.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use recurgent::Agent;

use crate::bare::BareMode;
use crate::drive::{Driver, Program};
use crate::fixture::{Fixture, MeasurementOptions, call, fail};
use crate::row::{Measurement, Unit};
use crate::timing::{Effort, float, median, on_cores};

const MANY: usize = 64;
const FEW: usize = 4;
const CORES: usize = 2;
/// Rounds, each with many agents and then with few.
const ROUNDS: usize = 7;
/// The number of workers whose memory is measured.
const IDLE: usize = 16;

/// Compares the calls per second of many agents with those of few.
pub(super) fn crowd(options: MeasurementOptions) -> Measurement {
    on_cores(CORES);
    let fixture = Fixture::new(options);
    let mut many = agents(&fixture, MANY);
    let mut few = agents(&fixture, FEW);
    let mut turn = || (rate(options, &mut many), rate(options, &mut few));
    let pairs: Vec<(f64, f64)> =
        fixture.stored(|| (0..options.rounds(ROUNDS)).map(|_| turn()).collect());
    let of = |pick: fn(&(f64, f64)) -> f64| median(pairs.iter().map(pick).collect());
    let ratio = of(|(many, few)| many / few);
    let both = Measurement::against(of(|pair| pair.0), of(|pair| pair.1), Unit::PerSecond);
    Measurement { ratio: Some(ratio), ..both }
}

pub(crate) fn agents(fixture: &Fixture, count: usize) -> Vec<Agent> {
    (0..count).map(|_| fixture.warm_agent("tester")).collect()
}

/// Stored calls per second, each agent in a thread of its own.
pub(crate) fn rate(options: MeasurementOptions, agents: &mut [Agent]) -> f64 {
    let span = match options.effort {
        Effort::Full => Duration::from_secs(1),
        Effort::Quick => Duration::from_millis(100),
    };
    let ready = Barrier::new(agents.len());
    let until_done = |agent: &mut Agent| {
        ready.wait();
        let begun = Instant::now();
        let mut calls = 0;
        while begun.elapsed() < span {
            call(agent);
            calls += 1;
        }
        (calls, begun.elapsed().as_secs_f64())
    };
    let until_done = &until_done;
    let done: Vec<(usize, f64)> = thread::scope(|scope| {
        let started: Vec<_> =
            agents.iter_mut().map(|agent| scope.spawn(move || until_done(agent))).collect();
        started
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| fail("a call failed")))
            .collect()
    });
    let calls: usize = done.iter().map(|(calls, _)| calls).sum();
    let longest = done.iter().map(|(_, took)| *took).fold(0.0, f64::max);
    float(calls) / longest
}

/// Compares the memory (PSS) of idle workers with that of as many bare forked children; medians.
pub(super) fn idle_memory(options: MeasurementOptions) -> Measurement {
    let driver = Driver::new();
    let mut bare = Fixture::new(options).bare(BareMode::Hold);
    let names: Vec<String> = (0..IDLE).map(|n| format!("agent {n}")).collect();
    let worker = |name: &String| {
        let code = options.one_line();
        let args = vec![serde_json::json!(1)];
        let program = Program {
            language: options.language,
            code,
            agent: name,
            proven: true,
            args,
            ..Program::default()
        };
        driver.run(&program).unwrap().worker.pid.unwrap()
    };
    let workers: Vec<u32> = names.iter().map(worker).collect();
    let children: Vec<u32> = (0..IDLE)
        .map(|_| {
            bare.exchange();
            held_child(bare.line())
        })
        .collect();
    let of = |pids: &[u32]| median(pids.iter().map(|pid| proportional_bytes(*pid)).collect());
    Measurement::against(of(&workers), of(&children), Unit::Bytes)
}

fn held_child(answer: &str) -> u32 {
    let answer: serde_json::Value = serde_json::from_str(answer).unwrap();
    answer
        .get("value")
        .and_then(serde_json::Value::as_u64)
        .and_then(|pid| pid.try_into().ok())
        .unwrap()
}

/// The proportional set size: private memory and a share of the shared memory.
fn proportional_bytes(pid: u32) -> f64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() * 1024.0
}
