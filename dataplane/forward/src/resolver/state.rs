//! The states of a neighbour and what leads from one to another (RFC 4861, 7.3.2 and appendix C), without DELAY: a
//! router that only forwards hears nothing from upper layers, so there is nothing to wait for before probing.

use millrace_units::Instant;
use millrace_wire::MacAddr;

use super::Heard;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Asked for `tries` times, never answered.
    Incomplete { tries: u8 },
    /// Answered lately.
    Reachable(MacAddr),
    /// Known, but not confirmed lately.
    Stale(MacAddr),
    /// Known, used, and asked `tries` times whether it still is there.
    Probe { mac: MacAddr, tries: u8 },
    /// Did not answer.
    Failed,
    /// Not learned.
    Static(MacAddr),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub state: State,
    pub deadline: Instant,
    /// A packet asked for the neighbour, or the neighbour answered a probe of the router.
    pub wanted: bool,
}

/// Claim of a neighbour to its place, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// Spoke to the router; no packet was ever sent there and confirmed.
    Unconfirmed,
    /// Was confirmed once, is not in use.
    Stale,
    /// Was asked for and has not answered.
    Unresolved,
    /// Confirmed, or asked whether it still is there.
    InUse,
    /// Not learned.
    Configured,
}

impl Rank {
    /// Number of ranks of learned neighbours.
    pub const LEARNED: usize = Rank::Configured as usize;
}

impl Entry {
    /// Claim of the neighbour to its place.
    pub fn rank(&self) -> Rank {
        match self.state {
            State::Static(_) => Rank::Configured,
            State::Incomplete { .. } | State::Failed => Rank::Unresolved,
            _ if !self.wanted => Rank::Unconfirmed,
            State::Stale(_) => Rank::Stale,
            State::Reachable(_) | State::Probe { .. } => Rank::InUse,
        }
    }
}

impl State {
    /// Where packets go, if anywhere.
    pub fn mac(self) -> Option<MacAddr> {
        match self {
            Self::Reachable(mac) | Self::Stale(mac) | Self::Probe { mac, .. } | Self::Static(mac) => {
                Some(mac)
            }
            Self::Incomplete { .. } | Self::Failed => None,
        }
    }
}

/// What a station's word makes of what was known; `None` when nothing changes.
pub(super) fn after_heard(known: Option<State>, mac: MacAddr, how: Heard) -> Option<State> {
    if matches!(known, Some(State::Static(_))) {
        return None;
    }
    let old = known.and_then(State::mac);
    match how {
        Heard::Solicitation => (old != Some(mac)).then_some(State::Stale(mac)),
        Heard::Advertisement { .. } if known.is_none() => None,
        Heard::Advertisement { overrides: false, .. } if old.is_some_and(|old| old != mac) => match known {
            // Two stations claim the address: keep the first, but ask it (RFC 4861, 7.2.5).
            Some(State::Reachable(first)) => Some(State::Stale(first)),
            _ => None,
        },
        Heard::Advertisement { solicited: true, .. } => Some(State::Reachable(mac)),
        Heard::Advertisement { solicited: false, .. } => (old != Some(mac)).then_some(State::Stale(mac)),
    }
}

/// What comes after a state whose time is over; `None` when the neighbour is to be forgotten.
///
/// A neighbour that does not answer probes is forgotten rather than failed: its address may have moved to another
/// station, which only a request to all finds.
pub(super) fn after_deadline(state: State, max_tries: u8) -> Option<State> {
    match state {
        State::Incomplete { tries } if tries < max_tries => Some(State::Incomplete { tries: tries + 1 }),
        State::Incomplete { .. } => Some(State::Failed),
        State::Reachable(mac) => Some(State::Stale(mac)),
        State::Probe { mac, tries } if tries < max_tries => Some(State::Probe { mac, tries: tries + 1 }),
        State::Probe { .. } | State::Stale(_) | State::Failed => None,
        State::Static(mac) => Some(State::Static(mac)),
    }
}
