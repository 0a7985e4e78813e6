//! Queue of packets made by instances. Each iteration takes a limited number of them, as it does of received
//! packets.
//!
//! Each principal that pays for calls has a part of the queue for the packets of its calls. Calls without a payer have
//! a part together. A part may have as many packets as places are free in the queue: the first part gets half of all
//! places, a second one half of the free ones. So a principal whose instances make too many packets loses only its own
//! (*dynamic thresholds*: Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998). The parts take turns.

use std::collections::VecDeque;
use std::time::Duration;

use millrace_packet::{Packet, Pool};
use millrace_units::{Instant, PrincipalId};

use crate::ports::QUEUE_LIMIT;

/// Time until the next look at packets whose principals are all held back.
const LOOK: Duration = Duration::from_millis(1);

/// Principal that pays for the calls which made packets; `None` if nobody pays.
pub(crate) type Maker = Option<PrincipalId>;

/// Packets made in calls for which one principal pays.
#[derive(Debug)]
struct Part {
    maker: Maker,
    /// The packets, the oldest first: at least one.
    packets: VecDeque<Packet>,
}

/// Queue of packets made by instances, and the number that the current iteration may still take.
#[derive(Debug, Default)]
pub(crate) struct FromPlugins {
    /// Parts of the makers with packets, in ascending order of the makers.
    parts: Vec<Part>,
    /// Memory of parts that have become empty, for reuse.
    spare: Vec<VecDeque<Packet>>,
    /// Number of packets in all parts.
    len: usize,
    /// Maker that had the latest turn.
    latest: Maker,
    left: usize,
}

impl FromPlugins {
    /// Starts an iteration that takes at most `weight` packets.
    pub fn begin(&mut self, weight: u16) {
        self.left = weight.into();
    }

    /// Queues a packet. The queue is limited to [`QUEUE_LIMIT`] packets, and to a quarter of the packet
    /// memory. The part of a maker is limited to the number of free places.
    ///
    /// # Errors
    /// Returns the packet if the queue or the part is full.
    pub fn push(&mut self, packet: Packet, maker: Maker, pool: &Pool) -> Result<(), Packet> {
        let free = QUEUE_LIMIT.min(pool.capacity() as usize / 4).saturating_sub(self.len);
        let place = self.place(maker);
        let part = place.ok().and_then(|place| self.parts.get(place));
        if part.map_or(0, |part| part.packets.len()) >= free {
            return Err(packet);
        }
        let place = place.unwrap_or_else(|place| {
            let packets = self.spare.pop().unwrap_or_default();
            self.parts.insert(place, Part { maker, packets });
            place
        });
        if let Some(part) = self.parts.get_mut(place) {
            part.packets.push_back(packet);
            self.len += 1;
        }
        Ok(())
    }

    /// Returns the maker whose turn it is, of those that have packets and `may_go`; `None` if there is none, or if the
    /// iteration may take no more packets.
    pub fn next_turn(&mut self, may_go: impl Fn(Maker) -> bool) -> Option<Maker> {
        if self.left == 0 {
            return None;
        }
        let after = self.parts.partition_point(|part| part.maker <= self.latest);
        let in_turn = self.parts.iter().skip(after).chain(self.parts.iter().take(after));
        let next = in_turn.map(|part| part.maker).find(|maker| may_go(*maker))?;
        self.latest = next;
        Some(next)
    }

    /// Takes the oldest packet of a maker, if the iteration may still take one.
    pub fn take(&mut self, maker: Maker) -> Option<Packet> {
        let place = self.place(maker).ok()?;
        let part = self.parts.get_mut(place)?;
        self.left = self.left.checked_sub(1)?;
        let packet = part.packets.pop_front()?;
        self.len -= 1;
        if part.packets.is_empty() {
            self.spare.push(self.parts.remove(place).packets);
        }
        Some(packet)
    }

    /// Lets the packets of a removed principal go on without a payer.
    pub fn forget(&mut self, payer: PrincipalId) {
        let Ok(place) = self.place(Some(payer)) else { return };
        let mut packets = self.parts.remove(place).packets;
        match self.place(None) {
            Ok(place) => {
                self.parts.get_mut(place).into_iter().for_each(|part| part.packets.append(&mut packets));
            }
            Err(place) => self.parts.insert(place, Part { maker: None, packets }),
        }
    }

