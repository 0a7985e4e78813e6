//! Tests of instances with several contexts.

mod conservation;

use std::sync::mpsc::Receiver;

use serde_json::Value;

use super::succession::succeed;
use super::*;
use crate::InstanceReport;
use crate::execution::instances::context_of;

/// Instance that counts packets, suspends calls with packets from source ports above 1000 for ever, fails at
/// packets from ports below 10, and drops packets from ports below 20.
#[derive(Default)]
struct Counts {
    packets: u8,
    failed: bool,
    ended: u8,
    heard: u8,
    takes_state: bool,
}

impl Counts {
    fn taking_state() -> Self {
        Self { takes_state: true, ..Self::default() }
    }
}

impl Instance for Counts {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        let mut progress = Progress::Done;
        packets.for_each(|key, _| {
            self.packets += 1;
            match key.source_port {
                1001.. => progress = Progress::Suspended,
                ..10 => {
                    self.failed = true;
                    return Verdict::Fault;
                }
                10..20 => return Verdict::Drop(1),
                _ => {}
            }
            Verdict::Pass
        });
        progress
    }

    fn resume(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
        Progress::Suspended
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn take_fault(&mut self) -> Option<Fault> {
        std::mem::take(&mut self.failed).then(|| Fault { kind: "low", text: "a low port".into() })
    }

    fn flow_ended(&mut self, _flow: &FlowEnd, _state: &[u8]) -> Progress {
        self.ended += 1;
        Progress::Done
    }

    fn message(&mut self, _bytes: &[u8]) -> Progress {
        self.heard += 1;
        Progress::Done
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("packets", self.packets.into())]
    }

    fn save(&mut self) -> Result<Option<Vec<u8>>, PluginError> {
        Ok(self.takes_state.then(|| vec![self.packets]))
    }

    fn restore(&mut self, state: &[u8], _version: u32) -> Result<(), PluginError> {
        if self.takes_state {
            self.packets = state[0];
            return Ok(());
        }
        Err(PluginError::Refused("it takes none".into()))
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(json!([self.packets, self.ended, self.heard]))
    }
}

/// Returns a worker with an instance of `contexts` contexts, bound for port 80, and the path.
fn with_contexts<I: Instance + 'static>(contexts: u8, make: fn() -> I) -> (WorkerPlugins<ByPort>, PathId) {
    let mut worker = worker();
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance: Box::new(make()) });
    for _ in 1..contexts {
        change(&mut worker, PluginChange::AddContext { id: InstanceId(0), instance: Box::new(make()) });
    }
    bind(&mut worker, 0, 0, 80, 0);
    let path = path_of(&mut worker, 80);
    (worker, path)
}

/// Returns the first source port in `ports` whose flow belongs to a context, of `contexts` contexts.
fn port_of(context: u8, contexts: u8, ports: std::ops::Range<u16>) -> u16 {
    ports.into_iter().find(|port| context_of(&key_of(*port), contexts) == context).unwrap()
}

/// Returns the replies of the instance's contexts: packets, ended flows and messages.
fn read(worker: &mut WorkerPlugins<ByPort>) -> Vec<Value> {
    let read = Message { name: "read".into(), arguments: serde_json::Map::new() };
    let replies = ask_all(worker, 0, &read, at(0)).try_recv().unwrap().unwrap();
    replies.into_iter().map(Result::unwrap).collect()
}

fn report(worker: &WorkerPlugins<ByPort>) -> InstanceReport {
    worker.instances().reports().next().unwrap().1
}

/// Replaces instance 0 by an instance of `contexts` contexts.
fn upgrade(
    worker: &mut WorkerPlugins<ByPort>,
    contexts: u8,
    make: fn() -> Counts,
    inheritance: Inheritance,
) -> Receiver<Option<Succession>> {
    let contexts = (0..contexts).map(|_| -> Box<dyn Instance> { Box::new(make()) }).collect();
    succeed(worker, Successor::new(contexts, inheritance, 1, true))
}

