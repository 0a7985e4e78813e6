//! Tests of state hand-overs that take long, because other processes save and restore the state.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use millrace_plugin_abi::FlowEnd;

use super::succession::{succeed, successor};
use crate::{Paid, Successor};
use serde_json::Value;

use super::*;

/// Instance that counts packets and ends of flows, and saves and restores the counts after a number of looks.
#[derive(Default)]
struct Deliberate {
    looks: u32,
    packets: u8,
    ends: u8,
    /// Bytes of the flow state that came with ends of flows.
    state_bytes: usize,
    flow_state: usize,
    aborted: bool,
    /// Source ports of its packets.
    seen: Arc<Mutex<Vec<u16>>>,
    /// Instances that save or restore state now, and the greatest number of them so far.
    busy: Arc<[AtomicUsize; 2]>,
    is_busy: bool,
}

impl Deliberate {
    fn new(looks: u32) -> Self {
        Self { looks, ..Self::default() }
    }

    /// Whether the look is the last one.
    fn look(&mut self) -> bool {
        if !std::mem::replace(&mut self.is_busy, true) {
            let busy = self.busy[0].fetch_add(1, Ordering::Relaxed) + 1;
            self.busy[1].fetch_max(busy, Ordering::Relaxed);
        }
        self.looks = self.looks.saturating_sub(1);
        if self.looks == 0 {
            self.is_busy = false;
            self.busy[0].fetch_sub(1, Ordering::Relaxed);
        }
        self.looks == 0
    }
}

impl Instance for Deliberate {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        packets.for_each(|key, _| {
            self.seen.lock().unwrap().push(key.source_port);
            self.packets += 1;
            Verdict::Pass
        });
        Progress::Done
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn abort(&mut self) {
        self.aborted = true;
    }

    fn take_fault(&mut self) -> Option<Fault> {
        std::mem::take(&mut self.aborted).then(|| Fault { kind: "overrun", text: "it took too long".into() })
    }

    fn restart(&mut self) -> Result<(), PluginError> {
        (self.packets, self.ends, self.aborted) = (0, 0, false);
        Ok(())
    }

    fn flow_state(&self) -> usize {
        self.flow_state
    }

    fn flow_ended(&mut self, _flow: &FlowEnd, state: &[u8]) -> Progress {
        self.ends += 1;
        self.state_bytes += state.len();
        Progress::Done
    }

    fn poll_save(&mut self) -> Poll<Result<Option<Vec<u8>>, PluginError>> {
        if self.look() { Poll::Ready(Ok(Some(vec![self.packets, self.ends]))) } else { Poll::Pending }
    }

    fn poll_restore(&mut self, state: &[u8], _version: u32) -> Poll<Result<(), PluginError>> {
        if !self.look() {
            return Poll::Pending;
        }
        (self.packets, self.ends) = (state[0], state[1]);
        Poll::Ready(Ok(()))
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(json!([self.packets, self.ends, self.state_bytes]))
    }
}

/// Worker with such an instance behind port 80, which has got three packets, and a bystander behind port 81.
fn world(looks: u32) -> (WorkerPlugins<ByPort>, [PathId; 2]) {
    let mut worker = worker();
    let instance = Box::new(Deliberate::new(looks));
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance });
    add(&mut worker, 1);
    bind(&mut worker, 0, 0, 80, 0);
    bind(&mut worker, 1, 0, 81, 1);
    let paths = [80, 81].map(|port| path_of(&mut worker, port));
    send(&mut worker, paths[0], Position::Early, &[1, 2, 3]);
    (worker, paths)
}

/// Returns the counts of instance 0.
fn counts(worker: &mut WorkerPlugins<ByPort>) -> Value {
    let message = Message { name: "read".into(), arguments: serde_json::Map::new() };
    ask(worker, 0, &message, Instant::ZERO).unwrap().unwrap()
}

/// Runs iterations of a millisecond from a time on until an upgrade has ended. Returns the time, the result, and the
/// released packets.
fn finish(
    worker: &mut WorkerPlugins<ByPort>,
    from: u64,
    told: &std::sync::mpsc::Receiver<Option<Succession>>,
) -> (u64, Result<Inherited, String>, Vec<u16>) {
    let mut sources = Vec::new();
    for millis in from..3000 {
        sources.extend(released(worker, at(millis)).into_iter().map(|(source, end)| {
            assert_eq!(end, None);
            source
        }));
        if let Ok(end) = told.try_recv() {
            return (millis, end.unwrap().inherited, sources);
        }
    }
    panic!("the upgrade doesn't end");
}

