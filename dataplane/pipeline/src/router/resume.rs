//! Resumption of packets that instances held: each packet continues with the next binding of its path, or
//! ends there.

use millrace_plugin::{EndedStages, Place};
use millrace_plugin_abi::Position;
use millrace_units::Instant;

use crate::forward::route::look_up;
use crate::route_number::{is_copy, is_filter};
use crate::router::Router;
use crate::work::{Fate, Work};

impl Router {
    /// Resumes suspended calls of plugins, and forwards the packets that plugins have released.
    pub(crate) fn resume_kept(&mut self, now: Instant) {
        let mut released = std::mem::take(&mut self.scratch.released);
        self.gates.resume(&self.forwarding.fib, &self.ports, &mut released, now);
        self.after_succession();
        let mut work = std::mem::take(&mut self.scratch.spare);
        let mut waiting = released.drain(..).peekable();
        while let Some(first) = waiting.next() {
            let (place, reached) = (first.waiting.place, first.reached);
            work.begin();
            self.gate_run().add_released(&mut work, first);
            let alone = self.observation.trace.is_some()
                && work.packets.first().is_some_and(|packet| packet.trace != 0);
            while work.packets.room() > 0
                && !alone
                && let Some(next) = waiting.next_if(|next| {
                    (next.waiting.place, next.reached) == (place, reached)
                        && (self.observation.trace.is_none() || next.waiting.packet.trace == 0)
                })
            {
                self.gate_run().add_released(&mut work, next);
            }
            self.resume_at((place, reached), &mut work, now);
        }
        drop(waiting);
        self.scratch.spare = work;
        self.scratch.released = released;
    }

    /// Resumes the packets of a batch at `place`, their common path, position and binding. `reached`: rank of the first
    /// gate that they have not passed; 0 if the place tells it.
    pub(super) fn resume_at(&mut self, (place, reached): (Place, u32), work: &mut Work, now: Instant) {
        EndedStages::of(self.gates.plugins_mut()).reach(reached);
        if place.position == Position::Copy {
            resume_copies(self, place, work, now);
        } else {
            // The route number may have got another route during the wait, so the route is looked up again.
            for (packet, key) in work.packets.iter_mut().zip(work.keys.all()) {
                if !is_filter(packet.next_hop) {
                    look_up(&self.forwarding.fib, packet, key);
                }
            }
            self.travel_from(work, place.position, place.stage, now);
        }
        EndedStages::of(self.gates.plugins_mut()).reach(0);
    }
}

/// Resumes the copies of a batch at `place`.
fn resume_copies(router: &mut Router, place: Place, work: &mut Work, now: Instant) {
    router.gates.group(work);
    router.gate_run().run((place.position, place.stage), work, (), now);
    for (fate, packet) in work.fates.all_mut().iter_mut().zip(work.packets.iter()) {
        // A copy is consumed after the last instance, unless an instance sends it.
        *fate = match *fate {
            Fate::Kept(ticket) => Fate::Kept(ticket),
            Fate::Forward if is_copy(packet.next_hop) => Fate::Resume,
            _ => Fate::Consumed,
        };
    }
    router.disposal().dispose(work, (), now);
}
