//! The promises about cost, one row each; `cost/` measures.

mod asks;
mod crowd;
mod environments;
mod fresh;
mod library;
mod limits;
mod prompt;
mod sandbox;
mod stored;
mod vetting;

use lifecycle::dialect::Language;

use crate::fixture::MeasurementOptions;
use crate::row::{Measurement, Quantity, RowBound, Unit};

pub(crate) use crowd::{agents, rate};
pub(crate) use stored::{BLOCK, call_after_change, sized};

/// One promise.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    /// What it is measured against.
    pub(crate) floor: &'static str,
    pub(crate) bound: RowBound,
    pub(crate) guests: Guests,
    /// Commands it needs besides the interpreter.
    pub(crate) needs: fn(Language) -> &'static [&'static str],
    pub(crate) measure: fn(MeasurementOptions) -> Measurement,
}

/// The guests that a promise applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guests {
    Each,
    /// One measurement for all guests.
    One,
}

const BARE_LOOP: &str = "a bare loop";
const BARE_FORK: &str = "a bare fork";

#[rustfmt::skip]
pub(crate) const COSTS: &[Cost] = &[
    each("stored-call",     "warm stored call, end to end (select, execute, judge, commit, log)",  BARE_LOOP,           times(8.0),             stored::end_to_end),
    each("stored-call-hot", "the same, 20 calls in a row and then 20 of the floor",                BARE_LOOP,           RowBound::None,         stored::hot),
    each("full-store",      "the same with 500 tools, 5,000 artifacts, 10,000 history records",    "an empty store",    times(1.2),             stored::full_store),
    each("big-context",     "the same with a context of 1 MB, one small key of it changed",        "a small context",   times(2.0),             stored::big_context),
    each("fresh-program",   "new one-line program in its own sandboxed child, spare ready, end to end without the model", BARE_FORK, times(1.0), fresh::program),
    each("next-attempt",    "rejected attempt to the next attempt's program running",              BARE_FORK,           times(2.0),             fresh::next_attempt),
    each("sandboxed-warm",  "exchange with a warm worker, sandboxed",                              "unsandboxed",       times(1.2),             sandbox::warm),
    each("sandboxed-fork",  "program in a child of its own, sandboxed",                            "unsandboxed",       times(1.5),             sandbox::fork),
    each("sandboxed-cold",  "first program of a runtime, sandboxed",                               "unsandboxed",       times(1.4),             sandbox::cold),
    each("ask-context",     "a program asks the host: runtime_context of an agent it holds",       BARE_LOOP,           times(1.5),             asks::runtime_context),
    each("ask-content",     "a program asks the host: content of an earlier result",               BARE_LOOP,           times(1.5),             asks::content),
    each("wall-limit",      "past a program's wall limit until the caller gets the failure, p99, 2 × cores spinning", "",        at_most(0.025, Unit::Seconds), limits::overshoot),
    each("survivors",       "processes alive after programs met their wall limit",                 "",                  at_most(0.0, Unit::Processes), limits::survivors),
    packaged(each("environment-hit", "finding the environment of a program's packages when it is there",    "",                  at_most(0.001, Unit::Seconds), environments::hit)),
    packaged(each("environment-processes", "processes started for that",                                    "",                  at_most(0.0, Unit::Processes), environments::processes)),
    each("crowd",           "64 agents calling at once on 2 cores: calls per second",              "4 agents",          RowBound::AtLeastTimes(0.7), crowd::crowd),
    each("idle-memory",     "memory of an idle worker",                                            "a bare forked child", times(1.3),           crowd::idle_memory),
    each("vetting",         "vetting a program of 5 KB",                                           "",                  at_most(0.002, Unit::Seconds), vetting::five_kilobytes),
    each("prompt",          "fixed prompt of a first call, schema not counted",                    "",                  at_most(900.0, Unit::Tokens), prompt::fixed),
    each("prompt-growth",   "prompt with 1 MB of arguments, the worst of eight shapes",             "with 1 KB",         times(1.05),            prompt::growth),
    once("async-runtimes",  "async runtimes a program gets with the library",                      "",                  at_most(0.0, Unit::Packages), library::async_runtimes),
    once("c-plus-plus",     "C++ runtimes a program gets with the library",                        "",                  at_most(0.0, Unit::Packages), library::c_plus_plus),
];

const fn times(most: f64) -> RowBound {
    RowBound::AtMostTimes(most)
}

const fn at_most(value: f64, unit: Unit) -> RowBound {
    RowBound::AtMost(Quantity::new(value, unit))
}

const fn each(
    name: &'static str,
    what: &'static str,
    floor: &'static str,
    bound: RowBound,
    measure: fn(MeasurementOptions) -> Measurement,
) -> Cost {
    Cost { name, what, floor, bound, guests: Guests::Each, needs: nothing, measure }
}

const fn packaged(cost: Cost) -> Cost {
    Cost { needs: environments::tools, ..cost }
}

fn nothing(_: Language) -> &'static [&'static str] {
    &[]
}

const fn once(
    name: &'static str,
    what: &'static str,
    floor: &'static str,
    bound: RowBound,
    measure: fn(MeasurementOptions) -> Measurement,
) -> Cost {
    Cost { guests: Guests::One, ..each(name, what, floor, bound, measure) }
}
