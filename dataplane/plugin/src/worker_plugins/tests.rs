//! Tests of the worker's side with a table that filters by destination port alone.

use std::net::Ipv4Addr;
use std::time::Duration;

use millrace_packet::{DropReason, FlowKey, Packet, Pool};
use millrace_plugin_abi::{Fault, FlowEnd, Instance, Packets, PluginError, Progress, Reply};

use crate::path::EMPTY_PATH;
use crate::{
    Direction, End, Group, Inheritance, Inherited, Kept, Place, ShadowReport, StateRef, Succession,
    Successor, Taken,
};
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
                1 => Verdict::Drop(0),
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
    change(
        worker,
        PluginChange::Bind { binding, gate, filter: port, priority: 0, action, terms: Terms::default() },
    );
}

fn unbind(worker: &mut WorkerPlugins<ByPort>, binding: u32) {
    change(worker, PluginChange::Unbind { binding: BindingId(binding), gate: GateId(0), filter: 80 });
}

fn path_of(worker: &mut WorkerPlugins<ByPort>, port: u16) -> PathId {
    worker.classify(&port, None).path
}

/// The answer to a message, if it is given at once.
fn ask(worker: &mut WorkerPlugins<ByPort>, instance: u16, message: &Message, now: Instant) -> Option<Reply> {
    let (sender, answers) = std::sync::mpsc::channel();
    let answer = Box::new(move |answer| sender.send(answer).unwrap());
    worker.control(InstanceId(instance), message, now, answer);
    answers.try_recv().unwrap()
}

fn seen(worker: &mut WorkerPlugins<ByPort>, instance: u16) -> u64 {
    let message = Message { name: "read".into(), arguments: serde_json::Map::new() };
    ask(worker, instance, &message, Instant::ZERO).unwrap().unwrap().as_u64().unwrap()
}

/// Packets of 60 bytes from some source ports, as a batch that went along a path.
struct Sent {
    packets: Vec<Packet>,
    keys: Vec<FlowKey>,
    /// Those that are left.
    members: Vec<u16>,
    taken: Vec<(u16, Taken)>,
    directed: Vec<(u16, Direction)>,
}

impl Sent {
    fn along(
        worker: &mut WorkerPlugins<ByPort>,
        pool: &Pool,
        (path, position): (PathId, Position),
        sources: &[u16],
        now: Instant,
    ) -> Self {
        let key = |source: &u16| {
            FlowKey::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 17, (*source, 80), PortId(0))
        };
        let mut sent = Self {
            packets: sources.iter().map(|_| pool.packet_from(&[0; 60]).unwrap()).collect(),
            keys: sources.iter().map(key).collect(),
            members: (0..sources.len() as u16).collect(),
            taken: Vec::new(),
            directed: Vec::new(),
        };
        let mut verdicts = vec![Verdict::Pass; sources.len()];
        let mut group = Group {
            packets: &mut sent.packets,
            keys: &sent.keys,
            states: &vec![0; sources.len()],
            verdicts: &mut verdicts,
            members: &mut sent.members,
            taken: &mut sent.taken,
            directed: &mut sent.directed,
        };
        worker.run(Place { path, position, stage: 0 }, &mut group, now);
        assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Pass));
        sent
    }
}

