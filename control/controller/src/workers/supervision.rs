//! Supervision of the workers: their threads, panics, hanging calls, and free memory.

use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;

use super::death::Death;
use super::memory_guard::MemoryGuard;
use super::watchdog::{Names, Watchdog};
use super::worker_panic::WorkerPanic;

/// Supervision of the workers.
pub(crate) struct Supervision {
    /// Threads of the workers.
    pub threads: Vec<JoinHandle<()>>,
    /// Panics of workers, to be captured.
    pub panics: Receiver<WorkerPanic>,
    /// Handling of packets after the router has died.
    pub death: Death,
    /// Names of instances, for the watchdog.
    pub names: Names,
    /// Watchdog of calls of instances.
    pub watchdog: Option<Watchdog>,
    /// Functions that measure free memory; `None` where memory is not checked.
    pub memory: Option<MemoryGuard>,
}
