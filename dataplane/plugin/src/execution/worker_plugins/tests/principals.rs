//! Tests of principals that filters give to paths.

use millrace_units::PrincipalId;

use super::*;
use crate::{OffloadRefusal, PaidStages, Payers, ProcessorWait};

/// Principal of bindings that name none.
const DEFAULT: PrincipalId = PrincipalId(0);

/// Returns call limits with a payer and the queue of the named principal; 0 for an unnamed one.
fn limits(payer: Option<u32>, queue: u16) -> CallLimits {
    CallLimits { principal: payer.map(PrincipalId), link_queue: QueueId(queue), ..CallLimits::default() }
}

fn filter(
    worker: &mut WorkerPlugins<ByPort>,
    number: u32,
    gate: u8,
    action: Action,
    call_limits: CallLimits,
) {
    let (binding, gate) = (BindingId(number), GateId(gate));
    change(worker, PluginChange::Bind { binding, gate, filter: 80, priority: 0, action, call_limits });
}

/// Adds a filter that gives principal `number` to the path. Its queue is 10 times its number.
fn give(worker: &mut WorkerPlugins<ByPort>, binding: u32, gate: u8, number: u32) {
    let call_limits = limits(Some(number), 10 * number as u16);
    filter(worker, binding, gate, Action::Principal(PrincipalId(number)), call_limits);
}

/// Returns a scheduled worker with an instance at gate 0.
fn worker_with(call_limits: CallLimits) -> WorkerPlugins<ByPort> {
    let mut worker = worker();
    Payers::of(&mut worker).schedule(|| None);
    add(&mut worker, 0);
    filter(&mut worker, 0, 0, Action::Instance(InstanceId(0)), call_limits);
    worker
}

/// Returns the payer for which a packet waits at position `early` on the path; `None` if it passes at once.
fn waits_for(worker: &mut WorkerPlugins<ByPort>, path: PathId) -> Option<PrincipalId> {
    let sent = Sent::along(worker, &Pool::new(1).unwrap(), (path, Position::Early), &[3], Instant::ZERO);
    match sent.taken.first() {
        Some((_, Taken::Keep(ticket))) => {
            let ProcessorWait { payer, queue } = PaidStages::of(worker).wait_of(*ticket).unwrap();
            assert_eq!(queue, None);
            Some(payer)
        }
        _ => None,
    }
}

/// Changes the limits of a binding in place.
fn renew(worker: &mut WorkerPlugins<ByPort>, number: u32, call_limits: CallLimits) {
    let (binding, gate) = (BindingId(number), GateId(0));
    change(worker, PluginChange::Rebind { binding, gate, filter: 80, priority: 0, call_limits });
}

#[test]
fn binding_that_changes_in_place_stays_on_earlier_paths() {
    let mut worker = worker_with(limits(Some(1), 10));
    give(&mut worker, 1, 2, 3);
    let before = path_of(&mut worker, 80);
    for (own, queue, payer) in [(2, 20, 2), (DEFAULT.0, 0, 3), (1, 10, 1)] {
        renew(&mut worker, 0, limits(Some(own), queue));
        let after = path_of(&mut worker, 80);
        for path in [before, after] {
            assert_eq!(waits_for(&mut worker, path), Some(PrincipalId(payer)), "{own}");
        }
    }
    // The filter gives another principal.
    renew(&mut worker, 0, limits(Some(DEFAULT.0), 0));
    renew(&mut worker, 1, limits(Some(4), 40));
    assert_eq!(waits_for(&mut worker, before), Some(PrincipalId(4)));
    assert_eq!(worker.stages(before).count(), 2);
}

#[test]
fn principal_of_a_filter_pays_for_bindings_that_name_none() {
    for (own, given, payer) in [
        (limits(None, 0), None, None),
        (limits(None, 0), Some(2), Some(2)),
        (limits(Some(DEFAULT.0), 0), Some(2), Some(2)),
        (limits(Some(1), 10), Some(2), Some(1)),
        // The named principal has the processor time of `default`.
        (limits(Some(DEFAULT.0), 10), Some(2), Some(DEFAULT.0)),
        (limits(Some(1), 10), None, Some(1)),
    ] {
        let mut worker = worker_with(own);
        if let Some(given) = given {
            give(&mut worker, 1, 2, given);
        }
        let (path, payer) = (path_of(&mut worker, 80), payer.map(PrincipalId));
        assert_eq!(waits_for(&mut worker, path), payer, "{own:?} {given:?}");
        assert_eq!(PaidStages::of(&worker).owners(path).collect::<Vec<_>>(), Vec::from_iter(payer));
        let results = worker.gate_results(&80, None);
        let treatment = worker.treatment(&results[0], Instant::ZERO);
        let Some(BindingTreatment::Instance { wait, .. }) = treatment else { panic!("{treatment:?}") };
        assert_eq!(wait.map(|wait| wait.payer), payer);
    }
}

