//! Link-sharing criterion: from the root down, it chooses the active child with the least virtual time,
//! within the upper limits (section IV.C of the H-FSC paper).
//!
//! A class that becomes active begins at the least virtual time of its siblings, as in start-time fair
//! queueing (Goyal, Vin and Cheng, 1996). So the virtual times of two siblings differ by at most a packet of
//! each. The paper begins at the mean of the least and the greatest virtual time instead. But virtual time
//! also counts the bytes sent by the real-time criterion. So a class with a guarantee far above its share
//! runs ahead of its siblings without bound. With the mean, each class that becomes active would start far
//! ahead as well.

use super::Hfsc;
use super::class::{Class, Inner, LinkShare, ROOT, Sharing};
use crate::arena::NONE;

/// Virtual time above which the virtual times of all siblings are lowered.
const HORIZON: u64 = 1 << 62;

impl Hfsc {
    /// Activates a leaf that became backlogged, and its idle ancestors.
    pub(super) fn sharing_begins(&mut self, leaf: u32, now: u64) {
        if self.classes[leaf].share.curve.is_none() {
            return;
        }
        let mut index = leaf;
        while self.classes[index].parent != NONE {
            let parent = self.classes[index].parent;
            self.enter(index, now);
            let inner = self.inner_mut(parent);
            inner.active += 1;
            if inner.active > 1 {
                return self.refit_above(index, now);
            }
            index = parent;
        }
        let root = &mut self.classes[ROOT];
        root.share.period = root.share.period.wrapping_add(1);
    }

    /// Activates a class: sets its virtual time and inserts it among its siblings.
    fn enter(&mut self, index: u32, now: u64) {
        let parent = self.classes[index].parent;
        let Class { inner, share: LinkShare { period, .. }, .. } = self.classes[parent];
        self.admit(inner, now);
        let inner = &mut self.inners[inner];
        let class = &self.classes[index];
        let virtual_time = if inner.active > 0 {
            let least = inner.fit.first().map_or(inner.least, |(least, _)| least.max(inner.least));
            if class.share.parent_period == period { class.share.virtual_time.max(least) } else { least }
        } else {
            inner.least = inner.offset;
            inner.offset
        };
        // The parent's next period begins when the parent becomes active.
        let coming = if inner.active == 0 { period.wrapping_add(1) } else { period };
        let class = &mut self.classes[index];
        class.share.virtual_time = virtual_time;
        class.share.adjustment = 0;
        class.share.period = class.share.period.wrapping_add(1);
        class.share.parent_period = coming;
        if let Some(curve) = class.share.curve {
            class.share.running.cut(&curve, virtual_time, class.share.total);
        }
        if let Some(limit) = &mut class.share.upper_limit {
            let curve = limit.curve;
            limit.running.cut(&curve, now, class.share.total);
            limit.from = limit.running.time_of(&curve, class.share.total);
        }
        self.place(index, now);
    }

    /// Inserts an active class among its siblings, by its [`fit`](LinkShare::fit) time and virtual time.
    /// Returns whether the fit time changed.
    #[inline]
    fn place(&mut self, index: u32, now: u64) -> bool {
        let own = match &self.classes[index].share.upper_limit {
            Some(limit) => limit.from,
            None => 0,
        };
        let inner = self.classes[index].inner;
        let children = if inner == NONE { 0 } else { self.inners[inner].fit_time() };
        let fit = own.max(children);
        let class = &mut self.classes[index];
        let changed = std::mem::replace(&mut class.share.fit, fit) != fit;
        let after = if fit <= now { Sharing::Fit } else { Sharing::Limited };
        let before = std::mem::replace(&mut class.sharing, after);
        let key = if after == Sharing::Fit { class.share.virtual_time } else { fit };
        let parent = class.parent;
        let inner = &mut self.inners[self.classes[parent].inner];
        let heap = if after == Sharing::Fit { &mut inner.fit } else { &mut inner.limited };
        if before == after {
            heap.update(&mut self.sharing_places, key, index);
            return changed;
        }
        match before {
            Sharing::Idle => {}
            Sharing::Fit => inner.fit.remove(&mut self.sharing_places, index),
            Sharing::Limited => inner.limited.remove(&mut self.sharing_places, index),
        }
        let heap = if after == Sharing::Fit { &mut inner.fit } else { &mut inner.limited };
        heap.push(&mut self.sharing_places, key, index);
        changed || before != after
    }

    /// Updates the [`fit`](LinkShare::fit) times of a class's ancestors.
    fn refit_above(&mut self, index: u32, now: u64) {
        let mut index = self.classes[index].parent;
        while self.classes[index].parent != NONE {
            if self.classes[index].sharing == Sharing::Idle || !self.place(index, now) {
                return;
            }
            index = self.classes[index].parent;
        }
    }

