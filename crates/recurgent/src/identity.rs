//! Identifiers that are unique across processes.

use lifecycle::program::hex;
use lifecycle::request::{CallId, TraceId};

/// A new id of a call.
pub(crate) fn call_id() -> CallId {
    CallId(random_hex::<8>())
}

/// A new id of a trace.
pub(crate) fn trace_id() -> TraceId {
    TraceId::of_random(&random::<12>())
}

/// A new id of an agent object in this process.
pub(crate) fn instance_id() -> String {
    random_hex::<8>()
}

/// A new id of a preparation ticket.
pub(crate) fn ticket_id() -> String {
    random_hex::<8>()
}

/// A random number, for delays.
pub(crate) fn random_byte() -> u8 {
    random::<1>()[0]
}

fn random_hex<const N: usize>() -> String {
    hex(&random::<N>())
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // The kernel's generator does not fail once the machine has booted; a clock keeps ids distinct if it does.
    if getrandom::fill(&mut bytes).is_err() {
        let now = crate::upkeep::now().as_nanosecond().to_le_bytes();
        bytes.iter_mut().zip(now).for_each(|(byte, tick)| *byte = tick);
    }
    bytes
}
