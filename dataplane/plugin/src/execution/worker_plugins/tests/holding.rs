//! Tests of held packets: limits of number and time.

use super::*;
use crate::{EndedStages, Ticket};

/// Creates a worker with one instance for each time in `until`. Each instance holds all its packets until its
/// time. Instance N is bound to destination port 80 + N.
fn with_holders(until: &[Instant]) -> (WorkerPlugins<ByPort>, Vec<PathId>) {
    let mut worker = worker();
    for (number, until) in (0..).zip(until) {
        let instance = Box::new(Says(Verdict::Hold(*until)));
        change(&mut worker, PluginChange::AddInstance { id: InstanceId(number), instance });
        bind(&mut worker, number.into(), 0, 80 + number, number);
    }
    let paths = (0..until.len() as u16).map(|number| path_of(&mut worker, 80 + number)).collect();
    (worker, paths)
}

/// Sends `packets` packets one by one to a worker at which at most `most` packets may wait. Returns the
/// number of packets that found no free place.
fn refused(
    worker: &mut WorkerPlugins<ByPort>,
    pool: &Pool,
    path: PathId,
    packets: u16,
    most: usize,
) -> usize {
    let packet = || pool.packet_from(&[0; 60]).unwrap();
    (0..packets).filter(|source| is_refused(worker, packet(), path, *source, most)).count()
}

/// Sends a packet to a worker that has `most` places for waiting packets. Returns whether it found no free one.
fn is_refused(
    worker: &mut WorkerPlugins<ByPort>,
    packet: Packet,
    path: PathId,
    source: u16,
    most: usize,
) -> bool {
    let sent = Sent::of(worker, vec![packet], (path, Position::Early), &[source], at(0));
    let (_, Taken::Keep(ticket)) = sent.taken[0] else { panic!("it is held") };
    let mut packets = sent.packets.into_iter().zip(sent.keys);
    let is_kept = packets.all(|(packet, key)| keep(worker, (ticket, most), packet, key));
    worker.end_of_batch();
    !is_kept
}

/// Passes a packet with a ticket to a worker that has `most` places for waiting packets. Returns whether it is kept.
fn keep(
    worker: &mut WorkerPlugins<ByPort>,
    (ticket, most): (Ticket, usize),
    packet: Packet,
    key: FlowKey,
) -> bool {
    let (state, connection) = (StateRef::default(), Default::default());
    worker.keep(ticket, most, Kept { packet, key, destination: [0; 6], state, connection }).is_ok()
}

#[test]
fn one_instance_gets_half_of_the_room_and_the_next_half_of_the_rest() {
    let (mut worker, paths) = with_holders(&[at(50), at(50), at(50)]);
    let pool = Pool::new(4096).unwrap();
    assert_eq!(refused(&mut worker, &pool, paths[0], 1000, 1000), 500);
    assert_eq!(refused(&mut worker, &pool, paths[1], 1000, 1000), 750);
    assert_eq!(refused(&mut worker, &pool, paths[2], 100, 1000), 0);
    assert_eq!(worker.waiting(), 850);
    // Released packets free their places.
    assert_eq!(released(&mut worker, at(50)).len(), 850);
    assert_eq!(refused(&mut worker, &pool, paths[1], 1000, 1000), 500);
}

#[test]
fn packet_takes_a_place_for_each_of_its_memory_frames() {
    let (mut worker, paths) = with_holders(&[at(50), at(50)]);
    let pool = Pool::new(4096).unwrap();
    // A packet of 9,000 bytes takes five frames.
    let long = || pool.packet_from(&[0; 9000]).unwrap();
    let mut refused_of =
        |path| (0..100).filter(|source| is_refused(&mut worker, long(), path, *source, 400)).count();
    assert_eq!((refused_of(paths[0]), pool.in_use()), (60, 200));
    assert_eq!((refused_of(paths[1]), pool.in_use()), (80, 300));
    assert_eq!(released(&mut worker, at(50)).len(), 60);
    assert_eq!((pool.in_use(), refused(&mut worker, &pool, paths[0], 300, 400)), (0, 100));
}

#[test]
fn packets_held_for_a_removed_instance_or_binding_continue_at_once_in_order() {
    let (mut worker, paths) = with_holders(&[at(50), at(40), at(30)]);
    let pool = Pool::new(64).unwrap();
    for path in &paths {
        assert_eq!(refused(&mut worker, &pool, *path, 3, 64), 0);
    }
    worker.release_orphans();
    assert_eq!(released(&mut worker, at(1)), []);
    let filter = 81;
    change(&mut worker, PluginChange::Unbind { binding: BindingId(1), gate: GateId(0), filter });
    worker.release_orphans();
    assert_eq!((released(&mut worker, at(1)), worker.waiting()), (vec![(0, None), (1, None), (2, None)], 6));
    drop(worker.apply(PluginChange::RemoveInstance { id: InstanceId(0) }));
    worker.release_orphans();
    assert_eq!(released(&mut worker, at(1)), vec![(0, None), (1, None), (2, None)]);
    assert_eq!(worker.next_event(at(1)), Some(at(30)));
    assert_eq!((released(&mut worker, at(30)).len(), worker.is_idle()), (3, true));
}

