//! A neighbour: a protocol address on a link and the link address it resolves to.

use std::net::IpAddr;

/// Neighbour unreachability state, as the kernel keeps it (RFC 4861 §7.3.2, used for ARP as well).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NeighbourState {
    /// Just made, nothing asked yet.
    None,
    /// Being resolved.
    Incomplete,
    /// Confirmed within the reachable time.
    Reachable,
    /// Known, not confirmed lately.
    Stale,
    /// Used while stale; a probe follows unless something confirms it.
    Delay,
    /// Being probed.
    Probe,
    /// Resolution failed.
    Failed,
    /// The link needs no resolution.
    NoArp,
    /// Set by hand, never expires.
    Permanent,
}

impl NeighbourState {
    /// The state named by the kernel's `NUD_*` bits; the strongest one when several are set.
    pub fn from_bits(bits: u16) -> Self {
        const ORDER: [(u16, NeighbourState); 8] = [
            (0x80, NeighbourState::Permanent),
            (0x40, NeighbourState::NoArp),
            (0x02, NeighbourState::Reachable),
            (0x10, NeighbourState::Probe),
            (0x08, NeighbourState::Delay),
            (0x04, NeighbourState::Stale),
            (0x01, NeighbourState::Incomplete),
            (0x20, NeighbourState::Failed),
        ];
        ORDER.iter().find(|(bit, _)| bits & bit != 0).map_or(Self::None, |(_, state)| *state)
    }

    /// Whether the link address may be used for sending.
    pub fn valid(self) -> bool {
        !matches!(self, Self::None | Self::Incomplete | Self::Failed)
    }
}

/// An entry of the kernel's neighbour table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HostNeighbour {
    /// The device.
    pub ifindex: u32,
    /// The neighbour's address.
    pub ip: IpAddr,
    /// Its Ethernet address, as far as known; meaningful only while [`NeighbourState::valid`].
    pub mac: Option<[u8; 6]>,
    /// Neighbour unreachability detection (NUD) state.
    pub state: NeighbourState,
    /// IPv6 router flag of the neighbour.
    pub router: bool,
}
