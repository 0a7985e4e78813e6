//! Timers of a plugin: times of its calls without packets.

use std::time::Duration;

use millrace_plugin_abi::Instant;

use crate::Manifest;

/// Times at which `millrace_periodic` is to be called.
#[derive(Debug)]
pub(crate) struct Timers {
    /// Interval between two periodic calls; `None` without periodic calls.
    period: Option<Duration>,
    /// Time of the latest periodic call; `None` before the first.
    last: Option<Instant>,
    /// Time at which the plugin has requested a call; `None` without a request.
    pub wanted: Option<Instant>,
    /// Time of a periodic call that is due, and that the plugin has not begun yet; `None` if no call is due.
    pub pending: Option<Instant>,
}

impl Timers {
    /// Creates the timers of a plugin without any call yet.
    pub fn new(manifest: &Manifest) -> Self {
        Self { period: manifest.calls.period, last: None, wanted: None, pending: None }
    }

    /// Returns the time of the next call. This is the time that the plugin requested, or one period after the
    /// last periodic call, whichever is earlier. `None` if the plugin has neither a request nor a period.
    pub fn next(&self) -> Option<Instant> {
        let regular = self.period.map(|period| self.last.map_or(Instant::ZERO, |last| last + period));
        match (self.wanted, regular) {
            (Some(wanted), Some(regular)) => Some(wanted.min(regular)),
            (one, other) => one.or(other),
        }
    }

    /// Makes a call pending at the time `now`.
    pub fn begin(&mut self, now: Instant) {
        self.last = self.period.map(|_| now);
        self.wanted = self.wanted.filter(|wanted| *wanted > now);
        self.pending = Some(now);
    }

    /// Forgets the latest periodic call, the requested call and the pending call.
    pub fn clear(&mut self) {
        (self.last, self.wanted, self.pending) = (None, None, None);
    }
}
