//! Grace periods: at the end of a grace period, the workers are done with all packets that they had read at
//! its start.
//!
//! One worker reads a packet, the owner of its flow treats it, and the owner of its egress port sends it.
//! Packets keep their order on the rings between workers. Between the packets, workers announce *steps* on
//! the same rings. A grace period has three steps. A worker takes each step only when all workers have taken
//! the step before:
//!
//! 1. The worker has recorded the number of packets that it has read.
//! 2. The worker has treated all packets that other workers had read by their first step.
//! 3. All packets that were treated by the second step have left by the worker's ports.
//!
//! When all workers have taken the third step, they are done with every recorded packet. The steps are a
//! barrier by messages in the channels themselves (Chandy and Lamport, *Distributed Snapshots*, 1985). A
//! single worker takes all three steps as soon as its packets have left.

use std::time::Duration;

use millrace_units::Instant;

use crate::handover::{Handover, PeersAt};

/// Duration after which a grace period counts as stalled, because a device takes no packets or a worker does
/// not run.
const STALLED: Duration = Duration::from_millis(100);
/// Number of steps of a grace period.
const STEPS: u64 = 3;

/// Next action of a worker in a grace period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// Complete the grace period: the workers are done with all recorded packets.
    Complete,
    /// Start a grace period by recording the packets read, if this worker needs one or another worker has
    /// started it.
    Record {
        /// Whether another worker has started the grace period.
        requested: bool,
    },
    /// Mark the backlog of the ports.
    MarkBacklog,
    /// Wait until the marked backlog has left.
    AwaitTransmit,
    /// Wait until the other workers have taken their steps.
    AwaitPeers,
}

/// A worker's part in the grace periods of all workers.
#[derive(Debug, Default)]
pub(super) struct GracePeriod {
    /// Number of steps taken since the worker started. It has 64 bits so that it can't overflow; an overflow
    /// would end a grace period before its last step.
    step: u64,
    /// Start of the current grace period; `None` between grace periods.
    since: Option<Instant>,
    is_marked: bool,
}

impl GracePeriod {
    /// Returns the worker's next action, and announces its step to the other workers. `others`: the rings to
    /// other workers; `None` with a single worker.
    pub fn next(&mut self, others: Option<&mut Handover>) -> Action {
        let Some(others) = others else { return self.next_of(|_| PeersAt { all: true, any: false }) };
        let next = self.next_of(|step| others.peers_at(step));
        others.announce(self.step);
        next
    }

    fn next_of(&mut self, peers_at: impl Fn(u64) -> PeersAt) -> Action {
        if !peers_at(self.step).all {
            return Action::AwaitPeers;
        }
        if self.step % STEPS == 1 {
            // All packets that other workers had read have arrived here, and were treated in this iteration
            // or before.
            self.take_step();
            if !peers_at(self.step).all {
                return Action::AwaitPeers;
            }
        }
        match (self.step % STEPS, self.since.is_some()) {
            (0, true) => Action::Complete,
            (0, false) => Action::Record { requested: peers_at(self.step + 1).any },
            _ if self.is_marked => Action::AwaitTransmit,
            _ => Action::MarkBacklog,
        }
    }

    fn take_step(&mut self) {
        self.step += 1;
    }

    /// Returns the epoch: the number of the current grace period, or between grace periods the number of the
    /// next one. At any time, the epochs of any two workers differ by one at most.
    pub fn epoch(&self) -> u64 {
        self.step / STEPS
    }

    /// Starts a grace period. The caller has recorded the packets read.
    pub fn start(&mut self, now: Instant) {
        self.since = Some(now);
        self.take_step();
    }

    /// Notes that the caller has set the backlog mark.
    pub fn backlog_marked(&mut self) {
        self.is_marked = true;
    }

    /// Notes that the backlog mark is passed.
    pub fn backlog_left(&mut self) {
        self.is_marked = false;
        self.take_step();
    }

    /// Completes a grace period. Returns its epoch.
    pub fn complete(&mut self) -> u64 {
        self.since = None;
        self.step / STEPS - 1
    }

    /// Discards the backlog mark, because a device was opened.
    pub fn discard_mark(&mut self) {
        self.is_marked = false;
    }

    /// Returns whether the current grace period is stalled.
    pub fn is_stalled(&self, now: Instant) -> bool {
        self.since.is_some_and(|since| now >= since + STALLED)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, VecDeque};

    use millrace_packet::{Packet, Pool};
    use proptest::prelude::*;

    use super::*;
    use crate::handover::{Errand, HandoverRings, Note};

    /// Packet of the test: number of the worker that read it, its number among that worker's packets, and the
    /// worker of its egress port.
    type Known = (u8, u8, u8);

    /// Simulated worker that reads, treats and sends packets when the test says so.
    struct Simulated {
        grace_period: GracePeriod,
        handover: Handover,
        read: u8,
        /// Number of packets read at the start of each of the last two epochs.
        noted: [u64; 2],
        done: u64,
        waiting: VecDeque<Known>,
        left: u64,
        mark: u64,
    }

    struct Workers {
        pool: Pool,
        workers: Vec<Simulated>,
        /// Packets that have left, by reading worker and number.
        left: BTreeSet<(u8, u8)>,
    }

