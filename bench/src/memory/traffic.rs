//! Popularity of flows and length of their packets.

use std::fmt;
use std::str::FromStr;

/// Parses one of several words; the error lists all of them.
pub(super) fn one_of<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
    let known = || words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| format!("give one of {}", known()))
}

/// Frequency of each flow's packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Distribution {
    /// Equal frequency of all flows.
    Uniform,
    /// Frequency of the n-th most frequent flow in proportion to 1/n.
    Zipf,
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        one_of(text, &[("uniform", Self::Uniform), ("zipf", Self::Zipf)])
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Uniform { "uniform" } else { "zipf" })
    }
}

/// Packet size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// Frames of 64 bytes on the wire; 74 for IPv6.
    Shortest,
    /// Mix of twelve flows: seven of 64, four of 570 and one of 1,518 bytes on the wire, about 350 bytes on
    /// average.
    Imix,
    /// Packets of 1,500 bytes.
    Longest,
}

/// Frame lengths of the mix in memory, in bytes, without the frame check sequence.
const IMIX: [usize; 12] = [60, 566, 60, 60, 566, 60, 1514, 60, 566, 60, 566, 60];
const LONGEST: usize = 1514;

impl Size {
    /// Returns the frame length of a flow in bytes, by its index. 0 means the shortest frame of the IP
    /// version.
    pub(super) fn of(self, place: usize) -> usize {
        match self {
            Self::Shortest => 0,
            Self::Imix => IMIX[place % IMIX.len()],
            Self::Longest => LONGEST,
        }
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Shortest => "64 bytes",
            Self::Imix => "IMIX of 350 bytes on average",
            Self::Longest => "1,500 bytes",
        }
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        one_of(text, &[("64", Self::Shortest), ("imix", Self::Imix), ("1500", Self::Longest)])
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shortest => "64",
            Self::Imix => "imix",
            Self::Longest => "1500",
        })
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
