use millrace_admission::hardware::{Line, Measured};
use millrace_admission::levels::{Figures, Levels, OffloadLevel, Ring, Switches};
use millrace_config::Config;
use millrace_pipeline::EBPF_VARIANT_LIMIT;
use millrace_plugin_abi::{DeclaredCycles, DeclaredNeeds, EbpfVariant, Instance, PluginError, Position};
use proptest::prelude::*;
use serde_json::{Map, Value};

use super::figures::{HARDWARE_FILE, known_figures};
use super::room::Room;
use super::*;

mod changes;
mod measured;
mod sums;

/// Plugin `null` of a runtime, with or without an eBPF variant and a declared cost: cycles per packet, per byte and per second,
/// and packets that leave for each that arrives. Its instances have a mebibyte of memory.
struct Kind(Runtime, bool, Option<[f64; 4]>);

impl Plugin for Kind {
    fn name(&self) -> &'static str {
        "null"
    }

    fn runtime(&self) -> Runtime {
        self.0
    }

    fn version(&self) -> &'static str {
        "1.0.0"
    }

    fn summary(&self) -> &'static str {
        ""
    }

    fn positions(&self) -> &[Position] {
        &Position::ALL
    }

    fn messages(&self) -> &[(&'static str, &'static str)] {
        &[]
    }

    fn declared_cycles(&self, _kind: &str) -> Option<DeclaredCycles> {
        self.2.map(|[packet, byte, fixed, _]| DeclaredCycles {
            packet,
            byte,
            fixed,
            ..DeclaredCycles::default()
        })
    }

    fn declared_needs(&self) -> DeclaredNeeds {
        DeclaredNeeds { memory: 1_048_576.0, output: self.2.map_or(1.0, |[.., output]| output) }
    }

    fn ebpf_variant(&self) -> Option<EbpfVariant> {
        self.1.then_some(EbpfVariant { object: &[], settings: 0, counters: 0 })
    }

    fn create(&self, _: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        Err(PluginError::unknown_message("null", "any", &[]))
    }
}

const SANDBOXED: Kind = Kind(Runtime::Contained, false, Some([100.0, 0.0, 0.0, 1.0]));
const OFFLOADED: Kind = Kind(Runtime::BuiltIn, true, Some([100.0, 0.0, 0.0, 1.0]));
const PROCESS: Kind = Kind(Runtime::Process, false, Some([100.0, 0.0, 0.0, 1.0]));

/// Levels of a worker of 1e9 cycles per second, the host with another 1e9, and two eBPF variants.
const LEVELS_HERE: Levels = Levels {
    offload: Some(OffloadLevel { instructions: EBPF_VARIANT_LIMIT, variants: 2 }),
    worker: 1e9,
    host: 1e9,
    workers: 1,
    core: 0.5,
    switches: Switches::ASSUMED,
};

/// Machine of levels with two processors of 1e9 cycles per second.
fn machine_of(levels: Levels, memory: Option<u64>, held: Held) -> Machine<'static> {
    let room = Room::new(levels, 1e9, 2_000_000, memory).unwrap();
    Machine { room, held, no_cache: None, owners: None }
}

fn machine() -> Machine<'static> {
    machine_of(LEVELS_HERE, None, Held::default())
}

fn service(rate: u32) -> Service {
    Service { rate, ..Service::default() }
}

fn demand(plugin: &dyn Plugin, rate: u32) -> Demand<'_> {
    Demand::of("new", plugin, service(rate))
}

fn level(machine: &Machine<'_>, placed: &[Standing<'_>], demand: Demand<'_>) -> Result<ServiceLevel, String> {
    machine.decide(placed, demand).map(|decision| decision.placed.level).map_err(|error| error.to_string())
}

#[test]
fn services_go_where_their_plugin_runs_and_room_is_left() {
    let machine = machine();
    assert_eq!(level(&machine, &[], demand(&SANDBOXED, 1_000_000)), Ok(ServiceLevel::Worker));
    assert_eq!(level(&machine, &[], demand(&OFFLOADED, 9_000_000)), Ok(ServiceLevel::Offload));
    assert_eq!(level(&machine, &[], demand(&PROCESS, 500_000)), Ok(ServiceLevel::Host));
    let worker = Service { level: Some(ServiceLevel::Worker), ..service(1) };
    let pinned = Demand { service: worker, ..demand(&OFFLOADED, 1) };
    assert_eq!(level(&machine, &[], pinned), Ok(ServiceLevel::Worker));
    let uncached = Machine { no_cache: Some("no port has a kernel device"), ..machine };
    assert_eq!(level(&uncached, &[], demand(&OFFLOADED, 1_000)), Ok(ServiceLevel::Worker));
}

