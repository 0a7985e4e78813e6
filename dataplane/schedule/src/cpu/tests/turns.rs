//! Turns of principals, beside a slow reference.

use std::collections::BTreeMap;
use std::time::Duration;

use millrace_units::PrincipalId;
use proptest::prelude::*;

use crate::cpu::tests::scheduler;
use crate::cpu::{CpuPrincipal, CpuScheduler, CpuSchedulerKind, CpuShare, CpuTurns};

/// Principal of the reference. Virtual time is in nanoseconds times the product of all weights.
#[derive(Clone, Copy, Default)]
struct Twin {
    tag: u128,
    waits: bool,
}

const WEIGHTS: [u32; 4] = [1, 2, 3, 5];
const PRODUCT: u128 = 30;

#[derive(Clone, Copy, Debug)]
enum Step {
    Join(u32),
    Leave(u32),
    /// Serves the next principal for this time in nanoseconds. Whether it still waits afterwards.
    Serve(u64, bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0_u32..4).prop_map(Step::Join),
        1 => (0_u32..4).prop_map(Step::Leave),
        6 => (1_u64..3_000_000, prop::bool::weighted(0.9)).prop_map(|(time, stays)| Step::Serve(time, stays)),
    ]
}

/// Returns the waiting principals whose tag is lowest.
fn lowest(twins: &[Twin; 4]) -> Option<u128> {
    twins.iter().filter(|twin| twin.waits).map(|twin| twin.tag).min()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// The next principal is one with the lowest start tag, as of the definition. While two principals wait, their
    /// times by weight differ by one turn of each at most, in each interval.
    #[test]
    fn turns_follow_start_tags_and_each_interval_is_fair(steps in prop::collection::vec(step(), 1..200)) {
        let mut turns = CpuTurns::default();
        let (mut twins, mut virtual_time) = ([Twin::default(); 4], 0_u128);
        // Time by weight of a pair since both wait: least and greatest difference so far, and the difference.
        let mut pairs: BTreeMap<(usize, usize), (i128, i128, i128)> = BTreeMap::new();
        let mut longest = [0_i128; 4];
        for step in steps {
            match step {
                Step::Join(number) => {
                    turns.join(PrincipalId(number), WEIGHTS[number as usize].into());
                    let twin = &mut twins[number as usize];
                    if !twin.waits {
                        *twin = Twin { tag: twin.tag.max(virtual_time), waits: true };
                    }
                }
                Step::Leave(number) => {
                    turns.leave(PrincipalId(number));
                    leave(&mut twins, &mut virtual_time, number as usize);
                }
                Step::Serve(time, stays) => {
                    let next = turns.first();
                    prop_assert_eq!(next.is_some(), lowest(&twins).is_some());
                    let Some(PrincipalId(number)) = next else { continue };
                    let own = number as usize;
                    prop_assert_eq!(Some(twins[own].tag), lowest(&twins));
                    virtual_time = virtual_time.max(twins[own].tag);
                    turns.charge(next.unwrap(), Duration::from_nanos(time));
                    let by_weight = u128::from(time) * PRODUCT / u128::from(WEIGHTS[own]);
                    twins[own].tag += by_weight;
                    longest[own] = longest[own].max(by_weight as i128);
                    for ((one, other), (least, most, difference)) in &mut pairs {
                        *difference += by_weight as i128 * (i128::from(*one == own) - i128::from(*other == own));
                        (*least, *most) = ((*least).min(*difference), (*most).max(*difference));
                        let bound = longest[*one] + longest[*other];
                        prop_assert!(*most - *least <= bound, "{one} {other}: {least}..{most} of {bound}");
                    }
                    if !stays {
                        turns.leave(next.unwrap());
                        leave(&mut twins, &mut virtual_time, own);
                    }
                }
            }
            for one in 0..4 {
                for other in one + 1..4 {
                    match twins[one].waits && twins[other].waits {
                        true => _ = pairs.entry((one, other)).or_default(),
                        false => _ = pairs.remove(&(one, other)),
                    }
                }
                prop_assert_eq!(turns.waits(PrincipalId(one as u32)), twins[one].waits);
            }
        }
    }
}

fn leave(twins: &mut [Twin; 4], virtual_time: &mut u128, number: usize) {
    let waited = std::mem::take(&mut twins[number].waits);
    if waited && lowest(twins).is_none() {
        *virtual_time = (*virtual_time).max(twins[number].tag);
    }
}

#[test]
fn long_turn_counts_until_it_is_paid_and_forgetting_clears_it() {
    let mut turns = CpuTurns::default();
    let (first, second) = (PrincipalId(1), PrincipalId(2));
    turns.join(first, 1);
    turns.charge(first, Duration::from_millis(100));
    turns.join(second, 1);
    let mut before = 0;
    while turns.first() == Some(second) {
        turns.charge(second, Duration::from_millis(1));
        before += 1;
    }
    assert!((100..=101).contains(&before), "{before}");
    turns.charge(first, Duration::from_secs(1));
    turns.forget(first);
    assert!(!turns.waits(first) && turns.first() == Some(second));
    turns.join(first, 1);
    turns.charge(second, Duration::from_millis(2));
    assert_eq!(turns.first(), Some(first));
}

/// Returns a scheduler whose principals have these weights.
fn with_weights(weights: &[u32]) -> CpuScheduler {
    let mut scheduler = scheduler(CpuSchedulerKind::StartTimeFair, 500_000);
    for (number, weight) in (0..).zip(weights) {
        let principal = CpuPrincipal { share: CpuShare::Weight(*weight), limit: None, deadline: None };
        scheduler.add(PrincipalId(number), principal).unwrap();
    }
    scheduler
}

fn any_weight() -> impl Strategy<Value = u32> {
    (0_u32..7, 1_u32..10).prop_map(|(power, digit)| (10_u32.pow(power) * digit).min(1_000_000))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Each of a thousand principals has its share of the time, within one turn, with weights as the CPU scheduler
    /// gives them.
    #[test]
    fn principals_of_any_weights_get_turns_in_proportion_within_one_turn(
        weights in prop_oneof![prop::collection::vec(any_weight(), 1000), prop::collection::vec(any_weight(), 2..9)],
        turn in (1_u32..7, 1_u64..10).prop_map(|(power, digit)| 10_u64.pow(power) * digit),
    ) {
        let scheduler = with_weights(&weights);
        let (mut turns, mut times) = (CpuTurns::default(), vec![0_u64; weights.len()]);
        for number in 0..weights.len() as u32 {
            turns.join(PrincipalId(number), scheduler.share(PrincipalId(number)));
        }
        for _ in 0..20_000 {
            let Some(PrincipalId(number)) = turns.first() else { panic!("nobody waits") };
            turns.charge(PrincipalId(number), Duration::from_nanos(turn));
            times[number as usize] += turn;
        }
        let by_weight = |(time, weight): (&u64, &u32)| *time as f64 / f64::from(*weight);
        let least = times.iter().zip(&weights).map(by_weight).fold(f64::MAX, f64::min);
        for (time, weight) in times.iter().zip(&weights) {
            let ahead = *time as f64 - least * f64::from(*weight);
            prop_assert!(ahead <= turn as f64 + 1.0, "weight {weight}: {ahead} ns ahead, turns of {turn} ns");
        }
    }
}
