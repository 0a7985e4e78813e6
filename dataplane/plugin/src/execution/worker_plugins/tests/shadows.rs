//! Tests of shadow instances whose calls another process runs, and of shadows beside suspended calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use millrace_units::Cycles;

use super::*;
use crate::{Paid, Payers};

/// Instance whose process drops each packet, and answers at a time in milliseconds.
struct Remote {
    answers_at: u64,
    /// Number of looks for an answer.
    looks: Arc<AtomicU64>,
}

impl Instance for Remote {
    fn process(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
        Progress::Awaited
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn is_awaited(&self) -> bool {
        true
    }

    fn resume(&mut self, packets: &mut Packets<'_>, now: Instant) -> Progress {
        self.looks.fetch_add(1, Ordering::Relaxed);
        if now < at(self.answers_at) {
            return Progress::Awaited;
        }
        packets.for_each(|_, _| Verdict::Drop(1));
        Progress::Done
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(json!(null))
    }
}

/// Worker with an instance, beside which a shadow runs for a number of packets.
struct Trial {
    worker: WorkerPlugins<ByPort>,
    path: PathId,
    pool: Pool,
    told: Receiver<Option<ShadowReport>>,
}

impl Trial {
    fn new(active: Box<dyn Instance>, shadow: Box<dyn Instance>, packets: u64) -> Self {
        let mut worker = worker();
        change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance: active });
        bind_paid(&mut worker, (0, 0, 80, 0), Some(PrincipalId(3)));
        let (pool, (sender, told)) = (Pool::new(256).unwrap(), channel());
        let reported = Box::new(move |report| sender.send(report).unwrap());
        worker.instances_mut().shadow((InstanceId(0), 0), shadow, packets, pool.clone(), reported);
        let path = path_of(&mut worker, 80);
        Self { worker, path, pool, told }
    }

    /// Returns a trial of a new version whose process answers at a time, and the number of looks for its answers.
    fn of_process(answers_at: u64, packets: u64) -> (Self, Arc<AtomicU64>) {
        let looks = Arc::new(AtomicU64::new(0));
        let shadow = Box::new(Remote { answers_at, looks: looks.clone() });
        (Self::new(Box::new(Says(Verdict::Pass)), shadow, packets), looks)
    }

    /// Sends packets that pass at once.
    fn send(&mut self, sources: &[u16]) {
        let (members, _) = send(&mut self.worker, self.path, Position::Early, sources);
        assert_eq!(members.len(), sources.len());
    }

    /// Returns the report, if it was sent.
    fn report(&self) -> Option<ShadowReport> {
        match self.told.try_recv() {
            Ok(report) => report,
            Err(error) => {
                assert_eq!(error, TryRecvError::Empty);
                None
            }
        }
    }

    /// Ends the trial. Returns the report.
    fn end(mut self) -> ShadowReport {
        self.worker.instances_mut().end_shadows(InstanceId(0));
        assert_eq!(self.pool.in_use(), 0);
        self.report().unwrap()
    }
}

#[test]
fn worker_looks_for_the_answer_of_a_process_in_later_iterations() {
    let (mut trial, looks) = Trial::of_process(5, 4);
    trial.send(&[3, 4]);
    assert_eq!((looks.load(Ordering::Relaxed), trial.pool.in_use()), (0, 2));
    assert!(Paid::of(&trial.worker).awaits() && !trial.worker.is_idle());
    assert_eq!(trial.worker.next_event(at(0)), Some(at(0)));
    // The process runs a call.
    trial.send(&[3]);
    for (iteration, millis) in (1..).zip([1, 2, 4]) {
        assert_eq!(released(&mut trial.worker, at(millis)), []);
        assert_eq!((looks.load(Ordering::Relaxed), trial.report()), (iteration, None));
    }
    assert_eq!(released(&mut trial.worker, at(5)), []);
    assert_eq!((looks.load(Ordering::Relaxed), trial.pool.in_use()), (4, 0));
    assert!(!Paid::of(&trial.worker).awaits() && trial.worker.is_idle());
    assert_eq!(trial.worker.next_event(at(5)), None);
    trial.send(&[3, 4, 3]);
    assert_eq!((released(&mut trial.worker, at(6)), looks.load(Ordering::Relaxed)), (vec![], 5));
    let first = "packet 1, from 127.0.0.1 to 127.0.0.1: the old version passes it, the new version drops it for reason 1";
    let (first, fault) = (Some(first.to_owned()), None);
    let report = ShadowReport { packets: 4, different: 4, skipped: 1, unanswered: 0, first, fault };
    assert_eq!((trial.report(), trial.pool.in_use()), (Some(report), 0));
    assert!(trial.worker.instances().is_idle());
}

