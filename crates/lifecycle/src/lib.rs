//! **Decides.** One call of an agent as a pure state machine; every policy a function or a table.
//!
//! Nothing here performs anything: no files, no clock, no randomness, no locks, no environment.
#![forbid(unsafe_code)]
