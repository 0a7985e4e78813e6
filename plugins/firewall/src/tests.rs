//! Tests of plugin `firewall`.

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;

use millrace_packet::{Packet, Pool};
use millrace_plugin_abi::{FlowStates, PacketConnection};
use proptest::prelude::*;

use super::*;

const LAN: PortId = PortId(1);
const WAN: PortId = PortId(2);
/// Port without a zone.
const DMZ: PortId = PortId(3);
/// Bytes of a state block in front of the instance's part.
const HEADER: usize = 24;

fn settings() -> Value {
    json!({
        "zones": { "lan": [1], "wan": [2] },
        "policies": [
            "allow lan to wan",
            "allow wan to lan tcp 22,8000-8999",
            "drop wan to lan udp 53",
            "reject wan to any",
        ],
    })
}

fn instance(settings: &Value) -> Result<Box<dyn Instance>, PluginError> {
    PLUGIN.create(settings.as_object().unwrap())
}

fn read(instance: &mut dyn Instance) -> Value {
    instance.control(&Message { name: "read".to_owned(), arguments: Map::new() }).unwrap()
}

/// Connection states: connection N has block N.
#[derive(Default)]
struct Blocks(HashMap<u32, Vec<u8>>);

impl FlowStates for Blocks {
    fn block(&mut self, number: u32) -> Option<&mut [u8]> {
        (number != 0).then(|| self.0.entry(number).or_insert_with(|| vec![0; HEADER + STATE]).as_mut_slice())
    }
}

/// Host and port of both sides, the lower ones first, and the protocol.
type Tuple = ((u8, u16), (u8, u16), u8);

/// Direction of a packet between two hosts, with the ports of the router.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Sent {
    /// Host, and the port behind which it is.
    from: (u8, PortId),
    to: (u8, PortId),
    protocol: u8,
    ports: (u16, u16),
}

impl Sent {
    fn key(&self) -> FlowKey {
        let [source, destination] = [self.from.0, self.to.0].map(|host| Ipv4Addr::new(10, 0, 0, host));
        FlowKey::v4(source, destination, self.protocol, self.ports, self.from.1)
    }

    fn turned(self) -> Self {
        let (from, to) = (self.to, self.from);
        Self { from, to, ports: (self.ports.1, self.ports.0), ..self }
    }

    /// Returns the tuple of the connection, whatever the direction.
    fn tuple(&self) -> Tuple {
        let (one, other) = ((self.from.0, self.ports.0), (self.to.0, self.ports.1));
        (one.min(other), one.max(other), self.protocol)
    }
}

/// Sends a packet with a connection.
fn send(
    instance: &mut dyn Instance,
    blocks: &mut Blocks,
    sent: Sent,
    connection: PacketConnection,
) -> Verdict {
    let pool = Pool::new(1).unwrap();
    let mut packet: Packet = pool.packet_from(&[0; 60]).unwrap();
    (packet.port, packet.out_port) = (sent.from.1, sent.to.1);
    let (mut packets, keys, mut verdicts) = ([packet], [sent.key()], [Verdict::Pass]);
    let (connections, numbers) = ([connection], [connection.number]);
    let mut call = Packets::new(&mut packets, &keys, &[0], &mut verdicts)
        .with_connections(&connections)
        .with_states(blocks, &numbers, HEADER, STATE);
    instance.process(&mut call, Instant::ZERO);
    verdicts[0]
}

fn connection(number: u32, status: ConnectionStatus) -> PacketConnection {
    PacketConnection { number, serial: 1, status, is_reply: false, is_counted: true }
}

const LAN_HOST: (u8, PortId) = (1, LAN);
const WAN_HOST: (u8, PortId) = (2, WAN);

fn tcp(from: (u8, PortId), to: (u8, PortId), port: u16) -> Sent {
    Sent { from, to, protocol: 6, ports: (4000, port) }
}

