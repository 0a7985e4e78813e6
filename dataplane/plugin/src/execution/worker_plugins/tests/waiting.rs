//! Tests of packets that wait for suspended calls.

use millrace_packet::{Borrower, Lender};

use super::verdicts::with_verdicts;
use super::*;

#[test]
fn packets_wait_for_a_running_call_in_order() {
    let (mut worker, path) = with_slow(3);
    let pool = Pool::new(64).unwrap();
    send_and_keep(&mut worker, &pool, path, &[10, 1, 11], at(0));
    send_and_keep(&mut worker, &pool, path, &[2, 12, 3], at(0));
    assert_eq!((worker.waiting(), worker.next_event(at(0))), (6, Some(at(0))));
    assert_eq!(released(&mut worker, at(0)), []);
    assert_eq!(released(&mut worker, at(0)), []);
    let dropped = Some(End::Drop(DropReason::Plugin));
    assert_eq!(released(&mut worker, at(0)), [(10, None), (1, dropped), (11, None)]);
    // The call with the second batch is running now.
    let rest: Vec<_> = (0..3).flat_map(|_| released(&mut worker, at(0))).collect();
    assert_eq!(rest, [(2, Some(End::Consume)), (12, None)]);
    assert_eq!((worker.waiting(), worker.next_event(at(0))), (1, Some(at(5))));
    assert_eq!(released(&mut worker, at(4)), []);
    assert_eq!(released(&mut worker, at(5)), [(3, None)]);
    assert!(worker.is_idle());
    let counts = worker.bindings.counts(BindingId(0)).unwrap();
    assert_eq!((counts.packets, counts.drops, counts.consumed), (6, 1, 1));
    assert_eq!(pool.in_use(), 0);
}

/// Instance whose first call takes two slices, and the others one.
#[derive(Default)]
struct SlowOnce(bool);

impl Instance for SlowOnce {
    fn process(&mut self, packets: &mut Packets<'_>, now: Instant) -> Progress {
        match std::mem::replace(&mut self.0, true) {
            true => self.resume(packets, now),
            false => Progress::Suspended,
        }
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn resume(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        packets.for_each(|_, _| Verdict::Pass);
        Progress::Done
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(json!(null))
    }
}

/// The last packet passes a gate that had no binding before.
#[test]
fn packets_behind_a_call_keep_their_order_if_their_path_gets_another_stage() {
    let mut worker = worker();
    let instance = Box::<SlowOnce>::default();
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance });
    bind(&mut worker, 0, 1, 80, 0);
    let (path, pool) = (path_of(&mut worker, 80), Pool::new(64).unwrap());
    send_and_keep(&mut worker, &pool, path, &[10], at(0));
    send_and_keep(&mut worker, &pool, path, &[11], at(0));
    add(&mut worker, 1);
    bind(&mut worker, 1, 0, 80, 1);
    let longer = path_of(&mut worker, 80);
    assert_ne!(longer, path);
    send_and_keep(&mut worker, &pool, longer, &[12], at(0));
    assert_eq!(released(&mut worker, at(0)), [(10, None), (11, None), (12, None)]);
    assert!(worker.is_idle());
}

/// Instance that records its backlog in each slice. Each call takes three slices.
#[derive(Default)]
struct Watchful(u32, Vec<(u32, u64)>);

