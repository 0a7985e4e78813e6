//! Packets that wait for the processor: a queue per flow, under the principal that pays for the flow.
//!
//! The queues of a principal take turns by deficit round robin in cycles (Shreedhar and Varghese, 1995): a
//! queue keeps its turn until it has used a quantum, and a queue that used more waits until later quanta have
//! paid for the excess, also if it is empty meanwhile. A flow without packets and without excess has no queue, and
//! no debt outlives the last packet of its principal.
//!
//! All queues share one bounded memory, and bounded numbers of queues. A principal gets no more of each than is
//! free, and a queue no more than what its principal may still get (dynamic thresholds with a factor of one:
//! Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998). So `k` floods leave one part of `k + 1` to
//! others.
//!
//! The packets of a flow that wait at several stages of its path wait in a queue for each stage
//! (`stage_queues.rs`).

mod aside;

use std::collections::BTreeSet;

use millrace_memory::prefetch_whole_element;
use millrace_units::{Cycles, Instant, PrincipalId};

use super::account::{CpuDrop, CpuFlowAccount};
use super::chain::Chain;
use super::flow_queue::{Backlog, FlowQueue, skip_rounds};
use super::settings::CpuQueueLimits;
use super::stage_queues::{CpuStage, FlowStages, MOST_DEBT, StageQueues};
use crate::FlowNumber;
use crate::arena::{Arena, Held, List, Load, NONE};
use crate::flow_table::FlowTable;
use crate::slots::Slots;

/// Queue of the packet that arrived last. Packets of a flow often arrive together.
#[derive(Clone, Copy, Debug)]
struct Latest {
    principal: u32,
    flow: FlowNumber,
    /// Queue; [`NONE`] once it has ended.
    queue: u32,
}

/// Returns why a packet of `length` bytes may not wait in a queue with the load `load`; `None` if it may.
#[inline]
fn refusal<T>(arena: &Arena<T, ()>, backlog: &Backlog, load: Load, length: u32) -> Option<CpuDrop> {
    if u64::from(load.bytes()) + u64::from(length) > u64::from(backlog.threshold) {
        return Some(CpuDrop::Threshold);
    }
    (!arena.has_room(load.plus(backlog.load), length)).then_some(CpuDrop::Part)
}

/// Packets that wait for the processor, by principal and flow.
#[derive(Debug)]
pub struct CpuQueues<T> {
    arena: Arena<T, ()>,
    queues: Slots<FlowQueue>,
    stages: StageQueues,
    /// Principals with queues that are set aside, and their number.
    aside: Chain,
    principals_aside: u32,
    backlogs: Slots<Backlog>,
    flows: FlowTable,
    latest: Latest,
    /// Principals of the last two calls of [`prefetch`](Self::prefetch), the latest first; [`NONE`] for nobody.
    upcoming: [[u32; 2]; 2],
    limits: CpuQueueLimits,
    quantum: i64,
}

impl<T> CpuQueues<T> {
    /// Creates empty queues. A queue keeps its turn for `quantum` cycles, at least 1. `seed` keys the hash of
    /// flow numbers.
    pub fn new(limits: CpuQueueLimits, quantum: Cycles, seed: u64) -> Self {
        Self {
            arena: Arena::new(limits.packets, limits.bytes),
            queues: Slots::with_capacity(limits.flows as usize),
            stages: StageQueues::new(limits.flows),
            aside: Chain::EMPTY,
            principals_aside: 0,
            backlogs: Slots::default(),
            flows: FlowTable::new(limits.flows, seed),
            latest: Latest { principal: 0, flow: FlowNumber(0), queue: NONE },
            upcoming: [[NONE; 2]; 2],
            limits,
            quantum: i64::try_from(quantum.0).unwrap_or(i64::MAX).max(1),
        }
    }

    /// Adds a principal, or changes its threshold in bytes. Waiting packets stay.
    pub fn set(&mut self, PrincipalId(number): PrincipalId, threshold: u32) {
        while self.backlogs.len() <= number as usize {
            self.backlogs.push(Backlog::UNKNOWN);
        }
        // Each principal may have a shared queue beside the queues of flows.
        let most = self.limits.flows as usize + self.backlogs.len();
        self.queues.reserve(most.saturating_sub(self.queues.len()));
        let backlog = &mut self.backlogs[number];
        (backlog.threshold, backlog.is_known) = (threshold, true);
    }

