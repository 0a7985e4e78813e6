//! Generalised processor sharing as the reference: the fluid scheduler that serves all backlogged principals
//! at once (Parekh and Gallager, 1993). Each discipline stays within its proved bound of it.

use proptest::prelude::*;

use super::*;

/// Fluid scheduler: virtual time grows by cycles / sum of weights, and each backlogged principal gets weight
/// times that.
#[derive(Default)]
struct Fluid {
    virtual_time: f64,
    weights: f64,
}

/// Principal as the reference sees it.
#[derive(Clone, Copy, Debug)]
struct Share {
    weight: u32,
    slice: u64,
    /// Virtual time and used cycles when the principal joined; `None` without backlog.
    joined: Option<(f64, u64)>,
}

/// Service that a principal has got beyond the fluid scheduler, in cycles, since it joined.
fn lead(scheduler: &CpuScheduler, fluid: &Fluid, number: u32, share: Share) -> f64 {
    let Some((virtual_time, before)) = share.joined else { return 0.0 };
    let got = (used(scheduler, number) - before) as f64;
    got - f64::from(share.weight) * (fluid.virtual_time - virtual_time)
}

/// Serves `steps` slices of random principals, and checks the bounds of `kind` every `every` slices.
fn follow(kind: CpuSchedulerKind, shares: &mut [Share], steps: usize, every: usize) {
    let mut processor = Processor::new(scheduler(kind, 1_000_000));
    let mut fluid = Fluid::default();
    for (number, share) in shares.iter_mut().enumerate() {
        processor.scheduler.add(PrincipalId(number as u32), weight(share.weight)).unwrap();
        processor.scheduler.wake(PrincipalId(number as u32), Instant::ZERO);
        fluid.weights += f64::from(share.weight);
        share.joined = Some((0.0, 0));
    }
    let longest = shares.iter().map(|share| share.slice).max().unwrap_or(0) as f64;
    let slices: f64 = shares.iter().map(|share| share.slice as f64).sum();
    for step in 1..=steps {
        let principal = processor.scheduler.next(processor.now).unwrap();
        let cycles = shares[principal.0 as usize].slice;
        processor.now += Duration::from_nanos(cycles);
        processor.scheduler.charge(principal, Cycles(cycles), processor.now);
        fluid.virtual_time += cycles as f64 / fluid.weights;
        if step % every != 0 {
            continue;
        }
        for (number, share) in shares.iter().enumerate() {
            let lead = lead(&processor.scheduler, &fluid, number as u32, *share);
            let portion = f64::from(share.weight) / fluid.weights;
            // Virtual time is counted in units of 2^-12 cycles per weight.
            let rounding = 1.0 + f64::from(share.weight) / 2048.0;
            let (most_lead, most_lag) = match kind {
                // Goyal et al., 1996: no further ahead than its own slice, no further behind than its portion
                // of one slice of each principal.
                CpuSchedulerKind::StartTimeFair | CpuSchedulerKind::Stride => {
                    (share.slice as f64, portion * slices)
                }
                _ => (longest, longest),
            };
            prop_assert_bound(kind, step, number, lead, most_lead + rounding, most_lag + rounding);
        }
    }
}

fn prop_assert_bound(kind: CpuSchedulerKind, step: usize, number: usize, lead: f64, most: f64, lag: f64) {
    assert!(
        lead <= most,
        "{kind:?}: principal {number} leads by {lead} of {most} cycles after {step} slices"
    );
    assert!(
        -lead <= lag,
        "{kind:?}: principal {number} lags by {} of {lag} cycles after {step} slices",
        -lead
    );
}

fn shares(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Share>> {
    let share = (1_u32..=1_000_000, 1_000_u64..=QUANTUM);
    let share = share.prop_map(|(weight, slice)| Share { weight, slice, joined: None });
    prop::collection::vec(share, count)
}

proptest! {
    #[test]
    fn service_stays_within_the_bounds_of_the_fluid_scheduler(mut all in shares(1..60)) {
        for kind in [CpuSchedulerKind::StartTimeFair, CpuSchedulerKind::WorstCaseFair, CpuSchedulerKind::Stride] {
            // The bound of WF2Q+ is for slices as long as predicted.
            let mut all = all.clone();
            if kind == CpuSchedulerKind::WorstCaseFair {
                all.iter_mut().for_each(|share| share.slice = QUANTUM);
            }
            follow(kind, &mut all, 2000, 1);
        }
        all.truncate(1);
        follow(CpuSchedulerKind::StartTimeFair, &mut all, 10, 1);
    }

    /// Two principals that stay backlogged get the same normalised service to one slice each, whatever the
    /// others do: join, leave, or change their slices (Goyal et al., 1996, theorem 1).
    #[test]
    fn backlogged_principals_stay_even_while_others_come_and_go(
        weights in prop::collection::vec(1_u32..=1000, 3..20),
        steps in prop::collection::vec((0_u32..20, 1_000_u64..=QUANTUM, any::<bool>()), 1..600),
    ) {
        for kind in FAIR_KINDS {
            let mut scheduler = scheduler(kind, 1_000_000);
            for (number, share) in weights.iter().enumerate() {
                scheduler.add(PrincipalId(number as u32), weight(*share)).unwrap();
            }
            scheduler.wake(PrincipalId(0), Instant::ZERO);
            scheduler.wake(PrincipalId(1), Instant::ZERO);
            for (number, slice, wakes) in &steps {
                let other = PrincipalId(2 + number % (weights.len() as u32 - 2));
                if *wakes { scheduler.wake(other, Instant::ZERO) } else { scheduler.sleep(other, Instant::ZERO) }
                let chosen = scheduler.next(Instant::ZERO).unwrap();
                scheduler.charge(chosen, Cycles(*slice), Instant::ZERO);
                let service = |number: usize| used(&scheduler, number as u32) as f64 / f64::from(weights[number]);
                let slice = |number: usize| QUANTUM as f64 / f64::from(weights[number]);
                let apart = (service(0) - service(1)).abs();
                // WF2Q+ orders by predicted finish times: a quantum more for each.
                let factor = if kind == CpuSchedulerKind::WorstCaseFair { 2.0 } else { 1.0 };
                prop_assert!(apart <= factor * (slice(0) + slice(1)) + 1.0, "{kind:?}: {apart}");
            }
        }
    }
}

/// 100,000 principals of weights 1 to a million, every hundredth checked rarely: the bounds hold at this scale.
#[test]
fn bounds_hold_for_100000_principals() {
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut draw = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let shares: Vec<Share> = (0..100_000)
        .map(|_| {
            let weight = 10_f64.powf((draw() % 6_000_001) as f64 / 1_000_000.0) as u32;
            Share { weight: weight.max(1), slice: 1_000 + draw() % (QUANTUM - 1_000), joined: None }
        })
        .collect();
    for kind in FAIR_KINDS {
        let mut shares = shares.clone();
        if kind == CpuSchedulerKind::WorstCaseFair {
            shares.iter_mut().for_each(|share| share.slice = QUANTUM);
        }
        follow(kind, &mut shares, 600_000, 200_000);
    }
}
