//! Turns of principals at something that serves one of them at a time, such as a plugin process.

use std::time::Duration;

use millrace_units::PrincipalId;

use crate::arena::NONE;
use crate::heap::Heap;
use crate::slots::Slots;

/// Number of fraction bits in the virtual time of a principal with weight 1. The share of a whole processor has less
/// than 60 bits ([`CpuScheduler::share`](super::CpuScheduler::share)), so a nanosecond moves each tag.
const FRACTION: u32 = 64;

/// Member of the turns.
#[derive(Clone, Copy, Debug)]
struct Member {
    /// Start tag of the next turn, in virtual time.
    tag: u128,
    weight: u64,
    /// Part of a virtual time unit, times the weight, that earlier turns left over.
    remainder: u64,
}

impl Member {
    const NEW: Self = Self { tag: 0, weight: 1, remainder: 0 };

    /// Changes the weight, 1 or more. The member's distance to the virtual time stays the same in time of turns.
    fn set_weight(&mut self, weight: u64, virtual_time: u128) {
        let (old, new) = (u128::from(self.weight), u128::from(weight));
        let distance = virtual_time.abs_diff(self.tag);
        let distance = (distance / new).saturating_mul(old).saturating_add(distance % new * old / new);
        self.tag = match self.tag >= virtual_time {
            true => virtual_time.saturating_add(distance),
            false => virtual_time.saturating_sub(distance),
        };
        (self.weight, self.remainder) = (weight, 0);
    }

    /// Charges a turn.
    fn charge(&mut self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let total = (u128::from(nanoseconds) << FRACTION) + u128::from(self.remainder);
        let weight = u128::from(self.weight);
        self.tag = self.tag.saturating_add(total / weight);
        self.remainder = (total % weight) as u64;
    }
}

/// Turns by start-time fair queueing (Goyal, Vin and Cheng, ACM SIGCOMM 1996, section 2): the principal whose next
/// turn starts first in virtual time is next. A turn costs the time that it took, divided by the principal's weight.
///
/// While two principals wait, their times divided by their weights differ by no more than one turn of each. Tags have
/// so many bits that this holds for turns of a nanosecond and for any weights, and that none overflows: a turn of an
/// hour at weight 1 takes a millionth of their range.
#[derive(Debug, Default)]
pub struct CpuTurns {
    members: Slots<Member>,
    /// Position of each principal in the heap; [`NONE`] if it doesn't wait.
    positions: Vec<u32>,
    /// Principals that wait, by start tag.
    waiting: Heap<u128>,
    /// Start tag of the turn in service.
    virtual_time: u128,
}

impl CpuTurns {
    /// Lets a principal wait for its turn. It keeps its weight of an earlier turn, unless `weight`, at least 1, is
    /// another one. Does nothing else if it waits already.
    pub fn join(&mut self, PrincipalId(number): PrincipalId, weight: u64) {
        self.reserve(number);
        let (waits, member) = (self.waits(PrincipalId(number)), &mut self.members[number]);
        let changes = member.weight != weight.max(1);
        if changes {
            member.set_weight(weight.max(1), self.virtual_time);
        }
        match waits {
            true if changes => self.waiting.update(&mut self.positions, member.tag, number),
            true => {}
            false => {
                member.tag = member.tag.max(self.virtual_time);
                self.waiting.push(&mut self.positions, member.tag, number);
            }
        }
    }

    /// Lets a principal wait no longer. Its earlier turns still count while others wait.
    pub fn leave(&mut self, PrincipalId(number): PrincipalId) {
        if !self.waits(PrincipalId(number)) {
            return;
        }
        self.waiting.remove(&mut self.positions, number);
        if self.waiting.is_empty() {
            // Nobody waits for the debts of this busy period.
            self.virtual_time = self.virtual_time.max(self.members[number].tag);
        }
    }

    /// Forgets a principal, and its earlier turns.
    pub fn forget(&mut self, id: PrincipalId) {
        self.leave(id);
        if let Some(member) = self.members.find_mut(id.0) {
            *member = Member::NEW;
        }
    }

    /// Returns the principal whose turn is next; `None` if none waits.
    #[inline]
    pub fn first(&mut self) -> Option<PrincipalId> {
        let (start, number) = self.waiting.first()?;
        self.virtual_time = self.virtual_time.max(start);
        Some(PrincipalId(number))
    }

    /// Charges a turn to a principal, whether it waits or not.
    pub fn charge(&mut self, PrincipalId(number): PrincipalId, took: Duration) {
        self.reserve(number);
        let (waits, member) = (self.waits(PrincipalId(number)), &mut self.members[number]);
        if !waits {
            member.tag = member.tag.max(self.virtual_time);
        }
        member.charge(took);
        if waits {
            self.waiting.update(&mut self.positions, member.tag, number);
        }
    }

    /// Whether a principal waits.
    #[inline]
    pub fn waits(&self, PrincipalId(number): PrincipalId) -> bool {
        self.positions.get(number as usize).is_some_and(|position| *position != NONE)
    }

    /// Adds members up to this number.
    fn reserve(&mut self, number: u32) {
        while self.members.len() <= number as usize {
            self.members.push(Member::NEW);
            self.positions.push(NONE);
        }
        self.waiting.reserve(self.members.len());
    }
}
