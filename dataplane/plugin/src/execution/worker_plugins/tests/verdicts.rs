//! Tests of the effects of verdicts.

use super::*;

/// Creates a worker that has port 3, and one instance for each element of `verdicts`. An instance gives its
/// verdict to every packet. The first instance is bound at `gate`.
pub(super) fn with_verdicts(
    verdicts: &[Verdict],
    call_limits: CallLimits,
    gate: u8,
) -> (WorkerPlugins<ByPort>, PathId) {
    let mut worker = worker();
    worker.set_port(PortId(3), true);
    for (id, verdict) in (0..).map(InstanceId).zip(verdicts) {
        change(&mut worker, PluginChange::AddInstance { id, instance: Box::new(Says(*verdict)) });
    }
    let (binding, gate, action) = (BindingId(0), GateId(gate), Action::Instance(InstanceId(0)));
    change(&mut worker, PluginChange::Bind { binding, gate, filter: 80, priority: 0, action, call_limits });
    let path = path_of(&mut worker, 80);
    (worker, path)
}

/// Passes one packet through the path at a position. Returns whether the packet continues, its egress ports,
/// and the end of its journey if it doesn't continue.
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
    let bypass = CallLimits { on_fault: crate::OnFault::Bypass, ..CallLimits::default() };
    let failed = Some(End::Drop(DropReason::PluginFailed));
    for (verdict, direction) in [
        (Verdict::Port(PortId(3)), Some(Direction::Port(PortId(3)))),
        (Verdict::Ports(1 << 3), Some(Direction::Ports(1 << 3))),
        (Verdict::Port(PortId(4)), None),
        (Verdict::Ports(1 << 3 | 1 << 63), None),
        (Verdict::Ports(0), None),
        (Verdict::Instance(InstanceId(9)), None),
    ] {
        let (mut worker, path) = with_verdicts(&[verdict], CallLimits::default(), 0);
        let expected = (direction.is_some(), direction, failed.filter(|_| direction.is_none()));
        assert_eq!(fate_of(&mut worker, path, Position::Early), expected, "{verdict:?}");
        let faults: u64 = worker.instances().reports().next().unwrap().1.faults.values().sum();
        assert_eq!(faults, u64::from(direction.is_none()), "{verdict:?}");
        let (mut worker, path) = with_verdicts(&[verdict], bypass, 0);
        assert_eq!(fate_of(&mut worker, path, Position::Early), (true, direction, None), "{verdict:?}");
    }
}

#[test]
fn queue_position_allows_the_choice_of_a_queue() {
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
    let report = worker.instances().reports().next().unwrap().1;
    assert_eq!(report.last_fault, "the instance chose an egress port at position queue, too late");
}

#[test]
fn drops_are_counted_by_the_plugins_reasons() {
    let (mut worker, path) = with_verdicts(&[Verdict::Drop(31)], CallLimits::default(), 0);
    let dropped = Some(End::Drop(DropReason::Plugin));
    assert_eq!(fate_of(&mut worker, path, Position::Early), (false, None, dropped));
    assert_eq!(worker.instances().reports().next().unwrap().1.drops, [(31, 1)].into());
}

#[test]
fn packets_go_from_instance_to_instance_and_not_in_circles() {
    let on_to = |id| Verdict::Instance(InstanceId(id));
    let (mut worker, path) = with_verdicts(&[on_to(1), on_to(2), Verdict::Pass], CallLimits::default(), 0);
    assert_eq!(fate_of(&mut worker, path, Position::Early), (true, None, None));
    let (mut worker, path) = with_verdicts(&[on_to(1), Verdict::Consume], CallLimits::default(), 0);
    assert_eq!(fate_of(&mut worker, path, Position::Early), (false, None, Some(End::Consume)));
    let (mut worker, path) = with_verdicts(&[on_to(1), on_to(0)], CallLimits::default(), 0);
    let in_circles = Some(End::Drop(DropReason::PluginLoop));
    assert_eq!(fate_of(&mut worker, path, Position::Early), (false, None, in_circles));
    assert_eq!(worker.bindings.counts(BindingId(0)).unwrap().drops, 1);
}

#[test]
fn packets_without_a_queue_enter_the_queue_of_their_binding() {
    for (first, second, expected) in [(7, 0, 7), (0, 7, 7), (9, 7, 9)] {
        let mut worker = worker();
        for (number, queue) in [(0, first), (1, second)] {
            add(&mut worker, number);
            let call_limits = CallLimits { link_queue: QueueId(queue), ..CallLimits::default() };
            let (binding, gate) = (BindingId(number.into()), GateId(number as u8));
            let action = Action::Instance(InstanceId(number));
            let bind = PluginChange::Bind { binding, gate, filter: 80, priority: 0, action, call_limits };
            change(&mut worker, bind);
        }
        let (path, pool) = (path_of(&mut worker, 80), Pool::new(1).unwrap());
        let sent = Sent::along(&mut worker, &pool, (path, Position::Early), &[3], Instant::ZERO);
        assert_eq!(sent.packets[0].queue, QueueId(expected));
    }
}
