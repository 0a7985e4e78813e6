//! Settings of an impairment.

use std::time::Duration;

use millrace_units::BitRate;

/// Settings of an impaired link. The default impairs nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Impairment {
    /// Direction to impair. Default: both.
    pub direction: ImpairmentDirection,
    /// Delay of every packet, at most an hour. Default: 0.
    pub delay: Duration,
    /// Maximum deviation from the delay, at most `delay`. The delay of a packet is uniform from `delay` -
    /// `jitter` to `delay` + `jitter`. Jitter alone changes no order, because a packet never overtakes an
    /// earlier one. Default: 0.
    pub jitter: Duration,
    /// Probability that a packet is lost, 0 to 1. Default: 0.
    pub loss: f64,
    /// Probability that a packet is duplicated, 0 to 1. Default: 0.
    pub duplicate: f64,
    /// Probability that a packet skips the delay and so overtakes waiting packets, 0 to 1. It has no effect
    /// without a delay. Default: 0.
    pub reorder: f64,
    /// Probability that one random bit of a packet is flipped, 0 to 1. Default: 0.
    pub corrupt: f64,
    /// Rate limit in bits per second, counted over link-layer frames; at least 1. Default: no limit.
    pub rate: Option<BitRate>,
    /// Maximum number of waiting packets per direction, 1 to 1,048,576. Further packets are lost. Waiting
    /// packets take packet memory. Default: 1,000.
    pub queue: usize,
    /// Seed of the random sequence: the same seed, settings and traffic give the same result. Default: 0.
    pub seed: u64,
}

/// Direction of an impairment, seen from the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ImpairmentDirection {
    /// Received and transmitted packets.
    #[default]
    Both,
    /// Received packets.
    In,
    /// Transmitted packets.
    Out,
}

/// Setting of an [`Impairment`] that is out of its range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ImpairError {
    /// The value is no probability.
    #[error("impairment: {setting} must be a probability from 0 to 1 (0.01 is 1 %), not {value}")]
    Probability {
        /// Name of the setting.
        setting: &'static str,
        /// Value of the setting.
        value: f64,
    },
    /// The delay is too long.
    #[error("impairment: delay must be at most {MAX_DELAY:?}, not {0:?}")]
    Delay(Duration),
    /// The jitter is greater than the delay.
    #[error(
        "impairment: jitter {jitter:?} exceeds the delay {delay:?}: lower the jitter, or raise the delay"
    )]
    Jitter {
        /// Jitter of the setting.
        jitter: Duration,
        /// Delay of the setting.
        delay: Duration,
    },
    /// The rate is below 1 b/s.
    #[error("impairment: rate must be at least 1 b/s, not {0} b/s; omit the rate for no limit")]
    Rate(f64),
    /// The queue is too short or too long.
    #[error("impairment: queue must be 1 to {MAX_QUEUE} packets, not {0}")]
    Queue(usize),
}

const MAX_DELAY: Duration = Duration::from_secs(3600);
const MAX_QUEUE: usize = 1 << 20;

impl Default for Impairment {
    fn default() -> Self {
        Self {
            direction: ImpairmentDirection::Both,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            corrupt: 0.0,
            rate: None,
            queue: 1000,
            seed: 0,
        }
    }
}

impl Impairment {
    /// Checks that every setting is in its range.
    pub fn check(&self) -> Result<(), ImpairError> {
        let probabilities = [
            ("loss", self.loss),
            ("duplicate", self.duplicate),
            ("reorder", self.reorder),
            ("corrupt", self.corrupt),
        ];
        for (setting, value) in probabilities {
            if !(0.0..=1.0).contains(&value) {
                return Err(ImpairError::Probability { setting, value });
            }
        }
        if self.delay > MAX_DELAY {
            return Err(ImpairError::Delay(self.delay));
        }
        if self.jitter > self.delay {
            return Err(ImpairError::Jitter { jitter: self.jitter, delay: self.delay });
        }
        if let Some(BitRate(rate)) = self.rate
            && !(rate >= 1.0 && rate.is_finite())
        {
            return Err(ImpairError::Rate(rate));
        }
        if !(1..=MAX_QUEUE).contains(&self.queue) {
            return Err(ImpairError::Queue(self.queue));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_range_are_refused() {
        let good = Impairment::default;
        assert_eq!(good().check(), Ok(()));
        for value in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            for bad in [
                Impairment { loss: value, ..good() },
                Impairment { duplicate: value, ..good() },
                Impairment { reorder: value, ..good() },
                Impairment { corrupt: value, ..good() },
            ] {
                assert!(matches!(bad.check(), Err(ImpairError::Probability { .. })), "{bad:?}");
            }
        }
        let second = Duration::from_secs(1);
        assert!(matches!(Impairment { jitter: second, ..good() }.check(), Err(ImpairError::Jitter { .. })));
        assert!(matches!(Impairment { delay: Duration::MAX, ..good() }.check(), Err(ImpairError::Delay(_))));
        for rate in [0.0, -5.0, f64::NAN, f64::INFINITY] {
            let bad = Impairment { rate: Some(BitRate(rate)), ..good() };
            assert!(matches!(bad.check(), Err(ImpairError::Rate(_))), "{rate}");
        }
        for queue in [0, usize::MAX] {
            assert_eq!(Impairment { queue, ..good() }.check(), Err(ImpairError::Queue(queue)));
        }
    }
}
