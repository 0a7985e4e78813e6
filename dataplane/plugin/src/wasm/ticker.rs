//! The clock of pre-emption: a thread that counts epochs up while plugins run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
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

    /// Does `call` while the clock runs.
    #[inline]
    pub fn during<R>(&self, call: impl FnOnce() -> R) -> R {
        let _running = self.start();
        call()
    }

    #[inline]
    fn start(&self) -> Running<'_> {
        // With the order of the two in `tick`: either the thread sees the call, or the call sees that it sleeps.
        self.state.running.fetch_add(1, Ordering::SeqCst);
        if self.state.asleep.load(Ordering::SeqCst) {
            self.wake();
        }
        Running(&self.state)
    }

    #[cold]
    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

/// A call that runs.
struct Running<'a>(&'a State);

impl Drop for Running<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
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
        } else {
            sleep_until_needed(state);
        }
        quiet = if state.running.load(Ordering::SeqCst) == 0 { quiet + 1 } else { 0 };
    }
}

fn sleep_until_needed(state: &State) {
    state.asleep.store(true, Ordering::SeqCst);
    // A waking that comes before the sleep isn't lost: the sleep ends at once then.
    while state.running.load(Ordering::SeqCst) == 0 && !state.ended.load(Ordering::SeqCst) {
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
        ticker.during(|| {
            while ticker.state.asleep.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
        });
        assert_eq!(ticker.state.running.load(Ordering::SeqCst), 0);
    }
}
