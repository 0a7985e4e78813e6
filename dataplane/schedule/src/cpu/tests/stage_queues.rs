//! Stages of a flow that have queues of their own, beside the shares of a fluid scheduler.

use millrace_units::{Cycles, Instant, PrincipalId};
use proptest::prelude::*;

use crate::FlowNumber;
use crate::cpu::{CpuQueueLimits, CpuQueues, CpuStage};

const LIMITS: CpuQueueLimits = CpuQueueLimits { packets: 1 << 12, bytes: 1 << 20, flows: 64 };
const QUANTUM: u64 = 1000;
const PAYER: PrincipalId = PrincipalId(0);
const FLOW: FlowNumber = FlowNumber(7);

/// Flow whose packets wait at several stages. An item is the number of its stage.
struct Flow {
    queues: CpuQueues<usize>,
    weights: Vec<u16>,
    used: Vec<u64>,
}

impl Flow {
    /// Creates a flow with a packet at each stage.
    fn new(weights: &[u16]) -> Self {
        let mut queues = CpuQueues::new(LIMITS, Cycles(QUANTUM), 1);
        queues.set(PAYER, 1 << 16);
        let mut flow = Self { queues, weights: weights.to_vec(), used: vec![0; weights.len()] };
        (0..weights.len()).for_each(|stage| flow.push(stage));
        flow
    }

    fn push(&mut self, stage: usize) {
        let at = CpuStage { order: stage as u32, weight: self.weights[stage] };
        self.queues.push(PAYER, (FLOW, at), (stage, 100), Instant::ZERO).unwrap();
    }

    /// Runs a packet of the stage whose turn it is, and charges its cost. Returns the stage.
    fn run(&mut self, cost: impl FnOnce(usize) -> u64) -> usize {
        let (mut taken, mut asked) = (None, 0);
        let alone = |_: &usize| {
            asked += 1;
            asked == 1
        };
        self.queues.take(PAYER, alone, |stage| taken = Some(stage));
        let stage = taken.unwrap();
        let cycles = cost(stage);
        self.used[stage] += cycles;
        self.queues.charge(PAYER, Cycles(cycles));
        stage
    }

    /// Runs a packet of the stage whose turn it is. The stage stays busy.
    fn run_busy(&mut self, cost: impl FnOnce(usize) -> u64) {
        let Some(stage) = self.queues.first(PAYER).copied() else { panic!("no packet waits") };
        self.push(stage);
        self.run(cost);
    }
}

#[test]
fn busy_stages_share_the_cycles_of_their_flow_by_weight() {
    for costs in [[100, 100], [700, 50], [50, 700], [2300, 3100]] {
        let mut flow = Flow::new(&[3, 1]);
        for _ in 0..20_000 {
            flow.run_busy(|stage| costs[stage]);
        }
        let ratio = flow.used[0] as f64 / flow.used[1] as f64;
        assert!((2.97..3.03).contains(&ratio), "{ratio} for packets of {costs:?} cycles");
    }
}

#[test]
fn new_weight_counts_from_the_next_turn() {
    let mut flow = Flow::new(&[1, 1]);
    flow.weights = vec![1, 4];
    for _ in 0..20_000 {
        flow.run_busy(|_| 90);
    }
    let ratio = flow.used[1] as f64 / flow.used[0] as f64;
    assert!((3.96..4.04).contains(&ratio), "{ratio}");
}

#[test]
fn stage_that_was_alone_owes_nothing() {
    let mut flow = Flow::new(&[1, 1]);
    // Stage 1 becomes empty and ends; stage 0 goes on alone.
    while flow.queues.load(PAYER).0 > 1 || flow.queues.first(PAYER) == Some(&1) {
        if flow.queues.first(PAYER) == Some(&0) {
            flow.push(0);
        }
        flow.run(|_| 600);
    }
    for _ in 0..1000 {
        flow.run_busy(|_| 5000);
    }
    let before = flow.used.clone();
    flow.push(1);
    for _ in 0..200 {
        flow.run_busy(|_| 500);
    }
    let [first, second] = [0, 1].map(|stage| flow.used[stage] - before[stage]);
    assert!(first.abs_diff(second) <= 3 * QUANTUM, "{first} and {second} cycles");
}

#[test]
fn stages_without_memory_are_refused_and_others_go_on() {
    let limits = CpuQueueLimits { flows: 1, ..LIMITS };
    let mut queues = CpuQueues::new(limits, Cycles(QUANTUM), 1);
    queues.set(PAYER, 1 << 16);
    let mut push = |order| {
        let stage = CpuStage { order, weight: 1 };
        queues.push(PAYER, (FLOW, stage), (order, 100), Instant::ZERO).is_ok()
    };
    assert_eq!([0, 1, 2, 0, 1].map(&mut push), [true, true, false, true, true]);
    assert_eq!((queues.len(), queues.load(PAYER).2), (4, 1));
}

proptest! {
    /// The service of any two busy stages differs from their weights by a constant, however long they run.
    #[test]
    fn service_stays_near_that_of_a_fluid_scheduler(
        weights in prop::collection::vec(1_u16..20, 2..6),
        costs in prop::collection::vec(1_u64..4000, 50..400),
    ) {
        let mut flow = Flow::new(&weights);
        let (mut total, mut longest) = (0, 0);
        let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        for cost in costs {
            flow.run_busy(|_| cost);
            total += cost;
            longest = cost.max(longest);
            for (weight, used) in weights.iter().zip(&flow.used) {
                let fluid = total as f64 * f64::from(*weight) / sum as f64;
                let bound = f64::from(*weight) * (2 * QUANTUM + longest) as f64 + longest as f64;
                let error = (*used as f64 - fluid).abs();
                prop_assert!(error <= bound, "{error} cycles above {bound}: {:?} of {weights:?}", flow.used);
            }
        }
    }
}
