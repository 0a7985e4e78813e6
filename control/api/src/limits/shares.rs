//! Slots shared by addresses, tokens or users, so that no one of them takes all slots.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Slots for each key, such as an address, a token or a user. All keys have the same number of slots. Clones
/// share the slots.
#[derive(Debug)]
pub(crate) struct Shares<K> {
    each: Arc<Mutex<HashMap<K, Weak<Semaphore>>>>,
    places: usize,
    /// Expected maximum number of keys in use. At twice this number of stored keys, unused keys are removed.
    most: usize,
}

// A derived `Clone` would require `K: Clone`.
impl<K> Clone for Shares<K> {
    fn clone(&self) -> Self {
        Self { each: self.each.clone(), ..*self }
    }
}

impl<K: Eq + Hash> Shares<K> {
    /// Creates slots: `places` for each key. `most` is the number of keys expected to be in use at a time.
    pub fn new(places: usize, most: usize) -> Self {
        Self { each: Arc::default(), places, most }
    }

    /// Returns the slots of a key, as a semaphore.
    pub fn of(&self, key: K) -> Arc<Semaphore> {
        let mut each = self.each.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = each.get(&key).and_then(Weak::upgrade) {
            return places;
        }
        if each.len() >= 2 * self.most {
            each.retain(|_, places| places.strong_count() > 0);
        }
        let places = Arc::new(Semaphore::new(self.places));
        each.insert(key, Arc::downgrade(&places));
        places
    }

    /// Returns the number of stored keys.
    #[cfg(test)]
    pub fn remembered(&self) -> usize {
        self.each.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// Slots of all callers together, with a maximum for each caller. Clones share the slots.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    all: Arc<Semaphore>,
    each: Shares<String>,
    /// Maximum time that a caller waits for a slot.
    pub patience: Duration,
}

/// Slot of a caller, held until dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    pub _own: OwnedSemaphorePermit,
    pub _one: OwnedSemaphorePermit,
}

impl Slots {
    /// Returns `all` free slots, of which one caller may hold `each`. `most` callers are expected at a time.
    pub fn new(all: usize, (each, most): (usize, usize), patience: Duration) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), each: Shares::new(each, most), patience }
    }

    /// Waits for a slot for the caller `who`. A caller that has reached its own maximum delays no other
    /// caller.
    ///
    /// # Errors
    /// If no slot becomes free in time, returns whether the caller holds its own maximum.
    pub async fn enter(&self, who: &str) -> Result<Slot, bool> {
        let share = self.each.of(who.to_owned());
        let entered = async {
            let own = share.clone().acquire_owned().await.ok()?;
            Some(Slot { _own: own, _one: self.all.clone().acquire_owned().await.ok()? })
        };
        let entered = tokio::time::timeout(self.patience, entered).await.ok().flatten();
        entered.ok_or_else(|| share.available_permits() == 0)
    }

    /// Returns the number of free slots.
    #[cfg(test)]
    pub fn free(&self) -> usize {
        self.all.available_permits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_caller_has_a_share_and_idle_callers_are_removed() {
        let shares = Shares::new(2, 10);
        let held = shares.of("a").try_acquire_owned().unwrap();
        assert_eq!(shares.of("a").available_permits(), 1, "one is held");
        assert_eq!(shares.of("b").available_permits(), 2);
        drop(held);
        assert_eq!(shares.of("a").available_permits(), 2);
        let shares = Shares::new(2, 10);
        let held = shares.of(0).try_acquire_owned().unwrap();
        (1..10_000).for_each(|key| drop(shares.of(key)));
        assert!(shares.remembered() <= 20);
        assert_eq!(shares.of(0).available_permits(), 1, "who has one is not");
        drop(held);
    }
}
