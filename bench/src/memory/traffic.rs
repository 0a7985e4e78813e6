//! Popularity of flows and length of their packets.

use serde::{Deserialize, Serialize};

use super::words::Words;

/// Frequency of each flow's packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Distribution {
    /// Equal frequency of all flows.
    Uniform,
    /// Frequency of the n-th most frequent flow in proportion to 1/n.
    Zipf,
}

impl Words for Distribution {
    const WORDS: &[(&str, Self)] = &[("uniform", Self::Uniform), ("zipf", Self::Zipf)];
}

/// Packet size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Size {
    /// Frames of 64 bytes on the wire; 74 for IPv6.
    Shortest,
    /// Mix of twelve flows: seven of 64, four of 570 and one of 1,518 bytes on the wire, about 350 bytes on
    /// average.
    Imix,
    /// Packets of 1,500 bytes.
    Longest,
}

impl Words for Size {
    const WORDS: &[(&str, Self)] = &[("64", Self::Shortest), ("imix", Self::Imix), ("1500", Self::Longest)];
}

/// Frame lengths of the mix in memory, in bytes, without the frame check sequence.
const IMIX: [usize; 12] = [60, 566, 60, 60, 566, 60, 1514, 60, 566, 60, 566, 60];
const LONGEST: usize = 1514;

impl Size {
    /// Returns the frame length of a flow in bytes, by its index. 0 means the shortest frame of the IP
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
    fn a_mix_has_the_average_that_it_is_named_by() {
        let sum: usize = IMIX.iter().map(|bytes| bytes + 4).sum();
        assert_eq!(sum / IMIX.len(), 353);
    }
}
