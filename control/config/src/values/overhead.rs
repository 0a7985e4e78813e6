//! Overhead that a link adds to each packet, in text form.

use std::fmt;
use std::str::FromStr;

use super::form::written_value;

/// Overhead that a link adds to each packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overhead {
    /// `ethernet`: 24 bytes are added to each frame, and a frame takes at least 84 bytes in total.
    #[default]
    Ethernet,
    /// `atm`, or `atm BYTES`: AAL5 in cells of 53 bytes. `BYTES` is the number of bytes added before each
    /// frame, or subtracted if negative.
    Atm(i16),
    /// `bytes BYTES`, or `bytes BYTES minimum BYTES`: bytes to add, or to subtract if negative, and the
    /// minimum size of a packet on the link.
    Bytes(i16, u16),
    /// `none`: no overhead.
    None,
}

/// Maximum number of bytes that a link adds or subtracts.
const MOST: i16 = 1000;

impl FromStr for Overhead {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not a link overhead: write \"ethernet\", \"atm\", \"atm 10\", \"bytes 18\", \
                 \"bytes 18 minimum 64\" or \"none\""
            )
        };
        let number = |number: &str| number.parse::<i64>().map_err(|_| wrong());
        let bytes = |bytes: &str| match i16::try_from(number(bytes)?) {
            Ok(bytes) if (-MOST..=MOST).contains(&bytes) => Ok(bytes),
            _ => Err(format!("overhead must be -{MOST} to {MOST} bytes, not {text:?}")),
        };
        let least = |bytes: &str| {
            let problem = || format!("overhead {text:?}: the minimum must be 0 to {} bytes", u16::MAX);
            u16::try_from(number(bytes)?).map_err(|_| problem())
        };
        match text.split_whitespace().collect::<Vec<_>>()[..] {
            ["ethernet"] => Ok(Self::Ethernet),
            ["none"] => Ok(Self::None),
            ["atm"] => Ok(Self::Atm(0)),
            ["atm", before] => bytes(before).map(Self::Atm),
            ["bytes", more] => Ok(Self::Bytes(bytes(more)?, 0)),
            ["bytes", more, "minimum", minimum] => Ok(Self::Bytes(bytes(more)?, least(minimum)?)),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Overhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ethernet => f.write_str("ethernet"),
            Self::None => f.write_str("none"),
            Self::Atm(0) => f.write_str("atm"),
            Self::Atm(before) => write!(f, "atm {before}"),
            Self::Bytes(more, 0) => write!(f, "bytes {more}"),
            Self::Bytes(more, minimum) => write!(f, "bytes {more} minimum {minimum}"),
        }
    }
}

written_value!([] Overhead, "a link overhead such as \"ethernet\"");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_round_trip() {
        for (text, overhead) in [
            ("ethernet", Overhead::Ethernet),
            ("none", Overhead::None),
            ("atm", Overhead::Atm(0)),
            ("atm 10", Overhead::Atm(10)),
            ("atm -14", Overhead::Atm(-14)),
            ("bytes 18", Overhead::Bytes(18, 0)),
            ("bytes -14 minimum 64", Overhead::Bytes(-14, 64)),
        ] {
            assert_eq!((text.parse(), &*overhead.to_string()), (Ok(overhead), text));
        }
        for (wrong, problem) in [
            ("adsl", "is not a link overhead: write \"ethernet\""),
            ("atm ten", "is not a link overhead"),
            ("atm -40000", "must be -1000 to 1000 bytes"),
            ("bytes 70000", "must be -1000 to 1000 bytes"),
            ("bytes 18 minimum 70000", "the minimum must be 0 to 65535 bytes"),
            ("bytes 18 minimum", "is not a link overhead"),
            ("bytes 1001", "must be -1000 to 1000 bytes"),
        ] {
            let refused = wrong.parse::<Overhead>().unwrap_err();
            assert!(refused.contains(problem), "{refused}");
        }
    }
}
