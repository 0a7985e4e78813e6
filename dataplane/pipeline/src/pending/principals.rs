//! Principals of a worker, and whether they need anything in an iteration.

use millrace_units::{Cycles, Instant};

use super::for_processor::ForProcessor;

/// Principals of a worker, if it has any. While they are at rest, nobody waits, owes or sheds anything, and nobody has
/// had packets lately: an iteration only counts its time. Each access for writing ends the rest.
#[derive(Debug, Default)]
pub(crate) struct Principals {
    waiting: Option<Box<ForProcessor>>,
    is_at_rest: bool,
    /// Whether a batch of this iteration was full at rest.
    was_full: bool,
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
        if std::mem::take(&mut self.is_at_rest) && self.was_full {
            self.waiting.iter_mut().for_each(|waiting| waiting.control.note_full());
        }
        self.waiting.as_deref_mut()
    }

    /// Ends the rest: there is work that will be charged.
    pub fn end_rest(&mut self) {
        self.get_mut();
    }

    /// Notes that a device or worker had a full batch, as [`ForProcessor::note_full`] does.
    #[inline]
    pub fn note_full(&mut self, is_full: bool) {
        match self.active_mut() {
            Some(waiting) => waiting.note_full(is_full),
            None => self.was_full = true,
        }
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
        self.end_rest();
        self.waiting.take()
    }

    /// Puts the principals in.
    pub fn put(&mut self, waiting: Box<ForProcessor>) {
        (self.waiting, self.is_at_rest) = (Some(waiting), false);
    }

    /// Ends an iteration at `now` that took `elapsed` cycles. `is_alone`: whether no principal had work in it.
    #[inline]
    pub fn end(&mut self, elapsed: u64, is_alone: bool, now: Instant) {
        self.was_full = false;
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
    use millrace_schedule::cpu::{CpuPrincipal, CpuSchedulerKind, CpuSchedulerSettings, CpuShare};
    use millrace_units::{PrincipalId, QueueId};
    use proptest::prelude::*;

    use super::super::for_processor::PrincipalSettings;
    use super::*;

    const SETTINGS: CpuSchedulerSettings = CpuSchedulerSettings {
        kind: CpuSchedulerKind::StartTimeFair,
        quantum: Cycles(50_000),
        frequency: 1_000_000_000,
        capacity: 500_000,
    };

    /// Principal with a limit.
    const ID: PrincipalId = PrincipalId(1);

    fn principals() -> Principals {
        let mut waiting = ForProcessor::new(SETTINGS, Default::default(), (64, 1));
        let cpu = CpuPrincipal { share: CpuShare::Weight(1), limit: Some(10_000), deadline: None };
        let settings = PrincipalSettings { cpu, queue: 1000, link_queue: QueueId(0) };
        waiting.set(ID, settings, Instant::ZERO).unwrap();
        let mut principals = Principals::default();
        principals.put(Box::new(waiting));
        principals
    }

    /// Events of an iteration: whether a batch was full, whether a packet is for the kernel, the number of packets for the
    /// own stack, whether a principal used the processor, and the cycles of the iteration.
    #[derive(Clone, Copy, Debug, Default)]
    struct Step {
        full: bool,
        punt: bool,
        own: usize,
        works: bool,
        elapsed: u64,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = (any::<bool>(), any::<bool>(), 0_usize..4, prop::bool::weighted(0.2), 1_u64..1_000_000);
        let step =
            step.prop_map(|(full, punt, own, works, elapsed)| Step { full, punt, own, works, elapsed });
        let calm = (any::<bool>(), 1_u64..1_000_000);
        let calm = calm.prop_map(|(full, elapsed)| Step { full, elapsed, ..Step::default() });
        prop::collection::vec(prop_oneof![step, calm.clone(), calm], 1..100)
    }

    /// Runs an iteration as the worker does. Returns the number of packets for the own stack that control could run.
    fn iterate(principals: &mut Principals, pool: &Pool, step: Step, now: Instant) -> usize {
        let Step { full, punt, own, works, elapsed } = step;
        if full {
            principals.note_full(true);
        }
        if punt {
            principals.get_mut().unwrap().control.count_punt();
        }
        for _ in 0..own {
            let packet = pool.packet_from(&[0; 60]).unwrap();
            principals.get_mut().unwrap().control.push(packet, false).unwrap();
        }
        principals.active_mut().into_iter().for_each(|waiting| waiting.end_reception(now));
        let mut run = 0;
        while let Some(waiting) = principals.active_mut()
            && waiting.control.may_run(false, SETTINGS.quantum)
            && waiting.control.pop(true).is_some()
        {
            waiting.control.charge(Cycles(elapsed / 2));
            run += 1;
        }
        // Most of these times exceed the principal's limit, so it must wait.
        if works {
            let waiting = principals.get_mut().unwrap();
            waiting.scheduler.wake(ID, now);
            waiting.scheduler.charge(ID, Cycles(elapsed), now);
            waiting.scheduler.sleep(ID, now);
            waiting.core.count_principals(Cycles(elapsed / 4));
        }
        let is_alone = principals.active().is_none_or(|waiting| waiting.is_idle(now) && !works);
        principals.end(elapsed, is_alone, now);
        run
    }

    #[test]
    fn principals_rest_until_somebody_changes_something() {
        let (mut principals, pool) = (principals(), Pool::new(8).unwrap());
        let now = Instant::ZERO + Duration::from_secs(1);
        let step = Step { elapsed: 100, ..Step::default() };
        iterate(&mut principals, &pool, step, now);
        assert!(principals.active().is_none());
        iterate(&mut principals, &pool, Step { full: true, ..step }, now);
        assert!(principals.active().is_none(), "nobody has had packets");
        assert!(principals.get_mut().is_some() && principals.active().is_some());
        iterate(&mut principals, &pool, Step { own: 1, ..step }, now);
        assert_eq!(principals.get().unwrap().core.counts.used, Cycles(250));
        assert!(principals.active().is_none());
        // Beyond its limit, a principal must be let go at a time.
        iterate(&mut principals, &pool, Step { works: true, elapsed: 1_000_000, ..step }, now);
        assert!(principals.active().unwrap().next_event(now).is_some());
    }

    #[test]
    fn full_batch_at_rest_limits_control_in_its_iteration() {
        let (mut principals, pool) = (principals(), Pool::new(8).unwrap());
        let step = Step { elapsed: 1_000_000, ..Step::default() };
        iterate(&mut principals, &pool, step, Instant::ZERO);
        assert!(principals.active().is_none());
        assert_eq!(iterate(&mut principals, &pool, Step { full: true, own: 3, ..step }, Instant::ZERO), 1);
    }

    proptest! {
        #[test]
        fn rest_changes_no_account(steps in steps()) {
            let (mut resting, mut twin, pool) = (principals(), principals(), Pool::new(1024).unwrap());
            for (number, step) in steps.into_iter().enumerate() {
                let now = Instant::ZERO + Duration::from_millis(number as u64 * 40);
                // A twin that never rests.
                twin.get_mut();
                prop_assert_eq!(
                    iterate(&mut resting, &pool, step, now),
                    iterate(&mut twin, &pool, step, now)
                );
                let [ours, twins] = [&resting, &twin].map(|one| {
                    let waiting = one.get().unwrap();
                    let counts = waiting.control.counts();
                    let account = waiting.scheduler.account(ID, now);
                    let next = (waiting.next_event(now), waiting.core.allowance(500, true, &SETTINGS));
                    (waiting.core.counts, counts.used, counts.packets, counts.waiting, account, next)
                });
                prop_assert_eq!(ours, twins);
            }
        }
    }
}
