//! Tests of the time limits of calls that another process runs.

use super::*;
use crate::Paid;

/// Instance whose calls another process runs, and never ends.
struct Awaited {
    /// Factor by which the system slows the process.
    slowed: u32,
    /// Processor time that the process consumes until each look; `None` if it is unknown.
    consumes: Option<Duration>,
    consumed: Duration,
}

impl Awaited {
    fn slowed(slowed: u32) -> Box<Self> {
        Box::new(Self { slowed, consumes: None, consumed: Duration::ZERO })
    }
}

impl Instance for Awaited {
    fn process(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
        Progress::Awaited
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn resume(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
        self.consumed += self.consumes.unwrap_or_default();
        Progress::Awaited
    }

    fn consumed(&self) -> Option<Duration> {
        self.consumes.map(|_| self.consumed)
    }

    fn patience(&self) -> u32 {
        self.slowed
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(json!(null))
    }
}

/// Looks for the end of calls every 5 ms, before the time `end` in milliseconds: none ends.
fn look_until(worker: &mut WorkerPlugins<ByPort>, (begin, end): (u64, u64)) {
    for millis in (begin..end).step_by(5).chain([end - 1]) {
        assert_eq!(released(worker, at(millis)), [], "{millis} ms");
    }
}

#[test]
fn call_of_another_process_is_limited_in_real_time_if_its_processor_time_is_unknown() {
    let mut worker = worker();
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance: Awaited::slowed(1) });
    bind(&mut worker, 0, 0, 80, 0);
    let path = path_of(&mut worker, 80);
    let pool = Pool::new(64).unwrap();
    send_and_keep(&mut worker, &pool, path, &[10, 11], at(0));
    assert!(Paid::of(&worker).awaits());
    for _ in 0..10_000 {
        assert_eq!(released(&mut worker, at(5)), []);
    }
    send_and_keep(&mut worker, &pool, path, &[12], at(6));
    assert!((worker.waiting(), Paid::of(&worker).awaits()) == (3, true));
    // Two packets have no more time than one.
    look_until(&mut worker, (10, 100));
    let failed = |source| (source, Some(End::Drop(DropReason::PluginFailed)));
    assert_eq!(released(&mut worker, at(100)), [failed(10), failed(11), failed(12)]);
    let report = worker.instances().reports().next().unwrap().1;
    assert_eq!((report.faults["no_answer"], report.suspensions), (1, 0));
    assert_eq!(report.last_fault, "its process gave no answer to a call for 100 ms");
    assert!(!Paid::of(&worker).awaits());
}

#[test]
fn call_of_a_process_with_limited_time_may_take_longer() {
    let mut worker = worker();
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance: Awaited::slowed(20) });
    bind(&mut worker, 0, 0, 80, 0);
    let path = path_of(&mut worker, 80);
    send_and_keep(&mut worker, &Pool::new(64).unwrap(), path, &[10], at(0));
    look_until(&mut worker, (5, 2000));
    assert_eq!(released(&mut worker, at(2000)), [(10, Some(End::Drop(DropReason::PluginFailed)))]);
    let report = worker.instances().reports().next().unwrap().1;
    assert_eq!(report.last_fault, "its process gave no answer to a call for 2000 ms");
}

/// Instance whose process carries out a request of a call in 95 ms, up to 20, and then no more.
struct Busy(u64);

impl Instance for Busy {
    fn process(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
        Progress::Awaited
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn resume(&mut self, _packets: &mut Packets<'_>, now: Instant) -> Progress {
        self.0 = (now.since(at(0)).as_millis() as u64 / 95).min(20);
        Progress::Awaited
    }

    fn answers(&self) -> u64 {
        self.0
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(json!(null))
    }
}

#[test]
fn each_request_of_a_call_has_the_whole_time_of_a_process() {
    let mut worker = worker();
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance: Box::new(Busy(0)) });
    bind(&mut worker, 0, 0, 80, 0);
    let path = path_of(&mut worker, 80);
    send_and_keep(&mut worker, &Pool::new(64).unwrap(), path, &[10], at(0));
    // The last request begins at 1,900 ms.
    look_until(&mut worker, (5, 2000));
    assert_eq!(released(&mut worker, at(2000)), [(10, Some(End::Drop(DropReason::PluginFailed)))]);
    let report = worker.instances().reports().next().unwrap().1;
    assert_eq!((report.faults["no_answer"], report.suspensions), (1, 0));
}

/// Sends a packet to an instance whose process consumes this time every 5 ms. Returns the kind and the text of the
/// fault, and when it came.
fn fault(consumes: Duration) -> (String, String, u64) {
    let mut worker = worker();
    let instance = Awaited { consumes: Some(consumes), ..*Awaited::slowed(1) };
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance: Box::new(instance) });
    bind(&mut worker, 0, 0, 80, 0);
    let path = path_of(&mut worker, 80);
    send_and_keep(&mut worker, &Pool::new(64).unwrap(), path, &[10], at(0));
    let end = (5..).step_by(5).find(|millis| !released(&mut worker, at(*millis)).is_empty()).unwrap();
    let report = worker.instances().reports().next().unwrap().1;
    let kinds: Vec<_> = report.faults.keys().copied().collect();
    (kinds.concat(), report.last_fault, end)
}

#[test]
fn call_of_another_process_is_limited_in_its_processor_time() {
    let millis = Duration::from_millis;
    // Alone on a processor; and on one that others use for nine tenths of the time.
    let used = "its process gave no answer to a call, for which it used 100 ms of processor time";
    assert_eq!(fault(millis(5)), ("overrun".to_owned(), used.to_owned(), 110));
    let (kind, text, end) = fault(Duration::from_micros(500));
    assert_eq!((kind, text), ("overrun".to_owned(), used.to_owned()));
    assert!((1010..1020).contains(&end), "{end}");
    let (kind, text, end) = fault(Duration::ZERO);
    let quiet =
        "its process gave no answer to a call for 1000 ms, and used only 0 ms of processor time".to_owned();
    assert_eq!((kind, text, end), ("no_answer".to_owned(), quiet, 1000));
}
