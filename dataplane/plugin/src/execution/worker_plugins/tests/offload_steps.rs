//! Tests of offloaded paths: steps of the XDP program, and their accounting.

use std::sync::Arc;
use std::time::Duration;

use millrace_units::{Amount, PrincipalId};

use super::*;
use crate::{Action, DriverCharge, OffloadRefusal, OffloadStep, Payers, Policer};

fn filter(worker: &mut WorkerPlugins<ByPort>, id: u32, gate: u8, action: Action) {
    let (filter, call_limits) = (80, crate::CallLimits::default());
    let change = PluginChange::Bind {
        binding: BindingId(id),
        gate: GateId(gate),
        filter,
        priority: 0,
        action,
        call_limits,
    };
    drop(worker.apply(change));
}

fn police() -> Action {
    Action::Police(Arc::new(Policer::new(1_000_000, 2_000)))
}

fn steps(worker: &mut WorkerPlugins<ByPort>) -> Result<Vec<OffloadStep>, OffloadRefusal> {
    let path = path_of(worker, 80);
    worker.offload_steps(path).map(|steps| steps.in_order().collect())
}

#[test]
fn count_drop_and_police_filters_can_be_offloaded() {
    let mut worker = worker();
    assert_eq!(steps(&mut worker), Ok(Vec::new()));
    filter(&mut worker, 0, 0, Action::Accept);
    filter(&mut worker, 1, 1, police());
    assert_eq!(steps(&mut worker), Ok(vec![OffloadStep::Count, OffloadStep::Police]));
    unbind(&mut worker, 1);
    filter(&mut worker, 1, 1, Action::Drop);
    assert_eq!(steps(&mut worker), Ok(vec![OffloadStep::Count, OffloadStep::Drop]));
}

#[test]
fn filters_that_need_a_worker_are_refused_with_the_reason() {
    let cases = [
        (Action::Instance(InstanceId(0)), OffloadRefusal::Instance),
        (Action::Reject, OffloadRefusal::Reject),
        (Action::Queue(millrace_units::QueueId(3)), OffloadRefusal::Queue),
    ];
    for (action, refusal) in cases {
        let mut worker = worker();
        add(&mut worker, 0);
        filter(&mut worker, 0, 0, action);
        assert_eq!(steps(&mut worker), Err(refusal));
    }
    let mut worker = worker();
    filter(&mut worker, 0, 0, police());
    filter(&mut worker, 1, 1, police());
    assert_eq!(steps(&mut worker), Err(OffloadRefusal::Policers));
}

#[test]
fn offloaded_packets_are_counted_at_the_bindings() {
    let mut worker = worker();
    filter(&mut worker, 0, 0, police());
    filter(&mut worker, 1, 1, Action::Accept);
    let path = path_of(&mut worker, 80);
    let steps = worker.offload_steps(path).unwrap();
    assert_eq!(worker.bindings.offload_policer(&steps).map(|policer| policer.rate()), Some(1_000_000));
    let amount = |packets, bytes| Amount { packets, bytes };
    worker.count_offloaded(&steps, amount(7, 700), amount(3, 300));
    let counts = |worker: &WorkerPlugins<ByPort>, id| worker.bindings.counts(BindingId(id)).unwrap();
    let (first, second) = (counts(&worker, 0), counts(&worker, 1));
    assert_eq!((first.packets, first.bytes, first.drops, first.queues.queued), (10, 1000, 3, amount(7, 700)));
    assert_eq!((second.packets, second.bytes, second.drops), (7, 700, 0), "behind the bucket");
    // Neither a removed binding nor the new binding with its id counts the packets.
    unbind(&mut worker, 0);
    filter(&mut worker, 0, 0, Action::Drop);
    worker.count_offloaded(&steps, amount(1, 100), amount(0, 0));
    assert_eq!((counts(&worker, 0).packets, counts(&worker, 1).packets), (0, 8));
    assert!(worker.bindings.offload_policer(&steps).is_none());
    let path = path_of(&mut worker, 80);
    let dropping = worker.offload_steps(path).unwrap();
    assert!(dropping.drops());
    worker.count_offloaded(&dropping, amount(0, 0), amount(5, 500));
    let dropped = counts(&worker, 0);
    assert_eq!(
        (dropped.packets, dropped.bytes, dropped.drops, dropped.queues.queued),
        (5, 500, 5, amount(0, 0))
    );
    assert_eq!(counts(&worker, 1).packets, 8, "nothing came behind the filter that drops");
}

#[test]
fn packets_of_an_ebpf_variant_are_charged_to_the_principal_that_pays() {
    let mut worker = worker();
    Payers::of(&mut worker).schedule(|| Some(0));
    add(&mut worker, 0);
    let (memory, time) = (Arc::new(NoMemory), Duration::from_nanos(20));
    let variant = crate::LoadedVariant { place: 3, instructions: 10, time, memory, is_asked: true };
    worker.instances_mut().set_ebpf_variant(InstanceId(0), Some(variant));
    let payer = PrincipalId(4);
    let call_limits = crate::CallLimits { principal: Some(payer), ..crate::CallLimits::default() };
    drop(worker.apply(PluginChange::Bind {
        binding: BindingId(0),
        gate: GateId(0),
        filter: 80,
        priority: 0,
        action: Action::Instance(InstanceId(0)),
        call_limits,
    }));
    let path = path_of(&mut worker, 80);
    let steps = worker.offload_steps(path).unwrap();
    assert_eq!(steps.variant(), Some(3));
    let amount = |packets| Amount { packets, bytes: 60 * packets };
    worker.count_offloaded(&steps, amount(7), amount(3));
    worker.count_offloaded(&steps, amount(5), amount(0));
    let charges: Vec<_> = Payers::of(&mut worker).take_in_driver().collect();
    let [DriverCharge { payer: pays, time }] = charges[..] else { panic!("{charges:?}") };
    assert_eq!((pays, time), (payer, Duration::from_nanos(300)));
    // Ahead of its share, the principal keeps no flow at the offload.
    Payers::of(&mut worker).hold_back(payer);
    assert!(worker.is_ahead(&steps));
    assert_eq!(worker.offload_steps(path), Err(OffloadRefusal::Ahead));
}

/// Memory of an eBPF variant without settings and counters.
#[derive(Debug)]
struct NoMemory;

impl millrace_plugin_abi::VariantMemory for NoMemory {
    fn id(&self) -> u64 {
        1
    }

    fn configure(&self, _: &[u64]) {}

    fn counted(&self, _: usize) -> u64 {
        0
    }
}

#[test]
fn policer_drops_and_counts_the_excess() {
    let mut worker = worker();
    filter(&mut worker, 0, 0, police());
    let path = path_of(&mut worker, 80);
    // Send 40 packets of 60 bytes to a token bucket with a burst of 2,000 bytes.
    let (members, _) = send(&mut worker, path, Position::Early, &[9; 40]);
    assert_eq!(members.len(), 33);
    let counts = worker.bindings.counts(BindingId(0)).unwrap();
    assert_eq!((counts.packets, counts.bytes, counts.drops), (40, 2400, 7));
    let why = worker.may_drop(path, DropReason::Policer).collect::<Vec<_>>();
    assert_eq!((why, worker.may_drop(path, DropReason::Filter).count()), (vec![BindingId(0)], 0));
}
