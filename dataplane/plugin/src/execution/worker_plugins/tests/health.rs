//! Tests of failing instances.

use super::succession::{succeed, successor};
use super::*;

#[test]
fn an_instance_that_keeps_failing_is_put_into_quarantine() {
    let (mut worker, path) = with_slow(0);
    let pool = Pool::new(64).unwrap();
    let mut now = at(0);
    for _ in 0..20 {
        send_and_keep(&mut worker, &pool, path, &[9, 10], now);
        now += Duration::from_secs(2);
    }
    let (id, report) = worker.instances().reports().next().unwrap();
    assert_eq!((id, report.health, report.faults["nine"]), (InstanceId(0), Health::Quarantined, 8));
    assert_eq!(report.last_fault, "a nine");
    // A round sends two packets. In each of the first 8 rounds, the worker drops the packet at which the
    // instance fails. In each of the 12 rounds in quarantine, it drops both packets.
    assert_eq!(worker.bindings.counts(BindingId(0)).unwrap().drops, 8 + 2 * 12);
}

#[test]
fn tolerated_faults_and_their_window_are_configurable() {
    let pool = Pool::new(64).unwrap();
    for (apart, faults) in [(4, 3), (5, 20)] {
        let (mut worker, path) = with_slow(0);
        worker.instances_mut().set_limits(Limits {
            faults: 3,
            fault_window: Duration::from_secs(5),
            ..Limits::default()
        });
        let mut now = at(0);
        for _ in 0..20 {
            send_and_keep(&mut worker, &pool, path, &[9, 10], now);
            now += Duration::from_secs(apart);
        }
        assert_eq!(worker.instances().reports().next().unwrap().1.faults["nine"], faults);
    }
}

#[test]
fn paused_instance_restarts_without_packets() {
    let (mut worker, path) = with_slow(0);
    let pool = Pool::new(64).unwrap();
    send_and_keep(&mut worker, &pool, path, &[9], at(0));
    assert!(!worker.is_idle());
    assert_eq!((worker.next_event(at(1)), released(&mut worker, at(9)).len()), (Some(at(10)), 0));
    assert!(matches!(worker.instances().reports().next().unwrap().1.health, Health::Pausing(_)));
    assert_eq!(released(&mut worker, at(10)), []);
    assert_eq!(worker.instances().reports().next().unwrap().1.health, Health::Well);
    assert!(worker.is_idle() && worker.next_event(at(10)).is_none());
}

/// Instance that fails at every message.
struct Touchy;

impl Instance for Touchy {
    fn process(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
        Progress::Done
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(json!(null))
    }

    fn take_fault(&mut self) -> Option<Fault> {
        Some(Fault { kind: "touched", text: "a message".into() })
    }
}

#[test]
fn fault_in_a_message_is_reported_at_once() {
    let mut worker = worker();
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance: Box::new(Touchy) });
    let message = Message { name: "read".into(), arguments: serde_json::Map::new() };
    assert!(ask(&mut worker, 0, &message, at(0)).is_some());
    let (_, report) = worker.instances().reports().next().unwrap();
    assert!(matches!(report.health, Health::Pausing(_)), "{report:?}");
    assert_eq!(report.faults["touched"], 1);
    let failure = worker.instances_mut().take_failure().unwrap();
    assert_eq!((failure.instance, failure.fault.kind), (InstanceId(0), "touched"));
    assert_eq!(worker.instances_mut().take_failure(), None);
}

/// Instance that requests a call at 1 ms, and gives an invalid verdict to packets from source port 9.
struct Timed {
    wrong: bool,
    calls: u32,
}

impl Instance for Timed {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        packets.for_each(|key, _| {
            self.wrong |= key.source_port == 9;
            Verdict::Pass
        });
        Progress::Done
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn take_fault(&mut self) -> Option<Fault> {
        std::mem::take(&mut self.wrong).then(|| Fault { kind: "nine", text: "a nine".into() })
    }

    fn next_call(&self) -> Option<Instant> {
        (self.calls == 0).then(|| at(1))
    }

    fn has_timers(&self) -> bool {
        true
    }

    fn periodic(&mut self, _now: Instant) -> Progress {
        self.calls += 1;
        Progress::Done
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(json!(self.calls))
    }
}

