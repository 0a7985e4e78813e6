//! Property test: after any sequence of events, each path has as many users as flow records and packet
//! accounts refer to it.

use std::collections::BTreeMap;

use millrace_classify::{CompiledExpression, Filter, Selection};
use millrace_plugin::{Action, BindingId, CallLimits, GateOrder, PluginChange};
use millrace_plugin_abi::{Instance, Message, Packets, Position, Progress, Reply};
use millrace_port::MemoryHandle;
use millrace_units::{GateId, InstanceId, PathId};
use proptest::prelude::*;

use super::*;
use crate::commands::PluginCommand;
use crate::gate_tables::GateTables;

const FLOWS: u8 = 6;
const BINDINGS: u32 = 4;
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const GATE: GateId = GateId(1);
const INSTANCE: InstanceId = InstanceId(1);

#[derive(Clone, Debug)]
enum Event {
    /// A packet of a flow arrives.
    Packet(u8),
    /// A binding is added, or removed if it exists. It binds the packets of one flow, or all packets.
    Toggle(u32, Option<u8>),
    /// The records of a flow are removed.
    Flush(u8),
    /// The route to a flow's destination changes.
    Route(u8),
    /// Time passes, so that records may become idle.
    Wait,
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0..FLOWS).prop_map(Event::Packet),
        3 => (1..=BINDINGS, prop::option::of(0..FLOWS)).prop_map(|(number, flow)| Event::Toggle(number, flow)),
        1 => (0..FLOWS).prop_map(Event::Flush),
        1 => (0..FLOWS).prop_map(Event::Route),
        1 => Just(Event::Wait),
    ]
}

/// Instance that lets packets pass.
struct Pass;

impl Instance for Pass {
    fn process(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
        Progress::Done
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(Default::default())
    }
}

/// Worker with one port, and a flow table of four records.
struct World {
    worker: Worker,
    wire: MemoryHandle,
    tables: GateTables,
    /// Filters of the current bindings.
    bound: BTreeMap<u32, CompiledExpression>,
    now: Instant,
    _rest: (WorkerLink, SharedFib),
}

impl World {
    fn new() -> Self {
        let (mut worker, link, fib) = worker();
        let (device, wire) = Memory::new(MAC, 1500);
        worker.add_device(DeviceId(0), Box::new(device));
        let (tables, bound, now) = (GateTables::default(), BTreeMap::new(), Instant::from_millis(1));
        let mut world = Self { worker, wire, tables, bound, now, _rest: (link, fib) };
        world.tell(Options { flows_max: 4, ..Options::default() });
        let port = PortSettings { mac: MAC, addresses: Vec::new(), ..settings(0, Tags::NONE) };
        world.tell(PortCommand::Set(PortId(1), port));
        world.change(PluginChange::AddGate { gate: GATE, position: Position::Early, order: GateOrder(1) });
        world.change(PluginChange::AddInstance { id: INSTANCE, instance: Box::new(Pass) });
        world
    }

    fn tell(&mut self, command: impl Into<Command>) {
        self.worker.carry_out(command.into(), self.now);
    }

    fn change(&mut self, change: PluginChange<CompiledExpression>) {
        let changes = self.tables.publish(vec![change]);
        self.tell(PluginCommand::Change(changes));
    }

    fn toggle(&mut self, number: u32, flow: Option<u8>) {
        let (binding, gate) = (BindingId(number), GATE);
        if let Some(filter) = self.bound.remove(&number) {
            return self.change(PluginChange::Unbind { binding, gate, filter });
        }
        let text = flow.map_or("dst 10.0.0.0/24".to_owned(), |flow| format!("dst 10.0.0.{flow}/32"));
        let filter: CompiledExpression = text.parse::<Filter>().unwrap().compile(|_| None).unwrap().into();
        self.bound.insert(number, filter.clone());
        let action = match number % 3 {
            0 => Action::Drop,
            1 => Action::Accept,
            _ => Action::Instance(INSTANCE),
        };
        let (priority, call_limits) = (number as i32, CallLimits::default());
        self.change(PluginChange::Bind { binding, gate, filter, priority, action, call_limits });
    }

    fn happen(&mut self, event: &Event) {
        match event {
            Event::Packet(flow) => self.wire.inject(&frame(*flow)),
            Event::Toggle(number, flow) => self.toggle(*number, *flow),
            Event::Flush(flow) => {
                let selection = format!("dst 10.0.0.{flow}").parse::<Selection>().unwrap();
                let filter = selection.compile(|_| None).unwrap();
                let scan = FlowScan { from: 0, records: u32::MAX, filter };
                self.tell(FlowCommand::Flush(scan, sync_channel(1).0));
            }
            Event::Route(flow) => {
                let prefix = format!("10.0.0.{flow}/32").parse().unwrap();
                self.tell(RouteCommand::Changed(vec![RouteChange { prefix, own: false }]));
            }
            Event::Wait => self.now += Duration::from_secs(31),
        }
        self.now += Duration::from_secs(1);
        let now = self.now;
        self.worker.iterate(now, || now);
    }

    /// Returns the users of each path: as counted, and as expected.
    fn users(&self) -> (Vec<u32>, Vec<u32>) {
        let (flows, paths) =
            (&self.worker.router.classifier.flows, &self.worker.router.gates.plugins().paths);
        let counted: Vec<u32> = (0..).map_while(|id| paths.users(PathId(id))).collect();
        let mut expected = vec![0; counted.len()];
        for (_, record) in flows.range(0..flows.slots()) {
            expected[record.answer.path.index()] += 1;
        }
        for id in (0..counted.len() as u32).map(PathId) {
            for account in [paths.account(id), paths.account_of_copies(id)] {
                expected[account.index()] += u32::from(account != id);
            }
        }
        (counted, expected)
    }
}

/// Returns a UDP frame to 10.0.0.`flow`.
fn frame(flow: u8) -> Vec<u8> {
    let mut header = vec![0x45, 0, 0, 46, 0, 1, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 10, 0, 0, flow];
    let sum = millrace_wire::checksum::checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    let link = [&MAC.0[..], &[2, 0, 0, 0, 0, 9, 8, 0]].concat();
    [link, header, vec![3, 232, 7, 208, 0, 26, 0, 0], vec![0; 18]].concat()
}

proptest! {
    #[test]
    fn a_path_has_as_many_users_as_records_and_accounted_paths(
        events in prop::collection::vec(any_event(), 1..40),
    ) {
        let mut world = World::new();
        for event in &events {
            world.happen(event);
            let (counted, expected) = world.users();
            prop_assert_eq!(counted, expected, "after {:?}", event);
        }
    }
}