#[test]
fn packets_of_an_instance_wait_for_its_hand_over_and_those_of_others_do_not() {
    let (mut worker, [path, other]) = world(20);
    let (pool, new) = (Pool::new(64).unwrap(), Deliberate::new(30));
    let seen = new.seen.clone();
    let told = succeed(&mut worker, successor(new, Inheritance::Required, true));
    assert!(told.try_recv().is_err() && Paid::of(&worker).awaits());
    for millis in 1..40 {
        assert_eq!(released(&mut worker, at(millis)), []);
        send_and_keep(&mut worker, &pool, path, &[100 + millis as u16], at(millis));
        let bystanders = send(&mut worker, other, Position::Early, &[10, 11]);
        assert_eq!(bystanders, (vec![0, 1], vec![Verdict::Pass; 2]));
        assert_eq!(worker.next_event(at(millis)), Some(at(millis)), "the worker must not sleep");
    }
    let (millis, inherited, released) = finish(&mut worker, 40, &told);
    assert_eq!((millis, inherited), (48, Ok(Inherited::Bytes(2))));
    let sent: Vec<_> = (101..140).collect();
    assert_eq!((&released, &*seen.lock().unwrap()), (&sent, &sent));
    assert_eq!(counts(&mut worker), json!([3 + 39, 0, 0]));
    assert!(worker.is_idle() && !Paid::of(&worker).awaits());
}

#[test]
fn process_that_never_saves_its_state_keeps_its_instance_for_a_second() {
    for inheritance in [Inheritance::Required, Inheritance::Tried] {
        let (mut worker, [path, _]) = world(u32::MAX);
        let told = succeed(&mut worker, successor(Deliberate::new(1), inheritance, true));
        send_and_keep(&mut worker, &Pool::new(64).unwrap(), path, &[9], at(0));
        let (millis, inherited, released) = finish(&mut worker, 1, &told);
        let problem =
            "the old instance hands over no state: its process gave no answer to a call for 1000 ms"
                .to_owned();
        let expected = match inheritance {
            Inheritance::Tried => Ok(Inherited::Lost(problem)),
            _ => Err(problem),
        };
        assert_eq!((millis, inherited, released), (1000, expected, vec![9]));
        // Either the old instance has started again, or the new one without state.
        assert_eq!(counts(&mut worker), json!([1, 0, 0]));
        let faults = worker.instances().reports().next().unwrap().1.faults;
        assert_eq!(faults.get("overrun"), (inheritance != Inheritance::Tried).then_some(&1));
    }
}

#[test]
fn process_that_never_restores_the_state_is_refused_or_starts_without_it() {
    for (inheritance, expected) in
        [(Inheritance::Required, json!([4, 0, 0])), (Inheritance::Tried, json!([1, 0, 0]))]
    {
        let (mut worker, [path, _]) = world(1);
        let told = succeed(&mut worker, successor(Deliberate::new(u32::MAX), inheritance, true));
        send_and_keep(&mut worker, &Pool::new(64).unwrap(), path, &[9], at(0));
        let (millis, inherited, released) = finish(&mut worker, 1, &told);
        assert_eq!((millis, inherited.is_ok(), released), (1000, inheritance == Inheritance::Tried, vec![9]));
        assert_eq!(counts(&mut worker), expected);
    }
}

#[test]
fn successor_hears_of_flows_that_end_during_the_hand_over() {
    let (mut worker, [path, _]) = world(3);
    let end = FlowEnd { key: key_of(7), packets: 1, bytes: 60 };
    worker.flow_ended(path, &end, 0);
    let told = succeed(&mut worker, successor(Deliberate::new(3), Inheritance::Required, true));
    for millis in 1..=3 {
        released(&mut worker, at(millis));
        worker.flow_ended(path, &end, 0);
    }
    assert_eq!(finish(&mut worker, 4, &told).1, Ok(Inherited::Bytes(2)));
    assert_eq!(counts(&mut worker), json!([3, 1 + 3, 0]));
    assert!(worker.is_idle());
}

/// With another version of the plugin, the flow state has another format, although it may be as long.
#[test]
fn successor_gets_the_state_of_ended_flows_only_in_its_format() {
    for (same_version, bytes) in [(true, 8), (false, 0)] {
        let stateful = |looks| Deliberate { flow_state: 8, ..Deliberate::new(looks) };
        let mut worker = worker();
        change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance: Box::new(stateful(3)) });
        bind(&mut worker, 0, 0, 80, 0);
        let path = path_of(&mut worker, 80);
        let state = worker.begin_state(path);
        let told = succeed(&mut worker, successor(stateful(3), Inheritance::Required, same_version));
        released(&mut worker, at(1));
        worker.flow_ended(path, &FlowEnd { key: key_of(7), packets: 1, bytes: 60 }, state);
        assert!(finish(&mut worker, 2, &told).1.is_ok());
        assert_eq!(counts(&mut worker), json!([0, 1, bytes]), "{same_version}");
    }
}

