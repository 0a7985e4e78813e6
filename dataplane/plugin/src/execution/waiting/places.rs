//! Places for waiting packets, of which a worker has a limited number.
//!
//! A packet takes a place for each of its memory frames. The packets of an instance may take at most as many places as
//! are free: of the first instance half of all places, of a second one half of the rest. The packets behind calls of
//! ended stages together have the same limit. So no instance can exhaust the places of others (*dynamic thresholds*
//! with a factor of one: Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998).

use super::{Backlog, WaitingRoom};

impl WaitingRoom {
    /// Whether the instance in a slot may keep one more packet: while its packets take fewer places than are free.
    /// Without a slot: whether one more packet may wait behind calls of ended stages. `taken`: slot of the instance
    /// whose backlog is being resumed, and the places of the packets that wait there.
    pub fn has_room(&self, slot: Option<u32>, (taken_slot, taken): (u32, usize)) -> bool {
        let of_instance = |slot: u32| {
            let own = self.backlogs.iter().filter(|backlog| backlog.context.instance.slot == slot);
            let in_calls = own.map(Backlog::places).sum::<usize>();
            in_calls + self.held.places_of(slot) + if taken_slot == slot { taken } else { 0 }
        };
        let own = slot.map_or(self.followers.places(), of_instance);
        let in_calls = self.backlogs.iter().map(Backlog::places).sum::<usize>() + taken;
        let others = self.held.places() + self.followers.places() + self.for_processor.len();
        own < self.places.saturating_sub(in_calls + others)
    }
}