    /// Returns the time at which packets can leave the queue: `now` if a maker with packets `may_go`. `None` if no
    /// packet waits.
    pub fn next_event(&self, may_go: impl Fn(Maker) -> bool, now: Instant) -> Option<Instant> {
        let is_ready = self.parts.iter().any(|part| may_go(part.maker));
        (self.len > 0).then(|| if is_ready { now } else { now + LOOK })
    }

    /// Returns the number of waiting packets.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the place of a maker's part; if it has none, the place for it as an error.
    fn place(&self, maker: Maker) -> Result<usize, usize> {
        self.parts.binary_search_by_key(&maker, |part| part.maker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Maker = Some(PrincipalId(1));
    const SECOND: Maker = Some(PrincipalId(2));

    fn taken(all: &mut FromPlugins, maker: Maker) -> Vec<u8> {
        std::iter::from_fn(|| all.take(maker)).map(|packet| packet.data()[0]).collect()
    }

    /// Queues packets of a maker. Returns the number of packets that found room.
    fn push(all: &mut FromPlugins, pool: &Pool, maker: Maker, packets: u8) -> usize {
        let fits = |number| all.push(pool.packet_from(&[number; 60]).unwrap(), maker, pool).is_ok();
        (0..packets).map(fits).filter(|fits| *fits).count()
    }

    #[test]
    fn iteration_takes_its_limit_and_later_packets_wait_in_order() {
        let pool = Pool::new(64).unwrap();
        let mut all = FromPlugins::default();
        let packet = |number: u8| pool.packet_from(&[number; 60]).unwrap();
        (0..5).for_each(|number| all.push(packet(number), None, &pool).unwrap());
        assert_eq!((taken(&mut all, None), all.next_turn(|_| true)), (vec![], None));
        all.begin(3);
        assert_eq!(all.next_turn(|_| true), Some(None));
        assert_eq!(taken(&mut all, None), [0, 1, 2]);
        // A packet added during the iteration is queued behind the others.
        all.push(packet(5), None, &pool).unwrap();
        assert_eq!(taken(&mut all, None), [0; 0]);
        all.begin(256);
        assert_eq!(taken(&mut all, None), [3, 4, 5]);
        assert_eq!((all.len(), all.next_turn(|_| true), pool.in_use()), (0, None, 0));
    }

    #[test]
    fn flood_of_a_principal_loses_only_its_own_packets() {
        let pool = Pool::new(64).unwrap();
        let mut all = FromPlugins::default();
        // A quarter of the packet memory are 16 places.
        assert_eq!(push(&mut all, &pool, FIRST, 20), 8);
        assert_eq!(push(&mut all, &pool, SECOND, 3), 3);
        assert_eq!(push(&mut all, &pool, None, 20), 3);
        assert_eq!(push(&mut all, &pool, FIRST, 1), 0);
        all.begin(256);
        let left = [FIRST, SECOND, None].map(|maker| taken(&mut all, maker).len());
        assert_eq!((left, all.len(), pool.in_use()), ([8, 3, 3], 0, 0));
    }

    #[test]
    fn makers_take_turns_and_one_that_is_held_back_loses_its_turn() {
        let pool = Pool::new(256).unwrap();
        let mut all = FromPlugins::default();
        for (maker, packets) in [(FIRST, 4), (SECOND, 2), (None, 1)] {
            assert_eq!(push(&mut all, &pool, maker, packets), usize::from(packets));
        }
        all.begin(6);
        let mut turns = Vec::new();
        while let Some(maker) = all.next_turn(|maker| maker != SECOND || turns.len() != 1) {
            assert!(all.take(maker).is_some());
            turns.push(maker);
        }
        assert_eq!(turns, [FIRST, None, FIRST, SECOND, FIRST, SECOND]);
        let now = Instant::from_millis(7);
        assert_eq!(all.next_event(|_| true, now), Some(now));
        assert_eq!(all.next_event(|maker| maker != FIRST, now), Some(now + LOOK));
        all.begin(6);
        assert_eq!((taken(&mut all, FIRST).len(), all.next_event(|_| true, now)), (1, None));
    }

    #[test]
    fn packets_of_a_removed_principal_go_on_without_a_payer() {
        let pool = Pool::new(256).unwrap();
        let mut all = FromPlugins::default();
        for maker in [SECOND, FIRST] {
            push(&mut all, &pool, maker, 2);
            all.forget(PrincipalId(if maker == FIRST { 1 } else { 2 }));
        }
        all.forget(PrincipalId(1));
        all.begin(256);
        assert_eq!((all.len(), taken(&mut all, None)), (4, vec![0, 1, 0, 1]));
    }
}
