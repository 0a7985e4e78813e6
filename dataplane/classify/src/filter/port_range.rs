//! Ranges of transport ports.

use std::fmt;

use super::error::Refusal;

/// Transport ports that a filter admits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PortRange {
    /// Any port, even if the packet has none or an unknown one.
    #[default]
    Any,
    /// Ports from `first` to `last`, both included. The packet's ports must be known, even for 0 to 65535.
    Ports {
        /// Lowest port.
        first: u16,
        /// Highest port, not below `first`.
        last: u16,
    },
}

impl PortRange {
    /// Returns the number of ports in the range. [`Any`](Self::Any) counts as 65,537: all ports, and unknown
    /// ports.
    pub fn width(self) -> u32 {
        match self {
            Self::Any => 1 << 16 | 1,
            Self::Ports { first, last } => u32::from(last - first) + 1,
        }
    }

    /// Whether the range is [`Any`](Self::Any).
    pub fn is_any(self) -> bool {
        self == Self::Any
    }

    pub(super) fn parse(text: &str) -> Result<Self, Refusal> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (port(first, text)?, port(last, text)?);
        if first > last {
            return Err(Refusal::new(
                format!("port range {text} starts above its end"),
                format!("write {last}-{first}"),
            ));
        }
        Ok(Self::Ports { first, last })
    }
}

fn port(digits: &str, text: &str) -> Result<u16, Refusal> {
    number(digits, u16::MAX.into()).and_then(|number| u16::try_from(number).ok()).ok_or_else(|| {
        Refusal::new(
            format!("{text:?} is not a port number or range"),
            "write a port (80), a range (1000-2000) or *",
        )
    })
}

/// Reads a decimal number without a sign, up to `limit`.
pub(super) fn number(digits: &str, limit: u32) -> Option<u32> {
    // Rust's own parser accepts a leading plus sign.
    let valid = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|number| valid && *number <= limit)
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Ports { first, last } if first == last => first.fmt(f),
            Self::Ports { first, last } => write!(f, "{first}-{last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_ranges_round_trip() {
        for text in ["*", "0", "80", "1000-2000", "0-65535"] {
            assert_eq!(PortRange::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(PortRange::parse("80-80").unwrap().to_string(), "80");
    }

    #[test]
    fn invalid_port_ranges_are_refused_with_a_correction() {
        assert_eq!(PortRange::parse("9-5").unwrap_err().help, "write 5-9");
        for text in ["", "-", "65536", "+80", "80-", "-80", "1-2-3", "http", "1 - 2"] {
            assert!(PortRange::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_range_is_narrower_than_the_wildcard() {
        assert!(PortRange::parse("0-65535").unwrap().width() < PortRange::Any.width());
        assert_eq!(PortRange::parse("80").unwrap().width(), 1);
    }
}