impl Instance for Watchful {
    fn process(&mut self, packets: &mut Packets<'_>, now: Instant) -> Progress {
        self.0 = 3;
        self.resume(packets, now)
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn resume(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        let known = packets.backlog(0);
        assert_eq!(known.queue, None);
        self.1.push((known.instance_packets, known.instance_bytes));
        self.0 -= 1;
        if self.0 == 0 { Progress::Done } else { Progress::Suspended }
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(json!(self.1))
    }
}

#[test]
fn instance_sees_the_backlog_of_its_call() {
    let mut worker = worker();
    change(
        &mut worker,
        PluginChange::AddInstance { id: InstanceId(0), instance: Box::<Watchful>::default() },
    );
    bind(&mut worker, 0, 0, 80, 0);
    let path = path_of(&mut worker, 80);
    let pool = Pool::new(64).unwrap();
    send_and_keep(&mut worker, &pool, path, &[10, 11], at(0));
    send_and_keep(&mut worker, &pool, path, &[12, 13, 14], at(0));
    for _ in 0..6 {
        released(&mut worker, at(0));
    }
    assert!(worker.is_idle());
    let seen =
        ask(&mut worker, 0, &Message { name: "read".into(), arguments: serde_json::Map::new() }, at(0));
    // Packets have 60 bytes. The three packets of the second call count as backlog only until that call
    // begins.
    assert_eq!(seen, Some(Ok(json!([[0, 0], [3, 180], [3, 180], [0, 0], [0, 0], [0, 0]]))));
}

/// Instance whose calls with a message take two slices. It lists the messages on request.
#[derive(Default)]
struct Hearing(bool, Vec<Vec<u8>>);

impl Instance for Hearing {
    fn process(&mut self, _: &mut Packets<'_>, _: Instant) -> Progress {
        Progress::Done
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn resume(&mut self, _: &mut Packets<'_>, _: Instant) -> Progress {
        self.0 = false;
        Progress::Done
    }

    fn message(&mut self, bytes: &[u8]) -> Progress {
        assert!(!std::mem::replace(&mut self.0, true));
        self.1.push(bytes.to_vec());
        Progress::Suspended
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(json!(self.1))
    }
}

#[test]
fn messages_of_the_host_companion_wait_up_to_a_limit() {
    let mut worker = worker();
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance: Box::<Hearing>::default() });
    worker.message(InstanceId(9), vec![1], at(0));
    for number in 0..70 {
        worker.message(InstanceId(0), vec![number], at(0));
    }
    let counts = |worker: &WorkerPlugins<ByPort>| worker.instances().reports().next().unwrap().1.messages;
    assert_eq!((counts(&worker).heard, counts(&worker).lost), (1, 5));
    while !worker.is_idle() {
        released(&mut worker, at(0));
    }
    assert_eq!((counts(&worker).heard, counts(&worker).lost), (65, 5));
    let read = Message { name: "read".into(), arguments: serde_json::Map::new() };
    let expected: Vec<_> = (0..65).map(|number| vec![number]).collect();
    assert_eq!(ask(&mut worker, 0, &read, at(0)), Some(Ok(json!(expected))));
}

#[test]
fn a_call_without_an_end_is_given_up_and_the_instance_pauses() {
    let (mut worker, path) = with_slow(u32::MAX);
    let pool = Pool::new(64).unwrap();
    send_and_keep(&mut worker, &pool, path, &[10, 11], at(0));
    send_and_keep(&mut worker, &pool, path, &[12], at(0));
    let failed = Some(End::Drop(DropReason::PluginFailed));
    let mut all = Vec::new();
    for _ in 0..1000 {
        all.extend(released(&mut worker, at(0)));
    }
    assert_eq!(all, [(10, failed), (11, failed), (12, failed)]);
    assert_eq!(worker.waiting(), 0);
    // During the pause, the worker drops the instance's packets at once.
    send_and_keep(&mut worker, &pool, path, &[13], at(1));
    assert_eq!(worker.waiting(), 0);
    assert_eq!(worker.bindings.counts(BindingId(0)).unwrap().drops, 4);
    // After the pause the instance gets packets again.
    send_and_keep(&mut worker, &pool, path, &[14], at(20));
    assert_eq!(worker.waiting(), 1);
}

#[test]
fn packets_of_a_removed_instance_continue_without_it() {
    let (mut worker, path) = with_slow(5);
    let pool = Pool::new(64).unwrap();
    send_and_keep(&mut worker, &pool, path, &[10], at(0));
    send_and_keep(&mut worker, &pool, path, &[11], at(0));
    unbind(&mut worker, 0);
    assert!(matches!(
        worker.apply(PluginChange::RemoveInstance { id: InstanceId(0) }),
        Remains::Instance(..)
    ));
    assert_eq!(released(&mut worker, at(0)), [(10, None), (11, None)]);
    assert!(worker.is_idle());
}

#[test]
fn packets_wait_for_the_instance_of_their_verdict() {
    let (mut worker, path) = with_verdicts(&[Verdict::Instance(InstanceId(1))], CallLimits::default(), 0);
    let slow = Box::new(Slow { slices: 2, ..Slow::default() });
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(1), instance: slow });
    let pool = Pool::new(64).unwrap();
    send_and_keep(&mut worker, &pool, path, &[10, 1], at(0));
    send_and_keep(&mut worker, &pool, path, &[11], at(0));
    assert_eq!(worker.waiting(), 3);
    let released: Vec<_> = (0..6).flat_map(|_| released(&mut worker, at(0))).collect();
    assert_eq!(released, [(10, None), (1, Some(End::Drop(DropReason::Plugin))), (11, None)]);
    assert!(worker.is_idle());
}

#[test]
fn call_may_take_the_time_limit_of_its_binding() {
    let call_limits = CallLimits { call: Duration::from_micros(150), ..CallLimits::default() };
    let mut worker = worker();
    let slow = Box::new(Slow { slices: u32::MAX, ..Slow::default() });
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance: slow });
    let (binding, gate, action) = (BindingId(0), GateId(0), Action::Instance(InstanceId(0)));
    change(&mut worker, PluginChange::Bind { binding, gate, filter: 80, priority: 0, action, call_limits });
    let path = path_of(&mut worker, 80);
    let pool = Pool::new(64).unwrap();
    send_and_keep(&mut worker, &pool, path, &[10], at(0));
    assert_eq!(released(&mut worker, at(0)), []);
    assert_eq!(released(&mut worker, at(0)), [(10, Some(End::Drop(DropReason::PluginFailed)))]);
    let report = worker.instances().reports().next().unwrap().1;
    assert_eq!((report.faults["overrun"], report.suspensions), (1, 3));
}

