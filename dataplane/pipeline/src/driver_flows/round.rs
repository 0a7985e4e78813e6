//! When packets that were read are done with, wherever in the router they went.
//!
//! A packet is read by the worker that has its port, treated by the one that has its flow, and sent by the one that has the port it leaves
//! by. Between them packets keep their order, and so does what workers say to each other between the packets: which *step* they have taken.
//! In a round every worker takes three, each when all others have taken the one before:
//!
//! 1. it notes what it has read;
//! 2. it has treated all that others had read by their first step;
//! 3. all that was treated by the second step has left by its ports.
//!
//! When all have taken the third, what each noted is done with (a barrier by messages in the channels themselves: Chandy and Lamport,
//! *Distributed Snapshots*, 1985). A worker that is alone takes all three as soon as its packets have left.

use std::time::Duration;

use millrace_units::Instant;

use crate::handover::{Handover, Heard};

/// A round that takes so long is stuck: a device takes nothing, or a worker does not run.
const STUCK: Duration = Duration::from_millis(100);
/// Steps of a round.
const STEPS: u32 = 3;

/// What is to be done in a round now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// A round is over, and what was noted is done with.
    Finish,
    /// What has been read is to be noted, if somebody wants it: whether another worker does.
    Note(bool),
    /// What waits to leave is to be marked.
    Mark,
    /// What was marked has to leave first.
    Leave,
    /// Others have to take their steps first.
    Wait,
}

/// A worker's part in the rounds of all workers.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// Steps taken since the beginning.
    step: u32,
    /// Since when the round has been going on, if one is.
    since: Option<Instant>,
    is_marked: bool,
}

impl Round {
    /// What is to be done now. `others`: the ways to other workers, if there are any.
    pub fn next(&mut self, others: Option<&mut Handover>) -> Next {
        let Some(others) = others else { return self.next_of(|_| Heard { all: true, one: false }) };
        let next = self.next_of(|step| others.have_heard(step));
        others.say(self.step);
        next
    }

    fn next_of(&mut self, heard: impl Fn(u32) -> Heard) -> Next {
        if !heard(self.step).all {
            return Next::Wait;
        }
        if self.step % STEPS == 1 {
            // All that others had read is here, and was treated in this turn or before.
            self.take_step();
            if !heard(self.step).all {
                return Next::Wait;
            }
        }
        match (self.step % STEPS, self.since.is_some()) {
            (0, true) => Next::Finish,
            (0, false) => Next::Note(heard(self.step.wrapping_add(1)).one),
            _ if self.is_marked => Next::Leave,
            _ => Next::Mark,
        }
    }

    fn take_step(&mut self) {
        self.step = self.step.wrapping_add(1);
    }

    /// The number of the round that is going on, or will be. Two rounds are never noted at once by different workers, but that which is over
    /// for some, and the next one.
    pub fn number(&self) -> u32 {
        self.step / STEPS
    }

    /// What has been read is noted: the round begins.
    pub fn begin(&mut self, now: Instant) {
        self.since = Some(now);
        self.take_step();
    }

    /// What waits to leave was marked.
    pub fn marked(&mut self) {
        self.is_marked = true;
    }

    /// What was marked has left.
    pub fn left(&mut self) {
        self.is_marked = false;
        self.take_step();
    }

    /// Ends a round: its number.
    pub fn finish(&mut self) -> u32 {
        self.since = None;
        (self.step / STEPS).wrapping_sub(1)
    }

    /// The devices of ports are others: what was marked says nothing of them.
    pub fn forget_mark(&mut self) {
        self.is_marked = false;
    }

    /// Whether nothing is heard of what was noted.
    pub fn is_stuck(&self, now: Instant) -> bool {
        self.since.is_some_and(|since| now >= since + STUCK)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, VecDeque};

    use millrace_packet::{Packet, Pool};
    use proptest::prelude::*;

    use super::*;
    use crate::handover::{Errand, Transport};

    /// A packet: the port, and worker, that read it, which one it was there, and the worker whose port it leaves by.
    type Known = (u8, u8, u8);

    /// A worker that reads, treats and sends packets as slowly as it is told to.
    struct Simulated {
        round: Round,
        handover: Handover,
        read: u8,
        /// By the number of the round, as two are known.
        noted: [u64; 2],
        done: u64,
        waiting: VecDeque<Known>,
        left: u64,
        mark: u64,
    }

    struct Workers {
        pool: Pool,
        workers: Vec<Simulated>,
        /// Packets that have left.
        left: BTreeSet<(u8, u8)>,
    }

    impl Workers {
        fn new(count: usize) -> Self {
            let simulated = |handover| {
                let (round, waiting) = (Round::default(), VecDeque::new());
                Simulated { round, handover, read: 0, noted: [0; 2], done: 0, waiting, left: 0, mark: 0 }
            };
            let workers = Handover::mesh(&vec![None; count]).into_iter().map(simulated).collect();
            Self { pool: Pool::new(64).unwrap(), workers, left: BTreeSet::new() }
        }

