//! Proportional and absolute shares under each discipline, and faults that other schedulers had.

use std::time::Duration;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn weights_divide_the_processor() {
    for kind in FAIR_KINDS {
        let mut processor = Processor::new(scheduler(kind, 1_000_000));
        for (number, share) in [(0, 4), (1, 3), (2, 2), (3, 1)] {
            processor.scheduler.add(PrincipalId(number), weight(share)).unwrap();
            processor.scheduler.wake(PrincipalId(number), Instant::ZERO);
        }
        processor.serve(SECOND, |_| QUANTUM);
        for (number, share) in [(0, 4), (1, 3), (2, 2), (3, 1)] {
            let delivered = used(&processor.scheduler, number);
            assert!(
                delivered.abs_diff(share * FREQUENCY / 10) <= 2 * QUANTUM,
                "{kind:?} {number}: {delivered}"
            );
        }
    }
}

#[test]
fn absolute_shares_are_delivered_beside_weights_while_core_is_at_its_ceiling() {
    for kind in FAIR_KINDS {
        let mut processor = Processor::new(scheduler(kind, 400_000));
        processor.core = 600_000;
        processor.scheduler.add(PrincipalId(0), absolute(5)).unwrap();
        processor.scheduler.add(PrincipalId(1), absolute(20)).unwrap();
        for number in 2..102 {
            processor.scheduler.add(PrincipalId(number), weight(1)).unwrap();
        }
        (0..102).for_each(|number| processor.scheduler.wake(PrincipalId(number), Instant::ZERO));
        processor.serve(SECOND, |_| QUANTUM);
        for (number, share) in [(0, 5), (1, 20)] {
            let delivered = used(&processor.scheduler, number);
            assert!(delivered + 2 * QUANTUM >= share * FREQUENCY / 100, "{kind:?} {number}: {delivered}");
        }
    }
}

#[test]
fn idle_time_of_a_principal_goes_to_the_others() {
    for kind in FAIR_KINDS {
        let mut processor = Processor::new(scheduler(kind, 1_000_000));
        processor.scheduler.add(PrincipalId(0), absolute(50)).unwrap();
        processor.scheduler.add(PrincipalId(1), absolute(10)).unwrap();
        processor.scheduler.wake(PrincipalId(1), Instant::ZERO);
        processor.serve(SECOND, |_| QUANTUM);
        assert!(used(&processor.scheduler, 1) >= FREQUENCY, "{kind:?}");
    }
}

#[test]
fn limit_holds_on_an_otherwise_idle_processor() {
    for kind in [CpuSchedulerKind::StartTimeFair, CpuSchedulerKind::EarliestDeadline] {
        let mut processor = Processor::new(scheduler(kind, 1_000_000));
        let settings = CpuPrincipal { limit: Some(200_000), ..absolute(5) };
        processor.scheduler.add(PrincipalId(0), settings).unwrap();
        processor.scheduler.wake(PrincipalId(0), Instant::ZERO);
        processor.serve(SECOND, |_| QUANTUM);
        let delivered = used(&processor.scheduler, 0);
        assert!(delivered.abs_diff(FREQUENCY / 5) <= 2 * QUANTUM, "{kind:?}: {delivered}");
    }
}

#[test]
fn rejoining_principal_has_no_credit_from_its_absence() {
    for kind in FAIR_KINDS {
        let mut processor = Processor::new(scheduler(kind, 1_000_000));
        for number in 0..2 {
            processor.scheduler.add(PrincipalId(number), weight(1)).unwrap();
        }
        processor.scheduler.wake(PrincipalId(0), Instant::ZERO);
        processor.serve(SECOND, |_| QUANTUM);
        processor.scheduler.wake(PrincipalId(1), processor.now);
        let before = used(&processor.scheduler, 0);
        processor.serve(Duration::from_millis(100), |_| QUANTUM);
        let during = used(&processor.scheduler, 0) - before;
        assert!(during + 2 * QUANTUM >= FREQUENCY / 20, "{kind:?}: {during} of {}", FREQUENCY / 20);
    }
}

