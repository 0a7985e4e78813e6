//! Flows with a reservation, whose records no other flow displaces.
//!
//! A flow is identified by its flow hash, as in queues. So a flow with the same hash as a reserved flow is
//! also treated as reserved. A new record is marked when it is created. After a change of the reservations,
//! each batch checks and marks a bounded number of existing records.

use std::collections::HashSet;

use foldhash::fast::RandomState;
use millrace_classify::{FlowIndex, FlowTable, flow_hash};
use millrace_packet::FlowKey;

/// Maximum number of flow table slots checked per batch.
const PIECE: u32 = 512;

/// Reserved flows, and the progress of marking their records after a change.
#[derive(Debug, Default)]
pub(crate) struct ReservedFlows {
    hashes: HashSet<u32, RandomState>,
    /// Next slot to check; `None` once all slots are checked.
    next: Option<u32>,
}

impl ReservedFlows {
    /// Replaces the reserved flows. `seed` keys the flow hashes.
    pub fn set(&mut self, flows: &[FlowKey], seed: u64) {
        let hashes = flows.iter().map(|key| flow_hash(key, seed)).collect();
        if hashes != self.hashes {
            self.hashes = hashes;
            self.next = Some(0);
        }
    }

    /// Returns whether a flow has a reservation, or the same flow hash as a flow with one.
    pub fn contains(&self, key: &FlowKey, seed: u64) -> bool {
        !self.hashes.is_empty() && self.hashes.contains(&flow_hash(key, seed))
    }

    /// Returns whether some slots have not been checked since the last change.
    pub fn is_behind(&self) -> bool {
        self.next.is_some()
    }

    /// Sets or clears the mark of each record in the next [`PIECE`] slots.
    pub fn mark(&mut self, table: &mut FlowTable, seed: u64) {
        let Some(from) = self.next else { return };
        let end = from.saturating_add(PIECE);
        let wrong: Vec<(FlowIndex, bool)> = table
            .range(from..end)
            .map(|(index, record)| (index, record.is_reserved(), self.contains(&table.key(index), seed)))
            .filter(|(_, is, should)| is != should)
            .map(|(index, _, should)| (index, should))
            .collect();
        for (index, reserved) in wrong {
            table.set_reserved(index, reserved);
        }
        self.next = (end < table.slots()).then_some(end);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use millrace_classify::{FlowAnswer, FlowTableConfig};
    use millrace_units::{Instant, PortId};

    use super::*;

    fn key(flow: u32) -> FlowKey {
        FlowKey::v4(Ipv4Addr::from(flow), Ipv4Addr::LOCALHOST, 17, (1, 2), PortId(0))
    }

    #[test]
    fn records_that_are_there_are_marked_in_pieces_and_lose_the_mark_again() {
        let config = FlowTableConfig { initial: 1024, maximum: 8192, ..FlowTableConfig::default() };
        let mut table = FlowTable::new(config).unwrap();
        for flow in 0..5000 {
            let hash = table.hash(&key(flow));
            table.insert(&key(flow), hash, 0, FlowAnswer::default(), Instant::ZERO).unwrap();
        }
        let mut reserved = ReservedFlows::default();
        let marked = |table: &FlowTable| -> Vec<FlowKey> {
            table
                .iter()
                .filter(|(_, record)| record.is_reserved())
                .map(|(index, _)| table.key(index))
                .collect()
        };
        let mut change = |reserved: &mut ReservedFlows, flows: &[FlowKey]| {
            reserved.set(flows, 7);
            let mut rounds = 0;
            while reserved.is_behind() {
                reserved.mark(&mut table, 7);
                rounds += 1;
            }
            (marked(&table), rounds)
        };
        let wanted = [key(3), key(4711)];
        assert_eq!(change(&mut reserved, &wanted), (wanted.to_vec(), 10));
        // The same flows in another order are no change.
        assert_eq!(change(&mut reserved, &[key(4711), key(3)]), (wanted.to_vec(), 0));
        assert_eq!(change(&mut reserved, &wanted[1..]), (wanted[1..].to_vec(), 10));
        assert_eq!(change(&mut reserved, &[]), (Vec::new(), 10));
    }
}