#[test]
fn suspended_call_delays_no_flow_of_another_context() {
    let pool = Pool::new(64).unwrap();
    for contexts in [1, 2, 16] {
        let (mut worker, path) = with_contexts(contexts, Counts::default);
        let blocked = port_of(0, contexts, 1001..2000);
        send_and_keep(&mut worker, &pool, path, &[blocked], at(0));
        let others: Vec<u16> = (0..contexts).map(|context| port_of(context, contexts, 100..1000)).collect();
        let sent = Sent::along(&mut worker, &pool, (path, Position::Early), &others, at(0));
        // The first of these flows shares the context with the suspended call.
        let passing: Vec<u16> = (1..contexts.into()).collect();
        assert_eq!((&sent.members, sent.taken.len()), (&passing, 1), "{contexts} contexts");
        keep_all(&mut worker, sent);
        assert_eq!(worker.waiting(), 2);
    }
}

#[test]
fn group_is_divided_by_flow_and_keeps_its_order() {
    let (mut worker, path) = with_contexts(4, Counts::default);
    let sources: Vec<u16> =
        (0..40).map(|number| if number % 5 == 0 { 10 } else { 100 + number % 7 }).collect();
    let (members, verdicts) = send(&mut worker, path, Position::Early, &sources);
    let passing: Vec<u16> = (0..40).filter(|number| number % 5 != 0).collect();
    assert_eq!(
        (members, verdicts.iter().filter(|verdict| **verdict == Verdict::Drop(0)).count()),
        (passing, 8)
    );
    let mut expected = [0; 4];
    sources.iter().for_each(|source| expected[usize::from(context_of(&key_of(*source), 4))] += 1);
    let seen: Vec<_> = read(&mut worker).into_iter().map(|reply| reply[0].as_u64().unwrap()).collect();
    assert_eq!(seen, expected);
    let counts = worker.bindings.counts(BindingId(0)).unwrap();
    assert_eq!((counts.packets, counts.drops, report(&worker).drops), (40, 8, [(1, 8)].into()));
    assert_eq!(report(&worker).counters["packets"], 40);
    worker.instances_mut().clear_counts();
    assert_eq!((report(&worker).counters["packets"], report(&worker).drops.len()), (0, 0));
}

#[test]
fn messages_reach_each_context_and_flow_ends_that_of_the_flow() {
    let (mut worker, path) = with_contexts(3, Counts::default);
    worker.message(InstanceId(0), vec![1], at(0));
    let flow = FlowEnd { key: key_of(port_of(2, 3, 100..200)), packets: 1, bytes: 60 };
    worker.flow_ended(path, &flow, 0);
    assert_eq!(read(&mut worker), [json!([0, 0, 1]), json!([0, 0, 1]), json!([0, 1, 1])]);
    assert_eq!(report(&worker).messages.heard, 3);
    // The answer waits until the last context answers.
    let pool = Pool::new(4).unwrap();
    send_and_keep(&mut worker, &pool, path, &[port_of(1, 3, 1001..2000)], at(0));
    let read = Message { name: "read".into(), arguments: serde_json::Map::new() };
    let answers = ask_all(&mut worker, 0, &read, at(0));
    for _ in 0..100 {
        assert!(answers.try_recv().is_err());
        released(&mut worker, at(0));
        if worker.waiting() == 0 {
            break;
        }
    }
    released(&mut worker, at(0));
    assert_eq!(answers.try_recv().unwrap().unwrap().len(), 3);
}

#[test]
fn context_pauses_alone_and_faults_of_all_lead_to_quarantine() {
    let (mut worker, path) = with_contexts(2, Counts::default);
    let [low, other] = [port_of(0, 2, 1..10), port_of(1, 2, 1..10)];
    let [first, second] = [port_of(0, 2, 100..200), port_of(1, 2, 100..200)];
    let faults = Limits::default().faults;
    for fault in 1..faults {
        let now = at(u64::from(fault) * 10_000);
        // The contexts fail in turn.
        let (failing, well) = if fault % 2 == 1 { (low, second) } else { (other, first) };
        Sent::along(&mut worker, &Pool::new(4).unwrap(), (path, Position::Early), &[failing], now);
        let pool = Pool::new(4).unwrap();
        let sent = Sent::along(&mut worker, &pool, (path, Position::Early), &[first, second], now);
        assert_eq!(sent.keys[usize::from(sent.members[0])].source_port, well);
        assert_eq!((sent.members.len(), report(&worker).faults["low"]), (1, fault.into()));
        assert!(matches!(report(&worker).health, Health::Pausing(_)));
        assert_eq!(worker.next_event(now).map(|next| next > now), Some(true));
        // The pause ends without packets of the context.
        assert_eq!(released(&mut worker, now + Duration::from_secs(5)), []);
        assert_eq!(report(&worker).health, Health::Well);
    }
    let now = at(u64::from(faults) * 10_000);
    let (members, _) = send(&mut worker, path, Position::Early, &[second]);
    assert_eq!(members, [0]);
    Sent::along(&mut worker, &Pool::new(4).unwrap(), (path, Position::Early), &[other], now);
    assert_eq!(report(&worker).health, Health::Quarantined);
    let (members, _) = send(&mut worker, path, Position::Early, &[first, second]);
    assert_eq!(members, [0; 0]);
}

