use std::time::Duration;

use millrace_packet::Packet;
use millrace_units::BitRate;
use millrace_wire::MacAddr;
use proptest::prelude::*;

use super::*;
use crate::{Memory, MemoryHandle};

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const MILLISECOND: Duration = Duration::from_millis(1);

fn impaired(settings: &Impairment) -> (Impair, MemoryHandle) {
    let (port, wire) = Memory::new(MAC, 9000);
    (Impair::new(Box::new(port), settings).unwrap(), wire)
}

fn received(port: &mut Impair, pool: &Pool, now: Instant) -> Vec<Vec<u8>> {
    let mut batch = Batch::new();
    port.receive(pool, now, &mut batch);
    batch.iter().map(Packet::to_vec).collect()
}

fn delayed() -> Impairment {
    Impairment { delay: 10 * MILLISECOND, ..Impairment::default() }
}

#[test]
fn without_impairment_packets_pass_at_once() {
    let pool = Pool::new(16).unwrap();
    let (mut port, wire) = impaired(&Impairment::default());
    wire.inject(b"in");
    assert_eq!(received(&mut port, &pool, Instant::ZERO), [b"in"]);
    let mut batch = Batch::new();
    batch.push(pool.packet_from(b"out").unwrap()).unwrap();
    port.transmit(&pool, Instant::ZERO, &mut batch);
    assert_eq!(wire.take_transmitted(), [b"out"]);
}

#[test]
fn delayed_packet_waits_and_reports_its_time() {
    let pool = Pool::new(16).unwrap();
    let (mut port, wire) = impaired(&delayed());
    wire.inject(b"in");
    let mut batch = Batch::new();
    batch.push(pool.packet_from(b"out").unwrap()).unwrap();
    port.transmit(&pool, Instant::from_millis(3), &mut batch);
    assert!(received(&mut port, &pool, Instant::from_millis(5)).is_empty());
    assert_eq!((port.counters().held, port.next_event()), (2, Some(Instant::from_millis(13))));
    assert!(received(&mut port, &pool, Instant::from_millis(14)).is_empty());
    assert_eq!(wire.take_transmitted(), [b"out"]);
    assert_eq!(received(&mut port, &pool, Instant::from_millis(15)), [b"in"]);
    assert_eq!((port.counters().held, port.next_event()), (0, None));
}

#[test]
fn one_direction_leaves_the_other_alone() {
    let pool = Pool::new(16).unwrap();
    for (direction, passes_in, passes_out) in
        [(ImpairmentDirection::In, 0, 1), (ImpairmentDirection::Out, 1, 0), (ImpairmentDirection::Both, 0, 0)]
    {
        let (mut port, wire) = impaired(&Impairment { loss: 1.0, direction, ..Impairment::default() });
        wire.inject(b"in");
        assert_eq!(received(&mut port, &pool, Instant::ZERO).len(), passes_in);
        let mut batch = Batch::new();
        batch.push(pool.packet_from(b"out").unwrap()).unwrap();
        port.transmit(&pool, Instant::ZERO, &mut batch);
        assert_eq!(wire.take_transmitted().len(), passes_out);
        let lost = 2 - passes_in - passes_out;
        assert_eq!(port.counters().drops.get(DropReason::Impaired), lost as u64);
    }
}

#[test]
fn corrupted_packet_differs_in_one_bit_of_any_frame() {
    let pool = Pool::new(64).unwrap();
    let (mut port, wire) = impaired(&Impairment { corrupt: 1.0, ..Impairment::default() });
    let frame = vec![0u8; 5000];
    let mut places = Vec::new();
    for _ in 0..50 {
        wire.inject(&frame);
        let got = received(&mut port, &pool, Instant::ZERO).remove(0);
        assert_eq!((got.len(), got.iter().map(|byte| byte.count_ones()).sum::<u32>()), (5000, 1));
        places.push(got.iter().position(|byte| *byte != 0).unwrap());
    }
    assert!(places.iter().any(|place| *place < 1700) && places.iter().any(|place| *place > 4000));
}

