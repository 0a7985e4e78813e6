//! One direction of an impaired link: the random decisions, and the queue of waiting packets.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;

use millrace_packet::{Batch, Packet, Pool};
use millrace_units::{BitRate, Instant};

use super::random::Random;
use super::settings::Impairment;

/// One direction of an impaired link.
pub(super) struct Link {
    settings: Impairment,
    random: Random,
    waiting: BinaryHeap<Reverse<Waiting>>,
    /// Number of packets that have entered the queue since the start. Each packet gets the current number,
    /// which orders packets with the same due time.
    entered: u64,
    /// Due time of the last packet that was not reordered.
    last_due: Instant,
    /// Time at which the link has sent all packets that have entered it; used only with a rate limit.
    idle_from: Instant,
    created: u64,
    lost: u64,
}

struct Waiting {
    due: Instant,
    place: u64,
    packet: Packet,
}

impl Link {
    /// Creates one direction. `direction`: 0 or 1, so that the two directions have different random
    /// sequences.
    pub(super) fn new(settings: &Impairment, direction: u64) -> Self {
        Self {
            settings: settings.clone(),
            random: Random::new(settings.seed ^ direction << 63),
            waiting: BinaryHeap::with_capacity(settings.queue),
            entered: 0,
            last_due: Instant::ZERO,
            idle_from: Instant::ZERO,
            created: 0,
            lost: 0,
        }
    }

    pub(super) fn created(&self) -> u64 {
        self.created
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    pub(super) fn held(&self) -> u64 {
        self.waiting.len() as u64
    }

    pub(super) fn next_event(&self) -> Option<Instant> {
        self.waiting.peek().map(|Reverse(waiting)| waiting.due)
    }

    /// Handles a packet that enters the link.
    pub(super) fn enter(&mut self, pool: &Pool, now: Instant, packet: Packet) {
        if self.random.chance(self.settings.loss) {
            self.lost += 1;
            return;
        }
        let duplicate =
            self.random.chance(self.settings.duplicate).then(|| copy_whole(&packet, pool)).flatten();
        self.corrupt_and_queue(pool, now, packet);
        if let Some(duplicate) = duplicate {
            self.created += 1;
            self.corrupt_and_queue(pool, now, duplicate);
        }
    }

    /// Moves due packets to `batch`, earliest first, as many as fit.
    pub(super) fn release(&mut self, now: Instant, batch: &mut Batch) {
        while batch.room() > 0 && self.next_event().is_some_and(|due| due <= now) {
            if let Some(Reverse(waiting)) = self.waiting.pop() {
                // The loop condition ensures that there is room.
                let _ = batch.push(waiting.packet);
            }
        }
    }

    fn corrupt_and_queue(&mut self, pool: &Pool, now: Instant, mut packet: Packet) {
        if self.waiting.len() >= self.settings.queue {
            self.lost += 1;
            return;
        }
        if self.random.chance(self.settings.corrupt) {
            let bit = self.random.below(packet.len() as u64 * 8);
            packet = flip_bit(packet, pool, bit as usize);
        }
        let due = self.due(now, packet.len());
        let place = self.entered;
        self.entered += 1;
        self.waiting.push(Reverse(Waiting { due, place, packet }));
    }

    fn due(&mut self, now: Instant, length: usize) -> Instant {
        let sent = self.sent(now, length);
        if self.random.chance(self.settings.reorder) {
            return sent;
        }
        self.last_due = self.last_due.max(sent + self.delay());
        self.last_due
    }

    /// Returns the time at which the link has sent a packet of `length` bytes that enters now. The link first
    /// sends all earlier packets.
    fn sent(&mut self, now: Instant, length: usize) -> Instant {
        let Some(BitRate(rate)) = self.settings.rate else { return now };
        let takes = Duration::from_nanos((length as f64 * 8e9 / rate).ceil() as u64);
        self.idle_from = self.idle_from.max(now) + takes;
        self.idle_from
    }

    fn delay(&mut self) -> Duration {
        let Impairment { delay, jitter, .. } = self.settings;
        // Twice the jitter is at most two hours, so the nanoseconds fit a `u64`.
        let range = 2 * jitter.as_nanos() as u64 + 1;
        delay - jitter + Duration::from_nanos(self.random.below(range))
    }
}

/// Copies a packet into memory frames of its own, so that every port can send the copy. `None` if the pool is
/// empty.
fn copy_whole(packet: &Packet, pool: &Pool) -> Option<Packet> {
    let mut copy = packet.copy(pool)?;
    copy.make_writable(pool).then_some(copy)
}

/// Flips one bit, counted from the packet's first bit. If the pool has no memory for a private copy, flips a
/// bit of the first memory frame.
fn flip_bit(mut packet: Packet, pool: &Pool, bit: usize) -> Packet {
    let first = packet.data().len();
    let byte = if bit / 8 < first || packet.make_writable(pool) { bit / 8 } else { bit / 8 % first.max(1) };
    flip(packet, byte, 1 << (bit % 8))
}

/// Flips the bits `mask` of the byte at index `byte`. The packet must own all memory frames up to that byte.
fn flip(mut packet: Packet, byte: usize, mask: u8) -> Packet {
    if let Some(byte) = packet.data_mut().get_mut(byte) {
        *byte ^= mask;
        return packet;
    }
    let (mut first, rest) = match packet.split() {
        Ok(pieces) => pieces,
        // The byte is beyond the memory frames that the packet owns.
        Err(packet) => return packet,
    };
    if let Some(rest) = rest {
        let byte = byte.saturating_sub(first.data().len());
        first.chain(flip(rest, byte, mask));
    }
    first
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.due, self.place).cmp(&(other.due, other.place))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Waiting {}
