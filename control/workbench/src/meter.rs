//! Timed calls of an instance.

use std::time::{Duration, Instant as Clock};

use millrace_packet::Pool;
use millrace_pipeline::cycles;
use millrace_plugin_abi::{Instance, Output, Progress, Verdict};
use millrace_units::Instant;
use serde::Serialize;

use crate::WorkbenchError;
use crate::frames::sized;
use crate::ready::{Call, Ended, Flows, Ready};

/// Maximum number of measured calls of one kind in one pass. The warm-up before them makes at most as many calls, and
/// takes at most a tenth of the time.
const ROUNDS: usize = 20_000;
/// Maximum time to measure one kind of calls.
pub(crate) const PATIENCE: Duration = Duration::from_millis(400);
/// Shortest time between two calls for timers. Timers that are due at once wait for the worker's next iteration.
const ITERATION: Duration = Duration::from_micros(1);

/// Time of calls with a given number of packets.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct BatchCost {
    /// Number of packets per call.
    pub packets: usize,
    /// Length of the packets in bytes, link header included.
    pub bytes: usize,
    /// Number of measured calls.
    pub rounds: usize,
    /// Number of calls that were suspended at the end of their slice.
    pub suspended: usize,
    /// Nanoseconds per packet, from the start of a call to its verdicts.
    pub nanoseconds: Spread,
    /// Cycles of the time-stamp counter per packet in the plugin; `None` on a machine without such a counter.
    pub cycles: Option<Spread>,
    /// Cycles per packet in which the worker exchanges the call with a plugin process. They are not among `cycles`.
    /// `None` if no process runs the plugin.
    pub exchange: Option<Spread>,
}

impl BatchCost {
    /// Takes over the calls of another pass if their median in the plugin is smaller, and its exchange if that is smaller.
    pub(crate) fn keep_least(&mut self, other: Self) {
        let exchanges = [self.exchange, other.exchange].into_iter().flatten();
        let exchange = exchanges.min_by(|one, other| one.median.total_cmp(&other.median));
        if other.median() < self.median() {
            *self = other;
        }
        self.exchange = exchange;
    }

    /// Returns the median of the time of a packet in the plugin: cycles, or nanoseconds on a machine without a time-stamp
    /// counter.
    fn median(&self) -> f64 {
        self.cycles.unwrap_or(self.nanoseconds).median
    }
}

/// Median and 99th percentile of measured values.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread {
    /// 50th percentile.
    pub median: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// Measurement of one call.
struct Round {
    nanoseconds: u64,
    /// Cycles in the plugin.
    cycles: Option<u64>,
    /// Cycles of the exchange with the process.
    exchange: Option<u64>,
    suspensions: u32,
}

/// Instance that is measured. Its time goes on from call to call.
pub(crate) struct Meter<'a> {
    instance: Box<dyn Instance>,
    flows: Flows,
    pool: &'a Pool,
    begun: Clock,
    arrived: u64,
    left: u64,
}

impl<'a> Meter<'a> {
    pub fn new(instance: Box<dyn Instance>, pool: &'a Pool) -> Self {
        let flows = Flows::new(&*instance);
        Self { instance, flows, pool, begun: Clock::now(), arrived: 0, left: 0 }
    }

    /// Measures calls with a number of packets of `bytes` bytes for at most `patience`.
    pub fn batch(
        &mut self,
        packets: usize,
        bytes: usize,
        patience: Duration,
    ) -> Result<BatchCost, WorkbenchError> {
        let frames: Vec<_> = (0..packets).map(|index| sized(bytes, 1000 + index as u16)).collect();
        self.rounds(&frames, patience / 10)?;
        let rounds = self.rounds(&frames, patience)?;
        let each = |figure: fn(&Round) -> Option<u64>| {
            let figures = rounds.iter().map(|round| Some(figure(round)? as f64 / packets as f64));
            figures.collect::<Option<Vec<_>>>().map(Spread::of)
        };
        Ok(BatchCost {
            packets,
            bytes,
            rounds: rounds.len(),
            suspended: rounds.iter().filter(|round| round.suspensions > 0).count(),
            nanoseconds: each(|round| Some(round.nanoseconds)).unwrap_or(Spread { median: 0.0, p99: 0.0 }),
            cycles: each(|round| round.cycles),
            exchange: exchange_of(&rounds, packets),
        })
    }

    /// Makes calls as long as `patience` lasts. Each call gets new packets, since a plugin may change its packets.
    fn rounds(&mut self, frames: &[Vec<u8>], patience: Duration) -> Result<Vec<Round>, WorkbenchError> {
        let begin = Clock::now();
        let mut rounds = Vec::with_capacity(ROUNDS);
        while rounds.len() < ROUNDS && (begin.elapsed() < patience || rounds.is_empty()) {
            let ready = frames.iter().map(|frame| Ready::of(self.pool, frame)).collect::<Result<Vec<_>, _>>();
            let mut call = Call::new(ready.map_err(WorkbenchError::Memory)?);
            let now = self.now();
            let (from, start) = (Clock::now(), cycles());
            let ended = call.run(&mut *self.instance, &mut self.flows, now);
            let (end, took) = (cycles(), from.elapsed());
            rounds.push(Round::of(start.zip(end), took, ended)?);
            self.arrived += frames.len() as u64;
            self.left += call.verdicts.iter().map(|verdict| leaving(*verdict)).sum::<u64>();
            self.collect_output();
        }
        Ok(rounds)
    }