/// Sends packets from these source ports along a path at a position, and returns who is left, and the verdicts.
fn send(
    worker: &mut WorkerPlugins<ByPort>,
    path: PathId,
    position: Position,
    sources: &[u16],
) -> (Vec<u16>, Vec<Verdict>) {
    let pool = Pool::new(sources.len() as u32).unwrap();
    let sent = Sent::along(worker, &pool, (path, position), sources, Instant::ZERO);
    let mut verdicts = vec![Verdict::Pass; sources.len()];
    for (member, why) in sent.taken {
        verdicts[usize::from(member)] = match why {
            Taken::End(End::Drop(_)) => Verdict::Drop(0),
            Taken::End(End::Consume) => Verdict::Consume,
            Taken::End(End::Classify) => Verdict::Classify,
            Taken::Keep(_) => Verdict::Hold(Instant::ZERO),
        };
    }
    (sent.members, verdicts)
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
    assert_eq!(verdicts[1], Verdict::Drop(0));
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

/// Needs several slices for each call, and fails at packets from source port 9.
#[derive(Default)]
struct Slow {
    slices: u32,
    left: u32,
    failed: bool,
    calls: Vec<Vec<u16>>,
}

impl Slow {
    fn decide(&mut self, packets: &mut Packets<'_>) -> Progress {
        if self.left > 0 {
            self.left -= 1;
            return Progress::Suspended;
        }
        let mut call = Vec::new();
        packets.for_each(|key, _| {
            call.push(key.source_port);
            self.failed |= key.source_port == 9;
            match key.source_port {
                1 => Verdict::Drop(0),
                2 => Verdict::Consume,
                3 => Verdict::Hold(Instant::ZERO + Duration::from_millis(5)),
                9 => Verdict::Fault,
                _ => Verdict::Pass,
            }
        });
        self.calls.push(call);
        Progress::Done
    }
}

impl Instance for Slow {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        self.left = self.slices;
        self.decide(packets)
    }

    fn resume(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        self.decide(packets)
    }

    fn take_fault(&mut self) -> Option<Fault> {
        std::mem::take(&mut self.failed).then(|| Fault { kind: "nine", text: "a nine".into() })
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(json!(self.calls))
    }
}

/// Sends packets as a batch, and keeps those that wait.
fn send_and_keep(
    worker: &mut WorkerPlugins<ByPort>,
    pool: &Pool,
    path: PathId,
    sources: &[u16],
    now: Instant,
) {
    let sent = Sent::along(worker, pool, (path, Position::Early), sources, now);
    for ((member, packet), key) in (0..).zip(sent.packets).zip(sent.keys) {
        if let Some((_, Taken::Keep(ticket))) = sent.taken.iter().find(|(taken, _)| *taken == member) {
            let kept = Kept { packet, key, destination: [0; 6], state: StateRef::default() };
            assert!(worker.keep(*ticket, true, kept).is_none());
        }
    }
    worker.end_of_batch();
}

/// Source ports of packets that go on, with how they end.
fn released(worker: &mut WorkerPlugins<ByPort>, now: Instant) -> Vec<(u16, Option<End>)> {
    let mut released = Vec::new();
    worker.go_on(now, &mut released);
    released.into_iter().map(|one| (one.waiting.key.source_port, one.end)).collect()
}

fn with_slow(slices: u32) -> (WorkerPlugins<ByPort>, PathId) {
    let mut worker = worker();
    let slow = Box::new(Slow { slices, ..Slow::default() });
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance: slow });
    bind(&mut worker, 0, 0, 80, 0);
    let path = path_of(&mut worker, 80);
    (worker, path)
}

fn at(milliseconds: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(milliseconds)
}

