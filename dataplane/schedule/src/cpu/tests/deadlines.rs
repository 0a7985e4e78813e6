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
