//! Connections at workers: packets of both directions reach an instance with their status and one state.

mod frames;
mod world;

use std::net::IpAddr;

use millrace_classify::Selection;
use millrace_connection::{ConnectionConfig, Timeouts};
use millrace_plugin::{BindingId, Inheritance, PluginChange, Successor};
use millrace_plugin_abi::{ConnectionStatus, StateScope};
use millrace_units::{InstanceId, PathId};

use self::frames::{ACK, Ends, FIN, RST, SYN, echo, fragments, quoting, tcp, udp};
use self::world::{DENIED, GATE, INSTANCE, LATE, World};
use super::*;
use crate::commands::{ConnectionCommand, PluginCommand};
use crate::connections::{ConnectionPage, ConnectionScan};

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
/// Endpoints of most tests: the client opens the connections.
const ENDS: Ends = Ends { client: ([10, 0, 0, 1], 4000), server: ([10, 0, 1, 1], 80) };

const NEW: ConnectionStatus = ConnectionStatus::New;
const ESTABLISHED: ConnectionStatus = ConnectionStatus::Established;
const RELATED: ConnectionStatus = ConnectionStatus::Related;
const INVALID: ConnectionStatus = ConnectionStatus::Invalid;
const UNTRACKED: ConnectionStatus = ConnectionStatus::Untracked;

fn config() -> ConnectionConfig {
    let timeouts = Timeouts::default();
    ConnectionConfig { maximum: 8, per_source: 4, timeouts, adopts: false, seed: 1 }
}

#[test]
fn both_directions_come_with_status_direction_and_one_state() {
    let mut world = World::watched(1);
    world.connect(ENDS);
    let expected = [(NEW, false, Some(0)), (ESTABLISHED, true, Some(1)), (ESTABLISHED, false, Some(2))];
    assert_eq!(world.seen(), expected);
    assert_eq!(world.counts().connections, 1);
    // Another connection has a state of its own.
    world.connect(Ends { client: ([10, 0, 0, 1], 4001), ..ENDS });
    assert_eq!(world.seen(), expected);
    world.check();
}

#[test]
fn packets_without_such_an_instance_on_their_path_are_not_tracked() {
    let mut world = World::new(1, config());
    world.add(INSTANCE, StateScope::Flow, 0);
    world.bind(GATE, INSTANCE);
    world.connect(ENDS);
    // The state belongs to a flow: each direction has its own.
    let expected = [(UNTRACKED, false, Some(0)), (UNTRACKED, false, Some(0)), (UNTRACKED, false, Some(1))];
    assert_eq!((world.seen(), world.counts().connections, world.counts().packets), (expected.to_vec(), 0, 0));
    world.check();
}

#[test]
fn instances_of_both_scopes_on_a_path_keep_their_own_states() {
    let mut world = World::watched(1);
    let flows = InstanceId(4);
    world.add(flows, StateScope::Flow, 0);
    world.bind(LATE, flows);
    world.connect(ENDS);
    let earlier = |seen: Vec<(ConnectionStatus, bool, Option<u64>)>| -> Vec<_> {
        seen.into_iter().map(|(status, _, earlier)| (status != UNTRACKED, earlier.unwrap())).collect()
    };
    assert_eq!(earlier(world.seen()), [(true, 0), (true, 1), (true, 2)]);
    assert_eq!(earlier(world.seen_at(flows)), [(false, 0), (false, 0), (false, 1)]);
    world.check();
}

#[test]
fn two_instances_on_a_path_track_a_packet_once() {
    let mut world = World::watched(1);
    let second = InstanceId(4);
    world.add(second, StateScope::Connection, 0);
    world.bind(LATE, second);
    world.send(&udp(ENDS, 8));
    world.send(&udp(ENDS.turned(), 8));
    world.send(&udp(ENDS, 8));
    let expected = [(NEW, false, Some(0)), (ESTABLISHED, true, Some(1)), (ESTABLISHED, false, Some(2))];
    assert_eq!((world.seen(), world.seen_at(second)), (expected.to_vec(), expected.to_vec()));
    assert_eq!(world.counts().packets, 3);
    world.check();
}

