//! Third level of the CPU scheduler: stages of a flow's path that have queues of their own.
//!
//! The stages of a flow with waiting packets take turns by weighted deficit round robin in cycles: a stage
//! keeps its turn until it has used a quantum times its weight, and a stage that used more waits until later
//! turns have paid for the excess. A stage that is alone owes nothing. The flow's principal and the turns of
//! the flow itself don't change.

use millrace_units::Instant;

use super::chain::{Chain, Linked};
use crate::arena::{Arena, Held, List, Load, NONE};
use crate::slots::Slots;

/// Greatest debt of a flow or stage, in quanta. It bounds the turns that a charge ends.
pub(super) const MOST_DEBT: i64 = 1 << 10;

/// Stage of a flow's path at which packets wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuStage {
    /// Place of the stage in the order of stages: packets pass lower numbers first.
    pub order: u32,
    /// Weight among the stages of the flow, 1 or more.
    pub weight: u16,
}

impl CpuStage {
    /// Stage of flows whose packets wait at one place only.
    pub const ONLY: Self = Self { order: 0, weight: 1 };
}

/// Queue of a flow at a stage.
#[derive(Clone, Copy, Debug)]
pub(super) struct StageQueue {
    pub list: List,
    /// Cycles that the stage may still use in this turn; negative after a slice that was too long.
    deficit: i64,
    pub stage: CpuStage,
}

impl StageQueue {
    /// Returns an empty queue at the start of its turn.
    fn new(stage: CpuStage, quantum: i64) -> Self {
        let mut queue = Self { list: List::EMPTY, deficit: 0, stage };
        queue.deficit = queue.turn(quantum);
        queue
    }

    /// Returns the cycles of a turn.
    fn turn(&self, quantum: i64) -> i64 {
        quantum.saturating_mul(self.stage.weight.max(1).into())
    }
}

/// Queues of a flow: that of the stage whose turn it is, and a list of the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowStages {
    /// Queue of the stage whose turn it is. After [`StageQueues::charge`], it is empty only if the flow is.
    pub current: StageQueue,
    later: Chain,
}

impl FlowStages {
    /// Returns the queues of a flow without packets, whose next packet waits at `stage`.
    pub fn new(stage: CpuStage, quantum: i64) -> Self {
        Self { current: StageQueue::new(stage, quantum), later: Chain::EMPTY }
    }

    fn is_alone(&self) -> bool {
        self.later.is_empty()
    }
}

/// Queue of a stage whose turn comes later.
#[derive(Clone, Copy, Debug)]
struct Later {
    queue: StageQueue,
    /// Next queue of the flow in the order of turns.
    next: u32,
}

impl Linked for Later {
    fn next(&self) -> u32 {
        self.next
    }

    fn set_next(&mut self, number: u32) {
        self.next = number;
    }
}

/// Memory for the queues of all flows, except those of the stages whose turn it is.
#[derive(Debug)]
pub(super) struct StageQueues {
    later: Slots<Later>,
    most: u32,
}

impl StageQueues {
    /// Reserves memory for `most` queues.
    pub fn new(most: u32) -> Self {
        Self { later: Slots::with_capacity(most as usize), most }
    }

    /// Returns the load of a flow's queue at a stage.
    #[inline]
    pub fn load(&self, flow: &FlowStages, stage: CpuStage) -> Load {
        if flow.current.stage.order == stage.order {
            return flow.current.list.load;
        }
        self.find(flow, stage).map_or(List::EMPTY.load, |place| self.later[place].queue.list.load)
    }

