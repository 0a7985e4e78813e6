//! Proportional shares among backlogged members: start-time fair queueing, WF2Q+ and stride scheduling.
//!
//! Each member has a tag in virtual time: the start tag of its next slice while it is backlogged, and the end
//! of its last slice otherwise. A slice of `c` cycles moves the tag of a member of weight `w` by `c / w`. The
//! disciplines differ in the virtual time and in the choice:
//!
//! | discipline | virtual time | choice |
//! |---|---|---|
//! | start-time fair queueing | start tag of the slice in service | lowest start tag |
//! | WF2Q+ | grows by cycles / sum of backlogged weights, and to the lowest start tag | lowest finish tag among start tags up to the virtual time |
//! | stride | global pass: grows by cycles / sum of backlogged weights | lowest start tag (pass) |
//!
//! A member that becomes backlogged again starts at the virtual time at the earliest, so it has no credit
//! from the time without backlog. A tag ahead of the virtual time, the debt of a long slice, stays.

use millrace_memory::prefetch_slice_element;

use crate::arena::NONE;
use crate::heap::Heap;
use crate::slots::Slots;

/// Number of fraction bits in virtual time.
const FRACTION: u32 = 12;
/// Virtual time at which all tags are lowered, so that they never overflow.
const REBASE_AT: u64 = 1 << 62;
/// Greatest debt in virtual time. It leaves room for further slices below the greatest `u64`.
const MOST_DEBT: u64 = 1 << 61;
/// Longest slice that is charged at once, in cycles: hours.
const LONGEST_SLICE: u64 = 1 << 45;

/// Discipline of proportional shares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Discipline {
    StartTimeFair,
    WorstCaseFair,
    Stride,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    weight: u32,
    /// Part of a virtual time unit, times the weight, that earlier charges left over.
    remainder: u32,
    tag: u64,
}

impl Member {
    /// Returns the virtual time of a slice, and keeps the fraction for the next one.
    #[inline]
    fn advance(&mut self, cycles: u64) -> u64 {
        let total = (cycles << FRACTION) + u64::from(self.remainder);
        let weight = u64::from(self.weight);
        self.remainder = (total % weight) as u32;
        total / weight
    }

    /// Changes the weight, 1 or more. The member's distance to the virtual time stays the same in cycles
    /// (Waldspurger and Weihl, 1995, section 3.2).
    fn set_weight(&mut self, weight: u32, virtual_time: u64) {
        let cycles = |distance: u64| u128::from(distance) * u128::from(self.weight);
        let behind = cycles(virtual_time.saturating_sub(self.tag)) / u128::from(weight);
        let ahead = cycles(self.tag.saturating_sub(virtual_time)) + u128::from(self.remainder);
        if self.tag >= virtual_time {
            self.tag = virtual_time + debt(ahead / u128::from(weight));
        } else {
            self.tag = virtual_time.saturating_sub(u64::try_from(behind).unwrap_or(u64::MAX));
        }
        (self.weight, self.remainder) = (weight, (ahead % u128::from(weight)) as u32);
    }
}

/// Bounds a debt in virtual time.
fn debt(distance: u128) -> u64 {
    u64::try_from(distance).unwrap_or(u64::MAX).min(MOST_DEBT)
}

/// Members that share processor time in proportion to their weights.
#[derive(Debug)]
pub(super) struct FairShare {
    discipline: Discipline,
    members: Slots<Member>,
    /// Position of each member in its heap; [`NONE`] without backlog.
    positions: Vec<u32>,
    /// Backlogged members by start tag; for WF2Q+ those with a start tag after the virtual time.
    waiting: Heap,
    /// WF2Q+: backlogged members with a start tag up to the virtual time, by finish tag.
    eligible: Heap,
    virtual_time: u64,
    /// Sum of the weights of backlogged members.
    backlogged: u64,
    /// Fraction that the advance of virtual time left over, times `backlogged`.
    remainder: u64,
    quantum: u64,
}