    /// Takes the packets that `is_wanted` accepts out of the queues, also from their middle. `out` gets each packet with
    /// the order of its stage and the time of its arrival; packets of a queue come in the order of arrival. Other packets
    /// keep their places. Queues that were set aside take turns again if their principal has lost packets.
    pub fn extract(
        &mut self,
        mut is_wanted: impl FnMut(PrincipalId, &T) -> bool,
        mut out: impl FnMut(u32, Instant, T),
    ) {
        let mut losers = BTreeSet::new();
        for number in 0..self.queues.len() as u32 {
            let FlowQueue { stages, principal, .. } = &mut self.queues[number];
            let wanted = |item: &T| is_wanted(PrincipalId(*principal), item);
            let gone = self.stages.extract((&mut self.arena, stages), wanted, |order, held| {
                out(order, held.arrival, held.item);
            });
            if gone != Load::NOTHING {
                let backlog = &mut self.backlogs[*principal];
                backlog.load = backlog.load.minus(gone);
                self.stages.charge((stages, &mut backlog.later), 0, self.quantum);
                losers.insert(*principal);
            }
        }
        self.each_aside(u32::MAX, |queues, number| {
            if losers.contains(&number) {
                queues.join_turns(number);
            }
            false
        });
        losers.into_iter().for_each(|number| self.charge(PrincipalId(number), Cycles(0)));
    }

    /// Removes a principal, and gives its waiting packets to `out` as [`extract`](Self::extract) does.
    pub fn remove(&mut self, principal: PrincipalId, out: impl FnMut(u32, Instant, T)) {
        let PrincipalId(number) = principal;
        self.extract(|owner, _| owner == principal, out);
        while self.backlogs.find(number).is_some_and(|backlog| !backlog.turns.is_empty()) {
            self.charge(principal, Cycles(0));
        }
        if let Some(backlog) = self.backlogs.find_mut(number) {
            *backlog = Backlog::UNKNOWN;
        }
    }

    /// Puts a packet of `length` bytes at the end of its flow's queue at a stage.
    ///
    /// # Errors
    /// The packet, if it may not wait.
    #[inline]
    pub fn push(
        &mut self,
        principal: PrincipalId,
        (flow, stage): (FlowNumber, CpuStage),
        (item, length): (T, u32),
        now: Instant,
    ) -> Result<(), (T, CpuDrop)> {
        let (PrincipalId(number), held) = (principal, Held { item, arrival: now, length, flow: () });
        let Self { arena, queues, backlogs, latest, .. } = self;
        // Packets of a flow often arrive together.
        if (latest.principal, latest.flow) == (number, flow)
            && let Some(queue) = queues.find_mut(latest.queue)
            && let Some(backlog) = backlogs.find_mut(number)
            && queue.stages.current.stage == stage
            && refusal(arena, backlog, queue.stages.current.list.load, length).is_none()
        {
            arena.push(&mut queue.stages.current.list, held);
            backlog.load = backlog.load.plus(Load::of_packet(length));
            return Ok(());
        }
        self.push_anywhere(number, (flow, stage), held)
    }

    /// Puts a packet at the end of its flow's queue at a stage, whichever packet arrived before.
    fn push_anywhere(
        &mut self,
        number: u32,
        (flow, stage): (FlowNumber, CpuStage),
        held: Held<T, ()>,
    ) -> Result<(), (T, CpuDrop)> {
        let Some(backlog) = self.backlogs.find(number).filter(|it| it.is_known) else {
            return Err((held.item, CpuDrop::Principal));
        };
        let known = self.queue_of(number, flow);
        let load =
            known.map_or(List::EMPTY.load, |queue| self.stages.load(&self.queues[queue].stages, stage));
        if let Some(why) = refusal(&self.arena, backlog, load, held.length) {
            self.count_drop(number, known);
            return Err((held.item, why));
        }
        let queue = match known {
            Some(queue) => queue,
            None => self.begin_queue(number, (flow, stage)),
        };
        self.latest = Latest { principal: number, flow, queue };
        let backlog = &mut self.backlogs[number];
        let flow_stages = (&mut self.queues[queue].stages, &mut backlog.later);
        let Some(list) = self.stages.list(flow_stages, stage, self.quantum) else {
            self.count_drop(number, Some(queue));
            return Err((held.item, CpuDrop::Part));
        };
        backlog.load = backlog.load.plus(Load::of_packet(held.length));
        self.arena.push(list, held);
        Ok(())
    }

    /// Returns the packet that [`take`](Self::take) would offer first.
    #[inline]
    pub fn first(&self, PrincipalId(number): PrincipalId) -> Option<&T> {
        let queue = self.queues.find(self.backlogs.find(number)?.turns.first)?;
        self.arena.first(&queue.stages.current.list)
    }

