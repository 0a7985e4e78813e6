//! Admission, release and refusal.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::deadline::{Criterion, Grant, GrantedStage, Refusal, Unit};

fn criteria() -> impl Strategy<Value = Criterion> {
    prop_oneof![Just(Criterion::Even), Just(Criterion::Balance), Just(Criterion::Mix)]
}

/// Step of a sequence: admits a flow, or releases it.
#[derive(Clone, Debug)]
enum Step {
    Admit(u8, FlowRequest),
    Release(u8),
}

fn demands() -> impl Strategy<Value = Vec<Stage>> {
    let demand = |resource: &'static str, most: u64| {
        prop_oneof![
            3 => (0..most).prop_map(move |work| own(resource, work)),
            1 => any::<u8>().prop_map(move |flow| same_as(resource, &(flow % 12).to_string())),
        ]
    };
    prop_oneof![
        4 => (demand("cpu", 600_000), demand("wan", 100_000)).prop_map(|(cpu, wan)| vec![cpu, wan]),
        1 => demand("wan", 100_000).prop_map(|wan| vec![wan]),
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    let settings = (1_u64..20_000, 1_u64..20_000, 1_u32..5, demands());
    let admit = (any::<u8>(), settings).prop_map(|(flow, (deadline, interval, burst, stages))| {
        let interval = Duration::from_micros(interval);
        Step::Admit(flow % 12, FlowRequest { interval, burst, ..request(deadline, stages) })
    });
    prop_oneof![3 => admit, 2 => (0_u8..12).prop_map(Step::Release)]
}

/// Sum of the shares that the flows hold at a resource.
fn held(ledger: &Ledger, resource: &str) -> u64 {
    let stages = ledger.grants().filter_map(|(_, grant)| grant.stage(resource));
    stages.map(|stage| stage.held()).sum()
}

/// Delay of the last packet of a burst, packet by packet: each leaves a resource one time after it came, and
/// one time after the previous packet.
fn last_packet(grant: &Grant) -> Duration {
    let mut left = vec![Duration::ZERO; grant.stages.len()];
    for _ in 0..grant.burst {
        let mut now = Duration::ZERO;
        for (stage, left) in grant.stages.iter().zip(&mut left) {
            now = now.max(*left) + stage.time;
            *left = now;
        }
    }
    left.last().copied().unwrap_or_default()
}

/// Releases a flow, restores it, and releases it again.
fn undone(ledger: &mut Ledger, flow: &str) -> Result<Grant, Refusal> {
    let before = ledger.clone();
    let grant = ledger.release(flow)?;
    let after = ledger.clone();
    ledger.restore(flow, grant.clone()).unwrap();
    assert_eq!(*ledger, before);
    assert_eq!(ledger.release(flow), Ok(grant));
    assert_eq!(*ledger, after);
    ledger.release(flow).unwrap_err();
    Ok(before.grant(flow).unwrap().clone())
}

proptest! {
    /// Recomputes the promised shares from all grants after each step. At the end, the ledger is as it was.
    #[test]
    fn nothing_leaks_in_any_sequence(criterion in criteria(), steps in prop::collection::vec(steps(), 1..80)) {
        let mut ledger = ledger(criterion);
        let empty = ledger.clone();
        let mut promised: BTreeMap<String, Grant> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Admit(flow, request) => {
                    let before = ledger.clone();
                    match ledger.admit(&flow.to_string(), &request).cloned() {
                        Ok(grant) => {
                            let blocking: Duration = grant.stages.iter().map(|stage| stage.blocking).sum();
                            prop_assert_eq!(last_packet(&grant) + blocking, grant.bound());
                            prop_assert!(grant.bound() <= grant.deadline, "{grant:?}");
                            let bound = grant.service().delay(grant.arrivals());
                            let own = grant.own().all(|stage| stage.time <= grant.interval);
                            prop_assert!(!own || (bound - grant.bound().as_secs_f64()).abs() < 1e-9 || bound.is_infinite());
                            promised.insert(flow.to_string(), grant);
                        }
                        Err(_) => prop_assert_eq!(&ledger, &before),
                    }
                }
                Step::Release(flow) => match undone(&mut ledger, &flow.to_string()) {
                    Ok(grant) => prop_assert_eq!(promised.remove(&flow.to_string()), Some(grant)),
                    Err(Refusal::Shared { by, .. }) => prop_assert!(promised.contains_key(&by)),
                    Err(error) => prop_assert_eq!(error, Refusal::UnknownFlow(flow.to_string())),
                },
            }
            for name in ["cpu", "wan"] {
                let (resource, free) = ledger.resource(name).unwrap();
                prop_assert_eq!(resource.capacity - free, held(&ledger, name));
            }
            for (flow, grant) in &promised {
                prop_assert_eq!(ledger.grant(flow), Some(grant), "grants stay");
            }
        }
        while !promised.is_empty() {
            promised.retain(|flow, _| ledger.release(flow).is_err());
        }
        prop_assert_eq!(ledger, empty);
    }

    #[test]
    fn proposed_deadline_is_granted_and_a_shorter_one_is_not(
        criterion in criteria(),
        first in (1_000_u64..600_000, 1_000_u64..100_000),
        second in (1_000_u64..600_000, 1_000_u64..100_000),
        burst in 1_u32..5,
    ) {
        let mut ledger = ledger(criterion);
        let stages = |(cycles, bits)| vec![own("cpu", cycles), own("wan", bits)];
        let _ = ledger.admit("first", &request(1_000, stages(first)));
        let mut wanted = FlowRequest { burst, interval: Duration::from_secs(1), ..request(100, stages(second)) };
        if let Err(Refusal::Late { possible, .. }) = ledger.plan(&wanted) {
            wanted.deadline = possible;
            prop_assert!(ledger.plan(&wanted).is_ok(), "{possible:?}: {:?}", ledger.plan(&wanted));
            // Even times are rounded down to nanoseconds.
            wanted.deadline = possible - Duration::from_nanos(6);
            prop_assert!(ledger.plan(&wanted).is_err());
        }
    }

    #[test]
    fn extreme_numbers_are_granted_or_refused(
        criterion in criteria(), deadline: Duration, interval: Duration, burst: u32, cycles: u64, bits: u64,
    ) {
        let mut ledger = ledger(criterion);
        let stages = vec![own("cpu", cycles), own("wan", bits)];
        if let Ok(grant) = ledger.admit("one", &FlowRequest { deadline, interval, burst, stages }) {
            prop_assert!(grant.stages.iter().all(|stage| stage.share > 0 && stage.time <= deadline));
            ledger.release("one").unwrap();
        }
    }
}

