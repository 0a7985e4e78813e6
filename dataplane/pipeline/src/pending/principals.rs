//! Principals of a worker, and whether they need anything in an iteration.

use millrace_units::{Cycles, Instant};

use super::for_processor::ForProcessor;

/// Principals of a worker, if it has any. While they are at rest, nobody waits, owes or sheds anything, nobody
/// has had packets lately, and an iteration only counts its time. Each access for writing ends the rest, so what it changes is seen.
#[derive(Debug, Default)]
pub(crate) struct Principals {
    waiting: Option<Box<ForProcessor>>,
    is_at_rest: bool,
}

impl Principals {
    /// Whether the worker has principals.
    #[inline]
    pub fn exist(&self) -> bool {
        self.waiting.is_some()
    }

    /// Returns the principals.
    #[inline]
    pub fn get(&self) -> Option<&ForProcessor> {
        self.waiting.as_deref()
    }

    /// Returns the principals for writing. Their rest ends.
    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut ForProcessor> {
        self.is_at_rest = false;
        self.waiting.as_deref_mut()
    }

    /// Returns the principals unless they are at rest.
    #[inline]
    pub fn active(&self) -> Option<&ForProcessor> {
        if self.is_at_rest { None } else { self.get() }
    }

    /// Returns the principals for writing unless they are at rest.
    #[inline]
    pub fn active_mut(&mut self) -> Option<&mut ForProcessor> {
        if self.is_at_rest { None } else { self.waiting.as_deref_mut() }
    }

    /// Takes the principals out. Their rest ends.
    pub fn take(&mut self) -> Option<Box<ForProcessor>> {
        self.is_at_rest = false;
        self.waiting.take()
    }

    /// Puts the principals in.
    pub fn put(&mut self, waiting: Box<ForProcessor>) {
        (self.waiting, self.is_at_rest) = (Some(waiting), false);
    }

    /// Ends an iteration at `now` that took `elapsed` cycles. `is_alone`: whether no principal had work in it.
    #[inline]
    pub fn end(&mut self, elapsed: u64, is_alone: bool, now: Instant) {
        match &mut self.waiting {
            Some(waiting) if self.is_at_rest => waiting.core.count_alone(Cycles(elapsed)),
            Some(waiting) => self.is_at_rest = waiting.end(elapsed, is_alone, now),
            None => {}
        }
    }

    /// Ends an iteration whose time isn't known, because the processor has no counter.
    pub fn end_unmeasured(&mut self) {
        if let Some(waiting) = self.get_mut() {
            waiting.control.end_unmeasured();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millrace_packet::Pool;
    use millrace_schedule::cpu::CpuSchedulerSettings;
    use proptest::prelude::*;

    use super::*;

    const SETTINGS: CpuSchedulerSettings = CpuSchedulerSettings {
        kind: millrace_schedule::cpu::CpuSchedulerKind::StartTimeFair,
        quantum: Cycles(50_000),
        frequency: 1_000_000_000,
        capacity: 500_000,
    };

    fn principals() -> Principals {
        let mut principals = Principals::default();
        principals.put(Box::new(ForProcessor::new(SETTINGS, Default::default(), (64, 1))));
        principals
    }

    /// What an iteration of the worker asks for.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Nothing,
        FullBatch,
        Punt,
        OwnStack,
    }

    /// Runs an iteration as the worker does. Returns whether control might run.
    fn iterate(principals: &mut Principals, pool: &Pool, (step, elapsed): (Step, u64), now: Instant) -> bool {
        match step {
            Step::Nothing => {}
            Step::FullBatch => {
                principals.active_mut().into_iter().for_each(|waiting| waiting.note_full(true));
            }
            Step::Punt => principals.get_mut().unwrap().control.count_punt(),
            Step::OwnStack => {
                let packet = pool.packet_from(&[0; 60]).unwrap();
                let _ = principals.get_mut().unwrap().control.push(packet, false);
            }
        }
        principals.active_mut().into_iter().for_each(|waiting| waiting.end_reception(now));
        let may_run = principals.active_mut().is_some_and(|waiting| {
            while waiting.control.pop(true).is_some() {
                waiting.control.charge(Cycles(elapsed / 2));
            }
            waiting.control.may_run(false, SETTINGS.quantum)
        });
        principals.end(elapsed, true, now);
        may_run || principals.active().is_none()
    }

    #[test]
    fn principals_rest_until_somebody_changes_something() {
        let (mut principals, pool) = (principals(), Pool::new(8).unwrap());
        let now = Instant::ZERO + Duration::from_secs(1);
        iterate(&mut principals, &pool, (Step::Nothing, 100), now);
        assert!(principals.active().is_none());
        iterate(&mut principals, &pool, (Step::FullBatch, 100), now);
        assert!(principals.active().is_none(), "nobody has had packets");
        assert!(principals.get_mut().is_some() && principals.active().is_some());
        iterate(&mut principals, &pool, (Step::OwnStack, 100), now);
        assert_eq!(principals.get().unwrap().core.counts.used, Cycles(250));
    }

    proptest! {
        #[test]
        fn rest_changes_no_account(
            steps in prop::collection::vec(
                (prop::sample::select(vec![Step::Nothing, Step::FullBatch, Step::Punt, Step::OwnStack]), 1_u64..1_000_000),
                1..100,
            ),
        ) {
            let (mut resting, mut twin, pool) = (principals(), principals(), Pool::new(8).unwrap());
            for (number, step) in steps.into_iter().enumerate() {
                let now = Instant::ZERO + Duration::from_millis(number as u64);
                // A twin that never rests.
                twin.get_mut();
                prop_assert_eq!(
                    iterate(&mut resting, &pool, step, now),
                    iterate(&mut twin, &pool, step, now)
                );
                let [ours, twins] = [&resting, &twin].map(|one| {
                    let waiting = one.get().unwrap();
                    let counts = waiting.control.counts();
                    (waiting.core.counts, counts.used, counts.packets, waiting.core.allowance(500, true, &SETTINGS))
                });
                prop_assert_eq!(ours, twins);
            }
        }
    }
}
