//! `lookup` predicts the path of a packet: each case looks up a packet, sends it, and compares both results.

mod packets;
mod random;

use std::sync::Arc;

use millrace_controller::view::LookupView;
use millrace_packet::DropReason;
use millrace_plugin_abi::{
    Fault, Instance, Instant, Message, Packets, Plugin, PluginError, Position, Progress, Reply, Verdict,
};
use millrace_tests::{Ipv4Frame, STANDARD, Scenario};
use serde_json::{Map, Value};

/// Description of the packet that [`Ipv4Frame::udp`] sends to port a.
const PACKET: &str = "src 10.1.0.2 dst 10.9.0.1 proto udp in a";

fn filter(action: &str, gate: &str) -> String {
    format!("[[filter]]\nmatch = \"proto udp\"\naction = \"{action}\"\ngate = \"{gate}\"\npriority = 9\n")
}

/// Returns the configuration of an instance that counts packets at a gate.
fn counting(gate: &str) -> String {
    format!(
        "[[instance]]\nplugin = \"statistics\"\nname = \"seen\"\n\
         [[bind]]\ninstance = \"seen\"\ngate = \"{gate}\"\nfilter = \"proto udp\"\n"
    )
}

fn seen(router: &mut Scenario) -> u64 {
    let message = Message { name: "read".into(), arguments: Map::new() };
    let read = router.router.control("seen", &message).unwrap();
    read["packets"]["udp"].as_u64().unwrap_or(0)
}

fn look(router: &mut Scenario) -> LookupView {
    router.router.lookup(PACKET).unwrap()
}

/// Returns the gates that a lookup names, in the order of its steps.
fn gates(looked: &LookupView) -> Vec<&str> {
    let at_gates = looked.steps.iter().filter(|step| step.stage == "gate");
    at_gates.map(|step| step.text.split_once([':', ',']).map_or("", |(gate, _)| gate)).collect()
}

fn has_stage(looked: &LookupView, stage: &str) -> bool {
    looked.steps.iter().any(|step| step.stage == stage)
}

#[test]
fn lookup_ends_at_the_gate_that_drops() {
    for (action, gate) in [("drop", "security-in"), ("reject", "firewall"), ("drop", "process")] {
        let more = [filter(action, gate), filter("drop", "security-out"), counting("monitor")].concat();
        let mut router = Scenario::with(&more);
        let looked = look(&mut router);
        assert!(looked.verdict.starts_with("dropped: filter"), "{looked:?}");
        assert_eq!(gates(&looked), [format!("gate {gate}")], "{looked:?}");
        assert!(!has_stage(&looked, "route") && !has_stage(&looked, "queue"), "{looked:?}");
        router.send("a", &Ipv4Frame::udp());
        assert_eq!((router.dropped(DropReason::Filter), seen(&mut router)), (1, 0), "{gate}");
    }
}

#[test]
fn lookup_keeps_the_decision_of_the_first_route_gate() {
    let second = "[[gate]]\nname = \"second\"\nposition = \"route\"\n";
    for (first, then) in [("ports c via 10.3.0.2", "drop"), ("ports c via 10.3.0.2", "host")] {
        let more = [second, &filter(first, "route"), &filter(then, "second"), &counting("monitor")].concat();
        let mut router = Scenario::with(&more);
        let looked = look(&mut router);
        assert_eq!(looked.verdict, "sent out of port c", "{looked:?}");
        assert_eq!(gates(&looked), ["gate route", "gate second", "gate monitor"]);
        let text = &looked.steps.iter().find(|step| step.text.starts_with("gate second")).unwrap().text;
        assert!(text.ends_with("; an earlier gate has chosen the route"), "{text}");
        router.expect_forwarded("a", &Ipv4Frame::udp(), "c");
    }
    // An instance and `accept` choose no output port, so the next gate decides.
    let instance = "[[instance]]\nplugin = \"null\"\nname = \"n\"\n\
                    [[bind]]\ninstance = \"n\"\ngate = \"route\"\nfilter = \"proto udp\"\n";
    for first in [instance, &filter("accept", "route")] {
        let more = [second, first, &filter("drop", "second"), &counting("monitor")].concat();
        let mut router = Scenario::with(&more);
        let looked = look(&mut router);
        assert_eq!(looked.verdict, "dropped: filter", "{looked:?}");
        router.expect_drop("a", &Ipv4Frame::udp(), DropReason::Filter);
        assert_eq!(seen(&mut router), 1);
    }
}