#[test]
fn impossible_levels_are_refused_with_the_reason() {
    let refused = |plugin: &dyn Plugin, at| {
        let service = Service { level: Some(at), ..service(1) };
        level(&machine(), &[], Demand { service, ..demand(plugin, 1) }).unwrap_err()
    };
    for (plugin, at, why) in [
        (&SANDBOXED, ServiceLevel::Offload, "level offload: its plugin has no eBPF variant"),
        (&SANDBOXED, ServiceLevel::Host, "level host: its plugin is sandboxed: a WebAssembly module"),
        (
            &PROCESS,
            ServiceLevel::Worker,
            "level worker: its plugin runs in processes; `instance move` moves it",
        ),
    ] {
        let error = refused(plugin, at);
        assert!(error.contains(why), "{error}");
    }
    let unknown = Kind(Runtime::Contained, false, None);
    let error = level(&machine(), &[], demand(&unknown, 1)).unwrap_err();
    assert!(error.contains("declares no cost: give the cycles per packet"), "{error}");
    assert_eq!(level(&machine(), &[], demand(&unknown, 0)), Ok(ServiceLevel::Worker), "no load");
    let negative = Service { packet: Some(-1.0), ..service(1) };
    let error = level(&machine(), &[], Demand { service: negative, ..demand(&SANDBOXED, 1) }).unwrap_err();
    assert!(error.contains("-1 is not a finite number"), "{error}");
}

#[test]
fn refusal_names_the_lack_and_the_rate_that_fits() {
    let held = Held { workers: 250_000, processors: 250_000, ..Held::default() };
    let machine = machine_of(LEVELS_HERE, None, held);
    let error = level(&machine, &[], demand(&SANDBOXED, 8_000_000)).unwrap_err();
    assert!(error.contains("level worker: lacks 5.00 % of worker"), "{error}");
    assert!(error.contains("7500000 packets per second would fit"), "{error}");
    let error = level(&machine, &[], demand(&PROCESS, 20_000_000)).unwrap_err();
    assert!(error.contains("level host: lacks"), "{error}");
}

#[test]
fn offloaded_service_moves_to_make_room() {
    let machine = machine();
    let standing = |instance: &'static str, is_pinned| Standing {
        demand: Demand { instance, ..demand(&OFFLOADED, 1_000_000) },
        place: Place { level: ServiceLevel::Offload, used: Used::default() },
        is_pinned,
    };
    let offload = Service { level: Some(ServiceLevel::Offload), ..service(9_500_000) };
    let asked = Demand { service: offload, ..demand(&OFFLOADED, 0) };
    let decided = machine.decide(&[standing("a", true), standing("b", false)], asked).unwrap();
    let used = Used { worker: 100_000, memory: 1 << 20, ..Used::default() };
    assert_eq!(decided.moves, [("b".to_owned(), Place { level: ServiceLevel::Worker, used })]);
    let error = level(&machine, &[standing("a", true), standing("b", true)], asked).unwrap_err();
    assert!(error.contains("level offload: lacks 50.00 % of offload.code"), "{error}");
}

#[test]
fn service_that_would_be_refused_now_keeps_what_it_was_promised_and_blocks_no_other() {
    let unknown = Kind(Runtime::Contained, false, None);
    let standing = Standing {
        demand: Demand { instance: "old", ..demand(&unknown, 1_000_000) },
        place: Place { level: ServiceLevel::Worker, used: Used { worker: 400_000, ..Used::default() } },
        is_pinned: false,
    };
    let left = |rate| level(&machine(), std::slice::from_ref(&standing), demand(&SANDBOXED, rate));
    assert_eq!(left(6_000_000), Ok(ServiceLevel::Worker));
    assert!(left(6_000_100).unwrap_err().contains("6000000 packets per second would fit"));
}

#[test]
fn move_is_admitted_with_the_runtime_that_it_brings() {
    let service = Service { level: Some(ServiceLevel::Worker), ..service(1) };
    let asked = Demand { service, runtime: Runtime::Trusted, ..demand(&PROCESS, 1) };
    assert_eq!(level(&machine(), &[], asked), Ok(ServiceLevel::Worker));
    let now = Demand { runtime: Runtime::Process, ..asked };
    assert!(level(&machine(), &[], now).unwrap_err().contains("its plugin runs in processes"));
}

