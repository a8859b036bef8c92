//! Real Bundler and real uv against real package sources.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot continue panics"
)]

mod flight;
mod hostile;
mod policy;
mod python;
mod ruby;
mod cache;
mod damage;
mod sources;
mod stage;
mod supervision;
mod tickets;
