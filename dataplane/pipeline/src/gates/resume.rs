//! Resumption of packets that plugins kept: each packet continues at its stage, or ends there.

use millrace_forward::NO_ADJACENCY;
use millrace_packet::{DropReason, FlowKey, Packet};
use millrace_plugin::{EMPTY_PATH, End, Given, Kept, Place, Released, Ticket, Waiting};
use millrace_plugin_abi::{Output, Position};
use millrace_units::{Instant, PortId};
use millrace_wire::{EtherType, MacAddr};

use crate::forward::route::look_up;
use crate::gates::Outlet;
use crate::observe::Observation;
use crate::observe::event::{EVENT_LIMIT, Event};
use crate::route_number::{is_copy, is_filter};
use crate::router::Router;
use crate::work::{Fate, Work};

/// Maximum number of times that a packet is classified again.
const MOST_PASSES: u8 = 4;

impl Observation {
    /// Reports an event to control. Returns whether there was room.
    fn report_event(&mut self, event: Event) -> bool {
        let room = self.events.len() < EVENT_LIMIT;
        if room {
            self.events.push_back(event);
        }
        room
    }
}

impl Router {
    /// Resumes suspended calls of plugins, and forwards the packets that plugins have released.
    pub(crate) fn resume_kept(&mut self, now: Instant) {
        let mut released = std::mem::take(&mut self.scratch.released);
        self.gates.resume(&self.forwarding.fib, &self.ports, &mut released, now);
        self.after_succession();
        let mut work = std::mem::take(&mut self.scratch.spare);
        let mut waiting = released.drain(..).peekable();
        while let Some(first) = waiting.next() {
            let place = first.waiting.place;
            work.begin();
            self.add(&mut work, first);
            let alone = self.observation.trace.is_some()
                && work.packets.first().is_some_and(|packet| packet.trace != 0);
            while work.packets.room() > 0
                && !alone
                && let Some(next) = waiting.next_if(|next| {
                    next.waiting.place == place
                        && (self.observation.trace.is_none() || next.waiting.packet.trace == 0)
                })
            {
                self.add(&mut work, next);
            }
            self.resume_at(place, &mut work, now);
        }
        drop(waiting);
        self.scratch.spare = work;
        self.scratch.released = released;
    }

    /// Keeps a packet for a plugin.
    pub(crate) fn keep(
        &mut self,
        ticket: Ticket,
        packet: Packet,
        key: FlowKey,
        destination: MacAddr,
        state: u32,
    ) {
        // The other half of the packet memory is for packets that don't wait.
        let most = self.pool.capacity() as usize / 2;
        let plugins = self.gates.plugins_mut();
        let state = plugins.state_reference(state);
        if let Some(packet) =
            plugins.keep(ticket, most, Kept { packet, key, destination: destination.0, state })
        {
            self.drop_packet(packet, DropReason::PluginBusy);
        }
    }

    /// Takes the outputs of instances other than verdicts. Packets begin their journey in the order of their
    /// creation; messages, requests and log lines go to control.
    #[inline]
    pub(crate) fn take_given(&mut self, now: Instant) {
        while let Some(Given { instance, output }) = self.gates.plugins_mut().take_given() {
            match output {
                Output::Packet { bytes, port, passes } => {
                    if !self.begin_made(&bytes, port, passes) {
                        self.gates.plugins_mut().fail_for_port(instance, port, now);
                    }
                }
                Output::Log(level, line) => {
                    _ = self.observation.report_event(Event::InstanceSays(instance, level, line))
                }
                Output::Message(bytes) => {
                    if !self.observation.report_event(Event::InstanceSends(instance, bytes)) {
                        self.gates.plugins_mut().count_messages(instance, |messages| messages.unsent += 1);
                    }
                }
                Output::Request(request) => {
                    _ = self.observation.report_event(Event::InstanceRequests(instance, request))
                }
            }
        }
        self.take_made();
    }

