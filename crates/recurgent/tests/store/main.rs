//! What any store must do, checked on each; then what only a file shared by processes must do.
#![cfg(test)]

mod files;
mod history;
mod imports;
mod memory;
mod patterns;
mod people;
mod processes;
mod programs;
mod fixture;
mod standing;
mod tools;
