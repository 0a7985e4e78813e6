//! `schedule`: cost of queueing, and memory of empty queues. The cost is nanoseconds per packet, for enqueue
//! and dequeue together, with 8,192 backlogged queues.
//!
//! Packets enter and leave in batches of 32, as in a worker. H-FSC dequeues packet by packet, since each
//! packet leaves at its own time. For each sent packet, another packet arrives at the same queue, so all
//! queues stay backlogged. The packets of a batch arrive in a different order. Each figure is the median of
//! 501 short rounds. The time of the bare loop, which only makes the arrivals, is subtracted. The peer is a
//! ring of the standard library in the same loop.

pub(crate) mod counted;
mod forwarding;

use std::collections::VecDeque;
use std::hint::black_box;
use std::num::NonZeroU64;
use std::time::Instant as Clock;

use millrace_schedule::{
    Arrival, BufferLimits, Curve, Curves, DropCause, FlowNumber, FlowQueuesSettings, FqCodelSettings, Item,
    LinkOverhead, LinkRate, LinkScheduler, NodeId, NodeKind, QueueSettings, Rate, Share,
};
use millrace_testkit::Random;
use millrace_units::Instant;

use crate::interrupt::check;
use crate::statistics::{extremes, median};
use crate::{BenchError, Bound, Measurement, Options};

/// Queue item of 8 bytes, as large as a packet reference. It holds queue number and packet length.
#[derive(Clone, Copy)]
struct Item8(NonZeroU64);

impl Item8 {
    #[inline]
    fn queue(self) -> u32 {
        (self.0.get() >> 32) as u32
    }
}

impl Item for Item8 {
    #[inline]
    fn length(&self) -> u32 {
        self.0.get() as u32
    }

    #[inline]
    fn mark_congestion(&mut self) -> bool {
        false
    }
}

/// Length of each packet in bytes.
const LENGTH: NonZeroU64 = NonZeroU64::MIN.saturating_add(999);
const BATCH: usize = 32;
const ROUNDS: usize = 501;
const BATCHES: usize = 64;

/// Set of queues that the loop measures.
trait Queues {
    /// Dequeues packets into `batch`; returns their number.
    fn send(&mut self, batch: &mut [Item8; BATCH]) -> usize;
    /// Returns the scheduler node that holds the packets of a queue.
    #[inline]
    fn node(&self, queue: u32) -> NodeId {
        NodeId(queue)
    }
    /// Enqueues the arriving packets.
    fn put(&mut self, coming: &mut Vec<Arrival<Item8>>);
}

struct Nothing;

impl Queues for Nothing {
    #[inline]
    fn send(&mut self, _batch: &mut [Item8; BATCH]) -> usize {
        BATCH
    }

    #[inline]
    fn put(&mut self, coming: &mut Vec<Arrival<Item8>>) {
        black_box(coming).clear();
    }
}

impl Queues for VecDeque<Item8> {
    #[inline]
    fn send(&mut self, batch: &mut [Item8; BATCH]) -> usize {
        for place in batch.iter_mut() {
            *place = self.pop_front().unwrap_or(item(0));
        }
        BATCH
    }

    #[inline]
    fn put(&mut self, coming: &mut Vec<Arrival<Item8>>) {
        self.extend(coming.drain(..).map(|arrival| arrival.item));
    }
}

/// Returns the nanoseconds per packet of each round.
fn rounds(queues: &mut impl Queues) -> Vec<f64> {
    (0..ROUNDS).map(|_| round(queues)).collect()
}

/// Runs one round: sends batches, and enqueues another packet for each sent packet. Returns the nanoseconds
/// per packet.
#[inline]
fn round(queues: &mut impl Queues) -> f64 {
    let mut coming = Vec::with_capacity(BATCH);
    let start = Clock::now();
    exchange(queues, BATCHES, &mut coming);
    start.elapsed().as_nanos() as f64 / (BATCHES * BATCH) as f64
}

/// Sends `batches` batches. Enqueues as many packets in the same queues, in a different order. Reads no
/// clock.
#[inline(always)]
fn exchange(queues: &mut impl Queues, batches: usize, coming: &mut Vec<Arrival<Item8>>) {
    for _ in 0..batches {
        let mut batch = [item(u32::MAX); BATCH];
        let sent = queues.send(&mut batch);
        coming.extend((0..BATCH).map(|index| {
            let item = black_box(batch[index * 13 % BATCH]);
            Arrival { leaf: queues.node(item.queue()), flow: FlowNumber(item.queue()), item }
        }));
        if sent < BATCH {
            coming.retain(|arrival: &Arrival<Item8>| arrival.item.queue() != u32::MAX);
        }
        queues.put(coming);
    }
}

/// Options, reference costs and results of the benchmark.
struct Run<'a, 'b> {
    options: &'a mut Options<'b>,
    /// Nanoseconds per packet of the bare loop.
    own: f64,
    /// Nanoseconds per packet of the same loop with a ring of the standard library.
    ring: f64,
    results: Vec<Measurement>,
}

