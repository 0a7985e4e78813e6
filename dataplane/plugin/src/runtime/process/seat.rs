//! Seat of an instance: the place by which its worker gets a process, and asks for another one.
//!
//! The keeper of processes, a part of control, starts a process for each seat. If the process ends after its
//! initialisation, the keeper starts the next one at once. Otherwise it waits until the worker asks for it.
//! Neither side waits for the other.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use millrace_plugin_abi::process::{ANSWER_LANE, Layout, REQUEST_LANE, Reader, Writer};
use nix::time::{ClockId, clock_gettime};

use super::region::Region;

/// Order of a seat that is no longer needed.
const RETIRED: u64 = u64::MAX;

/// What worker and keeper know about a process.
#[derive(Debug, Default)]
pub struct Tie {
    ended: OnceLock<String>,
    ready: AtomicBool,
    /// Excess of [`patience`](Self::patience) over 1.
    slowed: AtomicU32,
    /// Clock of the processor time that the process consumes.
    clock: OnceLock<ClockId>,
}

impl Tie {
    /// Reports the end of the process, with its reason.
    pub fn end(&self, why: String) {
        // A second report changes nothing: the process has ended already.
        let _ = self.ended.set(why);
    }

    /// Whether the process has initialised its plugin.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Sets how many times longer than usual a call may take, because the system limits the processor time of
    /// the process: 1 or more.
    pub fn set_patience(&self, patience: u32) {
        self.slowed.store(patience.saturating_sub(1), Ordering::Relaxed);
    }

    /// Lets the worker know the id of the process, in the namespace of the router. From then on, the worker can read the
    /// processor time that the process consumes.
    pub fn set_process(&self, id: u32) {
        // clock_getcpuclockid(3): the upper bits are the inverted process id. Of the lowest bits, 2 selects the scheduler's
        // count of its time. A process has one id.
        let _ = self.clock.set(ClockId::from_raw(!id.cast_signed() << 3 | 2));
    }

    /// Returns the processor time that the process has consumed; `None` if its id is unknown, or if it has ended.
    pub(super) fn consumed(&self) -> Option<Duration> {
        Some(clock_gettime(*self.clock.get()?).ok()?.into())
    }

    pub(super) fn patience(&self) -> u32 {
        self.slowed.load(Ordering::Relaxed).saturating_add(1)
    }

    pub(super) fn ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    /// Returns the reason for which the process has ended; `None` if it runs.
    #[inline]
    pub(super) fn ended(&self) -> Option<&str> {
        self.ended.get().map(String::as_str)
    }
}

/// Worker's side of the memory that it shares with a process.
#[derive(Debug)]
pub struct Link {
    pub(super) region: Region,
    pub(super) requests: Writer,
    pub(super) answers: Reader,
    pub(super) tie: Arc<Tie>,
}

impl Link {
    /// Creates the memory that a process shares with a worker. Returns it with its file, which the process
    /// needs.
    ///
    /// # Errors
    /// The kernel has no memory.
    pub(super) fn new(layout: &Layout) -> io::Result<(Self, OwnedFd)> {
        let (region, file) = Region::create(layout.words())?;
        layout.write(region.words());
        let (requests, answers) = (Writer::new(REQUEST_LANE), Reader::new(ANSWER_LANE));
        Ok((Self { region, requests, answers, tie: Arc::default() }, file))
    }

    /// Returns the knowledge about the process.
    pub fn tie(&self) -> Arc<Tie> {
        self.tie.clone()
    }
}

/// Request of a worker to the keeper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Kill the process with this number, and start another one.
    Replace(u64),
    /// End the process: the instance is gone.
    Retire,
}

/// Number of a start, and its result: the link to the process, or the reason why it was not started.
type Started = (u64, Result<Link, String>);

/// Seat of an instance. Its processes are numbered from 1 on.
pub struct Seat {
    /// Latest start that the worker has not taken yet.
    next: Mutex<Option<Started>>,
    /// Number of the latest start.
    number: AtomicU64,
    order: AtomicU64,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Seat {
    /// Creates a seat without a process. `wake` wakes the keeper; it must not wait.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        let (next, number, order) = Default::default();
        Self { next, number, order, wake: Box::new(wake) }
    }

    /// Begins a start. Returns its number.
    pub fn begin_start(&self) -> u64 {
        self.number.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Passes the result of the start with this number to the worker.
    pub fn give(&self, number: u64, started: Result<Link, String>) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = next.replace((number, started));
        drop(next);
        drop(earlier);
    }

    /// Removes and returns the latest order of the worker.
    pub fn take_order(&self) -> Option<Order> {
        match self.order.load(Ordering::Acquire) {
            0 => None,
            RETIRED => Some(Order::Retire),
            number => {
                // A newer order stays.
                let taken = self.order.compare_exchange(number, 0, Ordering::AcqRel, Ordering::Relaxed);
                taken.ok().map(Order::Replace)
            }
        }
    }

    /// Returns the number of the latest start.
    pub(super) fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// Removes and returns the latest start; `None` if none is ready.
    pub(super) fn take(&self) -> Option<Started> {
        self.next.try_lock().ok()?.take()
    }

    pub(super) fn replace(&self, number: u64) {
        self.order.store(number, Ordering::Release);
        (self.wake)();
    }

    pub(super) fn retire(&self) {
        self.order.store(RETIRED, Ordering::Release);
        (self.wake)();
    }
}
