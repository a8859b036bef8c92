//! The threads that share the work of one computation.

use std::ops::Range;

use crate::fault::EngineFault;

/// The most threads; more do not help a model of this size.
const MAX_THREADS: usize = 32;

/// A pool of threads that sleep while they have nothing to do.
///
/// candle has a pool of its own whose waiting threads spin, which makes everything slow on a busy machine. With
/// [`PROCESS_ENVIRONMENT`](crate::PROCESS_ENVIRONMENT) candle's pool is empty, and matrices are cut into one part
/// per thread of this pool. Without it, candle's pool is used.
#[derive(Debug)]
pub(crate) struct Threads {
    pool: Option<rayon::ThreadPool>,
    parts: usize,
}

impl Threads {
    pub(crate) fn new(wanted: Option<usize>) -> Result<Self, EngineFault> {
        let available = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let count = wanted.unwrap_or(available).clamp(1, MAX_THREADS);
        let has_own_pool = candle_core::utils::barrier_pool().n_workers() > 0;
        if count == 1 || has_own_pool {
            return Ok(Self { pool: None, parts: 1 });
        }
        let builder = rayon::ThreadPoolBuilder::new().num_threads(count);
        let pool = builder.thread_name(|index| format!("model-{index}")).build();
        let pool = pool.map_err(|error| EngineFault::Internal(error.to_string()))?;
        Ok(Self { pool: Some(pool), parts: count })
    }

    /// Runs `work` inside the pool, so that parallel iterators use it.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        match &self.pool {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }

    /// Whether there is more than one thread.
    pub(crate) fn is_parallel(&self) -> bool {
        self.pool.is_some()
    }

    /// Cuts `rows` into one range per thread, each (but the last) a multiple of `tile`.
    pub(crate) fn split(&self, rows: usize, tile: usize) -> Vec<Range<usize>> {
        let step = rows.div_ceil(self.parts).next_multiple_of(tile).max(tile);
        (0..rows).step_by(step).map(|start| start..rows.min(start + step)).collect()
    }
}
