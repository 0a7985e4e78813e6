//! The clock of pre-emption: a thread that counts epochs up while plugins run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use wasmtime::Engine;

/// Ticks without any call after which the thread goes to sleep: waking it is a system call, which a busy worker is
/// spared that way.
const QUIET_TICKS: u32 = 40;

/// Counts the epochs of engines up, once every period, while any call runs. Ends with its last owner.
#[derive(Debug)]
pub(super) struct Ticker {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct State {
    running: AtomicU32,
    ticks: AtomicU64,
    asleep: AtomicBool,
    ended: AtomicBool,
}

impl Ticker {
    /// Begins to count, with a period as exact as the kernel's timers.
    ///
    /// # Errors
    /// When no thread can be begun.
    pub fn new(engines: Vec<Engine>, period: Duration) -> std::io::Result<Self> {
        let state = Arc::new(State::default());
        let seen = Arc::clone(&state);
        let thread = std::thread::Builder::new()
            .name("plugin-ticker".to_owned())
            .spawn(move || tick(&seen, &engines, period))?;
        Ok(Self { state, thread: Some(thread) })
    }

    /// Lets the clock run as long as the result is kept.
    #[inline]
    pub fn start(&self) -> Running<'_> {
        // With the order of the two in `tick`: either the thread sees the call, or the call sees that it sleeps.
        self.state.running.fetch_add(1, Ordering::SeqCst);
        if self.state.asleep.load(Ordering::SeqCst) && self.state.asleep.swap(false, Ordering::SeqCst) {
            self.wake();
        }
        Running { state: &self.state, since: self.ticks() }
    }

    /// How often it has ticked.
    #[inline]
    pub fn ticks(&self) -> u64 {
        self.state.ticks.load(Ordering::Relaxed)
    }

    #[cold]
    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

/// A call that runs.
pub(super) struct Running<'a> {
    state: &'a State,
    since: u64,
}

impl Running<'_> {
    /// How often the clock had ticked when it began.
    #[inline]
    pub fn since(&self) -> u64 {
        self.since
    }
}

impl Drop for Running<'_> {
    #[inline]
    fn drop(&mut self) {
        self.state.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::SeqCst);
        self.wake();
        if let Some(thread) = self.thread.take() {
            // It can't have panicked, and if it had there would be nothing to do about it.
            let _ = thread.join();
        }
    }
}

fn tick(state: &State, engines: &[Engine], period: Duration) {
    // Without it, the kernel takes 50 µs more than it was asked for. A kernel that refuses makes slices longer.
    let _ = nix::sys::prctl::set_timerslack(1);
    let mut quiet = 0;
    while !state.ended.load(Ordering::SeqCst) {
        if quiet < QUIET_TICKS {
            std::thread::sleep(period);
            engines.iter().for_each(Engine::increment_epoch);
            state.ticks.fetch_add(1, Ordering::Relaxed);
            quiet = if state.running.load(Ordering::SeqCst) == 0 { quiet + 1 } else { 0 };
        } else {
            sleep_until_needed(state);
            // Also where the call that woke it is over already: others will follow, and each would wake it again.
            quiet = 0;
        }
    }
}

fn sleep_until_needed(state: &State) {
    state.asleep.store(true, Ordering::SeqCst);
    // A waking that comes before the sleep isn't lost: the sleep ends at once then.
    while state.asleep.load(Ordering::SeqCst)
        && state.running.load(Ordering::SeqCst) == 0
        && !state.ended.load(Ordering::SeqCst)
    {
        std::thread::park();
    }
    state.asleep.store(false, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_when_it_is_dropped_awake_or_asleep() {
        let engine = Engine::default();
        drop(Ticker::new(vec![engine.clone()], Duration::from_micros(50)).unwrap());
        let ticker = Ticker::new(vec![engine], Duration::from_micros(50)).unwrap();
        while !ticker.state.asleep.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(ticker);
    }

    #[test]
    fn a_call_wakes_it() {
        let ticker = Ticker::new(vec![Engine::default()], Duration::from_micros(50)).unwrap();
        while !ticker.state.asleep.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let running = ticker.start();
        while ticker.state.asleep.load(Ordering::SeqCst) || ticker.ticks() == running.since() {
            std::thread::yield_now();
        }
        drop(running);
        assert_eq!(ticker.state.running.load(Ordering::SeqCst), 0);
    }
}