    /// Returns the list for the next packet of a flow at a stage; `None` if it needs a queue, and its principal has
    /// as many as are free. `held`: number of queues of the principal here. The latest weight of a stage counts
    /// from its next turn on.
    #[inline]
    pub fn list<'a>(
        &'a mut self,
        (flow, held): (&'a mut FlowStages, &mut u32),
        stage: CpuStage,
        quantum: i64,
    ) -> Option<&'a mut List> {
        if flow.current.stage.order == stage.order {
            flow.current.stage = stage;
            return Some(&mut flow.current.list);
        }
        if flow.is_alone() && flow.current.list.is_empty() {
            flow.current = StageQueue::new(stage, quantum);
            return Some(&mut flow.current.list);
        }
        let place = match self.find(flow, stage) {
            Some(place) => place,
            None if *held >= self.most.saturating_sub(self.later.in_use()) => return None,
            None => {
                *held += 1;
                self.append(flow, StageQueue::new(stage, quantum))
            }
        };
        let queue = &mut self.later[place].queue;
        queue.stage = stage;
        Some(&mut queue.list)
    }

    /// Charges cycles to the stage whose turn it is, and ends its turn if it has used it up or has no more
    /// packets. `held`: number of queues of the flow's principal here.
    pub fn charge(&mut self, (flow, held): (&mut FlowStages, &mut u32), cycles: u64, quantum: i64) {
        let most_debt = quantum.saturating_mul(MOST_DEBT);
        flow.current.deficit = flow.current.deficit.saturating_sub_unsigned(cycles).max(-most_debt);
        while !flow.is_alone() {
            let turn = flow.current.turn(quantum);
            match (flow.current.deficit > 0, flow.current.list.is_empty()) {
                (true, false) => return,
                (true, true) => {
                    let Some(next) = self.pop_later(flow) else { return };
                    *held = held.saturating_sub(1);
                    flow.current = next;
                }
                (false, _) => {
                    flow.current.deficit = flow.current.deficit.saturating_add(turn);
                    let Some(next) = self.pop_later(flow) else { return };
                    let ended = std::mem::replace(&mut flow.current, next);
                    self.append(flow, ended);
                }
            }
        }
        if flow.current.deficit <= 0 {
            let turn = flow.current.turn(quantum);
            flow.current.deficit = turn.saturating_add(flow.current.deficit % turn);
        }
    }

    /// Returns the stages at which packets of a flow wait, by their order.
    #[inline]
    pub fn occupied(&self, flow: &FlowStages) -> impl Iterator<Item = u32> {
        let queues = self.places(flow).map(|(_, later)| later.queue).chain([flow.current]);
        queues.filter(|queue| !queue.list.is_empty()).map(|queue| queue.stage.order)
    }

    /// Returns the number of packets of a flow that wait at all stages, and their bytes.
    pub fn total(&self, flow: &FlowStages) -> (u32, u64) {
        let loads = self.places(flow).map(|(_, later)| later.queue.list.load).chain([flow.current.list.load]);
        loads.fold((0, 0), |(packets, bytes), load| {
            (packets + load.packets(), bytes + u64::from(load.bytes()))
        })
    }

    /// Takes packets out of all queues of a flow as [`Arena::extract`] does. `out` gets each with the place of its
    /// stage in the order of stages. In a queue, no packet gets an earlier time of arrival than those in front of it: a
    /// slice may end after the time at which the next iteration begins.
    pub fn extract<T>(
        &mut self,
        (arena, flow): (&mut Arena<T, ()>, &mut FlowStages),
        mut is_wanted: impl FnMut(&T) -> bool,
        mut out: impl FnMut(u32, Held<T, ()>),
    ) -> Load {
        let mut extract = |StageQueue { list, stage, .. }: &mut StageQueue| {
            let mut latest = Instant::ZERO;
            arena.extract(list, &mut is_wanted, |held| {
                latest = latest.max(held.arrival);
                out(stage.order, Held { arrival: latest, ..held });
            })
        };
        let (mut gone, mut place) = (extract(&mut flow.current), flow.later.first);
        while let Some(later) = self.later.find_mut(place) {
            gone = gone.plus(extract(&mut later.queue));
            place = later.next;
        }
        gone
    }

    fn find(&self, flow: &FlowStages, stage: CpuStage) -> Option<u32> {
        self.places(flow).find(|(_, later)| later.queue.stage.order == stage.order).map(|(place, _)| place)
    }

    fn places(&self, flow: &FlowStages) -> impl Iterator<Item = (u32, &Later)> {
        let at = |place: u32| Some((place, self.later.find(place)?));
        std::iter::successors(at(flow.later.first), move |(_, later)| at(later.next))
    }

    fn append(&mut self, flow: &mut FlowStages, queue: StageQueue) -> u32 {
        let place = self.later.insert(Later { queue, next: NONE });
        flow.later.push(place, &mut self.later);
        place
    }

    /// Takes the queue whose turn is next out of the list.
    fn pop_later(&mut self, flow: &mut FlowStages) -> Option<StageQueue> {
        let place = flow.later.pop(&self.later)?;
        let queue = self.later[place].queue;
        self.later.release(place);
        Some(queue)
    }
}