#[test]
fn shared_processor_is_charged_once() {
    let mut ledger = ledger(Criterion::Mix);
    let first = ledger.admit("first", &request(2_000, vec![own("cpu", 300_000), own("wan", 12_304)]));
    let first = first.unwrap().clone();
    let (_, free) = ledger.resource("cpu").unwrap();
    let second = request(2_500, vec![same_as("cpu", "first"), own("wan", 12_304)]);
    let second = ledger.admit("second", &second).unwrap().clone();
    assert_eq!(ledger.resource("cpu").unwrap().1, free);
    let [cpu, wan] = &second.stages[..] else { panic!("two stages") };
    assert_eq!((cpu.time, cpu.held(), cpu.owner.as_deref()), (first.stages[0].time, 0, Some("first")));
    let rest = Duration::from_micros(2_500) - cpu.time - cpu.blocking - wan.blocking;
    assert_eq!(wan.time, rest, "the link has what the processor leaves");
    // A chain ends at the owner of the share.
    let third = request(2_500, vec![same_as("cpu", "second"), own("wan", 12_304)]);
    assert_eq!(ledger.admit("third", &third).unwrap().stages[0].owner.as_deref(), Some("first"));
    let error = ledger.release("first").unwrap_err();
    assert_eq!(error.to_string(), "\"first\": \"second\" uses its share: release \"second\" first");
    for flow in ["second", "third", "first"] {
        ledger.release(flow).unwrap();
    }
}

#[test]
fn fast_flow_gets_its_rate_in_the_shortest_period() {
    let mut ledger = ledger(Criterion::Mix);
    // 100,000 packets a second of 6,000 cycles take 20 % of the processor.
    let mut wanted = request(500, vec![own("cpu", 6_000), own("wan", 672)]);
    wanted.interval = Duration::from_micros(10);
    let grant = ledger.admit("fast", &wanted).unwrap();
    assert_eq!((grant.stages[0].share, grant.stages[0].time), (200_000, Duration::from_micros(100)));
    assert_eq!(grant.stages[1].share, 67_200_000);
}

#[test]
fn refusals_name_what_lacks_and_what_fits() {
    let mut ledger = ledger(Criterion::Balance);
    ledger.admit("big", &request(1_000, vec![own("cpu", 2_400_000), own("wan", 12_304)])).unwrap();
    for (wanted, text) in [
        (
            request(1_000, vec![own("cpu", 1_000_000), own("wan", 12_304)]),
            "\"cpu\": a packet each 1ms needs 33.3334 %, but ",
        ),
        (
            request(50, vec![own("cpu", 1_000)]),
            "deadline of 50µs: must exceed 50µs, the time of other work that nothing pre-empts and of shared shares; \
             the free shares allow 150µs",
        ),
        (
            FlowRequest {
                interval: Duration::from_millis(10),
                ..request(160, vec![own("cpu", 1_000), own("wan", 12_304)])
            },
            "deadline of 160µs: the free shares allow ",
        ),
        (request(100, vec![own("lan", 1)]), "\"lan\": no such resource"),
        (request(100, vec![own("wan", 1), own("wan", 1)]), "\"wan\": listed twice"),
        (request(100, vec![own("wan", 0)]), "no work: "),
        (request(0, vec![own("wan", 1)]), "deadline must be above 0"),
        (request(100, vec![same_as("cpu", "none"), own("wan", 1)]), "\"none\": no such flow"),
    ] {
        let error = ledger.plan(&wanted).unwrap_err().to_string();
        assert!(error.starts_with(text), "{error}");
    }
    let again = ledger.admit("big", &request(1_000, vec![own("wan", 1)])).unwrap_err();
    assert_eq!(again, Refusal::InUse("big".to_owned()));
    ledger.admit("link", &request(1_000, vec![own("wan", 1)])).unwrap();
    let none = ledger.plan(&request(1_000, vec![same_as("cpu", "link"), own("wan", 1)])).unwrap_err();
    assert_eq!(none.to_string(), "\"link\" has no share of \"cpu\" to share");
}

