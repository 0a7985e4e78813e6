//! Debts of long slices and changes of shares: each change keeps the service that a principal has got.

use super::*;

const MILLISECOND: Duration = Duration::from_millis(1);
const ALL_KINDS: [CpuSchedulerKind; 4] = [
    CpuSchedulerKind::StartTimeFair,
    CpuSchedulerKind::WorstCaseFair,
    CpuSchedulerKind::Stride,
    CpuSchedulerKind::EarliestDeadline,
];

/// Adds principals of these settings, with backlog.
fn backlogged(kind: CpuSchedulerKind, principals: &[CpuPrincipal]) -> Processor {
    let mut processor = Processor::new(scheduler(kind, 1_000_000));
    for (number, settings) in (0..).zip(principals) {
        processor.scheduler.add(PrincipalId(number), *settings).unwrap();
        processor.scheduler.wake(PrincipalId(number), Instant::ZERO);
    }
    processor
}

/// Charges a slice of 20 ms to principal 1.
fn overrun(processor: &mut Processor) {
    processor.now += 20 * MILLISECOND;
    processor.scheduler.charge(PrincipalId(1), Cycles(20_000_000), processor.now);
}

#[test]
fn raised_weight_takes_effect_at_once() {
    for kind in FAIR_KINDS {
        let mut processor = backlogged(kind, &[weight(1000), weight(1)]);
        processor.serve(2 * MILLISECOND, |_| QUANTUM);
        processor.scheduler.change(PrincipalId(1), weight(1000), processor.now).unwrap();
        let before = used(&processor.scheduler, 1);
        processor.serve(10 * MILLISECOND, |_| QUANTUM);
        let delivered = used(&processor.scheduler, 1) - before;
        assert!(delivered.abs_diff(5_000_000) <= 2 * QUANTUM, "{kind:?}: {delivered}");
    }
}

#[test]
fn raised_and_lowered_share_of_a_server_pays_its_debt_at_once() {
    let share = |percent| CpuPrincipal { deadline: Some(10 * MILLISECOND), ..absolute(percent) };
    // A debt of 20 ms, of which the first budget pays a part: at 50 % it lasts 40 ms, at 1 % 2 s.
    for (from, to, least, most) in [(1, 50, 20, 60), (50, 1, 1000, 2100)] {
        for kind in ALL_KINDS {
            let mut processor = backlogged(kind, &[weight(1), share(from)]);
            processor.scheduler.next(processor.now);
            overrun(&mut processor);
            processor.scheduler.change(PrincipalId(1), share(to), processor.now).unwrap();
            let (begin, before) = (processor.now, used(&processor.scheduler, 1));
            while used(&processor.scheduler, 1) == before {
                processor.serve(MILLISECOND, |_| QUANTUM);
            }
            let waited = processor.now.since(begin).as_millis();
            assert!((least..=most).contains(&waited), "{kind:?}, {from} to {to} %: {waited} ms");
        }
    }
}

#[test]
fn removed_reservation_goes_to_weights_at_once() {
    for kind in FAIR_KINDS {
        let mut processor = backlogged(kind, &[absolute(50), weight(1), absolute(50)]);
        processor.serve(2 * MILLISECOND, |_| QUANTUM);
        processor.scheduler.remove(PrincipalId(2)).unwrap();
        let before = used(&processor.scheduler, 1);
        processor.serve(10 * MILLISECOND, |_| QUANTUM);
        let delivered = used(&processor.scheduler, 1) - before;
        assert!(delivered.abs_diff(5_000_000) <= 2 * QUANTUM, "{kind:?}: {delivered}");
    }
}

#[test]
fn debt_survives_change_of_weight_in_cycles() {
    for kind in FAIR_KINDS {
        for changed in [1, 10, 1000] {
            let mut processor = backlogged(kind, &[weight(10), weight(10)]);
            overrun(&mut processor);
            processor.scheduler.change(PrincipalId(1), weight(changed), processor.now).unwrap();
            // Start-time fair queueing pays the slice off, and fluid virtual time the lead of half a slice.
            let total = match kind {
                CpuSchedulerKind::StartTimeFair => 200_000_000 / u64::from(changed),
                _ => 100_000_000 / u64::from(changed) + 10_000_000,
            };
            let total = Duration::from_nanos(total);
            processor.serve(total.saturating_sub(Duration::from_nanos(QUANTUM)), |_| QUANTUM / 10);
            let debtor = used(&processor.scheduler, 1) - 20_000_000;
            assert!(debtor <= QUANTUM, "{kind:?}, weight {changed}: {debtor}");
        }
    }
}

#[test]
fn debt_survives_change_of_kind() {
    for from in ALL_KINDS {
        for to in ALL_KINDS {
            for sleeps in [false, true] {
                let mut processor = backlogged(from, &[weight(1), weight(1)]);
                processor.scheduler.next(processor.now);
                overrun(&mut processor);
                if sleeps {
                    processor.scheduler.sleep(PrincipalId(1), processor.now);
                }
                let settings = CpuSchedulerSettings { kind: to, ..*processor.scheduler.settings() };
                processor.scheduler.set(settings, processor.now).unwrap();
                processor.scheduler.wake(PrincipalId(1), processor.now);
                processor.serve(4 * MILLISECOND, |_| QUANTUM);
                let debtor = used(&processor.scheduler, 1) - 20_000_000;
                assert!(debtor <= QUANTUM, "{from:?} to {to:?}, sleeps: {sleeps}: {debtor}");
            }
        }
    }
}

