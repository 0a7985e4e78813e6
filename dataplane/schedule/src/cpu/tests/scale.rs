//! Bounds of service with many principals, adversarial cost, joins and leaves.

use super::*;

fn add_all(processor: &mut Processor, principals: &[CpuPrincipal]) {
    for (number, settings) in (0..).zip(principals) {
        processor.scheduler.add(PrincipalId(number), *settings).unwrap();
        processor.scheduler.wake(PrincipalId(number), Instant::ZERO);
    }
}

#[test]
fn absolute_share_is_short_by_a_quantum_at_most_beside_many_others() {
    for kind in FAIR_KINDS {
        let mut principals = vec![absolute(50)];
        principals
            .extend([absolute(0); 100].map(|it| CpuPrincipal { share: CpuShare::Absolute(4_000), ..it }));
        principals.extend([weight(1); 10]);
        let mut processor = Processor::new(scheduler(kind, 1_000_000));
        add_all(&mut processor, &principals);
        let mut worst = 0;
        for round in 0..20_000_u64 {
            processor
                .serve(Duration::from_nanos(1), |number| if number == 0 { QUANTUM / 3 } else { QUANTUM });
            let promised = processor.now.since(Instant::ZERO).as_nanos() as u64 / 2;
            worst = worst.max(promised.saturating_sub(used(&processor.scheduler, 0)));
            // Weighted and absolute principals leave and join.
            let other = PrincipalId(1 + (round * 7 % 110) as u32);
            if round % 3 == 0 {
                processor.scheduler.sleep(other, processor.now)
            } else {
                processor.scheduler.wake(other, processor.now)
            }
        }
        assert!(worst <= QUANTUM, "{kind:?}: short by {worst} cycles");
    }
}

/// Ways in which the cost of a slice follows from the principal and chance.
#[derive(Clone, Copy, Debug)]
enum Cost {
    Random,
    HeavyLong,
    LightLong,
}

impl Cost {
    fn draw(self, weight: u32, chance: u64) -> u64 {
        match self {
            Self::Random => 1 + chance % QUANTUM,
            Self::HeavyLong if weight > 1000 => QUANTUM,
            Self::LightLong if weight <= 1000 => QUANTUM,
            Self::HeavyLong | Self::LightLong => 1 + chance % 100,
        }
    }
}

/// Among 100,000 principals, half join and leave. The others get the same service per weight, to one largest
/// slice each (Goyal et al., 1996, theorem 1; for WF2Q+ one more, which is the predicted slice).
#[test]
fn backlogged_principals_stay_even_among_100000_that_join_and_leave() {
    const COUNT: u32 = 100_000;
    let mut random = crate::random::Random::new(7);
    let weights: Vec<u32> = (0..COUNT).map(|_| 10_f64.powf(random.fraction() * 6.0) as u32).collect();
    for kind in FAIR_KINDS {
        let mut processor = Processor::new(scheduler(kind, 1_000_000));
        add_all(&mut processor, &weights.iter().map(|it| weight((*it).max(1))).collect::<Vec<_>>());
        let mut worst = 0.0_f64;
        for cost in [Cost::Random, Cost::HeavyLong, Cost::LightLong] {
            let before: Vec<u64> = (0..COUNT).map(|number| used(&processor.scheduler, number)).collect();
            for _ in 0..300_000 {
                let other = PrincipalId(1 + 2 * (random.next() % u64::from(COUNT / 2)) as u32);
                match random.next() % 3 {
                    0 => processor.scheduler.sleep(other, processor.now),
                    1 => processor.scheduler.wake(other, processor.now),
                    _ => {}
                }
                let chosen = processor.scheduler.next(processor.now).unwrap();
                let cycles = cost.draw(weights[chosen.0 as usize], random.next());
                processor.now += Duration::from_nanos(cycles);
                processor.scheduler.charge(chosen, Cycles(cycles), processor.now);
            }
            let slices = if kind == CpuSchedulerKind::WorstCaseFair { 2.0 } else { 1.0 };
            let steady = (0..COUNT).step_by(2).map(|number| {
                let share = f64::from(weights[number as usize].max(1));
                let service = (used(&processor.scheduler, number) - before[number as usize]) as f64;
                (service / share, QUANTUM as f64 / share)
            });
            // The least that the best served has got, and the most that the worst served has got.
            let most =
                steady.clone().map(|(service, slice)| service - slices * slice).fold(f64::MIN, f64::max);
            let least = steady.map(|(service, slice)| service + slices * slice).fold(f64::MAX, f64::min);
            worst = worst.max(most / least);
            assert!(most <= least + 1.0, "{kind:?}, {cost:?}: {most} above {least} cycles per weight");
        }
        println!("{kind:?}: at most {worst:.3} of the bound");
    }
}

#[test]
fn shares_hold_across_the_end_of_virtual_time() {
    for kind in FAIR_KINDS {
        let mut processor = Processor::new(scheduler(kind, 1_000_000));
        add_all(&mut processor, &[weight(1), weight(1), weight(2)]);
        // A year at a frequency of 1 GHz, in slices of ten seconds.
        for _ in 0..3_200_000 {
            let chosen = processor.scheduler.next(processor.now).unwrap();
            processor.now += Duration::from_secs(10);
            processor.scheduler.charge(chosen, Cycles(10 * FREQUENCY), processor.now);
        }
        let delivered: Vec<u64> = (0..3).map(|number| used(&processor.scheduler, number)).collect();
        assert!(delivered[0].abs_diff(delivered[1]) <= 20 * FREQUENCY, "{kind:?}: {delivered:?}");
        assert!(delivered[2].abs_diff(2 * delivered[0]) <= 40 * FREQUENCY, "{kind:?}: {delivered:?}");
    }
}

/// Lowering all tags keeps the order, and the distance of members behind virtual time.
#[test]
fn lowered_tags_keep_credits_and_debts() {
    use crate::cpu::fair_share::{Discipline, FairShare};
    const SLICE: u64 = 1 << 45;
    for discipline in [Discipline::StartTimeFair, Discipline::WorstCaseFair, Discipline::Stride] {
        let mut shares = FairShare::new(discipline, SLICE);
        shares.reserve(2);
        (0..3).for_each(|member| shares.join(member));
        let mut serve = |count: u32| {
            let mut slices = [0; 3];
            for _ in 0..count {
                let member = shares.next().unwrap();
                slices[member as usize] += 1;
                shares.charge(member, SLICE);
            }
            slices
        };
        let before = serve(3 * 29);
        assert_eq!(before, [29; 3], "{discipline:?}");
        // Virtual time passes the point at which tags are lowered.
        (0..9).for_each(|_| shares.charge(0, SLICE));
        let mut first = [0_u32; 3];
        for step in 0..18 {
            let member = shares.next().unwrap();
            first[member as usize] += 1;
            assert!(first[1].abs_diff(first[2]) <= 1, "{discipline:?} step {step}: {first:?}");
            shares.charge(member, SLICE);
        }
        assert!(first[0] <= 1 && first[1] >= 8 && first[2] >= 8, "{discipline:?}: {first:?}");
    }
}