#[test]
fn packets_wait_for_a_call_that_goes_on_and_keep_their_order() {
    let (mut worker, path) = with_slow(3);
    let pool = Pool::new(64).unwrap();
    send_and_keep(&mut worker, &pool, path, &[10, 1, 11], at(0));
    send_and_keep(&mut worker, &pool, path, &[2, 12, 3], at(0));
    assert_eq!((worker.waiting(), worker.next_event(at(0))), (6, Some(at(0))));
    assert_eq!(released(&mut worker, at(0)), []);
    assert_eq!(released(&mut worker, at(0)), []);
    let dropped = Some(End::Drop(DropReason::Plugin));
    assert_eq!(released(&mut worker, at(0)), [(10, None), (1, dropped), (11, None)]);
    // The next call has begun.
    let rest: Vec<_> = (0..3).flat_map(|_| released(&mut worker, at(0))).collect();
    assert_eq!(rest, [(2, Some(End::Consume)), (12, None)]);
    assert_eq!((worker.waiting(), worker.next_event(at(0))), (1, Some(at(5))));
    assert_eq!(released(&mut worker, at(4)), []);
    assert_eq!(released(&mut worker, at(5)), [(3, None)]);
    assert!(worker.is_idle());
    let counts = worker.counts(BindingId(0)).unwrap();
    assert_eq!((counts.packets, counts.drops, counts.consumed), (6, 1, 1));
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_call_without_an_end_is_given_up_and_the_instance_pauses() {
    let (mut worker, path) = with_slow(u32::MAX);
    let pool = Pool::new(64).unwrap();
    send_and_keep(&mut worker, &pool, path, &[10, 11], at(0));
    send_and_keep(&mut worker, &pool, path, &[12], at(0));
    let failed = Some(End::Drop(DropReason::PluginFailed));
    let mut all = Vec::new();
    for _ in 0..1000 {
        all.extend(released(&mut worker, at(0)));
    }
    assert_eq!(all, [(10, failed), (11, failed), (12, failed)]);
    assert!(worker.is_idle());
    // While it pauses its packets are dropped at once.
    send_and_keep(&mut worker, &pool, path, &[13], at(1));
    assert!(worker.is_idle());
    assert_eq!(worker.counts(BindingId(0)).unwrap().drops, 4);
    // Then it gets another chance.
    send_and_keep(&mut worker, &pool, path, &[14], at(20));
    assert_eq!(worker.waiting(), 1);
}

#[test]
fn an_instance_that_keeps_failing_is_put_into_quarantine() {
    let (mut worker, path) = with_slow(0);
    let pool = Pool::new(64).unwrap();
    let mut now = at(0);
    for _ in 0..20 {
        send_and_keep(&mut worker, &pool, path, &[9, 10], now);
        now += Duration::from_secs(2);
    }
    let (id, report) = worker.reports().next().unwrap();
    assert_eq!((id, report.health, report.faults["nine"]), (InstanceId(0), Health::Quarantined, 8));
    assert_eq!(report.last_fault, "a nine");
    // The packets that it failed at, and later all.
    assert_eq!(worker.counts(BindingId(0)).unwrap().drops, 8 + 2 * 12);
}

#[test]
fn packets_of_an_instance_that_is_gone_go_on_without_it() {
    let (mut worker, path) = with_slow(5);
    let pool = Pool::new(64).unwrap();
    send_and_keep(&mut worker, &pool, path, &[10], at(0));
    send_and_keep(&mut worker, &pool, path, &[11], at(0));
    unbind(&mut worker, 0);
    assert!(matches!(worker.apply(PluginChange::RemoveInstance { id: InstanceId(0) }), Remains::Instance(_)));
    assert_eq!(released(&mut worker, at(0)), [(10, None), (11, None)]);
    assert!(worker.is_idle());
}

/// Fails at every message.
struct Touchy;

impl Instance for Touchy {
    fn process(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
        Progress::Done
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(json!(null))
    }

    fn take_fault(&mut self) -> Option<Fault> {
        Some(Fault { kind: "touched", text: "a message".into() })
    }
}

#[test]
fn a_message_that_makes_an_instance_fail_is_told_at_once() {
    let mut worker = worker();
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance: Box::new(Touchy) });
    let message = Message { name: "read".into(), arguments: serde_json::Map::new() };
    assert!(ask(&mut worker, 0, &message, at(0)).is_some());
    let (_, report) = worker.reports().next().unwrap();
    assert!(matches!(report.health, Health::Pausing(_)), "{report:?}");
    assert_eq!(report.faults["touched"], 1);
    let failure = worker.take_failure().unwrap();
    assert_eq!((failure.instance, failure.fault.kind), (InstanceId(0), "touched"));
    assert_eq!(worker.take_failure(), None);
}

/// Says the same of every packet.
struct Says(Verdict);

impl Instance for Says {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        packets.for_each(|_, _| self.0);
        Progress::Done
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(json!(null))
    }
}

/// A worker with port 3 whose instances say these verdicts; the first is bound, on terms, at a gate.
fn with_verdicts(verdicts: &[Verdict], terms: Terms, gate: u8) -> (WorkerPlugins<ByPort>, PathId) {
    let mut worker = worker();
    worker.set_port(PortId(3), true);
    for (id, verdict) in (0..).map(InstanceId).zip(verdicts) {
        change(&mut worker, PluginChange::AddInstance { id, instance: Box::new(Says(*verdict)) });
    }
    let (binding, gate, action) = (BindingId(0), GateId(gate), Action::Instance(InstanceId(0)));
    change(&mut worker, PluginChange::Bind { binding, gate, filter: 80, priority: 0, action, terms });
    let path = path_of(&mut worker, 80);
    (worker, path)
}

