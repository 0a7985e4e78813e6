//! Tests of hardware files and of impacts.

use millrace_admission::hardware::{Fault, Hardware, KNOWN, known};
use millrace_admission::impact::Candidate;
use millrace_admission::request::{Class, Cycles, Needs, Request, RequestError, Stream};

fn ixp1200() -> Hardware {
    Hardware::parse(known("ixp1200").expect("known")).expect("the file is right")
}

fn medium(whole_packet: bool) -> Request {
    let cycles = Cycles { packet: 3_500.0, ..Cycles::default() };
    Request {
        name: "medium".to_owned(),
        class: Class::PerFlow,
        port: None,
        plugin: None,
        on: Vec::new(),
        user: None,
        needs: Needs { cycles: [("any".to_owned(), cycles)].into(), whole_packet, ..Needs::default() },
        input: Stream { packets_per_second: 400.0, bytes: 1000.0, bytes_maximum: None },
        output: None,
    }
}

/// Returns the share of a component by a request on a processor.
fn share(hardware: &Hardware, request: &Request, processor: &str, component: &str) -> f64 {
    let candidate = Candidate::of(hardware, request).expect("a right request");
    let processor = hardware.processor(processor).expect("a processor");
    let choice = candidate.choices.iter().find(|choice| choice.processor == processor).expect("a choice");
    choice.impact.of(hardware.component(component).expect("a component")).number()
}

fn assert_near(value: f64, expected: f64) {
    assert!((value - expected).abs() < 1e-9, "{value} instead of {expected}");
}

