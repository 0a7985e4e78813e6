//! Record of the flows that may have packets in a shared queue.
//!
//! There are two sets of marks (Bloom filters with one hash; Bloom, 1970). An arriving packet marks its flow
//! in the current set. When all packets that arrived before the current set began have left, the other set is
//! cleared and becomes current. So a flow with no mark in either set has no packets in the queue. A flow that
//! stops sending loses its marks, even if the queue is never empty.

use crate::FlowNumber;

const WORDS: usize = 16;

/// Marks of the flows that may have packets in the shared queue.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    marks: [[u64; WORDS]; 2],
    current: usize,
    /// Number of packets that have arrived since the start.
    entered: u64,
    /// Number of packets that must have left before the older set is cleared.
    boundary: u64,
}

/// Returns the index of a flow's word in a set of marks, and the flow's bit in that word.
#[inline]
fn place(flow: FlowNumber) -> (usize, u64) {
    let hash = flow.0.wrapping_mul(0x9e37_79b9);
    ((hash >> 28) as usize % WORDS, 1 << (hash >> 22 & 63))
}

impl Sharing {
    /// Whether a flow may have packets in the shared queue. `waiting`: number of packets in the shared queue.
    pub fn may_wait(&mut self, flow: FlowNumber, waiting: u32) -> bool {
        self.turn(waiting);
        let (word, bit) = place(flow);
        self.marks.iter().any(|marks| marks[word] & bit != 0)
    }

    /// Marks a flow when a packet of it arrives.
    pub fn note(&mut self, flow: FlowNumber) {
        let (word, bit) = place(flow);
        self.marks[self.current][word] |= bit;
        self.entered += 1;
    }

    /// Accounts for `packets` packets that left the shared queue for their flow's own queue, ahead of older
    /// packets.
    pub fn taken(&mut self, packets: u32) {
        self.boundary += u64::from(packets);
    }

    fn turn(&mut self, waiting: u32) {
        if waiting == 0 {
            self.marks = Default::default();
        } else if self.entered - u64::from(waiting) < self.boundary {
            return;
        } else {
            self.current = 1 - self.current;
            self.marks[self.current] = [0; WORDS];
        }
        self.boundary = self.entered;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        /// Compares the marks with a model queue: every flow with packets in the queue is marked.
        #[test]
        fn waiting_flow_is_marked(steps in prop::collection::vec((0_u32..200, 0_u8..5), 1..2000)) {
            let (mut sharing, mut queue) = (Sharing::default(), VecDeque::new());
            for (flow, step) in steps {
                match step {
                    0 | 1 => {
                        sharing.note(FlowNumber(flow));
                        queue.push_back(flow);
                    }
                    2 => drop(queue.pop_front()),
                    3 => {
                        let before = queue.len();
                        queue.retain(|own| *own != flow);
                        sharing.taken((before - queue.len()) as u32);
                    }
                    _ => {}
                }
                for flow in &queue {
                    prop_assert!(sharing.may_wait(FlowNumber(*flow), queue.len() as u32));
                }
            }
        }
    }

    #[test]
    fn stopped_flow_loses_its_mark_while_another_continues() {
        let mut sharing = Sharing::default();
        sharing.note(FlowNumber(1));
        for _ in 0..3 {
            sharing.note(FlowNumber(2));
        }
        assert!(sharing.may_wait(FlowNumber(1), 4));
        let mut waits = 0;
        for _ in 0..12 {
            // In each step one packet arrives and one leaves, so 4 packets wait.
            sharing.note(FlowNumber(2));
            waits += u32::from(sharing.may_wait(FlowNumber(1), 4));
        }
        assert!(waits < 12 && !sharing.may_wait(FlowNumber(1), 4), "{waits}");
        assert!(sharing.may_wait(FlowNumber(2), 4));
    }
}
