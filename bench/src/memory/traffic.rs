//! Frequencies of flows, and lengths of their packets.

use std::fmt;

use millrace_testkit::Random;
use serde::{Deserialize, Serialize};

use super::words::Words;

/// Frequency of each flow among the packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Distribution {
    /// Equal frequency of all flows.
    Uniform,
    /// Zipf's law: the frequency of the n-th most frequent flow is proportional to 1/n.
    Zipf,
}

impl Distribution {
    /// Returns the flow number of each of `packets` packets. There are `flows` flows.
    pub(crate) fn order(self, flows: u32, packets: usize) -> Vec<u32> {
        let random = |packet: usize| Random::new(packet as u64 ^ 1 << 50).bits() >> 11;
        match self {
            Self::Uniform => (0..packets).map(|packet| (random(packet) % u64::from(flows)) as u32).collect(),
            // Approximate Zipf's law: take a random part of the integral of 1/x from 1/2 on, and find the x
            // at which it ends.
            Self::Zipf => {
                let span = (f64::from(flows) + 0.5).ln() - 0.5_f64.ln();
                let rank = |packet| {
                    let part = random(packet) as f64 / (1_u64 << 53) as f64;
                    ((0.5_f64.ln() + part * span).exp() + 0.5).floor().clamp(1.0, f64::from(flows)) as u32 - 1
                };
                (0..packets).map(rank).collect()
            }
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Uniform { "uniform" } else { "Zipf" })
    }
}

impl Words for Distribution {
    const WORDS: &[(&str, Self)] = &[("uniform", Self::Uniform), ("zipf", Self::Zipf)];
}

/// Packet size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Size {
    /// Shortest frames: 64 bytes on the wire, 74 for IPv6.
    Shortest,
    /// Mix of frame lengths, by flow. Of twelve flows, seven have 64 bytes on the wire, four 570 and one
    /// 1,518: about 350 bytes on average.
    Imix,
    /// Packets of 1,500 bytes.
    Longest,
}

impl Words for Size {
    const WORDS: &[(&str, Self)] = &[("64", Self::Shortest), ("imix", Self::Imix), ("1500", Self::Longest)];
}

/// Frame lengths of the mix in bytes, without the frame check sequence.
const IMIX: [usize; 12] = [60, 566, 60, 60, 566, 60, 1514, 60, 566, 60, 566, 60];
const LONGEST: usize = 1514;

impl Size {
    /// Returns the frame length in bytes of the flow with this index. 0 means the shortest frame of the IP
    /// version.
    pub(crate) fn of(self, place: usize) -> usize {
        match self {
            Self::Shortest => 0,
            Self::Imix => IMIX[place % IMIX.len()],
            Self::Longest => LONGEST,
        }
    }

    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Shortest => "64 bytes",
            Self::Imix => "IMIX of 350 bytes on average",
            Self::Longest => "1,500 bytes",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mix_has_the_average_size_of_its_name() {
        let sum: usize = IMIX.iter().map(|bytes| bytes + 4).sum();
        assert_eq!(sum / IMIX.len(), 353);
    }

    #[test]
    fn flow_frequencies_match_the_distribution() {
        let share = |distribution: Distribution, flow| {
            let order = distribution.order(1000, 200_000);
            assert!(order.iter().all(|&flow| flow < 1000));
            order.iter().filter(|&&other| other == flow).count() as f64 / 200_000.0
        };
        assert!((0.0005..0.0015).contains(&share(Distribution::Uniform, 0)));
        // Expected shares: the sum of 1/n for n up to 1,000 is 7.485.
        assert!((0.10..0.17).contains(&share(Distribution::Zipf, 0)), "{}", share(Distribution::Zipf, 0));
        assert!((0.011..0.016).contains(&share(Distribution::Zipf, 9)));
    }
}
