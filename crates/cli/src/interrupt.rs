//! Ctrl-C, SIGTERM and a closed terminal: the first stops the running call, the next ends the process at once.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use recurgent::Cancellation;
use rustix::process::getpgrp;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::exit::{CommandFault, Exit};
use crate::render;

/// Passes signals on to the call that is running.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupt {
    /// The running call that was not asked to stop yet.
    running: Arc<Mutex<Option<Interruptible>>>,
    /// The state of the terminal before line editing.
    terminal: Option<Termios>,
}

/// What a signal stops.
#[derive(Debug)]
struct Interruptible {
    cancellation: Cancellation,
    /// What to say when it is asked to stop.
    notice: &'static str,
}

impl Interrupt {
    /// Listens for signals from now on.
    pub(crate) fn install() -> Result<Self, CommandFault> {
        let fault =
            |error| CommandFault::setup(format!("cannot listen for Ctrl-C: {error}; run again"));
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(fault)?;
        let interrupt = Self { terminal: tcgetattr(io::stdin()).ok(), ..Self::default() };
        let running = interrupt.clone();
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || signals.forever().for_each(|_| running.signalled()))
            .map_err(fault)?;
        Ok(interrupt)
    }

    /// While `call` runs, signals cancel its token.
    pub(crate) fn during<T>(&self, call: impl FnOnce(Cancellation) -> T) -> T {
        self.announcing("stopping the call; once more to leave at once", call)
    }

    /// The same for `work` that is not a call: `notice` says what stops.
    pub(crate) fn announcing<T>(
        &self,
        notice: &'static str,
        work: impl FnOnce(Cancellation) -> T,
    ) -> T {
        let cancellation = Cancellation::default();
        self.set(Some(Interruptible { cancellation: cancellation.clone(), notice }));
        let answer = work(cancellation);
        self.set(None);
        answer
    }

    fn set(&self, running: Option<Interruptible>) {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = running;
    }

    fn signalled(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        match running {
            Some(Interruptible { cancellation, notice }) => {
                cancellation.cancel();
                render::progress(notice);
            }
            None => self.leave(),
        }
    }

    /// Exits without waiting for the call. Committed data is in the store; the rest is discarded.
    fn leave(&self) {
        // A background process would be stopped for changing the terminal.
        let is_in_front = tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp());
        if let Some(terminal) = self.terminal.as_ref().filter(|_| is_in_front) {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, terminal);
        }
        std::process::exit(Exit::Cancelled.code().into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_stops_the_running_call_and_no_later_one() {
        let interrupt = Interrupt::default();
        let was_stopped = interrupt.during(|cancellation| {
            interrupt.signalled();
            cancellation.is_cancelled()
        });
        assert!(was_stopped);
        assert!(!interrupt.during(|cancellation| cancellation.is_cancelled()));
    }
}
