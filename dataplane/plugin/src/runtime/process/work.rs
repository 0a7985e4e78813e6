//! Work of a process: the processor time that it has used for the requests of its worker.
//!
//! The kernel counts the processor time of the process. It includes the time in which the process looks for requests
//! before it sleeps. The process itself reports this part. The worker limits the report, so that a process can hide
//! little.

use std::cell::Cell;
use std::time::Duration;

use millrace_plugin_abi::ProcessWork;

/// Maximum time in which a process looks for a request. Processes look for about 50 µs.
const LOOK: Duration = Duration::from_micros(100);

/// Readings about a process at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// Processor time that the process has consumed; `None` if it is unknown.
    pub consumed: Option<Duration>,
    /// Nanoseconds in which the process has looked for requests, as it reports; 0 if it never does.
    pub looked: u64,
}

/// Work of a process since it initialised its plugin.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// Processor time and looks at the initialisation.
    start: Option<(Duration, u64)>,
    /// Number of requests and results that the process has got or waits for.
    waits: u32,
    packets: u64,
    calls: u64,
    /// Latest measurement. It stays when the process ends, and with it its clock.
    measured: Cell<ProcessWork>,
}

impl Work {
    /// Begins with the process, which has initialised its plugin.
    pub fn begin(&mut self, Reading { consumed, looked }: Reading) {
        *self = Self { start: consumed.map(|consumed| (consumed, looked)), ..Self::default() };
    }

    /// Counts a request or a result.
    #[inline]
    pub fn wait(&mut self) {
        self.waits = self.waits.saturating_add(1);
    }

    /// Counts a call with packets that has ended.
    #[inline]
    pub fn call(&mut self, packets: usize) {
        self.packets += packets as u64;
        self.calls += 1;
    }

    /// Returns the work so far; without a known processor time, the work at the latest measurement.
    pub fn measure(&self, Reading { consumed, looked }: Reading) -> ProcessWork {
        let before = self.measured.get();
        let (Some((start, looked_before)), Some(consumed)) = (self.start, consumed) else { return before };
        let most = LOOK.saturating_mul(self.waits.saturating_add(1));
        let looks = match looked {
            0 => most,
            _ => Duration::from_nanos(looked.saturating_sub(looked_before)).min(most),
        };
        let time = consumed.saturating_sub(start).saturating_sub(looks).max(before.time);
        let work = ProcessWork { time, packets: self.packets, calls: self.calls };
        self.measured.set(work);
        work
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(millis: u64, looked_micros: u64) -> Reading {
        Reading { consumed: Some(Duration::from_millis(millis)), looked: looked_micros * 1000 }
    }

    /// Returns the work of a process that has started for 50 ms, after ten calls of three packets.
    fn worked() -> Work {
        let mut work = Work::default();
        work.wait();
        work.begin(reading(50, 7));
        for _ in 0..10 {
            work.wait();
            work.call(3);
        }
        work
    }

    fn time(work: &Work, reading: Reading) -> Duration {
        let ProcessWork { time, packets, calls } = work.measure(reading);
        assert_eq!((packets, calls), (30, 10));
        time
    }

    #[test]
    fn start_of_a_process_and_its_looks_for_requests_are_no_work() {
        assert_eq!(time(&worked(), reading(60, 407)), Duration::from_micros(9600));
    }

    #[test]
    fn process_can_hide_little_of_its_work() {
        // Eleven looks of 100 µs.
        assert_eq!(time(&worked(), reading(60, 1_000_000)), Duration::from_micros(8900));
        let work = worked();
        assert_eq!(time(&work, reading(60, 0)), Duration::from_micros(8900), "it never reports");
        assert_eq!(time(&work, reading(60, 1_000_000)), Duration::from_micros(8900));
        assert_eq!(time(&work, reading(61, 1)), Duration::from_millis(11), "it counts back");
    }

    #[test]
    fn work_never_decreases_and_stays_after_the_end_of_the_process() {
        let mut work = worked();
        assert_eq!(time(&work, reading(60, 7)), Duration::from_millis(10));
        assert_eq!(time(&work, reading(60, 1007)), Duration::from_millis(10));
        work.call(1);
        let ended = Reading { consumed: None, looked: 0 };
        assert_eq!(time(&work, ended), Duration::from_millis(10));
        assert_eq!(Work::default().measure(reading(1, 1)), ProcessWork::default());
    }
}
