//! Delay bounds of network calculus, for rate-latency servers and token buckets (Le Boudec and Thiran, *Network
//! Calculus*, 2001, sections 1.4 and 6.2).
//!
//! Times are in seconds. Amounts are in any one unit, such as bits, cycles or packets. A bound is infinite if
//! the server is too slow.

use serde::Serialize;

/// Arrival curve of a token bucket: at most `burst + rate * t` in any time `t`.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct TokenBucket {
    /// Amount per second.
    pub rate: f64,
    /// Amount at once.
    pub burst: f64,
}

/// Service curve: at least `rate * (t - latency)` in a time `t` of backlog.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct RateLatency {
    /// Amount per second, above 0.
    pub rate: f64,
    /// Seconds.
    pub latency: f64,
}

impl RateLatency {
    /// Returns the curve of this server and another one after it. A bound of the result pays for a burst once
    /// (theorem 1.4.6).
    pub fn then(self, next: Self) -> Self {
        Self { rate: self.rate.min(next.rate), latency: self.latency + next.latency }
    }

    /// Returns the longest delay (theorem 1.4.2).
    pub fn delay(self, arrivals: TokenBucket) -> f64 {
        if arrivals.rate > self.rate { f64::INFINITY } else { self.latency + arrivals.burst / self.rate }
    }

    /// Returns the greatest backlog (theorem 1.4.1).
    pub fn backlog(self, arrivals: TokenBucket) -> f64 {
        self.output(arrivals).burst
    }

    /// Returns an arrival curve of what leaves the server (theorem 1.4.3).
    pub fn output(self, TokenBucket { rate, burst }: TokenBucket) -> TokenBucket {
        let burst = if rate > self.rate { f64::INFINITY } else { burst + rate * self.latency };
        TokenBucket { rate, burst }
    }

    /// Returns the curve that other arrivals leave, whatever the order of service (theorem 6.2.1). `None` if
    /// they leave nothing.
    pub fn beside(self, others: TokenBucket) -> Option<Self> {
        let rate = self.rate - others.rate;
        let latency = (others.burst + self.rate * self.latency) / rate;
        (rate > 0.0).then_some(Self { rate, latency })
    }

    /// Returns the curve that other arrivals leave if all are served in the order of arrival (section 6.4).
    /// `None` if they leave nothing.
    pub fn beside_in_order(self, others: TokenBucket) -> Option<Self> {
        let rate = self.rate - others.rate;
        let latency = self.latency + others.burst / self.rate;
        (rate > 0.0).then_some(Self { rate, latency })
    }
}

impl TokenBucket {
    /// Returns the arrival curve of both arrivals.
    pub fn and(self, other: Self) -> Self {
        Self { rate: self.rate + other.rate, burst: self.burst + other.burst }
    }
}
