//! Keeps a [`HostState`] equal to the kernel's.
//!
//! One socket receives both notifications and lists, so that they come in the order in which they became true.
//! It subscribes first and lists afterwards; nothing falls between.

mod listing;
mod worker;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::{HostChange, HostError, HostState};
use worker::Worker;

/// Batches that wait for a slow reader; what comes on top is joined into one.
const WAITING_BATCHES: usize = 16;

/// How the mirror behaves.
#[derive(Clone, Debug)]
pub struct MirrorOptions {
    /// Receive buffer of the netlink socket in bytes; forced beyond the system's limit where we may. Default 32 MiB.
    pub receive_buffer: usize,
    /// Time between two comparisons with a full dump; zero for never. Default 60 s.
    pub comparison_interval: Duration,
}

impl Default for MirrorOptions {
    fn default() -> Self {
        Self { receive_buffer: 32 << 20, comparison_interval: Duration::from_secs(60) }
    }
}

/// Counters of a mirror since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MirrorStatistics {
    /// Netlink messages received, notifications and dump entries.
    pub messages: u64,
    /// Messages that could not be understood.
    pub malformed: u64,
    /// Times the kernel dropped notifications because our buffer was full.
    pub overruns: u64,
    /// Full dumps.
    pub dumps: u64,
    /// Entries that a comparison found to differ from the kernel's and put right.
    pub divergences_repaired: u64,
}

/// What the task and its users share.
#[derive(Debug, Default)]
struct Shared {
    state: RwLock<HostState>,
    statistics: Mutex<MirrorStatistics>,
    /// Told whenever the state may have changed.
    news: watch::Sender<()>,
}

impl Shared {
    fn read(&self) -> RwLockReadGuard<'_, HostState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HostState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn statistics(&self) -> MutexGuard<'_, MirrorStatistics> {
        self.statistics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running mirror; dropping it stops its task.
#[derive(Debug)]
pub struct Mirror {
    shared: Arc<Shared>,
    comparisons: mpsc::UnboundedSender<oneshot::Sender<u64>>,
    task: JoinHandle<()>,
}

impl Mirror {
    /// Subscribes, lists everything and follows, in the network namespace of the calling thread.
    ///
    /// The first batch received is the full state. Must be called inside a tokio runtime with I/O and time.
    ///
    /// # Errors
    /// When the netlink socket can't be made or the first list fails.
    pub async fn start(options: MirrorOptions) -> Result<(Self, mpsc::Receiver<Vec<HostChange>>), HostError> {
        let shared = Arc::new(Shared::default());
        let (sender, receiver) = mpsc::channel(WAITING_BATCHES);
        let (comparisons, requests) = mpsc::unbounded_channel();
        let mut worker = Worker::open(&options, Arc::clone(&shared), sender, requests)?;
        worker.list_first().await?;
        let task = tokio::spawn(worker.run());
        Ok((Self { shared, comparisons, task }, receiver))
    }

    /// The state as of the last message; hold the guard shortly, the mirror waits for it.
    pub fn state(&self) -> RwLockReadGuard<'_, HostState> {
        self.shared.read()
    }

    /// Becomes ready whenever the state may have changed since it was last looked at. Who takes this first and looks at the
    /// state then misses nothing.
    pub fn news(&self) -> watch::Receiver<()> {
        self.shared.news.subscribe()
    }

    /// The counters now.
    pub fn statistics(&self) -> MirrorStatistics {
        *self.shared.statistics()
    }

    /// Compares the state with a full list now and repairs it; returns how many entries differed.
    ///
    /// # Errors
    /// When the mirror's task has ended.
    pub async fn compare(&self) -> Result<u64, HostError> {
        let (sender, answer) = oneshot::channel();
        self.comparisons.send(sender).map_err(|_| HostError::Stopped)?;
        answer.await.map_err(|_| HostError::Stopped)
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.task.abort();
    }
}
