//! Collection: frees unused paths, so that memory doesn't grow when bindings change again and again.
//!
//! Users of a path are flow records, packets in queues, and paths that refer to it as their accounting path.
//! Packets of three kinds use a path without being counted as users: packets of the current batch, packets
//! that wait for a neighbour, and packets of flows without a record.
//!
//! Therefore a path is freed only if it had no user at two successive visits, and was not used between them.
//! The collection visits all paths in passes. A pass begins [`PERIOD`] after the end of the previous pass, so
//! a path stays valid for at least `PERIOD` after its last use. Packets may wait longer than that at an
//! instance. Their paths count as used at the beginning of each pass, and when the packets continue.

use std::time::Duration;

use millrace_units::{Instant, PathId};

use super::{EMPTY_PATH, Path, Paths};

/// Number of paths up to which no path is freed. This number of paths needs about 250 KB.
const LEAST: usize = 1024;
/// Time between two passes. It is longer than a packet waits for a neighbour.
const PERIOD: Duration = Duration::from_secs(30);
/// Maximum number of paths that one call of [`collect`](Paths::collect) visits.
const VISITS: usize = 32;

/// Progress of the collection.
#[derive(Debug)]
pub(super) struct Collection {
    /// Number of paths up to which no path is freed.
    least: usize,
    /// Ids of freed paths, for new paths.
    free: Vec<PathId>,
    /// Index of the next path to visit in the current pass; `None` between two passes.
    next: Option<usize>,
    /// Earliest time of the next pass.
    due: Instant,
}

impl Default for Collection {
    fn default() -> Self {
        Self { least: LEAST, free: Vec::new(), next: None, due: Instant::ZERO }
    }
}

impl Paths {
    /// Adds a user of a path.
    #[inline]
    pub fn hold(&mut self, id: PathId) {
        if let Some(path) = self.paths.get_mut(id.index()) {
            path.users = path.users.saturating_add(1);
        }
    }

    /// Removes a user of a path. The path stays valid for at least [`PERIOD`].
    #[inline]
    pub fn release(&mut self, id: PathId) {
        if let Some(path) = self.paths.get_mut(id.index()) {
            path.users = path.users.saturating_sub(1);
            path.quiet = false;
        }
    }

    /// Returns the number of users of a path; `None` if there is no path of this id.
    pub fn users(&self, id: PathId) -> Option<u32> {
        self.paths.get(id.index()).map(|path| path.users)
    }

    /// Records a use of a path by a packet that doesn't count as a user.
    #[inline]
    pub fn touch(&mut self, id: PathId) {
        if let Some(path) = self.paths.get_mut(id.index()) {
            path.quiet = false;
        }
    }

    /// Stores a path under a free id. Users of the path that had this id before still count as its users
    /// until they release the id.
    pub(super) fn place(&mut self, path: Path) -> PathId {
        let reused = self.collection.free.pop();
        if let Some(id) = reused
            && let Some(slot) = self.paths.get_mut(id.index())
        {
            *slot = Path { users: slot.users, ..path };
            return id;
        }
        self.paths.push(path);
        PathId((self.paths.len() - 1) as u32)
    }

    /// Whether [`collect`](Self::collect) has work to do.
    #[inline]
    pub fn wants_collection(&self, now: Instant) -> bool {
        self.collection.next.is_some() || self.ids.len() > self.collection.least && now >= self.collection.due
    }

    /// Visits the next paths of a pass, and frees those without users that were not used since their last
    /// visit. `waiting` are the paths of packets that wait at instances.
    pub fn collect(&mut self, now: Instant, waiting: impl Iterator<Item = PathId>) {
        let start = match self.collection.next {
            Some(next) => next,
            None => {
                waiting.for_each(|id| self.touch(id));
                EMPTY_PATH.index() + 1
            }
        };
        let end = self.paths.len().min(start + VISITS);
        (start..end).for_each(|index| self.visit(index));
        self.collection.next = (end < self.paths.len()).then_some(end);
        if self.collection.next.is_none() {
            self.collection.due = now + PERIOD;
        }
    }

    /// Visits a path: frees it if it was not used since the last visit.
    fn visit(&mut self, index: usize) {
        let Some(path) = self.paths.get_mut(index) else { return };
        if path.users > 0 {
            path.quiet = false;
            return;
        }
        if !path.quiet {
            path.quiet = true;
            return;
        }
        let id = PathId(index as u32);
        // The index stands for a free id: no path to free.
        if self.ids.get(&path.stages) != Some(&id) {
            return;
        }
        let (stages, accounts) = (std::mem::replace(&mut path.stages, self.empty.clone()), path.accounts);
        *path = Path::new(self.empty.clone());
        self.ids.remove(&stages);
        for account in [accounts.0, accounts.1] {
            if account != id {
                self.release(account);
            }
        }
        self.collection.free.push(id);
    }
}

#[cfg(test)]
mod tests;