/// The successor hears of them in several iterations.
#[test]
fn ends_of_many_flows_leave_room_for_messages_and_time_for_others() {
    const ENDS: u8 = 200;
    let (mut worker, [path, _]) = world(3);
    let told = succeed(&mut worker, successor(Deliberate::new(3), Inheritance::Required, true));
    released(&mut worker, at(1));
    let end = FlowEnd { key: key_of(7), packets: 1, bytes: 60 };
    (0..ENDS).for_each(|_| worker.flow_ended(path, &end, 0));
    let message = Message { name: "read".into(), arguments: serde_json::Map::new() };
    let answer = ask_all(&mut worker, 0, &message, at(1));
    let millis = finish(&mut worker, 2, &told).0;
    assert_eq!(answer.try_recv().unwrap(), Some(vec![Ok(json!([3, 0, 0]))]));
    assert_eq!(worker.next_event(at(millis)), Some(at(millis)), "the worker must not sleep");
    let mut iterations = 1;
    while !worker.is_idle() {
        released(&mut worker, at(millis + iterations));
        iterations += 1;
    }
    assert_eq!((counts(&mut worker), iterations), (json!([3, ENDS, 0]), u64::from(ENDS).div_ceil(16)));
}

#[test]
fn contexts_hand_over_their_state_at_the_same_time() {
    let mut worker = worker();
    let busy = Arc::default();
    let context = |looks| Box::new(Deliberate { busy: Arc::clone(&busy), ..Deliberate::new(looks) });
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance: context(10) });
    (1..4).for_each(|_| {
        change(&mut worker, PluginChange::AddContext { id: InstanceId(0), instance: context(10) });
    });
    let contexts = (0..4).map(|_| context(10) as Box<dyn Instance>).collect();
    let all = Successor { contexts, ..successor(Deliberate::new(0), Inheritance::Required, true) };
    let told = succeed(&mut worker, all);
    let (millis, inherited, _) = finish(&mut worker, 1, &told);
    // One look in each iteration, although each context asks.
    assert_eq!((millis, inherited), (18, Ok(Inherited::Bytes(8))));
    assert_eq!(busy[1].load(Ordering::Relaxed), 4);
}

/// The old instance keeps its state, and gets the packets that have waited.
#[test]
fn upgrade_that_is_called_off_leaves_the_old_instance_as_it_was() {
    let (mut worker, [path, _]) = world(3);
    let new = successor(Deliberate::new(3), Inheritance::Required, true);
    let claim = new.claim.clone();
    let told = succeed(&mut worker, new);
    released(&mut worker, at(1));
    send_and_keep(&mut worker, &Pool::new(64).unwrap(), path, &[9], at(1));
    assert!(claim.take());
    let (millis, inherited, released) = finish(&mut worker, 2, &told);
    assert!(inherited.unwrap_err().contains("called off"));
    assert_eq!((millis, released, counts(&mut worker)), (4, vec![9], json!([4, 0, 0])));
    // Called off before it begins, an upgrade asks for no state.
    let new = successor(Deliberate::new(u32::MAX), Inheritance::Required, true);
    assert!(new.claim.take());
    let told = succeed(&mut worker, new);
    assert!(told.try_recv().unwrap().unwrap().inherited.unwrap_err().contains("called off"));
    // Once the worker has replaced the instance, nobody calls the upgrade off.
    let new = successor(Deliberate::new(1), Inheritance::Renounced, true);
    let claim = new.claim.clone();
    assert!(succeed(&mut worker, new).try_recv().unwrap().unwrap().inherited.is_ok());
    assert!(!claim.take());
}

#[test]
fn instance_that_is_removed_during_its_hand_over_ends_the_upgrade() {
    let (mut worker, _) = world(10);
    let told = succeed(&mut worker, successor(Deliberate::new(10), Inheritance::Required, true));
    released(&mut worker, at(1));
    drop(worker.apply(PluginChange::RemoveInstance { id: InstanceId(0) }));
    released(&mut worker, at(2));
    assert!(told.try_recv().unwrap().is_none());
    assert!(worker.is_idle());
}
