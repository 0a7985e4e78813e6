//! Clock of slices: a thread that increments the engines' epochs while plugins run.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::unistd::{Pid, gettid};
use wasmtime::Engine;

/// Number of ticks after which the thread checks for calls. If no call ran since the previous check, the
/// thread sleeps until a call wakes it. Waking takes a system call, so the thread doesn't sleep between the
/// calls of a busy worker.
const QUIET_TICKS: u32 = 40;
/// Number of sleeps whose least delay the next sleeps make up for.
const WINDOW: u32 = 64;
/// Slice that the thread asks of the kernel: the shortest. A thread with a shorter slice than the running one takes the
/// processor when it wakes, so slices of plugins end in time on busy processors, too.
const SHORT: Duration = Duration::from_micros(100);

/// Thread that increments the epochs of engines once per period while calls run. It ends when this value is
/// dropped.
#[derive(Debug)]
pub(super) struct Ticker {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
    number: Pid,
}

#[derive(Debug, Default)]
struct State {
    ticks: AtomicU64,
    asleep: AtomicBool,
    ended: AtomicBool,
    callers: Mutex<Vec<Caller>>,
}

/// Record of an instance's calls, which the clock thread reads. Only the worker that calls the instance
/// writes the record, so no call waits for another worker.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Calls {
    /// Counter of the starts and ends of calls: odd during a call.
    beat: AtomicU64,
}

impl Calls {
    /// Increments without an atomic read-modify-write operation: only one thread writes.
    #[inline]
    fn step(&self) {
        self.beat.store(self.beat.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }
}

/// Record of an instance's calls, with the value of `beat` when the clock thread last checked the record.
#[derive(Debug)]
struct Caller {
    calls: Weak<Calls>,
    seen: u64,
}

impl State {
    /// Whether any call ran since the previous check. Forgets instances that no longer exist.
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
    /// Starts the clock, with a period as exact as the kernel's timers.
    pub fn new(engines: Vec<Engine>, period: Duration) -> std::io::Result<Self> {
        let state = Arc::new(State::default());
        let seen = Arc::clone(&state);
        let (sender, receiver) = sync_channel(1);
        let body = move || {
            // The creator waits for the number.
            let _ = sender.send(gettid());
            tick(&seen, &engines, period);
        };
        let thread = std::thread::Builder::new().name("plugin-ticker".to_owned()).spawn(body)?;
        let number = receiver.recv().map_err(std::io::Error::other)?;
        Ok(Self { state, thread: Some(thread), number })
    }

    /// Returns the number of the thread.
    pub fn number(&self) -> Pid {
        self.number
    }

    /// Registers another instance with the clock. Returns the record in which the instance's calls are to be
    /// noted.
    pub fn caller(&self) -> Arc<Calls> {
        let calls = Arc::new(Calls::default());
        let caller = Caller { calls: Arc::downgrade(&calls), seen: 0 };
        self.state.callers.lock().unwrap_or_else(PoisonError::into_inner).push(caller);
        calls
    }

    /// Records the start of a call. The clock ticks until the returned value is dropped.
    ///
    /// A memory fence would cost as much as a short call, so there is none between `beat` and `asleep`. The
    /// caller may therefore miss that the thread is about to sleep, and the thread may miss the call. For
    /// that reason the thread checks again one tick later, when both writes are visible.
    #[inline]
    pub fn start<'c>(&self, calls: &'c Calls) -> Running<'c> {
        calls.step();
        if self.state.asleep.load(Ordering::Acquire) && self.state.asleep.swap(false, Ordering::SeqCst) {
            self.wake();
        }
        Running { calls, since: self.ticks() }
    }

    /// Returns the number of ticks so far.
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

/// Running call.
pub(super) struct Running<'c> {
    calls: &'c Calls,
    since: u64,
}

impl Running<'_> {
    /// Returns the tick at the start of the call.
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
            // The clock thread doesn't panic, so there is no error to handle.
            let _ = thread.join();
        }
    }
}

