//! Installing a model from each source, with everything that can go wrong on the way.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that cannot continue panics"
)]

#[path = "../common/mod.rs"]
mod common;

mod fixture;
mod server;
mod sources;
mod trouble;
