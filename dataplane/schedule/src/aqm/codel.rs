//! CoDel (controlled delay): drops or marks packets after the queueing delay has stayed above a target for an
//! interval (RFC 8289).

use millrace_units::Instant;

use crate::Item;
use crate::arena::{Arena, Held, List};

/// Parameters of CoDel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CodelSettings {
    /// Target: standing queueing delay that CoDel accepts, in nanoseconds. RFC 8289, 4.3 recommends 5 to 10 %
    /// of the interval.
    pub target: u64,
    /// Time in nanoseconds for which the queueing delay may stay above the target. Most flows should have a
    /// round-trip time of at most this interval (RFC 8289, 4.2).
    pub interval: u64,
    /// Whether CoDel marks packets of ECN-capable senders instead of dropping them (RFC 8289, 5.8, and RFC
    /// 3168).
    pub ecn: bool,
}

impl Default for CodelSettings {
    /// Returns a target of 5 ms, an interval of 100 ms and ECN marks, as RFC 8289 recommends for the
    /// Internet.
    fn default() -> Self {
        Self { target: 5_000_000, interval: 100_000_000, ecn: true }
    }
}

/// CoDel state of one queue. The field names are those of RFC 8289, appendix A.
#[derive(Clone, Debug, Default)]
pub(crate) struct Codel {
    first_above_time: u64,
    drop_next: u64,
    count: u32,
    last_count: u32,
    dropping: bool,
}

/// Queue that CoDel manages, with the length in bytes of the largest packet seen so far. While the queue
/// holds no more bytes than this length, CoDel drops nothing.
pub(crate) struct CodelQueue<'a, T> {
    pub arena: &'a mut Arena<T>,
    pub list: &'a mut List,
    pub max_packet: u32,
    /// Whether CoDel marked the returned packet.
    pub has_marked: bool,
}

impl Codel {
    /// Returns the next packet to send and gives dropped packets to `drop`. A non-empty queue always yields a
    /// packet.
    #[inline]
    pub fn dequeue<T: Item>(
        &mut self,
        settings: &CodelSettings,
        queue: &mut CodelQueue<'_, T>,
        now: Instant,
        mut drop: impl FnMut(Held<T>),
    ) -> Option<Held<T>> {
        let now = now.as_nanos();
        let (held, may_drop) = self.take(settings, queue, now);
        let mut held = held?;
        if self.dropping {
            self.dropping &= may_drop;
            while self.dropping && now >= self.drop_next {
                self.count = self.count.saturating_add(1);
                if settings.ecn && held.item.mark_congestion() {
                    queue.has_marked = true;
                    self.drop_next = self.control_law(settings, self.drop_next);
                    return Some(held);
                }
                drop(held);
                let (next, may_drop) = self.take(settings, queue, now);
                held = next?;
                self.dropping = may_drop;
                if may_drop {
                    self.drop_next = self.control_law(settings, self.drop_next);
                }
            }
        } else if may_drop {
            queue.has_marked = settings.ecn && held.item.mark_congestion();
            if !queue.has_marked {
                drop(held);
                held = self.take(settings, queue, now).0?;
            }
            self.enter_dropping(settings, now);
        }
        Some(held)
    }

    /// Takes a packet, as `dodequeue` of RFC 8289 does. Returns the packet and whether CoDel may drop it.
    #[inline]
    fn take<T>(
        &mut self,
        settings: &CodelSettings,
        queue: &mut CodelQueue<'_, T>,
        now: u64,
    ) -> (Option<Held<T>>, bool) {
        let Some(held) = queue.arena.pop(queue.list) else {
            self.first_above_time = 0;
            return (None, false);
        };
        let sojourn = now.saturating_sub(held.arrival.as_nanos());
        let mut may_drop = false;
        if sojourn < settings.target || queue.list.bytes() <= queue.max_packet {
            self.first_above_time = 0;
        } else if self.first_above_time == 0 {
            self.first_above_time = now + settings.interval;
        } else {
            may_drop = now >= self.first_above_time;
        }
        (Some(held), may_drop)
    }

    /// Enters the dropping state. If the last dropping state ended less than 16 intervals ago, continues near
    /// the drop rate of that state.
    #[cold]
    fn enter_dropping(&mut self, settings: &CodelSettings, now: u64) {
        self.dropping = true;
        let delta = self.count.wrapping_sub(self.last_count);
        let recent = now.saturating_sub(self.drop_next) < settings.interval.saturating_mul(16);
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.drop_next = self.control_law(settings, now);
        self.last_count = self.count;
    }

    /// Returns the time of the next drop: `from` plus the interval divided by the square root of the drop
    /// count.
    fn control_law(&self, settings: &CodelSettings, from: u64) -> u64 {
        from.saturating_add((settings.interval as f64 / f64::from(self.count).sqrt()) as u64)
    }
}