#[test]
fn instance_hears_once_of_the_end_of_a_connection_with_its_state() {
    let mut world = World::watched(1);
    world.send(&udp(ENDS, 8));
    world.send(&udp(ENDS.turned(), 8));
    // The flow records expire first.
    world.wait(60);
    assert!(world.ended().is_empty());
    world.wait(300);
    let [(key, packets, state)] = world.ended()[..] else { panic!("one connection ended") };
    assert_eq!((packets, state), (2, Some(2)));
    assert_eq!((key.source(), key.source_port, key.port), (IpAddr::from([10, 0, 0, 1]), 4000, PortId(1)));
    assert_eq!((key.destination(), key.destination_port), (IpAddr::from([10, 0, 1, 1]), 80));
    assert_eq!((world.counts().connections, world.counts().expired), (0, 1));
    // A new connection has the same number, and a state of zeros. The reply now opens it.
    world.seen();
    world.send(&udp(ENDS.turned(), 8));
    assert_eq!(world.seen(), [(NEW, false, Some(0))]);
    world.check();
}

#[test]
fn reopened_connection_begins_with_a_new_state() {
    let mut world = World::watched(1);
    world.connect(ENDS);
    world.send(&tcp(ENDS, FIN | ACK, (101, 501)));
    world.send(&tcp(ENDS.turned(), FIN | ACK, (501, 102)));
    world.send(&tcp(ENDS, ACK, (102, 502)));
    world.seen();
    world.send(&tcp(ENDS, SYN, (90_000, 0)));
    assert_eq!(world.seen(), [(NEW, false, Some(0))]);
    assert_eq!(
        world.ended().iter().map(|(_, packets, state)| (*packets, *state)).collect::<Vec<_>>(),
        [(6, Some(6))]
    );
    assert_eq!(world.counts().reopened, 1);
    world.check();
}

#[test]
fn invalid_packets_reach_the_instance_without_a_state() {
    let mut world = World::watched(1);
    world.send(&tcp(ENDS, ACK, (7, 9)));
    world.connect(ENDS);
    world.send(&tcp(ENDS, ACK, (900_000, 501)));
    let seen = world.seen();
    assert_eq!((seen[0], seen[4]), ((INVALID, false, None), (INVALID, false, None)));
    assert_eq!((world.counts().invalid, world.counts().connections), (2, 1));
    world.check();
}

#[test]
fn icmp_error_belongs_to_the_connection_of_the_quoted_packet() {
    let mut world = World::watched(1);
    world.connect(ENDS);
    world.seen();
    // A router between refuses a packet of the client, and another one a packet of the server.
    world.send(&quoting([10, 0, 1, 99], &tcp(ENDS, ACK, (101, 501))));
    world.send(&quoting([10, 0, 0, 99], &tcp(ENDS.turned(), ACK, (501, 101))));
    assert_eq!(world.seen(), [(RELATED, true, Some(3)), (RELATED, false, Some(4))]);
    // No connection sent the quoted packet.
    let other = Ends { client: ([10, 0, 0, 7], 1), ..ENDS };
    world.send(&quoting([10, 0, 1, 99], &tcp(other, ACK, (101, 501))));
    assert_eq!(world.seen(), [(INVALID, false, None)]);
    world.check();
}