#[test]
fn overruns_of_a_context_shorten_the_calls_of_all() {
    let (mut worker, path) = with_contexts(2, Counts::default);
    let pool = Pool::new(4).unwrap();
    let mut slices = Vec::new();
    for context in [0, 1] {
        send_and_keep(&mut worker, &pool, path, &[port_of(context, 2, 1001..2000)], at(0));
        slices.push((1..).find(|_| !released(&mut worker, at(0)).is_empty()).unwrap());
    }
    assert_eq!(slices, [19, 9], "20 slices, then 10; the first one is in the batch");
}

#[test]
fn each_context_hands_its_state_over() {
    let (mut worker, path) = with_contexts(3, Counts::taking_state);
    send(&mut worker, path, Position::Early, &[100, 101, 102, 103, 104, 105, 106, 107]);
    let before = read(&mut worker);
    let told = upgrade(&mut worker, 3, Counts::taking_state, Inheritance::Required);
    let succession = told.try_recv().unwrap().unwrap();
    assert_eq!((succession.inherited, succession.contexts.len()), (Ok(Inherited::Bytes(3)), 3));
    assert_eq!((read(&mut worker), report(&worker).counters["packets"]), (before.clone(), 8));
    // If one context refuses its state, all stay.
    let mixed = (0..3).map(|number| -> Box<dyn Instance> {
        Box::new(if number == 2 { Counts::default() } else { Counts::taking_state() })
    });
    let contexts = mixed.collect();
    let inheritance = Inheritance::Required;
    let told = succeed(&mut worker, Successor::new(contexts, inheritance, 1, true));
    let succession = told.try_recv().unwrap().unwrap();
    assert!(succession.inherited.unwrap_err().contains("it takes none"));
    assert_eq!((succession.contexts.len(), read(&mut worker)), (3, before));
}

#[test]
fn state_of_contexts_that_the_successor_lacks_is_not_lost_unasked() {
    let (mut worker, path) = with_contexts(3, Counts::taking_state);
    send(&mut worker, path, Position::Early, &[100, 101, 102, 103, 104, 105, 106, 107]);
    let before = read(&mut worker);
    let told = upgrade(&mut worker, 1, Counts::taking_state, Inheritance::Required);
    let problem = "the new version has fewer contexts, 1 instead of 3, and the state of the other contexts would be lost";
    assert_eq!(told.try_recv().unwrap().unwrap().inherited, Err(problem.to_owned()));
    assert_eq!(read(&mut worker), before);
    let told = upgrade(&mut worker, 1, Counts::taking_state, Inheritance::Tried);
    let succession = told.try_recv().unwrap().unwrap();
    assert_eq!(
        (succession.inherited, succession.contexts.len()),
        (Ok(Inherited::Lost(problem.to_owned())), 3)
    );
    assert_eq!(read(&mut worker), before[..1]);
    // The counts of the ended contexts stay, and further contexts begin with none.
    assert_eq!(report(&worker).counters["packets"], 8);
    let told = upgrade(&mut worker, 4, Counts::taking_state, Inheritance::Required);
    assert_eq!(told.try_recv().unwrap().unwrap().inherited, Ok(Inherited::Bytes(1)));
    let (seen, none) = (read(&mut worker), json!([0, 0, 0]));
    assert_eq!((&seen[..1], &seen[1..]), (&before[..1], &[none.clone(), none.clone(), none][..]));
    assert_eq!(report(&worker).counters["packets"], 8);
}

