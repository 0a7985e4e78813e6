//! H-FSC, the hierarchical fair service curve scheduler: real-time guarantees by deadlines, and link sharing
//! of the remaining rate down a hierarchy of classes (Stoica, Zhang and Ng, 1997).
//!
//! A leaf class with a real-time curve sends by deadline when its packets have become eligible. Otherwise the
//! scheduler descends the hierarchy along the least virtual times. Times are whole nanoseconds, amounts whole
//! bytes on the wire. A class's curve starts at the beginning of the class's last backlog, so rounding errors
//! don't add up from packet to packet.

mod class;
mod curve;
mod link_sharing;
mod real_time;
#[cfg(test)]
mod tests;

use millrace_units::Instant;

pub use class::NodeWaits;
pub use curve::{Curve, Curves};

use super::discipline::Discipline;
use crate::arena::NONE;
use crate::heap::Heap;
use crate::slots::Slots;
pub(crate) use class::ROOT as HIERARCHY_ROOT;
use class::{Class, Inner, ROOT};

/// Criterion that chose the next leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Criterion {
    RealTime,
    #[default]
    LinkSharing,
}

/// Hierarchy of classes. Class 0 is the root. The slot of a child is the number of its class.
#[derive(Debug, Default)]
pub(crate) struct Hfsc {
    classes: Slots<Class>,
    inners: Slots<Inner>,
    /// Leaves that wait to become eligible, ordered by eligible time.
    pending: Heap,
    /// Eligible leaves, ordered by deadline.
    eligible: Heap,
    /// Tree node of each class. This is a separate slice, because it is read before the classes.
    children: Slots<Child>,
    /// Whether any class ever had a real-time curve.
    has_guarantees: bool,
    demand_places: Vec<u32>,
    sharing_places: Vec<u32>,
    criterion: Criterion,
}

impl Hfsc {
    /// Creates a hierarchy with only its root, the class of the tree's node `node`.
    pub fn new(node: u32) -> Self {
        let mut hierarchy = Self::default();
        hierarchy.insert(NONE, Child { node, queue: NONE }, &Curves::default(), true);
        hierarchy
    }

    /// Adds a class below `parent`. Returns its number.
    pub fn insert(&mut self, parent: u32, child: Child, curves: &Curves, is_inner: bool) -> u32 {
        let inner = if is_inner { self.inners.insert(Inner::default()) } else { NONE };
        let class = Class::new(parent, inner, curves);
        self.has_guarantees |= class.has_guarantee;
        // Child and class are always inserted and released together, so they have the same number.
        let (index, _) = (self.classes.insert(class), self.children.insert(child));
        for places in [&mut self.demand_places, &mut self.sharing_places] {
            places.resize(self.classes.len(), NONE);
        }
        self.make_room(parent);
        index
    }

    /// Counts a new child and reserves space for it in the heaps, so that later packets allocate nothing.
    fn make_room(&mut self, parent: u32) {
        self.pending.reserve(self.classes.len());
        self.eligible.reserve(self.classes.len());
        let Some(class) = self.classes.find(parent) else { return };
        let inner = &mut self.inners[class.inner];
        inner.children += 1;
        let children = inner.children as usize;
        for heap in [&mut inner.fit, &mut inner.limited] {
            heap.reserve(children);
        }
    }

    /// Removes an inactive class without children.
    pub fn remove(&mut self, index: u32) {
        let Class { parent, inner, .. } = self.classes[index];
        if let Some(class) = self.classes.find(parent) {
            self.inners[class.inner].children -= 1;
        }
        if inner != NONE {
            self.inners.release(inner);
        }
        self.classes[index].parent = NONE;
        self.classes.release(index);
        self.children.release(index);
    }

    /// Moves an inactive class below another parent, with new curves from `now` on.
    pub fn move_below(&mut self, index: u32, parent: u32, curves: &Curves, now: Instant) {
        let before = self.classes[index].parent;
        if let Some(class) = self.classes.find(before) {
            self.inners[class.inner].children -= 1;
        }
        let class = &mut self.classes[index];
        class.parent = parent;
        class.share.virtual_time = 0;
        class.share.parent_period = 0;
        class.share.restart();
        self.make_room(parent);
        self.set_curves(index, curves, now);
    }

    /// Sets new curves of an inactive class, from `now` on. The virtual time of the class restarts among its
    /// siblings, because the old value refers to the old curves.
    pub fn set_curves(&mut self, index: u32, curves: &Curves, now: Instant) {
        let parent = self.classes[index].parent;
        let period = self.classes.find(parent).map_or(0, |parent| parent.share.period);
        let class = &mut self.classes[index];
        class.set_curves(curves, now.as_nanos());
        class.share.parent_period = period.wrapping_sub(1);
        self.has_guarantees |= curves.real_time.is_some();
    }