#[test]
fn later_fragments_belong_to_the_connection_of_the_first() {
    let mut world = World::watched(1);
    for frame in [udp(ENDS, 1200), udp(ENDS.turned(), 1200)] {
        fragments(&frame).iter().for_each(|fragment| world.send(fragment));
    }
    let expected = [
        (NEW, false, Some(0)),
        (NEW, false, Some(1)),
        (ESTABLISHED, true, Some(2)),
        (ESTABLISHED, true, Some(3)),
    ];
    assert_eq!(world.seen(), expected);
    // The payload in a later fragment of TCP is no header.
    let other = Ends { client: ([10, 0, 0, 2], 4000), ..ENDS };
    world.connect(other);
    world.seen();
    let long = [tcp(other, ACK, (101, 501)), vec![0; 1200]].concat();
    fragments(&long).iter().for_each(|fragment| world.send(fragment));
    assert_eq!(world.seen(), [(ESTABLISHED, false, Some(3)), (ESTABLISHED, false, Some(4))]);
    // The server acknowledges the data of both.
    world.send(&tcp(other.turned(), ACK, (501, 1301)));
    assert_eq!(world.seen(), [(ESTABLISHED, true, Some(5))]);
    // The fragments of a ping show no identifier.
    fragments(&echo(ENDS, 8, 1200)).iter().for_each(|fragment| world.send(fragment));
    fragments(&echo(ENDS.turned(), 0, 1200)).iter().for_each(|fragment| world.send(fragment));
    assert_eq!(world.seen(), expected);
    assert_eq!(world.counts().connections, 3);
    world.check();
}

#[test]
fn full_table_and_sources_at_their_maximum_are_drops_of_their_own() {
    let mut world = World::watched(1);
    let ends = |client: u8, port| Ends { client: ([10, 0, 0, client], port), ..ENDS };
    for port in 0..5 {
        world.connect(ends(1, 4000 + port));
    }
    // Without its connection, the rest of the handshake is invalid.
    assert_eq!((world.drops(DropReason::ConnectionSourceFull), world.counts().refused_source), (1, 1));
    for port in 0..4 {
        world.connect(ends(2, 4000 + port));
    }
    world.seen();
    world.send(&tcp(ends(3, 4000), SYN, (100, 0)));
    assert_eq!((world.drops(DropReason::ConnectionTableFull), world.counts().refused_full), (1, 1));
    assert!(world.seen().is_empty(), "a refused packet reaches no instance");
    let plugins = world.members[0].0.router.gates.plugins();
    for reason in [DropReason::ConnectionTableFull, DropReason::ConnectionSourceFull] {
        let droppers: Vec<_> = plugins.may_drop(PathId(1), reason).collect();
        assert_eq!(droppers, [BindingId(INSTANCE.0.into())]);
    }
    assert_eq!((world.counts().connections, world.counts().maximum, world.counts().sources), (8, 8, 2));
    world.check();
}

#[test]
fn packets_that_wait_keep_their_connection() {
    let mut world = World::new(1, config());
    world.add(INSTANCE, StateScope::Connection, 3);
    world.bind(GATE, INSTANCE);
    // The second packet arrives during the call with the first.
    world.send_in_turn(&[udp(ENDS, 8), udp(ENDS.turned(), 8)]);
    assert_eq!(world.seen(), [(NEW, false, Some(0)), (ESTABLISHED, true, Some(1))]);
    world.check();
}

/// The connection ends during the call with its packet, and a later one takes its place.
#[test]
fn call_does_not_write_into_the_state_of_a_later_connection() {
    let small = ConnectionConfig { maximum: 1, ..config() };
    let mut world = World::new(1, small);
    world.add(INSTANCE, StateScope::Connection, 3);
    world.bind(GATE, INSTANCE);
    let other = Ends { client: ([10, 0, 0, 2], 4000), ..ENDS };
    world.send_in_turn(&[udp(ENDS, 8), udp(other, 8)]);
    let seen: Vec<_> = world.seen().iter().map(|(_, _, earlier)| *earlier).collect();
    // The first call has no state left at its end.
    assert_eq!((seen, world.counts().recycled), (vec![None, Some(0)], 1));
    world.send(&udp(other, 8));
    assert_eq!(world.seen(), [(NEW, false, Some(1))]);
    world.check();
}

