//! What the quanta of flows follow from: the common quantum, quanta of single flows, and reserved rates.

use crate::rate::Rate;

/// The largest quantum: a deficit of two of them is a signed word.
pub(crate) const MOST_QUANTUM: u32 = 1 << 30;
/// In a queue's quantum: the rest is the number of a reservation.
pub(super) const RESERVED: u32 = 1 << 31;
/// What a reservation gets in a round is counted in parts of a byte, of which this is a whole one: a small rate is less
/// than a byte of each round, and a little more than whole bytes is several percent of one that is not.
const BYTE: u64 = 1 << 32;

#[derive(Clone, Copy, Debug)]
pub(super) struct Reservation {
    pub queue: u32,
    pub rate: Rate,
    /// What it got beyond whole bytes so far.
    pub rest: u32,
}

/// What the quanta of flows follow from. A queue's own number is 0 for the common quantum, a quantum, or the number of a
/// reservation.
#[derive(Debug, Default)]
pub(super) struct Weights {
    quantum: u32,
    capacity: u64,
    pub reserved: u64,
    pub reservations: Vec<Reservation>,
    /// Backlogged queues with the common quantum, and the quanta of those with one of their own.
    common: u32,
    own_quanta: u64,
}

impl Weights {
    /// The common quantum, and the rate that reservations are parts of.
    pub fn set(&mut self, quantum: u32, capacity: Rate) {
        (self.quantum, self.capacity) = (quantum, capacity.0);
    }

    /// The quantum that a queue's number stands for, in whole bytes.
    pub fn in_force(&self, number: u32) -> u32 {
        match self.plain(number) {
            Some(quantum) => quantum,
            None => (self.reserved_share(number) / BYTE) as u32,
        }
    }

    /// The quantum that a queue's number stands for, unless that is a reservation.
    #[inline]
    fn plain(&self, number: u32) -> Option<u32> {
        match number {
            0 => Some(self.quantum),
            quantum => (quantum & RESERVED == 0).then_some(quantum),
        }
    }

    /// Bytes that a queue of that number gets in so many rounds. What a reservation gets beyond whole bytes is kept for it.
    #[inline]
    pub fn credit(&mut self, number: u32, rounds: u32) -> u32 {
        match self.plain(number) {
            Some(quantum) => quantum.saturating_mul(rounds),
            None => self.reserved_credit(number, rounds),
        }
    }

    fn reserved_credit(&mut self, number: u32, rounds: u32) -> u32 {
        let share = self.reserved_share(number);
        let Some(reservation) = self.reservations.get_mut((number & !RESERVED) as usize) else { return 0 };
        let credit = u128::from(share) * u128::from(rounds) + u128::from(reservation.rest);
        reservation.rest = credit as u32;
        u32::try_from(credit / u128::from(BYTE)).unwrap_or(MOST_QUANTUM).min(MOST_QUANTUM)
    }

    /// In how many rounds a queue of that number gets so many bytes.
    pub fn rounds(&self, number: u32, bytes: u32) -> u32 {
        if let Some(quantum) = self.plain(number) {
            return bytes.div_ceil(quantum);
        }
        let index = (number & !RESERVED) as usize;
        let rest = self.reservations.get(index).map_or(0, |reservation| reservation.rest);
        let missing = u64::from(bytes) * BYTE - u64::from(rest);
        u32::try_from(missing.div_ceil(self.reserved_share(number))).unwrap_or(u32::MAX)
    }

    /// r / (C - all reserved) of what those without a reservation get together in a round, in parts of a byte.
    fn reserved_share(&self, number: u32) -> u64 {
        let rate = self.rate(number).unwrap_or_default();
        let open = u64::from(self.common) * u64::from(self.quantum) + self.own_quanta;
        let (open, left) =
            (open.max(self.quantum.into()), self.capacity.saturating_sub(self.reserved).max(1));
        let most = u64::from(MOST_QUANTUM) * BYTE;
        // No round that is real comes near the bound of the product.
        let share =
            (u128::from(open) * u128::from(BYTE)).saturating_mul(u128::from(rate.0)) / u128::from(left);
        u64::try_from(share).unwrap_or(most).clamp(1, most)
    }

    /// The reserved rate that a queue's number stands for.
    pub fn rate(&self, number: u32) -> Option<Rate> {
        let index = (number & RESERVED != 0).then_some((number & !RESERVED) as usize)?;
        self.reservations.get(index).map(|reservation| reservation.rate)
    }

    /// Counts a queue that becomes backlogged, or stops being so, among those without a reservation.
    #[inline]
    pub fn count(&mut self, number: u32, backlogged: bool) {
        match number {
            0 if backlogged => self.common += 1,
            0 => self.common -= 1,
            own if own & RESERVED == 0 && backlogged => self.own_quanta += u64::from(own),
            own if own & RESERVED == 0 => self.own_quanta -= u64::from(own),
            _ => {}
        }
    }
}