#[test]
fn debt_survives_change_of_share() {
    let deadline = CpuPrincipal { deadline: Some(5 * MILLISECOND), ..absolute(40) };
    let shares = [weight(1), absolute(40), deadline];
    for kind in ALL_KINDS {
        for (from, to) in shares.iter().flat_map(|from| shares.iter().map(move |to| (from, to))) {
            let mut processor = backlogged(kind, &[weight(1), *from]);
            overrun(&mut processor);
            processor.scheduler.change(PrincipalId(1), *to, processor.now).unwrap();
            processor.serve(4 * MILLISECOND, |_| QUANTUM);
            let debtor = used(&processor.scheduler, 1) - 20_000_000;
            assert!(debtor <= QUANTUM, "{kind:?}, {from:?} to {to:?}: {debtor}");
        }
    }
}

#[test]
fn repeated_changes_give_nobody_an_advantage() {
    for kind in ALL_KINDS {
        let limited = CpuPrincipal { limit: Some(100_000), ..weight(1) };
        let mut processor = backlogged(kind, &[weight(2), weight(1), limited]);
        for round in 0..2000 {
            processor.serve(MILLISECOND / 2, |_| QUANTUM);
            processor.scheduler.change(PrincipalId(1), weight(1), processor.now).unwrap();
            processor.scheduler.change(PrincipalId(2), limited, processor.now).unwrap();
            let settings =
                CpuSchedulerSettings { capacity: 999_000 + round % 2, ..*processor.scheduler.settings() };
            processor.scheduler.set(settings, processor.now).unwrap();
        }
        let delivered: Vec<u64> = (0..3).map(|number| used(&processor.scheduler, number)).collect();
        assert!(delivered[2] <= 100_000_000 + 2 * QUANTUM, "{kind:?}: {delivered:?}");
        if kind != CpuSchedulerKind::EarliestDeadline {
            assert!(delivered[0].abs_diff(2 * delivered[1]) <= 4 * QUANTUM, "{kind:?}: {delivered:?}");
        }
    }
}

#[test]
fn new_principal_does_not_wait_for_the_weights_of_departed_ones() {
    for kind in FAIR_KINDS {
        let mut processor = backlogged(kind, &[weight(1), weight(1)]);
        for number in 3..100_003 {
            processor.scheduler.add(PrincipalId(number), weight(1_000_000)).unwrap();
            processor.scheduler.wake(PrincipalId(number), processor.now);
        }
        processor.serve(20 * MILLISECOND, |_| QUANTUM);
        (3..100_003).for_each(|number| processor.scheduler.sleep(PrincipalId(number), processor.now));
        processor.serve(MILLISECOND, |_| QUANTUM);
        processor.scheduler.add(PrincipalId(2), weight(1)).unwrap();
        processor.scheduler.wake(PrincipalId(2), processor.now);
        let before = used(&processor.scheduler, 2);
        processor.serve(3 * MILLISECOND, |_| QUANTUM);
        let delivered = used(&processor.scheduler, 2) - before;
        assert!(delivered.abs_diff(1_000_000) <= 2 * QUANTUM, "{kind:?}: {delivered}");
    }
}

#[test]
fn debt_of_a_removed_principal_is_not_inherited() {
    for kind in ALL_KINDS {
        for settings in [weight(1), absolute(50)] {
            let mut processor = backlogged(kind, &[weight(1), settings]);
            overrun(&mut processor);
            processor.scheduler.remove(PrincipalId(1)).unwrap();
            processor.scheduler.add(PrincipalId(1), settings).unwrap();
            processor.scheduler.wake(PrincipalId(1), processor.now);
            // The other principal first gets its part of the overrun, 10 ms.
            processor.serve(40 * MILLISECOND, |_| QUANTUM);
            let delivered = used(&processor.scheduler, 1);
            assert!(delivered + 2 * QUANTUM >= 15_000_000, "{kind:?} {settings:?}: {delivered}");
        }
    }
}

#[test]
fn charge_without_backlog_leaves_a_debt() {
    for kind in FAIR_KINDS {
        let mut processor = backlogged(kind, &[weight(1), weight(1)]);
        processor.scheduler.sleep(PrincipalId(1), processor.now);
        processor.serve(1000 * MILLISECOND, |_| QUANTUM);
        overrun(&mut processor);
        processor.scheduler.wake(PrincipalId(1), processor.now);
        processor.serve(15 * MILLISECOND, |_| QUANTUM);
        assert!(used(&processor.scheduler, 1) <= 20_000_000 + QUANTUM, "{kind:?}");
    }
}

#[test]
fn idle_processor_ends_all_debts() {
    for kind in FAIR_KINDS {
        let mut processor = backlogged(kind, &[weight(1), weight(1)]);
        processor.scheduler.sleep(PrincipalId(0), processor.now);
        overrun(&mut processor);
        processor.scheduler.sleep(PrincipalId(1), processor.now);
        (0..2).for_each(|number| processor.scheduler.wake(PrincipalId(number), processor.now));
        processor.serve(10 * MILLISECOND, |_| QUANTUM);
        let delivered = used(&processor.scheduler, 0);
        assert!(delivered.abs_diff(5_000_000) <= 2 * QUANTUM, "{kind:?}: {delivered}");
    }
}

#[test]
fn credit_survives_change_of_weight_in_cycles() {
    for kind in [CpuSchedulerKind::WorstCaseFair, CpuSchedulerKind::Stride] {
        let mut processor = backlogged(kind, &[weight(10), weight(10)]);
        overrun(&mut processor);
        // Principal 1 leads by 10 ms, which is 1 ms per weight; principal 0 lags by 10 ms.
        processor.scheduler.change(PrincipalId(0), weight(20), processor.now).unwrap();
        processor.serve(29 * MILLISECOND, |_| QUANTUM);
        assert!(used(&processor.scheduler, 1) <= 20_000_000 + QUANTUM, "{kind:?}");
    }
}