#[test]
fn long_slice_leaves_a_debt_that_survives_sleep() {
    for kind in FAIR_KINDS {
        let mut processor = Processor::new(scheduler(kind, 1_000_000));
        for number in 0..2 {
            processor.scheduler.add(PrincipalId(number), weight(1)).unwrap();
            processor.scheduler.wake(PrincipalId(number), Instant::ZERO);
        }
        // One slice of 20 ms, then a short sleep: the other principal gets its 20 ms first.
        processor.scheduler.charge(PrincipalId(0), Cycles(20_000_000), processor.now);
        processor.scheduler.sleep(PrincipalId(0), processor.now);
        processor.scheduler.wake(PrincipalId(0), processor.now);
        processor.serve(Duration::from_millis(18), |_| QUANTUM);
        let (debtor, other) = (used(&processor.scheduler, 0), used(&processor.scheduler, 1));
        assert!(debtor <= 20_000_000 + QUANTUM, "{kind:?}: {debtor}");
        assert!(other + 2 * QUANTUM >= 18_000_000, "{kind:?}: {other}");
    }
}

#[test]
fn small_change_of_a_share_moves_nobody_by_more_than_two_slices() {
    for kind in FAIR_KINDS {
        let mut processor = Processor::new(scheduler(kind, 1_000_000));
        for number in 0..10 {
            processor.scheduler.add(PrincipalId(number), weight(1000)).unwrap();
            processor.scheduler.wake(PrincipalId(number), Instant::ZERO);
        }
        processor.serve(SECOND, |_| QUANTUM);
        processor.scheduler.change(PrincipalId(0), weight(1006), processor.now).unwrap();
        let before: Vec<u64> = (0..10).map(|number| used(&processor.scheduler, number)).collect();
        let wait = Duration::from_nanos(10 * QUANTUM);
        for round in 1..=20_u64 {
            processor.serve(wait, |_| QUANTUM);
            for (number, before) in (0..10).zip(&before) {
                let got = used(&processor.scheduler, number) - before;
                assert!(
                    got.abs_diff(round * QUANTUM) <= 2 * QUANTUM,
                    "{kind:?} {number} round {round}: {got}"
                );
            }
        }
    }
}

#[test]
fn short_slices_earn_no_more_than_long_ones() {
    for kind in FAIR_KINDS {
        let mut processor = Processor::new(scheduler(kind, 1_000_000));
        for number in 0..2 {
            processor.scheduler.add(PrincipalId(number), weight(1)).unwrap();
            processor.scheduler.wake(PrincipalId(number), Instant::ZERO);
        }
        processor.serve(SECOND, |number| if number == 0 { QUANTUM / 50 } else { QUANTUM });
        let (short, long) = (used(&processor.scheduler, 0), used(&processor.scheduler, 1));
        assert!(short.abs_diff(long) <= 2 * QUANTUM, "{kind:?}: {short} {long}");
    }
}

#[test]
fn sleeping_principal_is_never_chosen() {
    for kind in FAIR_KINDS.into_iter().chain([CpuSchedulerKind::EarliestDeadline]) {
        let mut scheduler = scheduler(kind, 1_000_000);
        scheduler.add(PrincipalId(3), weight(1)).unwrap();
        scheduler.add(PrincipalId(7), absolute(5)).unwrap();
        assert_eq!(scheduler.next(Instant::ZERO), None);
        scheduler.wake(PrincipalId(3), Instant::ZERO);
        scheduler.wake(PrincipalId(7), Instant::ZERO);
        scheduler.sleep(PrincipalId(7), Instant::ZERO);
        assert_eq!(scheduler.next(Instant::ZERO), Some(PrincipalId(3)));
        scheduler.remove(PrincipalId(3)).unwrap();
        assert_eq!(scheduler.next(Instant::ZERO), None);
    }
}

#[test]
fn kind_can_change_at_run_time() {
    let kinds =
        FAIR_KINDS.into_iter().chain([CpuSchedulerKind::EarliestDeadline, CpuSchedulerKind::StartTimeFair]);
    let mut processor = Processor::new(scheduler(CpuSchedulerKind::StartTimeFair, 1_000_000));
    for (number, share) in [(0, 3), (1, 1)] {
        processor.scheduler.add(PrincipalId(number), weight(share)).unwrap();
        processor.scheduler.wake(PrincipalId(number), Instant::ZERO);
    }
    for kind in kinds {
        let settings = CpuSchedulerSettings { kind, ..*processor.scheduler.settings() };
        processor.scheduler.set(settings, processor.now).unwrap();
        let before = [used(&processor.scheduler, 0), used(&processor.scheduler, 1)];
        processor.serve(SECOND, |_| QUANTUM);
        let heavy = used(&processor.scheduler, 0) - before[0];
        let light = used(&processor.scheduler, 1) - before[1];
        assert!(heavy.abs_diff(3 * FREQUENCY / 4) <= 4 * QUANTUM, "{kind:?}: {heavy} {light}");
    }
}
