//! States of a neighbour and their transitions (RFC 4861, 7.3.2 and appendix C), without the state DELAY.
//! DELAY waits for hints from upper layers before a probe, and a router gets none when it forwards.

use millrace_units::Instant;
use millrace_wire::MacAddr;

use super::Heard;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Requested `tries` times, without an answer so far.
    Incomplete { tries: u8 },
    /// Answered recently.
    Reachable(MacAddr),
    /// Known, but not confirmed recently.
    Stale(MacAddr),
    /// Known and in use; `tries` probes were sent to confirm it.
    Probe { mac: MacAddr, tries: u8 },
    /// No answer to all requests.
    Failed,
    /// Static, not learned.
    Static(MacAddr),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub state: State,
    pub deadline: Instant,
    /// Whether a packet needed the neighbour, or the neighbour answered a probe of the router.
    pub wanted: bool,
}

/// Rank of a neighbour. When entries run out, neighbours of the lowest rank are removed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// Neighbour that only sent requests to the router: no packet needed it, and it has not answered a probe.
    Unconfirmed,
    /// Neighbour that was confirmed once, but not recently.
    Stale,
    /// Neighbour that was requested and has not answered.
    Unresolved,
    /// Neighbour that was confirmed recently, or is being probed.
    InUse,
    /// Static neighbour.
    Configured,
}

impl Rank {
    /// Number of ranks of learned neighbours.
    pub const LEARNED: usize = Rank::Configured as usize;
}

impl Entry {
    /// Returns the rank of the neighbour.
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
    /// Returns the MAC address that packets go to, if there is one.
    pub fn mac(self) -> Option<MacAddr> {
        match self {
            Self::Reachable(mac) | Self::Stale(mac) | Self::Probe { mac, .. } | Self::Static(mac) => {
                Some(mac)
            }
            Self::Incomplete { .. } | Self::Failed => None,
        }
    }
}

/// Returns the state of a neighbour after a message from it with this MAC address; `None` if the state stays
/// the same.
pub(super) fn after_heard(known: Option<State>, mac: MacAddr, how: Heard) -> Option<State> {
    if matches!(known, Some(State::Static(_))) {
        return None;
    }
    let old = known.and_then(State::mac);
    match how {
        Heard::Solicitation => (old != Some(mac)).then_some(State::Stale(mac)),
        Heard::Advertisement { .. } if known.is_none() => None,
        Heard::Advertisement { overrides: false, .. } if old.is_some_and(|old| old != mac) => match known {
            // Two stations claim the address: keep the first MAC address, but confirm it by a probe (RFC
            // 4861, 7.2.5).
            Some(State::Reachable(first)) => Some(State::Stale(first)),
            _ => None,
        },
        Heard::Advertisement { solicited: true, .. } => Some(State::Reachable(mac)),
        Heard::Advertisement { solicited: false, .. } => (old != Some(mac)).then_some(State::Stale(mac)),
    }
}

/// Returns the state that follows when the deadline of a state has passed; `None` if the neighbour is to be
/// removed.
///
/// A neighbour that does not answer probes is removed, not marked as failed. Its address may have moved to
/// another station, which only a broadcast or multicast request finds.
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