#[test]
fn services_of_the_same_load_move_back() {
    let placed = |level, rate, used| PlacedService {
        instance: "a".to_owned(),
        plugin: "null",
        service: service(rate),
        level,
        used: Used { worker: used, ..Used::default() },
    };
    let before = [placed(ServiceLevel::Offload, 1, 0)];
    let mut moved = Placements::of(&Config::default(), Figures::ASSUMED);
    moved.put(placed(ServiceLevel::Worker, 1, 5));
    assert!(moved.move_back(&before) && !moved.move_back(&before));
    assert_eq!(moved.services, before);
    moved.put(placed(ServiceLevel::Worker, 2, 5));
    assert!(!moved.move_back(&before), "its load has changed");
}

#[test]
fn configured_services_are_placed_and_refused_with_their_position() {
    let text = |rate: &str| {
        format!(
            "[[instance]]\nplugin = \"null\"\nname = \"a\"\n[instance.service]\nrate = 1000\npacket = 100\n\
             [[instance]]\nplugin = \"null\"\nname = \"b\"\n[instance.service]\nrate = {rate}\npacket = 100000\n"
        )
    };
    let planned = |rate| Model::planned(&Config::parse(&text(rate), "f").unwrap());
    let model = planned("10").unwrap();
    let levels: Vec<_> = model.placements.services.iter().map(|placed| placed.level).collect();
    assert_eq!(levels, [ServiceLevel::Worker; 2]);
    assert!(model.placements.used().worker > 0 && model.placements.used().host == 0);
    let error = planned("4000000").unwrap_err().to_string();
    assert!(
        error.contains("f:10:1") && error.contains("\"b\": no room for 4000000 packets per second"),
        "{error}"
    );
}

/// Workers, and an instance of the built-in plugin with an eBPF variant that alice owns, with a load.
const OWNED: &str = "[[instance]]\nplugin = \"statistics\"\nname = \"a\"\nowner = \"alice\"\nowner-role = \"admin\"\n\
                     [instance.service]\nrate = 10\npacket = 100\n";

fn allowance(keys: &str) -> String {
    format!("{OWNED}[[admission.allowance]]\nname = \"students\"\n{keys}\n")
}

#[test]
fn allowances_of_the_owner_exclude_levels_from_choice_and_from_pins() {
    for keys in [
        "user = [\"alice\"]\nlevel = [\"worker\"]",
        "role = [\"admin\"]\nlevel = [\"worker\", \"host\"]",
        "user = [\"alice\"]\nprocessor = [\"worker 0\", \"host\"]",
    ] {
        let text = format!("[[port]]\nname = \"lan\"\ndevice = \"lan0\"\n{}", allowance(keys));
        let model = Model::planned(&Config::parse(&text, "f").unwrap()).unwrap();
        assert_eq!(model.placements.service("a").map(|one| one.level), Some(ServiceLevel::Worker), "{keys}");
        let plugin = model.plugins.plugin_of("a").unwrap();
        let pinned = Service { level: Some(ServiceLevel::Offload), ..service(10) };
        let asked = |instance: &'static str| Demand::of(instance, &*plugin, pinned);
        let error = decide(&model, asked("a"), None).unwrap_err().to_string();
        assert!(error.contains("level offload: allowance \"students\" of alice excludes it"), "{error}");
        let others = decide(&model, asked("b"), None).unwrap();
        assert_eq!(others.placed.level, ServiceLevel::Offload, "an instance of nobody");
        let owner = model.placements.owners.get("a");
        assert!(decide(&model, asked("b").owned_by(owner), None).is_err(), "a new instance of the owner");
    }
}

#[test]
fn service_without_room_at_the_levels_of_its_owner_names_the_allowance() {
    let text = allowance("user = [\"alice\"]\nlevel = [\"worker\"]").replace("rate = 10", "rate = 400000000");
    let error = Model::planned(&Config::parse(&text, "f").unwrap()).unwrap_err().to_string();
    assert!(
        error.contains("level offload: allowance \"students\" of alice excludes it; level worker: lacks"),
        "{error}"
    );
}