#[test]
fn known_hardware_is_right() {
    for (name, text) in KNOWN {
        Hardware::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn impact_on_the_strongarm_is_its_cycles_and_the_environment() {
    let cycles = 400.0 * (189.0 + 189.0 + 513.0 + 3_500.0);
    assert_near(share(&ixp1200(), &medium(true), "SA", "SA"), cycles / 199.1e6);
    assert_near(share(&ixp1200(), &medium(true), "SA", "PCI"), 0.0);
    assert_near(
        share(&ixp1200(), &medium(true), "SA", "Port.in"),
        400.0 * (1600.0 + 80.0 * 1000.0) * 1e-9 / 8.0,
    );
}

#[test]
fn headers_cross_the_bus_by_programmed_transfers() {
    let nanoseconds = (3.27 + 40.30 * 68.0) + (-34.94 + 15.09 * 68.0);
    assert_near(share(&ixp1200(), &medium(false), "PT", "PCI"), 400.0 * nanoseconds * 1e-9);
    let strongarm = 189.0 + 189.0 + 513.0 + (27.0 + 8.0 * 68.0) + 186.0;
    assert_near(share(&ixp1200(), &medium(false), "PT", "SA"), 400.0 * strongarm / 199.1e6);
    let pentium = 1_342.0 + 99.0 + (99.0 + 11.0 * 68.0) + 3_500.0;
    assert_near(share(&ixp1200(), &medium(false), "PT", "PT"), 400.0 * pentium / 733e6);
}

#[test]
fn whole_packets_follow_their_headers_by_dma() {
    let header = (3.27 + 40.30 * 68.0) + (-34.94 + 15.09 * 68.0);
    let packet = (3_739.0 + 17.91 * 1_004.0) + (-34.94 + 15.09 * 1_004.0);
    assert_near(share(&ixp1200(), &medium(true), "PT", "PCI"), 400.0 * (header + packet) * 1e-9);
}

#[test]
fn a_flows_service_uses_a_static_processor_by_its_worst_case() {
    let mut small = medium(false);
    let cycles = Cycles { packet: 100.0, packet_maximum: Some(300.0), ..Cycles::default() };
    small.needs.cycles = [("any".to_owned(), cycles)].into();
    assert_near(share(&ixp1200(), &small, "UE", "UE.flow"), 300.0 / 768.0);
    small.class = Class::Global;
    assert_near(share(&ixp1200(), &small, "UE", "UE.global"), 300.0 / 768.0);
    let candidate = Candidate::of(&ixp1200(), &small).expect("a right request");
    assert_eq!(candidate.choices.len(), 1, "global services run on static processors only");
}

#[test]
fn cycles_without_packets_need_a_dynamic_processor() {
    let mut service = medium(false);
    let cycles = Cycles { fixed: 1e6, packet: 100.0, ..Cycles::default() };
    service.needs.cycles = [("any".to_owned(), cycles)].into();
    let candidate = Candidate::of(&ixp1200(), &service).expect("a right request");
    assert_eq!(candidate.choices.iter().map(|choice| choice.processor).collect::<Vec<_>>(), [1, 2]);
    assert_near(
        share(&ixp1200(), &service, "SA", "SA"),
        (1e6 + 400.0 * (189.0 + 189.0 + 513.0 + 100.0)) / 199.1e6,
    );
}

#[test]
fn output_counts_apart_from_input() {
    let mut filter = medium(false);
    filter.output = Some(Stream { packets_per_second: 100.0, ..filter.input });
    assert_near(share(&ixp1200(), &filter, "SA", "Port.out"), 100.0 * (1600.0 + 80_000.0) * 1e-9 / 8.0);
    assert_near(
        share(&ixp1200(), &filter, "SA", "SA"),
        (400.0 * (189.0 + 513.0 + 3_500.0) + 100.0 * 189.0) / 199.1e6,
    );
}

#[test]
fn faults_of_hardware_files_have_their_place() {
    let text = known("ixp1200").expect("known");
    let cases = [
        ("cycles-per-second = 199.1e6", "cycles-per-second = -1", "above 0"),
        ("cycles-per-second = 199.1e6", "cycles-per-second = inf", "above 0"),
        ("cycles-per-second = 199.1e6", "cycles-per-second = 0", "above 0"),
        ("environment-cycles = 513", "environment-cycles = nan", "at least 0"),
        ("cycles-per-packet = 768", "memory-bytes = 768", "static processor"),
        ("from = \"SA\"", "from = \"AS\"", "no port or processor \"AS\""),
        ("to = \"UE\"", "to = \"SA\"", "no path leads from a port to processor \"UE\""),
        ("switches = [{ name = \"PCI\" }]", "switches = [{ name = \"ISA\" }]", "no switch \"ISA\""),
        ("name = \"PT\"", "name = \"SA\"", "two entries"),
        ("minimum = 64", "minimum = 6400", "above the largest"),
        ("\"Port.in\" = \"unbounded\"", "\"Port.in\" = 1.5", "from 0 to 1"),
        ("\"Port.in\" = \"unbounded\"", "\"Port.up\" = 1", "no component"),
        ("byte = 15.09", "byte = -15.09", "negative time"),
        ("overhead = 4", "colour = 4", "unknown field"),
    ];
    for (right, wrong, words) in cases {
        let faulty = text.replacen(right, wrong, 1);
        assert_ne!(faulty, text, "{right}");
        let error = Hardware::parse(&faulty).expect_err(wrong);
        assert!(error.to_string().contains(words), "{wrong}: {error}");
        assert!(error.line > 1, "{wrong}: {error}");
    }
    assert!(matches!(Hardware::parse("name = 1").expect_err("no text").fault, Fault::Syntax(_)));
}

#[test]
fn faults_of_requests_name_the_key() {
    type Change = fn(&mut Request);
    let cases: [(Change, &str); 6] = [
        (|request| request.input.packets_per_second = 0.0, "input.packets-per-second = 0"),
        (|request| request.input.bytes = f64::NAN, "input.bytes = NaN"),
        (|request| request.needs.memory_bytes = -1.0, "needs.memory-bytes = -1"),
        (|request| request.needs.cycles.clear(), "no cycles"),
        (|request| request.port = Some("Ring".to_owned()), "no port \"Ring\""),
        (
            |request| {
                request.needs.cycles.insert("vax".to_owned(), Cycles::default());
            },
            "kind \"vax\"",
        ),
    ];
    for (change, words) in cases {
        let mut request = medium(true);
        change(&mut request);
        let error: RequestError = Candidate::of(&ixp1200(), &request).expect_err(words);
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn clusters_reach_processors_of_other_machines() {
    let text = known("pentium").expect("known");
    let cluster = format!(
        "{text}\n[[switch]]\nname = \"net\"\nbits-per-second = 1e9\npackets-per-second = 1e6\n\n[[processor]]\n\
         name = \"P2\"\nkind = \"pentium\"\nmachine = \"second\"\nscheduling = \"dynamic\"\n\
         cycles-per-second = 733e6\nmemory-bytes = 1e6\n\n[[path]]\nfrom = \"PT\"\nto = \"P2\"\n\
         switches = [{{ name = \"net\" }}]\ntransfer = \"packet\"\n"
    );
    let hardware = Hardware::parse(&cluster).expect("a right file");
    let mut request = medium(true);
    request.needs.memory_bytes = 1e5;
    assert_near(share(&hardware, &request, "P2", "net.bits"), 2.0 * 400.0 * 8_000.0 / 1e9);
    assert_near(share(&hardware, &request, "P2", "net.packets"), 2.0 * 400.0 / 1e6);
    assert_near(share(&hardware, &request, "P2", "P2.memory"), 0.1);
    assert_near(share(&hardware, &request, "P2", "P2"), 400.0 * 3_500.0 / 733e6);
}

#[test]
fn declared_needs_complete_a_request() {
    let asked = Request { needs: Needs::default(), ..medium(false) };
    let complete = asked.clone().declared(medium(false).needs, 1.0).expect("no needs of its own");
    assert_eq!(complete, medium(false));
    let doubled = asked.clone().declared(medium(false).needs, 2.0).expect("no needs of its own");
    assert_near(doubled.leaving().packets_per_second, 800.0);
    let stated = Request { output: Some(Stream { packets_per_second: 7.0, ..asked.input }), ..asked };
    let kept = stated.declared(medium(false).needs, 2.0).expect("no needs of its own");
    assert_near(kept.leaving().packets_per_second, 7.0);
    let twice = medium(false).declared(medium(false).needs, 1.0);
    assert_eq!(twice, Err(RequestError::Twice("medium".to_owned())));
}
