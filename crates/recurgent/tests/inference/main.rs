//! Programs that ask a model about data: what they get, what is sent, what is kept, and what happens when the model
//! fails. Real workers, both guests, a scripted model.
#![cfg(test)]

mod batches;
mod failures;
mod fixture;
mod hostile;
mod keeping;
mod looking;
mod sending;