impl FairShare {
    /// Creates shares without members. WF2Q+ predicts finish tags with slices of `quantum` cycles.
    pub fn new(discipline: Discipline, quantum: u64) -> Self {
        Self {
            discipline,
            members: Slots::default(),
            positions: Vec::new(),
            waiting: Heap::default(),
            eligible: Heap::default(),
            virtual_time: 0,
            backlogged: 0,
            remainder: 0,
            quantum: quantum.min(LONGEST_SLICE),
        }
    }

    /// Adds members without backlog up to number `member`, so that later calls allocate nothing.
    pub fn reserve(&mut self, member: u32) {
        while self.members.len() <= member as usize {
            self.members.push(Member { weight: 1, remainder: 0, tag: 0 });
            self.positions.push(NONE);
        }
        self.waiting.reserve(self.members.len());
        self.eligible.reserve(self.members.len());
    }

    /// Sets the weight of a member, 1 or more. The member keeps its debt in cycles, so a new weight takes
    /// effect at once.
    pub fn set_weight(&mut self, member: u32, weight: u32) {
        let slot = &mut self.members[member];
        let old = slot.weight;
        if old == weight {
            return;
        }
        slot.set_weight(weight, self.virtual_time);
        if self.contains(member) {
            self.set_backlogged(self.backlogged - u64::from(old) + u64::from(weight));
            self.reorder(member);
        }
    }

    /// Forgets the service that a member without backlog has received.
    pub fn reset(&mut self, member: u32) {
        self.members[member] = Member { weight: 1, remainder: 0, tag: 0 };
    }

    /// Returns the cycles that a member has used ahead of the virtual time.
    pub fn debt(&self, member: u32) -> u64 {
        let Member { weight, tag, .. } = self.members[member];
        let cycles = (u128::from(tag.saturating_sub(self.virtual_time)) * u128::from(weight)) >> FRACTION;
        u64::try_from(cycles).unwrap_or(u64::MAX)
    }

    /// Sets the debt of a member without backlog, in cycles.
    pub fn set_debt(&mut self, member: u32, cycles: u64) {
        let slot = &mut self.members[member];
        slot.tag = self.virtual_time + debt((u128::from(cycles) << FRACTION) / u128::from(slot.weight));
    }

    /// Whether the member is backlogged.
    #[inline]
    pub fn contains(&self, member: u32) -> bool {
        self.positions.get(member as usize).is_some_and(|position| *position != NONE)
    }

