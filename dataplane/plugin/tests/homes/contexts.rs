//! Test of contexts in the runtimes whose calls can wait: a call that never ends delays no flow of another context.
#![allow(clippy::disallowed_methods, reason = "real calls take real time")]

use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use millrace_packet::{FlowKey, Pool};
use millrace_plugin::{
    BindingId, BindingTable, CallLimits, Group, Kept, Place, PluginControlUnit, StateRef, Taken,
    WorkerPlugins,
};
use millrace_plugin_abi::{Instant, NoQueues, Plugin, Position, Verdict};
use serde_json::Map;

use crate::native::text;
use crate::process::in_process;
use crate::support::{Bench, Sent, contained, module_of, object_of};

/// Number of flows with short calls.
const FLOWS: u16 = 16;

/// Filter table whose only binding matches every packet.
#[derive(Default)]
pub struct Every(Option<BindingId>);

impl BindingTable for Every {
    type Filter = ();
    type Candidate = ();

    fn insert(&mut self, (): (), _priority: i32, binding: BindingId) {
        self.0 = Some(binding);
    }

    fn remove(&mut self, (): (), _binding: BindingId) {
        self.0 = None;
    }

    fn lookup(&self, (): &()) -> Option<BindingId> {
        self.0
    }
}

/// Returns the C text of a plugin with this number of contexts. It never returns from a call with a packet to
/// port 666.
fn looping(contexts: u8) -> String {
    text(
        &format!(r#","contexts":{contexts}"#),
        "static volatile uint32_t turns;
        void millrace_packets(struct millrace_call *call) {
            for (uint32_t i = 0; i < call->count; i++)
                while (millrace_packet(call, i)->destination_port == 666) turns++; }",
    )
}

/// Sends a packet to port 666, then packets of [`FLOWS`] flows to port 80, each as a batch of its own. Returns
/// the number of flows whose packets passed while the first call was running.
fn passed_beside_a_loop(plugin: Arc<dyn Plugin>, contexts: usize) -> usize {
    let name = plugin.name();
    let mut unit = PluginControlUnit::<String, ()>::new();
    let mut worker = WorkerPlugins::<Every>::new();
    unit.populate().unwrap().into_iter().for_each(|change| drop(worker.apply(change)));
    unit.add_plugin(plugin).unwrap();
    let (_, added) = unit.create_instance(name, "i", Map::new()).unwrap();
    assert_eq!(added.len(), contexts);
    added.into_iter().for_each(|change| drop(worker.apply(change)));
    let limits = CallLimits { call: Duration::from_secs(60), ..CallLimits::default() };
    let gate = unit.gates_in_order().iter().find(|gate| gate.position == Position::Early).unwrap();
    let gate = gate.name.clone();
    let (_, bound) = unit.register_instance("i", &gate, "*".to_owned(), (), 0, limits).unwrap();
    drop(worker.apply(bound));
    let path = worker.classify(&(), None).path;
    let pool = Pool::new(64).unwrap();
    let mut passed = 0;
    for flow in 0..=FLOWS {
        let port = if flow == 0 { 666 } else { 80 };
        let key = Bench::key(&Sent { flow, port, bytes: Vec::new() });
        passed += send(&mut worker, &pool, key, Place { path, position: Position::Early, stage: 0 });
    }
    let begun = Clock::now();
    let mut released = Vec::new();
    while begun.elapsed() < Duration::from_millis(300) {
        worker.resume(Instant::ZERO + begun.elapsed(), &NoQueues, &mut released);
        std::thread::yield_now();
    }
    assert!(released.iter().all(|one| one.waiting.key.destination_port == 80 && one.end.is_none()));
    passed + released.len()
}

/// Sends a packet. Returns 1 if it passed at once, or 0 if it waits.
pub fn send(worker: &mut WorkerPlugins<Every>, pool: &Pool, key: FlowKey, place: Place) -> usize {
    let mut packets = vec![pool.packet_from(&[0x45; 60]).unwrap()];
    let (mut members, mut taken) = (vec![0], Vec::new());
    let mut group = Group {
        packets: &mut packets,
        keys: &[key],
        states: &[0],
        verdicts: &mut [Verdict::Pass],
        members: &mut members,
        bytes: &mut None,
        taken: &mut taken,
        directed: &mut Vec::new(),
        queues: &NoQueues,
        tracking: None,
    };
    worker.run(place, &mut group, Instant::ZERO);
    for (packet, (_, why)) in packets.into_iter().zip(&taken) {
        let Taken::Keep(ticket) = why else { panic!("{why:?}") };
        let kept = Kept {
            packet,
            key,
            destination: [0; 6],
            state: StateRef::default(),
            connection: Default::default(),
        };
        assert!(worker.keep(*ticket, 64, kept).is_ok());
    }
    worker.end_of_batch();
    members.len()
}

#[test]
fn call_without_an_end_delays_only_the_flows_of_its_context() {
    for (contexts, fewest, most) in [(1, 0, 0), (4, 1, usize::from(FLOWS) - 1)] {
        let (module, object) = (module_of(&looping(contexts)), object_of(&looping(contexts)));
        let module = module.map(|bytes| Arc::new(contained(&bytes)) as Arc<dyn Plugin>);
        let process = object.map(|bytes| Arc::new(in_process(&bytes)) as Arc<dyn Plugin>);
        for plugin in [module, process].into_iter().flatten() {
            let runtime = plugin.runtime();
            let passed = passed_beside_a_loop(plugin, contexts.into());
            assert!((fewest..=most).contains(&passed), "{runtime:?}, {contexts} contexts: {passed} passed");
        }
    }
}