/// The second packet opens another connection between the same endpoints, which takes the number of the first.
#[test]
fn connections_that_follow_each_other_in_a_batch_share_no_state() {
    let mut world = World::watched(1);
    world.connect(ENDS);
    world.seen();
    world.send_together(&[tcp(ENDS, RST, (101, 0)), tcp(ENDS, SYN, (90_000, 0))]);
    assert_eq!(world.seen(), [(ESTABLISHED, false, None), (NEW, false, Some(0))]);
    assert_eq!(world.ended().iter().map(|(_, _, state)| *state).collect::<Vec<_>>(), [Some(3)]);
    world.send(&tcp(ENDS.turned(), SYN | ACK, (500, 90_001)));
    assert_eq!(world.seen(), [(ESTABLISHED, true, Some(1))]);
    world.check();
}

/// In a full table, the second connection of a batch takes the place of the first.
#[test]
fn connection_in_place_of_another_one_of_its_batch_begins_with_a_new_state() {
    let mut world = World::new(1, ConnectionConfig { maximum: 1, ..config() });
    world.add(INSTANCE, StateScope::Connection, 0);
    world.bind(GATE, INSTANCE);
    let other = Ends { client: ([10, 0, 0, 2], 4000), ..ENDS };
    world.send_together(&[tcp(ENDS, SYN, (100, 0)), tcp(other, SYN, (100, 0))]);
    assert_eq!(world.seen(), [(NEW, false, None), (NEW, false, Some(0))]);
    world.send(&tcp(other.turned(), SYN | ACK, (500, 101)));
    assert_eq!((world.seen(), world.counts().recycled), (vec![(ESTABLISHED, true, Some(1))], 1));
    world.check();
}

#[test]
fn dropped_packet_takes_its_connection_with_it_if_no_other_packet_has_passed() {
    for suspensions in [0, 3] {
        let mut world = World::new(1, config());
        world.add(INSTANCE, StateScope::Connection, suspensions);
        world.bind(GATE, INSTANCE);
        for port in 4000..4020 {
            let denied = Ends { client: ([10, 0, 0, 1], port), server: ([10, 0, 1, 1], DENIED) };
            world.send(&tcp(denied, SYN, (100, 0)));
        }
        let counts = world.counts();
        assert_eq!((counts.connections, counts.sources, counts.refused_source), (0, 0, 0));
        assert_eq!(world.seen(), [(NEW, false, Some(0)); 20]);
        assert_eq!((world.ended().len(), world.drops(DropReason::Plugin)), (20, 20));
        world.check();
    }
}

#[test]
fn dropped_packet_of_a_known_connection_ends_nothing() {
    let mut world = World::watched(1);
    let ends = Ends { client: ([10, 0, 0, 1], DENIED), ..ENDS };
    world.send(&tcp(ends, SYN, (100, 0)));
    world.send(&tcp(ends.turned(), SYN | ACK, (500, 101)));
    assert_eq!((world.drops(DropReason::Plugin), world.counts().connections), (1, 1));
    assert!(world.ended().is_empty());
    world.check();
}

/// The answer arrives while the opening packet waits for the instance that drops it.
#[test]
fn connection_outlasts_its_dropped_opening_if_another_packet_passes() {
    let mut world = World::new(1, config());
    world.add(INSTANCE, StateScope::Connection, 3);
    world.bind(GATE, INSTANCE);
    let denied = Ends { server: ([10, 0, 1, 1], DENIED), ..ENDS };
    world.send_in_turn(&[udp(denied, 8), udp(denied.turned(), 8)]);
    assert_eq!(world.seen(), [(NEW, false, Some(0)), (ESTABLISHED, true, Some(1))]);
    assert_eq!((world.drops(DropReason::Plugin), world.counts().connections), (1, 1));
    assert!(world.ended().is_empty());
    world.send(&udp(denied.turned(), 8));
    assert_eq!(world.seen(), [(ESTABLISHED, true, Some(2))]);
    world.check();
}

