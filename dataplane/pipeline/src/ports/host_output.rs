//! Settings of host output: packets that the kernel sends out of a port with a scheduler.

/// Filters that host output passes before the port's queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HostFilters {
    /// Filters at gates of position `queue`, which choose the queue.
    #[default]
    Queue,
    /// Filters at all gates. No filter changes the egress port.
    All,
}

/// Settings of host output at a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostSettings {
    /// Filters that the packets pass.
    pub filters: HostFilters,
    /// Maximum number of packets taken per iteration, 1 to 256, like the setting `input-weight` of ports.
    pub weight: u16,
    /// Bytes that stand before the number of a queue in the source MAC address of a packet with a queue.
    pub mark: [u8; 4],
}
