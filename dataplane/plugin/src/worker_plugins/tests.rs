//! Tests of the worker's side with a table that filters by destination port alone.

use std::net::Ipv4Addr;

use millrace_packet::Pool;
use millrace_plugin_abi::{Instance, Progress};
use millrace_units::PortId;
use serde_json::json;

use super::*;

/// Bindings by destination port; the latest wins.
#[derive(Default)]
struct ByPort(Vec<(u16, BindingId)>);

impl BindingTable for ByPort {
    type Filter = u16;
    type Candidate = u16;

    fn insert(&mut self, filter: u16, _priority: i32, binding: BindingId) {
        self.0.push((filter, binding));
    }

    fn remove(&mut self, _filter: u16, binding: BindingId) {
        self.0.retain(|(_, other)| *other != binding);
    }

    fn lookup(&self, candidate: &u16) -> Option<BindingId> {
        self.0.iter().rev().find(|(port, _)| port == candidate).map(|(_, binding)| *binding)
    }
}

/// Drops packets from source port 1, consumes those from 2, and counts what it sees.
struct Picky(u64);

impl Instance for Picky {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        packets.for_each(|key, _| {
            self.0 += 1;
            match key.source_port {
                1 => Verdict::Drop,
                2 => Verdict::Consume,
                _ => Verdict::Pass,
            }
        });
        Progress::Done
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(json!(self.0))
    }
}

fn worker() -> WorkerPlugins<ByPort> {
    let mut worker = WorkerPlugins::new();
    for (gate, position, order) in
        [(2, Position::Late, 10), (1, Position::Early, 20), (0, Position::Early, 10)]
    {
        change(&mut worker, PluginChange::AddGate { gate: GateId(gate), position, order: GateOrder(order) });
    }
    worker
}

fn change(worker: &mut WorkerPlugins<ByPort>, change: PluginChange<u16>) {
    assert!(matches!(worker.apply(change), Remains::Nothing));
}

fn add(worker: &mut WorkerPlugins<ByPort>, id: u16) {
    change(worker, PluginChange::AddInstance { id: InstanceId(id), instance: Box::new(Picky(0)) });
}

fn bind(worker: &mut WorkerPlugins<ByPort>, binding: u32, gate: u8, port: u16, instance: u16) {
    let (binding, gate, action) = (BindingId(binding), GateId(gate), Action::Instance(InstanceId(instance)));
    change(worker, PluginChange::Bind { binding, gate, filter: port, priority: 0, action });
}

fn unbind(worker: &mut WorkerPlugins<ByPort>, binding: u32) {
    change(worker, PluginChange::Unbind { binding: BindingId(binding), gate: GateId(0), filter: 80 });
}

fn path_of(worker: &mut WorkerPlugins<ByPort>, port: u16) -> PathId {
    worker.classify(&port, None).path
}

fn seen(worker: &mut WorkerPlugins<ByPort>, instance: u16) -> u64 {
    let message = Message { name: "read".into(), arguments: serde_json::Map::new() };
    worker.control(InstanceId(instance), &message).unwrap().unwrap().as_u64().unwrap()
}

/// Sends packets of 60 bytes from these source ports along a path at a position, and returns who is left.
fn send(
    worker: &mut WorkerPlugins<ByPort>,
    path: PathId,
    position: Position,
    sources: &[u16],
) -> (Vec<u16>, Vec<Verdict>) {
    let pool = Pool::new(sources.len() as u32).unwrap();
    let mut packets: Vec<_> = sources.iter().map(|_| pool.packet_from(&[0; 60]).unwrap()).collect();
    let key =
        |source: &u16| FlowKey::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 17, (*source, 80), PortId(0));
    let keys: Vec<_> = sources.iter().map(key).collect();
    let mut verdicts = vec![Verdict::Pass; sources.len()];
    let mut members: Vec<u16> = (0..sources.len() as u16).collect();
    let mut taken = Vec::new();
    let mut group = Group {
        packets: &mut packets,
        keys: &keys,
        verdicts: &mut verdicts,
        members: &mut members,
        taken: &mut taken,
    };
    worker.run(path, position, &mut group, Instant::ZERO);
    assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Pass));
    taken.into_iter().for_each(|(member, verdict)| verdicts[usize::from(member)] = verdict);
    (members, verdicts)
}

