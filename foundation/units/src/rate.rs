//! Rates.

use std::fmt;

/// Bits per second.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Default, serde::Serialize)]
#[serde(transparent)]
pub struct BitRate(pub f64);

/// Packets per second.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Default, serde::Serialize)]
#[serde(transparent)]
pub struct PacketRate(pub f64);

fn scaled(f: &mut fmt::Formatter<'_>, value: f64, unit: &str) -> fmt::Result {
    let (scale, prefix) = match value.abs() {
        v if v >= 1e9 => (1e9, "G"),
        v if v >= 1e6 => (1e6, "M"),
        v if v >= 1e3 => (1e3, "k"),
        _ => (1.0, ""),
    };
    f.pad(&format!("{:.2} {prefix}{unit}", value / scale))
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0, "b/s")
    }
}

impl fmt::Display for PacketRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0, "p/s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_shown_with_the_prefix_of_their_size() {
        assert_eq!(BitRate(1_500_000.0).to_string(), "1.50 Mb/s");
        assert_eq!(PacketRate(12.0).to_string(), "12.00 p/s");
    }
}
