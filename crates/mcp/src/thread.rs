//! The one thread on which servers are spoken to, and how a call waits for it.

use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use recurgent::toolbox::{ToolFault, ToolLimits};
use tokio::sync::{mpsc, oneshot};

/// How often a waiting call checks whether it was cancelled.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The thread, started when it is first needed. It ends when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct IoThread(Mutex<Option<mpsc::UnboundedSender<Job>>>);

impl IoThread {
    /// Runs a future on the thread and waits for its result, within the limits. A future that is given up on is dropped.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
        limits: &ToolLimits<'_>,
    ) -> Result<T, ToolFault> {
        let (sender, receiver) = channel();
        // Dropped when this returns, which ends the future.
        let (_waiting, given_up) = oneshot::channel::<()>();
        let job = async move {
            tokio::select! {
                result = future => drop(sender.send(result)), // the call may have given up meanwhile
                _ = given_up => {}
            }
        };
        self.send(Box::pin(job))?;
        let deadline = Instant::now() + limits.timeout;
        loop {
            if limits.cancellation.is_cancelled() {
                return Err(ToolFault::Cancelled);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match receiver.recv_timeout(left.min(POLL_INTERVAL)) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                    return Err(ToolFault::TimedOut(limits.timeout));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(ended()),
            }
        }
    }

    fn send(&self, job: Job) -> Result<(), ToolFault> {
        let mut sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let job = match sender.as_ref() {
            Some(known) => match known.send(job) {
                Ok(()) => return Ok(()),
                Err(unsent) => unsent.0,
            },
            None => job,
        };
        let started = start()?;
        started.send(job).map_err(|_| ended())?;
        *sender = Some(started);
        Ok(())
    }
}

fn ended() -> ToolFault {
    ToolFault::Unreachable("the thread that speaks to servers has ended".to_owned())
}

fn start() -> Result<mpsc::UnboundedSender<Job>, ToolFault> {
    let fault = |error: std::io::Error| ToolFault::Unreachable(error.to_string());
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(fault)?;
    let (sender, mut receiver) = mpsc::unbounded_channel::<Job>();
    let serve = move || {
        runtime.block_on(async move {
            while let Some(job) = receiver.recv().await {
                tokio::spawn(job);
            }
        });
    };
    thread::Builder::new().name("mcp".to_owned()).spawn(serve).map_err(fault)?;
    Ok(sender)
}
