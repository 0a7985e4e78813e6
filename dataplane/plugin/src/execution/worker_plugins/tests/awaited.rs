//! Tests of the time limits of calls that another process runs.

use super::*;
use crate::Paid;

/// Instance whose calls another process runs, and never ends. The system slows the process by this factor.
struct Awaited(u32);

impl Instance for Awaited {
    fn process(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
        Progress::Awaited
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn resume(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
        Progress::Awaited
    }

    fn patience(&self) -> u32 {
        self.0
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(json!(null))
    }
}

#[test]
fn call_of_another_process_is_limited_in_real_time_only() {
    let mut worker = worker();
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance: Box::new(Awaited(1)) });
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
    assert_eq!(released(&mut worker, at(99)), []);
    let failed = |source| (source, Some(End::Drop(DropReason::PluginFailed)));
    assert_eq!(released(&mut worker, at(100)), [failed(10), failed(11), failed(12)]);
    let report = worker.instances().reports().next().unwrap().1;
    assert_eq!((report.faults["overrun"], report.suspensions), (1, 0));
    assert_eq!(report.last_fault, "its process gave no answer to a call for 100 ms");
    assert!(!Paid::of(&worker).awaits());
}

#[test]
fn call_of_a_process_with_limited_time_may_take_longer() {
    let mut worker = worker();
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance: Box::new(Awaited(20)) });
    bind(&mut worker, 0, 0, 80, 0);
    let path = path_of(&mut worker, 80);
    send_and_keep(&mut worker, &Pool::new(64).unwrap(), path, &[10], at(0));
    assert_eq!(released(&mut worker, at(5)), []);
    assert_eq!(released(&mut worker, at(1999)), []);
    assert_eq!(released(&mut worker, at(2000)), [(10, Some(End::Drop(DropReason::PluginFailed)))]);
    let report = worker.instances().reports().next().unwrap().1;
    assert_eq!(report.last_fault, "its process gave no answer to a call for 2000 ms");
}

/// Instance whose process carries out a number of requests of a call, one at each look, and then no more.
struct Busy(u64);

impl Instance for Busy {
    fn process(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
        Progress::Awaited
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn resume(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
        self.0 = self.0.saturating_sub(1);
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
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance: Box::new(Busy(20)) });
    bind(&mut worker, 0, 0, 80, 0);
    let path = path_of(&mut worker, 80);
    send_and_keep(&mut worker, &Pool::new(64).unwrap(), path, &[10], at(0));
    // The last request begins at 1,900 ms.
    for look in 1..=20 {
        assert_eq!(released(&mut worker, at(95 * look)), []);
    }
    assert_eq!(released(&mut worker, at(1999)), []);
    assert_eq!(released(&mut worker, at(2000)), [(10, Some(End::Drop(DropReason::PluginFailed)))]);
    let report = worker.instances().reports().next().unwrap().1;
    assert_eq!((report.faults["overrun"], report.suspensions), (1, 0));
}
