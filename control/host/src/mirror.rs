//! Keeps a [`HostState`] equal to the kernel's.

use std::sync::{Arc, RwLock, RwLockReadGuard};
use std::time::Duration;

use tokio::sync::mpsc::Receiver;

use crate::{HostChange, HostError, HostState};

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

/// A running mirror; dropping it stops its task.
#[derive(Debug)]
pub struct Mirror {
    state: Arc<RwLock<HostState>>,
}

impl Mirror {
    /// Subscribes, dumps everything and follows, in the network namespace of the calling thread.
    ///
    /// The first batch received is the full state.
    ///
    /// # Errors
    /// When the netlink socket can't be made or the first dump fails.
    pub async fn start(_options: MirrorOptions) -> Result<(Self, Receiver<Vec<HostChange>>), HostError> {
        Err(HostError::Stopped)
    }

    /// The state as of the last message; hold the guard shortly, the mirror waits for it.
    pub fn state(&self) -> RwLockReadGuard<'_, HostState> {
        self.state.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The counters now.
    pub fn statistics(&self) -> MirrorStatistics {
        MirrorStatistics::default()
    }

    /// Compares the state with a full dump now and repairs it; returns how many entries differed.
    ///
    /// # Errors
    /// When the mirror's task has ended.
    pub async fn compare(&self) -> Result<u64, HostError> {
        Err(HostError::Stopped)
    }
}
