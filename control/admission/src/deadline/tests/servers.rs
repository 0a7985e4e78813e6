//! Parameters of the schedulers, compared with the schedulers themselves.

use millrace_schedule::cpu::{CpuScheduler, CpuSchedulerKind, CpuSchedulerSettings, CpuShare};
use millrace_units::{Cycles, Instant, PrincipalId};
use proptest::prelude::*;

use super::*;
use crate::deadline::Criterion;

proptest! {
    /// Charges the work of a packet to the real scheduler: a cycle less leaves a budget, the whole work none
    /// or little.
    #[test]
    fn budget_of_a_server_is_the_work_of_a_packet(cycles in 1_000_u64..3_000_000, deadline in 400_u64..50_000) {
        let mut ledger = ledger(Criterion::Balance);
        let wanted = request(deadline, vec![own("cpu", cycles), own("wan", 672)]);
        let Ok(grant) = ledger.admit("one", &wanted) else { return Ok(()) };
        let principal = grant.principal("cpu").unwrap();
        let (budget, period) = grant.budget("cpu").unwrap();
        prop_assert_eq!(Some(period), principal.deadline);
        prop_assert!(budget >= cycles, "{budget}");
        prop_assert!(period == Duration::from_micros(100) || budget <= cycles + 3, "{budget} for {cycles}");
        let kind = CpuSchedulerKind::EarliestDeadline;
        let quantum = Cycles(100_000);
        let settings = CpuSchedulerSettings { kind, quantum, frequency: FREQUENCY, capacity: 900_000 };
        for (used, exhausted) in [(cycles - 1, false), (budget, true)] {
            let mut scheduler = CpuScheduler::new(settings);
            scheduler.add(PrincipalId(0), principal).unwrap();
            scheduler.wake(PrincipalId(0), Instant::ZERO);
            scheduler.charge(PrincipalId(0), Cycles(used), Instant::ZERO);
            let event = exhausted.then_some(Instant::ZERO + period);
            prop_assert_eq!(scheduler.next_event(), event);
        }
    }

    #[test]
    fn curve_sends_a_burst_in_its_time_and_then_keeps_the_rate(
        bytes in 84_u64..1538, deadline in 200_u64..50_000, interval in 100_u64..50_000, burst in 1_u32..6,
    ) {
        let mut ledger = ledger(Criterion::Mix);
        let interval = Duration::from_micros(interval);
        let wanted = FlowRequest { interval, burst, ..request(deadline, vec![own("wan", bytes * 8)]) };
        let Ok(grant) = ledger.admit("one", &wanted) else { return Ok(()) };
        let curve = grant.curve("wan").unwrap();
        let time = grant.stages[0].time.as_nanos() as u64;
        prop_assert!(curve.bytes_after(time * u64::from(burst)) >= bytes * u64::from(burst));
        let later = time * u64::from(burst) + 7 * interval.as_nanos() as u64;
        prop_assert!(curve.bytes_after(later) + 1 >= bytes * (u64::from(burst) + 7));
        prop_assert!(curve.first >= curve.then && curve.first.0 == grant.stages[0].share);
    }
}

#[test]
fn slow_flow_gets_the_least_rate_of_a_curve() {
    let mut ledger = ledger(Criterion::Mix);
    let wanted =
        FlowRequest { interval: Duration::from_secs(100), ..request(90_000_000, vec![own("wan", 672)]) };
    let curve = ledger.admit("slow", &wanted).unwrap().curve("wan").unwrap();
    assert_eq!((curve.first.0, curve.then.0), (1_000, 1_000));
}

#[test]
fn shares_of_other_flows_and_other_units_have_no_parameters() {
    let mut ledger = ledger(Criterion::Mix);
    ledger.admit("one", &request(1_000, vec![own("cpu", 30_000), own("wan", 672)])).unwrap();
    let two = ledger.admit("two", &request(1_000, vec![same_as("cpu", "one"), own("wan", 672)])).unwrap();
    assert!(two.principal("cpu").is_none() && two.budget("cpu").is_none() && two.curve("wan").is_some());
    let one = ledger.grant("one").unwrap();
    assert!(one.principal("wan").is_none() && one.curve("cpu").is_none() && one.principal("lan").is_none());
    let share = one.stage("cpu").unwrap().share;
    assert_eq!(one.principal("cpu").unwrap().share, CpuShare::Absolute(share as u32));
}