#[test]
fn upgrade_waits_until_no_context_has_a_call() {
    let (mut worker, path) = with_contexts(2, Counts::default);
    let pool = Pool::new(64).unwrap();
    send_and_keep(&mut worker, &pool, path, &[port_of(0, 2, 1001..2000)], at(0));
    let told = upgrade(&mut worker, 3, Counts::default, Inheritance::Tried);
    // From now on, the free context begins no call, so that it ends with the other one.
    let waits = port_of(1, 2, 100..200);
    send_and_keep(&mut worker, &pool, path, &[waits], at(0));
    assert_eq!((worker.waiting(), told.try_recv().is_err()), (2, true));
    let mut all = Vec::new();
    while worker.waiting() > 0 {
        all.extend(released(&mut worker, at(0)));
    }
    assert_eq!(all.last(), Some(&(waits, None)));
    assert_eq!(told.try_recv().unwrap().unwrap().contexts.len(), 2);
    let seen: Vec<_> = read(&mut worker).iter().map(|reply| reply[0].as_u64().unwrap()).collect();
    let mut expected = vec![0; 3];
    expected[usize::from(context_of(&key_of(waits), 3))] = 1;
    assert_eq!(seen, expected, "the waiting packet meets its new context");
    assert!(released(&mut worker, at(0)).is_empty() && worker.is_idle());
}

#[test]
fn removal_releases_the_packets_and_returns_all_copies() {
    let (mut worker, path) = with_contexts(3, Counts::default);
    let pool = Pool::new(64).unwrap();
    let blocked: Vec<u16> = (0..3).map(|context| port_of(context, 3, 1001..2000)).collect();
    send_and_keep(&mut worker, &pool, path, &blocked, at(0));
    let told = upgrade(&mut worker, 2, Counts::default, Inheritance::Tried);
    unbind(&mut worker, 0);
    let removed = worker.apply(PluginChange::RemoveInstance { id: InstanceId(0) });
    assert!(matches!(removed, Remains::Instance(copies, _) if copies.len() == 3));
    let released: Vec<_> = (0..3).flat_map(|_| released(&mut worker, at(0))).collect();
    assert_eq!(released.len(), 3);
    assert!(worker.is_idle() && told.try_recv().unwrap().is_none());
    let none = PluginChange::AddContext { id: InstanceId(0), instance: Box::new(Counts::default()) };
    assert!(matches!(worker.apply(none), Remains::Instance(copies, _) if copies.len() == 1));
}

#[test]
fn packet_passed_on_waits_for_the_context_of_its_flow() {
    let (mut worker, _) = with_contexts(2, Counts::default);
    let to = Box::new(Says(Verdict::Instance(InstanceId(0))));
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(1), instance: to });
    bind(&mut worker, 1, 1, 81, 1);
    let (direct, path) = (path_of(&mut worker, 80), path_of(&mut worker, 81));
    let pool = Pool::new(64).unwrap();
    send_and_keep(&mut worker, &pool, direct, &[port_of(0, 2, 1001..2000)], at(0));
    let [waits, passes] = [port_of(0, 2, 100..200), port_of(1, 2, 100..200)];
    let sent = Sent::along(&mut worker, &pool, (path, Position::Early), &[waits, passes], at(0));
    assert_eq!(sent.members, [1]);
    keep_all(&mut worker, sent);
    assert_eq!(worker.waiting(), 2);
}

#[test]
fn shadow_compares_the_packets_of_its_context() {
    let (mut worker, path) = with_contexts(2, Counts::default);
    let pool = Pool::new(64).unwrap();
    let mut reports = Vec::new();
    for context in [0, 1, 2] {
        let (sender, told) = std::sync::mpsc::channel();
        let reported = Box::new(move |report| sender.send(report).unwrap());
        let instance = Box::new(Says(Verdict::Pass));
        worker.instances_mut().shadow((InstanceId(0), context), instance, 10, pool.clone(), reported);
        reports.push(told);
    }
    assert_eq!(reports[2].try_recv().unwrap(), None, "there is no third context");
    let [first, second] = [port_of(0, 2, 10..20), port_of(1, 2, 100..200)];
    send(&mut worker, path, Position::Early, &[first, second, second]);
    worker.instances_mut().end_shadows(InstanceId(0));
    let counts = |told: &Receiver<Option<ShadowReport>>| {
        let report = told.try_recv().unwrap().unwrap();
        (report.packets, report.different)
    };
    assert_eq!((counts(&reports[0]), counts(&reports[1])), ((1, 1), (2, 0)));
}