    /// Injects a packet that an instance made, from the network header on, as if `port` had received it.
    /// `passes`: number of times that the original packet was classified again. Its limit prevents that
    /// packets multiply without end. Returns `false` for an unknown port: only the router itself makes
    /// packets without an ingress port, which no stage checks.
    pub(crate) fn begin_made(&mut self, bytes: &[u8], port: PortId, passes: u8) -> bool {
        if self.ports.get(port).is_none() {
            return false;
        }
        self.observation.totals.created.plugins += 1;
        let Some(mut packet) = self.pool.packet_from(bytes) else {
            self.observation.totals.dropped += 1;
            self.ports.count_drop(port, DropReason::NoMemory);
            return true;
        };
        packet.port = port;
        packet.passes = passes;
        packet.set_network(0);
        if let Err(packet) = self.pending.from_plugins.push(packet, &self.pool) {
            self.drop_packet(packet, DropReason::QueueFull);
        }
        true
    }

    /// Begins the journey of packets that instances made, as many as the iteration takes.
    fn take_made(&mut self) {
        while let Some(packet) = self.pending.from_plugins.take() {
            self.classify_again(packet);
        }
    }

    /// Queues a packet to be classified again. Drops a packet that was classified again [`MOST_PASSES`]
    /// times.
    pub(crate) fn classify_again(&mut self, mut packet: Packet) {
        if packet.passes == MOST_PASSES {
            return self.drop_packet(packet, DropReason::PluginLoop);
        }
        packet.passes += 1;
        self.pending.again.push(packet);
    }

    /// Parses packets that are classified again: a plugin may have changed them.
    pub(crate) fn start_again(&mut self, work: &mut Work, now: Instant) {
        work.begin();
        for index in 0..work.packets.len() {
            let packet = work.packets.at_mut(index);
            let (port, tag, passes) = (packet.port, packet.tag, packet.passes);
            // From now on, other filters account for the packet.
            packet.counts_for = EMPTY_PATH;
            let ether_type = match packet.network().first().map(|first| first >> 4) {
                Some(6) => EtherType::IPV6,
                _ => EtherType::IPV4,
            };
            self.read(work, index, ether_type, now);
            let packet = work.packets.at_mut(index);
            (packet.port, packet.tag, packet.passes) = (port, tag, passes);
        }
    }

    /// Resumes the packets of a batch at their common path, position and stage.
    fn resume_at(&mut self, place: Place, work: &mut Work, now: Instant) {
        if place.position != Position::Copy {
            // The number of the route may have another meaning by now.
            for (packet, key) in work.packets.iter_mut().zip(work.keys.all()) {
                if !is_filter(packet.next_hop) {
                    look_up(&self.forwarding.fib, packet, key);
                }
            }
            return self.travel_from(work, place.position, place.stage, now);
        }
        self.gates.group(work);
        self.run_gates((place.position, place.stage), work, (), now);
        for (fate, packet) in work.fates.all_mut().iter_mut().zip(work.packets.iter()) {
            // A copy ends after the last instance, unless an instance sends it.
            *fate = match *fate {
                Fate::Kept(ticket) => Fate::Kept(ticket),
                Fate::Forward if is_copy(packet.next_hop) => Fate::Resume,
                _ => Fate::Consumed,
            };
        }
        self.dispose(work, (), now);
    }

    /// Adds a packet to a batch, which has room.
    fn add(&mut self, work: &mut Work, released: Released) {
        let Released { waiting, direction, end } = released;
        let Waiting { mut packet, key, destination, place, state, .. } = waiting;
        for path in [place.path, packet.counts_for] {
            self.gates.plugins_mut().paths.touch(path);
        }
        if let Some(direction) = direction {
            let mut outlet =
                Outlet::new(&self.forwarding.fib, &self.ports, &self.pool, &mut self.pending.resumed);
            self.gates.direct(&mut packet, direction, place.position, &mut outlet);
            self.observation.totals.created.copies += outlet.copies;
        }
        let index = work.packets.len();
        if work.packets.push(packet).is_err() {
            return;
        }
        work.keys[index] = key;
        work.paths[index] = place.path;
        work.adjacencies[index] = NO_ADJACENCY;
        work.states[index] = self.gates.plugins().find_state(state);
        work.destinations[index] = MacAddr(destination);
        work.fates[index] = match end {
            None => Fate::Forward,
            Some(End::Drop(reason)) => Fate::Drop(reason),
            Some(End::Consume) => Fate::Consumed,
            Some(End::Classify) => Fate::Again,
        };
    }
}