#[test]
fn answers_and_related_errors_of_allowed_connections_pass() {
    let (mut instance, mut blocks) = (instance(&settings()).unwrap(), Blocks::default());
    let mut send = |sent, status| send(&mut *instance, &mut blocks, sent, connection(1, status));
    let out = tcp(LAN_HOST, WAN_HOST, 443);
    assert_eq!(send(out, ConnectionStatus::New), Verdict::Pass);
    assert_eq!(send(out.turned(), ConnectionStatus::Established), Verdict::Pass);
    assert_eq!(send(out.turned(), ConnectionStatus::Related), Verdict::Pass);
    assert_eq!(send(out, ConnectionStatus::Established), Verdict::Pass);
    let counters = read(&mut *instance);
    assert_eq!(counters["policies"][0], json!({ "policy": "allow lan to wan", "packets": 1 }));
    assert_eq!((&counters["established"], &counters["related"]), (&2.into(), &1.into()));
}

#[test]
fn policies_decide_in_order_and_the_rest_is_dropped() {
    let (mut instance, mut blocks) = (instance(&settings()).unwrap(), Blocks::default());
    let mut number = 0;
    let mut send = |sent| {
        number += 1;
        send(&mut *instance, &mut blocks, sent, connection(number, ConnectionStatus::New))
    };
    assert_eq!(send(tcp(WAN_HOST, LAN_HOST, 22)), Verdict::Pass);
    assert_eq!(send(tcp(WAN_HOST, LAN_HOST, 80)), Verdict::Reject(BY_POLICY));
    let query = Sent { protocol: 17, ..tcp(WAN_HOST, LAN_HOST, 53) };
    assert_eq!(send(query), Verdict::Drop(BY_POLICY));
    assert_eq!(send(tcp((3, DMZ), LAN_HOST, 22)), Verdict::Drop(UNMATCHED));
    assert_eq!(send(tcp(LAN_HOST, (3, DMZ), 22)), Verdict::Drop(UNMATCHED));
    // Packets that the router makes have no ingress port.
    assert_eq!(send(tcp((4, PortId::NONE), LAN_HOST, 1)), Verdict::Pass);
    let counters = read(&mut *instance);
    let packets: Vec<_> = (0..4).map(|policy| counters["policies"][policy]["packets"].clone()).collect();
    assert_eq!(packets, [0, 1, 1, 1]);
    assert_eq!((&counters["unmatched"], &counters["made"]), (&2.into(), &1.into()));
}

#[test]
fn invalid_packets_and_errors_of_other_connections_are_dropped() {
    let (mut instance, mut blocks) = (instance(&settings()).unwrap(), Blocks::default());
    let out = tcp(LAN_HOST, WAN_HOST, 443);
    for invalid in [
        connection(0, ConnectionStatus::Invalid),
        // The connection is tracked, but no policy has allowed it.
        connection(9, ConnectionStatus::Related),
    ] {
        assert_eq!(send(&mut *instance, &mut blocks, out, invalid), Verdict::Drop(INVALID));
    }
    assert_eq!(read(&mut *instance)["invalid"], json!(2));
}

#[test]
fn refused_connection_gets_no_answers_through() {
    let (mut instance, mut blocks) = (instance(&settings()).unwrap(), Blocks::default());
    let mut send = |sent, status| send(&mut *instance, &mut blocks, sent, connection(1, status));
    let query = Sent { protocol: 17, ..tcp(WAN_HOST, LAN_HOST, 53) };
    assert_eq!(send(query, ConnectionStatus::New), Verdict::Drop(BY_POLICY));
    assert_eq!(send(query, ConnectionStatus::Established), Verdict::Drop(BY_POLICY));
    // A policy allows the other side to begin. Then both directions pass.
    assert_eq!(send(query.turned(), ConnectionStatus::Established), Verdict::Pass);
    assert_eq!(send(query, ConnectionStatus::Established), Verdict::Pass);
}

