//! Collection of unused paths, so that changes of bindings take no memory for ever.
//!
//! Flow records, packets that wait in queues, and paths (for their accounting paths) count as users of a path.
//! Packets of the current batch, packets that wait for a neighbour, and packets of flows without a record use
//! a path without counting. A path is therefore freed only if it had no user at two successive visits, and
//! nothing used it between them: a pass begins [`PERIOD`] after the end of the previous one, so a path stays
//! valid for that time after its last use. Packets that wait at an instance may wait longer, so their paths
//! count as used at the beginning of each pass, and when the packets continue.

use std::time::Duration;

use millrace_units::{Instant, PathId};

use super::{EMPTY_PATH, Path, Paths};

/// Number of paths up to which nothing is collected. They take some 250 KB.
const LEAST: usize = 1024;
/// Time from the end of a pass to the beginning of the next: longer than a packet waits for a neighbour.
const PERIOD: Duration = Duration::from_secs(30);
/// Number of paths that one call visits, and frees at most.
const VISITS: usize = 32;

/// Progress of the collection.
#[derive(Debug)]
pub(super) struct Collection {
    /// Number of paths up to which nothing is collected.
    least: usize,
    /// Ids of freed paths, for new ones.
    free: Vec<PathId>,
    /// Index of the next path of the current pass; `None` between two passes.
    next: Option<usize>,
    /// Earliest beginning of the next pass.
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

    /// Removes a user of a path. The path stays valid for a while.
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

    /// Notes a use of a path by something that doesn't count as a user.
    #[inline]
    pub fn touch(&mut self, id: PathId) {
        if let Some(path) = self.paths.get_mut(id.index()) {
            path.quiet = false;
        }
    }

    /// Stores a path under a free id. Users of the id's former path stay counted until they release it.
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

    /// Whether a call of [`collect`](Self::collect) has work.
    #[inline]
    pub fn wants_collection(&self, now: Instant) -> bool {
        self.collection.next.is_some() || self.ids.len() > self.collection.least && now >= self.collection.due
    }

    /// Visits some paths, and frees those without users. `waiting` are the paths of the packets that wait at
    /// instances.
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

    /// Frees a path that stayed without users since the last visit.
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
        // A path that is free already is not found.
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