    /// Returns the node of the root class.
    #[inline]
    pub fn root_node(&self) -> u32 {
        self.child(ROOT)
    }

    /// Returns the curves of a class.
    pub fn curves(&self, index: u32) -> Curves {
        self.classes[index].curves()
    }

    /// Notes how long a packet of a leaf class, or of a node below its node, waited, if the class has a real-time curve.
    #[inline]
    pub fn note_wait(&mut self, index: u32, arrival: Instant, now: Instant) {
        let class = &mut self.classes[index];
        if class.has_guarantee {
            class.waits.note(arrival.as_nanos(), now.as_nanos());
        }
    }

    /// Returns the waits of the packets of a class; `None` without a real-time curve.
    pub fn waits(&self, index: u32) -> Option<NodeWaits> {
        let class = self.classes.find(index).filter(|class| class.has_guarantee)?;
        Some(class.waits.so_far())
    }

    /// Returns the parent of a class.
    pub fn parent(&self, index: u32) -> u32 {
        self.classes[index].parent
    }

    /// Whether an inner class has children.
    pub fn has_children(&self, index: u32) -> bool {
        let inner = self.classes.find(index).map(|class| class.inner);
        inner.and_then(|inner| self.inners.find(inner)).is_some_and(|inner| inner.children > 0)
    }

    /// Iterates over all classes in use except the root, with their numbers.
    pub fn classes(&self) -> impl Iterator<Item = (u32, &Class)> {
        let all = self.classes.all().iter().enumerate().skip(1);
        all.filter(|(_, class)| class.parent != NONE).map(|(index, class)| (index as u32, class))
    }

    /// Returns the class that last [rose](Heap::risen) near the head of each heap. These classes are likely
    /// to send soon.
    #[inline]
    fn near(&self) -> [u32; 3] {
        let sharing = self.inners.find(0).map_or(NONE, |root| root.fit.risen());
        [self.eligible.risen(), self.pending.risen(), sharing]
    }

    /// Prefetches the classes that are [likely to send soon](Self::near). Calls `visit` with the [`Child`] of
    /// each.
    #[inline]
    pub fn fetch_ahead(&self, mut visit: impl FnMut(Child)) {
        for index in self.near() {
            let (Some(class), Some(child)) = (self.classes.find(index), self.children.find(index)) else {
                continue;
            };
            millrace_memory::prefetch(class);
            millrace_memory::prefetch(&class.share.curve);
            if self.has_guarantees {
                millrace_memory::prefetch(&class.guarantee.deadlines);
                millrace_memory::prefetch(&class.guarantee.curve);
            }
            visit(*child);
        }
    }

    /// Returns the child that would be chosen next, if no other child becomes active and no time passes.
    #[inline]
    pub fn next_child(&self) -> Option<Child> {
        let sharing = self.inners.find(0).and_then(|root| root.fit.first());
        let (_, first) = self.eligible.first().or(sharing).or_else(|| self.pending.first())?;
        self.children.find(first).copied()
    }
}

/// Tree node of a class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Child {
    /// Node of the tree.
    pub node: u32,
    /// Queue of the node, if the node is a FIFO.
    pub queue: u32,
}

impl Discipline for Hfsc {
    #[inline]
    fn activate(&mut self, slot: u32, length: u32, now: Instant) {
        self.demand_begins(slot, length, now.as_nanos());
        self.sharing_begins(slot, now.as_nanos());
    }

    fn deactivate(&mut self, slot: u32, now: Instant) {
        self.demand_ends(slot);
        self.sharing_served(slot, 0, false, now.as_nanos());
    }

    #[inline]
    fn choose(&mut self, now: Instant) -> Option<u32> {
        let now = now.as_nanos();
        if let Some(leaf) = self.most_urgent(now) {
            self.criterion = Criterion::RealTime;
            return Some(leaf);
        }
        self.criterion = Criterion::LinkSharing;
        self.fairest(now)
    }

    #[inline]
    fn served(&mut self, slot: u32, bytes: u32, next: Option<u32>, now: Instant) {
        let counted = if self.criterion == Criterion::RealTime { bytes } else { 0 };
        self.demand_served(slot, counted, next, now.as_nanos());
        self.sharing_served(slot, bytes, next.is_some(), now.as_nanos());
    }

    #[inline]
    fn next_ready(&mut self) -> Instant {
        if !self.eligible.is_empty() {
            return Instant::ZERO;
        }
        let sharing = self.inners.find(0).map_or(u64::MAX, Inner::fit_time);
        Instant::from_nanos(sharing.min(self.pending.first_key()))
    }

    #[inline]
    fn child(&self, slot: u32) -> u32 {
        self.children[slot].node
    }
}