/// A host behind another port has forged the address of an allowed connection.
#[test]
fn packets_of_an_allowed_connection_from_a_third_zone_need_a_policy() {
    let (mut instance, mut blocks) = (instance(&settings()).unwrap(), Blocks::default());
    let mut send = |sent, status| send(&mut *instance, &mut blocks, sent, connection(1, status));
    let out = tcp(LAN_HOST, WAN_HOST, 443);
    assert_eq!(send(out, ConnectionStatus::New), Verdict::Pass);
    let forged = Sent { from: (2, DMZ), ..out.turned() };
    assert_eq!(send(forged, ConnectionStatus::Established), Verdict::Drop(UNMATCHED));
    assert_eq!(send(out.turned(), ConnectionStatus::Established), Verdict::Pass);
}

#[test]
fn port_in_another_zone_needs_a_policy_for_its_connections() {
    let (mut old, mut blocks) = (instance(&settings()).unwrap(), Blocks::default());
    let out = tcp(LAN_HOST, WAN_HOST, 443);
    assert_eq!(send(&mut *old, &mut blocks, out, connection(1, ConnectionStatus::New)), Verdict::Pass);
    let moved = json!({
        "zones": { "lan": [1], "guests": [2] },
        "policies": ["allow lan to guests tcp 443"],
    });
    let mut new = instance(&moved).unwrap();
    let mut send = |sent| send(&mut *new, &mut blocks, sent, connection(1, ConnectionStatus::Established));
    assert_eq!(send(out.turned()), Verdict::Drop(UNMATCHED));
    // The policy allows the connection between its new zones.
    assert_eq!((send(out), send(out.turned())), (Verdict::Pass, Verdict::Pass));
}

#[test]
fn ports_without_a_zone_are_apart_from_all_zones() {
    let mut settings = settings();
    settings["policies"] = json!(["allow lan to any"]);
    let (mut instance, mut blocks) = (instance(&settings).unwrap(), Blocks::default());
    let mut send = |sent, status| send(&mut *instance, &mut blocks, sent, connection(1, status));
    let out = tcp(LAN_HOST, (3, DMZ), 443);
    assert_eq!(send(out, ConnectionStatus::New), Verdict::Pass);
    assert_eq!(send(out.turned(), ConnectionStatus::Established), Verdict::Pass);
    let forged = Sent { from: (3, WAN), ..out.turned() };
    assert_eq!(send(forged, ConnectionStatus::Established), Verdict::Drop(UNMATCHED));
    // A router behind any port may send an error about the connection.
    assert_eq!(send(forged, ConnectionStatus::Related), Verdict::Pass);
}

/// Other zones come and go, so the zones of the connection get other numbers.
#[test]
fn allowed_connections_go_on_when_zones_are_added_before_theirs() {
    let (mut old, mut blocks) = (instance(&settings()).unwrap(), Blocks::default());
    let out = tcp(LAN_HOST, WAN_HOST, 443);
    let new = connection(1, ConnectionStatus::New);
    assert_eq!(send(&mut *old, &mut blocks, out, new), Verdict::Pass);
    let mut more = settings();
    more["zones"]["a"] = json!([77]);
    let mut new = instance(&more).unwrap();
    let answer = connection(1, ConnectionStatus::Established);
    assert_eq!(send(&mut *new, &mut blocks, out.turned(), answer), Verdict::Pass);
}

#[test]
fn counters_of_equal_policies_survive_an_upgrade() {
    let (mut old, mut blocks) = (instance(&settings()).unwrap(), Blocks::default());
    send(&mut *old, &mut blocks, tcp(WAN_HOST, LAN_HOST, 22), connection(1, ConnectionStatus::New));
    let saved = old.save().unwrap().unwrap();
    let mut changed = settings();
    changed["policies"] = json!(["drop lan to wan", "allow wan to lan tcp 22,8000-8999"]);
    let mut new = instance(&changed).unwrap();
    new.restore(&saved, STATE_VERSION).unwrap();
    let packets = read(&mut *new)["policies"].clone();
    assert_eq!((&packets[0]["packets"], &packets[1]["packets"]), (&0.into(), &1.into()));
    assert!(new.restore(&saved, STATE_VERSION + 1).is_err());
}