#[test]
fn call_that_exceeds_ten_times_its_declared_worst_case_is_an_overrun() {
    // 10 times 150,000 cycles at 1 GHz are 30 slices of 50 us; the default of 100 ms would be 2,000.
    let worst_case = Some(DeclaredCycles { packet: 150_000.0, ..DeclaredCycles::default() });
    let call_limits = CallLimits { call: CallLimits::DEFAULT_PAID_CALL, ..CallLimits::default() };
    for (slices, faults) in [(29, 0), (u32::MAX, 1)] {
        let mut worker = worker();
        let slow = Box::new(Slow { slices, worst_case, ..Slow::default() });
        change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance: slow });
        let (binding, gate, action) = (BindingId(0), GateId(0), Action::Instance(InstanceId(0)));
        change(
            &mut worker,
            PluginChange::Bind { binding, gate, filter: 80, priority: 0, action, call_limits },
        );
        let path = path_of(&mut worker, 80);
        let pool = Pool::new(64).unwrap();
        send_and_keep(&mut worker, &pool, path, &[10], at(0));
        (0..40).for_each(|_| drop(released(&mut worker, at(0))));
        let report = worker.instances().reports().next().unwrap().1;
        let overruns = report.faults.get("overrun").copied().unwrap_or_default();
        assert_eq!((overruns, report.suspensions), (faults, 29 + faults));
    }
}

/// The default limit of calls for which nobody pays would end the call after 20 slices of 50 us.
#[test]
fn call_keeps_the_limits_of_its_binding_after_the_end_of_the_binding() {
    let call_limits = CallLimits { call: CallLimits::DEFAULT_PAID_CALL, ..CallLimits::default() };
    let mut worker = worker();
    let slow = Box::new(Slow { slices: 60, ..Slow::default() });
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance: slow });
    let (binding, gate, action) = (BindingId(0), GateId(0), Action::Instance(InstanceId(0)));
    change(&mut worker, PluginChange::Bind { binding, gate, filter: 80, priority: 0, action, call_limits });
    let path = path_of(&mut worker, 80);
    let pool = Pool::new(64).unwrap();
    send_and_keep(&mut worker, &pool, path, &[10], at(0));
    change(&mut worker, PluginChange::Unbind { binding, gate, filter: 80 });
    let all: Vec<_> = (0..70).flat_map(|_| released(&mut worker, at(0))).collect();
    assert_eq!(all, [(10, None)]);
}

#[test]
fn messages_beyond_the_waiting_limit_are_refused_in_a_sentence() {
    let (mut worker, path) = with_slow(5);
    let pool = Pool::new(64).unwrap();
    send_and_keep(&mut worker, &pool, path, &[10], at(0));
    let message = Message { name: "read".into(), arguments: serde_json::Map::new() };
    for _ in 0..64 {
        worker.control(InstanceId(0), &message, at(0), Box::new(|_| {}));
    }
    let refused = ask(&mut worker, 0, &message, at(0)).unwrap().unwrap_err().to_string();
    let text = "message \"read\" is refused: the instance is busy, and its queue of 64 messages is full; try \
                again later";
    assert_eq!(refused, text);
}

/// Instance whose call at the end of a flow takes two slices.
#[derive(Default)]
struct SlowToEnd {
    left: u32,
    ended: u32,
}

impl Instance for SlowToEnd {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        packets.for_each(|_, _| Verdict::Pass);
        Progress::Done
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn resume(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
        self.left -= 1;
        if self.left > 0 {
            return Progress::Suspended;
        }
        self.ended += 1;
        Progress::Done
    }

    fn flow_ended(&mut self, _flow: &FlowEnd, _state: &[u8]) -> Progress {
        self.left = 2;
        Progress::Suspended
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(json!(self.ended))
    }
}

#[test]
fn long_flow_end_call_continues_by_itself() {
    let mut worker = worker();
    let slow = Box::new(SlowToEnd::default());
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance: slow });
    bind(&mut worker, 0, 0, 80, 0);
    let path = path_of(&mut worker, 80);
    let key = FlowKey::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 17, (1, 80), PortId(0));
    worker.flow_ended(path, &FlowEnd { key, packets: 1, bytes: 60 }, 0);
    assert_eq!((worker.is_idle(), worker.next_event(at(0))), (false, Some(at(0))));
    // Packets wait until the call for the flow's end is over.
    let pool = Pool::new(64).unwrap();
    send_and_keep(&mut worker, &pool, path, &[10], at(0));
    assert_eq!(released(&mut worker, at(0)), []);
    assert_eq!(released(&mut worker, at(0)), [(10, None)]);
    assert!(worker.is_idle());
}