#[test]
fn last_filter_decides_on_the_principal_and_its_removal_ends_it() {
    let mut worker = worker_with(limits(None, 0));
    give(&mut worker, 1, 1, 2);
    let first = path_of(&mut worker, 80);
    assert_eq!(waits_for(&mut worker, first), Some(PrincipalId(2)));
    give(&mut worker, 2, 2, 3);
    let both = path_of(&mut worker, 80);
    assert_eq!(waits_for(&mut worker, both), Some(PrincipalId(3)));
    let results = worker.gate_results(&80, None);
    let treatments: Vec<_> =
        results.iter().skip(1).map(|one| worker.treatment(one, Instant::ZERO).unwrap()).collect();
    let last = BindingTreatment::Principal(PrincipalId(3), QueueId(30));
    assert_eq!(treatments, [BindingTreatment::Count, last]);
    // Packets on the old path don't wait for a principal that no filter gives any more.
    unbind(&mut worker, 2);
    assert_eq!(waits_for(&mut worker, both), None);
    assert_eq!(waits_for(&mut worker, first), Some(PrincipalId(2)));
}

#[test]
fn path_without_instances_has_the_principal_but_never_waits() {
    let mut worker = worker();
    Payers::of(&mut worker).schedule(|| None);
    give(&mut worker, 0, 0, 4);
    let path = path_of(&mut worker, 80);
    assert_eq!(
        (waits_for(&mut worker, path), PaidStages::of(&worker).owners(path).next()),
        (None, Some(PrincipalId(4)))
    );
    let other = path_of(&mut worker, 81);
    assert_eq!(PaidStages::of(&worker).owners(other).next(), None);
    assert_eq!(worker.offload_steps(path).unwrap_err(), OffloadRefusal::Queue);
}

#[test]
fn packets_without_a_queue_get_that_of_the_principal_unless_a_binding_names_one() {
    let queue = |before: Option<u16>, own: CallLimits| {
        let mut worker = worker();
        // Without a CPU scheduler, packets pass at once.
        give(&mut worker, 1, 1, 2);
        match before {
            Some(queue) => filter(&mut worker, 0, 0, Action::Queue(QueueId(queue)), CallLimits::default()),
            None => {
                add(&mut worker, 0);
                filter(&mut worker, 0, 2, Action::Instance(InstanceId(0)), own);
            }
        }
        let (path, pool) = (path_of(&mut worker, 80), Pool::new(1).unwrap());
        Sent::along(&mut worker, &pool, (path, Position::Early), &[3], Instant::ZERO).packets[0].queue
    };
    assert_eq!(queue(None, limits(None, 0)), QueueId(20));
    assert_eq!(queue(Some(7), limits(None, 0)), QueueId(7));
    // The binding at the later gate names a principal, whose queue the packets get there.
    assert_eq!(queue(None, limits(Some(1), 10)), QueueId(0));
}

/// Each principal has a rate of its own at the ports.
#[test]
fn verdict_that_takes_the_queue_of_another_principal_is_a_fault() {
    let queue = |payer: Option<u32>, owner: u32| {
        let mut worker = worker();
        Payers::of(&mut worker).schedule(|| None);
        Payers::of(&mut worker).set_queue(PrincipalId(owner), QueueId(20));
        add(&mut worker, 0);
        let payer = payer.map(PrincipalId);
        bind_paid(&mut worker, (0, 0, 80, 0), payer);
        Payers::of(&mut worker).set_running(payer);
        let (path, pool) = (path_of(&mut worker, 80), Pool::new(1).unwrap());
        let sent = Sent::along(&mut worker, &pool, (path, Position::Early), &[4], Instant::ZERO);
        let faults = worker.instances().reports().next().unwrap().1.faults.values().sum::<u64>();
        (sent.members.len(), sent.packets[0].queue.0, faults)
    };
    assert_eq!(queue(Some(1), 1), (1, 20, 0));
    assert_eq!(queue(Some(1), 2), (0, 0, 1));
    // A built-in plugin that nobody pays for is configured by the operator.
    assert_eq!(queue(None, 2), (1, 20, 0));
}

#[test]
fn verdict_of_a_call_in_line_takes_no_queue_of_another_principal() {
    let queue = |owner: u32| {
        let mut worker = worker();
        Payers::of(&mut worker).schedule(|| None);
        Payers::of(&mut worker).set_queue(PrincipalId(owner), QueueId(20));
        add(&mut worker, 0);
        let call_limits = CallLimits { in_line: Some(100), ..limits(Some(1), 0) };
        filter(&mut worker, 0, 0, Action::Instance(InstanceId(0)), call_limits);
        let (path, pool) = (path_of(&mut worker, 80), Pool::new(1).unwrap());
        let sent = Sent::along(&mut worker, &pool, (path, Position::Early), &[4], Instant::ZERO);
        let faults = worker.instances().reports().next().unwrap().1.faults.values().sum::<u64>();
        (sent.members.len(), sent.packets[0].queue.0, faults)
    };
    assert_eq!((queue(1), queue(2)), ((1, 20, 0), (0, 0, 1)));
}
