//! Queue of a flow, and the queues of a principal.

use super::chain::{Chain, Linked};
use super::stage_queues::FlowStages;
use crate::FlowNumber;
use crate::arena::{Load, NONE};
use crate::slots::Slots;

/// Queue of a flow, or of the flows of a principal without a queue of their own.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowQueue {
    pub stages: FlowStages,
    pub principal: u32,
    /// Flow number in the flow table; `None` for the shared queue of a principal.
    pub flow: Option<FlowNumber>,
    /// Next queue of the principal in the order of turns, or of those that are set aside.
    pub next: u32,
    /// Cycles that the queue may still use in this turn; negative after a slice that was too long.
    pub deficit: i64,
    /// Cycles charged since the queue began.
    pub used: u64,
    /// Packets refused since the queue began.
    pub dropped: u64,
}

impl Linked for FlowQueue {
    fn next(&self) -> u32 {
        self.next
    }

    fn set_next(&mut self, number: u32) {
        self.next = number;
    }
}

/// Gives each queue of a chain its quanta of all the rounds in which none of them could run, at once.
pub(super) fn skip_rounds(turns: Chain, queues: &mut Slots<FlowQueue>, quantum: i64) {
    let (mut most, mut number) = (i64::MIN, turns.first);
    while let Some(queue) = queues.find(number) {
        (most, number) = (most.max(queue.deficit), queue.next);
    }
    let skipped = most.min(0).saturating_neg() / quantum.max(1) * quantum;
    number = turns.first;
    while let Some(queue) = queues.find_mut(number) {
        queue.deficit = queue.deficit.saturating_add(skipped);
        number = queue.next;
    }
}

/// Queues of a principal, in one cache line.
#[repr(align(64))]
#[derive(Clone, Copy, Debug)]
pub(super) struct Backlog {
    /// Queues in the order of turns.
    pub turns: Chain,
    /// Queues that are set aside.
    pub aside: Chain,
    /// Next principal whose queues that are set aside will be looked at.
    pub next: u32,
    /// Whether the queues that are set aside will be looked at.
    pub awaits_look: bool,
    /// Queue of the flows without one of their own; [`NONE`] if it is empty.
    pub shared: u32,
    /// Maximum number of bytes in a queue.
    pub threshold: u32,
    /// All waiting packets.
    pub load: Load,
    /// Number of queues of flows, and of further queues for flows that wait at several stages.
    pub queues: u32,
    pub later: u32,
    pub dropped: u64,
    pub is_known: bool,
}

const _: () = assert!(size_of::<Backlog>() == 64);

impl Backlog {
    pub const UNKNOWN: Self = Self {
        turns: Chain::EMPTY,
        aside: Chain::EMPTY,
        next: NONE,
        awaits_look: false,
        shared: NONE,
        threshold: 0,
        load: Load::NOTHING,
        queues: 0,
        later: 0,
        dropped: 0,
        is_known: false,
    };
}

impl Linked for Backlog {
    fn next(&self) -> u32 {
        self.next
    }

    fn set_next(&mut self, number: u32) {
        self.next = number;
    }
}
