//! Packets held for neighbour resolution (RFC 1122, 2.3.2.2), limited per neighbour and in total.
//!
//! The limit per neighbour is that of the Linux kernel, whose `unres_qlen_bytes` counts a packet with its
//! overhead. The limit for all neighbours is a share of the packet memory.

use std::collections::HashMap;
use std::time::Duration;

use foldhash::fast::FixedState;
use millrace_packet::Packet;
use millrace_units::Instant;

use crate::NeighbourKey;

/// Overhead in bytes that the kernel adds to each packet: `SKB_TRUESIZE(0)` of a 64-bit machine.
const OVERHEAD: usize = 576;

/// Number of held packets that a neighbour is guaranteed at the total limit. A neighbour with more packets
/// evicts its own oldest packet. Otherwise the oldest packet of all neighbours is evicted.
const GUARANTEED: usize = 16;

/// Limits of held packets, and their lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldLimits {
    /// Limit for one neighbour in bytes, where each packet counts 576 bytes more than its length; default
    /// 212,992, as in the kernel.
    pub bytes_per_neighbour: usize,
    /// Limit for all neighbours together in memory frames, default 4,096.
    pub frames: usize,
    /// Longest time that a packet is held, default 5 seconds.
    pub lifetime: Duration,
}

impl Default for HoldLimits {
    fn default() -> Self {
        Self { bytes_per_neighbour: 212_992, frames: 4096, lifetime: Duration::from_secs(5) }
    }
}

impl HoldLimits {
    /// Returns the limits for a pool of `frames` frames: held packets may use an eighth of it.
    pub fn of_pool(frames: u32) -> Self {
        Self { frames: (frames / 8) as usize, ..Self::default() }
    }
}

/// Returns the cost of a packet: bytes that count for its neighbour, and number of memory frames.
fn cost(packet: &Packet) -> (usize, usize) {
    let frames = if packet.is_linear() { 1 } else { packet.segments().count() };
    (packet.len() + OVERHEAD, frames)
}

/// Held packet whose lifetime has ended, with its neighbour.
#[derive(Debug)]
pub struct Held {
    /// Neighbour of the packet.
    pub key: NeighbourKey,
    /// Packet.
    pub packet: Packet,
}

const NONE: u32 = u32::MAX;

/// Slot for a packet. A used slot is in two lists, each with the oldest packet first: the list of all
/// packets, and the list of its neighbour's packets.
#[derive(Debug)]
struct Slot {
    packet: Option<Packet>,
    key: NeighbourKey,
    since: Instant,
    older: u32,
    newer: u32,
    /// Next slot of the same neighbour; in a free slot, the next free slot.
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    first: u32,
    last: u32,
    count: usize,
    bytes: usize,
    /// Time of the last request for the neighbour; `None` before the first one.
    asked: Option<Instant>,
}

/// Interval between requests for a neighbour while packets are held for it.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Held packets of all neighbours. The memory of the lists grows to the total limit once and is reused.
#[derive(Debug)]
pub struct HoldQueue {
    limits: HoldLimits,
    slots: Vec<Slot>,
    free: u32,
    oldest: u32,
    newest: u32,
    queues: HashMap<NeighbourKey, Queue, FixedState>,
    len: usize,
    frames: usize,
}

impl HoldQueue {
    /// Creates an empty queue. `seed` should be random.
    pub fn new(limits: HoldLimits, seed: u64) -> Self {
        let queues = HashMap::with_hasher(FixedState::with_seed(seed));
        Self { limits, slots: Vec::new(), free: NONE, oldest: NONE, newest: NONE, queues, len: 0, frames: 0 }
    }

    /// Evicts a packet if a new packet for `key` has no room. The caller repeats this until it returns
    /// `None`.
    ///
    /// - At the byte limit of the neighbour, its own oldest packet is evicted, so that the last packets of a
    ///   burst stay (FW-04).
    /// - At the total limit, the neighbour's own oldest packet is evicted if it has more than 16 packets;
    ///   otherwise the oldest packet of all.
    #[must_use = "an evicted packet is to be counted"]
    pub fn evict_for(&mut self, key: NeighbourKey, packet: &Packet) -> Option<Packet> {
        let (bytes, frames) = cost(packet);
        let own = self.queues.get(&key).map_or((0, 0), |queue| (queue.bytes, queue.count));
        let is_full = self.frames + frames > self.limits.frames;
        if own.0 + bytes > self.limits.bytes_per_neighbour || is_full && own.1 > GUARANTEED {
            return self.pop(key);
        }
        let oldest = self.slots.get(self.oldest as usize).filter(|_| is_full)?.key;
        self.pop(oldest)
    }

