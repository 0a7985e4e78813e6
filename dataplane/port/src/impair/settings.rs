//! What an impairment may do.

use std::time::Duration;

use millrace_units::BitRate;

/// How a link is impaired. The default does nothing to either direction.
#[derive(Clone, Debug, PartialEq)]
pub struct Impairment {
    /// Which way it works. Default: both.
    pub direction: ImpairmentDirection,
    /// How long every packet takes. At most an hour. Default: 0.
    pub delay: Duration,
    /// The delay of a packet is drawn evenly from `delay` - `jitter` to `delay` + `jitter`. At most `delay`. Alone it
    /// changes no order: a packet never overtakes the one before it. Default: 0.
    pub jitter: Duration,
    /// Probability that a packet is lost, 0 to 1. Default: 0.
    pub loss: f64,
    /// Probability that a packet comes twice, 0 to 1. Default: 0.
    pub duplicate: f64,
    /// Probability that a packet skips the delay and so overtakes those that wait, 0 to 1. Without a delay it changes
    /// nothing. Default: 0.
    pub reorder: f64,
    /// Probability that one bit of a packet, drawn evenly from all of them, is flipped, 0 to 1. Default: 0.
    pub corrupt: f64,
    /// Bits of link-layer frames per second that pass, at least 1. Default: no limit.
    pub rate: Option<BitRate>,
    /// Most packets that wait in one direction, 1 to 1,048,576; more are lost. They take packet memory. Default: 1,000.
    pub queue: usize,
    /// What the random sequence starts from: the same seed, settings and traffic give the same result. Default: 0.
    pub seed: u64,
}

/// Which way an impairment works, seen from the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ImpairmentDirection {
    /// On received and on transmitted packets.
    #[default]
    Both,
    /// On received packets.
    In,
    /// On transmitted packets.
    Out,
}

/// A setting of an [`Impairment`] that is out of its range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ImpairError {
    /// Not a probability.
    #[error(
        "impairment: {setting} is {value}: a probability from 0 to 1 is needed, as 0.01 for one in a hundred"
    )]
    Probability {
        /// The setting's name.
        setting: &'static str,
        /// What it was set to.
        value: f64,
    },
    /// The delay is too long.
    #[error("impairment: a delay of {0:?}: at most {MAX_DELAY:?}")]
    Delay(Duration),
    /// More jitter than delay.
    #[error(
        "impairment: a jitter of {jitter:?} around a delay of {delay:?}: it can't be more than the delay"
    )]
    Jitter {
        /// The jitter.
        jitter: Duration,
        /// The delay.
        delay: Duration,
    },
    /// The rate lets nothing pass.
    #[error("impairment: a rate of {0} b/s: at least 1 is needed; leave it out for no limit")]
    Rate(f64),
    /// The queue is too short or too long.
    #[error("impairment: a queue of {0} packets: 1 to {MAX_QUEUE}")]
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
    /// Whether every setting is in its range.
    ///
    /// # Errors
    /// The first setting that is not.
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