#[test]
fn without_bindings_every_path_is_empty() {
    let mut worker = worker();
    assert_eq!(path_of(&mut worker, 80), EMPTY_PATH);
    add(&mut worker, 0);
    bind(&mut worker, 0, 0, 80, 0);
    assert_ne!(path_of(&mut worker, 80), EMPTY_PATH);
    assert_eq!(path_of(&mut worker, 81), EMPTY_PATH);
    unbind(&mut worker, 0);
    assert_eq!(path_of(&mut worker, 80), EMPTY_PATH);
}

#[test]
fn a_path_lists_one_binding_per_gate_in_the_order_of_the_journey() {
    let mut worker = worker();
    for id in 0..3 {
        add(&mut worker, id);
    }
    bind(&mut worker, 0, 2, 80, 2);
    bind(&mut worker, 1, 1, 80, 1);
    bind(&mut worker, 2, 0, 80, 0);
    bind(&mut worker, 3, 0, 80, 1);
    let path = path_of(&mut worker, 80);
    let stages: Vec<_> =
        worker.stages(path).map(|stage| (stage.gate.0, stage.binding.0, stage.instance.unwrap().0)).collect();
    assert_eq!(stages, [(0, 3, 1), (1, 1, 1), (2, 0, 2)]);
    assert!(worker.has_stages(path, Position::Early));
    assert!(!worker.has_stages(path, Position::Queue));
    assert_eq!(path_of(&mut worker, 80), path);
}

#[test]
fn an_instance_sees_what_the_one_before_let_pass() {
    let mut worker = worker();
    add(&mut worker, 0);
    add(&mut worker, 1);
    bind(&mut worker, 0, 0, 80, 0);
    bind(&mut worker, 1, 1, 80, 1);
    let path = path_of(&mut worker, 80);
    let (members, verdicts) = send(&mut worker, path, Position::Early, &[7, 1, 8, 2, 9]);
    assert_eq!(members, [0, 2, 4]);
    assert_eq!(verdicts[1], Verdict::Drop);
    assert_eq!(verdicts[3], Verdict::Consume);
    assert_eq!(
        worker.counts(BindingId(0)),
        Some(BindingCounts { packets: 5, bytes: 300, drops: 1, consumed: 1 })
    );
    assert_eq!(
        worker.counts(BindingId(1)),
        Some(BindingCounts { packets: 3, bytes: 180, drops: 0, consumed: 0 })
    );
    assert_eq!((seen(&mut worker, 0), seen(&mut worker, 1)), (5, 3));
    send(&mut worker, path, Position::Late, &[7]);
    assert_eq!((seen(&mut worker, 0), seen(&mut worker, 1)), (5, 3));
}

#[test]
fn an_old_path_skips_what_is_gone_even_when_its_ids_are_used_again() {
    let mut worker = worker();
    add(&mut worker, 0);
    bind(&mut worker, 0, 0, 80, 0);
    let old = path_of(&mut worker, 80);
    unbind(&mut worker, 0);
    assert!(matches!(worker.apply(PluginChange::RemoveInstance { id: InstanceId(0) }), Remains::Instance(_)));
    add(&mut worker, 0);
    bind(&mut worker, 0, 0, 80, 0);
    let (members, _) = send(&mut worker, old, Position::Early, &[1, 1]);
    assert_eq!(members, [0, 1]);
    assert_eq!(seen(&mut worker, 0), 0);
    assert_eq!(worker.stages(old).count(), 0);
    let new = path_of(&mut worker, 80);
    assert_ne!(new, old);
    assert!(send(&mut worker, new, Position::Early, &[1, 1]).0.is_empty());
    worker.collect_paths(|path| path == new);
    assert_eq!(worker.path_count(), 2);
}

#[test]
fn a_gate_goes_with_its_bindings() {
    let mut worker = worker();
    add(&mut worker, 0);
    bind(&mut worker, 0, 0, 80, 0);
    bind(&mut worker, 1, 2, 80, 0);
    let path = path_of(&mut worker, 80);
    assert!(matches!(worker.apply(PluginChange::RemoveGate { gate: GateId(0) }), Remains::Table(_)));
    assert_eq!(worker.counts(BindingId(0)), None);
    assert_eq!(worker.stages(path).count(), 1);
    assert_eq!(worker.all_counts().map(|(binding, _)| binding.0).collect::<Vec<_>>(), [1]);
    assert_eq!(worker.gates().iter().map(|gate| gate.id().0).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn the_workers_side_can_be_given_to_a_thread() {
    fn sendable<T: Send>(_: &T) {}
    sendable(&worker());
}
