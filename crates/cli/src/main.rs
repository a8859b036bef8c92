//! **Shows.** The `recurgent` binary.
fn main() {}
