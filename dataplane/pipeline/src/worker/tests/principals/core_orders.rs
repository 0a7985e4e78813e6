//! Core first, and core with a share, under the same traffic: what each promises to plain packets and to principals.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::rc::Rc;

use millrace_packet::Batch;
use millrace_port::{Capabilities, PortCounters};

use super::*;
use crate::pending::core_settings::{CoreDivision, CoreOrder};
use crate::tsc::cycles;

/// First plain flow; the plain packets belong to eight flows.
const PLAIN: u8 = 100;
/// Processor time of core for a plain packet.
const COST: u64 = 2000;
/// Packets that arrive at once.
const BURST: u64 = 64;
/// Cycles from each second burst to the next one.
const GAP: u64 = 100_000;
/// Packets that the receive ring holds.
const RING: usize = 2048;
/// Cycles without plain packets at the start of a phase, in which core that comes first earns its burst.
const LEAD: u64 = 5_000_000;
/// Packets of a principal that wait: more than it runs in an iteration.
const WINDOW: u32 = 128;
/// Share of core.
const CEILING: f64 = 0.2;
/// Shares of the principals: three quarters and one quarter of the rest.
const SHARES: [(u32, u32); 2] = [(1, 3), (2, 1)];
/// Duration of a phase in cycles: 100 ms.
const PHASE: u64 = 100_000_000;

const FIRST: CoreSettings = CoreSettings {
    order: CoreOrder::First,
    shed: crate::pending::core_settings::Shed::Plain,
    division: CoreDivision::Undivided,
    forwarding_weight: 1024,
};
const SHARE: CoreSettings = CoreSettings { order: CoreOrder::Share, division: CoreDivision::ByLoad, ..FIRST };

/// Receive ring of a device, into which plain packets arrive at a pace of the cycle counter.
#[derive(Default)]
struct Ring {
    /// Cycles between two bursts on average; 0 for none.
    interval: u64,
    bursts: u64,
    next: u64,
    number: u16,
    /// Time of arrival and number of the packets in the ring.
    waiting: VecDeque<(u64, u16)>,
    received: u64,
    lost: u64,
    longest: u64,
}

struct RingPort(Rc<RefCell<Ring>>, Memory);

impl Port for RingPort {
    fn receive(&mut self, pool: &Pool, _now: Instant, batch: &mut Batch) {
        let (ring, now) = (&mut *self.0.borrow_mut(), cycles().unwrap());
        while ring.interval > 0 && ring.next <= now {
            for _ in 0..BURST {
                match ring.waiting.len() < RING {
                    true => ring.waiting.push_back((ring.next, ring.number)),
                    false => ring.lost += 1,
                }
                ring.number = ring.number.wrapping_add(1);
            }
            ring.bursts += 1;
            ring.next += if ring.bursts % 2 == 1 { GAP } else { 2 * ring.interval - GAP };
        }
        while batch.room() > 0
            && let Some((due, number)) = ring.waiting.pop_front()
        {
            ring.longest = ring.longest.max(now - due);
            ring.received += 1;
            let packet = pool.packet_from(&frame(PLAIN + (number % 8) as u8, number)).unwrap();
            batch.push(packet).unwrap();
        }
    }

    fn transmit(&mut self, _pool: &Pool, _now: Instant, batch: &mut Batch) {
        batch.clear();
    }

    fn flush(&mut self, _pool: &Pool, _now: Instant) {}

    fn has_arrivals(&self) -> Option<bool> {
        let ring = self.0.borrow();
        Some(!ring.waiting.is_empty() || ring.interval > 0 && ring.next <= cycles().unwrap())
    }

    fn counters(&mut self) -> PortCounters {
        PortCounters::default()
    }

    fn capabilities(&self) -> &Capabilities {
        self.1.capabilities()
    }

    fn descriptor(&self) -> Option<RawFd> {
        None
    }
}

/// Outcome of a phase: times in parts of the processor.
#[derive(Clone, Copy, Debug)]
struct Phase {
    core: f64,
    principals: [f64; 2],
    /// Plain packets that the ring lost, and that were shed.
    lost: u64,
    shed: u64,
    /// Longest time of a packet in the ring, in cycles.
    longest: u64,
}

/// World with burning principals, and plain packets that core forwards.
struct Contest {
    world: World,
    ring: Rc<RefCell<Ring>>,
    /// Number of the next packet of each principal.
    numbers: [u16; 2],
}

impl Contest {
    fn new() -> Self {
        let mut world = World::new();
        let ring = Rc::new(RefCell::new(Ring::default()));
        let port = RingPort(ring.clone(), Memory::new(MAC, 1500).0);
        world.worker.add_device(DeviceId(1), Box::new(port));
        let port = PortSettings { mac: MAC, addresses: Vec::new(), ..settings(1, Tags::NONE) };
        world.tell(PortCommand::Set(PortId(2), port));
        for (id, weight) in SHARES {
            world.set_principal(id, weight, 1 << 20);
            world.bind(id, id as u8, Some(id), (20_000, 0));
        }
        world.bind_plain();
        Self { world, ring, numbers: [0; 2] }
    }

