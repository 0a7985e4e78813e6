//! Packets that plugins have kept: they go on where they were, or end there.

use millrace_packet::{DropReason, FlowKey, Packet};
use millrace_plugin::{End, Place, Released, Ticket, Waiting};
use millrace_plugin_abi::Position;
use millrace_units::Instant;
use millrace_wire::MacAddr;

use crate::filter_route::is_filter;
use crate::route::look_up;
use crate::router::Router;
use crate::work::{Fate, Work};

impl Router {
    /// Gives plugins time whose calls were suspended, and lets packets go on that wait no longer.
    pub(crate) fn go_on(&mut self, now: Instant) {
        let mut released = std::mem::take(&mut self.released);
        self.gates.plugins_mut().go_on(now, &mut released);
        let mut work = std::mem::take(&mut self.spare);
        let mut waiting = released.drain(..).peekable();
        while let Some(first) = waiting.next() {
            let place = first.waiting.place;
            work.begin();
            add(&mut work, first);
            while work.packets.room() > 0
                && let Some(next) = waiting.next_if(|next| next.waiting.place == place)
            {
                add(&mut work, next);
            }
            self.go_on_at(place, &mut work, now);
        }
        drop(waiting);
        self.spare = work;
        self.released = released;
    }

    /// Lets a packet wait for a plugin.
    pub(crate) fn keep(&mut self, ticket: Ticket, packet: Packet, key: FlowKey, destination: MacAddr) {
        // The rest is for packets that don't wait.
        let room = self.gates.plugins().waiting() < self.pool.capacity() as usize / 2;
        let plugins = self.gates.plugins_mut();
        if let Some(packet) = plugins.keep(ticket, room, packet, key, destination.0) {
            self.drop_packet(packet, DropReason::PluginBusy);
        }
    }

    /// Packets of one place.
    fn go_on_at(&mut self, place: Place, work: &mut Work, now: Instant) {
        if place.position != Position::Copy {
            // What the number of the route meant may be another by now.
            for (packet, key) in work.packets.iter_mut().zip(&work.keys) {
                if !is_filter(packet.next_hop) {
                    look_up(&self.fib, packet, key);
                }
            }
            return self.travel_from(work, place.position, place.stage, now);
        }
        self.gates.group(work);
        self.gates.run(place.position, place.stage, work, now);
        for fate in work.fates.iter_mut().take(work.packets.len()) {
            // Of a copy nothing is left behind the last instance, whatever was said of it.
            if !matches!(fate, Fate::Kept(_)) {
                *fate = Fate::Consumed;
            }
        }
        self.dispose(work, now);
    }
}

/// Puts a packet into a batch, which has room.
fn add(work: &mut Work, released: Released) {
    let Released { waiting: Waiting { packet, key, destination, place }, end } = released;
    let index = work.packets.len();
    if work.packets.push(packet).is_err() {
        return;
    }
    work.keys[index] = key;
    work.paths[index] = place.path;
    work.destinations[index] = MacAddr(destination);
    work.fates[index] = match end {
        None => Fate::Forward,
        Some(End::Drop(reason)) => Fate::Drop(reason),
        Some(End::Consume) => Fate::Consumed,
    };
}
