//! Principals with a deadline: constant-bandwidth servers.

use std::time::Duration;

use super::*;

fn with_deadline(percent: u32, milliseconds: u64) -> CpuPrincipal {
    CpuPrincipal { deadline: Some(Duration::from_millis(milliseconds)), ..absolute(percent) }
}

#[test]
fn deadline_is_met_beside_busy_principals() {
    for kind in FAIR_KINDS {
        let mut processor = Processor::new(scheduler(kind, 1_000_000));
        processor.scheduler.add(PrincipalId(0), with_deadline(20, 5)).unwrap();
        for number in 1..100 {
            processor.scheduler.add(PrincipalId(number), weight(1)).unwrap();
            processor.scheduler.wake(PrincipalId(number), Instant::ZERO);
        }
        // Every 10 ms a burst of 1 ms of work, which is the budget of 5 ms.
        for burst in 1..=50_u64 {
            processor.scheduler.wake(PrincipalId(0), processor.now);
            let start = processor.now;
            while used(&processor.scheduler, 0) < burst * 1_000_000 {
                processor.serve(Duration::from_nanos(1), |_| QUANTUM);
            }
            processor.scheduler.sleep(PrincipalId(0), processor.now);
            let took = processor.now.since(start);
            assert!(took <= Duration::from_millis(5), "{kind:?} burst {burst}: {took:?}");
            processor.serve(Duration::from_millis(10).saturating_sub(took), |_| QUANTUM);
        }
    }
}

#[test]
fn server_takes_no_more_than_its_bandwidth_from_others() {
    let mut processor = Processor::new(scheduler(CpuSchedulerKind::StartTimeFair, 1_000_000));
    processor.scheduler.add(PrincipalId(0), with_deadline(20, 5)).unwrap();
    processor.scheduler.add(PrincipalId(1), absolute(30)).unwrap();
    processor.scheduler.add(PrincipalId(2), weight(1)).unwrap();
    (0..3).for_each(|number| processor.scheduler.wake(PrincipalId(number), Instant::ZERO));
    processor.serve(Duration::from_secs(1), |_| QUANTUM);
    for (number, percent) in [(0, 20), (1, 30), (2, 50)] {
        let delivered = used(&processor.scheduler, number);
        assert!(delivered.abs_diff(percent * FREQUENCY / 100) <= 10 * QUANTUM, "{number}: {delivered}");
    }
}

#[test]
fn server_without_budget_uses_idle_time() {
    let mut processor = Processor::new(scheduler(CpuSchedulerKind::StartTimeFair, 1_000_000));
    processor.scheduler.add(PrincipalId(0), with_deadline(20, 5)).unwrap();
    processor.scheduler.wake(PrincipalId(0), Instant::ZERO);
    processor.serve(Duration::from_secs(1), |_| QUANTUM);
    assert!(used(&processor.scheduler, 0) >= FREQUENCY);
}

#[test]
fn overrun_is_paid_from_later_budgets() {
    let mut processor = Processor::new(scheduler(CpuSchedulerKind::StartTimeFair, 1_000_000));
    processor.scheduler.add(PrincipalId(0), with_deadline(20, 5)).unwrap();
    processor.scheduler.add(PrincipalId(1), weight(1)).unwrap();
    (0..2).for_each(|number| processor.scheduler.wake(PrincipalId(number), Instant::ZERO));
    // Ten budgets at once: 10 ms of processor time, which are earned in 50 ms.
    processor.now += Duration::from_millis(10);
    processor.scheduler.charge(PrincipalId(0), Cycles(10_000_000), processor.now);
    processor.serve(Duration::from_millis(35), |_| QUANTUM);
    assert_eq!(used(&processor.scheduler, 0), 10_000_000);
    processor.serve(Duration::from_millis(955), |_| QUANTUM);
    let delivered = used(&processor.scheduler, 0);
    assert!(delivered.abs_diff(FREQUENCY / 5) <= 20 * QUANTUM, "{delivered}");
}

