//! Property: the sum of promises never exceeds the provisioning of any component, whatever comes, moves and goes.

use millrace_admission::levels::Crossing;

use super::*;

/// Arrival, change or removal of a service: its index, which decides about its plugin; rate, level, worker.
type Step = (u8, u32, Option<u8>, Option<u16>, bool);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let rate = prop_oneof![1..1_000_000_u32, 1..8_000_000_u32];
    let level = prop::option::weighted(0.4, 0..3_u8);
    let one = (0..9_u8, rate, level, prop::option::weighted(0.3, 0..2_u16), prop::bool::weighted(0.25));
    prop::collection::vec(one, 1..40)
}

fn kind(index: u8) -> &'static Kind {
    [&SANDBOXED, &OFFLOADED, &PROCESS][usize::from(index % 3)]
}

/// Returns a machine with two workers, of which principals hold a tenth of a processor, in all components limited.
fn limited() -> Machine<'static> {
    let crossing = |up, down, limit| {
        let [up, down] = [up, down].map(|packet| Line { packet, byte: 0.0 });
        Some(Crossing { up, down, bits: None, packets: None, factor: 1.0, limit })
    };
    let switches = Switches {
        redirect: crossing(60.0, 0.0, 0.8),
        sockets: crossing(40.0, 60.0, 0.7),
        workers: crossing(20.0, 20.0, 0.3),
        processes: Ring { transfers_per_second: 4e6, cycles: 300.0 },
    };
    let offload = Some(OffloadLevel { instructions: EBPF_VARIANT_LIMIT, variants: 4 });
    let levels = Levels { offload, workers: 2, switches, ..LEVELS_HERE };
    let held = Held { workers: 100_000, processors: 150_000, memory: 1 << 20, ..Held::default() };
    let room = Room::new(levels, 1e9, 1_200_000, Some(8 << 20)).unwrap();
    Machine { room, held, no_cache: None, owners: None }
}

/// Returns the sums of all components beside their limits, added up by hand.
fn sums(services: &[PlacedService]) -> Vec<(&'static str, f64, f64)> {
    let sum = |of: &dyn Fn(&PlacedService) -> f64| services.iter().map(of).sum::<f64>();
    let is = |one: &PlacedService, level| one.level == level;
    let rate = |one: &PlacedService| f64::from(one.service.rate);
    let at_worker = |one: &PlacedService| match one.level {
        ServiceLevel::Offload => 0.0,
        ServiceLevel::Worker => rate(one) * 100.0 / 1e9,
        ServiceLevel::Host => rate(one) * 300.0 / 1e9,
    };
    let at_host =
        |one: &PlacedService| if is(one, ServiceLevel::Host) { rate(one) * 100.0 / 1e9 } else { 0.0 };
    let below = |one: &PlacedService| if is(one, ServiceLevel::Offload) { 0.0 } else { rate(one) };
    let crosses = |one: &PlacedService| below(one) * if one.service.worker.is_some() { 2.0 } else { 1.0 };
    let memory = |one: &PlacedService| match one.level {
        ServiceLevel::Offload => 0.0,
        ServiceLevel::Worker => 2.0,
        ServiceLevel::Host => 1.0,
    };
    let mut sums = vec![
        ("workers", sum(&at_worker) + 0.1, 1.0),
        ("host", sum(&at_host), 1.0),
        ("processors", sum(&|one| at_worker(one) + at_host(one)) + 0.15, 1.2),
        ("memory", sum(&memory) + 1.0, 8.0),
        ("variants", sum(&|one| if is(one, ServiceLevel::Offload) { 2.0 } else { 0.0 }), 4.0),
        ("XDP redirect", sum(&rate) * 60e-9, 0.8),
        // Core may use half of two workers.
        ("socket rings", sum(&below) * 100e-9, 0.7),
        ("worker rings", sum(&crosses) * 40e-9, 0.3),
        ("process rings", sum(&|one| if is(one, ServiceLevel::Host) { 2.0 * rate(one) } else { 0.0 }), 4e6),
    ];
    let spread = sum(&|one| if one.service.worker.is_none() { at_worker(one) } else { 0.0 }) + 0.1;
    for worker in 0..2 {
        let pinned = |one: &PlacedService| one.service.worker == Some(worker);
        if services.iter().any(pinned) {
            let own = sum(&|one| if pinned(one) { at_worker(one) } else { 0.0 });
            sums.push(("single worker", own + spread / 2.0, 0.5));
        }
    }
    sums
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_component_is_ever_promised_beyond_its_provisioning(steps in steps()) {
        let machine = limited();
        let mut placements = Placements::of(&Config::default(), Figures::ASSUMED);
        for (index, rate, level, worker, is_removed) in steps {
            let name = format!("i{index}");
            if is_removed {
                placements.remove_service(&name);
                continue;
            }
            let service = Service { level: level.map(|level| LEVELS[usize::from(level)]), worker, ..service(rate) };
            let before = placements.services.clone();
            let standing: Vec<_> = before.iter().filter(|placed| placed.instance != name).map(|placed| Standing {
                demand: Demand::of(&placed.instance, kind(placed.instance.as_bytes()[1] - b'0'), placed.service),
                place: Place { level: placed.level, used: placed.used },
                is_pinned: placed.service.pin().is_some(),
            }).collect();
            match machine.decide(&standing, Demand::of(&name, kind(index), service)) {
                Ok(decided) => drop(decided.carry_out(&mut placements)),
                Err(_) => prop_assert_eq!(&before, &placements.services),
            }
            for (component, sum, limit) in sums(&placements.services) {
                prop_assert!(sum <= limit * (1.0 + 1e-9), "{component}: {sum} of {limit}: {:?}", placements.services);
            }
        }
    }
}
