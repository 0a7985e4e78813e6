//! Dispose stage: carries out the fate of each packet of a batch (queue, hold, punt, deliver, consume or
//! drop).

use std::collections::VecDeque;
use std::net::IpAddr;
use std::ops::Range;
use std::vec::Drain;

use millrace_forward::{
    Action, FragmentError, IcmpError, NeighbourKey, NeighbourState, Origin, Solicited, fragment4,
};
use millrace_packet::{DropReason, FlowKey, Packet};
use millrace_units::{Amount, Instant, PortId};
use millrace_wire::{EtherType, MacAddr};

use crate::accounts::Ledger;
use crate::egress::departures::Departures;
use crate::egress::errors::{ErrorPath, source_of};
use crate::egress::transmit::amount_of;
use crate::forward::changes::NeighbourKnowledge;
use crate::gates::Gates;
use crate::observe::Observation;
use crate::observe::capture::Direction;
use crate::observe::event::EVENT_LIMIT;
use crate::observe::event::Event;
use crate::observe::trace::Probe;
use crate::parse::ROUTER;
use crate::ports::link_header;
use crate::ports::{DeviceId, PortEntry};
use crate::punt::own_stack::{Context, Outcome, OwnStack};
use crate::route_number::{NO_ROUTE, is_copy};
use crate::router::Router;
use crate::router::scratch::Scratch;
use crate::work::{Fate, Work};

/// Returns the ledger that counts packets entering and leaving queues.
fn ledger_of<'a>(observation: &'a mut Observation, gates: &'a mut Gates) -> Ledger<'a> {
    Ledger { routes: &mut observation.route_accounts, filters: gates.plugins_mut() }
}

impl Router {
    /// Carries out the fate of every packet, in order.
    pub(crate) fn dispose<P: Probe>(&mut self, work: &mut Work, probe: P, now: Instant) {
        match probe.mark() {
            None => self.dispose_first(work, 0..work.packets.len(), now),
            Some(_) => self.dispose_traced(work, 0, now),
        }
        self.gates.plugins_mut().end_of_batch();
    }

    /// Carries out the fates of the first packets left in a batch, as many as `notes` has indices. `notes`:
    /// indices of these packets in the other fields of `work`.
    pub(crate) fn dispose_first(&mut self, work: &mut Work, notes: Range<usize>, now: Instant) {
        let Work { packets, keys, states, fates, destinations, .. } = work;
        let (mut index, tapped) = (notes.start, self.observation.is_tapped());
        let mut packets = packets.drain_front(notes.len());
        while let Some(first) = packets.as_slice().first() {
            if matches!(fates[index], Fate::Queue) && !tapped {
                let port = first.out_port;
                let both = packets.as_slice().iter().zip(&fates[index..]);
                let run = both
                    .take_while(|(packet, fate)| matches!(fate, Fate::Queue) && packet.out_port == port)
                    .count();
                self.queue_run(&mut packets, port, run, now);
                index += run;
                continue;
            }
            let Some(mut packet) = packets.next() else { break };
            match fates[index] {
                Fate::Forward if packet.is_framed => {
                    // The kernel chose the egress port, so no route accounts for the packet.
                    packet.next_hop = NO_ROUTE;
                    self.queue_frame(packet, now);
                }
                Fate::Queue => self.queue_frame(packet, now),
                Fate::Forward => self.send(packet, &keys[index], destinations[index], now),
                Fate::Drop(reason) => self.drop_packet(packet, reason),
                Fate::Refuse(error, reason) => self.refuse(packet, error, reason, now),
                Fate::Host => self.punt(packet),
                Fate::Own => self.deliver(packet, now),
                Fate::Hold(neighbour) => self.wait(packet, neighbour, now),
                Fate::Consumed => self.observation.totals.consumed += 1,
                Fate::Kept(ticket) => {
                    self.keep(ticket, packet, keys[index], destinations[index], states[index]);
                }
                Fate::Again => self.classify_again(packet),
                Fate::Resume => self.pending.resumed.push(packet),
                Fate::HandedOver => self.observation.totals.handed += 1,
            }
            index += 1;
        }
    }

