//! Journeys that begin inside the router: those of packets made by the router, and of packets released from a
//! wait.

use millrace_packet::{Batch, Packet};
use millrace_plugin_abi::Position;
use millrace_units::Instant;

use crate::observe::trace::Probe;
use crate::router::Router;
use crate::work::Work;

/// Maximum number of passes in one call of [`Router::follow_up`]. Packets made in the last pass wait for the
/// next iteration.
const ROUNDS: usize = 4;

impl Router {
    /// Forwards all pending packets: packets made by the router, copies, and packets released from a wait.
    /// Their treatment may make or release further packets, so there are several passes.
    pub(crate) fn follow_up(&mut self, now: Instant) {
        for _ in 0..ROUNDS {
            if !self.punt.own.actions.is_empty() {
                self.neighbour_resolution().act(now);
            }
            self.gate_run().take_given(now);
            if self.pending.is_done() && self.punt.frames.is_empty() {
                return;
            }
            self.disposal().send_frames(now);
            let mut work = std::mem::take(&mut self.scratch.spare);
            let alone = self.observation.trace.is_some();
            while fill(&mut work.packets, &mut self.pending.waited, alone) {
                self.ingress().read_resumed(&mut work, now);
                match self.observation.note_resumed(&work, now) {
                    None => self.send_on(&mut work, (), now),
                    Some(mark) => self.send_on(&mut work, mark, now),
                }
            }
            while fill(&mut work.packets, &mut self.pending.made, false) {
                self.ingress().read_own(&mut work, now);
                self.classification().classify(&mut work, now);
                self.travel_from(&mut work, Position::Early, 0, now);
            }
            while fill(&mut work.packets, &mut self.pending.again, alone) {
                self.ingress().read_again(&mut work, now);
                self.classification().classify(&mut work, now);
                self.travel_from(&mut work, Position::Early, 0, now);
            }
            while fill(&mut work.packets, &mut self.pending.resumed, false) {
                self.ingress().read_resumed(&mut work, now);
                self.classification().find_paths(&mut work);
                self.gates.group(&mut work);
                self.forward(&mut work, (), now);
                self.gate_run().run((Position::Queue, 0), &mut work, (), now);
                self.disposal().dispose(&mut work, (), now);
            }
            self.scratch.spare = work;
        }
    }

    /// Forwards packets that have passed all gates, and disposes of them.
    fn send_on<P: Probe>(&mut self, work: &mut Work, probe: P, now: Instant) {
        self.forward(work, probe, now);
        self.disposal().dispose(work, probe, now);
    }

    /// Takes packets through the remaining stages. They start at `position`, with the binding whose number at
    /// this position of their path is `stage`.
    pub(crate) fn travel_from(&mut self, work: &mut Work, position: Position, stage: u16, now: Instant) {
        match self.observation.note_resumed(work, now) {
            None => self.travel_on(work, (position, stage), (), now),
            Some(mark) => self.travel_on(work, (position, stage), mark, now),
        }
    }

    fn travel_on<P: Probe>(&mut self, work: &mut Work, from: (Position, u16), probe: P, now: Instant) {
        self.settle_from(work, from, probe, now);
        self.disposal().dispose(work, probe, now);
    }
}

/// Moves packets from `packets` into an empty batch. Returns whether there were any. With `alone`, each
/// traced packet gets a batch of its own.
fn fill(batch: &mut Batch, packets: &mut Vec<Packet>, alone: bool) -> bool {
    let mut count = packets.len().min(batch.room());
    if alone && let Some(marked) = packets.iter().take(count).position(|packet| packet.trace != 0) {
        count = marked.max(1);
    }
    for packet in packets.drain(..count) {
        // Can't fail: `count` is at most the batch's room.
        let _ = batch.push(packet);
    }
    count > 0
}
