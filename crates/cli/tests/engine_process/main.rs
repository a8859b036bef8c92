//! The engine process with a tiny model: started on demand, shared, killed, idle, cancelled, attacked.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "a test that cannot continue panics; the tiny model is made of small numbers"
)]

#[path = "../common/mod.rs"]
mod common;
#[expect(
    dead_code,
    clippy::needless_for_each,
    clippy::needless_pass_by_value,
    reason = "it is of another crate, whose tests use the rest"
)]
#[path = "../../../embedded/tests/engine/tiny.rs"]
mod tiny;

mod calls;
mod fixture;
mod hostile;
mod processes;
