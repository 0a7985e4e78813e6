//! Length of the longest frame at a given MTU.

/// Number of bytes of a frame before its network-layer packet: an Ethernet header and two VLAN tags.
const LINK_OVERHEAD: usize = 14 + 2 * 4;

/// Returns the length in bytes of the longest frame that a port sends. `mtu`: MTU of the port, in bytes of
/// the network-layer packet.
pub(crate) fn longest_frame(mtu: u16) -> usize {
    usize::from(mtu) + LINK_OVERHEAD
}
