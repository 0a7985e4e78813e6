//! Which flows may have packets in a queue that several share.
//!
//! Two sets of marks take turns (Bloom, 1970, with one hash): when all packets that came before the current one was begun have
//! left, the other one is of nobody any more. So a flow that is not marked has nothing there, and one that stopped sending
//! loses its mark, be the queue never empty.

use crate::FlowNumber;

const WORDS: usize = 16;

/// Marks of flows.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    marks: [[u64; WORDS]; 2],
    current: usize,
    /// Packets that ever came.
    entered: u64,
    /// Packets that must have left before the older marks are void.
    boundary: u64,
}

/// A word of the marks, and the flow's bit in it.
#[inline]
fn place(flow: FlowNumber) -> (usize, u64) {
    let hash = flow.0.wrapping_mul(0x9e37_79b9);
    ((hash >> 28) as usize % WORDS, 1 << (hash >> 22 & 63))
}

impl Sharing {
    /// Whether a flow may have packets there, where so many wait.
    pub fn may_wait(&mut self, flow: FlowNumber, waiting: u32) -> bool {
        self.turn(waiting);
        let (word, bit) = place(flow);
        self.marks.iter().any(|marks| marks[word] & bit != 0)
    }

    /// A packet of a flow came.
    pub fn note(&mut self, flow: FlowNumber) {
        let (word, bit) = place(flow);
        self.marks[self.current][word] |= bit;
        self.entered += 1;
    }

    /// So many packets were taken out of their order.
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
        /// A queue of flows beside it: whoever has something there is marked.
        #[test]
        fn who_waits_is_marked(steps in prop::collection::vec((0_u32..200, 0_u8..5), 1..2000)) {
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
    fn who_stopped_loses_its_mark_while_another_goes_on() {
        let mut sharing = Sharing::default();
        sharing.note(FlowNumber(1));
        for _ in 0..3 {
            sharing.note(FlowNumber(2));
        }
        assert!(sharing.may_wait(FlowNumber(1), 4));
        let mut waits = 0;
        for _ in 0..12 {
            // One comes, one leaves.
            sharing.note(FlowNumber(2));
            waits += u32::from(sharing.may_wait(FlowNumber(1), 4));
        }
        assert!(waits < 12 && !sharing.may_wait(FlowNumber(1), 4), "{waits}");
        assert!(sharing.may_wait(FlowNumber(2), 4));
    }
}
