//! Strict JSON whose integers have any size and whose objects keep the order they were written in.
//!
//! The other crates use this one under the name `serde_json`: it has the functions and types of that crate that
//! they need. The types come from `serde_json_lenient`, a fork of `serde_json` under another package name, so
//! that the features this runtime needs are not switched on in the `serde_json` of the program that embeds it.
//! The fork accepts comments and trailing commas unless asked not to; every reader here asks it not to.

mod finite;
mod read;
mod standard;

pub use finite::to_finite_value;
pub use read::{RESERVED_KEY, from_reader, from_slice, from_str, from_value};
pub use serde_json_lenient::{
    Error, Map, Number, Result, Value, json, map, to_string, to_string_pretty, to_value, to_vec,
    to_writer, value,
};
pub use standard::{StandardValue, to_standard};