    /// Puts a batch of finished frames, counted by [`Leaving`](crate::work::Leaving), into the queue of their
    /// common egress port. Calls [`dispose`](Self::dispose) if they have no common port, or if that port has
    /// no room.
    pub(crate) fn leave(&mut self, work: &mut Work, now: Instant) {
        let Work { packets, leaving, .. } = work;
        let out = leaving.port().and_then(|port| self.ports.get_mut(port));
        let Some(out) = out.filter(|out| out.has_room_for(packets.len())) else {
            return self.dispose(work, (), now);
        };
        out.queue_all(packets.drain());
        let port = leaving.port();
        self.count_leaving(work, port);
        self.gates.plugins_mut().end_of_batch();
    }

    /// Counts the finished frames of a batch that were put into the queue of a port.
    fn count_leaving(&mut self, work: &Work, port: Option<PortId>) {
        let Some(out) = port.and_then(|port| self.ports.get_mut(port)) else { return };
        let mut ledger = ledger_of(&mut self.observation, &mut self.gates);
        for (accounts, amount) in work.leaving.amounts() {
            out.queue_bytes += amount.bytes;
            ledger.amount_queued(accounts, amount);
        }
    }

    /// Puts the first `count` frames of a batch, all with egress port `port`, into the queue of that port.
    fn queue_run(&mut self, packets: &mut Drain<'_, Packet>, port: PortId, count: usize, now: Instant) {
        let run = packets.by_ref().take(count);
        let mut ledger = ledger_of(&mut self.observation, &mut self.gates);
        match self.ports.get_mut(port).filter(|out| out.is_here) {
            Some(out) => out.enqueue_all(run, now, &mut self.scratch.queue_drops, &mut ledger),
            None => return run.for_each(|packet| self.queue_frame(packet, now)),
        }
        if !self.scratch.queue_drops.is_empty() {
            self.drop_queued();
        }
    }

    pub(crate) fn drop_packet(&mut self, packet: Packet, reason: DropReason) {
        self.observation.totals.dropped += 1;
        self.ports.count_drop(packet.port, reason);
        self.observation.drop_log.note(&packet, reason, self.gates.plugins());
        if packet.trace != 0 {
            self.observation.trace_dropped(&packet, reason);
        }
    }

    /// Sends a packet out of its `out_port` to a link address, and fragments the packet if necessary.
    fn send(&mut self, packet: Packet, key: &FlowKey, destination: MacAddr, now: Instant) {
        let Some(out) = self.ports.get(packet.out_port) else {
            return self.drop_packet(packet, DropReason::PortDown);
        };
        let mtu = usize::from(out.settings.mtu);
        if self.options.redirects && packet.port == packet.out_port {
            self.redirect(&packet, key, now);
        }
        let ether_type = if key.destination().is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
        if packet.network_len() <= mtu {
            return self.enqueue(packet, ether_type, destination, now);
        }
        let too_big = IcmpError::TooBig { mtu: mtu as u32 };
        if ether_type == EtherType::IPV6 {
            // The packet fitted when it was routed: a plugin has lengthened it, or kept it while the MTU
            // became smaller.
            return self.refuse(packet, too_big, DropReason::TooBig, now);
        }
        let (mut fragments, mark) = (std::mem::take(&mut self.scratch.fragments), packet.trace);
        match fragment4(&self.pool, packet, mtu, &mut fragments) {
            Ok(()) => {
                self.observation.totals.created.fragments += fragments.len() as u64 - 1;
                if mark != 0 {
                    self.observation.trace_fragmented(mark, fragments.len(), now);
                }
                for fragment in fragments.drain(..) {
                    self.enqueue(fragment, ether_type, destination, now);
                }
            }
            Err((FragmentError::NoMemory, packet)) => self.drop_packet(packet, DropReason::NoMemory),
            Err((FragmentError::TooLong, packet)) => self.drop_packet(packet, DropReason::Ip4Fragment),
            Err((FragmentError::Truncated, packet)) => self.drop_packet(packet, DropReason::Ip4Truncated),
            Err((FragmentError::DontFragment, packet)) => {
                self.refuse(packet, too_big, DropReason::TooBig, now);
            }
            Err((_, packet)) => self.drop_packet(packet, DropReason::TooBig),
        }
        self.scratch.fragments = fragments;
    }

