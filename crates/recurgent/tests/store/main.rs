//! What any store must do, checked on each; then what only a file shared by processes must do.
#![cfg(test)]

mod files;
mod history;
mod memory;
mod patterns;
mod processes;
mod programs;
mod stage;
mod standing;
mod tools;