    /// Measures the calls for the timers of the instance. The calls have the times that the instance asks for, but
    /// follow each other at once. Returns cycles per second of these times; `None` on a machine without a time-stamp
    /// counter.
    pub fn timers(&mut self) -> Result<Option<f64>, WorkbenchError> {
        let (begin, mut times, mut all) = (Clock::now(), Vec::new(), Vec::new());
        let mut earliest = self.now();
        while all.len() < ROUNDS
            && begin.elapsed() < PATIENCE
            && let Some(due) = self.instance.next_call()
        {
            let now = due.max(earliest);
            earliest = now + ITERATION;
            times.push(now);
            let (from, start) = (Clock::now(), cycles());
            let ended = match self.instance.periodic(now) {
                Progress::Done => Ended { suspensions: 0, exchange: None, fault: self.instance.take_fault() },
                begun @ (Progress::Suspended | Progress::Awaited) => {
                    Call::default().go_on(begun, &mut *self.instance, &mut self.flows, now)
                }
            };
            let end = cycles();
            all.push(Round::of(start.zip(end), from.elapsed(), ended)?);
            self.collect_output();
        }
        let figures = all.iter().map(|round| Some(round.cycles? as f64)).collect::<Option<Vec<_>>>();
        let span =
            times.last().zip(times.first()).map_or(0, |(last, first)| last.as_nanos() - first.as_nanos());
        // Calls after the first: one call alone has no rate.
        let rate = if span == 0 { 0.0 } else { (times.len() - 1) as f64 * 1e9 / span as f64 };
        Ok(figures.filter(|_| cycles().is_some()).map(|figures| Spread::of(figures).median * rate))
    }

    /// Returns the packets that left the instance for each packet that arrived.
    pub fn output(&self) -> f64 {
        if self.arrived == 0 { 1.0 } else { self.left as f64 / self.arrived as f64 }
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.begun.elapsed().as_nanos() as u64)
    }

    /// Takes the output of a call, as a worker does: a plugin finds no room for more while its output waits.
    fn collect_output(&mut self) {
        while let Some(output) = self.instance.take_output() {
            self.left += u64::from(matches!(output, Output::Packet { .. }));
        }
    }
}

/// Returns the cycles of the exchange per packet; `None` if no process ran the calls. Leaves out calls whose answer was
/// there at once, when the kernel had taken the processor from the worker.
fn exchange_of(rounds: &[Round], packets: usize) -> Option<Spread> {
    let figures = rounds.iter().filter_map(|round| Some(round.exchange? as f64 / packets as f64));
    let figures: Vec<f64> = figures.collect();
    (!figures.is_empty()).then(|| Spread::of(figures))
}

impl Round {
    fn of(
        span: Option<(u64, u64)>,
        took: Duration,
        Ended { suspensions, exchange, fault }: Ended,
    ) -> Result<Self, WorkbenchError> {
        if let Some(fault) = fault {
            return Err(WorkbenchError::Failed(format!("{}: {}", fault.kind, fault.text)));
        }
        let whole = span.map(|(start, end)| end.saturating_sub(start));
        let cycles = whole.map(|whole| whole.saturating_sub(exchange.unwrap_or(0)));
        Ok(Self { nanoseconds: took.as_nanos() as u64, cycles, exchange, suspensions })
    }
}

/// Returns the number of packets that leave an instance with a verdict.
fn leaving(verdict: Verdict) -> u64 {
    match verdict {
        Verdict::Drop(_) | Verdict::Reject(_) | Verdict::Consume | Verdict::Fault => 0,
        Verdict::Ports(ports) => ports.count_ones().into(),
        Verdict::Pass
        | Verdict::Hold(_)
        | Verdict::Port(_)
        | Verdict::Queue(_)
        | Verdict::Instance(_)
        | Verdict::Classify => 1,
    }
}

impl Spread {
    fn of(mut figures: Vec<f64>) -> Self {
        figures.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let index = (figures.len() as f64 * part).ceil() as usize;
            figures.get(index.max(1) - 1).copied().unwrap_or(0.0)
        };
        Self { median: at(0.5), p99: at(0.99) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_covers_its_figures() {
        assert_eq!(Spread::of((1..=100).map(f64::from).collect()), Spread { median: 50.0, p99: 99.0 });
        assert_eq!(Spread::of(vec![7.0]), Spread { median: 7.0, p99: 7.0 });
        assert_eq!(Spread::of(Vec::new()), Spread { median: 0.0, p99: 0.0 });
    }

    #[test]
    fn least_calls_and_least_exchange_are_kept_apart() {
        let spread = |median| Spread { median, p99: median };
        let calls = |cycles, exchange: Option<f64>| BatchCost {
            packets: 1,
            bytes: 64,
            rounds: 1,
            suspended: 0,
            nanoseconds: spread(cycles),
            cycles: Some(spread(cycles)),
            exchange: exchange.map(spread),
        };
        let mut best = calls(5.0, Some(2.0));
        best.keep_least(calls(4.0, None));
        assert_eq!(best, calls(4.0, Some(2.0)));
        best.keep_least(calls(9.0, Some(1.0)));
        assert_eq!(best, calls(4.0, Some(1.0)));
    }

    #[test]
    fn dropped_packets_do_not_leave_and_copies_leave_each() {
        assert_eq!([Verdict::Drop(3), Verdict::Consume, Verdict::Reject(0)].map(leaving), [0; 3]);
        assert_eq!(
            [Verdict::Pass, Verdict::Hold(Instant::ZERO), Verdict::Ports(0b101)].map(leaving),
            [1, 1, 2]
        );
    }
}
