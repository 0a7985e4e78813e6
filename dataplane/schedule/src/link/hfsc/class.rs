//! One class of an H-FSC hierarchy.

use std::time::Duration;

use super::curve::{Curve, Curves, Running};
use crate::heap::Heap;

/// Class of the hierarchy. An inner class has an [`Inner`] part in addition. Field comments name the H-FSC
/// paper's variable in brackets.
///
/// Two cache lines hold the links, the states and the link-sharing fields; two more hold the real-time
/// fields. Each criterion fetches one pair of lines.
#[repr(C, align(128))]
#[derive(Clone, Debug)]
pub(crate) struct Class {
    /// Parent class; [`NONE`] for the root.
    pub parent: u32,
    /// Index of the [`Inner`] part; [`NONE`] for a leaf.
    pub inner: u32,
    /// Real-time state: waiting to become eligible, eligible, or in neither heap.
    pub demand: Demand,
    /// Link-sharing state: idle, within the upper limit, or at the upper limit.
    pub sharing: Sharing,
    /// Whether the class has a real-time curve.
    pub has_guarantee: bool,
    /// Waits of the packets of a class with a real-time curve.
    pub waits: Waits,
    pub share: LinkShare,
    pub guarantee: Guarantee,
}

const _: () = assert!(size_of::<Class>() == 256);

/// Times for which packets of a class have waited until now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waits {
    /// Time of the last departure, in nanoseconds.
    departed: u64,
    /// Time in nanoseconds during which at least one packet waited, up to that departure.
    backlogged: u64,
    /// Number of times that a packet began to wait in an empty class.
    periods: u32,
    /// Longest wait of a packet, in units of 1,024 ns.
    longest: u32,
}

/// Logarithm of the unit of [`Waits::longest`] in nanoseconds.
const WAIT_SHIFT: u32 = 10;

impl Waits {
    /// Notes a departure.
    ///
    /// Packets of other flows of the class may leave later and have arrived earlier: then the time before the arrival
    /// of this packet is missing. So the backlog is never too long.
    #[inline]
    pub fn note(&mut self, arrival: u64, now: u64) {
        let waited = now.saturating_sub(arrival);
        self.longest = self.longest.max((waited >> WAIT_SHIFT).min(u32::MAX.into()) as u32);
        if arrival > self.departed {
            self.periods = self.periods.wrapping_add(1);
        }
        self.backlogged += now.saturating_sub(arrival.max(self.departed));
        self.departed = now;
    }

    /// Returns the waits so far.
    pub fn so_far(&self) -> NodeWaits {
        NodeWaits {
            longest: Duration::from_nanos(u64::from(self.longest) << WAIT_SHIFT),
            backlogged: Duration::from_nanos(self.backlogged),
            periods: self.periods,
        }
    }
}

/// Waits of the packets of a node with a real-time curve, since its curves were set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeWaits {
    /// Longest wait of a packet, to about a microsecond.
    pub longest: Duration,
    /// Time during which at least one packet waited, up to the last departure.
    pub backlogged: Duration,
    /// Number of times that a packet began to wait in an empty class; wraps.
    pub periods: u32,
}

/// Virtual time of a class among its siblings, and the curves that determine it.
#[repr(C)]
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkShare {
    /// Virtual curve [V].
    pub running: Running,
    /// Virtual time [v], on the virtual curve.
    pub virtual_time: u64,
    /// Bytes sent by both criteria [w].
    pub total: u64,
    /// Link-sharing service curve.
    pub curve: Option<Curve>,
    /// Virtual time added to the class because its siblings sent while the class was at its upper limit.
    pub adjustment: u64,
    /// Earliest time at which link sharing may choose the class, in nanoseconds. For an inner class, also the
    /// earliest time at which one of its children may send.
    pub fit: u64,
    pub upper_limit: Option<Box<UpperLimit>>,
    /// Number of active periods of the class.
    pub period: u32,
    /// Parent's number of active periods when the class last became active.
    pub parent_period: u32,
}

impl LinkShare {
    /// Restarts the virtual curve at the current virtual time and bytes sent.
    pub fn restart(&mut self) {
        if let Some(curve) = &self.curve {
            self.running = Running::new(curve, self.virtual_time, self.total);
        }
    }

    /// Returns the virtual time that corresponds to the bytes sent so far.
    #[inline]
    pub fn virtual_now(&self) -> u64 {
        match &self.curve {
            Some(curve) => self.running.time_of(curve, self.total).saturating_add(self.adjustment),
            None => self.virtual_time,
        }
    }
}

/// Deadlines of a leaf class, and the real-time curve that determines them.
#[repr(C)]
#[derive(Clone, Debug, Default)]
pub(crate) struct Guarantee {
    /// Deadline curve [D].
    pub deadlines: Running,
    /// Bytes sent by the real-time criterion [c].
    pub cumulative: u64,
    /// Deadline of the next packet [d], in nanoseconds.
    pub deadline: u64,
    /// Bytes sent by the real-time criterion, plus the next packet.
    pub due: u64,
    /// Real-time service curve.
    pub curve: Option<Curve>,
}

impl Guarantee {
    /// Whether the eligible curve differs from the deadline curve. It does if the real-time curve is convex
    /// and has two pieces.
    #[inline]
    pub fn has_flat_start(&self) -> bool {
        self.curve.is_some_and(|curve| curve.duration > 0 && curve.is_convex())
    }
}

