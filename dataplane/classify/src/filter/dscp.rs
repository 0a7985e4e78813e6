//! Differentiated services code points and their names (IANA, *Differentiated Services Field Codepoints*).

use std::fmt;

use millrace_units::nearest;

use super::error::Refusal;
use super::port_range::number;

/// DSCP, 0 to 63.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Dscp(pub(super) u8);

/// Names of DSCP values: RFC 2474 (cs), RFC 2597 (af), RFC 3246 (ef), RFC 5865 (voice-admit), RFC 8622 (le).
const NAMES: [(&str, u8); 23] = [
    ("cs0", 0),
    ("cs1", 8),
    ("cs2", 16),
    ("cs3", 24),
    ("cs4", 32),
    ("cs5", 40),
    ("cs6", 48),
    ("cs7", 56),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("ef", 46),
    ("voice-admit", 44),
    ("le", 1),
];

impl Dscp {
    /// Returns the DSCP as a number, 0 to 63.
    pub fn value(self) -> u8 {
        self.0
    }

    pub(super) fn parse(text: &str) -> Result<Self, Refusal> {
        let name = text.to_ascii_lowercase();
        if let Some((_, value)) = NAMES.iter().find(|(known, _)| *known == name) {
            return Ok(Self(*value));
        }
        number(text, 63).and_then(|number| u8::try_from(number).ok()).map(Self).ok_or_else(|| {
            let help = match nearest(text, NAMES.iter().map(|(name, _)| *name)) {
                Some(name) if !text.starts_with(|first: char| first.is_ascii_digit()) => {
                    format!("did you mean {name}?")
                }
                _ => "write a number from 0 to 63 or a name: cs0 to cs7, af11 to af43, ef, voice-admit, le"
                    .to_owned(),
            };
            Refusal::new(format!("{text:?} is not a DSCP"), help)
        })
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(_, value)| *value == self.0) {
            Some((name, _)) => f.write_str(name),
            None => self.0.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_points_round_trip() {
        for value in 0..64 {
            let dscp = Dscp::parse(&value.to_string()).unwrap();
            assert_eq!(dscp.value(), value);
            assert_eq!(Dscp::parse(&dscp.to_string()).unwrap(), dscp);
        }
        assert_eq!(Dscp::parse("EF").unwrap().value(), 46);
        assert_eq!(Dscp::parse("af41").unwrap().value(), 34);
    }

    #[test]
    fn invalid_code_point_is_refused() {
        assert_eq!(Dscp::parse("af14").unwrap_err().help, "did you mean af41?");
        assert!(Dscp::parse("64").is_err());
        assert!(Dscp::parse("").is_err());
    }
}