/// What becomes of one packet at the first stage: whether it goes on, where to, and how it ends.
fn fate_of(
    worker: &mut WorkerPlugins<ByPort>,
    path: PathId,
    position: Position,
) -> (bool, Option<Direction>, Option<End>) {
    let pool = Pool::new(4).unwrap();
    let sent = Sent::along(worker, &pool, (path, position), &[7], Instant::ZERO);
    let end = sent.taken.first().and_then(|(_, taken)| match taken {
        Taken::End(end) => Some(*end),
        Taken::Keep(_) => None,
    });
    (sent.members == [0], sent.directed.first().map(|(_, direction)| *direction), end)
}

#[test]
fn packets_are_sent_by_ports_that_there_are() {
    let bypass = Terms { on_fault: crate::OnFault::Bypass, ..Terms::default() };
    let failed = Some(End::Drop(DropReason::PluginFailed));
    for (verdict, direction) in [
        (Verdict::Port(PortId(3)), Some(Direction::Port(PortId(3)))),
        (Verdict::Ports(1 << 3), Some(Direction::Ports(1 << 3))),
        (Verdict::Port(PortId(4)), None),
        (Verdict::Ports(1 << 3 | 1 << 63), None),
        (Verdict::Ports(0), None),
        (Verdict::Instance(InstanceId(9)), None),
    ] {
        let (mut worker, path) = with_verdicts(&[verdict], Terms::default(), 0);
        let expected = (direction.is_some(), direction, failed.filter(|_| direction.is_none()));
        assert_eq!(fate_of(&mut worker, path, Position::Early), expected, "{verdict:?}");
        let faults: u64 = worker.reports().next().unwrap().1.faults.values().sum();
        assert_eq!(faults, u64::from(direction.is_none()), "{verdict:?}");
        let (mut worker, path) = with_verdicts(&[verdict], bypass, 0);
        assert_eq!(fate_of(&mut worker, path, Position::Early), (true, direction, None), "{verdict:?}");
    }
}

#[test]
fn at_the_queue_the_way_is_chosen() {
    let mut worker = worker();
    worker.set_port(PortId(3), true);
    let queue = PluginChange::AddGate { gate: GateId(3), position: Position::Queue, order: GateOrder(10) };
    change(&mut worker, queue);
    let instance = Box::new(Says(Verdict::Port(PortId(3))));
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance });
    bind(&mut worker, 0, 3, 80, 0);
    let path = path_of(&mut worker, 80);
    let failed = Some(End::Drop(DropReason::PluginFailed));
    assert_eq!(fate_of(&mut worker, path, Position::Queue), (false, None, failed));
    let report = worker.reports().next().unwrap().1;
    assert_eq!(report.last_fault, "it names a port at a gate of the position queue, where the way is chosen");
}

#[test]
fn drops_are_counted_by_the_plugins_reasons() {
    let (mut worker, path) = with_verdicts(&[Verdict::Drop(31)], Terms::default(), 0);
    let dropped = Some(End::Drop(DropReason::Plugin));
    assert_eq!(fate_of(&mut worker, path, Position::Early), (false, None, dropped));
    assert_eq!(worker.reports().next().unwrap().1.drops, [(31, 1)].into());
}

#[test]
fn packets_go_from_instance_to_instance_and_not_in_circles() {
    let on_to = |id| Verdict::Instance(InstanceId(id));
    let (mut worker, path) = with_verdicts(&[on_to(1), on_to(2), Verdict::Pass], Terms::default(), 0);
    assert_eq!(fate_of(&mut worker, path, Position::Early), (true, None, None));
    let (mut worker, path) = with_verdicts(&[on_to(1), Verdict::Consume], Terms::default(), 0);
    assert_eq!(fate_of(&mut worker, path, Position::Early), (false, None, Some(End::Consume)));
    let (mut worker, path) = with_verdicts(&[on_to(1), on_to(0)], Terms::default(), 0);
    let in_circles = Some(End::Drop(DropReason::PluginLoop));
    assert_eq!(fate_of(&mut worker, path, Position::Early), (false, None, in_circles));
    assert_eq!(worker.counts(BindingId(0)).unwrap().drops, 1);
}

