//! Packets through the pipeline: IP version and number of flows.

use std::fmt;
use std::str::FromStr;

/// IP version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    V4,
    V6,
}

/// Packets of one IP version in a number of flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Case {
    pub family: Family,
    pub flows: u32,
}

impl Case {
    /// Returns the text that [`FromStr`] parses.
    pub fn word(self) -> String {
        format!("{}-{}", if self.family == Family::V4 { "ipv4" } else { "ipv6" }, self.flows)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = if self.family == Family::V4 { "IPv4" } else { "IPv6" };
        write!(f, "{family}, {} flow{}", self.flows, if self.flows == 1 { "" } else { "s" })
    }
}

impl FromStr for Case {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (family, flows) = text.split_once('-').ok_or(())?;
        let family = match family {
            "ipv4" => Family::V4,
            "ipv6" => Family::V6,
            _ => return Err(()),
        };
        Ok(Self { family, flows: flows.parse().map_err(|_| ())? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_is_read_from_its_word() {
        for family in [Family::V4, Family::V6] {
            let case = Case { family, flows: 1000 };
            assert_eq!(case.word().parse(), Ok(case));
        }
        assert_eq!("ipv5-1".parse::<Case>(), Err(()));
    }
}
