//! Mirror: keeps a [`HostState`] equal to the kernel's.
//!
//! One socket receives both notifications and lists (netlink dumps), so that both arrive in the order of the
//! kernel's changes. The mirror subscribes to notifications before its first list, so it misses no change.
//!
//! When the socket's buffer overruns, the kernel drops notifications. The mirror then lists everything again.
//! It also compares its state with a full list at regular intervals, counts the differences, and corrects its
//! state.

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

/// Maximum number of batches queued for a slow reader. Further changes are joined into one batch, which is
/// sent later.
const WAITING_BATCHES: usize = 16;

/// Options of a mirror.
#[derive(Clone, Debug)]
pub struct MirrorOptions {
    /// Receive buffer of the netlink socket in bytes. Exceeds the system's limit if the process is permitted
    /// to. Default 32 MiB.
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
    /// Received netlink messages: notifications and dump entries.
    pub messages: u64,
    /// Number of times that the kernel dropped notifications because the socket's buffer was full.
    pub overruns: u64,
    /// Number of full dumps.
    pub dumps: u64,
    /// Number of entries that differed from the kernel's in a comparison. The comparison corrects them.
    pub divergences_repaired: u64,
}

/// State shared by the task and its users.
#[derive(Debug, Default)]
struct Shared {
    state: RwLock<HostState>,
    statistics: Mutex<MirrorStatistics>,
    /// Notification that the state may have changed.
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

/// Running mirror; dropping it stops its task.
#[derive(Debug)]
pub struct Mirror {
    shared: Arc<Shared>,
    comparisons: mpsc::UnboundedSender<oneshot::Sender<u64>>,
    task: JoinHandle<()>,
}

impl Mirror {
    /// Subscribes, lists the whole state and follows changes, in the network namespace of the calling thread.
    ///
    /// The first received batch is the full state. The caller must be inside a tokio runtime with I/O and
    /// time.
    pub async fn start(options: MirrorOptions) -> Result<(Self, mpsc::Receiver<Vec<HostChange>>), HostError> {
        let shared = Arc::new(Shared::default());
        let (sender, receiver) = mpsc::channel(WAITING_BATCHES);
        let (comparisons, requests) = mpsc::unbounded_channel();
        let mut worker = Worker::open(&options, Arc::clone(&shared), sender, requests)?;
        worker.list_first().await?;
        let task = tokio::spawn(worker.run());
        Ok((Self { shared, comparisons, task }, receiver))
    }

    /// Returns the state as of the last message. The mirror waits while the caller holds the guard, so hold
    /// the guard only briefly.
    pub fn state(&self) -> RwLockReadGuard<'_, HostState> {
        self.shared.read()
    }

    /// Returns a receiver that is notified whenever the state may have changed. A caller that takes the
    /// receiver before it reads the state misses no change.
    pub fn news(&self) -> watch::Receiver<()> {
        self.shared.news.subscribe()
    }

    /// Returns the current counters.
    pub fn statistics(&self) -> MirrorStatistics {
        *self.shared.statistics()
    }

    /// Compares the state with a full list, and corrects the state. Returns the number of entries that
    /// differed.
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
