//! Packets that wait for a neighbour to be resolved (RFC 1122, 2.3.2.2), bounded per neighbour and in total.

use std::collections::HashMap;
use std::time::Duration;

use foldhash::fast::FixedState;
use millrace_packet::Packet;
use millrace_units::Instant;

use crate::NeighbourKey;

/// How many packets may wait, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldLimits {
    /// Packets for one neighbour, default 16.
    pub per_neighbour: usize,
    /// Packets for all neighbours, default 1,024.
    pub total: usize,
    /// How long a packet waits at most, default 5 seconds.
    pub lifetime: Duration,
}

impl Default for HoldLimits {
    fn default() -> Self {
        Self { per_neighbour: 16, total: 1024, lifetime: Duration::from_secs(5) }
    }
}

/// A packet and the neighbour that it waited for.
#[derive(Debug)]
pub struct Held {
    /// The neighbour.
    pub key: NeighbourKey,
    /// The packet.
    pub packet: Packet,
}

const NONE: u32 = u32::MAX;

/// A place for a packet. Occupied ones are in two lists, both in order of arrival: that of all packets, and that of
/// their neighbour. The first in either is the oldest there.
#[derive(Debug)]
struct Slot {
    packet: Option<Packet>,
    key: NeighbourKey,
    since: Instant,
    older: u32,
    newer: u32,
    /// The next of the same neighbour; of a free slot, the next free one.
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    first: u32,
    last: u32,
    count: usize,
}

/// The packets that wait. Memory grows to the total once and is used again.
#[derive(Debug)]
pub struct HoldQueue {
    limits: HoldLimits,
    slots: Vec<Slot>,
    free: u32,
    oldest: u32,
    newest: u32,
    queues: HashMap<NeighbourKey, Queue, FixedState>,
    len: usize,
}

impl HoldQueue {
    /// Without packets. `seed` should be random.
    pub fn new(limits: HoldLimits, seed: u64) -> Self {
        let queues = HashMap::with_hasher(FixedState::with_seed(seed));
        Self { limits, slots: Vec::new(), free: NONE, oldest: NONE, newest: NONE, queues, len: 0 }
    }

    /// Holds a packet for a neighbour. Returns the one that had to go for it: the oldest of the same neighbour if that
    /// has as many as it may, so that the last of a burst stays (FW-04); else the oldest of all if there are too many.
    #[must_use = "an evicted packet is to be counted"]
    pub fn hold(&mut self, key: NeighbourKey, packet: Packet, now: Instant) -> Option<Packet> {
        if self.limits.per_neighbour == 0 || self.limits.total == 0 {
            return Some(packet);
        }
        let evicted = if self.waiting_for(key) >= self.limits.per_neighbour {
            self.pop(key)
        } else if self.len >= self.limits.total {
            self.pop(self.slots[self.oldest as usize].key)
        } else {
            None
        };
        self.push(key, packet, now);
        evicted
    }