#[test]
fn kind_edf_serves_weights_and_absolute_shares() {
    let mut processor = Processor::new(scheduler(CpuSchedulerKind::EarliestDeadline, 1_000_000));
    processor.scheduler.add(PrincipalId(0), absolute(40)).unwrap();
    processor.scheduler.add(PrincipalId(1), weight(2)).unwrap();
    processor.scheduler.add(PrincipalId(2), weight(1)).unwrap();
    (0..3).for_each(|number| processor.scheduler.wake(PrincipalId(number), Instant::ZERO));
    processor.serve(Duration::from_secs(1), |_| QUANTUM / 10);
    for (number, percent) in [(0, 40), (1, 40), (2, 20)] {
        let delivered = used(&processor.scheduler, number);
        assert!(delivered.abs_diff(percent * FREQUENCY / 100) <= FREQUENCY / 100, "{number}: {delivered}");
    }
}

#[test]
fn second_charge_of_a_slice_costs_budget_too() {
    let mut processor = Processor::new(scheduler(CpuSchedulerKind::StartTimeFair, 1_000_000));
    processor.scheduler.add(PrincipalId(0), with_deadline(20, 5)).unwrap();
    processor.scheduler.add(PrincipalId(1), weight(1)).unwrap();
    (0..2).for_each(|number| processor.scheduler.wake(PrincipalId(number), Instant::ZERO));
    assert_eq!(processor.scheduler.next(processor.now), Some(PrincipalId(0)));
    for _ in 0..2 {
        processor.now += Duration::from_millis(5);
        processor.scheduler.charge(PrincipalId(0), Cycles(5_000_000), processor.now);
    }
    processor.serve(Duration::from_millis(35), |_| QUANTUM);
    assert_eq!(used(&processor.scheduler, 0), 10_000_000);
}

#[test]
fn overrun_of_a_server_costs_other_servers_nothing_later() {
    let mut processor = Processor::new(scheduler(CpuSchedulerKind::StartTimeFair, 1_000_000));
    processor.scheduler.add(PrincipalId(0), with_deadline(30, 5)).unwrap();
    processor.scheduler.add(PrincipalId(1), with_deadline(30, 8)).unwrap();
    processor.scheduler.add(PrincipalId(2), absolute(40)).unwrap();
    (0..3).for_each(|number| processor.scheduler.wake(PrincipalId(number), Instant::ZERO));
    processor.now += Duration::from_millis(100);
    processor.scheduler.charge(PrincipalId(0), Cycles(100_000_000), processor.now);
    let start = processor.now;
    for _ in 0..20 {
        processor.serve(Duration::from_millis(8), |_| QUANTUM / 10);
        let promised = processor.now.since(start).as_nanos() as u64 * 3 / 10;
        assert!(used(&processor.scheduler, 1) + QUANTUM >= promised, "{promised}");
    }
    assert_eq!(used(&processor.scheduler, 0), 100_000_000);
}

#[test]
fn sleep_and_wake_give_no_budget_early() {
    let mut processor = Processor::new(scheduler(CpuSchedulerKind::StartTimeFair, 1_000_000));
    processor.scheduler.add(PrincipalId(0), with_deadline(20, 5)).unwrap();
    processor.scheduler.add(PrincipalId(1), weight(1)).unwrap();
    (0..2).for_each(|number| processor.scheduler.wake(PrincipalId(number), Instant::ZERO));
    for _ in 0..10_000 {
        processor.serve(Duration::from_nanos(1), |_| QUANTUM);
        processor.scheduler.sleep(PrincipalId(0), processor.now);
        processor.scheduler.wake(PrincipalId(0), processor.now);
    }
    let most = processor.now.since(Instant::ZERO).as_nanos() as u64 / 5 + 1_000_000 + QUANTUM;
    assert!(used(&processor.scheduler, 0) <= most, "{} above {most}", used(&processor.scheduler, 0));
}

#[test]
fn server_follows_a_changed_frequency() {
    let mut processor = Processor::new(scheduler(CpuSchedulerKind::EarliestDeadline, 1_000_000));
    processor.scheduler.add(PrincipalId(0), absolute(10)).unwrap();
    processor.scheduler.add(PrincipalId(1), absolute(90)).unwrap();
    let settings = CpuSchedulerSettings { frequency: FREQUENCY / 2, ..*processor.scheduler.settings() };
    processor.scheduler.set(settings, processor.now).unwrap();
    processor.scheduler.wake(PrincipalId(0), processor.now);
    processor.scheduler.wake(PrincipalId(1), processor.now);
    // A period of 10 ms at half the frequency has 500,000 cycles for 10 %.
    processor.scheduler.charge(PrincipalId(0), Cycles(500_000), processor.now);
    processor.scheduler.charge(PrincipalId(1), Cycles(4_500_000), processor.now);
    assert_eq!(processor.scheduler.next_event(), Some(Instant::from_nanos(10_000_000)));
}

