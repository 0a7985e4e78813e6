//! Tests that no packet and no slice causes an allocation: with any kind of node in the steady state, and with
//! any CPU scheduler after `add`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use millrace_schedule::cpu::*;
use millrace_schedule::*;
use millrace_units::{Cycles, Instant, PrincipalId};

struct Counting;

thread_local! {
    /// Allocations of the thread of a test.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: all calls go unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract, which is the same for both allocators.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract, which is the same for both allocators.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Frame(u32);

impl Item for Frame {
    fn length(&self) -> u32 {
        self.0
    }

    fn mark_congestion(&mut self) -> bool {
        false
    }
}

fn tree() -> LinkScheduler<Frame> {
    let limits = BufferLimits { packets: 300, ..Default::default() };
    let link = LinkRate { rate: Some(Rate::from_megabits(100)), slack: 0 };
    let mut port = LinkScheduler::new(link, LinkOverhead::Ethernet, limits).unwrap();
    let mut add = |node, parent: Option<u32>, share, kind: NodeKind| {
        port.edit().add(NodeId(node), parent.map(NodeId), share, &kind, Instant::ZERO).unwrap();
    };
    let rate = |megabits| Curve::linear(Rate::from_megabits(megabits));
    let curves = |real_time, upper_limit| {
        Share::Curves(Curves { real_time, link_sharing: Some(rate(20)), upper_limit })
    };
    let queue = |aqm| NodeKind::Fifo(QueueSettings { threshold: 20_000, aqm });
    add(0, None, Share::Only, NodeKind::Hfsc);
    add(1, Some(0), curves(None, Some(rate(40))), NodeKind::Hfsc);
    add(2, Some(1), curves(Some(rate(5)), None), queue(Aqm::Red(RedSettings::default())));
    add(
        3,
        Some(1),
        curves(None, None),
        NodeKind::FlowQueues(FlowQueuesSettings { queues: 20, ..Default::default() }),
    );
    add(4, Some(0), curves(None, None), NodeKind::TokenBucket { rate: Rate::from_megabits(30), burst: 4000 });
    add(5, Some(4), Share::Only, NodeKind::Priority);
    add(6, Some(5), Share::Level(0), queue(Aqm::Codel(CodelSettings::default())));
    add(7, Some(5), Share::Level(9), NodeKind::DeficitRoundRobin);
    add(8, Some(7), Share::Quantum(1000), queue(Aqm::TailDrop));
    add(
        9,
        Some(7),
        Share::Quantum(3000),
        NodeKind::FqCodel(FqCodelSettings { limit: 50, ..Default::default() }),
    );
    port
}

/// Enqueues packets at every leaf, faster than the port sends. Returns the numbers of packets sent and
/// dropped.
fn load(port: &mut LinkScheduler<Frame>, now: &mut u64, packets: u32) -> (u64, u64) {
    let (mut sent, mut dropped) = (0, 0);
    for number in 0..packets {
        *now += 40_000;
        for node in [2, 3, 6, 8, 9] {
            let frame = Frame(64 + number * 37 % 1400);
            let flow = FlowNumber(number % 30);
            port.enqueue(
                NodeId(node),
                flow,
                frame,
                Instant::from_nanos(*now),
                &mut |_: Frame, _: DropCause| dropped += 1,
            );
        }
        while port.dequeue(Instant::from_nanos(*now), &mut |_: Frame, _: DropCause| dropped += 1).is_some() {
            sent += 1;
        }
    }
    (sent, dropped)
}

#[test]
fn a_loaded_tree_allocates_nothing() {
    let (mut port, mut now) = (tree(), 0);
    load(&mut port, &mut now, 5000);
    let before = ALLOCATIONS.get();
    let (sent, dropped) = load(&mut port, &mut now, 20_000);
    assert_eq!(ALLOCATIONS.get(), before);
    assert!(sent > 7000 && dropped > 10_000, "{sent} sent, {dropped} dropped");
}

#[test]
fn cpu_scheduler_allocates_nothing_after_add() {
    use CpuSchedulerKind::{EarliestDeadline, StartTimeFair, Stride, WorstCaseFair};
    for kind in [StartTimeFair, WorstCaseFair, Stride, EarliestDeadline] {
        let quantum = Cycles(100_000);
        let settings = CpuSchedulerSettings { kind, quantum, frequency: 1_000_000_000, capacity: 1_000_000 };
        let mut scheduler = CpuScheduler::new(settings);
        let limits = CpuQueueLimits { packets: 300, bytes: 300_000, flows: 8 };
        let mut queues = CpuQueues::new(limits, quantum, 1);
        for number in 0..1000 {
            let share = if number % 3 == 0 { CpuShare::Absolute(500) } else { CpuShare::Weight(number) };
            let deadline = (number % 9 == 0).then_some(std::time::Duration::from_millis(5));
            let limit = (number % 7 == 0).then_some(1000);
            scheduler.add(PrincipalId(number), CpuPrincipal { share, limit, deadline }).unwrap();
            queues.set(PrincipalId(number), 100_000);
        }
        let before = ALLOCATIONS.get();
        let mut now = Instant::ZERO;
        for step in 0..100_000_u32 {
            let number = PrincipalId(step.wrapping_mul(2_654_435_761) % 1000);
            let stage = CpuStage { order: step % 3, weight: 1 };
            if queues.push(number, (FlowNumber(step % 50), stage), (step, 100), now).is_ok() {
                scheduler.wake(number, now);
            }
            now += std::time::Duration::from_micros(50);
            let Some(chosen) = scheduler.next(now) else { continue };
            queues.take(chosen, |_| true, |_| {});
            queues.charge(chosen, Cycles(50_000));
            scheduler.charge(chosen, Cycles(50_000), now);
            if !queues.is_backlogged(chosen) {
                scheduler.sleep(chosen, now);
            }
        }
        assert_eq!(ALLOCATIONS.get(), before, "{kind:?}");
    }
}

#[test]
fn turns_allocate_nothing_once_each_principal_has_joined() {
    let mut turns = CpuTurns::default();
    (0..1000).for_each(|number| turns.join(PrincipalId(number), 1 + u64::from(number)));
    let before = ALLOCATIONS.get();
    for step in 0..100_000_u32 {
        let Some(first) = turns.first() else { panic!("nobody waits") };
        turns.charge(first, std::time::Duration::from_micros(step.into()));
        turns.leave(first);
        turns.join(first, 1 + u64::from(first.0 + step % 3));
    }
    assert_eq!(ALLOCATIONS.get(), before);
}