#[test]
fn packets_wait_for_the_instance_that_they_are_sent_to() {
    let (mut worker, path) = with_verdicts(&[Verdict::Instance(InstanceId(1))], Terms::default(), 0);
    let slow = Box::new(Slow { slices: 2, ..Slow::default() });
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(1), instance: slow });
    let pool = Pool::new(64).unwrap();
    send_and_keep(&mut worker, &pool, path, &[10, 1], at(0));
    send_and_keep(&mut worker, &pool, path, &[11], at(0));
    assert_eq!(worker.waiting(), 3);
    let released: Vec<_> = (0..6).flat_map(|_| released(&mut worker, at(0))).collect();
    assert_eq!(released, [(10, None), (1, Some(End::Drop(DropReason::Plugin))), (11, None)]);
    assert!(worker.is_idle());
}

#[test]
fn a_call_may_take_what_its_binding_says() {
    let terms = Terms { call: Duration::from_micros(150), ..Terms::default() };
    let mut worker = worker();
    let slow = Box::new(Slow { slices: u32::MAX, ..Slow::default() });
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance: slow });
    let (binding, gate, action) = (BindingId(0), GateId(0), Action::Instance(InstanceId(0)));
    change(&mut worker, PluginChange::Bind { binding, gate, filter: 80, priority: 0, action, terms });
    let path = path_of(&mut worker, 80);
    let pool = Pool::new(64).unwrap();
    send_and_keep(&mut worker, &pool, path, &[10], at(0));
    assert_eq!(released(&mut worker, at(0)), []);
    assert_eq!(released(&mut worker, at(0)), [(10, Some(End::Drop(DropReason::PluginFailed)))]);
    let report = worker.reports().next().unwrap().1;
    assert_eq!((report.faults["overrun"], report.suspensions), (1, 3));
}

/// Counts packets in the state of their flows, and tells of flows that ended what it counted.
#[derive(Default)]
struct Stateful(Vec<u8>);

impl Instance for Stateful {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        for place in 0..packets.len() {
            let first = packets.is_first(place);
            let state = packets.state_mut(place).unwrap();
            assert_eq!((state.len(), first), (3, state[0] == 0));
            state[0] += 1;
        }
        Progress::Done
    }

    fn flow_state(&self) -> usize {
        3
    }

    fn flow_ended(&mut self, _flow: &FlowEnd, state: &[u8]) {
        self.0.push(state[0]);
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(json!(self.0))
    }
}

#[test]
fn the_state_of_a_flow_goes_with_it_from_path_to_path() {
    let mut worker = worker();
    for id in 0..2 {
        let instance = Box::new(Stateful::default());
        change(&mut worker, PluginChange::AddInstance { id: InstanceId(id), instance });
    }
    bind(&mut worker, 0, 0, 80, 0);
    bind(&mut worker, 1, 0, 81, 0);
    bind(&mut worker, 2, 1, 81, 1);
    bind(&mut worker, 3, 1, 82, 1);
    let [one, both, other] = [80, 81, 82].map(|port| path_of(&mut worker, port));
    assert!(worker.keeps_states());
    let pool = Pool::new(4).unwrap();
    let key = FlowKey::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 17, (1, 80), PortId(0));
    let end = FlowEnd { key, packets: 0, bytes: 0 };
    let send = |worker: &mut WorkerPlugins<ByPort>, path, state: u32, packets: usize| {
        let mut batch: Vec<_> = (0..packets).map(|_| pool.packet_from(&[0; 60]).unwrap()).collect();
        let mut verdicts = vec![Verdict::Pass; packets];
        let mut group = Group {
            packets: &mut batch,
            keys: &vec![key; packets],
            states: &vec![state; packets],
            verdicts: &mut verdicts,
            members: &mut (0..packets as u16).collect(),
            taken: &mut Vec::new(),
            directed: &mut Vec::new(),
        };
        worker.run(Place { path, position: Position::Early, stage: 0 }, &mut group, at(0));
    };
    let read = Message { name: "read".into(), arguments: serde_json::Map::new() };
    let state = worker.begin_state(one);
    send(&mut worker, one, state, 2);
    let state = worker.flow_moved((one, state), both, &end);
    send(&mut worker, both, state, 1);
    let state = worker.flow_moved((both, state), other, &end);
    assert_eq!(ask(&mut worker, 0, &read, at(0)), Some(Ok(json!([3]))));
    worker.flow_ended(other, &end, state);
    assert_eq!(ask(&mut worker, 1, &read, at(0)), Some(Ok(json!([1]))));
    assert_eq!(worker.state_counts().0, 0);
}