    /// Returns the arrival time of this packet.
    #[inline]
    pub fn first_arrival(&self, PrincipalId(number): PrincipalId) -> Option<Instant> {
        let queue = self.queues.find(self.backlogs.find(number)?.turns.first)?;
        self.arena.head_arrival(&queue.stages.current.list)
    }

    /// Returns the stages at which packets of a flow wait, by their order.
    #[inline]
    pub fn occupied(&self, principal: PrincipalId, flow: FlowNumber) -> impl Iterator<Item = u32> {
        let PrincipalId(number) = principal;
        let queue = self.backlogs.find(number).and_then(|_| self.queue_of(number, flow));
        let flow = queue.and_then(|queue| self.queues.find(queue));
        flow.into_iter().flat_map(|queue| self.stages.occupied(&queue.stages))
    }

    /// Takes packets from the front of the queue whose turn it is, while `wanted` accepts the next one, and
    /// gives them to `out`. Call [`charge`](Self::charge) afterwards.
    #[inline]
    pub fn take(
        &mut self,
        PrincipalId(number): PrincipalId,
        wanted: impl FnMut(&T) -> bool,
        out: impl FnMut(T),
    ) {
        let Some(backlog) = self.backlogs.find_mut(number).filter(|it| !it.turns.is_empty()) else { return };
        let mut opened = self.arena.open();
        let gone = opened.pop_wanted(&mut self.queues[backlog.turns.first].stages.current.list, wanted, out);
        opened.close();
        backlog.load = backlog.load.minus(gone);
    }

    /// Prefetches the packets of principals that get the processor soon. To be called once in a slice: each call
    /// prefetches one of the links from a principal to its packets, for the principals of the last three calls.
    #[inline]
    pub fn prefetch(&mut self, upcoming: [Option<PrincipalId>; 2]) {
        let upcoming = upcoming.map(|principal| principal.map_or(NONE, |PrincipalId(number)| number));
        let [before, earlier] = self.upcoming;
        self.upcoming = [upcoming, before];
        for number in upcoming.into_iter().filter(|number| *number != NONE) {
            prefetch_whole_element(self.backlogs.all(), number as usize);
        }
        for number in before {
            if let Some(backlog) = self.backlogs.find(number) {
                prefetch_whole_element(self.queues.all(), backlog.turns.first as usize);
            }
        }
        for number in earlier {
            let queue = self.backlogs.find(number).and_then(|backlog| self.queues.find(backlog.turns.first));
            if let Some(queue) = queue {
                self.arena.prefetch_run(&queue.stages.current.list);
            }
        }
    }

    /// Charges cycles to the flow and the stage whose turn it is, and ends their turns if they have used them
    /// up or are empty. An empty queue stays until it has paid its debt.
    pub fn charge(&mut self, PrincipalId(number): PrincipalId, Cycles(cycles): Cycles) {
        let Some(backlog) = self.backlogs.find_mut(number).filter(|it| !it.turns.is_empty()) else { return };
        let quantum = self.quantum;
        let queue = &mut self.queues[backlog.turns.first];
        let most_debt = quantum.saturating_mul(MOST_DEBT);
        queue.deficit = queue.deficit.saturating_sub_unsigned(cycles).max(-most_debt);
        queue.used = queue.used.saturating_add(cycles);
        self.stages.charge((&mut queue.stages, &mut backlog.later), cycles, quantum);
        let start = backlog.turns.first;
        while let Some(queue) = self.first_of(number) {
            match (queue.deficit > 0, queue.stages.current.list.is_empty()) {
                (true, true) => self.end_queue(number),
                (true, false) => return,
                (false, _) => {
                    queue.deficit = queue.deficit.saturating_add(quantum);
                    self.rotate(number);
                    // Debts of many queues would take many rounds.
                    let turns = self.backlogs[number].turns;
                    if turns.first == start {
                        skip_rounds(turns, &mut self.queues, quantum);
                    }
                }
            }
        }
    }

    /// Whether a queue of a principal takes turns.
    #[inline]
    pub fn is_ready(&self, PrincipalId(number): PrincipalId) -> bool {
        self.backlogs.find(number).is_some_and(|backlog| !backlog.turns.is_empty())
    }

    /// Whether packets wait for a principal.
    #[inline]
    pub fn is_backlogged(&self, PrincipalId(number): PrincipalId) -> bool {
        self.backlogs.find(number).is_some_and(|backlog| backlog.load != Load::NOTHING)
    }