    /// Whether no member is backlogged.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() & self.eligible.is_empty()
    }

    /// Adds a member to the backlogged ones.
    #[inline]
    pub fn join(&mut self, member: u32) {
        let slot = &mut self.members[member];
        slot.tag = slot.tag.max(self.virtual_time);
        let weight = slot.weight;
        self.set_backlogged(self.backlogged + u64::from(weight));
        self.enlist(member);
    }

    /// Removes a member from the backlogged ones.
    #[inline]
    pub fn leave(&mut self, member: u32) {
        let Member { weight, tag, .. } = self.members[member];
        self.set_backlogged(self.backlogged - u64::from(weight));
        self.delist(member);
        if self.is_empty() {
            // The end of a busy period: nobody waits for the debts of this one.
            self.virtual_time = self.virtual_time.max(tag);
        }
    }

    /// Returns the member that gets the processor next.
    #[inline]
    pub fn next(&mut self) -> Option<u32> {
        if self.discipline == Discipline::WorstCaseFair {
            self.promote();
            return self.eligible.first().map(|(_, member)| member);
        }
        let (start, member) = self.waiting.first()?;
        if self.discipline == Discipline::StartTimeFair {
            self.virtual_time = self.virtual_time.max(start);
        }
        Some(member)
    }

    /// Returns up to two members that get the processor soon, and prefetches them; [`NONE`] for others. While
    /// others are served, each member comes up here before its turn: under WF2Q+ among the eligible members, or
    /// before it becomes eligible.
    #[inline]
    pub fn prefetch_upcoming(&mut self) -> [u32; 2] {
        let upcoming = [self.eligible.take_risen(), self.waiting.take_risen()];
        upcoming.iter().for_each(|member| self.prefetch(*member));
        upcoming
    }

    #[inline]
    fn prefetch(&self, member: u32) {
        prefetch_slice_element(self.members.all(), member as usize);
        prefetch_slice_element(&self.positions, member as usize);
    }

    /// Charges cycles to a member, whether it is backlogged or not.
    #[inline]
    pub fn charge(&mut self, member: u32, cycles: u64) {
        let cycles = cycles.min(LONGEST_SLICE);
        if self.discipline != Discipline::StartTimeFair && self.backlogged > 0 {
            let total = (cycles << FRACTION) + self.remainder;
            self.virtual_time += total / self.backlogged;
            self.remainder = total % self.backlogged;
        }
        let is_backlogged = self.contains(member);
        let slot = &mut self.members[member];
        if !is_backlogged {
            slot.tag = slot.tag.max(self.virtual_time);
        }
        slot.tag = slot.tag.saturating_add(slot.advance(cycles));
        if is_backlogged {
            self.reorder(member);
        }
        if self.virtual_time >= REBASE_AT {
            self.rebase();
        }
    }

    /// Changes the discipline. Tags stay, so debts stay.
    pub fn set_discipline(&mut self, discipline: Discipline, quantum: u64) {
        let numbers = 0..self.members.len() as u32;
        let backlogged: Vec<u32> = numbers.filter(|member| self.contains(*member)).collect();
        for member in &backlogged {
            self.delist(*member);
        }
        (self.discipline, self.quantum) = (discipline, quantum.min(LONGEST_SLICE));
        for member in backlogged {
            self.enlist(member);
        }
    }

    /// Sets the sum of backlogged weights.
    #[inline]
    fn set_backlogged(&mut self, weights: u64) {
        self.backlogged = weights;
        // A remainder of a greater sum would be more than a unit of virtual time.
        self.remainder = self.remainder.min(weights.saturating_sub(1));
    }

    /// Puts a member into the heap of its start tag.
    fn enlist(&mut self, member: u32) {
        let start = self.members[member].tag;
        if self.discipline == Discipline::WorstCaseFair && start <= self.virtual_time {
            let finish = self.finish(member);
            self.eligible.push(&mut self.positions, finish, member);
        } else {
            self.waiting.push(&mut self.positions, start, member);
        }
    }

    fn delist(&mut self, member: u32) {
        match self.is_eligible(member) {
            true => self.eligible.remove(&mut self.positions, member),
            false => self.waiting.remove(&mut self.positions, member),
        }
    }

    /// Puts a backlogged member in order after its tag or its weight changed.
    fn reorder(&mut self, member: u32) {
        if self.discipline == Discipline::WorstCaseFair {
            self.delist(member);
            self.enlist(member);
        } else {
            let tag = self.members[member].tag;
            self.waiting.update(&mut self.positions, tag, member);
        }
    }

    /// Whether a backlogged member is in the heap of eligible members.
    fn is_eligible(&self, member: u32) -> bool {
        self.eligible.contains(&self.positions, member)
    }

    /// Returns the finish tag of a member's next slice, if it takes a quantum.
    fn finish(&self, member: u32) -> u64 {
        let Member { weight, tag, .. } = self.members[member];
        tag + (self.quantum << FRACTION) / u64::from(weight)
    }

    /// WF2Q+: moves virtual time to the lowest start tag if no member is eligible, and makes all members with
    /// a start tag up to the virtual time eligible.
    fn promote(&mut self) {
        if self.eligible.is_empty()
            && let Some((start, _)) = self.waiting.first()
        {
            self.virtual_time = self.virtual_time.max(start);
        }
        while let Some((start, member)) = self.waiting.first()
            && start <= self.virtual_time
        {
            self.waiting.remove(&mut self.positions, member);
            self.prefetch(self.waiting.risen());
            let finish = self.finish(member);
            self.eligible.push(&mut self.positions, finish, member);
        }
    }

    /// Lowers all tags and the virtual time. Tags behind the virtual time keep their distance. This happens
    /// once in days, and takes a millisecond for 100,000 members.
    #[cold]
    fn rebase(&mut self) {
        let by = REBASE_AT / 2;
        self.waiting.lower(by);
        self.eligible.lower(by);
        for member in self.members.all_mut() {
            member.tag = member.tag.saturating_sub(by);
        }
        self.virtual_time -= by;
    }
}
