//! Neighbour: IP address on a link, with its Ethernet address.

use std::net::IpAddr;

/// Neighbour unreachability state, as the kernel keeps it (RFC 4861 §7.3.2, used for ARP as well).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NeighbourState {
    /// New entry, no request sent yet.
    None,
    /// Resolution in progress.
    Incomplete,
    /// Confirmed within the reachable time.
    Reachable,
    /// Known, but not confirmed recently.
    Stale,
    /// Used while stale; a probe follows unless a confirmation arrives.
    Delay,
    /// Probe in progress.
    Probe,
    /// Resolution failed.
    Failed,
    /// No resolution needed on this link.
    NoArp,
    /// Static entry, which never expires.
    Permanent,
}

impl NeighbourState {
    /// Returns the state of the kernel's `NUD_*` bits; with several bits set, the strongest state.
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

    /// Whether the link address is valid for sending.
    pub fn valid(self) -> bool {
        !matches!(self, Self::None | Self::Incomplete | Self::Failed)
    }
}

/// Entry of the kernel's neighbour table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HostNeighbour {
    /// Index of the device.
    pub ifindex: u32,
    /// Protocol address of the neighbour.
    pub ip: IpAddr,
    /// Ethernet address of the neighbour, if known. It may be used only if [`NeighbourState::valid`].
    pub mac: Option<[u8; 6]>,
    /// Neighbour unreachability detection (NUD) state.
    pub state: NeighbourState,
}
