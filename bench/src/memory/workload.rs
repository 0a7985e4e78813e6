//! Workload of a router in memory, as given by options on the command line.

use std::fmt;
use std::str::FromStr;

use millrace_units::count;

use super::case::Case;
use super::setup::{GatesSetup, QueueSetup, Setup};
use super::traffic::{Distribution, Size};
use super::words::Words;
use crate::family::Family;

/// Requested workload; each field has a default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Workload {
    /// Number of flows, by default 1,000.
    pub flows: Amount,
    /// Frequency of each flow among the packets.
    pub distribution: Distribution,
    /// IP version.
    pub ip: Family,
    /// Packet size.
    pub size: Size,
    /// Number of routes, by default 1,000; flows use all of them.
    pub routes: Amount,
    /// Number of gates without bindings: 0 or 3.
    pub gates: EmptyGates,
    /// Stages that packets pass.
    pub path: Stages,
    /// Number of workers.
    pub workers: Workers,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            flows: Amount(1000),
            distribution: Distribution::Uniform,
            ip: Family::V4,
            size: Size::Shortest,
            routes: Amount(1000),
            gates: EmptyGates(0),
            path: Stages::FlowTable,
            workers: Workers(1),
        }
    }
}

impl Workload {
    /// Returns the arguments of `millrace bench memory` for this workload.
    pub fn arguments(&self) -> Vec<String> {
        let parts = [
            ("flows", self.flows.0.to_string()),
            ("distribution", self.distribution.word().to_owned()),
            ("ip", self.ip.word().to_owned()),
            ("size", self.size.word().to_owned()),
            ("routes", self.routes.0.to_string()),
            ("gates", self.gates.word().to_owned()),
            ("path", self.path.word().to_owned()),
            ("workers", self.workers.word().to_owned()),
        ];
        parts.into_iter().map(|(name, value)| format!("--{name}={value}")).collect()
    }

    pub(super) fn case(&self) -> Case {
        Case { family: self.ip, flows: self.flows.0 }
    }

    pub(super) fn setup(&self) -> Setup {
        let usual = Setup::default();
        Setup {
            gates: if self.gates.0 == 0 { GatesSetup::None } else { GatesSetup::Empty },
            flows_max: if self.path == Stages::Bare { 0 } else { usual.flows_max },
            routes: self.routes.0,
            queue: if self.path == Stages::Queues { QueueSetup::PerFlow } else { QueueSetup::Fifo },
            distribution: self.distribution,
            size: self.size,
            ..usual
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.ip, count(self.flows, "flow"))?;
        if self.distribution == Distribution::Zipf {
            f.write_str(" (Zipf)")?;
        }
        write!(f, ", {}", count(self.routes, "route"))?;
        if self.gates.0 > 0 {
            write!(f, ", {} empty gates", self.gates.0)?;
        }
        match self.path {
            Stages::Bare => f.write_str(", no flow table")?,
            Stages::FlowTable => {}
            Stages::Queues => f.write_str(", a queue for each flow")?,
        }
        if self.size != Size::Shortest {
            write!(f, ", {}", self.size.words())?;
        }
        Ok(())
    }
}

/// Number with an optional suffix for thousands or millions: `1`, `128K`, `1M`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Amount(pub(super) u32);

/// Maximum number of flows, and of routes, in a workload.
const MOST: u32 = 1_000_000;

impl FromStr for Amount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, step) = match text.strip_suffix(['K', 'k']) {
            Some(number) => (number, 1000),
            None => text.strip_suffix(['M', 'm']).map_or((text, 1), |number| (number, 1_000_000)),
        };
        let amount = number.parse::<u32>().ok().and_then(|number| number.checked_mul(step));
        let wrong = || format!("give a number from 1 to 1M, as in 1, 128K or {MOST}");
        amount.filter(|amount| (1..=MOST).contains(amount)).map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            millions if millions % 1_000_000 == 0 => write!(f, "{} M", millions / 1_000_000),
            thousands if thousands % 1000 == 0 => write!(f, "{} K", thousands / 1000),
            other => write!(f, "{other}"),
        }
    }
}

impl Words for Family {
    const WORDS: &[(&str, Self)] = &[("4", Self::V4), ("6", Self::V6)];
}

/// Number of gates without bindings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EmptyGates(u8);

impl EmptyGates {
    pub(super) const THREE: Self = Self(3);
}

impl Words for EmptyGates {
    const WORDS: &[(&str, Self)] = &[("0", Self(0)), ("3", Self(3))];
}

/// Stages that packets pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stages {
    /// No flow table: each packet is classified separately.
    Bare,
    /// Flow table and one FIFO queue.
    FlowTable,
    /// Flow table and a queue per flow, served by deficit round robin.
    Queues,
}

impl Words for Stages {
    const WORDS: &[(&str, Self)] =
        &[("bare", Self::Bare), ("flow-table", Self::FlowTable), ("queues", Self::Queues)];
}

/// Number of workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Workers(pub(super) usize);

impl Words for Workers {
    const WORDS: &[(&str, Self)] = &[("1", Self(1)), ("2", Self(2))];
}

#[cfg(test)]
mod tests {
    use super::super::words::word;
    use super::*;

    #[test]
    fn amounts_are_parsed_with_suffixes() {
        let read = |text: &str| text.parse::<Amount>().map(|amount| amount.0).ok();
        assert_eq!(
            [read("1"), read("128K"), read("1M"), read("1500")],
            [Some(1), Some(128_000), Some(1_000_000), Some(1500)]
        );
        assert_eq!([read("0"), read("2M"), read("K"), read("-1"), read("9999999K")], [None; 5]);
        assert_eq!(Amount(128_000).to_string(), "128 K");
    }

    #[test]
    fn unknown_word_is_refused_with_the_valid_words() {
        assert_eq!(word::<Size>("jumbo"), Err("give one of 64, imix, 1500".to_owned()));
        for size in [Size::Shortest, Size::Imix, Size::Longest] {
            assert_eq!(word(size.word()), Ok(size));
        }
        for distribution in [Distribution::Uniform, Distribution::Zipf] {
            assert_eq!(word(distribution.word()), Ok(distribution));
        }
        assert!(word::<EmptyGates>("2").is_err() && word::<Workers>("3").is_err());
    }

    #[test]
    fn a_workload_reads_as_a_sentence() {
        let workload = Workload {
            flows: Amount(1),
            distribution: Distribution::Zipf,
            gates: EmptyGates(3),
            path: Stages::Queues,
            size: Size::Longest,
            ..Workload::default()
        };
        let expected = "IPv4, 1 flow (Zipf), 1 K routes, 3 empty gates, a queue for each flow, 1,500 bytes";
        assert_eq!(workload.to_string(), expected);
    }
}