    /// Prepends a link header to a packet, and puts the packet into the queue of its `out_port`.
    fn enqueue(&mut self, mut packet: Packet, ether_type: EtherType, destination: MacAddr, now: Instant) {
        let Some(out) = self.ports.get(packet.out_port) else {
            return self.drop_packet(packet, DropReason::PortDown);
        };
        let header = link_header(&out.settings, destination, ether_type);
        match header.apply(&mut packet) {
            true => self.queue_frame(packet, now),
            false => self.drop_packet(packet, DropReason::NoMemory),
        }
    }

    /// Puts a finished frame into the queue of its `out_port`.
    fn queue_frame(&mut self, packet: Packet, now: Instant) {
        if self.observation.is_tapped() {
            let leaves = (packet.out_port, Direction::Outbound);
            self.observation.tap(&packet, &self.pool, leaves, now);
        }
        if self.handover.is_some() {
            return self.queue_where_it_belongs(packet, now);
        }
        self.queue_here(packet, now);
    }

    /// Puts a finished frame into the queue or scheduler of its `out_port`, a port of this worker.
    #[inline]
    pub(crate) fn queue_here(&mut self, packet: Packet, now: Instant) {
        let mut ledger = ledger_of(&mut self.observation, &mut self.gates);
        match self.ports.get_mut(packet.out_port) {
            None => self.drop_packet(packet, DropReason::PortDown),
            Some(out) => out.enqueue(packet, now, &mut self.scratch.queue_drops, &mut ledger),
        }
        if !self.scratch.queue_drops.is_empty() {
            self.drop_queued();
        }
    }

    /// Counts and releases packets that queues dropped.
    #[cold]
    pub(crate) fn drop_queued(&mut self) {
        let mut drops = std::mem::take(&mut self.scratch.queue_drops);
        for (packet, reason) in drops.drain(..) {
            let mut ledger = self.ledger();
            ledger.goes_on(&packet);
            ledger.dropped(&packet);
            self.drop_packet(packet, reason);
        }
        self.scratch.queue_drops = drops;
    }