    impl Workers {
        /// Makes `count` workers that have already taken `step` steps.
        fn new(count: usize, step: u64) -> Self {
            let simulated = |handover| {
                let (grace_period, waiting) =
                    (GracePeriod { step, ..GracePeriod::default() }, VecDeque::new());
                Simulated {
                    grace_period,
                    handover,
                    read: 0,
                    noted: [0; 2],
                    done: 0,
                    waiting,
                    left: 0,
                    mark: 0,
                }
            };
            let pool = Pool::new(64).unwrap();
            let rings = HandoverRings::mesh(&vec![None; count]);
            let mut handovers: Vec<_> = rings.into_iter().map(|rings| Handover::new(rings, 64)).collect();
            for handover in &mut handovers {
                handover.announce(step);
                handover.publish();
            }
            for handover in &mut handovers {
                assert!((0..count).all(|from| handover.next(from, &pool).is_none()));
            }
            let workers = handovers.into_iter().map(simulated).collect();
            Self { pool, workers, left: BTreeSet::new() }
        }

        fn packet(&self, (port, number, out): Known) -> Packet {
            self.pool.packet_from(&[port, number, out]).unwrap()
        }

        /// Hands a packet over to worker `to`, or treats it if `to` is this worker.
        fn put(&mut self, from: usize, to: usize, errand: Errand, known: Known) {
            if from != to {
                let packet = self.packet(known);
                let put = self.workers[from].handover.put(to, packet, Note::of(errand));
                assert!(put.is_ok());
            } else if errand == Errand::Flow {
                self.put(to, known.2.into(), Errand::Transmit, known);
            } else {
                self.workers[to].waiting.push_back(known);
            }
        }

        /// Runs an iteration of worker `me`: reads a packet for each flow and egress port in `reads`, takes
        /// handed-over packets, and sends at most `sends` packets.
        fn iterate(&mut self, me: usize, reads: &[(u8, u8)], sends: usize) {
            let count = self.workers.len();
            for (flow, out) in reads {
                let own = &mut self.workers[me];
                let known = (me as u8, own.read, *out % count as u8);
                own.read += 1;
                self.put(me, usize::from(*flow) % count, Errand::Flow, known);
            }
            for from in 0..count {
                while let Some(handed) = self.workers[me].handover.next(from, &self.pool) {
                    let packet = handed.packet.unwrap();
                    let known = (packet.data()[0], packet.data()[1], packet.data()[2]);
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
            self.advance(me);
            self.workers[me].handover.publish();
        }

        fn advance(&mut self, me: usize) {
            let own = &mut self.workers[me];
            let mut has_begun = false;
            loop {
                match own.grace_period.next(Some(&mut own.handover)) {
                    Action::Complete => {
                        let done = own.noted[own.grace_period.complete() as usize % 2];
                        let gone = |number| self.left.contains(&(me as u8, number as u8));
                        assert!((0..done).all(gone), "{done} of port {me}");
                        own.done = done;
                    }
                    Action::Record { requested }
                        if !has_begun && (requested || own.done < own.read.into()) =>
                    {
                        has_begun = true;
                        own.noted[own.grace_period.epoch() as usize % 2] = own.read.into();
                        own.grace_period.start(Instant::ZERO);
                    }
                    Action::MarkBacklog => {
                        own.mark = own.left + own.waiting.len() as u64;
                        own.grace_period.backlog_marked();
                    }
                    Action::AwaitTransmit if own.left >= own.mark => own.grace_period.backlog_left(),
                    Action::Record { .. } | Action::AwaitTransmit | Action::AwaitPeers => break,
                }
            }
        }
    }

    /// Worker of an iteration, packets that it reads, and number of packets that it sends.
    type Iteration = (usize, Vec<(u8, u8)>, usize);

    /// Number of steps taken before the test: 0, or a number whose lower 32 bits are about to overflow.
    fn any_step() -> impl Strategy<Value = u64> {
        prop_oneof![Just(0), (1..8_u64).prop_map(|periods| u64::from(u32::MAX) - 3 * periods)]
    }

    fn any_iterations() -> impl Strategy<Value = Vec<Iteration>> {
        let reads = prop::collection::vec((any::<u8>(), any::<u8>()), 0..3);
        prop::collection::vec((0..4_usize, reads, 0..4_usize), 0..60)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn packets_done_with_have_left_and_all_packets_are_done_with_in_the_end(
            count in 2..5_usize, step in any_step(), iterations in any_iterations()
        ) {
            let mut workers = Workers::new(count, step);
            for (worker, reads, sends) in iterations {
                workers.iterate(worker % count, &reads, sends);
            }
            // Enough for three grace periods: the current one, one for packets read meanwhile, and one for
            // late announcements.
            for _ in 0..16 {
                (0..count).for_each(|worker| workers.iterate(worker, &[], usize::MAX));
            }
            let read: Vec<u64> = workers.workers.iter().map(|worker| worker.read.into()).collect();
            let done: Vec<u64> = workers.workers.iter().map(|worker| worker.done).collect();
            prop_assert_eq!(done, read);
            prop_assert!(workers.workers.iter().all(|worker| !worker.grace_period.is_stalled(Instant::ZERO + STALLED)));
        }
    }

    #[test]
    fn grace_period_of_a_single_worker_completes_when_the_backlog_has_left() {
        let mut grace_period = GracePeriod::default();
        assert_eq!(grace_period.next(None), Action::Record { requested: false });
        assert_eq!(grace_period.epoch(), 0);
        grace_period.start(Instant::ZERO);
        assert_eq!(grace_period.next(None), Action::MarkBacklog);
        grace_period.backlog_marked();
        assert_eq!(grace_period.next(None), Action::AwaitTransmit);
        assert!(grace_period.is_stalled(Instant::ZERO + STALLED));
        grace_period.backlog_left();
        assert_eq!(grace_period.next(None), Action::Complete);
        assert_eq!((grace_period.complete(), grace_period.epoch()), (0, 1));
        assert_eq!(grace_period.next(None), Action::Record { requested: false });
        assert!(!grace_period.is_stalled(Instant::ZERO + STALLED));
    }
}