#[test]
fn corruption_of_a_packet_with_shared_frames_leaves_the_sibling_unchanged() {
    let pool = Pool::new(64).unwrap();
    let (mut port, wire) = impaired(&Impairment { corrupt: 1.0, ..Impairment::default() });
    for _ in 0..20 {
        let packet = pool.packet_from(&[0; 5000]).unwrap();
        wire.inject_packet(packet.copy(&pool).unwrap());
        let got = received(&mut port, &pool, Instant::ZERO).remove(0);
        assert!(got.iter().any(|byte| *byte != 0) && packet.to_vec().iter().all(|byte| *byte == 0));
    }
}

#[test]
fn empty_packets_are_not_corrupted() {
    let pool = Pool::new(4).unwrap();
    let settings = Impairment { corrupt: 1.0, duplicate: 1.0, ..Impairment::default() };
    let (mut port, wire) = impaired(&settings);
    wire.inject(b"");
    assert_eq!(received(&mut port, &pool, Instant::ZERO), [b"", b""]);
}

#[test]
fn duplicates_are_counted_as_created() {
    let pool = Pool::new(16).unwrap();
    let (mut port, wire) = impaired(&Impairment { duplicate: 1.0, ..Impairment::default() });
    wire.inject(b"x");
    assert_eq!(received(&mut port, &pool, Instant::ZERO), [b"x", b"x"]);
    assert_eq!((port.counters().created, port.counters().received), (1, 1));
}

#[test]
fn a_reordered_packet_overtakes_and_jitter_alone_never_does() {
    let pool = Pool::new(512).unwrap();
    let numbers = |settings: &Impairment| {
        let (mut port, wire) = impaired(settings);
        (0..200u8).for_each(|number| wire.inject(&[number]));
        let mut got = received(&mut port, &pool, Instant::ZERO);
        got.extend(received(&mut port, &pool, Instant::from_millis(20)));
        got.concat()
    };
    let jitter = Impairment { jitter: 10 * MILLISECOND, ..delayed() };
    assert!(numbers(&jitter).is_sorted());
    assert_eq!(numbers(&jitter).len(), 200);
    let reordered = numbers(&Impairment { reorder: 0.2, ..delayed() });
    assert!(reordered.len() == 200 && !reordered.is_sorted());
}

#[test]
fn jitter_spreads_evenly_around_the_delay() {
    let settings = Impairment { jitter: 4 * MILLISECOND, ..delayed() };
    let pool = Pool::new(4).unwrap();
    let (mut port, wire) = impaired(&settings);
    let (mut now, mut delays) = (Instant::ZERO, Vec::new());
    for _ in 0..2000 {
        wire.inject(b"x");
        assert!(received(&mut port, &pool, now).is_empty());
        let due = port.next_event().unwrap();
        delays.push(due.since(now));
        assert_eq!(received(&mut port, &pool, due).len(), 1);
        now = due;
    }
    let mean = delays.iter().sum::<Duration>() / 2000;
    assert!(delays.iter().all(|delay| (6 * MILLISECOND..=14 * MILLISECOND).contains(delay)));
    assert!((9800..10200).contains(&mean.as_micros()), "{mean:?}");
    assert!(delays.iter().any(|d| *d < 7 * MILLISECOND) && delays.iter().any(|d| *d > 13 * MILLISECOND));
}

#[test]
fn rate_spaces_packets_by_their_transmission_time() {
    let pool = Pool::new(16).unwrap();
    let settings = Impairment { rate: Some(BitRate(8_000_000.0)), ..Impairment::default() };
    let (mut port, wire) = impaired(&settings);
    // 1,000 bytes take a millisecond at 8 Mb/s.
    (0..3).for_each(|_| wire.inject(&[0; 1000]));
    assert!(received(&mut port, &pool, Instant::ZERO).is_empty());
    for millisecond in 1..=3 {
        assert_eq!(port.next_event(), Some(Instant::from_millis(millisecond)));
        assert_eq!(received(&mut port, &pool, Instant::from_millis(millisecond)).len(), 1);
    }
}

#[test]
fn packets_beyond_a_full_queue_are_lost() {
    let pool = Pool::new(64).unwrap();
    let (mut port, wire) = impaired(&Impairment { queue: 5, ..delayed() });
    (0..12).for_each(|_| wire.inject(b"x"));
    received(&mut port, &pool, Instant::ZERO);
    assert_eq!((port.counters().held, port.counters().drops.get(DropReason::Impaired)), (5, 7));
}

