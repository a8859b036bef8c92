//! The `recurgent` binary as its users meet it: what they type, what is printed, how it exits, what it leaves.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that cannot continue panics"
)]

#[path = "../common/mod.rs"]
mod common;

mod bounds;
mod calls;
mod corrections;
mod demo;
mod environments;
mod exchange;
mod fixture;
mod input;
mod log;
mod newcomer;
#[cfg(feature = "mcp")]
mod outside_tools;
mod processes;
mod repl;
mod seeing;
mod sessions;
mod setup;
mod signals;
mod store;
mod terminal;
mod tools;
mod wrong_values;
