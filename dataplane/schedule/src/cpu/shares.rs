//! Shares of principals outside constant-bandwidth servers: absolute shares, and weights in the rest of the capacity.

use super::fair_share::{Discipline, FairShare};

/// Discipline of the absolute shares, under each kind. It alone keeps a great share within a quantum of its
/// due, however many others compete.
const ABSOLUTE: Discipline = Discipline::WorstCaseFair;
/// Member of the absolute shares that stands for all principals with weights.
const WEIGHTED: u32 = 0;

/// Two levels of proportional shares, by number of the principal.
#[derive(Debug)]
pub(super) struct Shares {
    /// Principals with absolute shares (by number plus 1), and [`WEIGHTED`].
    absolute: FairShare,
    weighted: FairShare,
}

/// Share of a principal: in which of the two levels it competes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ShareLevel {
    Absolute,
    Weighted,
}

impl Shares {
    /// Creates shares without members, of which `discipline` divides those with weights.
    pub fn new(discipline: Discipline, quantum: u64) -> Self {
        let mut absolute = FairShare::new(ABSOLUTE, quantum);
        absolute.reserve(WEIGHTED);
        Self { absolute, weighted: FairShare::new(discipline, quantum) }
    }

    /// Adds members without backlog up to `number`, so that later calls allocate nothing.
    pub fn reserve(&mut self, number: u32) {
        self.absolute.reserve(number + 1);
        self.weighted.reserve(number);
    }

    /// Forgets the service that a member without backlog has received.
    pub fn reset(&mut self, number: u32) {
        self.absolute.reset(number + 1);
        self.weighted.reset(number);
    }

    /// Changes the discipline of the weights. Debts stay.
    pub fn set_discipline(&mut self, discipline: Discipline, quantum: u64) {
        self.absolute.set_discipline(ABSOLUTE, quantum);
        self.weighted.set_discipline(discipline, quantum);
    }

    /// Sets the absolute share of a member, in parts per million.
    pub fn set_absolute(&mut self, number: u32, parts: u32) {
        self.absolute.set_weight(number + 1, parts);
    }

    /// Sets the weight of a member.
    pub fn set_weight(&mut self, number: u32, weight: u32) {
        self.weighted.set_weight(number, weight);
    }

    /// Sets the share of all members with weights, in parts per million.
    pub fn set_share_of_weights(&mut self, parts: u32) {
        self.absolute.set_weight(WEIGHTED, parts.max(1));
    }

    /// Adds a member to the backlogged ones.
    #[inline]
    pub fn join(&mut self, level: ShareLevel, number: u32) {
        match level {
            ShareLevel::Absolute => self.absolute.join(number + 1),
            ShareLevel::Weighted => {
                self.weighted.join(number);
                if !self.absolute.contains(WEIGHTED) {
                    self.absolute.join(WEIGHTED);
                }
            }
        }
    }

    /// Removes a member from the backlogged ones.
    #[inline]
    pub fn leave(&mut self, level: ShareLevel, number: u32) {
        match level {
            ShareLevel::Absolute => self.absolute.leave(number + 1),
            ShareLevel::Weighted => {
                self.weighted.leave(number);
                if self.weighted.is_empty() {
                    self.absolute.leave(WEIGHTED);
                }
            }
        }
    }

    /// Charges cycles to a backlogged member.
    #[inline]
    pub fn charge(&mut self, level: ShareLevel, number: u32, cycles: u64) {
        match level {
            ShareLevel::Absolute => self.absolute.charge(number + 1, cycles),
            ShareLevel::Weighted => {
                self.weighted.charge(number, cycles);
                self.absolute.charge(WEIGHTED, cycles);
            }
        }
    }

    /// Returns the cycles that a member has used ahead of its level.
    pub fn debt(&self, level: ShareLevel, number: u32) -> u64 {
        match level {
            ShareLevel::Absolute => self.absolute.debt(number + 1),
            ShareLevel::Weighted => self.weighted.debt(number),
        }
    }

    /// Returns the cycles that a member has used ahead of its share: with a weight, also those that all members with
    /// weights have used ahead of theirs.
    pub fn ahead(&self, level: ShareLevel, number: u32) -> u64 {
        let of_all = if level == ShareLevel::Weighted { self.absolute.debt(WEIGHTED) } else { 0 };
        self.debt(level, number).max(of_all)
    }

    /// Sets the debt of a member without backlog, in cycles.
    pub fn set_debt(&mut self, level: ShareLevel, number: u32, cycles: u64) {
        match level {
            ShareLevel::Absolute => self.absolute.set_debt(number + 1, cycles),
            ShareLevel::Weighted => self.weighted.set_debt(number, cycles),
        }
    }

    /// Whether no member is backlogged.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.absolute.is_empty()
    }

    /// Returns the member that gets the processor next.
    #[inline]
    pub fn next(&mut self) -> Option<u32> {
        match self.absolute.next()? {
            WEIGHTED => self.weighted.next(),
            member => Some(member - 1),
        }
    }

    /// Returns up to two members with weights that get the processor soon, as [`FairShare::prefetch_upcoming`] does.
    #[inline]
    pub fn prefetch_upcoming(&mut self) -> [u32; 2] {
        self.weighted.prefetch_upcoming()
    }
}
