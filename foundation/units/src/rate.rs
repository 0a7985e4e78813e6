//! Bit rates.

use std::fmt;

/// Bits per second.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Default, serde::Serialize)]
#[serde(transparent)]
pub struct BitRate(pub f64);

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scale, prefix) = match self.0.abs() {
            rate if rate >= 1e9 => (1e9, "G"),
            rate if rate >= 1e6 => (1e6, "M"),
            rate if rate >= 1e3 => (1e3, "k"),
            _ => (1.0, ""),
        };
        f.pad(&format!("{:.2} {prefix}b/s", self.0 / scale))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_shown_with_the_prefix_of_their_size() {
        assert_eq!(BitRate(1_500_000.0).to_string(), "1.50 Mb/s");
        assert_eq!(BitRate(12.0).to_string(), "12.00 b/s");
    }
}
