//! Quanta of flows: the common quantum, quanta of single flows, and reserved rates.

use crate::Item;
use crate::arena::{Load, reserve_for};
use crate::link::round::MOST_QUANTUM;
use crate::queue::RESERVED;
use crate::queue_manager::QueueManager;
use crate::rate::Rate;

/// Units of credit per byte. Whole bytes are too coarse for the credit of a reservation: a small rate gets
/// less than a byte per round.
const BYTE: u64 = 1 << 32;

#[derive(Clone, Copy, Debug)]
struct Reservation {
    queue: u32,
    rate: Rate,
    /// Fraction of a byte of credit that is kept for later rounds, in units of 1 / [`BYTE`] byte.
    rest: u32,
}

/// Weights of the queues of a leaf. A queue's quantum field holds one of three values: 0 for the common
/// quantum, the queue's own quantum, or the index of a reservation with the flag [`RESERVED`].
#[derive(Debug, Default)]
pub(super) struct Weights {
    quantum: u32,
    capacity: u64,
    reserved: u64,
    reservations: Vec<Reservation>,
    /// Number of backlogged queues with the common quantum.
    common: u32,
    /// Sum of the own quanta of backlogged queues.
    own_quanta: u64,
}

impl Weights {
    /// Sets the common quantum, and the capacity of which reservations are parts.
    pub fn set(&mut self, quantum: u32, capacity: Rate) {
        (self.quantum, self.capacity) = (quantum, capacity.0);
    }

    /// Reserves a rate for a queue, in place of an earlier reservation.
    pub fn reserve<T: Item>(&mut self, queues: &mut QueueManager<T>, queue: u32, rate: Rate) {
        self.release(queues, queue);
        self.set_quantum(queues, queue, RESERVED | self.reservations.len() as u32);
        self.reservations.push(Reservation { queue, rate, rest: 0 });
        self.reserved += rate.0;
        queues.arena.change_reserve(Load::NOTHING, reserve_for(0));
    }

    /// Ends the reservation of a queue, if it has one. The queue then has the common quantum.
    pub fn release<T: Item>(&mut self, queues: &mut QueueManager<T>, queue: u32) {
        let number = queues.queue(queue).quantum;
        if number & RESERVED == 0 {
            return;
        }
        let index = (number & !RESERVED) as usize;
        let gone = self.reservations.swap_remove(index);
        self.reserved -= gone.rate.0;
        queues.arena.change_reserve(reserve_for(0), Load::NOTHING);
        self.set_quantum(queues, queue, 0);
        if let Some(moved) = self.reservations.get(index) {
            queues.queue_mut(moved.queue).quantum = RESERVED | index as u32;
        }
    }

    /// Changes the quantum field of a queue.
    pub fn set_quantum<T: Item>(&mut self, queues: &mut QueueManager<T>, queue: u32, number: u32) {
        let entry = queues.queue_mut(queue);
        let (before, backlogged) = (std::mem::replace(&mut entry.quantum, number), !entry.list.is_empty());
        if backlogged {
            self.count(before, false);
            self.count(number, true);
        }
    }

    /// Returns the number of reservations.
    pub fn reservations(&self) -> usize {
        self.reservations.len()
    }

    /// Returns the sum of the reserved rates.
    pub fn reserved(&self) -> Rate {
        Rate(self.reserved)
    }

    /// Returns the quantum that a queue's quantum field stands for, in bytes per round, rounded down.
    pub fn in_force(&self, number: u32) -> u32 {
        match self.plain(number) {
            Some(quantum) => quantum,
            None => (self.reserved_share(number) / BYTE) as u32,
        }
    }

    /// Returns the quantum that a queue's quantum field stands for, in bytes per round; `None` if the field
    /// is the index of a reservation.
    #[inline]
    fn plain(&self, number: u32) -> Option<u32> {
        match number {
            0 => Some(self.quantum),
            quantum => (quantum & RESERVED == 0).then_some(quantum),
        }
    }

    /// Returns the credit of a queue in `rounds` rounds, in whole bytes. A reservation keeps the fraction of
    /// a byte for later.
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

    /// Returns the number of rounds in which a queue gets a credit of `bytes`.
    pub fn rounds(&self, number: u32, bytes: u32) -> u32 {
        if let Some(quantum) = self.plain(number) {
            return bytes.div_ceil(quantum);
        }
        let index = (number & !RESERVED) as usize;
        let rest = self.reservations.get(index).map_or(0, |reservation| reservation.rest);
        let missing = u64::from(bytes) * BYTE - u64::from(rest);
        u32::try_from(missing.div_ceil(self.reserved_share(number))).unwrap_or(u32::MAX)
    }

    /// Returns the credit of a reservation per round, in units of 1 / [`BYTE`] byte. It is r / (C - all
    /// reserved rates) of the sum of the quanta of all backlogged queues without a reservation.
    fn reserved_share(&self, number: u32) -> u64 {
        let rate = self.rate(number).unwrap_or_default();
        let open = u64::from(self.common) * u64::from(self.quantum) + self.own_quanta;
        let (open, left) =
            (open.max(self.quantum.into()), self.capacity.saturating_sub(self.reserved).max(1));
        let most = u64::from(MOST_QUANTUM) * BYTE;
        // The product overflows only at quanta far above any real ones, and then saturates.
        let share =
            (u128::from(open) * u128::from(BYTE)).saturating_mul(u128::from(rate.0)) / u128::from(left);
        u64::try_from(share).unwrap_or(most).clamp(1, most)
    }

    /// Returns the reserved rate of a queue by its quantum field; `None` if the field is no index of a
    /// reservation.
    pub fn rate(&self, number: u32) -> Option<Rate> {
        let index = (number & RESERVED != 0).then_some((number & !RESERVED) as usize)?;
        self.reservations.get(index).map(|reservation| reservation.rate)
    }

    /// Adds a queue that becomes backlogged to `common` or `own_quanta`, or subtracts a queue that becomes
    /// empty. Queues with a reservation don't count.
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
