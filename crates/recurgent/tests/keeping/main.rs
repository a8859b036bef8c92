//! Working programs are kept, failing ones are repaired, and nothing good is lost: whole calls with real workers, on both
//! guests, some of them in a second process.
#![cfg(test)]

mod examples;
mod first_calls;
mod fixture;
mod people;
mod processes;
mod records;
mod replacing;
mod reuse;
mod sessions;