    /// Keeps packets of both principals waiting, and runs an iteration. Time passes with the cycles.
    fn iterate(&mut self) {
        let counts = self.world.counts();
        for ((id, _), number) in SHARES.into_iter().zip(&mut self.numbers) {
            for _ in counts[&id].waiting..WINDOW {
                self.world.send(id as u8, *number);
                *number += 1;
            }
        }
        let now = Instant::from_nanos(cycles().unwrap());
        self.world.now = now;
        self.world.worker.iterate(now, || now);
    }

    /// Runs a phase with a load of plain packets, in parts of the processor.
    fn run(&mut self, core: CoreSettings, load: f64) -> Phase {
        self.world.set_core_within(core, CEILING);
        let start = cycles().unwrap();
        {
            let mut ring = self.ring.borrow_mut();
            (ring.interval, ring.next) = (((BURST * COST) as f64 / load) as u64, start + LEAD);
            (ring.lost, ring.longest) = (0, 0);
        }
        let (before, shed) = (self.world.counts(), self.shed());
        while cycles().unwrap() < start + PHASE {
            self.iterate();
        }
        let elapsed = (cycles().unwrap() - start) as f64;
        self.ring.borrow_mut().interval = 0;
        let after = self.world.counts();
        let part = |id: u32| (after[&id].used.0 - before[&id].used.0) as f64 / elapsed;
        let ring = self.ring.borrow();
        Phase {
            core: part(PrincipalId::CORE.0),
            principals: SHARES.map(|(id, _)| part(id)),
            lost: ring.lost,
            shed: self.shed() - shed,
            longest: ring.longest,
        }
    }

    fn shed(&self) -> u64 {
        self.world.worker.router.pending.for_processor.get().unwrap().core.counts.shed
    }

    /// Whether each received packet is held or has left the router.
    fn check_held(&self) {
        let totals = &self.world.worker.router.observation.totals;
        assert_eq!(totals.received, totals.dropped + carried(&self.world.worker.router));
    }

    fn check(mut self) {
        while !self.ring.borrow().waiting.is_empty() {
            self.iterate();
        }
        self.world.sent += self.ring.borrow().received;
        self.world.check();
    }
}

impl World {
    /// Binds an instance to the plain flows, whose calls core pays for.
    fn bind_plain(&mut self) {
        let instance = Slow { cycles: COST, suspensions: 0, left: 0, seen: Seen::default() };
        self.change(PluginChange::AddInstance { id: InstanceId(9), instance: Box::new(instance) });
        self.bind_at(GATE, 9, (9, "dst 10.0.0.96/27"), None);
    }
}

/// Asserts that principals have `rest` of the processor, three to one.
fn assert_shares(phase: Phase, rest: f64) {
    let [three, one] = phase.principals;
    assert!((three + one - rest).abs() < 0.02 && (three / one - 3.0).abs() < 0.1, "{phase:?}");
}

/// With less plain traffic than the share of core, both lose nothing, and the first order delays it least. With more,
/// both give core its share, and principals theirs. A change between them costs no packet.
#[test]
fn core_first_and_core_with_a_share_keep_their_promises_under_the_same_traffic() {
    let mut contest = Contest::new();
    let mut longest = [0, 0];
    for _ in 0..2 {
        for (core, longest) in [FIRST, SHARE].into_iter().zip(&mut longest) {
            let below = contest.run(core, 0.15);
            contest.check_held();
            assert_eq!((below.lost, below.shed), (0, 0), "{core:?}: {below:?}");
            assert!((below.core - 0.15).abs() < 0.015, "{core:?}: {below:?}");
            assert_shares(below, 0.85);
            *longest = below.longest;
            // The worker notices the overload.
            contest.run(core, 0.6);
            let above = contest.run(core, 0.6);
            contest.check_held();
            assert!(above.lost == 0 && above.shed > 10_000, "{core:?}: {above:?}");
            assert!((above.core - CEILING).abs() < 0.01, "{core:?}: {above:?}");
            assert_shares(above, 1.0 - CEILING);
            // Ends the overload.
            contest.run(core, 0.001);
        }
    }
    let [first, share] = longest;
    let Cycles(quantum) = QUANTUM;
    assert!(first <= 3 * quantum && share > 4 * quantum, "{first} {share}");
    contest.check();
}

/// While no packet arrives, principals run for two quanta; otherwise until the slice in which one arrives ends.
#[test]
fn principals_run_until_a_receive_ring_needs_service() {
    let mut contest = Contest::new();
    contest.world.set_core_within(FIRST, 0.5);
    contest.iterate();
    let time = |contest: &mut Contest, arrival: Option<u64>| {
        let begun = cycles().unwrap();
        let mut ring = contest.ring.borrow_mut();
        (ring.interval, ring.next) = (arrival.map_or(0, |_| 1 << 40), begun + arrival.unwrap_or_default());
        drop(ring);
        contest.iterate();
        contest.ring.borrow_mut().interval = 0;
        (cycles().unwrap() - begun) / QUANTUM.0
    };
    assert_eq!(time(&mut contest, None), 2);
    // The first burst arrives after the reception.
    assert_eq!(time(&mut contest, Some(1000)), 1);
    contest.check();
}