#[test]
fn connection_ends_when_the_packets_of_both_sides_are_dropped() {
    let mut world = World::new(1, config());
    world.add(INSTANCE, StateScope::Connection, 3);
    world.bind(GATE, INSTANCE);
    let denied = Ends { client: ([10, 0, 0, 1], DENIED), server: ([10, 0, 1, 1], DENIED) };
    world.send_in_turn(&[udp(denied, 8), udp(denied, 8), udp(denied.turned(), 8)]);
    assert_eq!((world.drops(DropReason::Plugin), world.counts().connections), (3, 0));
    let states: Vec<_> = world.ended().iter().map(|(_, packets, state)| (*packets, *state)).collect();
    assert_eq!(states, [(3, Some(3))]);
    world.check();
}

/// While no instance needs connections, their packets are not tracked.
#[test]
fn connection_goes_on_after_packets_that_passed_untracked() {
    let mut world = World::watched(1);
    world.connect(ENDS);
    world.unbind(GATE, INSTANCE);
    world.send(&tcp(ENDS, ACK, (800_000, 501)));
    world.bind(GATE, INSTANCE);
    world.seen();
    world.send(&tcp(ENDS, ACK, (900_000, 700_000)));
    assert_eq!(world.seen(), [(ESTABLISHED, false, Some(3))]);
    world.check();
}

#[test]
fn upgrade_keeps_the_states_of_connections() {
    let mut world = World::watched(1);
    world.connect(ENDS);
    world.seen();
    for (same_version, expected) in [(true, 3), (false, 0)] {
        let contexts = vec![world.watcher(INSTANCE, 0, StateScope::Connection, 0)];
        let inheritance = Inheritance::Tried;
        let successor = Successor::new(contexts, inheritance, 0, same_version);
        world.give_states(0, INSTANCE);
        world.tell(0, PluginCommand::Replace(INSTANCE, successor, sync_channel(1).0));
        world.send(&tcp(ENDS, ACK, (101, 501)));
        assert_eq!(world.seen(), [(ESTABLISHED, false, Some(expected))], "same version: {same_version}");
    }
    world.check();
}

#[test]
fn removed_instance_leaves_connections_and_hears_of_no_end() {
    let mut world = World::watched(1);
    world.connect(ENDS);
    world.unbind(GATE, INSTANCE);
    world.change(0, PluginChange::RemoveInstance { id: INSTANCE });
    world.wait(10_000);
    assert_eq!((world.counts().connections, world.counts().expired), (0, 1));
    assert!(world.ended().is_empty());
    world.check();
}

#[test]
fn control_gets_a_removed_instance_with_its_states() {
    let mut world = World::watched(1);
    let log = world.logs[&INSTANCE.0].clone();
    world.unbind(GATE, INSTANCE);
    // States of an upgrade that does not come.
    world.give_states(0, INSTANCE);
    world.change(0, PluginChange::RemoveInstance { id: INSTANCE });
    world.iterate();
    let events: Vec<_> = std::iter::from_fn(|| world.members[0].1.events.pop().ok()).collect();
    assert_eq!(events.iter().filter(|event| matches!(event, Event::Discards(_))).count(), 1);
    // The instance lives until control drops the event.
    assert_eq!(Arc::strong_count(&log), 3);
    drop(events);
    assert_eq!(Arc::strong_count(&log), 2);
    world.check();
}