impl Run<'_, '_> {
    /// Measures a scheduler tree; returns the nanoseconds per packet.
    fn measure(&mut self, case: &str, tree: &mut Tree, limit: Option<f64>) -> Result<f64, BenchError> {
        check()?;
        let held = tree.port.held_packets();
        let costs: Vec<f64> = rounds(tree).into_iter().map(|cost| cost - self.own).collect();
        if tree.port.held_packets() != held {
            return Err(failed(format!("{case}: packets were lost, or none was ready")));
        }
        let (cost, (least, _)) = (median(&costs), extremes(&costs));
        (self.options.progress)(&format!("{case}: {cost:.1} ns, {least:.1} at best"));
        let ring = limit.is_none().then_some(self.ring);
        let measured = Measurement::median_of(case, &costs, "ns/packet").promising(Bound::AtMost, limit);
        self.results.push(measured.beside("FIFO ring", ring));
        Ok(cost)
    }
}

fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::measurement("schedule", error.to_string())
}

/// Arrangement of the queues: all in one node, or each in its own node below the root.
#[derive(Clone, Copy)]
enum Places {
    Together,
    Apart,
}

impl Places {
    #[inline]
    fn node(self, queue: u32) -> NodeId {
        NodeId(match self {
            Self::Together => 0,
            Self::Apart => queue.wrapping_add(1),
        })
    }
}

struct Tree {
    port: LinkScheduler<Item8>,
    /// Arrangement of the queues in nodes.
    places: Places,
    now: u64,
    /// Virtual time that passes per packet, in nanoseconds.
    step: u64,
    random: Random,
}

fn item(queue: u32) -> Item8 {
    Item8(LENGTH | u64::from(queue) << 32)
}

impl Tree {
    fn new(places: Places, step: u64) -> Result<Self, BenchError> {
        let limits = BufferLimits { queues: 65_536, packets: 1 << 17, bytes: 1 << 30 };
        let link = LinkRate { rate: None, slack: 0 };
        let port = LinkScheduler::new(link, LinkOverhead::Ethernet, limits).map_err(failed)?;
        Ok(Self { port, places, now: 0, step, random: Random::new(1) })
    }

    fn add(
        &mut self,
        node: u32,
        parent: Option<u32>,
        share: Share,
        kind: &NodeKind,
    ) -> Result<(), BenchError> {
        let now = Instant::from_nanos(self.now);
        self.port.edit().add(NodeId(node), parent.map(NodeId), share, kind, now).map_err(failed)
    }

    fn enqueue(&mut self, queue: u32) {
        let now = Instant::from_nanos(self.now);
        let mut sink = |_: Item8, _: DropCause| {};
        self.port.enqueue(self.places.node(queue), FlowNumber(queue), item(queue), now, &mut sink);
    }

    /// Enqueues `each` packets per queue, in random order.
    fn fill(&mut self, queues: u32, each: u32) {
        let mut order: Vec<u32> = (0..queues * each).map(|index| index % queues).collect();
        self.random.shuffle(&mut order);
        for queue in order {
            self.enqueue(queue);
        }
    }
}

impl Queues for Tree {
    /// Dequeues a batch; returns the number of packets. Depending on the tree, all packets leave at the same
    /// time, or each at its own time.
    #[inline]
    fn send(&mut self, batch: &mut [Item8; BATCH]) -> usize {
        let mut sink = |_: Item8, _: DropCause| {};
        if self.step == 0 {
            let (now, mut places) = (Instant::from_nanos(self.now), batch.iter_mut());
            return self.port.dequeue_batch(BATCH, now, &mut sink, |item| {
                if let Some(place) = places.next() {
                    *place = item;
                }
            });
        }
        let mut sent = 0;
        for place in batch {
            self.now += self.step;
            if let Some(item) = self.port.dequeue(Instant::from_nanos(self.now), &mut sink) {
                *place = item;
                sent += 1;
            }
        }
        sent
    }

    #[inline]
    fn node(&self, queue: u32) -> NodeId {
        self.places.node(queue)
    }

    #[inline]
    fn put(&mut self, coming: &mut Vec<Arrival<Item8>>) {
        let now = Instant::from_nanos(self.now);
        self.port.enqueue_batch(coming, now, &mut |_: Item8, _: DropCause| {});
    }
}

const QUEUES: u32 = 8192;
/// Promised maximum: ratio of the cost with 10,000 leaves to the cost with 1,000. Logarithmic growth has this
/// ratio.
const LOGARITHM: f64 = 4.0 / 3.0;
/// Promised maximum: bytes of an empty queue.
const MEMORY: f64 = 128.0;

fn big_queue() -> QueueSettings {
    QueueSettings { threshold: 1 << 30, ..Default::default() }
}

/// Returns a tree whose single node holds all queues.
fn alone(kind: &NodeKind, each: u32) -> Result<Tree, BenchError> {
    let mut tree = Tree::new(Places::Together, 0)?;
    tree.add(0, None, Share::Only, kind)?;
    tree.fill(QUEUES, each);
    Ok(tree)
}

