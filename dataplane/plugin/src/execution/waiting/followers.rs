//! Packets that wait behind calls of ended stages.
//!
//! A binding may end while packets of a flow are in a call of its stage, or wait for the end of such a call. The paths
//! of later packets lack this stage, so nothing would keep these packets behind the earlier ones. Therefore the gate
//! of an ended stage is a barrier for these flows, whatever path their packets have. It stands until the last packet of
//! the flow has left the calls. Then the packets at the barrier continue in their order.
//!
//! Packets whose path has a new binding at the gate wait at the barrier, too. If they wait for the processor before the
//! new binding, they stay in that queue instead.

use std::collections::VecDeque;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use millrace_packet::FlowKey;
use millrace_plugin_abi::Position;

use super::{Backlog, MOST_BEHIND, Place, Waiting};
use crate::GateOrder;

/// Barrier at the gate of ended stages.
#[derive(Debug)]
struct Barrier {
    /// Rank of the gate among all gates.
    order: u32,
    /// Hashes of the flows with packets in calls of the stages, in ascending order.
    flows: Vec<u64>,
    /// Packets of these flows that wait at the gate, and their [places](Waiting::places).
    waiting: VecDeque<Waiting>,
    places: usize,
}

impl Barrier {
    fn holds(&self, key: &FlowKey) -> bool {
        self.flows.binary_search(&flow_of(key)).is_ok()
    }
}

/// Returns the hash of a flow. It needs no secret seed: flows with one hash wait for each other, and no longer than for
/// the end of a call.
fn flow_of(key: &FlowKey) -> u64 {
    FixedState::default().hash_one(key)
}

/// Barriers of a worker.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    /// Barriers in ascending order of ranks. Each has flows.
    barriers: Vec<Barrier>,
    /// Rank of the first gate that the packets of the running batch have not passed; 0 if their place tells it.
    pub reached: u32,
}

impl Followers {
    /// Whether no barrier stands.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.barriers.is_empty()
    }

    /// Whether packets of a flow wait at the gate of rank `order`.
    #[inline]
    pub fn holds(&self, order: u32, key: &FlowKey) -> bool {
        let is_here = |barrier: &Barrier| barrier.order == order && barrier.holds(key);
        self.barriers.iter().any(is_here)
    }

    /// Returns the rank of the first gate with a barrier at a position, from the rank `reached` on.
    pub fn next_at(&self, position: Position, reached: u32) -> Option<u32> {
        self.at(position, reached).next().map(|barrier| barrier.order)
    }

    /// Returns the rank of the first gate at a position at which packets of a flow wait, from the rank `reached` on.
    pub fn first_of(&self, key: &FlowKey, position: Position, reached: u32) -> Option<u32> {
        self.at(position, reached).find(|barrier| barrier.holds(key)).map(|barrier| barrier.order)
    }

    fn at(&self, position: Position, reached: u32) -> impl Iterator<Item = &Barrier> {
        let gates = reached..=GateOrder(u16::MAX).among_all(position);
        self.barriers.iter().filter(move |barrier| gates.contains(&barrier.order))
    }

    /// Lets a packet wait at the gate of rank `order`, if there is room.
    ///
    /// # Errors
    /// The packet, if `has_room` is false, too many packets wait at the gate, or the barrier stands no longer.
    pub fn push(&mut self, order: u32, waiting: Waiting, has_room: bool) -> Result<(), Waiting> {
        match self.barriers.iter_mut().find(|barrier| barrier.order == order) {
            Some(barrier) if has_room && barrier.waiting.len() < MOST_BEHIND => {
                barrier.places += waiting.places();
                barrier.waiting.push_back(waiting);
                Ok(())
            }
            _ => Err(waiting),
        }
    }

    /// Finds the flows with packets in the calls of ended stages, or behind such calls. `ended`: rank of the gate of a
    /// stage that has ended; `None` for all others.
    pub fn find(&mut self, backlogs: &[Backlog], ended: impl Fn(Place) -> Option<u32>) {
        self.barriers.iter_mut().for_each(|barrier| barrier.flows.clear());
        for Backlog { call, behind, .. } in backlogs {
            if let Some(order) = call.place.and_then(&ended) {
                call.keys.iter().for_each(|key| self.add(order, key));
            }
            for waiting in &behind.packets {
                if let Some(order) = ended(waiting.place) {
                    self.add(order, &waiting.key);
                }
            }
        }
        for Barrier { flows, .. } in &mut self.barriers {
            flows.sort_unstable();
            flows.dedup();
        }
    }

    fn add(&mut self, order: u32, key: &FlowKey) {
        let place = self.barriers.partition_point(|barrier| barrier.order < order);
        let flow = flow_of(key);
        match self.barriers.get_mut(place).filter(|barrier| barrier.order == order) {
            Some(barrier) => barrier.flows.push(flow),
            None => {
                let barrier = Barrier { order, flows: vec![flow], waiting: VecDeque::new(), places: 0 };
                self.barriers.insert(place, barrier);
            }
        }
    }

    /// Gives each packet that need not wait any longer to `each`, with the rank of its gate, and ends the barriers
    /// without flows. To be called after [`find`](Self::find).
    pub fn release(&mut self, mut each: impl FnMut(u32, Waiting)) {
        for Barrier { order, flows, waiting, places } in &mut self.barriers {
            for _ in 0..waiting.len() {
                let Some(first) = waiting.pop_front() else { break };
                match flows.binary_search(&flow_of(&first.key)) {
                    Ok(_) => waiting.push_back(first),
                    Err(_) => {
                        *places -= first.places();
                        each(*order, first);
                    }
                }
            }
        }
        self.barriers.retain(|barrier| !barrier.flows.is_empty());
    }

    /// Returns the waiting packets.
    pub fn iter(&self) -> impl Iterator<Item = &Waiting> {
        self.barriers.iter().flat_map(|barrier| &barrier.waiting)
    }

    /// Returns the number of waiting packets.
    pub fn len(&self) -> usize {
        self.barriers.iter().map(|barrier| barrier.waiting.len()).sum()
    }

    /// Returns the [places](Waiting::places) of the waiting packets.
    pub fn places(&self) -> usize {
        self.barriers.iter().map(|barrier| barrier.places).sum()
    }
}
