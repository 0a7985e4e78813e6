//! Tests of services on a measured machine, and of sets of services.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// Returns a hardware file with two workers, of which core may use half, and these times of switches.
fn measured(ring: f64) -> String {
    let line = |packet| Some(Line { packet, byte: 0.0 });
    let measured = Measured {
        name: "m".to_owned(),
        processors: 4,
        workers: 2,
        cycles_per_second: 1e9,
        core_ceiling: 0.5,
        memory: Some(64e6),
        socket_rings: line(1_000.0),
        worker_rings: line(200.0),
        process_rings: line(ring),
        ..Default::default()
    };
    measured.written().unwrap()
}

#[test]
fn figures_of_a_measured_machine_are_known_by_its_file() {
    let folder = std::env::temp_dir().join(format!("millrace-figures-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    assert_eq!((known_figures(None), known_figures(Some(&folder))), (Figures::ASSUMED, Figures::ASSUMED));
    let file = folder.join(HARDWARE_FILE);
    std::fs::write(&file, measured(400.0)).unwrap();
    let figures = known_figures(Some(&folder));
    let ring = figures.switches.processes;
    assert!((ring.transfers_per_second - 5e6).abs() < 1.0, "{ring:?}");
    assert!(figures.memory.is_some_and(|memory| (memory - 64e6).abs() < 10.0), "{figures:?}");
    // A tenth of the host's cycles would be enough, but the ring carries no more.
    let switches = Switches { processes: ring, ..Switches::ASSUMED };
    let levels = Levels { switches, worker: 1e12, ..LEVELS_HERE };
    let room = Room::new(levels, 1e9, 1_000 * 1_000_000, None).unwrap();
    let machine = Machine { room, ..machine() };
    let error = level(&machine, &[], demand(&PROCESS, 3_000_000)).unwrap_err();
    assert!(
        error.contains("of process rings") && error.contains("2500000 packets per second would fit"),
        "{error}"
    );
    std::fs::write(&file, "name = 1").unwrap();
    assert_eq!(known_figures(Some(&folder)), Figures::ASSUMED);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Plans a router with two workers on a measured machine. `provisioning` says how much of its components may be promised.
pub(super) fn planned(provisioning: &str, entries: &str) -> Result<Model, String> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("millrace-switches-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let text = measured(400.0).replace("[provisioning]", &format!("[provisioning]\n{provisioning}"));
    std::fs::write(folder.join(HARDWARE_FILE), text).unwrap();
    let text = format!(
        "[router]\nworkers = 2\n[plugins]\nstate = {folder:?}\n[[port]]\nname = \"wan\"\ndevice = \"wan0\"\n\
         [port.scheduler]\nrate = \"10gbit\"\nnode = [{{ name = \"all\", kind = \"fifo\" }}]\n{entries}"
    );
    let model = Model::planned(&Config::parse(&text, "f").unwrap());
    std::fs::remove_dir_all(&folder).unwrap();
    model.map_err(|error| error.to_string())
}

fn shown(model: &Model, component: &str) -> ComponentView {
    let components = crate::admission::view(model).components;
    let found = components.iter().find(|one| one.component == component);
    found.unwrap_or_else(|| panic!("{component} of {components:?}")).clone()
}

fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-3, "{found}, not {expected}");
}

/// Returns the configuration of a service at the workers.
pub(super) fn at_workers(rate: u32) -> String {
    format!(
        "[[instance]]\nplugin = \"null\"\nname = \"a\"\n[instance.service]\nrate = {rate}\npacket = 1\n\
         size = \"100B\"\nlevel = \"worker\"\n"
    )
}

/// Plans a router of whose rings of sockets a part may be promised.
fn with_sockets(part: &str, entries: &str) -> Result<Model, String> {
    planned(&format!("\"socket rings\" = {part}\n"), entries)
}

#[test]
fn services_count_against_the_switches_on_their_route() {
    let model = with_sockets("0.8", &at_workers(100_000)).unwrap();
    let sockets = shown(&model, "socket rings");
    // Core may use half of each of two workers: a packet takes 1 us of a second.
    near(sockets.promised, 10.0);
    near(sockets.whole.unwrap(), 80.0);
    // Half of the packets cross between the workers, both of which take the time, there and back.
    near(shown(&model, "worker rings").promised, 100_000.0 * 2.0 * 200e-9 * 0.5 * 2.0 * 100.0);
    let refused = with_sockets("0.8", &at_workers(900_000)).unwrap_err();
    assert!(refused.contains("level worker: lacks 10.00 % of socket rings"), "{refused}");
    // A thousand-millionth is lost in rounding.
    assert!(refused.contains("799999 packets per second would fit"), "{refused}");
}

#[test]
fn packets_for_a_pinned_service_cross_between_workers_once_more() {
    let promised = |pin: &str| {
        let text = at_workers(100_000).replace("level = \"worker\"", pin);
        shown(&with_sockets("1", &text).unwrap(), "worker rings").promised
    };
    near(promised("worker = 1"), 2.0 * promised("level = \"worker\""));
}

#[test]
fn reserved_rates_count_against_the_switches_on_their_route() {
    let voice = "[[principal]]\nname = \"voice\"\nlink.wan = \"615200kbit\"\n";
    let both = at_workers(100_000) + voice;
    let model = with_sockets("0.8", &both).unwrap();
    // 615.2 Mbit/s are 50,000 packets of 1,538 bytes per second.
    let sockets = shown(&model, "socket rings");
    near(sockets.promised, 15.0);
    assert!(sockets.claims.iter().any(|claim| claim.by == "voice at port wan"), "{sockets:?}");
    let more = "[[principal]]\nname = \"b\"\nlink.wan = \"9gbit\"\n";
    let mut principals = model.principals.clone();
    principals.extend(Config::parse(&(with_sockets_port() + more), "f").unwrap().principal);
    let error = check_links(&model, &principals).unwrap_err().to_string();
    assert!(error.contains("\"b\": link wan = 9.00 Gb/s") && error.contains("of socket rings"), "{error}");
    check_links(&model, &model.principals).unwrap();
    let error = with_sockets("0.04", voice).unwrap_err();
    assert!(
        error.contains("\"voice\": link wan = 615.20 Mb/s") && error.contains("of socket rings"),
        "{error}"
    );
    let lower =
        Router { core_ceiling: millrace_config::CoreCeiling::clamped(50_000), ..model.router.clone() };
    let error = check_settings(&model, &lower, &model.admission).unwrap_err().to_string();
    assert!(error.contains("of socket rings"), "{error}");
}

/// Returns the configuration of the port `wan` alone.
fn with_sockets_port() -> String {
    "[[port]]\nname = \"wan\"\ndevice = \"wan0\"\n[port.scheduler]\nrate = \"10gbit\"\n\
     node = [{ name = \"all\", kind = \"fifo\" }]\n"
        .to_owned()
}

#[test]
fn measured_memory_is_promised_where_none_is_configured() {
    let wanted = |memory: &str| {
        let entries = format!("[[principal]]\nname = \"a\"\nmemory = \"{memory}\"\n");
        planned("", &entries)
    };
    let whole = shown(&wanted("60 MiB").unwrap(), "memory").whole.unwrap();
    assert!((whole - 64e6).abs() < 10.0, "{whole}");
    assert!(wanted("100 MiB").unwrap_err().contains("memory is 100MiB"));
}

/// Returns the configuration of a service that needs a part of a processor.
pub(super) fn needing(name: &str, plugin: &str, part: f64, level: &str) -> String {
    let packet = crate::workers::tsc::frequency() as f64 * part / 1_000.0;
    format!(
        "[[instance]]\nplugin = \"{plugin}\"\nname = \"{name}\"\n[instance.service]\nrate = 1000\n\
         packet = {packet}\n{level}\n"
    )
}

#[test]
fn set_of_services_is_placed_where_its_order_would_not_fit() {
    // One slot of the offload is left. In the order of the file, `small` would take it, and `fixed` find too little of
    // the worker beside `large`.
    let pinned: String = (0..millrace_offload::VARIANTS - 1)
        .map(|number| needing(&format!("p{number}"), "statistics", 0.0, "level = \"offload\""))
        .collect();
    let text = format!(
        "[[port]]\nname = \"lan\"\ndevice = \"lan0\"\n{pinned}{}{}{}",
        needing("small", "statistics", 0.15, ""),
        needing("large", "statistics", 0.3, ""),
        needing("fixed", "null", 0.3, "")
    );
    let planned = |text: &str| Model::planned(&Config::parse(text, "f").unwrap());
    let model = planned(&text).unwrap();
    let level = |name: &str| model.placements.service(name).map(|placed| placed.level);
    assert_eq!(level("fixed"), Some(ServiceLevel::Worker));
    assert_eq!((level("small"), level("large")), (Some(ServiceLevel::Worker), Some(ServiceLevel::Offload)));
    let error = planned(&(text + &needing("more", "null", 0.1, ""))).unwrap_err().to_string();
    assert!(error.contains("\"large\": no room for 1000 packets per second"), "{error}");
    assert!(
        error.contains("lacks 40.00 % of worker") && error.contains("333 packets per second would fit"),
        "{error}"
    );
}
