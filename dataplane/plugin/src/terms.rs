//! The terms of a binding: what its instance may take, and what becomes of packets that it fails at.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What becomes of packets that an instance fails at, or that come while it pauses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum OnFault {
    /// They are dropped.
    #[default]
    Drop,
    /// They go on, as if the instance had let them pass.
    Bypass,
}

impl OnFault {
    /// Every policy with its name.
    pub const NAMES: [(&'static str, Self); 2] = [("drop", Self::Drop), ("bypass", Self::Bypass)];

    /// Its name in commands and files.
    pub fn name(self) -> &'static str {
        Self::NAMES.into_iter().find(|(_, policy)| *policy == self).map_or("", |(name, _)| name)
    }
}

impl fmt::Display for OnFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for OnFault {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::NAMES.into_iter().find(|(known, _)| *known == name);
        found.map(|(_, policy)| policy).ok_or_else(|| format!("on-fault {name:?}: it is drop or bypass"))
    }
}

/// The terms of a binding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Terms {
    /// What becomes of packets that the instance fails at.
    pub on_fault: OnFault,
    /// How long a call may take in all, slices added up. One that takes longer is an overrun.
    pub call: Duration,
    /// How long a call may take for each of its packets, if that is less. A call always has a slice.
    pub packet: Option<Duration>,
}

impl Default for Terms {
    fn default() -> Self {
        Self { on_fault: OnFault::default(), call: Self::DEFAULT_CALL, packet: None }
    }
}

impl Terms {
    /// How long a call with packets may take unless it is said otherwise: so short that an instance that never ends is in
    /// quarantine before others have waited for it in more than one of a hundred of their packets.
    pub const DEFAULT_CALL: Duration = Duration::from_millis(1);
    /// What holds for calls that are about no packets: messages, what is done from time to time, the ends of flows.
    pub const OF_ERRANDS: Self =
        Self { on_fault: OnFault::Drop, call: Duration::from_millis(10), packet: None };
    /// How long a call may be allowed to take.
    pub const LONGEST_CALL: Duration = Duration::from_secs(1);
    /// Slices of this length that a call with so many packets may take, 1 or more.
    pub fn slices(&self, packets: usize, slice: Duration) -> u32 {
        let for_packets = self.packet.map(|each| each.saturating_mul(packets.max(1) as u32));
        let most = for_packets.map_or(self.call, |most| most.min(self.call));
        let slices = most.as_nanos().div_ceil(slice.as_nanos());
        u32::try_from(slices).unwrap_or(u32::MAX).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_become_slices() {
        const SLICE: Duration = Duration::from_micros(50);
        let terms = Terms::default();
        assert_eq!((terms.slices(1, SLICE), terms.slices(64, SLICE)), (20, 20));
        let terms = Terms { packet: Some(Duration::from_micros(20)), ..terms };
        assert_eq!(
            (terms.slices(0, SLICE), terms.slices(1, SLICE), terms.slices(5, SLICE), terms.slices(64, SLICE)),
            (1, 1, 2, 20)
        );
        let terms = Terms { call: Duration::from_micros(120), ..terms };
        assert_eq!(terms.slices(64, SLICE), 3);
        assert_eq!(terms.slices(64, 2 * SLICE), 2);
        assert_eq!(Terms { call: Duration::ZERO, ..terms }.slices(64, SLICE), 1);
    }

    #[test]
    fn names_lead_to_policies() {
        for (name, policy) in OnFault::NAMES {
            assert_eq!((name.parse(), policy.to_string()), (Ok(policy), name.to_owned()));
        }
        assert_eq!("pass".parse::<OnFault>().unwrap_err(), "on-fault \"pass\": it is drop or bypass");
    }
}
