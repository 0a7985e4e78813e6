//! Collection of unused paths, so that changes of bindings take no memory for ever.
//!
//! Flow records, packets that wait in queues, and paths (for their accounting paths) count as users of a path.
//! Packets of the current batch, packets that wait for a neighbour, and packets of flows without a record use
//! a path without counting. A path is therefore freed only if it had no user at two successive visits, and
//! nothing used it between them: the visits are at least [`PERIOD`] apart. Packets that wait at an instance may
//! wait longer, so their paths count as used at the beginning of each pass.

use std::time::Duration;

use millrace_units::{Instant, PathId};

use super::{EMPTY_PATH, Path, Paths};

/// Number of paths up to which nothing is collected.
const LEAST: usize = 1024;
/// Time between the beginnings of two passes: longer than a packet waits for a neighbour.
const PERIOD: Duration = Duration::from_secs(30);
/// Number of paths that one call visits.
const VISITS: usize = 64;

/// Progress of the collection.
#[derive(Debug, Default)]
pub(super) struct Collection {
    /// Ids of freed paths, for new ones.
    free: Vec<PathId>,
    /// Index of the next path of the current pass; `None` between two passes.
    next: Option<usize>,
    /// Earliest beginning of the next pass.
    due: Instant,
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

    /// Notes a use of a path without a user.
    #[inline]
    pub(super) fn touch(&mut self, id: PathId) {
        if let Some(path) = self.paths.get_mut(id.index()) {
            path.quiet = false;
        }
    }

    /// Stores a path under a free id.
    pub(super) fn place(&mut self, path: Path) -> PathId {
        let reused = self.collection.free.pop();
        if let Some(id) = reused
            && let Some(slot) = self.paths.get_mut(id.index())
        {
            *slot = path;
            return id;
        }
        self.paths.push(path);
        PathId((self.paths.len() - 1) as u32)
    }

    /// Whether a call of [`collect`](Self::collect) has work.
    #[inline]
    pub fn wants_collection(&self, now: Instant) -> bool {
        self.collection.next.is_some() || self.ids.len() > LEAST && now >= self.collection.due
    }

    /// Visits some paths, and frees those without users. `waiting` are the paths of the packets that wait at
    /// instances.
    pub fn collect(&mut self, now: Instant, waiting: impl Iterator<Item = PathId>) {
        let start = match self.collection.next {
            Some(next) => next,
            None => {
                waiting.for_each(|id| self.touch(id));
                self.collection.due = now + PERIOD;
                EMPTY_PATH.index() + 1
            }
        };
        let end = self.paths.len().min(start + VISITS);
        (start..end).for_each(|index| self.visit(index));
        self.collection.next = (end < self.paths.len()).then_some(end);
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
        let Path { stages, accounts, .. } = std::mem::replace(path, Path::new([].into()));
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
mod tests {
    use std::collections::HashMap;

    use millrace_plugin_abi::Position;
    use proptest::prelude::*;

    use super::super::tests::stage;
    use super::*;

    /// Stages of the path with this number: two of 40 bindings, one of them at a gate for copies.
    fn stages(number: usize) -> Vec<super::super::Stage> {
        let early = stage(number as u32 % 40, Position::Early);
        let copy = stage(100 + number as u32 / 40, Position::Copy);
        if number.is_multiple_of(3) { vec![early] } else { vec![early, copy] }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// The twin is a map of held paths to their stages.
        #[test]
        fn held_and_recent_paths_keep_their_stages_and_others_are_freed(
            steps in prop::collection::vec((0usize..3, 0usize..4000), 1000..8000),
        ) {
            let mut paths = Paths::default();
            let mut held: HashMap<PathId, (usize, u32)> = HashMap::new();
            let mut now = Instant::ZERO;
            for (step, number) in steps {
                match step {
                    0 => {
                        let id = paths.intern(&stages(number));
                        prop_assert!(held.get(&id).is_none_or(|(own, _)| stages(*own) == stages(number)));
                        paths.hold(id);
                        held.entry(id).or_insert((number, 0)).1 += 1;
                    }
                    1 => {
                        // A path of a packet without a record is valid until the next pass but one.
                        let id = paths.intern(&stages(number));
                        let before = now;
                        while now < before + PERIOD {
                            prop_assert_eq!(paths.stages(id), &stages(number)[..]);
                            now += Duration::from_secs(5);
                            if paths.wants_collection(now) {
                                paths.collect(now, std::iter::empty());
                            }
                        }
                    }
                    _ => {
                        let Some(id) = held.keys().min_by_key(|id| id.0.abs_diff(number as u32)).copied() else {
                            continue;
                        };
                        paths.release(id);
                        let count = &mut held.get_mut(&id).unwrap().1;
                        *count -= 1;
                        if *count == 0 {
                            held.remove(&id);
                        }
                    }
                }
            }
            for (id, (number, _)) in &held {
                let accounts = (paths.account(*id), paths.account_of_copies(*id));
                prop_assert_eq!(paths.stages(*id), &stages(*number)[..]);
                let part = |copies| {
                    let mut part = stages(*number);
                    part.retain(|stage| (stage.position == Position::Copy) == copies);
                    part
                };
                prop_assert_eq!(paths.stages(accounts.0), &part(false)[..]);
                prop_assert_eq!(paths.stages(accounts.1), &part(true)[..]);
            }
        }
    }

    #[test]
    fn changing_bindings_need_bounded_memory() {
        let (mut paths, mut now) = (Paths::default(), Instant::ZERO);
        let mut slab = crate::slab::Slab::default();
        let lasting = stage(1, Position::Early);
        let held = paths.intern(&[lasting]);
        paths.hold(held);
        for _ in 0..100_000 {
            // Each binding in the slot has another key.
            slab.put(7, ());
            let changing = super::super::Stage { binding: slab.key(7).unwrap(), ..stage(7, Position::Late) };
            let id = paths.intern(&[lasting, changing]);
            paths.hold(id);
            paths.release(id);
            now += Duration::from_millis(100);
            if paths.wants_collection(now) {
                paths.collect(now, std::iter::once(held));
            }
        }
        assert!(paths.paths.len() < 4 * LEAST, "{} paths", paths.paths.len());
        assert_eq!(paths.stages(held), &[lasting]);
    }

    #[test]
    fn paths_of_packets_at_instances_stay() {
        let mut paths = Paths::default();
        let waiting = paths.intern(&stages(1));
        let others: Vec<PathId> = (2..2000).map(|number| paths.intern(&stages(number))).collect();
        let mut now = Instant::ZERO;
        for _ in 0..1000 {
            now += Duration::from_secs(1);
            paths.collect(now, std::iter::once(waiting));
        }
        assert_eq!(paths.stages(waiting), &stages(1)[..]);
        // The path, its two accounting paths, and the empty path.
        let left = [waiting, paths.account(waiting), paths.account_of_copies(waiting), EMPTY_PATH];
        assert!(others.iter().all(|id| left.contains(id) || paths.stages(*id).is_empty()));
        assert_eq!(paths.len(), left.len());
    }
}