#[test]
fn packets_of_a_later_stage_are_released_first() {
    let mut worker = worker();
    for id in [0, 1] {
        let instance = Box::new(Slow { slices: 1, ..Slow::default() });
        change(&mut worker, PluginChange::AddInstance { id: InstanceId(id), instance });
    }
    bind(&mut worker, 0, 0, 80, 0);
    bind(&mut worker, 1, 2, 80, 1);
    let path = path_of(&mut worker, 80);
    let pool = Pool::new(64).unwrap();
    send_and_keep(&mut worker, &pool, path, &[11], at(0));
    // This packet has passed the first stage before.
    send_and_keep_at(&mut worker, &pool, (path, Position::Late), &[10], at(0));
    assert_eq!(released(&mut worker, at(0)), [(10, None), (11, None)]);
}

/// Instance whose calls another process runs. It records the number of packets of each call, and ends a call at
/// the next look.
#[derive(Default)]
struct Prompt(Vec<usize>);

impl Instance for Prompt {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        self.0.push(packets.len());
        Progress::Awaited
    }

    fn is_awaited(&self) -> bool {
        true
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn resume(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
        Progress::Done
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(json!(self.0))
    }
}

#[test]
fn packets_that_are_too_many_for_a_call_of_a_process_wait_in_order() {
    let mut worker = worker();
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance: Box::<Prompt>::default() });
    bind(&mut worker, 0, 0, 80, 0);
    let path = path_of(&mut worker, 80);
    let pool = Pool::new(64).unwrap();
    let sources: Vec<u16> = (10..20).collect();
    send_and_keep(&mut worker, &pool, path, &sources, at(0));
    let mut left = Vec::new();
    while !worker.is_idle() {
        left.extend(released(&mut worker, at(0)).into_iter().map(|(source, _)| source));
    }
    assert_eq!(left, sources);
    // Now a call may have more packets.
    send_and_keep(&mut worker, &pool, path, &sources, at(0));
    while !worker.is_idle() {
        released(&mut worker, at(0));
    }
    let seen =
        ask(&mut worker, 0, &Message { name: "read".into(), arguments: serde_json::Map::new() }, at(0));
    assert_eq!(seen, Some(Ok(json!([1, 2, 4, 3, 10]))));
    let counts = worker.bindings.counts(BindingId(0)).unwrap();
    assert_eq!((counts.packets, pool.in_use()), (20, 0));
}

/// Instance that needs linear packets, and gets nothing else. Each call takes two slices.
struct Linear;

impl Instance for Linear {
    fn process(&mut self, packets: &mut Packets<'_>, _: Instant) -> Progress {
        assert!((0..packets.len()).all(|place| packets.get_mut(place).1.is_linear()));
        Progress::Suspended
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn needs_linear_packets(&self) -> bool {
        true
    }

    fn resume(&mut self, _: &mut Packets<'_>, _: Instant) -> Progress {
        Progress::Done
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(json!(null))
    }
}

#[test]
fn packets_that_another_worker_has_lent_are_linear_when_their_call_begins() {
    let mut worker = worker();
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance: Box::new(Linear) });
    bind(&mut worker, 0, 0, 80, 0);
    let path = path_of(&mut worker, 80);
    let (ours, theirs) = (Pool::new(16).unwrap(), Pool::new(16).unwrap());
    let (mut lender, mut borrower) = (Lender::new(8), Borrower::new(8));
    // The second batch waits for the call with the first one.
    for sources in [[10, 11], [12, 13]] {
        let packets = sources.map(|_| {
            let mut packet = theirs.packet_from(&[0; 1000]).unwrap();
            packet.set_transport(20);
            let front = lender.front_of(&packet).unwrap();
            let bytes = packet.data()[..front].to_vec();
            borrower.borrow(&ours, &bytes, lender.lend(packet, front).unwrap()).unwrap()
        });
        assert!(packets.iter().all(|packet| !packet.is_linear()));
        let sent = Sent::of(&mut worker, packets.into(), (path, Position::Early), &sources, at(0));
        keep_all(&mut worker, sent);
    }
    let left: Vec<_> = (0..9).flat_map(|_| released(&mut worker, at(0))).collect();
    assert_eq!(left, [10, 11, 12, 13].map(|source| (source, None)));
    std::iter::from_fn(|| borrower.ended()).for_each(|ended| lender.take_back(ended));
    assert_eq!((ours.in_use(), theirs.in_use()), (0, 0));
}