    /// Returns the number of waiting packets of a principal, their bytes, and the number of packets that might
    /// not wait.
    pub fn load(&self, PrincipalId(number): PrincipalId) -> (u32, u64, u64) {
        let backlog = self.backlogs.find(number);
        backlog.map_or((0, 0, 0), |it| (it.load.packets(), it.load.bytes().into(), it.dropped))
    }

    /// Returns the account of a flow's queue; `None` if the flow has no queue of its own under the principal.
    pub fn account(&self, PrincipalId(number): PrincipalId, flow: FlowNumber) -> Option<CpuFlowAccount> {
        let queue = &self.queues[self.flows.get(flow)?];
        let (packets, bytes) = self.stages.total(&queue.stages);
        let FlowQueue { used, dropped, .. } = *queue;
        (queue.principal == number).then_some(CpuFlowAccount { used: Cycles(used), packets, bytes, dropped })
    }

    /// Returns the number of waiting packets of all principals.
    #[inline]
    pub fn len(&self) -> usize {
        self.arena.load.packets() as usize
    }

    /// Whether no packet waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all waiting packets, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.arena.iter()
    }

    /// Counts a refused packet, also for its flow's queue if there is one.
    #[cold]
    fn count_drop(&mut self, principal: u32, queue: Option<u32>) {
        self.backlogs[principal].dropped += 1;
        if let Some(queue) = queue {
            self.queues[queue].dropped += 1;
        }
    }

    fn first_of(&mut self, number: u32) -> Option<&mut FlowQueue> {
        let first = self.backlogs[number].turns.first;
        (first != NONE).then(|| &mut self.queues[first])
    }

    /// Returns the queue for a flow's next packet; `None` if it has to be made. While the shared queue holds
    /// packets, flows without a queue of their own stay there: some of these packets may be theirs.
    #[inline]
    fn queue_of(&self, principal: u32, flow: FlowNumber) -> Option<u32> {
        let Latest { queue, .. } = self.latest;
        if (self.latest.principal, self.latest.flow) == (principal, flow) && queue != NONE {
            return Some(queue);
        }
        let Backlog { turns: Chain { last, .. }, shared, .. } = self.backlogs[principal];
        // Many principals have a single flow, whose queue is at hand.
        if self.queues.find(last).is_some_and(|queue| queue.flow == Some(flow)) {
            return Some(last);
        }
        let own = self.flows.get(flow).filter(|queue| self.queues[*queue].principal == principal);
        own.or_else(|| (shared != NONE).then_some(shared))
    }

    /// Whether a flow can get a queue of its own: its number is in no other principal's use, and its principal has
    /// fewer queues than are free.
    fn may_begin(&self, principal: u32, flow: FlowNumber) -> bool {
        let free = self.limits.flows.saturating_sub(self.queues.in_use());
        self.flows.get(flow).is_none() && self.backlogs[principal].queues < free
    }

    fn begin_queue(&mut self, principal: u32, (flow, stage): (FlowNumber, CpuStage)) -> u32 {
        let own = self.may_begin(principal, flow).then_some(flow);
        let deficit = self.quantum;
        let stages = FlowStages::new(stage, deficit);
        let flow_queue = FlowQueue { stages, principal, flow: own, next: NONE, deficit, used: 0, dropped: 0 };
        let queue = self.queues.insert(flow_queue);
        match own {
            Some(flow) => self.flows.insert(flow, queue),
            None => self.backlogs[principal].shared = queue,
        }
        let backlog = &mut self.backlogs[principal];
        backlog.queues += 1;
        backlog.turns.push(queue, &mut self.queues);
        queue
    }

    /// Removes the empty first queue of a principal.
    fn end_queue(&mut self, principal: u32) {
        let Some(queue) = self.pop_turn(principal) else { return };
        if self.latest.queue == queue {
            self.latest.queue = NONE;
        }
        match self.queues[queue].flow {
            Some(flow) => self.flows.remove(flow),
            None => self.backlogs[principal].shared = NONE,
        }
        self.backlogs[principal].queues -= 1;
        self.queues.release(queue);
    }

    fn rotate(&mut self, principal: u32) {
        let Some(queue) = self.pop_turn(principal) else { return };
        self.backlogs[principal].turns.push(queue, &mut self.queues);
    }

    /// Takes the first queue of a principal out of the order of turns.
    fn pop_turn(&mut self, principal: u32) -> Option<u32> {
        self.backlogs.find_mut(principal)?.turns.pop(&self.queues)
    }
}
