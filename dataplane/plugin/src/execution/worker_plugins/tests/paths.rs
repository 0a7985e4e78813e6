//! Tests of the bindings on a flow's path, and of the state that moves with the flow.

use super::*;
use crate::{BindingCounts, Paid, Payers};

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
fn instance_gets_the_packets_passed_by_the_previous_instance() {
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
        worker.bindings.counts(BindingId(0)),
        Some(BindingCounts { packets: 5, bytes: 300, drops: 1, consumed: 1, ..BindingCounts::default() })
    );
    assert_eq!(
        worker.bindings.counts(BindingId(1)),
        Some(BindingCounts { packets: 3, bytes: 180, drops: 0, consumed: 0, ..BindingCounts::default() })
    );
    assert_eq!((seen(&mut worker, 0), seen(&mut worker, 1)), (5, 3));
    send(&mut worker, path, Position::Late, &[7]);
    assert_eq!((seen(&mut worker, 0), seen(&mut worker, 1)), (5, 3));
}

#[test]
fn old_path_skips_removed_bindings_even_if_their_ids_are_reused() {
    let mut worker = worker();
    add(&mut worker, 0);
    bind(&mut worker, 0, 0, 80, 0);
    let old = path_of(&mut worker, 80);
    unbind(&mut worker, 0);
    assert!(matches!(
        worker.apply(PluginChange::RemoveInstance { id: InstanceId(0) }),
        Remains::Instance(..)
    ));
    add(&mut worker, 0);
    bind(&mut worker, 0, 0, 80, 0);
    let (members, _) = send(&mut worker, old, Position::Early, &[1, 1]);
    assert_eq!(members, [0, 1]);
    assert_eq!(seen(&mut worker, 0), 0);
    assert_eq!(worker.stages(old).count(), 0);
    let new = path_of(&mut worker, 80);
    assert_ne!(new, old);
    assert!(send(&mut worker, new, Position::Early, &[1, 1]).0.is_empty());
}

#[test]
fn gate_is_removed_with_its_bindings() {
    let mut worker = worker();
    add(&mut worker, 0);
    bind(&mut worker, 0, 0, 80, 0);
    bind(&mut worker, 1, 2, 80, 0);
    let path = path_of(&mut worker, 80);
    assert!(matches!(worker.apply(PluginChange::RemoveGate { gate: GateId(0) }), Remains::Table(_)));
    assert_eq!(worker.bindings.counts(BindingId(0)), None);
    assert_eq!(worker.stages(path).count(), 1);
    let page = worker.bindings.counts_from(BindingId(0), 1);
    assert_eq!((page.counts.len(), page.next), (0, Some(BindingId(1))));
    let page = worker.bindings.counts_from(BindingId(1), 5);
    assert_eq!((page.counts[0].0, page.counts.len(), page.next), (BindingId(1), 1, None));
    assert_eq!(worker.bindings.gates().iter().map(|gate| gate.id().0).collect::<Vec<_>>(), [1, 2]);
}

/// Instance that counts packets in the flow's state, and reports the count at the end of a flow.
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

    fn writes_packets(&self) -> bool {
        false
    }

    fn flow_state(&self) -> usize {
        3
    }

    fn flow_ended(&mut self, _flow: &FlowEnd, state: &[u8]) -> Progress {
        self.0.push(state[0]);
        Progress::Done
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(json!(self.0))
    }
}

#[test]
fn flow_state_counts_as_memory_of_the_principals_that_pay_for_it() {
    let mut worker = worker();
    let [first, second] = [PrincipalId(1), PrincipalId(2)];
    for (id, principal) in [(0, first), (1, second)] {
        let instance = Box::new(Stateful::default());
        change(&mut worker, PluginChange::AddInstance { id: InstanceId(id), instance });
        Payers::memory(&mut worker).set_limit(principal, Some(100));
    }
    bind_paid(&mut worker, (0, 0, 80, 0), Some(first));
    bind_paid(&mut worker, (1, 0, 81, 0), Some(first));
    bind_paid(&mut worker, (2, 1, 81, 1), Some(second));
    let [one, both] = [80, 81].map(|port| path_of(&mut worker, port));
    let used = |worker: &WorkerPlugins<ByPort>| {
        let memory = Paid::memory(worker);
        [first, second].map(|id| memory.account(id).state)
    };
    let key = FlowKey::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 17, (1, 80), PortId(0));
    let end = FlowEnd { key, packets: 0, bytes: 0 };
    let state = worker.begin_state(one);
    let [part, _] = used(&worker);
    assert!(part > 0 && part <= 50, "{part}");
    let state = worker.flow_moved((one, state), both, &end);
    assert_eq!(used(&worker), [part, part]);
    let others: Vec<u32> = (0..10).map(|_| worker.begin_state(one)).collect();
    let most = 100 / part;
    assert_eq!(others.iter().filter(|state| **state != 0).count() as u64, most - 1);
    assert_eq!(used(&worker), [most * part, part]);
    // The second principal has room, so the flow gets its block.
    let shared = worker.begin_state(both);
    assert!(shared != 0);
    let ended = others.iter().filter(|state| **state != 0).map(|state| (one, *state));
    for (path, state) in ended.chain([(both, state), (both, shared)]) {
        worker.flow_ended(path, &end, state);
    }
    assert_eq!(used(&worker), [0, 0]);
    assert_eq!(worker.flow_states().counts().flows, 0);
}

#[test]
fn flow_state_is_paid_by_the_new_payer_after_a_change_in_place() {
    let mut worker = worker();
    let [first, second] = [PrincipalId(1), PrincipalId(2)];
    let instance = Box::new(Stateful::default());
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance });
    [first, second].into_iter().for_each(|id| Payers::memory(&mut worker).set_limit(id, Some(100)));
    bind_paid(&mut worker, (0, 0, 80, 0), Some(first));
    let used = |worker: &WorkerPlugins<ByPort>| {
        let memory = Paid::memory(worker);
        [first, second].map(|id| memory.account(id).state)
    };
    let key = FlowKey::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 17, (1, 80), PortId(0));
    let end = FlowEnd { key, packets: 0, bytes: 0 };
    let before = path_of(&mut worker, 80);
    let [state, other] = [0; 2].map(|_| worker.begin_state(before));
    let [both, _] = used(&worker);
    let (binding, gate, filter, priority) = (BindingId(0), GateId(0), 80, 0);
    let call_limits = CallLimits { principal: Some(second), ..CallLimits::default() };
    change(&mut worker, PluginChange::Rebind { binding, gate, filter, priority, call_limits });
    let after = path_of(&mut worker, 80);
    assert_eq!(worker.flow_moved((before, state), after, &end), state, "waiting packets find the block");
    assert_eq!(used(&worker), [both / 2, both / 2]);
    // A flow without further packets ends on its former path.
    worker.flow_ended(before, &end, other);
    worker.flow_ended(after, &end, state);
    assert_eq!((used(&worker), worker.flow_states().counts().flows), ([0, 0], 0));
}

#[test]
fn flow_state_follows_its_flow_from_path_to_path() {
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
            bytes: &mut None,
            taken: &mut Vec::new(),
            directed: &mut Vec::new(),
            queues: &NoQueues,
            tracking: None,
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
    assert_eq!(worker.flow_states().counts().flows, 0);
}
