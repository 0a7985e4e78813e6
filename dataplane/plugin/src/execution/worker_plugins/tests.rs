//! Tests of the worker side, with a filter table that compares only the destination port.

mod awaited;
mod contexts;
mod given_states;
mod hand_over;
mod health;
mod holding;
mod offload_steps;
mod output;
mod paths;
mod principals;
mod shadows;
mod succession;
mod verdicts;
mod waiting;

use std::net::Ipv4Addr;
use std::time::Duration;

use millrace_packet::{DropReason, FlowKey, Packet, Pool};
use millrace_plugin_abi::{DeclaredCycles, Fault, Instance, NoQueues, Packets, PluginError, Reply, Verdict};
use millrace_units::{GateId, PrincipalId};

use crate::{
    Direction, End, GateOrder, Group, Inheritance, Inherited, Kept, Limits, Place, ShadowReport, StateRef,
    Succession, Taken,
};
use serde_json::json;

use super::*;

/// Table of bindings by destination port. The latest binding wins.
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

/// Instance that drops packets from source port 1, consumes packets from port 2, puts packets from port 4 into queue 20,
/// and counts all packets.
struct Picky(u64);

impl Instance for Picky {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        packets.for_each(|key, _| {
            self.0 += 1;
            match key.source_port {
                1 => Verdict::Drop(0),
                2 => Verdict::Consume,
                4 => Verdict::Queue(QueueId(20)),
                _ => Verdict::Pass,
            }
        });
        Progress::Done
    }

    fn writes_packets(&self) -> bool {
        false
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
    bind_paid(worker, (binding, gate, port, instance), None);
}

/// Binds an instance whose calls a principal pays for.
fn bind_paid(
    worker: &mut WorkerPlugins<ByPort>,
    (binding, gate, port, instance): (u32, u8, u16, u16),
    principal: Option<PrincipalId>,
) {
    let (binding, gate, action) = (BindingId(binding), GateId(gate), Action::Instance(InstanceId(instance)));
    change(
        worker,
        PluginChange::Bind {
            binding,
            gate,
            filter: port,
            priority: 0,
            action,
            call_limits: CallLimits { principal, ..CallLimits::default() },
        },
    );
}

fn unbind(worker: &mut WorkerPlugins<ByPort>, binding: u32) {
    change(worker, PluginChange::Unbind { binding: BindingId(binding), gate: GateId(0), filter: 80 });
}

fn path_of(worker: &mut WorkerPlugins<ByPort>, port: u16) -> PathId {
    worker.classify(&port, None).path
}

/// Returns the answer of an instance with one context to a message, if it answers at once.
fn ask(worker: &mut WorkerPlugins<ByPort>, instance: u16, message: &Message, now: Instant) -> Option<Reply> {
    let answers = ask_all(worker, instance, message, now).try_recv().unwrap()?;
    assert_eq!(answers.len(), 1);
    answers.into_iter().next()
}

/// Sends a message to all contexts of an instance. The channel receives their answers.
fn ask_all(
    worker: &mut WorkerPlugins<ByPort>,
    instance: u16,
    message: &Message,
    now: Instant,
) -> std::sync::mpsc::Receiver<Option<Vec<Reply>>> {
    let (sender, answers) = std::sync::mpsc::channel();
    let answer = Box::new(move |answer| sender.send(answer).unwrap());
    worker.control(InstanceId(instance), message, now, answer);
    answers
}

fn seen(worker: &mut WorkerPlugins<ByPort>, instance: u16) -> u64 {
    let message = Message { name: "read".into(), arguments: serde_json::Map::new() };
    ask(worker, instance, &message, Instant::ZERO).unwrap().unwrap().as_u64().unwrap()
}

/// Returns the key of the flow from a source port.
fn key_of(source: u16) -> FlowKey {
    FlowKey::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 17, (source, 80), PortId(0))
}

/// Batch of 60-byte packets from given source ports, after it passed a path.
struct Sent {
    packets: Vec<Packet>,
    keys: Vec<FlowKey>,
    /// Remaining members.
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
        let packets = sources.iter().map(|_| pool.packet_from(&[0; 60]).unwrap()).collect();
        Self::of(worker, packets, (path, position), sources, now)
    }

    /// Sends these packets from these source ports.
    fn of(
        worker: &mut WorkerPlugins<ByPort>,
        packets: Vec<Packet>,
        (path, position): (PathId, Position),
        sources: &[u16],
        now: Instant,
    ) -> Self {
        let mut sent = Self {
            packets,
            keys: sources.iter().map(|source| key_of(*source)).collect(),
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
            bytes: &mut None,
            taken: &mut sent.taken,
            directed: &mut sent.directed,
            queues: &NoQueues,
            tracking: None,
        };
        worker.run(Place { path, position, stage: 0 }, &mut group, now);
        assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Pass));
        sent
    }
}

/// Sends packets from these source ports along a path at a position. Returns the remaining members, and the
/// verdict of each packet.
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
            Taken::End(End::Reject) => Verdict::Reject(0),
            Taken::End(End::Consume) => Verdict::Consume,
            Taken::End(End::Classify) => Verdict::Classify,
            Taken::Keep(_) => Verdict::Hold(Instant::ZERO),
        };
    }
    (sent.members, verdicts)
}

/// Instance that needs several slices for each call, and fails at packets from source port 9.
#[derive(Default)]
struct Slow {
    slices: u32,
    left: u32,
    failed: bool,
    calls: Vec<Vec<u16>>,
    worst_case: Option<DeclaredCycles>,
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

    fn writes_packets(&self) -> bool {
        false
    }

    fn worst_case(&self) -> Option<DeclaredCycles> {
        self.worst_case
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

/// Sends packets as a batch, and passes those with a ticket to `keep`.
fn send_and_keep(
    worker: &mut WorkerPlugins<ByPort>,
    pool: &Pool,
    path: PathId,
    sources: &[u16],
    now: Instant,
) {
    send_and_keep_at(worker, pool, (path, Position::Early), sources, now);
}

/// Sends packets as a batch from a position of a path on, and passes those with a ticket to `keep`.
fn send_and_keep_at(
    worker: &mut WorkerPlugins<ByPort>,
    pool: &Pool,
    at: (PathId, Position),
    sources: &[u16],
    now: Instant,
) {
    let sent = Sent::along(worker, pool, at, sources, now);
    keep_all(worker, sent);
}

/// Passes the packets of a batch that have a ticket to `keep`.
fn keep_all(worker: &mut WorkerPlugins<ByPort>, sent: Sent) {
    for ((member, packet), key) in (0..).zip(sent.packets).zip(sent.keys) {
        if let Some((_, Taken::Keep(ticket))) = sent.taken.iter().find(|(taken, _)| *taken == member) {
            let kept = Kept {
                packet,
                key,
                destination: [0; 6],
                state: StateRef::default(),
                connection: Default::default(),
            };
            assert!(worker.keep(*ticket, usize::MAX, kept).is_ok());
        }
    }
    worker.end_of_batch();
}

/// Resumes suspended calls; returns the source ports of released packets, with the ends of their journeys.
fn released(worker: &mut WorkerPlugins<ByPort>, now: Instant) -> Vec<(u16, Option<End>)> {
    let mut released = Vec::new();
    worker.resume(now, &NoQueues, &mut released);
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

/// Instance that gives the same verdict to every packet.
struct Says(Verdict);

impl Instance for Says {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        packets.for_each(|_, _| self.0);
        Progress::Done
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(json!(null))
    }
}
