//! Delay bound of a granted flow.

use std::time::Duration;

use super::calculus::{RateLatency, TokenBucket};
use super::grant::Grant;
use super::resource::{Resource, Unit};
use super::split::Times;

impl Grant {
    /// Returns the longest delay of a flow that keeps its interval and burst: at most the granted deadline.
    pub fn bound(&self) -> Duration {
        let mut times = Times::default();
        self.stages.iter().for_each(|stage| times.add(stage.nanoseconds()));
        let delay = u64::try_from(times.delay(self.burst)).unwrap_or(u64::MAX);
        self.stages.iter().fold(Duration::from_nanos(delay), |sum, stage| sum.saturating_add(stage.blocking))
    }

    /// Returns the service curve of all stages, in packets. Each stage but the slowest adds the time of a
    /// packet to the latency, because a packet leaves a stage as a whole (Le Boudec and Thiran, section 1.7).
    pub fn service(&self) -> RateLatency {
        let times = || self.stages.iter().map(|stage| stage.time.as_secs_f64());
        let slowest = times().fold(0.0, f64::max);
        let blocking: f64 = self.stages.iter().map(|stage| stage.blocking.as_secs_f64()).sum();
        RateLatency { rate: 1.0 / slowest, latency: blocking + times().sum::<f64>() - slowest }
    }

    /// Returns the token bucket of the flow, in packets.
    pub fn arrivals(&self) -> TokenBucket {
        TokenBucket { rate: 1.0 / self.interval.as_secs_f64(), burst: f64::from(self.burst) }
    }
}

impl Resource {
    /// Returns the service curve of the whole resource, in cycles or bits.
    pub fn service(&self) -> RateLatency {
        let rate = match self.unit {
            Unit::Processor { frequency } => frequency as f64 * self.capacity as f64 / 1e6,
            Unit::Link => self.capacity as f64,
        };
        RateLatency { rate, latency: self.blocking.as_secs_f64() }
    }
}