proptest! {
    /// With the share that lacks, the deadline is met; with less, it is not.
    #[test]
    fn share_that_lacks_would_meet_the_deadline(
        taken in 1_u64..990_000_000, bits in 2_000_u64..100_000, deadline in 160_u64..3_000, burst in 1_u32..4,
    ) {
        let second = Duration::from_secs(1);
        let ledger = |missing: u64| {
            let mut ledger = ledger(Criterion::Mix);
            let (resource, unit, share) = ("wan".to_owned(), Unit::Link, taken - missing);
            let held =
                GrantedStage { resource, unit, work: 1, share, time: second, blocking: Duration::ZERO, owner: None };
            let grant = Grant { deadline: second, interval: second, burst: 1, stages: vec![held] };
            ledger.restore("taken", grant).unwrap();
            ledger
        };
        let stages = vec![own("cpu", 30_000), own("wan", bits)];
        let wanted = FlowRequest { burst, interval: second, ..request(deadline, stages) };
        let Err(Refusal::Late { slowest, lacks: Some(lacks), .. }) = ledger(0).plan(&wanted) else { return Ok(()) };
        prop_assume!(slowest == "wan" && lacks <= taken);
        let met = ledger(lacks).plan(&wanted);
        prop_assert!(met.is_ok(), "{met:?}");
        prop_assert!(ledger(lacks - 1).plan(&wanted).is_err());
    }
}

#[test]
fn grant_that_no_longer_fits_is_not_restored() {
    let mut ledger = ledger(Criterion::Mix);
    ledger.admit("one", &request(1_000, vec![own("cpu", 1_000_000), own("wan", 12_304)])).unwrap();
    ledger.admit("two", &request(2_000, vec![same_as("cpu", "one"), own("wan", 12_304)])).unwrap();
    let in_use = ledger.restore("one", ledger.grant("one").unwrap().clone());
    assert_eq!(in_use.unwrap_err(), Refusal::InUse("one".to_owned()));
    let two = ledger.release("two").unwrap();
    let one = ledger.release("one").unwrap();
    let empty = ledger.clone();
    assert_eq!(ledger.restore("two", two), Err(Refusal::UnknownFlow("one".to_owned())));
    let link = ledger.resource("wan").unwrap().0.clone();
    ledger.set("wan", Resource { capacity: one.stages[1].share - 1, ..link }).unwrap();
    let error = ledger.restore("one", one.clone()).unwrap_err();
    assert!(matches!(error, Refusal::Lacks { resource, .. } if resource == "wan"));
    ledger.set("wan", Resource::processor(1, 1, Duration::ZERO)).unwrap();
    assert_eq!(ledger.restore("one", one.clone()), Err(Refusal::OtherUnit { resource: "wan".to_owned() }));
    ledger.remove("wan").unwrap();
    assert_eq!(ledger.restore("one", one), Err(Refusal::UnknownResource("wan".to_owned())));
    assert_eq!(ledger.grants().count(), empty.grants().count());
}

#[test]
fn resources_change_and_go_only_within_the_promises() {
    let mut ledger = ledger(Criterion::Mix);
    ledger.admit("one", &request(1_000, vec![own("wan", 500_000)])).unwrap();
    let (link, free) = ledger.resource("wan").map(|(link, free)| (link.clone(), free)).unwrap();
    let promised = link.capacity - free;
    let error = ledger.set("wan", Resource { capacity: promised - 1, ..link.clone() }).unwrap_err();
    assert!(error.to_string().starts_with("\"wan\": a capacity of "), "{error}");
    ledger.set("wan", Resource { capacity: promised, ..link }).unwrap();
    assert_eq!(ledger.resource("wan").unwrap().1, 0);
    let other = Resource::processor(1, 1_000_000, Duration::ZERO);
    assert_eq!(ledger.set("wan", other), Err(Refusal::OtherUnit { resource: "wan".to_owned() }));
    let error = ledger.remove("wan").unwrap_err();
    assert_eq!(error.to_string(), "\"wan\": has 1 flow: release them first");
    ledger.release("one").unwrap();
    ledger.remove("wan").unwrap();
    assert!(ledger.remove("wan").is_err());
}