#[test]
fn lookup_of_a_packet_that_a_route_gate_drops_passes_late_gates_and_no_queue_gate() {
    let schedule = "[[filter]]\nmatch = \"proto udp\"\naction = \"accept\"\ngate = \"schedule\"\n";
    let more = [filter("drop", "route"), counting("monitor"), schedule.to_owned()].concat();
    let mut router = Scenario::with(&more);
    let looked = look(&mut router);
    assert_eq!((&*looked.verdict, gates(&looked)), ("dropped: filter", vec!["gate route", "gate monitor"]));
    assert!(looked.steps.iter().any(|step| step.text.contains("after the gates at position late")));
    router.expect_drop("a", &Ipv4Frame::udp(), DropReason::Filter);
    assert_eq!(seen(&mut router), 1);
    // The packet meets the gates at `queue` only after the router has chosen its output port.
    let mut router = Scenario::with(schedule);
    let looked = look(&mut router);
    let stages: Vec<_> = looked.steps.iter().map(|step| step.stage).collect();
    assert_eq!(stages, ["parse", "route", "forward", "gate", "queue"], "{looked:?}");
    router.expect_forwarded("a", &Ipv4Frame::udp(), "b");
}

#[test]
fn lookup_ends_where_the_route_does() {
    let schedule = "[[filter]]\nmatch = \"proto udp\"\naction = \"accept\"\ngate = \"schedule\"\n";
    let more = format!("[[route]]\nto = \"10.9.0.1/32\"\nkind = \"blackhole\"\n{schedule}");
    let mut router = Scenario::with(&more);
    let looked = look(&mut router);
    assert_eq!((&*looked.verdict, gates(&looked)), ("dropped: blackhole", Vec::new()), "{looked:?}");
    router.expect_drop("a", &Ipv4Frame::udp(), DropReason::Blackhole);
}

#[test]
fn lookup_drops_packets_from_own_addresses_and_with_expired_ttl() {
    let mut router = Scenario::standard();
    let own = router.router.lookup("src 10.2.0.1 dst 10.9.0.1 proto udp in a").unwrap();
    assert!(own.verdict.starts_with("dropped: martian_source"), "{own:?}");
    router.expect_drop("a", &Ipv4Frame::udp().src("10.2.0.1"), DropReason::MartianSource);
    let last = router.router.lookup("src 10.1.0.2 dst 10.9.0.1 proto udp exceptions ttl in a").unwrap();
    assert!(last.verdict.starts_with("dropped: ttl_expired"), "{last:?}");
    router.send("a", &Ipv4Frame::udp().ttl(1));
    assert_eq!(router.dropped(DropReason::TtlExpired), 1);
}

/// Plugin whose instances fail at each call.
struct Fails;

impl Plugin for Fails {
    fn name(&self) -> &'static str {
        "fails"
    }

    fn version(&self) -> &'static str {
        "1.0.0"
    }

    fn summary(&self) -> &'static str {
        "Fails at each call."
    }

    fn positions(&self) -> &'static [Position] {
        &Position::ALL
    }

    fn messages(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    fn create(&self, _settings: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        Ok(Box::new(Failing(false)))
    }
}

/// Instance of [`Fails`]. The flag tells whether it has failed since the last `take_fault`.
struct Failing(bool);

impl Instance for Failing {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        packets.for_each(|_, _| Verdict::Pass);
        self.0 = true;
        Progress::Done
    }

    fn take_fault(&mut self) -> Option<Fault> {
        std::mem::take(&mut self.0).then(|| Fault { kind: "test", text: "as written".into() })
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(Value::Null)
    }
}

#[test]
fn lookup_ends_at_an_instance_in_quarantine_unless_packets_bypass_it() {
    for (on_fault, passes) in [("drop", false), ("bypass", true)] {
        let text = format!(
            "[plugins]\nfaults = 1\n{STANDARD}[[instance]]\nplugin = \"fails\"\nname = \"f\"\n\
             [[bind]]\ninstance = \"f\"\ngate = \"firewall\"\nfilter = \"proto udp\"\non-fault = \"{on_fault}\"\n{}",
            counting("monitor")
        );
        let mut router = Scenario::with_plugin(&text, Arc::new(Fails));
        assert_eq!(look(&mut router).verdict, "sent out of port b", "it is well");
        router.send("a", &Ipv4Frame::udp());
        router.take_all();
        let looked = look(&mut router);
        if passes {
            assert_eq!((&*looked.verdict, gates(&looked).len()), ("sent out of port b", 2), "{looked:?}");
            router.expect_forwarded("a", &Ipv4Frame::udp(), "b");
        } else {
            assert!(looked.verdict.starts_with("dropped: plugin_failed"), "{looked:?}");
            assert_eq!(gates(&looked), ["gate firewall"]);
            router.expect_drop("a", &Ipv4Frame::udp(), DropReason::PluginFailed);
        }
    }
}
