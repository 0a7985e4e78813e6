//! Test that no packet causes an allocation in the steady state, with any kind of node.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use millrace_schedule::*;
use millrace_units::Instant;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: all calls go unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
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
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let (sent, dropped) = load(&mut port, &mut now, 20_000);
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), before);
    assert!(sent > 7000 && dropped > 10_000, "{sent} sent, {dropped} dropped");
}