/// Scheduler with a server of 20 % in 5 ms and another principal, both with backlog.
fn server_beside_weight() -> Processor {
    let mut processor = Processor::new(scheduler(CpuSchedulerKind::StartTimeFair, 1_000_000));
    processor.scheduler.add(PrincipalId(0), with_deadline(20, 5)).unwrap();
    processor.scheduler.add(PrincipalId(1), weight(1)).unwrap();
    (0..2).for_each(|number| processor.scheduler.wake(PrincipalId(number), Instant::ZERO));
    processor
}

#[test]
fn removed_or_moved_server_leaves_no_debt_and_no_event() {
    for removed in [false, true] {
        let mut processor = server_beside_weight();
        processor.scheduler.charge(PrincipalId(0), Cycles(20_000_000), processor.now);
        assert!(processor.scheduler.next_event().is_some());
        if removed {
            processor.scheduler.remove(PrincipalId(0)).unwrap();
            assert_eq!(processor.scheduler.next_event(), None);
            processor.scheduler.add(PrincipalId(0), with_deadline(20, 5)).unwrap();
            processor.scheduler.wake(PrincipalId(0), processor.now);
            assert_eq!(processor.scheduler.next(processor.now), Some(PrincipalId(0)));
        } else {
            processor.scheduler.change(PrincipalId(0), weight(1), processor.now).unwrap();
            assert_eq!(processor.scheduler.next_event(), None);
        }
    }
}

/// The rule of Abeni and Buttazzo for a server that becomes backlogged again.
#[test]
fn late_wake_up_starts_a_new_period() {
    let mut processor = server_beside_weight();
    processor.scheduler.sleep(PrincipalId(0), processor.now);
    processor.serve(Duration::from_micros(4500), |_| QUANTUM / 10);
    processor.scheduler.wake(PrincipalId(0), processor.now);
    processor.serve(Duration::from_micros(4900), |_| QUANTUM / 10);
    let delivered = used(&processor.scheduler, 0);
    assert!(delivered.abs_diff(1_000_000) <= QUANTUM / 10, "{delivered}");
}

#[test]
fn frequent_small_overruns_earn_nothing() {
    let mut processor = server_beside_weight();
    processor.serve(Duration::from_secs(1), |number| if number == 0 { 1_900_000 } else { QUANTUM });
    let delivered = used(&processor.scheduler, 0);
    assert!(delivered <= FREQUENCY / 5 + 2_900_000, "{delivered}");
}

#[test]
fn service_on_idle_time_is_free_until_the_next_choice() {
    let mut processor = server_beside_weight();
    processor.scheduler.sleep(PrincipalId(1), processor.now);
    processor.scheduler.charge(PrincipalId(0), Cycles(1_000_000), processor.now);
    let deadline = Instant::from_nanos(5_000_000);
    assert_eq!(processor.scheduler.next(processor.now), Some(PrincipalId(0)));
    processor.scheduler.charge(PrincipalId(0), Cycles(5_000_000), processor.now);
    assert_eq!(processor.scheduler.next_event(), Some(deadline));
    processor.scheduler.wake(PrincipalId(1), processor.now);
    assert_eq!(processor.scheduler.next(processor.now), Some(PrincipalId(1)));
    processor.scheduler.charge(PrincipalId(0), Cycles(5_000_000), processor.now);
    assert_eq!(processor.scheduler.next_event(), Some(deadline + Duration::from_millis(25)));
}

#[test]
fn earliest_deadline_goes_first_whatever_the_periods() {
    let mut scheduler = scheduler(CpuSchedulerKind::StartTimeFair, 1_000_000);
    scheduler.add(PrincipalId(0), with_deadline(20, 5)).unwrap();
    scheduler.add(PrincipalId(1), with_deadline(20, 8)).unwrap();
    scheduler.wake(PrincipalId(1), Instant::ZERO);
    let now = Instant::from_nanos(6_000_000);
    scheduler.wake(PrincipalId(0), now);
    assert_eq!(scheduler.next(now), Some(PrincipalId(1)));
}