#[test]
fn packets_without_an_answer_are_counted_at_the_time_limit_and_at_the_end() {
    let (mut trial, _) = Trial::of_process(1000, 4);
    trial.send(&[3, 4]);
    for millis in (5..100).step_by(5) {
        assert_eq!((released(&mut trial.worker, at(millis)), trial.report()), (vec![], None), "{millis} ms");
    }
    assert_eq!(released(&mut trial.worker, at(100)), []);
    let fault = Some("its process gave no answer to a call for 100 ms".to_owned());
    let late = ShadowReport { unanswered: 2, ..ShadowReport::default() };
    assert_eq!(trial.report(), Some(ShadowReport { fault, ..late.clone() }));
    assert!(!Paid::of(&trial.worker).awaits() && trial.pool.in_use() == 0);

    let (mut trial, _) = Trial::of_process(1000, 4);
    trial.send(&[3, 4]);
    assert_eq!(trial.end(), late);
}

#[test]
fn call_of_a_process_gets_a_limited_number_of_packets() {
    let (mut trial, _) = Trial::of_process(1000, 200);
    trial.send(&[3; 100]);
    assert_eq!(trial.pool.in_use(), 64);
    let expected = ShadowReport { skipped: 36, unanswered: 64, ..ShadowReport::default() };
    assert_eq!(trial.end(), expected);
}

#[test]
fn packets_share_no_memory_with_the_copies_of_a_shadow() {
    let remote = || Box::new(Remote { answers_at: 5, looks: Arc::default() });
    let slow = Box::new(Slow { slices: 1, ..Slow::default() });
    for active in [Box::new(Says(Verdict::Pass)) as Box<dyn Instance>, slow] {
        let mut trial = Trial::new(active, remote(), 4);
        let packets = vec![trial.pool.packet_from(&[0; 5000]).unwrap()];
        let one = trial.pool.in_use();
        let at_early = (trial.path, Position::Early);
        let mut sent = Sent::of(&mut trial.worker, packets, at_early, &[3], Instant::ZERO);
        let copied = trial.pool.in_use() - one;
        assert!(copied > 1 && sent.packets[0].truncate(4900));
        drop(sent);
        assert_eq!(trial.pool.in_use(), copied);
        trial.end();
    }
}

#[test]
fn suspended_call_is_compared_once_it_has_ended() {
    let slow = Box::new(Slow { slices: 1, ..Slow::default() });
    let mut trial = Trial::new(slow, Box::new(Says(Verdict::Drop(1))), 2);
    let pool = trial.pool.clone();
    send_and_keep(&mut trial.worker, &pool, trial.path, &[5, 6], at(0));
    assert_eq!(trial.report(), None);
    assert_eq!(released(&mut trial.worker, at(1)), [(5, None), (6, None)]);
    let report = trial.report().unwrap();
    assert_eq!((report.packets, report.different, report.skipped), (2, 2, 0));
}

#[test]
fn aborted_call_is_not_compared() {
    let slow = Box::new(Slow { slices: u32::MAX, ..Slow::default() });
    let mut trial = Trial::new(slow, Box::new(Says(Verdict::Drop(1))), 2);
    let pool = trial.pool.clone();
    send_and_keep(&mut trial.worker, &pool, trial.path, &[5, 6], at(0));
    let slices = (1..1000).find(|_| !released(&mut trial.worker, at(1)).is_empty());
    assert!(slices.is_some() && trial.pool.in_use() == 0);
    assert_eq!(trial.end(), ShadowReport { skipped: 2, ..ShadowReport::default() });
}

/// Number of readings of the counter.
static READINGS: AtomicU64 = AtomicU64::new(0);

#[test]
fn payer_of_the_call_pays_for_the_answer_of_a_shadow() {
    let (mut trial, looks) = Trial::of_process(5, 4);
    let payer = PrincipalId(3);
    let mut payers = Payers::of(&mut trial.worker);
    payers.schedule(|| Some(10 * READINGS.fetch_add(1, Ordering::Relaxed)));
    payers.set_running(Some(payer));
    trial.send(&[3, 4]);
    Payers::of(&mut trial.worker).set_running(None);
    assert_eq!(released(&mut trial.worker, at(1)), []);
    let mut charges = Vec::new();
    Payers::of(&mut trial.worker).settle_in_line(|charge| {
        charges.push((charge.payer, charge.used, charge.packets));
        true
    });
    assert_eq!(charges, [(payer, Cycles(10), 0)]);
    // A principal ahead of its share gets a look once in a millisecond.
    for (millis, count) in [(1, 1), (2, 2), (2, 2), (3, 3)] {
        assert_eq!(released(&mut trial.worker, at(millis)), []);
        assert_eq!(looks.load(Ordering::Relaxed), count, "{millis} ms");
    }
}