    /// Counts `bytes` that either criterion sent from a leaf, at all classes from the leaf to the root.
    /// `more`: whether the leaf is still backlogged.
    #[inline]
    pub(super) fn sharing_served(&mut self, leaf: u32, bytes: u32, more: bool, now: u64) {
        let mut ended = !more && self.classes[leaf].sharing != Sharing::Idle;
        let mut index = leaf;
        loop {
            let class = &mut self.classes[index];
            class.share.total += u64::from(bytes);
            let (parent, inner) = (class.parent, class.inner);
            if ended && inner != NONE {
                let inner = &mut self.inners[inner];
                inner.active -= 1;
                ended = inner.active == 0;
            }
            if parent == NONE {
                return;
            }
            if class.sharing == Sharing::Idle {
                // Bytes that a guarantee sends below an idle class don't count for the class's share.
                class.share.running.pass_over(bytes.into());
            } else {
                self.advance(index, now);
                if ended {
                    self.leave(index);
                } else {
                    self.place(index, now);
                }
            }
            index = parent;
        }
    }

    /// Advances the virtual time of an active class to match its bytes sent.
    #[inline]
    fn advance(&mut self, index: u32, now: u64) {
        let class = &mut self.classes[index];
        class.share.virtual_time = class.share.virtual_now();
        let total = class.share.total;
        if let Some(limit) = &mut class.share.upper_limit {
            limit.advance(total, now);
        }
        let (parent, virtual_time) = (class.parent, class.share.virtual_time);
        let least = self.inner_mut(parent).least;
        if virtual_time < least {
            // The class was at its upper limit while siblings sent. It must not make up for the missed
            // service.
            let class = &mut self.classes[index];
            class.share.adjustment = class.share.adjustment.saturating_add(least - virtual_time);
            class.share.virtual_time = least;
        } else if virtual_time > HORIZON {
            self.lower_virtual_times(parent);
        }
    }

    /// Deactivates a class.
    fn leave(&mut self, index: u32) {
        let class = &mut self.classes[index];
        let (parent, virtual_time) = (class.parent, class.share.virtual_time);
        let before = std::mem::replace(&mut class.sharing, Sharing::Idle);
        let inner = &mut self.inners[self.classes[parent].inner];
        inner.offset = inner.offset.max(virtual_time);
        match before {
            Sharing::Idle => {}
            Sharing::Fit => inner.fit.remove(&mut self.sharing_places, index),
            Sharing::Limited => inner.limited.remove(&mut self.sharing_places, index),
        }
    }

    /// Returns the leaf that link sharing chooses; `None` if no leaf is within its upper limits.
    #[inline]
    pub(super) fn fairest(&mut self, now: u64) -> Option<u32> {
        let mut index = ROOT;
        loop {
            let inner = self.classes[index].inner;
            if inner == NONE {
                return Some(index);
            }
            self.admit(inner, now);
            let inner = &mut self.inners[inner];
            let (virtual_time, child) = inner.fit.first()?;
            inner.least = inner.least.max(virtual_time);
            index = child;
        }
    }

    /// Moves children from `limited` to `fit` once their upper limit allows them to send again.
    #[inline]
    fn admit(&mut self, inner: u32, now: u64) {
        let inner = &mut self.inners[inner];
        while let Some((from, child)) = inner.limited.first() {
            if from > now {
                return;
            }
            inner.limited.remove(&mut self.sharing_places, child);
            let class = &mut self.classes[child];
            class.sharing = Sharing::Fit;
            inner.fit.push(&mut self.sharing_places, class.share.virtual_time, child);
        }
    }

    /// Lowers the virtual times of all children of a class by the same amount, before they overflow. Overflow
    /// takes years at usual rates. It takes minutes if a class with a share of a few bits per second gets a
    /// whole fast link.
    #[cold]
    fn lower_virtual_times(&mut self, parent: u32) {
        let inner = &mut self.inners[self.classes[parent].inner];
        let by = inner.least;
        inner.least = 0;
        inner.offset = inner.offset.saturating_sub(by);
        inner.fit.lower(by);
        for class in self.classes.all_mut().iter_mut().filter(|class| class.parent == parent) {
            class.share.virtual_time = class.share.virtual_time.saturating_sub(by);
            class.share.adjustment = 0;
            class.share.running.move_to(class.share.virtual_time, class.share.total);
        }
    }

    #[inline]
    fn inner_mut(&mut self, class: u32) -> &mut Inner {
        &mut self.inners[self.classes[class].inner]
    }
}