    /// The packets that wait for a neighbour, oldest first. Those that are not taken from the iterator stay held.
    pub fn release(&mut self, key: NeighbourKey) -> impl Iterator<Item = Packet> + '_ {
        std::iter::from_fn(move || self.pop(key))
    }

    /// The next packet that has waited too long.
    pub fn expire(&mut self, now: Instant) -> Option<Held> {
        let oldest = self.slots.get(self.oldest as usize)?;
        if oldest.since + self.limits.lifetime > now {
            return None;
        }
        let key = oldest.key;
        self.pop(key).map(|packet| Held { key, packet })
    }

    /// When the next packet will have waited too long.
    pub fn next_event(&self) -> Option<Instant> {
        self.slots.get(self.oldest as usize).map(|oldest| oldest.since + self.limits.lifetime)
    }

    /// How many packets wait for a neighbour.
    pub fn waiting_for(&self, key: NeighbourKey) -> usize {
        self.queues.get(&key).map_or(0, |queue| queue.count)
    }

    /// How many packets wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no packet waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn push(&mut self, key: NeighbourKey, packet: Packet, now: Instant) {
        let slot =
            Slot { packet: Some(packet), key, since: now, older: self.newest, newer: NONE, next: NONE };
        let at = self.place(slot);
        match self.slots.get_mut(self.newest as usize) {
            Some(newest) => newest.newer = at,
            None => self.oldest = at,
        }
        self.newest = at;
        let queue = self.queues.entry(key).or_insert(Queue { first: at, last: at, count: 0 });
        if queue.count > 0 {
            self.slots[queue.last as usize].next = at;
        }
        queue.last = at;
        queue.count += 1;
        self.len += 1;
    }

    fn place(&mut self, slot: Slot) -> u32 {
        let at = self.free;
        if at == NONE {
            self.slots.push(slot);
            return self.slots.len() as u32 - 1;
        }
        self.free = self.slots[at as usize].next;
        self.slots[at as usize] = slot;
        at
    }

    /// Takes out the oldest packet of a neighbour.
    fn pop(&mut self, key: NeighbourKey) -> Option<Packet> {
        let queue = self.queues.get_mut(&key)?;
        let at = queue.first;
        let slot = &mut self.slots[at as usize];
        let packet = slot.packet.take();
        let (older, newer, next) = (slot.older, slot.newer, slot.next);
        slot.next = std::mem::replace(&mut self.free, at);
        queue.first = next;
        queue.count -= 1;
        if queue.count == 0 {
            self.queues.remove(&key);
        }
        self.unlink(older, newer);
        self.len -= 1;
        packet
    }

    /// Joins the neighbours, in the list of all packets, of a slot that leaves it.
    fn unlink(&mut self, older: u32, newer: u32) {
        match self.slots.get_mut(older as usize) {
            Some(slot) => slot.newer = newer,
            None => self.oldest = newer,
        }
        match self.slots.get_mut(newer as usize) {
            Some(slot) => slot.older = older,
            None => self.newest = older,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_packet::Pool;
    use millrace_units::PortId;
    use proptest::prelude::*;
    use std::net::IpAddr;

    fn key(number: u8) -> NeighbourKey {
        NeighbourKey { port: PortId(1), address: IpAddr::from([10, 0, 0, number]) }
    }

    fn packet(pool: &Pool, number: u8) -> Packet {
        pool.packet_from(&[number]).unwrap()
    }

    fn number(packet: &Packet) -> u8 {
        packet.data()[0]
    }

    /// FW-04.
    #[test]
    fn the_last_of_a_burst_stays_and_order_is_kept() {
        let pool = Pool::new(16).unwrap();
        let mut queue = HoldQueue::new(HoldLimits { per_neighbour: 3, ..HoldLimits::default() }, 1);
        let evicted: Vec<_> = (0..5)
            .filter_map(|n| queue.hold(key(1), packet(&pool, n), Instant::ZERO))
            .map(|packet| number(&packet))
            .collect();
        assert_eq!(evicted, [0, 1]);
        let released: Vec<_> = queue.release(key(1)).map(|packet| number(&packet)).collect();
        assert_eq!(released, [2, 3, 4]);
        assert!(queue.is_empty() && pool.in_use() == 0);
    }

    /// FW-04: memory is bounded for 10,000 neighbours.
    #[test]
    fn many_neighbours_hold_no_more_than_the_total() {
        let pool = Pool::new(1100).unwrap();
        let mut queue = HoldQueue::new(HoldLimits::default(), 1);
        for n in 0..10_000u32 {
            let key = NeighbourKey { port: PortId(1), address: std::net::Ipv4Addr::from(n).into() };
            drop(queue.hold(key, packet(&pool, 0), Instant::ZERO));
        }
        assert_eq!((queue.len(), pool.in_use(), queue.queues.len()), (1024, 1024, 1024));
    }

    #[test]
    fn packets_expire_oldest_first() {
        let pool = Pool::new(4).unwrap();
        let mut queue = HoldQueue::new(HoldLimits::default(), 1);
        for second in 0..3u8 {
            let now = Instant::from_millis(u64::from(second) * 1000);
            assert!(queue.hold(key(second % 2), packet(&pool, second), now).is_none());
        }
        assert_eq!(queue.next_event(), Some(Instant::from_millis(5000)));
        assert!(queue.expire(Instant::from_millis(4999)).is_none());
        let held = queue.expire(Instant::from_millis(6000)).unwrap();
        assert_eq!((held.key, number(&held.packet)), (key(0), 0));
        assert_eq!(queue.expire(Instant::from_millis(6000)).map(|held| held.key), Some(key(1)));
        assert!(queue.expire(Instant::from_millis(6000)).is_none());
        assert_eq!(queue.waiting_for(key(0)), 1);
    }

    /// The same by one list that is searched from end to end.
    #[derive(Default)]
    struct Twin(Vec<(u8, u8)>);

    impl Twin {
        fn hold(&mut self, limits: HoldLimits, neighbour: u8, number: u8) -> Option<u8> {
            let own: Vec<_> = (0..self.0.len()).filter(|at| self.0[*at].0 == neighbour).collect();
            let evict = if own.len() >= limits.per_neighbour {
                Some(own[0])
            } else {
                (self.0.len() >= limits.total).then_some(0)
            };
            let evicted = evict.map(|at| self.0.remove(at).1);
            self.0.push((neighbour, number));
            evicted
        }

        fn release(&mut self, neighbour: u8) -> Vec<u8> {
            let (gone, stay) = self.0.iter().partition(|(n, _)| *n == neighbour);
            self.0 = stay;
            let gone: Vec<(u8, u8)> = gone;
            gone.into_iter().map(|(_, number)| number).collect()
        }
    }

    proptest! {
        #[test]
        fn linked_slots_do_what_one_list_does(
            operations in proptest::collection::vec((0u8..5, any::<u8>(), prop::bool::weighted(0.8)), 0..200),
        ) {
            let pool = Pool::new(32).unwrap();
            let limits = HoldLimits { per_neighbour: 3, total: 8, ..HoldLimits::default() };
            let (mut queue, mut twin) = (HoldQueue::new(limits, 1), Twin::default());
            for (neighbour, tag, hold) in operations {
                if hold {
                    let evicted = queue.hold(key(neighbour), packet(&pool, tag), Instant::ZERO);
                    prop_assert_eq!(evicted.map(|p| number(&p)), twin.hold(limits, neighbour, tag));
                } else {
                    let released: Vec<_> = queue.release(key(neighbour)).map(|p| number(&p)).collect();
                    prop_assert_eq!(released, twin.release(neighbour));
                }
                prop_assert_eq!(queue.len(), twin.0.len());
                prop_assert_eq!(pool.in_use() as usize, twin.0.len());
            }
            let rest: Vec<_> = std::iter::from_fn(|| queue.expire(Instant::FOREVER)).map(|h| number(&h.packet)).collect();
            prop_assert_eq!(rest, twin.0.iter().map(|(_, number)| *number).collect::<Vec<_>>());
        }
    }
}
