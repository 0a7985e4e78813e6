//! Conditions on named bits: TCP flags and exceptions.
//!
//! The syntax is `value/mask`: the bits of `mask` must equal `value`. Without a mask, the named bits must be
//! set, and all others are ignored. `none` without a mask requires all bits to be clear.

use std::fmt;

use millrace_packet::Exceptions;
use millrace_units::nearest;

use super::error::Refusal;

/// Condition on TCP flags.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TcpFlagsMatch {
    pub(super) value: u8,
    pub(super) mask: u8,
}

/// Condition on the exceptions of a packet: some must be set and others clear.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ExceptionsMatch {
    pub(super) value: u8,
    pub(super) mask: u8,
}

const FLAGS: Names = Names {
    what: "TCP flag",
    separator: '+',
    bits: &[
        ("fin", 1),
        ("syn", 2),
        ("rst", 4),
        ("psh", 8),
        ("ack", 16),
        ("urg", 32),
        ("ece", 64),
        ("cwr", 128),
    ],
};

const EXCEPTIONS: Names = Names {
    what: "exception",
    separator: ',',
    bits: &[
        (Exceptions::NAMES[0].0, Exceptions::NAMES[0].1.bits()),
        (Exceptions::NAMES[1].0, Exceptions::NAMES[1].1.bits()),
        (Exceptions::NAMES[2].0, Exceptions::NAMES[2].1.bits()),
        (Exceptions::NAMES[3].0, Exceptions::NAMES[3].1.bits()),
    ],
};

impl TcpFlagsMatch {
    /// Returns the flags that must be set; the other flags of [`mask`](Self::mask) must be clear.
    pub fn value(self) -> u8 {
        self.value
    }

    /// Returns the flags that the condition covers.
    pub fn mask(self) -> u8 {
        self.mask
    }

    pub(super) fn parse(text: &str) -> Result<Self, Refusal> {
        FLAGS.parse(text).map(|(value, mask)| Self { value, mask })
    }
}

impl ExceptionsMatch {
    /// Returns the exceptions that must be set; the other exceptions of [`mask`](Self::mask) must be clear.
    pub fn value(self) -> Exceptions {
        Exceptions::from_bits(self.value)
    }

    /// Returns the exceptions that the condition covers.
    pub fn mask(self) -> Exceptions {
        Exceptions::from_bits(self.mask)
    }

    pub(super) fn parse(text: &str) -> Result<Self, Refusal> {
        EXCEPTIONS.parse(text).map(|(value, mask)| Self { value, mask })
    }
}

impl fmt::Display for TcpFlagsMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&FLAGS.print(self.value, self.mask))
    }
}

impl fmt::Display for ExceptionsMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&EXCEPTIONS.print(self.value, self.mask))
    }
}

struct Names {
    what: &'static str,
    separator: char,
    bits: &'static [(&'static str, u8)],
}

impl Names {
    fn all(&self) -> u8 {
        self.bits.iter().fold(0, |all, (_, bit)| all | bit)
    }

    fn parse(&self, text: &str) -> Result<(u8, u8), Refusal> {
        let Some((value, mask)) = text.split_once('/') else {
            let value = self.set(text)?;
            return Ok((value, if value == 0 { self.all() } else { value }));
        };
        let (value, mask) = (self.set(value)?, self.set(mask)?);
        if mask == 0 {
            return Err(Refusal::new(
                format!("mask of {text:?} is empty, so that every packet would match"),
                "remove the field",
            ));
        }
        let outside = value & !mask;
        if outside != 0 {
            return Err(Refusal::new(
                format!("{text:?} requires {} to be set, which its mask does not cover", self.names(outside)),
                format!("write {}", self.print(value, mask | value)),
            ));
        }
        Ok((value, mask))
    }

    fn set(&self, text: &str) -> Result<u8, Refusal> {
        if text.eq_ignore_ascii_case("none") {
            return Ok(0);
        }
        text.split(self.separator).try_fold(0, |set, name| Ok(set | self.bit(name)?))
    }

    fn bit(&self, name: &str) -> Result<u8, Refusal> {
        let lower = name.to_ascii_lowercase();
        self.bits.iter().find(|(known, _)| *known == lower).map(|(_, bit)| *bit).ok_or_else(|| {
            let help = match nearest(name, self.bits.iter().map(|(name, _)| *name)) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("write none, or any of {}", self.names(self.all())),
            };
            Refusal::new(format!("{name:?} is not a {}", self.what), help)
        })
    }

    fn names(&self, set: u8) -> String {
        let names: Vec<_> =
            self.bits.iter().filter(|(_, bit)| set & bit != 0).map(|(name, _)| *name).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(&self.separator.to_string()) }
    }

    fn print(&self, value: u8, mask: u8) -> String {
        let implied = if value == 0 { self.all() } else { value };
        if mask == implied {
            self.names(value)
        } else {
            format!("{}/{}", self.names(value), self.names(mask))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_under_masks_round_trip() {
        for mask in 1..=255 {
            for value in (0..=255).filter(|value| value & !mask == 0) {
                let flags = TcpFlagsMatch { value, mask };
                assert_eq!(TcpFlagsMatch::parse(&flags.to_string()).unwrap(), flags);
            }
        }
        for mask in 1..16 {
            for value in (0..16).filter(|value| value & !mask == 0) {
                let exceptions = ExceptionsMatch { value, mask };
                assert_eq!(ExceptionsMatch::parse(&exceptions.to_string()).unwrap(), exceptions);
            }
        }
    }

    #[test]
    fn flags_without_a_mask_must_be_set() {
        assert_eq!(TcpFlagsMatch::parse("syn+ack").unwrap(), TcpFlagsMatch { value: 18, mask: 18 });
        assert_eq!(TcpFlagsMatch::parse("SYN/syn+ack").unwrap(), TcpFlagsMatch { value: 2, mask: 18 });
        assert_eq!(TcpFlagsMatch::parse("none").unwrap(), TcpFlagsMatch { value: 0, mask: 255 });
    }

    #[test]
    fn invalid_bits_are_refused_with_a_correction() {
        assert_eq!(TcpFlagsMatch::parse("sync").unwrap_err().help, "did you mean syn?");
        assert_eq!(TcpFlagsMatch::parse("syn+fin/syn").unwrap_err().help, "write fin+syn");
        assert_eq!(ExceptionsMatch::parse("option").unwrap_err().help, "did you mean options?");
        for text in ["", "syn/", "/syn", "syn/none", "none/none", "syn,ack", "syn/ack/fin"] {
            assert!(TcpFlagsMatch::parse(text).is_err(), "{text}");
        }
    }
}