#[test]
fn wrong_settings_are_refused_with_their_place() {
    for (given, expected) in [
        (
            json!({ "policies": ["allow any to any", "allow lan to any"] }),
            "firewall: policies.1: \"allow lan to any\": no zone",
        ),
        (json!({ "zones": { "any": [1] } }), "firewall: zones.any: give another name"),
        (
            json!({ "zones": { "a": [1], "b": [2, 1] } }),
            "firewall: zones.b: a port of this zone is in zone \"a\", too",
        ),
        (json!({ "zones": { "a": ["x"] } }), "firewall: zones.a: \"x\" is not a port"),
    ] {
        let refused = instance(&given).err().unwrap().to_string();
        assert!(refused.contains(expected), "{refused}");
    }
}

/// Reference model: the list of allowed tuples.
#[derive(Default)]
struct Slow {
    allowed: HashSet<Tuple>,
}

impl Slow {
    fn passes(&mut self, sent: &Sent) -> bool {
        if self.allowed.contains(&sent.tuple()) {
            return true;
        }
        let (from, to, port) = (sent.from.1, sent.to.1, sent.ports.1);
        let passes = match (from, to) {
            (LAN, WAN) => true,
            (WAN, LAN) => sent.protocol == 6 && (port == 22 || (8000..=8999).contains(&port)),
            _ => false,
        };
        if passes {
            self.allowed.insert(sent.tuple());
        }
        passes
    }
}

#[derive(Clone, Debug)]
enum Happens {
    Packet(Sent),
    Invalid(Sent),
    End(Sent),
}

fn anything() -> impl Strategy<Value = Happens> {
    let hosts = || prop_oneof![Just((1, LAN)), Just((2, WAN)), Just((3, DMZ)), Just((5, LAN))];
    let port = || prop::sample::select(vec![22, 53, 8000, 9000]);
    let protocol = prop::sample::select(vec![6, 17]);
    let sent =
        (hosts(), hosts(), protocol, port(), port()).prop_map(|(from, to, protocol, source, destination)| {
            Sent { from, to, protocol, ports: (source, destination) }
        });
    (0..10, sent).prop_map(|(what, sent)| match what {
        0 => Happens::End(sent),
        1 => Happens::Invalid(sent),
        _ => Happens::Packet(sent),
    })
}

proptest! {
    /// Sends random packets, whose connections the test tracks, and compares the verdicts with a list of allowed tuples.
    #[test]
    fn verdicts_equal_a_list_of_allowed_tuples(steps in prop::collection::vec(anything(), 1..300)) {
        let (mut instance, mut blocks, mut slow) = (instance(&settings()).unwrap(), Blocks::default(), Slow::default());
        // Number and originator of each connection.
        let mut tracked: HashMap<_, (u32, (u8, u16))> = HashMap::new();
        let mut last = 0;
        for step in steps {
            match step {
                Happens::Packet(sent) => {
                    let own = (sent.from.0, sent.ports.0);
                    let is_new = !tracked.contains_key(&sent.tuple());
                    last += u32::from(is_new);
                    let (number, originator) = *tracked.entry(sent.tuple()).or_insert((last, own));
                    let is_reply = originator != own;
                    let status = if is_reply { ConnectionStatus::Established } else { ConnectionStatus::New };
                    let connection = PacketConnection { number, serial: 1, status, is_reply, is_counted: true };
                    let verdict = send(&mut *instance, &mut blocks, sent, connection);
                    prop_assert_eq!(verdict == Verdict::Pass, slow.passes(&sent), "{:?}", sent);
                }
                Happens::Invalid(sent) => {
                    let connection = connection(0, ConnectionStatus::Invalid);
                    prop_assert_eq!(send(&mut *instance, &mut blocks, sent, connection), Verdict::Drop(INVALID));
                }
                Happens::End(sent) => {
                    if let Some((number, _)) = tracked.remove(&sent.tuple()) {
                        blocks.0.remove(&number);
                        slow.allowed.remove(&sent.tuple());
                    }
                }
            }
        }
    }
}