    /// Returns the ledger that counts packets entering and leaving queues.
    pub(crate) fn ledger(&mut self) -> Ledger<'_> {
        ledger_of(&mut self.observation, &mut self.gates)
    }

    /// Drops a packet and sends an ICMP error to its source, unless the rules or the rate limit forbid the
    /// error.
    pub(crate) fn refuse(&mut self, packet: Packet, error: IcmpError, reason: DropReason, now: Instant) {
        // The source of a packet gets no errors about copies of the packet.
        if packet.port == ROUTER || is_copy(packet.next_hop) {
            return self.drop_packet(packet, reason);
        }
        match self.error_for(&packet, error, now) {
            ErrorPath::Made(made) => {
                self.observation.totals.created.errors += 1;
                self.pending.made.push(made);
                self.drop_packet(packet, reason);
            }
            // The kernel routes the error, so the kernel makes it: its verdict on the packet is the same.
            ErrorPath::Kernel => self.punt(packet),
            ErrorPath::None => self.drop_packet(packet, reason),
        }
    }

    /// Delivers a packet to the router's own stack.
    fn deliver(&mut self, packet: Packet, now: Instant) {
        if !self.enters(&packet, now) {
            return self.drop_packet(packet, DropReason::ControlPlane);
        }
        let mut outcome = Outcome::Delivered;
        self.with_own(now, |own, context| outcome = own.handle(&packet, context));
        match outcome {
            Outcome::Delivered => {
                self.observation.totals.to_host += 1;
                if let Some(entry) = self.ports.get_mut(packet.port) {
                    entry.count.to_host += 1;
                }
            }
            Outcome::Dropped(reason) => self.drop_packet(packet, reason),
            Outcome::Refused(error) => self.refuse(packet, error, DropReason::LocalUnknown, now),
        }
    }

    /// Calls the own stack, and counts the packets and frames that it makes.
    pub(crate) fn with_own(&mut self, now: Instant, call: impl FnOnce(&mut OwnStack, &mut Context<'_>)) {
        let before = self.punt.frames.len() + self.pending.made.len();
        let mut context = Context {
            pool: &self.pool,
            ports: &self.ports,
            now,
            frames: &mut self.punt.frames,
            packets: &mut self.pending.made,
        };
        call(&mut self.punt.own, &mut context);
        self.observation.totals.created.own +=
            (self.punt.frames.len() + self.pending.made.len() - before) as u64;
    }

    /// Holds a packet until the link address of its next hop is known, and requests the resolution of that
    /// address.
    fn wait(&mut self, packet: Packet, neighbour: IpAddr, now: Instant) {
        let key = NeighbourKey { port: packet.out_port, address: neighbour };
        self.gates.plugins_mut().paths.touch(packet.counts_for);
        let first = self.forwarding.hold.waiting_for(key) == 0;
        let asks_control = |entry: &PortEntry| entry.is_kernel() || !self.has(entry.settings.device);
        if self.ports.get(key.port).is_some_and(asks_control) {
            if first && self.observation.events.len() < EVENT_LIMIT {
                self.observation.events.push_back(Event::Resolve(key.port, key.address));
            }
        } else {
            let origin = Origin { port: packet.port, source: source_of(&packet) };
            match self.punt.own.resolver.solicit(key, origin, now, &mut self.punt.own.actions) {
                Solicited::Pending | Solicited::Known(_) => {}
                Solicited::Failed => {
                    return self.refuse(packet, IcmpError::HostUnreachable, DropReason::NeighbourFailed, now);
                }
                Solicited::Limited => return self.drop_packet(packet, DropReason::NeighbourQueueFull),
            }
        }
        while let Some(evicted) = self.forwarding.hold.evict_for(key, &packet) {
            self.drop_packet(evicted, DropReason::NeighbourQueueFull);
        }
        self.forwarding.hold.hold(key, packet, now);
    }

    /// Records the state of a neighbour, and releases the packets held for it.
    pub(crate) fn learn(&mut self, key: NeighbourKey, state: NeighbourState, now: Instant) {
        let known = self.forwarding.neighbours.get(key);
        if matches!(known, Some(NeighbourState::Reachable(_))) && known != Some(state) {
            self.neighbour_moved(key);
        }
        // A full table drops the new neighbour; packets held for it then time out.
        if let Ok(Some(evicted)) = self.forwarding.neighbours.upsert(key, state) {
            self.give_up(evicted, DropReason::NeighbourQueueFull);
        }
        let released: Vec<Packet> = self.forwarding.hold.release(key).collect();
        match state {
            NeighbourState::Reachable(_) => self.pending.waited.extend(released),
            _ => {
                for packet in released {
                    self.refuse(packet, IcmpError::HostUnreachable, DropReason::NeighbourFailed, now);
                }
            }
        }
    }

    fn give_up(&mut self, key: NeighbourKey, reason: DropReason) {
        let released: Vec<Packet> = self.forwarding.hold.release(key).collect();
        released.into_iter().for_each(|packet| self.drop_packet(packet, reason));
    }

    /// Carries out the actions of the neighbour resolver.
    pub(crate) fn act(&mut self, now: Instant) {
        let mut actions = std::mem::take(&mut self.punt.own.actions);
        for action in actions.drain(..) {
            match action {
                Action::SendRequest { key, to } => {
                    self.with_own(now, |own, context| own.request(key, to, context))
                }
                Action::Resolved { key, mac } => {
                    self.tell_others(key, NeighbourKnowledge::Known(mac));
                    self.learn(key, NeighbourState::Reachable(mac), now);
                }
                Action::Failed { key } => {
                    self.tell_others(key, NeighbourKnowledge::Failed);
                    self.learn(key, NeighbourState::Failed, now);
                }
                Action::Forgotten { key } => {
                    self.tell_others(key, NeighbourKnowledge::Forgotten);
                    self.forget_neighbour(key);
                    self.give_up(key, DropReason::NeighbourFailed);
                }
                Action::Conflict { key, mac, defend } => {
                    if defend {
                        self.with_own(now, |own, context| own.announce(key, context));
                    }
                    if self.observation.events.len() < EVENT_LIMIT {
                        self.observation.events.push_back(Event::AddressConflict(key.port, key.address, mac));
                    }
                }
            }
        }
        if self.punt.own.actions.is_empty() {
            self.punt.own.actions = actions;
        }
    }

    /// Queues the frames of the own stack.
    pub(crate) fn send_frames(&mut self, now: Instant) {
        let mut frames = std::mem::take(&mut self.punt.frames);
        for frame in frames.drain(..) {
            let mut packet = frame.packet;
            packet.port = ROUTER;
            packet.out_port = frame.port;
            packet.set_network(0);
            self.enqueue(packet, frame.ether_type, frame.destination, now);
        }
        self.punt.frames = frames;
    }

    /// Calls `send` for each port with the queue of packets to send now. Packets that `send` leaves in the
    /// queue wait there. `send` returns the amount that it dropped for lack of room. `None` means that the
    /// device is gone: then all packets of the queue are dropped.
    pub(crate) fn for_each_queue(
        &mut self,
        now: Instant,
        mut send: impl FnMut(DeviceId, &mut VecDeque<Packet>, &mut Departures<'_>) -> Option<Amount>,
    ) {
        let Self {
            ports,
            gates,
            scratch: Scratch { queue_drops, .. },
            observation: Observation { route_accounts, totals, drop_log, trace, .. },
            ..
        } = self;
        // Traced packets are few: the departures are searched only while the router holds some.
        let mut trace = trace.as_mut().filter(|tracer| tracer.has_live());
        for (id, entry) in ports.iter_mut() {
            let mut ledger = Ledger { routes: route_accounts, filters: gates.plugins_mut() };
            entry.release(now, queue_drops, &mut ledger);
            if entry.queue.is_empty() {
                continue;
            }
            let before = Amount { packets: entry.queue.len() as u64, bytes: entry.queue_bytes };
            if let Some(tracer) = &mut trace {
                tracer.look_for(&entry.queue);
            }
            let mut departures = Departures { ledger, noted: &mut entry.noted, log: drop_log };
            let (beyond, reason) = match send(entry.settings.device, &mut entry.queue, &mut departures) {
                Some(beyond) => (beyond, DropReason::QueueFull),
                None => {
                    departures.lose(0, entry.queue.iter(), DropReason::PortDown);
                    entry.queue.clear();
                    (before, DropReason::PortDown)
                }
            };
            departures.stay(entry.queue.iter());
            let left = amount_of(entry.queue.iter());
            let sent = before.packets - left.packets - beyond.packets;
            entry.count.tx_packets += sent;
            entry.count.tx_bytes += before.bytes - left.bytes - beyond.bytes;
            if let Some(tracer) = &mut trace {
                tracer.left(id, sent, left.packets, reason, now);
            }
            entry.count.drops.add(reason, beyond.packets);
            entry.queue_bytes = left.bytes;
            totals.transmitted += sent;
            totals.dropped += beyond.packets;
        }
        if let Some(tracer) = trace {
            tracer.looked();
        }
        if !self.scratch.queue_drops.is_empty() {
            self.drop_queued();
        }
    }
}

#[cfg(test)]
mod tests;