#[test]
fn lowered_allowances_take_away_no_level_of_a_service_that_starts() {
    let text = format!(
        "[[port]]\nname = \"lan\"\ndevice = \"lan0\"\n{}",
        allowance("user = [\"alice\"]\nlevel = [\"worker\"]")
    );
    let pinned = text.replace("rate = 10", "rate = 10\nlevel = \"offload\"");
    let model = Model::planned(&Config::parse(&pinned, "f").unwrap()).unwrap();
    assert_eq!(model.placements.service("a").map(|one| one.level), Some(ServiceLevel::Offload));
    let levels = levels(&model, &model.placements.services);
    assert!(levels.iter().any(|one| one.component == "offload" && one.claims.len() == 1), "it still counts");
}

#[test]
fn services_move_off_a_level_that_a_changed_allowance_excludes() {
    let port = "[[port]]\nname = \"lan\"\ndevice = \"lan0\"\n";
    let forbid = |level: &str| format!("user = [\"alice\"]\nlevel = [\"{level}\"]");
    let moved = |instance: &str, keys: &str| {
        let text = format!("{port}{}", instance.replace("rate = 10\n", "rate = 1000000\n"));
        let mut model = Model::planned(&Config::parse(&text, "f").unwrap()).unwrap();
        assert_eq!(model.placements.service("a").map(|one| one.level), Some(ServiceLevel::Offload));
        model.admission = Config::parse(&allowance(keys), "f").unwrap().admission;
        let moved = obey_allowances(&mut model, None);
        let again = obey_allowances(&mut model, None);
        assert!(again.is_empty(), "{again:?}");
        moved.iter().map(|one| (one.instance.clone(), one.level)).collect::<Vec<_>>()
    };
    assert_eq!(moved(OWNED, &forbid("worker")), [("a".to_owned(), ServiceLevel::Worker)]);
    assert_eq!(moved(OWNED, &forbid("offload")), []);
    assert_eq!(moved(OWNED, "user = [\"bob\"]\nlevel = [\"worker\"]"), []);
    let pinned = OWNED.replace("rate = 10", "rate = 10\nlevel = \"offload\"");
    assert_eq!(moved(&pinned, &forbid("worker")), [], "its level is configured");
    let large = OWNED.replace("rate = 10", "rate = 400000000");
    assert_eq!(moved(&large, &forbid("worker")), [], "the workers have no room");
}

#[test]
fn service_moves_to_no_level_that_an_allowance_excludes_to_make_room_for_another() {
    // The services fill the offload. Only the first one may move, and it is dear at the worker.
    let standing = |name: &str, level: &str| {
        format!(
            "[[instance]]\nplugin = \"statistics\"\nname = \"{name}\"\nowner = \"{name}\"\nowner-role = \"admin\"\n\
             [instance.service]\nrate = 1000000\npacket = 100\n{level}\n"
        )
    };
    let allowance = "[[admission.allowance]]\nname = \"fast\"\nuser = [\"i0\"]\nlevel = [\"offload\"]\n";
    let most = millrace_offload::VARIANTS;
    let all: String = (0..most)
        .map(|number| {
            standing(
                &format!("i{number}"),
                match number {
                    0 => "",
                    _ => "level = \"offload\"",
                },
            )
        })
        .collect();
    let moves = |more: &str| {
        let text = format!("[[port]]\nname = \"lan\"\ndevice = \"lan0\"\n{all}{more}");
        let mut model = Model::planned(&Config::parse(&text, "f").unwrap()).unwrap();
        let first = model.placements.services.iter_mut().find(|one| one.instance == "i0").unwrap();
        (first.level, first.used) = (ServiceLevel::Offload, Used::default());
        let plugin = model.plugins.plugin_of("i0").unwrap();
        let pinned = Service { level: Some(ServiceLevel::Offload), packet: Some(100.0), ..service(10) };
        let decided = decide(&model, Demand::of("new", &*plugin, pinned), None);
        decided.map(|decision| decision.moves.len()).map_err(|error| error.to_string())
    };
    assert_eq!(moves(""), Ok(1));
    let error = moves(allowance).unwrap_err();
    assert!(error.contains("level offload: lacks"), "{error}");
}