/// Event at the port.
#[derive(Clone, Debug)]
enum Step {
    Inject(usize),
    Receive,
    Transmit(usize),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0usize..3000).prop_map(Step::Inject),
        Just(Step::Receive),
        (0usize..3000).prop_map(Step::Transmit),
        (0u64..30_000_000).prop_map(Step::Pass),
    ];
    proptest::collection::vec(step, 0..120)
}

prop_compose! {
    fn settings()(
        delay in 0u64..50_000_000, jitter in 0.0f64..=1.0, loss in 0.0f64..=1.0, duplicate in 0.0f64..=1.0,
        reorder in 0.0f64..=1.0, corrupt in 0.0f64..=1.0, rate in proptest::option::of(1e5f64..1e10),
        queue in 1usize..60, seed: u64, direction in 0usize..3,
    ) -> Impairment {
        let delay = Duration::from_nanos(delay);
        let direction =
            [ImpairmentDirection::Both, ImpairmentDirection::In, ImpairmentDirection::Out][direction];
        let (jitter, rate) = (delay.mul_f64(jitter).min(delay), rate.map(BitRate));
        Impairment { direction, delay, jitter, loss, duplicate, reorder, corrupt, rate, queue, seed }
    }
}

/// Received packets with their times, transmitted packets, and the counters at the end.
type Trace = (Vec<(Instant, Vec<u8>)>, Vec<Vec<u8>>, String);

struct Run {
    pool: Pool,
    port: Impair,
    wire: MemoryHandle,
    now: Instant,
    given: Vec<(Instant, Vec<u8>)>,
    taken: u64,
}

impl Run {
    fn new(settings: &Impairment, frames: u32) -> Self {
        let (port, wire) = impaired(settings);
        let pool = Pool::new(frames).unwrap();
        Self { pool, port, wire, now: Instant::from_millis(1), given: Vec::new(), taken: 0 }
    }

    fn receive(&mut self) {
        let frames = received(&mut self.port, &self.pool, self.now);
        self.given.extend(frames.into_iter().map(|frame| (self.now, frame)));
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Inject(length) => self.wire.inject(&vec![0; length]),
            Step::Receive => self.receive(),
            Step::Transmit(length) => {
                let Some(packet) = self.pool.packet_from(&vec![0; length]) else { return };
                let mut batch = Batch::new();
                batch.push(packet).unwrap();
                self.taken += 1;
                self.port.transmit(&self.pool, self.now, &mut batch);
            }
            Step::Pass(nanoseconds) => self.now += Duration::from_nanos(nanoseconds),
        }
    }

    fn law_holds(&mut self) -> bool {
        let counters = self.port.counters();
        let into = counters.received + self.taken + counters.created;
        into == self.given.len() as u64 + counters.transmitted + counters.drops.total() + counters.held
    }

    fn trace(mut self) -> Trace {
        let transmitted = self.wire.take_transmitted();
        (self.given, transmitted, format!("{:?}", self.port.counters()))
    }
}

fn run(settings: &Impairment, steps: &[Step]) -> Trace {
    let mut run = Run::new(settings, 1024);
    steps.iter().for_each(|step| run.step(step));
    run.trace()
}

proptest! {
    #[test]
    fn every_packet_is_accounted_for_after_every_step(
        settings in settings(), steps in steps(), frames in 1u32..200,
    ) {
        let mut run = Run::new(&settings, frames);
        for step in &steps {
            run.step(step);
            prop_assert!(run.law_holds(), "after {step:?}: {:?}", run.port.counters());
        }
        drop((run.port, run.given));
        prop_assert_eq!(run.pool.in_use(), 0);
    }

    #[test]
    fn the_same_seed_gives_the_same_result(settings in settings(), steps in steps()) {
        prop_assert_eq!(run(&settings, &steps), run(&settings, &steps));
    }

    #[test]
    fn everything_is_out_after_the_longest_delay(settings in settings(), steps in steps()) {
        // With a rate, packets may wait for any time; without one the delay bounds the wait.
        let settings = Impairment { rate: None, ..settings };
        let mut run = Run::new(&settings, 1024);
        steps.iter().for_each(|step| run.step(step));
        run.receive();
        run.now += settings.delay + settings.jitter;
        run.receive();
        prop_assert_eq!(run.port.counters().held, 0);
        prop_assert_eq!(run.port.next_event(), None);
        prop_assert!(run.law_holds());
    }
}
