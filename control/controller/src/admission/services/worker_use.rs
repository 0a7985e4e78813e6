//! Use of single workers: by services that are pinned to a worker, and by what all workers share.

use std::collections::BTreeMap;

/// Processor time that services use of each worker, in parts per million of a processor.
#[derive(Clone, Debug)]
pub(super) struct WorkerUse {
    /// Number of workers.
    workers: u64,
    /// Time of each worker that may be promised.
    whole: f64,
    /// Time at all workers together, of which each has the same part.
    spread: u64,
    /// Time at single workers.
    pinned: BTreeMap<u16, u64>,
    /// Number of services, whose times are each rounded up.
    services: u64,
}

impl WorkerUse {
    /// Returns workers without a use. `whole` is the time of all workers together.
    pub fn new(workers: usize, whole: f64) -> Self {
        let workers = workers.max(1) as u64;
        Self { workers, whole: whole / workers as f64, spread: 0, pinned: BTreeMap::new(), services: 0 }
    }

    /// Adds the time of a service at its worker, or at all workers.
    pub fn add(&mut self, worker: Option<u16>, used: u64) {
        self.services += 1;
        match worker {
            None => self.spread += used,
            Some(worker) => *self.pinned.entry(worker).or_default() += used,
        }
    }

    /// Returns the missing part of a worker, in percent of the worker; `None` if all fits.
    pub fn lack(&self, worker: u16) -> Option<f64> {
        let pinned = self.pinned.get(&worker).copied().unwrap_or_default();
        let used = pinned as f64 + self.spread as f64 / self.workers as f64;
        let missing = used - self.whole;
        (missing > self.services as f64).then_some(missing / self.whole * 100.0)
    }

    /// Whether a worker to which services are pinned lacks more than before.
    pub fn exceeds(&self, before: &Self) -> bool {
        self.pinned.keys().any(|worker| self.lack(*worker) > before.lack(*worker))
    }

    /// Returns the worker to which services are pinned that lacks the most, with its missing part in percent.
    pub fn fullest(&self) -> Option<(u16, f64)> {
        let lacks = self.pinned.keys().filter_map(|worker| Some((*worker, self.lack(*worker)?)));
        lacks.max_by(|one, other| one.1.total_cmp(&other.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_carries_its_own_services_and_a_part_of_the_others() {
        let mut used = WorkerUse::new(2, 2_000_000.0);
        used.add(None, 1_000_000);
        used.add(Some(1), 500_000);
        assert_eq!((used.lack(0), used.lack(1), used.fullest()), (None, None, None));
        used.add(Some(1), 100_000);
        assert_eq!((used.lack(0), used.lack(1), used.fullest()), (None, Some(10.0), Some((1, 10.0))));
        let before = used.clone();
        assert!(used.exceeds(&WorkerUse::new(2, 2_000_000.0)) && !used.exceeds(&before));
        used.add(Some(0), 700_000);
        assert_eq!(used.fullest(), Some((0, 20.0)));
        used.add(None, 2_000_000);
        assert_eq!(WorkerUse::new(0, 1e6).lack(3), None, "of no worker");
    }
}