/// Change of the services in the property below: index of the plugin, rate, level, and whether it is removed.
fn changes() -> impl Strategy<Value = Vec<(u8, u32, Option<u8>, bool)>> {
    let one = (0..6_u8, 0..12_000_000_u32, prop::option::of(0..3_u8), prop::bool::weighted(0.3));
    prop::collection::vec(one, 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The slow twin adds the declared cycles up by hand.
    #[test]
    fn promises_never_exceed_the_machine(changes in changes()) {
        let machine = machine();
        let kinds = [&SANDBOXED, &OFFLOADED, &PROCESS];
        let mut placements = Placements::of(&Config::default(), Figures::ASSUMED);
        for (index, rate, pin, is_removed) in changes {
            let name = format!("i{index}");
            if is_removed {
                placements.remove_service(&name);
                continue;
            }
            let kind = |name: &str| kinds[usize::from(name.as_bytes()[1] % 3)];
            let pin = pin.map(|pin| LEVELS[usize::from(pin)]);
            let service = Service { level: pin, ..service(rate) };
            let others: Vec<_> = placements.services.clone();
            let standing: Vec<_> = others.iter().filter(|placed| placed.instance != name).map(|placed| Standing {
                demand: Demand::of(&placed.instance, kind(&placed.instance), placed.service),
                place: Place { level: placed.level, used: placed.used },
                is_pinned: placed.service.pin().is_some(),
            }).collect();
            let asked = Demand::of(&name, kind(&name), service);
            let Ok(decided) = machine.decide(&standing, asked) else {
                prop_assert_eq!(&others, &placements.services);
                continue;
            };
            prop_assert!(decided.moves.len() <= MOST_MOVES);
            prop_assert!(pin.is_none_or(|pin| pin == decided.placed.level));
            decided.carry_out(&mut placements);
            let sum = |level: ServiceLevel, cycles: f64| -> f64 {
                let own = placements.services.iter().filter(|placed| placed.level == level);
                own.map(|placed| f64::from(placed.service.rate) * cycles).sum()
            };
            let host = sum(ServiceLevel::Host, 100.0);
            let worker = sum(ServiceLevel::Worker, 100.0) + sum(ServiceLevel::Host, 300.0);
            let offloaded = placements.services.iter().filter(|placed| placed.level == ServiceLevel::Offload);
            prop_assert!(worker <= 1e9 && host <= 1e9 && offloaded.count() <= 2, "{:?}", placements.services);
        }
    }
}

#[test]
fn fixed_cycles_count_beside_those_of_packets() {
    let fixed = Kind(Runtime::Contained, false, Some([100.0, 0.0, 5e8, 1.0]));
    let decision = machine().decide(&[], demand(&fixed, 1_000_000)).unwrap();
    // 10^8 cycles for packets and 5 x 10^8 without, of 10^9.
    assert_eq!(decision.placed.used.worker, 600_000);
    let error = level(&machine(), &[], demand(&fixed, 6_000_000)).unwrap_err();
    assert!(
        error.contains("level worker: lacks") && error.contains("5000000 packets per second would fit"),
        "{error}"
    );
}

#[test]
fn packets_that_leave_cross_the_ring_too() {
    let ring = Ring::ASSUMED.transfers_per_second;
    let rate = |output: f64| {
        let kind = Kind(Runtime::Process, false, Some([1.0, 0.0, 0.0, output]));
        let beyond = (2.0 * ring) as u32;
        let error = level(&machine(), &[], demand(&kind, beyond)).unwrap_err();
        let (before, _) = error.split_once(" packets per second would fit").expect(&error);
        before.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    // Each packet that leaves takes a transfer back. The transfer to the process costs the same for both.
    assert!(rate(1.0) > 1.2 * rate(3.0), "{} {}", rate(1.0), rate(3.0));
}

#[test]
fn declared_memory_of_services_is_promised_once() {
    let levels = Levels { workers: 2, ..LEVELS_HERE };
    let machine = machine_of(levels, Some(5 << 19), Held::default());
    let decision = machine.decide(&[], demand(&SANDBOXED, 1_000)).unwrap();
    assert_eq!(decision.placed.used.memory, 2 << 20, "an instance at each worker");
    let Decision { placed, .. } = decision;
    let standing = |used| Standing {
        demand: Demand::of("a", &SANDBOXED, placed.service),
        place: Place { level: placed.level, used },
        is_pinned: false,
    };
    let error = level(&machine, &[standing(placed.used)], demand(&SANDBOXED, 1)).unwrap_err();
    assert!(
        error.contains("level worker: lacks 1536KiB of memory")
            && error.contains("admission set memory=SIZE"),
        "{error}"
    );
    // Offloaded packets need no instance.
    assert_eq!(level(&machine, &[standing(placed.used)], demand(&OFFLOADED, 1)), Ok(ServiceLevel::Offload));
}