/// Counts packets, and hands the count over to those that take its version.
struct Keeper {
    count: u8,
    takes: u32,
    flow_state: usize,
}

impl Instance for Keeper {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        packets.for_each(|_, _| {
            self.count += 1;
            Verdict::Pass
        });
        Progress::Done
    }

    fn flow_state(&self) -> usize {
        self.flow_state
    }

    fn hears_flow_ends(&self) -> bool {
        false
    }

    fn save(&mut self) -> Result<Option<Vec<u8>>, PluginError> {
        Ok(Some(vec![self.count]))
    }

    fn restore(&mut self, state: &[u8], version: u32) -> Result<(), PluginError> {
        if version != self.takes {
            return Err(PluginError::setting("keeper", "restore", format!("version {version}")));
        }
        self.count = state[0];
        Ok(())
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(json!(self.count))
    }
}

fn successor(instance: impl Instance + 'static, inheritance: Inheritance, same_version: bool) -> Successor {
    Successor { instance: Box::new(instance), inheritance, version: 1, same_version }
}

/// Has an instance succeed to instance 0; the end is told by the channel.
fn succeed(
    worker: &mut WorkerPlugins<ByPort>,
    successor: Successor,
) -> std::sync::mpsc::Receiver<Option<Succession>> {
    let (sender, told) = std::sync::mpsc::channel();
    worker.succeed(InstanceId(0), successor, at(0), Box::new(move |end| sender.send(end).unwrap()));
    told
}

fn with_keeper() -> (WorkerPlugins<ByPort>, PathId) {
    let mut worker = worker();
    let keeper = Box::new(Keeper { count: 0, takes: 0, flow_state: 0 });
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance: keeper });
    bind(&mut worker, 0, 0, 80, 0);
    let path = path_of(&mut worker, 80);
    send(&mut worker, path, Position::Early, &[1, 2, 3]);
    (worker, path)
}

#[test]
fn a_successor_takes_over_what_the_old_one_knows() {
    let (mut worker, path) = with_keeper();
    let keeper = |takes| Keeper { count: 100, takes, flow_state: 0 };
    let told = succeed(&mut worker, successor(keeper(1), Inheritance::Required, true));
    assert_eq!(told.try_recv().unwrap().unwrap().inherited, Ok(Inherited::Bytes(1)));
    send(&mut worker, path, Position::Early, &[1]);
    assert_eq!((seen(&mut worker, 0), worker.take_reclassify()), (4, false));
    // One that can't take it over.
    let told = succeed(&mut worker, successor(keeper(2), Inheritance::Required, true));
    assert!(told.try_recv().unwrap().unwrap().inherited.is_err());
    assert_eq!(seen(&mut worker, 0), 4);
    let told = succeed(&mut worker, successor(keeper(2), Inheritance::Tried, true));
    assert!(matches!(told.try_recv().unwrap().unwrap().inherited, Ok(Inherited::Lost(_))));
    assert_eq!(seen(&mut worker, 0), 100);
    let told = succeed(&mut worker, successor(keeper(1), Inheritance::Renounced, true));
    assert_eq!(told.try_recv().unwrap().unwrap().inherited, Ok(Inherited::Nothing));
    assert_eq!(seen(&mut worker, 0), 100);
    let (sender, told) = std::sync::mpsc::channel();
    let end = Box::new(move |end: Option<Succession>| sender.send(end.is_none()).unwrap());
    worker.succeed(InstanceId(7), successor(keeper(1), Inheritance::Tried, true), at(0), end);
    assert!(told.try_recv().unwrap());
}