fn tick(state: &State, engines: &[Engine], period: Duration) {
    // By default, the kernel's timer slack makes ticks 50 µs late. If the kernel refuses a change, slices are longer.
    let _ = nix::sys::prctl::set_timerslack(1);
    ask_for_slice(SHORT);
    let mut pause = Pause::new(period);
    let mut tick = || {
        pause.take();
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

/// Pause between two ticks: at least the period, and little more although the kernel ends sleeps late, 55 µs here.
struct Pause {
    period: Duration,
    last: Instant,
    /// Least delay of a sleep in the previous window and in this one. Sleeps are that much shorter than the period.
    least: [Duration; 2],
    /// Number of sleeps in this window.
    sleeps: u32,
}

#[expect(clippy::disallowed_methods, reason = "the clock thread compares its sleeps with real time")]
impl Pause {
    fn new(period: Duration) -> Self {
        Self { period, last: Instant::now(), least: [Duration::ZERO, Duration::MAX], sleeps: 0 }
    }

    fn take(&mut self) {
        let begin = Instant::now();
        let asked = self.period.saturating_sub(self.least[0].min(self.least[1]));
        std::thread::sleep(asked);
        self.learn(begin.elapsed().saturating_sub(asked));
        // A sleep that ended less late than all before it leaves a rest, at most as long as those were late.
        while self.last.elapsed() < self.period {
            std::hint::spin_loop();
        }
        self.last = Instant::now();
    }

    fn learn(&mut self, late: Duration) {
        self.least[1] = self.least[1].min(late);
        self.sleeps += 1;
        if self.sleeps == WINDOW {
            self.least = [self.least[1], Duration::MAX];
            self.sleeps = 0;
        }
    }
}

/// Asks the kernel for this slice of the calling thread. Kernels before 6.12 ignore it.
#[allow(unsafe_code)]
fn ask_for_slice(slice: Duration) {
    // SAFETY: the kernel writes no more than the given size into the structure, of which zeros are a value, and reads
    // as much from it. Both calls concern the calling thread only.
    unsafe {
        let mut attributes: libc::sched_attr = std::mem::zeroed();
        let size = size_of::<libc::sched_attr>() as u32;
        if libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) != 0
            || attributes.sched_policy != libc::SCHED_OTHER as u32
        {
            return;
        }
        attributes.sched_runtime = slice.as_nanos() as u64;
        libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0);
    }
}

fn sleep_until_needed(state: &State) {
    // A wake-up before `park` isn't lost: `park` then returns at once.
    while state.asleep.load(Ordering::SeqCst) && !state.ended.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticker_ends_when_dropped_awake_or_asleep() {
        let engine = Engine::default();
        drop(Ticker::new(vec![engine.clone()], Duration::from_micros(50)).unwrap());
        let ticker = Ticker::new(vec![engine], Duration::from_micros(50)).unwrap();
        while !ticker.state.asleep.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(ticker);
    }

    #[test]
    fn ticker_has_the_shortest_slice_where_the_kernel_knows_slices() {
        let ticker = Ticker::new(vec![Engine::default()], Duration::from_micros(50)).unwrap();
        let path = format!("/proc/self/task/{}/sched", ticker.number());
        for _ in 0..5000 {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with("se.slice"));
            let Some(slice) = line.and_then(|line| line.rsplit(' ').next()) else {
                println!("skipped: this kernel shows no slices of threads");
                return;
            };
            if slice == SHORT.as_nanos().to_string() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("the thread has another slice");
    }

    #[test]
    fn ticks_are_at_least_a_period_apart_and_learn_the_least_delay() {
        let period = Duration::from_micros(50);
        let mut pause = Pause::new(period);
        for _ in 0..4 * WINDOW {
            let before = pause.last;
            pause.take();
            assert!(pause.last - before >= period);
        }
        let mut pause = Pause::new(period);
        (0..WINDOW).for_each(|number| pause.learn(Duration::from_micros(40 + u64::from(number))));
        assert_eq!(pause.least, [Duration::from_micros(40), Duration::MAX]);
        pause.learn(Duration::from_micros(7));
        assert_eq!(pause.least[1], Duration::from_micros(7));
    }

    #[test]
    fn call_wakes_the_ticker() {
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
    fn ticker_runs_during_a_call_and_sleeps_after_its_end() {
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
