//! Workers lost per agent: counted for the log, and limited for an agent that loses one after another.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Instant;

use lifecycle::execution::{WorkerFault, restart_delay};
use lifecycle::outcome::EndedBy;

use super::locked;

/// Agents whose losses are counted.
const MAX_AGENTS: usize = 4096;

/// Every agent's losses.
#[derive(Debug)]
pub(super) struct Losses {
    /// Crashes in a row after which an agent must wait.
    cap: u32,
    of: Mutex<BTreeMap<String, Loss>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Loss {
    /// In all.
    total: u32,
    /// Crashes since the last success.
    in_a_row: u32,
    /// When the next worker may be started.
    retry_at: Option<Instant>,
}

impl Losses {
    pub(super) fn new(cap: u32) -> Self {
        Self { cap, of: Mutex::default() }
    }

    /// Workers the agent lost so far.
    pub(super) fn total(&self, agent: &str) -> u32 {
        locked(&self.of).get(agent).map_or(0, |loss| loss.total)
    }

    /// Whether the agent may have another worker now.
    pub(super) fn admit(&self, agent: &str) -> Result<(), WorkerFault> {
        let Some(loss) = locked(&self.of).get(agent).copied() else { return Ok(()) };
        let Some(wait) = loss.retry_at.and_then(|at| at.checked_duration_since(Instant::now()))
        else {
            return Ok(());
        };
        Err(WorkerFault::Crashed {
            by: EndedBy::Host,
            detail: format!(
                "{} workers of this agent crashed in a row, so no other is started for {:.1} s; fix the program that crashes them, or call again later",
                loss.in_a_row,
                wait.as_secs_f64()
            ),
        })
    }

    /// Counts a worker that was discarded: its attempt was rejected, or it had ended.
    pub(super) fn note_loss(&self, agent: &str) {
        self.change(agent, |loss| loss.total = loss.total.saturating_add(1));
    }

    /// Counts a worker that crashed or timed out while it ran a program.
    pub(super) fn note_crash(&self, agent: &str) {
        let cap = self.cap;
        self.change(agent, |loss| {
            loss.total = loss.total.saturating_add(1);
            loss.in_a_row = loss.in_a_row.saturating_add(1);
            loss.retry_at = restart_delay(loss.in_a_row, cap).map(|delay| Instant::now() + delay);
        });
    }

    /// Resets the count of crashes after a program ended normally.
    pub(super) fn reset(&self, agent: &str) {
        if let Some(loss) = locked(&self.of).get_mut(agent) {
            (loss.in_a_row, loss.retry_at) = (0, None);
        }
    }

    fn change(&self, agent: &str, change: impl FnOnce(&mut Loss)) {
        let mut of = locked(&self.of);
        if !of.contains_key(agent) && of.len() >= MAX_AGENTS {
            of.pop_first();
        }
        change(of.entry(agent.to_owned()).or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crashes_in_a_row_stop_at_the_cap_and_a_success_resets_them() {
        let losses = Losses::new(3);
        for _ in 0..2 {
            losses.note_crash("a");
            losses.note_loss("a");
            assert!(losses.admit("a").is_ok());
        }
        losses.note_crash("a");
        let refused = losses.admit("a").unwrap_err();
        assert!(matches!(refused, WorkerFault::Crashed { by: EndedBy::Host, .. }), "{refused:?}");
        assert!(losses.admit("b").is_ok());
        losses.reset("a");
        assert!(losses.admit("a").is_ok());
        assert_eq!(losses.total("a"), 5);
    }
}