#[test]
fn a_successor_waits_for_the_end_of_a_call() {
    let (mut worker, path) = with_slow(2);
    let pool = Pool::new(64).unwrap();
    send_and_keep(&mut worker, &pool, path, &[10], at(0));
    send_and_keep(&mut worker, &pool, path, &[11], at(0));
    let keeper = Keeper { count: 5, takes: 1, flow_state: 0 };
    let told = succeed(&mut worker, successor(keeper, Inheritance::Tried, true));
    assert!(told.try_recv().is_err());
    let released: Vec<_> = (0..3).flat_map(|_| released(&mut worker, at(0))).collect();
    assert_eq!(released, [(10, None), (11, None)]);
    assert_eq!(told.try_recv().unwrap().unwrap().inherited, Ok(Inherited::Nothing));
    // The packet behind went to the new one.
    assert_eq!(seen(&mut worker, 0), 6);
    assert!(worker.is_idle());
}

#[test]
fn an_instance_that_failed_is_replaced_without_what_it_knew() {
    let (mut worker, path) = with_slow(0);
    let pool = Pool::new(64).unwrap();
    send_and_keep(&mut worker, &pool, path, &[9], at(0));
    let keeper = Keeper { count: 5, takes: 1, flow_state: 0 };
    let told = succeed(&mut worker, successor(keeper, Inheritance::Required, true));
    assert_eq!(told.try_recv().unwrap().unwrap().inherited, Ok(Inherited::Lost("it is pausing".into())));
    assert_eq!(worker.reports().next().unwrap().1.health, Health::Well);
    send(&mut worker, path, Position::Early, &[1]);
    assert_eq!(seen(&mut worker, 0), 6);
}

#[test]
fn another_kind_of_state_for_flows_begins_anew() {
    let (mut worker, path) = with_keeper();
    for (flow_state, same_version, anew) in
        [(8, true, true), (8, true, false), (8, false, true), (0, true, true)]
    {
        let keeper = Keeper { count: 0, takes: 1, flow_state };
        let told = succeed(&mut worker, successor(keeper, Inheritance::Required, same_version));
        assert!(told.try_recv().unwrap().unwrap().inherited.is_ok());
        assert_eq!(worker.take_reclassify(), anew, "{flow_state} {same_version}");
    }
    let new = path_of(&mut worker, 80);
    assert_ne!(new, path);
    assert_eq!(seen(&mut worker, 0), 3);
    send(&mut worker, new, Position::Early, &[1]);
    assert_eq!(seen(&mut worker, 0), 4);
}

#[test]
fn a_shadow_tells_what_it_would_do_otherwise() {
    let pool = Pool::new(64).unwrap();
    for (verdict, different) in [(Verdict::Pass, 0), (Verdict::Drop(1), 3)] {
        let (mut worker, path) = with_keeper();
        let (sender, told) = std::sync::mpsc::channel();
        let reported = Box::new(move |report| sender.send(report).unwrap());
        worker.shadow(InstanceId(0), Box::new(Says(verdict)), 3, pool.clone(), reported);
        send(&mut worker, path, Position::Early, &[1, 2]);
        assert!(told.try_recv().is_err());
        send(&mut worker, path, Position::Early, &[1, 2]);
        let report = told.try_recv().unwrap().unwrap();
        assert_eq!((report.packets, report.different, report.fault), (3, different, None));
        let first = "packet 1, from 127.0.0.1 to 127.0.0.1: Pass has become Drop(1)";
        assert_eq!(report.first.as_deref(), (different > 0).then_some(first));
        assert_eq!(seen(&mut worker, 0), 7);
    }
    let (mut worker, path) = with_keeper();
    let (sender, told) = std::sync::mpsc::channel();
    let reported = Box::new(move |report| sender.send(report).unwrap());
    let slow = Box::new(Slow { slices: 10, ..Slow::default() });
    worker.shadow(InstanceId(0), slow, 3, pool.clone(), reported);
    send(&mut worker, path, Position::Early, &[1, 2]);
    let report: Option<ShadowReport> = told.try_recv().unwrap();
    assert_eq!(report.unwrap().fault.unwrap(), "a call took more than 10 slices");
    assert_eq!(pool.in_use(), 0);
}