        fn packet(&self, (port, number, out): Known) -> Packet {
            self.pool.packet_from(&[port, number, out]).unwrap()
        }

        /// Hands a packet over, or treats it here: whoever it is for has to take it.
        fn put(&mut self, from: usize, to: usize, errand: Errand, known: Known) {
            if from != to {
                let packet = self.packet(known);
                assert!(self.workers[from].handover.put(to, errand, &packet, Transport::default(), &[]));
            } else if errand == Errand::Flow {
                self.put(to, known.2.into(), Errand::Transmit, known);
            } else {
                self.workers[to].waiting.push_back(known);
            }
        }

        /// A turn of a worker: it reads packets for these flows and ports, takes over what others have handed over, and sends some.
        fn turn(&mut self, me: usize, reads: &[(u8, u8)], sends: usize) {
            let count = self.workers.len();
            for (flow, out) in reads {
                let own = &mut self.workers[me];
                let known = (me as u8, own.read, *out % count as u8);
                own.read += 1;
                self.put(me, usize::from(*flow) % count, Errand::Flow, known);
            }
            for from in 0..count {
                while let Some(handed) = self.workers[me].handover.next(from) {
                    let known = (handed.bytes[0], handed.bytes[1], handed.bytes[2]);
                    match handed.errand {
                        Errand::Flow => self.put(me, me, Errand::Flow, known),
                        _ => self.workers[me].waiting.push_back(known),
                    }
                }
            }
            let own = &mut self.workers[me];
            for (port, number, _) in own.waiting.drain(..sends.min(own.waiting.len())) {
                self.left.insert((port, number));
                own.left += 1;
            }
            self.settle(me);
            self.workers[me].handover.publish();
        }

        fn settle(&mut self, me: usize) {
            let own = &mut self.workers[me];
            let mut has_begun = false;
            loop {
                match own.round.next(Some(&mut own.handover)) {
                    Next::Finish => {
                        let done = own.noted[own.round.finish() as usize % 2];
                        let gone = |number| self.left.contains(&(me as u8, number as u8));
                        assert!((0..done).all(gone), "{done} of port {me}");
                        own.done = done;
                    }
                    Next::Note(wanted) if !has_begun && (wanted || own.done < own.read.into()) => {
                        has_begun = true;
                        own.noted[own.round.number() as usize % 2] = own.read.into();
                        own.round.begin(Instant::ZERO);
                    }
                    Next::Mark => {
                        own.mark = own.left + own.waiting.len() as u64;
                        own.round.marked();
                    }
                    Next::Leave if own.left >= own.mark => own.round.left(),
                    Next::Note(_) | Next::Leave | Next::Wait => break,
                }
            }
        }
    }

    /// Which worker's turn it is, what it reads, and how many it sends.
    type Turn = (usize, Vec<(u8, u8)>, usize);

    fn any_turns() -> impl Strategy<Value = Vec<Turn>> {
        let reads = prop::collection::vec((any::<u8>(), any::<u8>()), 0..3);
        prop::collection::vec((0..4_usize, reads, 0..4_usize), 0..60)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn what_is_done_with_has_left_and_all_is_in_the_end(count in 2..5_usize, turns in any_turns()) {
            let mut workers = Workers::new(count);
            for (worker, reads, sends) in turns {
                workers.turn(worker % count, &reads, sends);
            }
            // Three rounds at most: one that was under way, one for what was read meanwhile, and turns for what they say to each other.
            for _ in 0..16 {
                (0..count).for_each(|worker| workers.turn(worker, &[], usize::MAX));
            }
            let read: Vec<u64> = workers.workers.iter().map(|worker| worker.read.into()).collect();
            let done: Vec<u64> = workers.workers.iter().map(|worker| worker.done).collect();
            prop_assert_eq!(done, read);
            prop_assert!(workers.workers.iter().all(|worker| !worker.round.is_stuck(Instant::ZERO + STUCK)));
        }
    }

    #[test]
    fn a_round_without_others_is_over_when_what_waited_has_left() {
        let mut round = Round::default();
        assert_eq!(round.next(None), Next::Note(false));
        assert_eq!(round.number(), 0);
        round.begin(Instant::ZERO);
        assert_eq!(round.next(None), Next::Mark);
        round.marked();
        assert_eq!(round.next(None), Next::Leave);
        assert!(round.is_stuck(Instant::ZERO + STUCK));
        round.left();
        assert_eq!(round.next(None), Next::Finish);
        assert_eq!((round.finish(), round.number()), (0, 1));
        assert_eq!(round.next(None), Next::Note(false));
        assert!(!round.is_stuck(Instant::ZERO + STUCK));
    }
}
