//! Limits of principals.

use super::*;

const MILLISECOND: Duration = Duration::from_millis(1);

fn limited(kind: CpuSchedulerKind, settings: CpuPrincipal) -> Processor {
    let mut processor = Processor::new(scheduler(kind, 1_000_000));
    processor.scheduler.add(PrincipalId(0), settings).unwrap();
    processor.scheduler.wake(PrincipalId(0), Instant::ZERO);
    processor
}

#[test]
fn raised_limit_ends_the_wait_for_the_old_one() {
    for limit in [None, Some(1_000_000)] {
        let settings = CpuPrincipal { limit: Some(1_000), ..weight(1) };
        let mut processor = limited(CpuSchedulerKind::StartTimeFair, settings);
        processor.now += MILLISECOND;
        processor.scheduler.charge(PrincipalId(0), Cycles(1_000_000), processor.now);
        assert_eq!(processor.scheduler.next(processor.now), None);
        processor
            .scheduler
            .change(PrincipalId(0), CpuPrincipal { limit, ..settings }, processor.now)
            .unwrap();
        processor.now += MILLISECOND;
        assert_eq!(processor.scheduler.next(processor.now), Some(PrincipalId(0)), "{limit:?}");
    }
}

#[test]
fn limit_is_exact_for_short_slices() {
    let settings = CpuSchedulerSettings {
        kind: CpuSchedulerKind::StartTimeFair,
        quantum: Cycles(1000),
        frequency: 3_000_000_000,
        capacity: 1_000_000,
    };
    let mut scheduler = CpuScheduler::new(settings);
    scheduler.add(PrincipalId(0), CpuPrincipal { limit: Some(200_000), ..weight(1) }).unwrap();
    scheduler.wake(PrincipalId(0), Instant::ZERO);
    let mut now = Instant::ZERO;
    while now < Instant::from_nanos(10_000_000) {
        match scheduler.next(now) {
            Some(chosen) => {
                now += Duration::from_nanos(34);
                scheduler.charge(chosen, Cycles(100), now);
            }
            None => now = scheduler.next_event().unwrap(),
        }
    }
    assert!(used(&scheduler, 0).abs_diff(6_000_000) <= 30_000, "{}", used(&scheduler, 0));
}

#[test]
fn lowered_limit_takes_effect_during_the_wait() {
    let settings = CpuPrincipal { limit: Some(500_000), ..weight(1) };
    let mut processor = limited(CpuSchedulerKind::StartTimeFair, settings);
    processor.now += 10 * MILLISECOND;
    processor.scheduler.charge(PrincipalId(0), Cycles(10_000_000), processor.now);
    let settings = CpuPrincipal { limit: Some(50_000), ..weight(1) };
    processor.scheduler.change(PrincipalId(0), settings, processor.now).unwrap();
    // 10 ms of processor time without a quantum, at 5 %.
    assert_eq!(processor.scheduler.next_event(), Some(processor.now + 198 * MILLISECOND));
    assert_eq!(processor.scheduler.next(processor.now + 197 * MILLISECOND), None);
    assert_eq!(processor.scheduler.next(processor.now + 198 * MILLISECOND), Some(PrincipalId(0)));
}

#[test]
fn idle_time_earns_a_limited_principal_one_quantum_at_most() {
    let settings = CpuPrincipal { limit: Some(200_000), ..weight(1) };
    let mut processor = limited(CpuSchedulerKind::StartTimeFair, settings);
    processor.scheduler.sleep(PrincipalId(0), processor.now);
    processor.now += 1000 * MILLISECOND;
    processor.scheduler.wake(PrincipalId(0), processor.now);
    processor.serve(10 * MILLISECOND, |_| QUANTUM / 10);
    let delivered = used(&processor.scheduler, 0);
    assert!(delivered <= 2_000_000 + QUANTUM + QUANTUM / 10, "{delivered}");
    assert!(delivered >= 2_000_000, "{delivered}");
    assert!(processor.scheduler.account(PrincipalId(0), processor.now).unwrap().throttled > 0);
}

#[test]
fn limit_follows_a_changed_frequency() {
    let settings = CpuPrincipal { limit: Some(200_000), ..weight(1) };
    let mut processor = limited(CpuSchedulerKind::StartTimeFair, settings);
    let settings = CpuSchedulerSettings { frequency: 2 * FREQUENCY, ..*processor.scheduler.settings() };
    processor.scheduler.set(settings, processor.now).unwrap();
    processor.serve(100 * MILLISECOND, |_| QUANTUM);
    assert!(used(&processor.scheduler, 0).abs_diff(40_000_000) <= 2 * QUANTUM);
}

#[test]
fn principal_that_sleeps_or_leaves_while_it_waits_is_not_chosen() {
    let settings = CpuPrincipal { limit: Some(200_000), ..weight(1) };
    for removed in [false, true] {
        let mut processor = limited(CpuSchedulerKind::StartTimeFair, settings);
        processor.scheduler.charge(PrincipalId(0), Cycles(10 * QUANTUM), processor.now);
        assert_eq!(processor.scheduler.next(processor.now), None);
        if removed {
            processor.scheduler.remove(PrincipalId(0)).unwrap();
            assert_eq!(processor.scheduler.next_event(), None);
        } else {
            processor.scheduler.sleep(PrincipalId(0), processor.now);
        }
        assert!(!processor.scheduler.has_work());
        processor.now += 1000 * MILLISECOND;
        assert_eq!(processor.scheduler.next(processor.now), None);
    }
}

#[test]
fn charge_during_the_wait_prolongs_it() {
    let settings = CpuPrincipal { limit: Some(200_000), ..weight(1) };
    let mut processor = limited(CpuSchedulerKind::StartTimeFair, settings);
    for charges in 1..=3 {
        processor.scheduler.charge(PrincipalId(0), Cycles(1_000_000), processor.now);
        let until = Duration::from_nanos(charges * 5_000_000 - 5 * QUANTUM);
        assert_eq!(processor.scheduler.next_event(), Some(processor.now + until));
    }
}

#[test]
fn principal_can_run_while_its_limit_allows_it_or_its_server_has_a_budget() {
    let mut processor =
        limited(CpuSchedulerKind::StartTimeFair, CpuPrincipal { limit: Some(1_000), ..weight(1) });
    assert!(processor.scheduler.can_run(PrincipalId(0)) && !processor.scheduler.can_run(PrincipalId(1)));
    processor.scheduler.charge(PrincipalId(0), Cycles(1_000_000), processor.now);
    assert!(!processor.scheduler.can_run(PrincipalId(0)));
    // A server without a budget runs on idle time only.
    let mut processor = limited(CpuSchedulerKind::EarliestDeadline, absolute(1));
    processor.scheduler.charge(PrincipalId(0), Cycles(1_000_000), processor.now);
    assert!(processor.scheduler.can_run(PrincipalId(0)));
    processor.scheduler.add(PrincipalId(1), absolute(1)).unwrap();
    processor.scheduler.wake(PrincipalId(1), processor.now);
    assert_eq!([0, 1].map(|id| processor.scheduler.can_run(PrincipalId(id))), [false, true]);
}
