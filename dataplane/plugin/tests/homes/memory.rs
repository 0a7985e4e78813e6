//! Test of the memory that sandboxed instances use of a principal at a worker.

use millrace_packet::Pool;
use millrace_plugin::{
    Action, BindingId, CallLimits, Inheritance, Paid, Payers, Place, PluginChange, Successor, WorkerPlugins,
};
use millrace_plugin_abi::{Instant, MemoryUse, NoQueues, Plugin, Position};
use millrace_units::{GateId, InstanceId, PathId, PrincipalId};
use serde_json::Map;

use crate::contexts::{Every, send};
use crate::native::text;
use crate::support::{Bench, Sent, contained, module_of};

const PAGE: u64 = 1 << 16;
const PAYER: PrincipalId = PrincipalId(2);
const OTHER: PrincipalId = PrincipalId(5);
const INSTANCE: InstanceId = InstanceId(0);

/// Returns a plugin whose memory grows by a page at each packet.
fn growing() -> Option<impl Plugin> {
    let body = "void millrace_packets(struct millrace_call *call) {
        for (uint32_t i = 0; i < call->count; i++)
            if (__builtin_wasm_memory_grow(0, 1) == (size_t)-1) millrace_count(0, 1); }";
    module_of(&text(r#","counters":["refused"]"#, body)).map(|bytes| contained(&bytes))
}

/// Worker with an instance of the plugin at a gate.
struct World<P> {
    plugin: P,
    worker: WorkerPlugins<Every>,
    pool: Pool,
    sent: u64,
}

impl<P: Plugin> World<P> {
    fn new(plugin: P) -> Self {
        let mut world = Self { worker: WorkerPlugins::new(), pool: Pool::new(64).unwrap(), sent: 0, plugin };
        let (gate, order) = (GateId(0), millrace_plugin::GateOrder(0));
        world.change(PluginChange::AddGate { gate, position: Position::Early, order });
        let instance = world.instance();
        world.change(PluginChange::AddInstance { id: INSTANCE, instance });
        let instance = world.instance();
        world.change(PluginChange::AddContext { id: INSTANCE, instance });
        world
    }

    fn instance(&self) -> Box<dyn millrace_plugin_abi::Instance> {
        self.plugin.create(&Map::new()).unwrap()
    }

    fn change(&mut self, change: PluginChange<()>) {
        drop(self.worker.apply(change));
    }

    fn bind(&mut self, binding: u32, principal: Option<PrincipalId>) {
        let (action, gate) = (Action::Instance(INSTANCE), GateId(0));
        let call_limits = CallLimits { principal, ..CallLimits::default() };
        let binding = BindingId(binding);
        self.change(PluginChange::Bind { binding, gate, filter: (), priority: 0, action, call_limits });
    }

    fn unbind(&mut self, binding: u32) {
        self.change(PluginChange::Unbind { binding: BindingId(binding), gate: GateId(0), filter: () });
    }

    /// Sends packets of a flow, which all pass.
    fn send(&mut self, flow: u16, packets: u64) {
        let path: PathId = self.worker.classify(&(), None).path;
        let place = Place { path, position: Position::Early, stage: 0 };
        for _ in 0..packets {
            let key = Bench::key(&Sent { flow, port: 80, bytes: Vec::new() });
            let mut passed = send(&mut self.worker, &self.pool, key, place);
            while passed == 0 {
                let mut released = Vec::new();
                self.worker.resume(Instant::ZERO, &NoQueues, &mut released);
                passed = released.into_iter().filter(|one| one.end.is_none()).count();
            }
        }
        self.sent += packets;
    }

    fn used(&self, id: PrincipalId) -> MemoryUse {
        Paid::memory(&self.worker).account(id)
    }

    fn refused(&self) -> u64 {
        self.worker.instances().reports().map(|(_, report)| report.counters["refused"]).sum()
    }

    fn memory(&self) -> u64 {
        self.worker.instances().reports().map(|(_, report)| report.memory).sum()
    }
}

#[test]
fn instances_grow_up_to_the_memory_of_their_principal_and_go_on() {
    let Some(plugin) = growing() else { return };
    let mut world = World::new(plugin);
    let begins = world.memory();
    world.bind(0, Some(PAYER));
    assert_eq!(world.used(PAYER).plugin, begins, "both contexts count");
    Payers::memory(&mut world.worker).set_limit(PAYER, Some(begins + 3 * PAGE));
    (0..8).for_each(|flow| world.send(flow, 4));
    let used = world.used(PAYER);
    assert_eq!((used.plugin, used.refused, used.suspended), (begins + 3 * PAGE, 29, 0));
    assert_eq!((world.memory(), world.refused()), (used.plugin, 29));
    // If somebody else pays, too, the memory counts nowhere, and only its own limit applies.
    world.bind(1, Some(OTHER));
    assert_eq!((world.used(PAYER).plugin, world.used(OTHER).plugin), (0, 0));
    world.send(0, 1);
    assert_eq!((world.memory(), world.used(PAYER).refused), (used.plugin + PAGE, 29));
    world.unbind(0);
    assert_eq!((world.used(PAYER).plugin, world.used(OTHER).plugin), (0, used.plugin + PAGE));
    world.unbind(1);
    assert_eq!(world.used(OTHER).plugin, 0);
}

#[test]
fn memory_of_a_successor_counts_in_place_of_the_old_one() {
    let Some(plugin) = growing() else { return };
    let mut world = World::new(plugin);
    let begins = world.memory();
    world.bind(0, Some(PAYER));
    world.send(0, 5);
    assert_eq!(world.used(PAYER).plugin, begins + 5 * PAGE);
    let contexts = vec![world.instance(), world.instance(), world.instance()];
    let successor = Successor::new(contexts, Inheritance::Renounced, 0, true);
    let (told, result) = std::sync::mpsc::channel();
    let reply = Box::new(move |result| told.send(result).unwrap());
    world.worker.succeed(INSTANCE, successor, Instant::ZERO, reply);
    let old = result.recv().unwrap().unwrap().contexts;
    assert_eq!((old.len(), world.used(PAYER).plugin), (2, begins / 2 * 3));
    drop(old);
    world.change(PluginChange::RemoveInstance { id: INSTANCE });
    assert_eq!(world.used(PAYER).plugin, 0);
}