    /// Holds a packet for a neighbour. The caller has made room by [`evict_for`](Self::evict_for).
    pub fn hold(&mut self, key: NeighbourKey, packet: Packet, now: Instant) {
        let (bytes, frames) = cost(&packet);
        let slot =
            Slot { packet: Some(packet), key, since: now, older: self.newest, newer: NONE, next: NONE };
        let at = self.place(slot);
        match self.slots.get_mut(self.newest as usize) {
            Some(newest) => newest.newer = at,
            None => self.oldest = at,
        }
        self.newest = at;
        let queue =
            self.queues.entry(key).or_insert(Queue { first: at, last: at, count: 0, bytes: 0, asked: None });
        if queue.count > 0 {
            self.slots[queue.last as usize].next = at;
        }
        queue.last = at;
        queue.count += 1;
        queue.bytes += bytes;
        self.len += 1;
        self.frames += frames;
    }

    /// Releases the packets held for a neighbour, oldest first. Packets not taken from the iterator stay
    /// held.
    pub fn release(&mut self, key: NeighbourKey) -> impl Iterator<Item = Packet> + '_ {
        std::iter::from_fn(move || self.pop(key))
    }

    /// Removes and returns the next packet whose lifetime has ended; `None` if no such packet is left.
    pub fn expire(&mut self, now: Instant) -> Option<Held> {
        let oldest = self.slots.get(self.oldest as usize)?;
        if oldest.since + self.limits.lifetime > now {
            return None;
        }
        let key = oldest.key;
        self.pop(key).map(|packet| Held { key, packet })
    }

    /// Returns the time at which the next packet expires; `None` if no packet is held.
    pub fn next_event(&self) -> Option<Instant> {
        self.slots.get(self.oldest as usize).map(|oldest| oldest.since + self.limits.lifetime)
    }

    /// Whether packets are held for a neighbour, and nobody has asked for it in the last second.
    pub fn is_due(&self, key: NeighbourKey, now: Instant) -> bool {
        let is_due = |asked: Option<Instant>| asked.is_none_or(|asked| now.since(asked) >= ASK_AGAIN);
        self.queues.get(&key).is_some_and(|queue| is_due(queue.asked))
    }

    /// Records a request for a neighbour.
    pub fn note_asked(&mut self, key: NeighbourKey, now: Instant) {
        if let Some(queue) = self.queues.get_mut(&key) {
            queue.asked = Some(now);
        }
    }

    /// Returns the number of packets held for a neighbour.
    pub fn waiting_for(&self, key: NeighbourKey) -> usize {
        self.queues.get(&key).map_or(0, |queue| queue.count)
    }

    /// Returns the number of held packets.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no packet is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
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

    /// Removes and returns the oldest packet of a neighbour.
    fn pop(&mut self, key: NeighbourKey) -> Option<Packet> {
        let queue = self.queues.get_mut(&key)?;
        let at = queue.first;
        let slot = &mut self.slots[at as usize];
        let packet = slot.packet.take()?;
        let (bytes, frames) = cost(&packet);
        let (older, newer, next) = (slot.older, slot.newer, slot.next);
        slot.next = std::mem::replace(&mut self.free, at);
        queue.first = next;
        queue.count -= 1;
        queue.bytes -= bytes;
        if queue.count == 0 {
            self.queues.remove(&key);
        }
        self.unlink(older, newer);
        self.len -= 1;
        self.frames -= frames;
        Some(packet)
    }

    /// Removes a slot from the list of all packets, by linking the slots on both sides of it.
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

    fn hold(queue: &mut HoldQueue, key: NeighbourKey, packet: Packet, now: Instant) -> Vec<Packet> {
        let evicted = std::iter::from_fn(|| queue.evict_for(key, &packet)).collect();
        queue.hold(key, packet, now);
        evicted
    }

    /// Test case FW-04.
    #[test]
    fn the_last_of_a_burst_stays_and_order_is_kept() {
        let pool = Pool::new(16).unwrap();
        let limits = HoldLimits { bytes_per_neighbour: 3 * (OVERHEAD + 1), ..HoldLimits::default() };
        let mut queue = HoldQueue::new(limits, 1);
        let evicted: Vec<_> = (0..5)
            .flat_map(|n| hold(&mut queue, key(1), packet(&pool, n), Instant::ZERO))
            .map(|packet| number(&packet))
            .collect();
        assert_eq!(evicted, [0, 1]);
        let released: Vec<_> = queue.release(key(1)).map(|packet| number(&packet)).collect();
        assert_eq!(released, [2, 3, 4]);
        assert!(queue.is_empty() && pool.in_use() == 0);
    }

    /// The kernel holds 92 packets of 1,514 bytes, or 277 packets of 98 bytes: 212,992 bytes with their
    /// overhead.
    #[test]
    fn a_neighbour_holds_as_much_as_in_the_kernel() {
        for (length, kernel) in [(1514, 92), (98, 277)] {
            let pool = Pool::new(512).unwrap();
            let mut queue = HoldQueue::new(HoldLimits::default(), 1);
            let packet = || pool.packet_from(&vec![0; length]).unwrap();
            for _ in 0..400 {
                drop(hold(&mut queue, key(1), packet(), Instant::ZERO));
            }
            assert!((kernel..=kernel * 5 / 4).contains(&queue.len()), "{length}: {}", queue.len());
        }
    }

    /// Test case FW-04: memory is limited for 10,000 neighbours, and a burst for one neighbour evicts no
    /// packets of others.
    #[test]
    fn many_neighbours_hold_no_more_than_the_total() {
        let pool = Pool::new(1100).unwrap();
        let limits = HoldLimits { frames: 1024, ..HoldLimits::default() };
        let mut queue = HoldQueue::new(limits, 1);
        for n in 0..10_000u32 {
            let key = NeighbourKey { port: PortId(1), address: std::net::Ipv4Addr::from(n).into() };
            drop(hold(&mut queue, key, packet(&pool, 0), Instant::ZERO));
        }
        assert_eq!((queue.len(), pool.in_use(), queue.queues.len()), (1024, 1024, 1024));
        for _ in 0..400 {
            drop(hold(&mut queue, key(1), packet(&pool, 0), Instant::ZERO));
        }
        assert_eq!((queue.len(), queue.waiting_for(key(1))), (1024, GUARANTEED + 1));
        assert_eq!(HoldLimits::of_pool(1024).frames, 128);
    }

    #[test]
    fn neighbour_is_due_until_asked_for_and_again_after_a_second() {
        let pool = Pool::new(4).unwrap();
        let mut queue = HoldQueue::new(HoldLimits::default(), 1);
        let at = Instant::from_millis;
        assert!(!queue.is_due(key(1), at(0)), "no packet waits");
        drop(hold(&mut queue, key(1), packet(&pool, 0), at(0)));
        assert!(queue.is_due(key(1), at(0)) && queue.is_due(key(1), at(1)));
        queue.note_asked(key(1), at(1));
        drop(hold(&mut queue, key(1), packet(&pool, 1), at(900)));
        assert_eq!([900, 1000, 1001].map(|time| queue.is_due(key(1), at(time))), [false, false, true]);
        queue.release(key(1)).for_each(drop);
        drop(hold(&mut queue, key(1), packet(&pool, 2), at(901)));
        assert!(queue.is_due(key(1), at(901)), "other packets have not asked");
    }

    #[test]
    fn packets_expire_oldest_first() {
        let pool = Pool::new(4).unwrap();
        let mut queue = HoldQueue::new(HoldLimits::default(), 1);
        for second in 0..3u8 {
            let now = Instant::from_millis(u64::from(second) * 1000);
            assert!(hold(&mut queue, key(second % 2), packet(&pool, second), now).is_empty());
        }
        assert_eq!(queue.next_event(), Some(Instant::from_millis(5000)));
        assert!(queue.expire(Instant::from_millis(4999)).is_none());
        let held = queue.expire(Instant::from_millis(6000)).unwrap();
        assert_eq!((held.key, number(&held.packet)), (key(0), 0));
        assert_eq!(queue.expire(Instant::from_millis(6000)).map(|held| held.key), Some(key(1)));
        assert!(queue.expire(Instant::from_millis(6000)).is_none());
        assert_eq!(queue.waiting_for(key(0)), 1);
    }

    /// Reference model of the queue: one list that is searched from end to end.
    #[derive(Default)]
    struct Twin(Vec<(u8, u8)>);

    impl Twin {
        /// Holds a packet that costs one byte and one memory frame.
        fn hold(&mut self, limits: HoldLimits, neighbour: u8, number: u8) -> Vec<u8> {
            let most = limits.bytes_per_neighbour / (OVERHEAD + 1);
            let mut evicted = Vec::new();
            loop {
                let own: Vec<_> = (0..self.0.len()).filter(|at| self.0[*at].0 == neighbour).collect();
                let is_full = self.0.len() >= limits.frames;
                if own.len() >= most || is_full && own.len() > GUARANTEED {
                    evicted.push(self.0.remove(own[0]).1);
                } else if is_full {
                    evicted.push(self.0.remove(0).1);
                } else {
                    break;
                }
            }
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
        fn linked_slots_equal_a_list(
            operations in proptest::collection::vec((0u8..5, any::<u8>(), prop::bool::weighted(0.95)), 0..300),
        ) {
            let pool = Pool::new(64).unwrap();
            let limits =
                HoldLimits { bytes_per_neighbour: 22 * (OVERHEAD + 1), frames: 50, ..HoldLimits::default() };
            let (mut queue, mut twin) = (HoldQueue::new(limits, 1), Twin::default());
            for (neighbour, tag, is_held) in operations {
                if is_held {
                    let evicted = hold(&mut queue, key(neighbour), packet(&pool, tag), Instant::ZERO);
                    let evicted: Vec<_> = evicted.iter().map(number).collect();
                    prop_assert_eq!(evicted, twin.hold(limits, neighbour, tag));
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
