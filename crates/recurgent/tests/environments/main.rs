//! Real Bundler and real uv against real package sources.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot continue panics"
)]

mod processes;
mod hostile;
mod policy;
mod python;
mod ruby;
mod cache;
mod damage;
mod sources;
mod fixture;
mod supervision;
mod tickets;
