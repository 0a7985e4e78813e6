//! Conformance of the runtimes: one rule as a built-in plugin and in each runtime of plugin files has the same
//! results for random events.

use std::sync::LazyLock;

use millrace_packet::Pool;
use millrace_plugin_abi::{Instance, Instant, Plugin};
use millrace_testkit::built::Format;
use proptest::prelude::*;
use serde_json::{Map, json};

use crate::process::in_process;
use crate::rule::{Rule, RuleIn};
use crate::support::{
    Bench, STATELESS, Sent, contained, executable, from_rust, message, module, native, object, source,
};

/// Event that an instance gets.
#[derive(Clone, Debug)]
enum Event {
    Packets(Vec<Sent>),
    FlowEnds(Sent, u64),
    Set(u16),
    Read,
    Periodic,
    Replace,
    Restart,
    Message(Vec<u8>),
}

fn sent() -> impl Strategy<Value = Sent> {
    let port = prop_oneof![7..17_u16, Just(53), Just(80), Just(666), Just(667)];
    (0..=STATELESS, port, 0..300_usize, any::<u8>()).prop_map(|(flow, port, length, first)| {
        let bytes = (0..length).map(|index| first.wrapping_add(index as u8)).collect();
        Sent { flow, port, bytes }
    })
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => prop::collection::vec(sent(), 1..150).prop_map(Event::Packets),
        2 => (sent(), 0..9_u64).prop_map(|(sent, packets)| Event::FlowEnds(sent, packets)),
        1 => prop_oneof![Just(53_u16), Just(80)].prop_map(Event::Set),
        1 => Just(Event::Read),
        1 => Just(Event::Periodic),
        1 => Just(Event::Replace),
        1 => Just(Event::Restart),
        1 => prop_oneof![0..300_usize, 32_000..33_000_usize].prop_map(|length| Event::Message(vec![length as u8; length])),
    ]
}

pub type Plugins = Vec<(&'static str, RuleIn, Box<dyn Plugin>)>;

/// Plugins with the rule, for each runtime and language that this machine has a compiler for.
pub static PLUGINS: LazyLock<Plugins> = LazyLock::new(|| {
    let mut plugins: Plugins = Vec::new();
    if let Some(module) = module(&source("rule.c")) {
        plugins.push(("module from C", RuleIn::C, Box::new(contained(&module))));
    }
    if let Some(object) = object(&source("rule.c"), &[]) {
        plugins.push(("shared object from C", RuleIn::C, Box::new(native(&object))));
        plugins.push(("process of an object from C", RuleIn::C, Box::new(in_process(&object))));
    }
    for (has_libraries, name) in [(false, "static executable from C"), (true, "dynamic executable from C")] {
        if let Some(executable) = executable(&source("rule.c"), has_libraries) {
            plugins.push((name, RuleIn::C, Box::new(in_process(&executable))));
        }
    }
    if let Some(executable) = from_rust(Format::Executable) {
        plugins.push(("executable from Rust", RuleIn::Rust, Box::new(in_process(&executable))));
    }
    if let Some(module) = from_rust(Format::Wasm) {
        plugins.push(("module from Rust", RuleIn::Rust, Box::new(contained(&module))));
    }
    if let Some(object) = from_rust(Format::Native) {
        plugins.push(("shared object from Rust", RuleIn::Rust, Box::new(native(&object))));
        plugins.push(("process of an object from Rust", RuleIn::Rust, Box::new(in_process(&object))));
    }
    plugins
});

/// Applies an event to an instance. Returns its result as a text, which must be equal in all runtimes.
fn happen(
    bench: &mut Bench,
    pool: &Pool,
    event: &Event,
    now: Instant,
    new: impl FnOnce() -> Box<dyn Instance>,
) -> String {
    let came = match event {
        Event::Packets(sent) => format!("{:?}", bench.send(pool, sent, now)),
        Event::FlowEnds(sent, packets) => {
            bench.end(sent, *packets);
            String::new()
        }
        Event::Set(port) => format!("{:?}", bench.instance.control(&message("set", json!({ "port": port })))),
        Event::Read => format!("{:?}", bench.instance.control(&message("read", json!({})))),
        Event::Periodic => {
            bench.periodic(now);
            String::new()
        }
        Event::Message(bytes) => {
            bench.tell(bytes);
            String::new()
        }
        Event::Restart => format!("{:?}", bench.restart()),
        Event::Replace => format!("{:?}", bench.replace(new(), 2)),
    };
    let (outputs, next_call, noted) = (bench.outputs(), bench.instance.next_call(), bench.noted());
    format!("{came} {outputs:?} {next_call:?} {noted:?} {:?}", bench.instance.counters())
}

fn compare(events: &[Event]) {
    let pool = Pool::new(1024).unwrap();
    for (runtime, language, plugin) in PLUGINS.iter() {
        let twin = || Box::new(Rule::like(*language));
        let mut built_in = Bench::new(twin());
        let mut other = Bench::of(&**plugin);
        for (round, event) in events.iter().enumerate() {
            let now = Instant::from_millis(1 + 400 * round as u64);
            let expected = happen(&mut built_in, &pool, event, now, || twin());
            let came = happen(&mut other, &pool, event, now, || plugin.create(&Map::new()).unwrap());
            assert_eq!(came, expected, "{runtime}: {event:?}");
        }
        let read = message("read", json!({}));
        assert_eq!(other.instance.control(&read), built_in.instance.control(&read), "{runtime}");
    }
}

#[test]
fn rule_behaves_equally_in_all_runtimes() {
    let sent = |flow, port, length| Sent { flow, port, bytes: vec![0x11; length] };
    let all_ports = (7..17).chain([53, 80, 666, 667]).map(|port| sent(port % 4, port, 250));
    let events = [
        Event::Packets(all_ports.collect()),
        Event::Set(80),
        Event::Packets((0..100).map(|_| sent(0, 15, 90)).collect()),
        Event::Packets((0..20).map(|index| sent(index % 5, 15, 61 + usize::from(index))).collect()),
        Event::Read,
        Event::Periodic,
        Event::FlowEnds(sent(0, 15, 0), 100),
        Event::FlowEnds(sent(STATELESS, 15, 0), 1),
        Event::Replace,
        Event::Read,
        Event::Restart,
        Event::Message(vec![7; 11]),
        Event::Message(vec![7; 32_770]),
        Event::Read,
        Event::Packets((0..100).map(|index| sent(index % 5, 80 + index % 2, 90)).collect()),
        Event::Read,
    ];
    compare(&events);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn runtimes_differ_in_no_packet(events in prop::collection::vec(event(), 1..12)) {
        compare(&events);
    }
}