/// Sends packets of both directions by the ports of two workers.
#[test]
fn all_packets_of_a_connection_reach_the_same_worker() {
    let mut world = World::watched(2);
    let mut of_workers = [0; 2];
    for port in 4000..4032 {
        let ends = Ends { client: ([10, 0, 0, port as u8], port), ..ENDS };
        world.connect(ends);
        world.send(&quoting([10, 0, 1, 99], &tcp(ends, ACK, (101, 501))));
        let seen = world.seen_at_workers();
        let statuses: Vec<_> = seen.iter().map(|seen| (seen.status, seen.earlier)).collect();
        let expected = [(NEW, Some(0)), (ESTABLISHED, Some(1)), (ESTABLISHED, Some(2)), (RELATED, Some(3))];
        assert_eq!(statuses, expected, "port {port}");
        assert!(seen.iter().all(|one| one.worker == seen[0].worker), "{seen:?}");
        of_workers[seen[0].worker] += 1;
        for frame in fragments(&udp(ends, 1200)).iter().chain(&fragments(&udp(ends.turned(), 1200))) {
            world.send(frame);
        }
        for frame in [echo(ends, 8, 8), echo(ends.turned(), 0, 8)] {
            world.send(&frame);
        }
        let earlier: Vec<_> = world.seen().iter().map(|(_, _, earlier)| *earlier).collect();
        assert_eq!(earlier, [Some(0), Some(1), Some(2), Some(3), Some(0), Some(1)], "port {port}");
        // Connections of earlier ports would fill the tables.
        world.wait(10_000);
    }
    assert!(of_workers.iter().all(|count| *count > 4), "{of_workers:?}");
    world.check();
}

#[test]
fn connections_are_listed_in_parts_by_filter() {
    let large = ConnectionConfig { maximum: 5000, per_source: 5000, ..config() };
    let mut world = World::new(1, large);
    world.add(INSTANCE, StateScope::Connection, 0);
    world.bind(GATE, INSTANCE);
    for port in 1..=3000 {
        world.send(&udp(Ends { client: ([10, 0, 0, 1], port), ..ENDS }, 8));
    }
    world.connect(Ends { client: ([10, 0, 0, 1], 1), ..ENDS });
    world.send(&echo(ENDS, 8, 8));
    let mut list = |filter: &str, most: usize| {
        let filter: CompiledSelection = match filter {
            "" => CompiledSelection::any(),
            filter => filter.parse::<Selection>().unwrap().compile(|_| None).unwrap(),
        };
        let (mut all, mut from, mut pages) = (ConnectionPage::default(), Some(1), 0);
        while let Some(start) = from {
            let (reply, answer) = sync_channel(1);
            let most = most - all.connections.len();
            let scan = ConnectionScan { from: start, filter: filter.clone(), most };
            world.tell(0, ConnectionCommand::Scan(scan, reply));
            let page = answer.try_recv().unwrap();
            all.found += page.found;
            all.connections.extend(page.connections);
            (from, pages) = (page.next, pages + 1);
        }
        (all.connections, all.found, pages)
    };
    let (all, found, pages) = list("", 5000);
    assert_eq!((all.len(), found, pages), (3002, 3002, 2));
    // Connections beyond the maximum are only counted.
    for most in [0, 2000, 3000] {
        let (some, found, pages) = list("", most);
        assert_eq!((some.len(), found, pages), (most, 3002, 2));
        assert_eq!(some, all[..most]);
    }
    let ports: BTreeSet<u16> = all.iter().map(|one| one.key.source_port).collect();
    assert_eq!(ports.len(), 3001, "each port, and none of the ping");
    let (tcp, ..) = list("proto tcp", 5000);
    assert_eq!(
        (tcp.len(), tcp[0].phase, tcp[0].is_answered, tcp[0].is_assured),
        (1, "established", true, true)
    );
    assert!((7439..=7441).contains(&tcp[0].rest.as_secs()), "{:?}", tcp[0].rest);
    // A filter matches either direction.
    assert_eq!((list("proto udp dport 77", 9).1, list("proto udp sport 77", 9).1), (1, 1));
    let (pings, ..) = list("proto icmp", 5000);
    assert_eq!((pings.len(), pings[0].identifier, pings[0].key.source_port), (1, Some(77), 0));
    world.check();
}

#[test]
fn worker_without_a_table_lists_no_connections() {
    let (mut worker, _link, _fib) = worker();
    let (reply, answer) = sync_channel(1);
    let scan = ConnectionScan { from: 1, filter: CompiledSelection::any(), most: 10 };
    worker.carry_out(ConnectionCommand::Scan(scan, reply).into(), Instant::ZERO);
    assert!(answer.try_recv().unwrap().connections.is_empty());
}