/// Returns a tree whose root is one node of a given kind, with FIFO queues below it.
fn above(
    kind: &NodeKind,
    (leaves, step): (u32, u64),
    share: impl Fn(u32) -> Share,
) -> Result<Tree, BenchError> {
    let mut tree = Tree::new(Places::Apart, step)?;
    tree.add(0, None, Share::Only, kind)?;
    for leaf in 0..leaves {
        tree.add(leaf + 1, Some(0), share(leaf), &NodeKind::Fifo(big_queue()))?;
    }
    tree.fill(leaves, 2);
    Ok(tree)
}

fn hfsc(leaves: u32, real_time: bool) -> Result<Tree, BenchError> {
    // All leaves together have 1,024 bytes per microsecond on the wire, about 8.2 Gb/s. Half of this rate is
    // guaranteed.
    let total = 8_192_000_000 / u64::from(leaves);
    let real_time =
        real_time.then_some(Curve { first: Rate(total), duration: 1_000_000, then: Rate(total / 2) });
    let curves = Curves { real_time, link_sharing: Some(Curve::linear(Rate(total))), upper_limit: None };
    above(&NodeKind::Hfsc, (leaves, 1000), |_| Share::Curves(curves))
}

fn flow_queues() -> NodeKind {
    NodeKind::FlowQueues(FlowQueuesSettings { queues: QUEUES, queue: big_queue(), ..Default::default() })
}

/// Returns the bytes that an empty queue takes, for two kinds of queue: a flow's queue in a leaf with a queue
/// per flow, and a queue in a node of its own.
fn memory() -> Result<[f64; 2], BenchError> {
    let mut nodes = Tree::new(Places::Together, 0)?;
    nodes.add(0, None, Share::Only, &NodeKind::Priority)?;
    let before = nodes.port.report().memory();
    for queue in 0..QUEUES {
        nodes.add(queue + 1, Some(0), Share::Level(queue), &NodeKind::Fifo(QueueSettings::default()))?;
    }
    let node = (nodes.port.report().memory() - before) as f64 / f64::from(QUEUES);
    let mut flows = Tree::new(Places::Together, 0)?;
    flows.add(0, None, Share::Only, &flow_queues())?;
    let before = flows.port.report().memory();
    flows.fill(QUEUES, 1);
    // Add 32 bytes per flow in the table that finds a flow's queue.
    let flow = (flows.port.report().memory() - before) as f64 / f64::from(QUEUES) + 32.0;
    Ok([flow, node])
}

/// Runs all cases of the benchmark `schedule`.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let own = median(&rounds(&mut Nothing));
    let ring = median(&rounds(&mut (0..QUEUES).map(item).collect::<VecDeque<_>>())) - own;
    let mut run = Run { options, own, ring, results: Vec::new() };
    run.measure("fifo, 8,192 packets", &mut alone(&NodeKind::Fifo(big_queue()), 1)?, Some(5.0))?;
    let mut priority = above(&NodeKind::Priority, (QUEUES, 0), Share::Level)?;
    run.measure("priority, 8,192 levels", &mut priority, Some(10.0))?;
    for each in [1, 2] {
        let case = format!("deficit round robin, 8,192 flows, {each} packet(s) each");
        run.measure(&case, &mut alone(&flow_queues(), each)?, Some(25.0))?;
    }
    let mut round_robin = above(&NodeKind::DeficitRoundRobin, (QUEUES, 0), |_| Share::Quantum(1538))?;
    run.measure("deficit round robin, 8,192 children", &mut round_robin, None)?;
    for flows in [8192, 1024] {
        let kind = NodeKind::FqCodel(FqCodelSettings { flows, limit: 1 << 20, ..Default::default() });
        let case = format!("fq-codel, 8,192 flows in {flows} buckets");
        run.measure(&case, &mut alone(&kind, 2)?, Some(50.0))?;
    }
    for real_time in [false, true] {
        let kind = if real_time { "real time and sharing" } else { "sharing" };
        let mut costs = Vec::new();
        for (leaves, limit) in [(10, None), (100, None), (1000, Some(150.0)), (10_000, None)] {
            let case = format!("h-fsc, {leaves} leaves, {kind}");
            costs.push(run.measure(&case, &mut hfsc(leaves, real_time)?, limit)?);
        }
        let case = format!("h-fsc, {kind}: 10,000 leaves, ratio to 1,000");
        let growth = Measurement::of(case, costs[3] / costs[2], "times").promising(Bound::AtMost, LOGARITHM);
        run.results.push(growth);
    }
    let [flow, node] = memory()?;
    let bytes = |case: &str, bytes| Measurement::of(case, bytes, "bytes").promising(Bound::AtMost, MEMORY);
    run.results.push(bytes("memory of an empty flow queue", flow));
    run.results.push(bytes("memory of an empty queue node", node));
    let forwarding = forwarding::measure(run.options)?;
    run.results.extend(forwarding);
    Ok(run.results)
}
