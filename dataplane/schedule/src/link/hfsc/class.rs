//! One class of an H-FSC hierarchy.

use super::curve::{Curve, Curves, Running};
use crate::arena::NONE;
use crate::link::heap::Heap;

/// A leaf class, or the part that leaf and inner classes share. The names in brackets are the paper's.
///
/// Two cache lines for link sharing, two for real time: what one criterion needs of a class comes as a pair of lines.
#[repr(C, align(128))]
#[derive(Clone, Debug)]
pub(crate) struct Class {
    /// The class above; [`NONE`] for the root.
    pub parent: u32,
    /// Its [`Inner`] part; [`NONE`] for a leaf.
    pub inner: u32,
    /// Whether it waits to become eligible, is eligible, or is in neither heap.
    pub demand: Demand,
    /// Whether it takes part in link sharing now, and whether it does so within its upper limit.
    pub sharing: Sharing,
    /// Whether it has a real-time curve.
    pub has_guarantee: bool,
    /// Virtual curve [V], and the virtual time on it [v].
    pub running: Running,
    pub virtual_time: u64,
    /// Bytes sent by either criterion [w].
    pub total: u64,

    pub link_sharing: Option<Curve>,
    /// Added to the virtual time because the class was passed over at its upper limit.
    pub adjustment: u64,
    /// From when on it may send by link sharing; for an inner class, one of its children too.
    pub fit: u64,
    pub upper_limit: Option<Box<UpperLimit>>,
    /// How often it became active, and the parent's count of that when it last did.
    pub period: u32,
    pub parent_period: u32,

    /// Deadline curve [D], bytes sent by the real-time criterion [c], and the deadline of the next packet [d].
    pub deadlines: Running,
    pub cumulative: u64,
    pub deadline: u64,
    /// Bytes that are to be sent by that deadline: those before and the packet itself.
    pub due: u64,
    pub real_time: Option<Curve>,
}

const _: () = assert!(size_of::<Class>() == 256);

/// An upper limit and the curve that runs with it.
#[derive(Clone, Debug)]
pub(crate) struct UpperLimit {
    pub curve: Curve,
    pub running: Running,
    /// From when on the class is within its limit.
    pub from: u64,
}

impl UpperLimit {
    /// The class has sent `total` bytes by `now`. What it left unused while others had their turn it makes up for at once by
    /// [`MADE_UP`] at most. The paper has no upper limits; those who added them (ALTQ) let the unused add up.
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

/// Bytes, of two full packets, that a class at its upper limit makes up for, or what the limit lets through in so many
/// nanoseconds: other packets go before its own, and who sends them may be late.
const MADE_UP: u64 = 2 * 1538;
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
        let mut class = Self {
            parent,
            inner,
            demand: Demand::None,
            sharing: Sharing::Idle,
            has_guarantee: false,
            running: Running::default(),
            virtual_time: 0,
            total: 0,
            link_sharing: None,
            adjustment: 0,
            fit: 0,
            upper_limit: None,
            period: 0,
            parent_period: 0,
            deadlines: Running::default(),
            cumulative: 0,
            deadline: 0,
            due: 0,
            real_time: None,
        };
        class.set_curves(curves, 0);
        class
    }

    /// New curves, from `now` on, for a class that isn't active.
    pub fn set_curves(&mut self, curves: &Curves, now: u64) {
        self.real_time = curves.real_time;
        self.has_guarantee = curves.real_time.is_some();
        self.link_sharing = curves.link_sharing;
        if let Some(curve) = &curves.real_time {
            self.deadlines = Running::new(curve, now, self.cumulative);
        }
        if let Some(curve) = &curves.link_sharing {
            self.running = Running::new(curve, self.virtual_time, self.total);
        }
        self.upper_limit = curves.upper_limit.map(|curve| {
            Box::new(UpperLimit { curve, running: Running::new(&curve, now, self.total), from: 0 })
        });
    }

    pub fn curves(&self) -> Curves {
        Curves {
            real_time: self.real_time,
            link_sharing: self.link_sharing,
            upper_limit: self.upper_limit.as_ref().map(|limit| limit.curve),
        }
    }

    /// Whether the eligible curve differs from the deadline curve: the real-time curve is convex, and bends.
    #[inline]
    pub fn has_flat_start(&self) -> bool {
        self.real_time.is_some_and(|curve| curve.duration > 0 && curve.is_convex())
    }

    /// Virtual time after the bytes sent so far.
    #[inline]
    pub fn virtual_now(&self) -> u64 {
        match &self.link_sharing {
            Some(curve) => self.running.time_of(curve, self.total).saturating_add(self.adjustment),
            None => self.virtual_time,
        }
    }
}

/// What an inner class has beside: its active children.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inner {
    /// Those that may send, by virtual time.
    pub fit: Heap,
    /// Those at their upper limit, by when they may send again.
    pub limited: Heap,
    /// Active children.
    pub active: u32,
    /// Children at all.
    pub children: u32,
    /// The least virtual time that was chosen in this period.
    pub least: u64,
    /// The greatest virtual time of children that went idle: where the next period begins.
    pub offset: u64,
}

impl Inner {
    /// From when on a child may send.
    pub fn fit_time(&self) -> u64 {
        if self.fit.is_empty() { self.limited.first_key() } else { 0 }
    }
}

pub(crate) const ROOT: u32 = 0;
const _: () = assert!(ROOT != NONE);
