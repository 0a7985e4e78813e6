//! Principals whose turn comes are known some slices before it.

use std::collections::VecDeque;

use super::*;
use crate::random::Random;

/// Number of principals.
const COUNT: u32 = 1000;
/// Number of slices after which a prefetched principal is no longer in the cache.
const LONGEST: usize = 64;
/// Number of last announcements that come too late: prefetching takes one more slice.
const LATE: usize = 2;

/// Returns the part of the turns that were announced in time. A principal that keeps the processor needs no
/// announcement.
fn announced(kind: CpuSchedulerKind, mut slice: impl FnMut() -> u64) -> f64 {
    let mut processor = Processor::new(scheduler(kind, 1_000_000));
    for number in 0..COUNT {
        processor.scheduler.add(PrincipalId(number), weight(1 + number % 10)).unwrap();
        processor.scheduler.wake(PrincipalId(number), Instant::ZERO);
    }
    let (mut recent, mut last) = (VecDeque::from(vec![[None; 2]; LONGEST]), None);
    let (mut turns, mut known) = (0, 0);
    for round in 0..8 * COUNT {
        let chosen = processor.scheduler.next(processor.now).unwrap();
        // After the first turns, in which all principals are alike.
        if round > 4 * COUNT && last != Some(chosen) {
            turns += 1;
            let in_time = recent.iter().take(LONGEST - LATE).flatten();
            known += u32::from(in_time.flatten().any(|announced| *announced == chosen));
        }
        let cycles = slice();
        processor.now += Duration::from_nanos(cycles);
        processor.scheduler.charge(chosen, Cycles(cycles), processor.now);
        recent.pop_front();
        recent.push_back(processor.scheduler.prefetch_upcoming());
        last = Some(chosen);
    }
    f64::from(known) / f64::from(turns)
}

#[test]
fn most_turns_are_announced_with_equal_slices_and_with_random_ones() {
    for kind in FAIR_KINDS.into_iter().chain([CpuSchedulerKind::EarliestDeadline]) {
        let mut random = Random::new(3);
        let found = [announced(kind, || QUANTUM), announced(kind, || 1 + random.next() % QUANTUM)];
        assert!(found.iter().all(|part| *part > 0.7), "{kind:?}: {found:?}");
    }
}
