//! Intervals of measurement, their rates, and the alarm.

use std::time::Duration;

use millrace_plugin_abi::{Instant, LogLevel};

use crate::destinations::Destinations;

/// Counts of the current interval.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Interval {
    /// Number of SYNs.
    pub syn: u64,
    /// Number of attempts that began in the interval.
    pub begun: u64,
    /// Number of attempts that were completed or aborted in the interval. They may have begun in an earlier
    /// one.
    pub ended: u64,
}

/// Rates per second of the last interval, rounded to a tenth.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(crate) struct Rates {
    pub syn: f64,
    pub half_open: f64,
}

/// State of the alarm, and the current interval.
#[derive(Default)]
pub(crate) struct Alarm {
    pub interval: Interval,
    pub last: Rates,
    pub is_on: bool,
    /// Number of times that the alarm was raised.
    pub raised: u64,
    /// Start of the current interval; `None` before the first interval.
    begun: Option<Instant>,
    /// Log line that the router hasn't collected yet.
    pub line: Option<(LogLevel, String)>,
}

impl Alarm {
    /// Returns the end of the current interval. Returns time 0 before the first interval, so the first call
    /// begins it at once.
    pub fn due(&self, interval: Duration) -> Instant {
        self.begun.map_or(Instant::ZERO, |begun| begun + interval)
    }

    /// Discards the current interval. The next call begins a new one.
    pub fn restart(&mut self) {
        (self.begun, self.interval) = (None, Interval::default());
    }

    /// Ends the current interval and begins the next. Raises or ends the alarm, by comparing the interval's
    /// rate with `threshold` (0 for no alarm).
    pub fn end_interval(&mut self, now: Instant, threshold: u64, destinations: &Destinations) {
        let Interval { syn, begun, ended } = std::mem::take(&mut self.interval);
        let Some(time) = self.begun.replace(now).map(|begun| now.since(begun)) else { return };
        let half_open = begun.saturating_sub(ended);
        self.last = Rates { syn: per_second(syn, time), half_open: per_second(half_open, time) };
        let is_above = threshold > 0 && is_above(half_open, time, threshold);
        if is_above != self.is_on {
            self.is_on = is_above;
            self.raised += u64::from(is_above);
            self.line = Some(self.line_for(threshold, destinations));
        }
    }

    fn line_for(&self, threshold: u64, destinations: &Destinations) -> (LogLevel, String) {
        let (rate, half_open) = (self.last.half_open, destinations.half_open);
        let worst = destinations
            .worst()
            .map_or(String::new(), |(worst, count)| format!(", of them {count} at {worst}"));
        if self.is_on {
            let text = format!(
                "alarm: {rate} connection attempts a second stay half-open, threshold {threshold}; \
                 {half_open} are half-open{worst}"
            );
            (LogLevel::Warning, text)
        } else {
            (LogLevel::Information, format!("the alarm is over; {half_open} are half-open{worst}"))
        }
    }
}

/// Whether `count` events in `time` are above `threshold` events per second, without rounding.
fn is_above(count: u64, time: Duration, threshold: u64) -> bool {
    u128::from(count) * 1_000_000_000 > u128::from(threshold) * time.as_nanos()
}

/// Returns the rate per second of `count` events in `time`, rounded to a tenth.
fn per_second(count: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { (count as f64 / time.as_secs_f64() * 10.0).round() / 10.0 }
}