#[test]
fn a_worker_does_not_wake_for_an_instance_that_cannot_be_called() {
    let mut worker = worker();
    let timed = Box::new(Timed { wrong: false, calls: 0 });
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance: timed });
    bind(&mut worker, 0, 0, 80, 0);
    let path = path_of(&mut worker, 80);
    assert_eq!(worker.next_event(at(0)), Some(at(1)));
    // The timer expires during the pause; the call takes place at the end of the pause.
    send(&mut worker, path, Position::Early, &[9]);
    assert_eq!(released(&mut worker, at(5)), []);
    assert_eq!(worker.next_event(at(5)), Some(at(10)));
    assert_eq!(released(&mut worker, at(10)), []);
    assert_eq!((seen(&mut worker, 0), worker.next_event(at(10))), (1, None));
    // In quarantine, the worker makes no timer call.
    let again = successor(Timed { wrong: false, calls: 0 }, Inheritance::Renounced, true);
    succeed(&mut worker, again);
    assert_eq!(worker.next_event(at(10)), Some(at(1)));
    let pool = Pool::new(4).unwrap();
    for second in 0..20 {
        let now = Instant::ZERO + Duration::from_secs(2 * second);
        Sent::along(&mut worker, &pool, (path, Position::Early), &[9], now);
    }
    assert_eq!(worker.instances().reports().next().unwrap().1.health, Health::Quarantined);
    assert_eq!(worker.next_event(at(60_000)), None);
}

#[test]
fn instance_in_quarantine_since_creation_is_released_by_its_successor() {
    let mut worker = worker();
    let quiet = Box::new(Timed { wrong: false, calls: 0 });
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance: quiet });
    change(&mut worker, PluginChange::Quarantine { id: InstanceId(0), why: "it hung".into() });
    bind(&mut worker, 0, 0, 80, 0);
    let (path, pool) = (path_of(&mut worker, 80), Pool::new(64).unwrap());
    let (_, report) = worker.instances().reports().next().unwrap();
    assert_eq!((report.health, &*report.last_fault), (Health::Quarantined, "it hung"));
    assert_eq!(worker.next_event(at(0)), None);
    send_and_keep(&mut worker, &pool, path, &[10], at(0));
    assert_eq!(worker.bindings.counts(BindingId(0)).unwrap().drops, 1);
    succeed(&mut worker, successor(Timed { wrong: false, calls: 0 }, Inheritance::Renounced, true));
    send_and_keep(&mut worker, &pool, path, &[10], at(0));
    assert_eq!(worker.bindings.counts(BindingId(0)).unwrap().drops, 1);
    assert_eq!(worker.instances().reports().next().unwrap().1.health, Health::Well);
}

/// Instance that records the worker's pulse during a call.
struct Watches(std::sync::Arc<crate::Pulse>, std::sync::mpsc::Sender<Option<InstanceId>>);

impl Watches {
    fn look(&self) {
        self.1.send(self.0.calling().map(|calling| calling.instance)).unwrap();
    }
}

impl Instance for Watches {
    fn process(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
        self.look();
        Progress::Done
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn control(&mut self, _message: &Message) -> Reply {
        self.look();
        Ok(json!(null))
    }

    fn save(&mut self) -> Result<Option<Vec<u8>>, PluginError> {
        self.look();
        Ok(None)
    }

    fn periodic(&mut self, _now: Instant) -> Progress {
        self.look();
        Progress::Done
    }

    fn next_call(&self) -> Option<Instant> {
        Some(at(0))
    }

    fn has_timers(&self) -> bool {
        true
    }
}

#[test]
fn worker_names_the_instance_of_the_running_call() {
    let mut worker = worker();
    let (sender, seen) = std::sync::mpsc::channel();
    let pulse = worker.instances().pulse();
    let watches = Box::new(Watches(pulse.clone(), sender));
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance: watches });
    bind(&mut worker, 0, 0, 80, 0);
    let path = path_of(&mut worker, 80);
    send(&mut worker, path, Position::Early, &[10]);
    ask(&mut worker, 0, &Message { name: "read".into(), arguments: serde_json::Map::new() }, at(0));
    released(&mut worker, at(1));
    succeed(&mut worker, successor(Touchy, Inheritance::Tried, true));
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), [Some(InstanceId(0)); 4]);
    assert_eq!(pulse.calling(), None);
}
