//! The clock of pre-emption: a thread that counts epochs up while plugins run.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use wasmtime::Engine;

/// Ticks between two looks whether there were calls; after as many without any the thread goes to sleep. Waking it is a system
/// call, which a busy worker is spared that way.
const QUIET_TICKS: u32 = 40;

/// Counts the epochs of engines up, once every period, while any call runs. Ends with its last owner.
#[derive(Debug)]
pub(super) struct Ticker {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct State {
    ticks: AtomicU64,
    asleep: AtomicBool,
    ended: AtomicBool,
    callers: Mutex<Vec<Caller>>,
}

/// The calls of one instance, as the clock sees them. Written by who calls it alone, so that no call waits for another worker's.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Calls {
    /// Goes up by one when a call begins, and by one when it ends: odd while one goes on.
    beat: AtomicU64,
}

impl Calls {
    /// There is one writer, so this needs no atomic addition.
    #[inline]
    fn step(&self) {
        self.beat.store(self.beat.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }
}

/// An instance, and its beat when the clock last looked.
#[derive(Debug)]
struct Caller {
    calls: Weak<Calls>,
    seen: u64,
}

impl State {
    /// Whether any call went on since this was last asked. Instances that are gone are forgotten.
    fn was_active(&self) -> bool {
        let mut active = false;
        self.callers.lock().unwrap_or_else(PoisonError::into_inner).retain_mut(|caller| {
            let Some(calls) = caller.calls.upgrade() else { return false };
            let beat = calls.beat.load(Ordering::Acquire);
            active |= beat % 2 == 1 || beat != caller.seen;
            caller.seen = beat;
            true
        });
        active
    }
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

    /// Makes the clock run for the calls of one more instance.
    pub fn caller(&self) -> Arc<Calls> {
        let calls = Arc::new(Calls::default());
        let caller = Caller { calls: Arc::downgrade(&calls), seen: 0 };
        self.state.callers.lock().unwrap_or_else(PoisonError::into_inner).push(caller);
        calls
    }

    /// Lets the clock run as long as the result is kept.
    ///
    /// No fence stands between the two words, for one would cost as much as a short call: who begins a call may not see that the
    /// thread is about to sleep, and the thread not see the call. It looks again a tick later, when what was written is seen.
    #[inline]
    pub fn start<'c>(&self, calls: &'c Calls) -> Running<'c> {
        calls.step();
        if self.state.asleep.load(Ordering::Acquire) && self.state.asleep.swap(false, Ordering::SeqCst) {
            self.wake();
        }
        Running { calls, since: self.ticks() }
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
pub(super) struct Running<'c> {
    calls: &'c Calls,
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
        self.calls.step();
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
    let tick = || {
        std::thread::sleep(period);
        engines.iter().for_each(Engine::increment_epoch);
        state.ticks.fetch_add(1, Ordering::Relaxed);
    };
    let has_ended = || state.ended.load(Ordering::SeqCst);
    while !has_ended() {
        (0..QUIET_TICKS).take_while(|_| !has_ended()).for_each(|_| tick());
        if state.was_active() {
            continue;
        }
        state.asleep.store(true, Ordering::SeqCst);
        tick();
        if !state.was_active() {
            sleep_until_needed(state);
        }
        state.asleep.store(false, Ordering::SeqCst);
    }
}

fn sleep_until_needed(state: &State) {
    // A waking that comes before the sleep isn't lost: the sleep ends at once then.
    while state.asleep.load(Ordering::SeqCst) && !state.ended.load(Ordering::SeqCst) {
        std::thread::park();
    }
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
        let calls = ticker.caller();
        let running = ticker.start(&calls);
        while ticker.state.asleep.load(Ordering::SeqCst) || ticker.ticks() == running.since() {
            std::thread::yield_now();
        }
        drop(running);
        assert!(ticker.state.was_active() && !ticker.state.was_active());
    }

    #[test]
    fn it_goes_on_while_a_call_does_however_long_and_sleeps_after_its_end() {
        let ticker = Ticker::new(vec![Engine::default()], Duration::from_micros(50)).unwrap();
        let (calls, idle) = (ticker.caller(), ticker.caller());
        let running = ticker.start(&calls);
        let since = ticker.ticks();
        while ticker.ticks() < since + 10 * u64::from(QUIET_TICKS) {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(running);
        while !ticker.state.asleep.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop((calls, idle));
        assert!(!ticker.state.was_active());
        assert!(ticker.state.callers.lock().unwrap().is_empty());
    }
}
