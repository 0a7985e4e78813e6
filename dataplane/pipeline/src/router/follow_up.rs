//! Journeys that begin inside the router: packets made by the router, and packets released from a wait.

use millrace_packet::{Batch, Packet};
use millrace_plugin_abi::Position;
use millrace_units::Instant;

use crate::observe::trace::Probe;
use crate::router::Router;
use crate::work::Work;

/// Maximum number of passes over router-made packets in one call of [`Router::follow_up`]; further packets
/// wait for the next iteration.
const ROUNDS: usize = 4;

impl Router {
    /// Forwards the packets that earlier packets caused: packets made by the router, and packets released
    /// from a wait.
    pub(crate) fn follow_up(&mut self, now: Instant) {
        for _ in 0..ROUNDS {
            self.act(now);
            self.take_given(now);
            if self.pending.is_done() && self.punt.frames.is_empty() {
                return;
            }
            self.send_frames(now);
            let mut work = std::mem::take(&mut self.scratch.spare);
            let alone = self.observation.trace.is_some();
            while fill(&mut work.packets, &mut self.pending.waited, alone) {
                self.resume(&mut work, now);
                match self.observation.note_resumed(&work, now) {
                    None => self.send_on(&mut work, (), now),
                    Some(mark) => self.send_on(&mut work, mark, now),
                }
            }
            while fill(&mut work.packets, &mut self.pending.made, false) {
                self.start_own(&mut work, now);
                self.classify(&mut work, now);
                self.travel(&mut work, now);
            }
            while fill(&mut work.packets, &mut self.pending.again, alone) {
                self.start_again(&mut work, now);
                self.classify(&mut work, now);
                self.travel(&mut work, now);
            }
            while fill(&mut work.packets, &mut self.pending.resumed, false) {
                self.resume(&mut work, now);
                self.find_paths(&mut work);
                self.gates.group(&mut work);
                self.forward(&mut work, (), now);
                self.run_gates((Position::Queue, 0), &mut work, (), now);
                self.dispose(&mut work, (), now);
            }
            self.scratch.spare = work;
        }
    }

    /// Forwards packets that have passed all gates.
    fn send_on<P: Probe>(&mut self, work: &mut Work, probe: P, now: Instant) {
        self.forward(work, probe, now);
        self.dispose(work, probe, now);
    }

    /// Runs the stages from the first gate to the queue.
    pub(crate) fn travel(&mut self, work: &mut Work, now: Instant) {
        self.travel_from(work, Position::Early, 0, now);
    }

    /// Continues packets at stage number `stage` of a position, up to the queue.
    pub(crate) fn travel_from(&mut self, work: &mut Work, position: Position, stage: u16, now: Instant) {
        match self.observation.note_resumed(work, now) {
            None => self.travel_on(work, (position, stage), (), now),
            Some(mark) => self.travel_on(work, (position, stage), mark, now),
        }
    }

    fn travel_on<P: Probe>(&mut self, work: &mut Work, from: (Position, u16), probe: P, now: Instant) {
        self.settle_from(work, from, probe, now);
        self.dispose(work, probe, now);
    }
}

/// Moves packets into an empty batch. Returns whether there were any. With `alone`, each traced packet gets a
/// batch of its own.
fn fill(batch: &mut Batch, packets: &mut Vec<Packet>, alone: bool) -> bool {
    let mut count = packets.len().min(batch.room());
    if alone && let Some(marked) = packets.iter().take(count).position(|packet| packet.trace != 0) {
        count = marked.max(1);
    }
    for packet in packets.drain(..count) {
        // Never fails: `count` is at most the batch's room.
        let _ = batch.push(packet);
    }
    count > 0
}
