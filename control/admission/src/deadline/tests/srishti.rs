//! The split of the paper: admissible exactly if the shortest times fit, and the same capacity stays free.

use proptest::prelude::*;

use super::*;
use crate::deadline::{Criterion, Refusal, Unit};

/// Times of a packet in seconds by the formulas of the paper, in floating point: `W / (R - beta Y)`.
fn twin(work: [f64; 2], free: [f64; 2], capacity: [f64; 2], deadline: f64) -> Option<[f64; 2]> {
    let times = |y: f64| [0, 1].map(|i| work[i] / (free[i] - capacity[i] * y).max(0.0));
    let sum = |y: f64| times(y).iter().sum::<f64>();
    if sum(0.0) > deadline {
        return None;
    }
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if sum(middle) <= deadline { low = middle } else { high = middle }
    }
    Some(times(low))
}

proptest! {
    #[test]
    fn split_equals_the_formulas_of_the_paper(
        flows in prop::collection::vec((1_000_u64..3_000_000, 500_u64..12_000, 2_000_u64..100_000), 1..60),
    ) {
        let mut ledger = ledger(Criterion::Balance);
        for (number, (cycles, bits, deadline)) in flows.into_iter().enumerate() {
            let free = [("cpu", FREQUENCY as f64 / 1e6), ("wan", 1.0)]
                .map(|(name, factor)| ledger.resource(name).unwrap().1 as f64 * factor);
            let mut wanted = request(deadline, vec![own("cpu", cycles), own("wan", bits)]);
            wanted.interval = Duration::from_secs(10);
            let blocking = 50e-6 + 12.304e-6;
            let capacity = [FREQUENCY as f64 * 0.9, GIGABIT as f64];
            let twin = twin([cycles as f64, bits as f64], free, capacity, wanted.deadline.as_secs_f64() - blocking);
            match (ledger.admit(&number.to_string(), &wanted), twin) {
                (Ok(grant), Some(times)) if times[0] > 100e-6 => {
                    let granted = grant.stage("cpu").unwrap().time.as_secs_f64();
                    // The share of the processor is rounded to parts per million.
                    let share = grant.stage("cpu").unwrap().share as f64;
                    prop_assert!((granted / times[0] - 1.0).abs() <= 2.0 / share + 1e-3, "{granted} {times:?}");
                    let sum = granted + grant.stage("wan").unwrap().time.as_secs_f64() + blocking;
                    prop_assert!(sum <= wanted.deadline.as_secs_f64() + 1e-12);
                }
                // A server's period is at least 100 us, so short times at the processor have no twin.
                (_, Some(times)) if times[0] <= 110e-6 => {}
                (Err(Refusal::Late { .. }), None) => {}
                (Err(Refusal::Lacks { .. }), _) => {}
                (granted, twin) => {
                    let near = free.iter().zip([cycles, bits]).map(|(free, work)| work as f64 / free).sum::<f64>();
                    let exact = wanted.deadline.as_secs_f64() - blocking;
                    prop_assert!((near / exact - 1.0).abs() < 1e-3 || near < 120e-6, "{granted:?} {twin:?}");
                }
            }
        }
    }
}

#[test]
fn weight_keeps_more_of_a_resource_free() {
    let mut ledger = ledger(Criterion::Balance);
    let heavy = Resource { weight: 2, ..Resource::link(GIGABIT, GIGABIT, 1538) };
    ledger.set("wan", heavy).unwrap();
    ledger.admit("one", &request(1_000, vec![own("cpu", 1_000_000), own("wan", 500_000)])).unwrap();
    let free = |name| {
        let (resource, free) = ledger.resource(name).unwrap();
        free as f64 / resource.capacity as f64
    };
    assert!((free("wan") / free("cpu") - 2.0).abs() < 0.01, "{} {}", free("wan"), free("cpu"));
}

#[test]
fn link_alone_gets_the_whole_deadline_without_its_longest_packet() {
    for criterion in [Criterion::Even, Criterion::Balance, Criterion::Mix] {
        let mut ledger = ledger(criterion);
        let grant = ledger.admit("one", &request(1_012, vec![own("wan", 12_304)])).unwrap();
        assert_eq!(grant.stages[0].time, Duration::from_nanos(1_012_000 - 12_304), "{criterion:?}");
        assert_eq!(Some(grant.stages[0].share), Unit::Link.share_for(12_304, 999_696));
    }
}