/// Upper limit of a class: its upper-limit curve, and the running curve made from it.
#[derive(Clone, Debug)]
pub(crate) struct UpperLimit {
    pub curve: Curve,
    pub running: Running,
    /// Earliest time at which the class may send again, in nanoseconds.
    pub from: u64,
}

impl UpperLimit {
    /// Computes the earliest time of the next packet, after the class has sent `total` bytes by `now`. The
    /// class may make up for unused service only within the bounds of [`MADE_UP`] and [`LATENESS`]. (The
    /// paper has no upper limits. ALTQ, which added them, doesn't bound unused service.)
    #[inline]
    pub fn advance(&mut self, total: u64, now: u64) {
        self.from = self.running.time_of(&self.curve, total);
        let earliest = now.saturating_sub(self.curve.then.time_for(MADE_UP).max(LATENESS));
        if self.from < earliest {
            self.running.move_to(earliest, total);
            self.from = earliest;
        }
    }
}

/// Unused service that a class at its upper limit may make up for, in bytes: two full packets, because other
/// packets may delay the class.
const MADE_UP: u64 = 2 * 1538;
/// Time in nanoseconds: a class at its upper limit may make up for the unused service of this time, if that
/// is more than [`MADE_UP`] bytes. So a caller that is late by up to this time costs the class no service.
const LATENESS: u64 = 1_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Demand {
    None,
    Pending,
    Eligible,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sharing {
    Idle,
    Fit,
    Limited,
}

impl Class {
    pub fn new(parent: u32, inner: u32, curves: &Curves) -> Self {
        let (share, guarantee) = Default::default();
        let (demand, sharing) = (Demand::None, Sharing::Idle);
        let mut class = Self {
            parent,
            inner,
            demand,
            sharing,
            has_guarantee: false,
            waits: Waits::default(),
            share,
            guarantee,
        };
        class.set_curves(curves, 0);
        class
    }

    /// Sets new curves, from `now` on, for an inactive class.
    pub fn set_curves(&mut self, curves: &Curves, now: u64) {
        self.guarantee.curve = curves.real_time;
        self.has_guarantee = curves.real_time.is_some();
        self.waits = Waits::default();
        if let Some(curve) = &curves.real_time {
            self.guarantee.deadlines = Running::new(curve, now, self.guarantee.cumulative);
        }
        self.share.curve = curves.link_sharing;
        self.share.restart();
        let total = self.share.total;
        self.share.upper_limit = curves
            .upper_limit
            .map(|curve| Box::new(UpperLimit { curve, running: Running::new(&curve, now, total), from: 0 }));
    }

    pub fn curves(&self) -> Curves {
        Curves {
            real_time: self.guarantee.curve,
            link_sharing: self.share.curve,
            upper_limit: self.share.upper_limit.as_ref().map(|limit| limit.curve),
        }
    }
}

/// Additional part of an inner class: its children.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inner {
    /// Children that may send, by virtual time.
    pub fit: Heap,
    /// Children at their upper limit, by the time at which they may send again.
    pub limited: Heap,
    /// Number of active children.
    pub active: u32,
    /// Number of all children.
    pub children: u32,
    /// Least virtual time of a chosen child in this active period.
    pub least: u64,
    /// Greatest virtual time among the children that became idle. The next active period starts from this
    /// virtual time.
    pub offset: u64,
}

impl Inner {
    /// Returns the earliest time at which a child may send.
    pub fn fit_time(&self) -> u64 {
        if self.fit.is_empty() { self.limited.first_key() } else { 0 }
    }
}

/// Number of the root class of every hierarchy.
pub(crate) const ROOT: u32 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the time covered by waits, and the number of gaps before them, by one mark for each unit of time.
    fn covered(waits: &[(u64, u64)]) -> (u64, u32) {
        let waits_at =
            |time: &u64| waits.iter().any(|(arrival, departure)| (arrival..departure).contains(&time));
        let end = waits.iter().map(|(_, departure)| *departure).max().unwrap_or(0);
        let marks: Vec<bool> = (0..end).map(|time| waits_at(&time)).collect();
        let begins = |(at, mark): (usize, &bool)| *mark && (at == 0 || !marks[at - 1]);
        let periods = marks.iter().enumerate().filter(|(at, mark)| begins((*at, mark))).count();
        (marks.iter().filter(|mark| **mark).count() as u64, periods as u32)
    }

    #[test]
    fn backlog_is_the_time_covered_by_the_waits_of_packets_in_order() {
        for waits in [
            vec![(5, 9)],
            vec![(5, 9), (6, 12), (12, 13), (20, 25)],
            vec![(1, 4), (2, 4), (3, 30), (29, 31), (40, 41), (50, 60)],
        ] {
            let mut own = Waits::default();
            waits.iter().for_each(|(arrival, departure)| own.note(*arrival, *departure));
            // A packet that arrives when the last one leaves belongs to the same period.
            let (time, periods) = covered(&waits);
            let NodeWaits { backlogged, periods: counted, .. } = own.so_far();
            assert_eq!((backlogged.as_nanos() as u64, counted), (time, periods), "{waits:?}");
        }
    }

    #[test]
    fn packets_of_several_flows_never_lengthen_the_backlog() {
        let waits = [(10, 12), (2, 14), (13, 20), (15, 21)];
        let mut own = Waits::default();
        waits.iter().for_each(|(arrival, departure)| own.note(*arrival, *departure));
        assert!(own.so_far().backlogged.as_nanos() as u64 <= covered(&waits).0);
        assert_eq!(own.so_far().longest, Duration::ZERO, "12 ns are below a unit");
    }
}
