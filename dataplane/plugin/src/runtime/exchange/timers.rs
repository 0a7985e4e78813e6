//! Times at which a plugin is called without packets.

use std::time::Duration;

use millrace_plugin_abi::Instant;

use crate::Manifest;

/// Times of `millrace_periodic`.
#[derive(Debug)]
pub(crate) struct Timers {
    /// Interval between two regular calls.
    period: Option<Duration>,
    /// Time of the latest regular call.
    last: Option<Instant>,
    /// Time at which the plugin wants a call.
    pub wanted: Option<Instant>,
    /// Time of the call that is due, until it begins.
    pub pending: Option<Instant>,
}

impl Timers {
    /// Returns the timers of a plugin that has not been called yet.
    pub fn new(manifest: &Manifest) -> Self {
        Self { period: manifest.period, last: None, wanted: None, pending: None }
    }

    /// Returns the time of the next call: the time that the plugin wants, or one period after the last call,
    /// whichever is earlier; `None` without either.
    pub fn next(&self) -> Option<Instant> {
        let regular = self.period.map(|period| self.last.map_or(Instant::ZERO, |last| last + period));
        match (self.wanted, regular) {
            (Some(wanted), Some(regular)) => Some(wanted.min(regular)),
            (one, other) => one.or(other),
        }
    }

    /// Begins the call that is due.
    pub fn begin(&mut self, now: Instant) {
        self.last = self.period.map(|_| now);
        self.wanted = self.wanted.filter(|wanted| *wanted > now);
        self.pending = Some(now);
    }

    /// Forgets the calls so far.
    pub fn clear(&mut self) {
        (self.last, self.wanted, self.pending) = (None, None, None);
    }
}
