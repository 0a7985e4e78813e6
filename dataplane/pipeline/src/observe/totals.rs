//! Numbers of packets at all ports together, by origin and fate.

/// Numbers of packets at all ports together, by origin and fate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets received from devices.
    pub received: u64,
    /// Part of the received packets that is host output: sent by the kernel at ports with a scheduler.
    pub from_host: u64,
    /// Packets made by the router, by reason.
    pub created: Created,
    /// Packets given to devices.
    pub transmitted: u64,
    /// Packets punted to the kernel or delivered to the router's own stack.
    pub to_host: u64,
    /// Packets consumed by plugins.
    pub consumed: u64,
    /// Packets dropped in the pipeline.
    pub dropped: u64,
    /// Packets inside the pipeline: queued, held for a neighbour, kept by a plugin, or between two stages.
    pub held: u64,
    /// Packets handed over to other workers since the worker's start; never cleared.
    pub handed: u64,
    /// Packets taken over from other workers since the worker's start; never cleared.
    pub taken: u64,
}

/// Packets made by the router, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Created {
    /// ICMP errors.
    pub errors: u64,
    /// Fragments, except the first of each packet.
    pub fragments: u64,
    /// Copies of packets.
    pub copies: u64,
    /// Packets of the router's own stack: ARP, neighbour discovery and echo replies.
    pub own: u64,
    /// Packets made by plugins.
    pub plugins: u64,
}

impl Created {
    /// Returns the number of packets made for any reason.
    pub fn total(&self) -> u64 {
        wrapping_sum([self.errors, self.fragments, self.copies, self.own, self.plugins])
    }
}

/// Returns the sum of wrapping counters, which wraps as well.
pub fn wrapping_sum(counters: impl IntoIterator<Item = u64>) -> u64 {
    counters.into_iter().fold(0, u64::wrapping_add)
}

impl Totals {
    /// Returns the number of packets between workers. If workers took their snapshots at different times,
    /// packets handed over in between falsify the number.
    pub fn on_the_way(&self) -> u64 {
        self.handed.saturating_sub(self.taken)
    }

    /// Returns the unaccounted packets: packets received and created, less packets with a known fate. 0 if no
    /// packet was lost or counted twice.
    pub fn unaccounted(&self) -> i64 {
        let into = wrapping_sum([self.received, self.created.total(), self.taken]);
        let ends = [self.transmitted, self.to_host, self.consumed, self.dropped, self.held, self.handed];
        into.wrapping_sub(wrapping_sum(ends)) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_39_counters_near_their_wrap_still_add_up() {
        for start in [u64::from(u32::MAX) - 9, u64::MAX - 9] {
            for packets in 0..20 {
                let totals = Totals {
                    received: start.wrapping_add(packets),
                    taken: 5,
                    transmitted: start.wrapping_sub(1000).wrapping_add(packets),
                    dropped: 1000,
                    handed: 5,
                    ..Totals::default()
                };
                assert_eq!(totals.unaccounted(), 0, "{packets} packets after {start}");
                let lost = Totals { received: totals.received.wrapping_add(3), ..totals };
                assert_eq!(lost.unaccounted(), 3, "{packets} packets after {start}");
            }
        }
        let created = Created { errors: u64::MAX - 9, copies: 10, own: 2, ..Created::default() };
        assert_eq!(created.total(), 2);
    }
}