#[test]
fn packets_behind_calls_of_ended_stages_leave_fewer_places_to_instances() {
    let (mut worker, path) = with_slow(100);
    let instance = Box::new(Says(Verdict::Hold(at(50))));
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(1), instance });
    bind(&mut worker, 1, 0, 81, 1);
    let (holding, pool) = (path_of(&mut worker, 81), Pool::new(64).unwrap());
    assert!(!is_refused(&mut worker, pool.packet_from(&[0; 60]).unwrap(), path, 10, 21));
    unbind(&mut worker, 0);
    EndedStages::of(&mut worker).raise_barriers();
    for _ in 0..8 {
        let place = Place { path: EMPTY_PATH, position: Position::Early, stage: 0 };
        let ticket = EndedStages::of(&mut worker).stop(place, &key_of(10)).unwrap();
        assert!(keep(&mut worker, (ticket, 21), pool.packet_from(&[0; 60]).unwrap(), key_of(10)));
        worker.end_of_batch();
    }
    // The call and the packets behind it leave twelve places, of which the instance gets half.
    assert_eq!((refused(&mut worker, &pool, holding, 20, 21), worker.waiting()), (14, 15));
}

/// A call of a bound instance would hold packet 3 for 5 ms.
#[test]
fn suspended_call_of_an_ended_binding_holds_no_packets() {
    let (mut worker, path) = with_slow(3);
    let pool = Pool::new(64).unwrap();
    send_and_keep(&mut worker, &pool, path, &[3, 10], at(0));
    change(&mut worker, PluginChange::Unbind { binding: BindingId(0), gate: GateId(0), filter: 80 });
    let all: Vec<_> = (0..3).flat_map(|_| released(&mut worker, at(0))).collect();
    assert_eq!((all, worker.is_idle()), (vec![(3, None), (10, None)], true));
}

#[test]
fn holding_a_packet_for_longer_than_a_minute_is_a_fault() {
    let (mut worker, paths) = with_holders(&[at(60_000), at(60_001), Instant::from_nanos(u64::MAX)]);
    let pool = Pool::new(64).unwrap();
    for path in paths {
        Sent::along(&mut worker, &pool, (path, Position::Early), &[1], at(0));
    }
    let faults: Vec<_> =
        worker.instances().reports().map(|(_, report)| report.faults.values().sum::<u64>()).collect();
    assert_eq!(faults, [0, 1, 1]);
    let (_, report) = worker.instances().reports().last().unwrap();
    assert!(report.last_fault.contains("over 60 s"), "{}", report.last_fault);
}

/// Instance that gives the same verdict to every packet, at the end of a call with two slices.
struct Late(Verdict);

impl Instance for Late {
    fn process(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
        Progress::Suspended
    }

    fn resume(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
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

/// Sends packets one by one to an instance whose calls take two slices, at a worker at which at most 20 packets may
/// wait. Returns the number of packets that continue or end in the meantime; all of them must end as dropped, because
/// too many wait.
fn sent_to_late(worker: &mut WorkerPlugins<ByPort>, pool: &Pool, packets: u16) -> usize {
    bind(worker, 0, 0, 80, 0);
    let path = path_of(worker, 80);
    let mut ended = Vec::new();
    for _ in 0..packets {
        // The packet of the call itself is always kept.
        assert_eq!(refused(worker, pool, path, 1, 20), 0);
        ended.extend(released(worker, at(0)));
    }
    let busy = Some(End::Drop(DropReason::PluginBusy));
    assert!(ended.iter().all(|(_, end)| *end == busy), "{ended:?}");
    ended.len()
}

#[test]
fn packets_held_at_the_end_of_a_suspended_call_leave_half_of_the_room() {
    let (mut worker, pool) = (worker(), Pool::new(64).unwrap());
    let instance = Box::new(Late(Verdict::Hold(at(50))));
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance });
    assert_eq!(sent_to_late(&mut worker, &pool, 50), 40);
    assert_eq!((worker.waiting(), pool.in_use()), (10, 10));
    assert_eq!(released(&mut worker, at(50)).len(), 10);
}

#[test]
fn packets_passed_on_at_the_end_of_a_suspended_call_leave_half_of_the_room() {
    let (mut worker, pool) = (worker(), Pool::new(64).unwrap());
    let instance = Box::new(Late(Verdict::Instance(InstanceId(1))));
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance });
    let slow = Box::new(Slow { slices: u32::MAX, ..Slow::default() });
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(1), instance: slow });
    // The call of the second instance may take 20 slices, one after each packet.
    assert_eq!(sent_to_late(&mut worker, &pool, 15), 5);
    assert_eq!((worker.waiting(), pool.in_use()), (10, 10));
}

#[test]
fn copy_that_an_instance_holds_is_consumed_at_once() {
    let (mut worker, pool) = (worker(), Pool::new(4).unwrap());
    let (gate, position, order) = (GateId(3), Position::Copy, GateOrder(10));
    change(&mut worker, PluginChange::AddGate { gate, position, order });
    let instance = Box::new(Says(Verdict::Hold(at(50))));
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance });
    bind(&mut worker, 0, 3, 80, 0);
    let path = path_of(&mut worker, 80);
    let sent = Sent::along(&mut worker, &pool, (path, Position::Copy), &[1], at(0));
    assert_eq!(sent.taken, [(0, Taken::End(End::Consume))]);
    let counts = worker.bindings.counts(BindingId(0)).unwrap();
    assert_eq!((counts.packets, counts.consumed, worker.waiting()), (1, 1, 0));
}
