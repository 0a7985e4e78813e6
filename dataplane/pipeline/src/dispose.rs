//! Where every packet of a batch ends up: in the queue of a port, at the host, held, used up, or dropped.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::vec::Drain;

use ipnet::IpNet;
use millrace_forward::{
    Action, ErrorOptions, FragmentError, IcmpError, LinkHeader, NeighbourKey, NeighbourState, NextHop,
    Origin, RedirectQuery, Route, Solicited, build_error, build_redirect6, fragment4, may_send_error,
    redirect_target,
};
use millrace_packet::{DropReason, FlowKey, Packet};
use millrace_units::{Amount, Instant, PortId};
use millrace_wire::vlan::{Control, StackedTag};
use millrace_wire::{EtherType, MacAddr};

use crate::accounts::{Departures, Ledger};
use crate::capture::Direction;
use crate::commands::NeighbourKnowledge;
use crate::event::Event;
use crate::filter_route::{is_copy, is_filter};
use crate::own_stack::{Context, Outcome, OwnStack};
use crate::parse::ROUTER;
use crate::ports::{DeviceId, PortEntry, PortSettings};
use crate::route::NO_ROUTE;
use crate::router::Router;
use crate::transmit::amount_of;
use crate::work::{Fate, Work};

/// Neighbour requests that control may have waiting.
pub(crate) const EVENT_LIMIT: usize = 1024;

impl Router {
    /// Carries out the fate of every packet, in order.
    pub(crate) fn dispose(&mut self, work: &mut Work, now: Instant) {
        self.dispose_first(work, 0..work.packets.len(), now);
        self.gates.plugins_mut().end_of_batch();
    }

    /// Carries out the fates of the first packets of a batch that are left, of which the notes have these numbers.
    pub(crate) fn dispose_first(&mut self, work: &mut Work, notes: Range<usize>, now: Instant) {
        let Work { packets, keys, states, fates, destinations, .. } = work;
        let (mut index, tapped) = (notes.start, self.is_tapped());
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
                    // No route of ours has chosen its way.
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
                Fate::Consumed => self.totals.consumed += 1,
                Fate::Kept(ticket) => {
                    self.keep(ticket, packet, keys[index], destinations[index], states[index]);
                }
                Fate::Again => self.classify_again(packet),
                Fate::Resume => self.resumed.push(packet),
                Fate::HandedOver => self.totals.handed += 1,
            }
            index += 1;
        }
    }

    /// Puts a batch of nothing but finished frames, which [`Leaving`](crate::work::Leaving) has counted, into the queue of the port that all leave by; or
    /// does as [`dispose`](Self::dispose) does, where there is more to it.
    pub(crate) fn leave(&mut self, work: &mut Work, now: Instant) {
        let Work { packets, leaving, .. } = work;
        let out = leaving.port().and_then(|port| self.ports.get_mut(port));
        let Some(out) = out.filter(|out| out.has_room_for(packets.len())) else {
            return self.dispose(work, now);
        };
        out.queue_all(packets.drain());
        let port = leaving.port();
        self.count_leaving(work, port);
        self.gates.plugins_mut().end_of_batch();
    }

    /// Counts the finished frames of a batch that were put into the queue of a port.
    fn count_leaving(&mut self, work: &Work, port: Option<PortId>) {
        let Some(out) = port.and_then(|port| self.ports.get_mut(port)) else { return };
        let mut ledger = Ledger { routes: &mut self.route_accounts, filters: self.gates.plugins_mut() };
        for (accounts, amount) in work.leaving.amounts() {
            out.queue_bytes += amount.bytes;
            ledger.amount_queued(accounts, amount);
        }
    }

    /// Puts so many finished frames at the beginning of a batch, all by one port, into the queue of that port.
    fn queue_run(&mut self, packets: &mut Drain<'_, Packet>, port: PortId, count: usize, now: Instant) {
        let run = packets.by_ref().take(count);
        let Self { ports, queue_drops, route_accounts, gates, .. } = self;
        let mut ledger = Ledger { routes: route_accounts, filters: gates.plugins_mut() };
        match ports.get_mut(port).filter(|out| out.is_here) {
            Some(out) => out.enqueue_all(run, now, queue_drops, &mut ledger),
            None => return run.for_each(|packet| self.queue_frame(packet, now)),
        }
        if !self.queue_drops.is_empty() {
            self.drop_queued();
        }
    }

    pub(crate) fn drop_packet(&mut self, packet: Packet, reason: DropReason) {
        self.totals.dropped += 1;
        self.ports.count_drop(packet.port, reason);
        self.drop_log.note(&packet, reason, self.gates.plugins());
        if packet.trace != 0 {
            self.trace_dropped(&packet, reason);
        }
    }

    /// Sends a packet to a station behind its `out_port`, in fragments if need be.
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
            // It was not when it was routed: a plugin has lengthened it, or kept it while the MTU became smaller.
            return self.refuse(packet, too_big, DropReason::TooBig, now);
        }
        let (mut fragments, mark) = (std::mem::take(&mut self.fragments), packet.trace);
        match fragment4(&self.pool, packet, mtu, &mut fragments) {
            Ok(()) => {
                self.totals.created.fragments += fragments.len() as u64 - 1;
                if mark != 0 {
                    self.trace_fragmented(mark, fragments.len(), now);
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
        self.fragments = fragments;
    }

    /// Puts a link header before a packet, and the packet into the queue of its `out_port`.
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
        if self.is_tapped() {
            self.tap(&packet, packet.out_port, Direction::Outbound, now);
        }
        if self.handover.is_some() {
            return self.queue_where_it_belongs(packet, now);
        }
        self.queue_here(packet, now);
    }

    /// Puts a finished frame where it waits to be sent by its `out_port`, which is this worker's.
    #[inline]
    pub(crate) fn queue_here(&mut self, packet: Packet, now: Instant) {
        let Self { ports, queue_drops, route_accounts, gates, .. } = self;
        let mut ledger = Ledger { routes: route_accounts, filters: gates.plugins_mut() };
        match ports.get_mut(packet.out_port) {
            None => self.drop_packet(packet, DropReason::PortDown),
            Some(out) => out.enqueue(packet, now, queue_drops, &mut ledger),
        }
        if !self.queue_drops.is_empty() {
            self.drop_queued();
        }
    }

    /// Counts and lets go what queues dropped.
    #[cold]
    pub(crate) fn drop_queued(&mut self) {
        let mut drops = std::mem::take(&mut self.queue_drops);
        for (packet, reason) in drops.drain(..) {
            let mut ledger = self.ledger();
            ledger.goes_on(&packet);
            ledger.dropped(&packet);
            self.drop_packet(packet, reason);
        }
        self.queue_drops = drops;
    }

    /// Where packets are counted that come to queues and leave them.
    pub(crate) fn ledger(&mut self) -> Ledger<'_> {
        Ledger { routes: &mut self.route_accounts, filters: self.gates.plugins_mut() }
    }

    /// Drops a packet and tells its source why, as far as the rules and the rate limit allow.
    pub(crate) fn refuse(&mut self, packet: Packet, error: IcmpError, reason: DropReason, now: Instant) {
        // What keeps a copy from being sent is nothing to the source of the packet.
        if packet.port == ROUTER || is_copy(packet.next_hop) {
            return self.drop_packet(packet, reason);
        }
        match self.error_for(&packet, error, now) {
            ErrorPath::Made(made) => {
                self.totals.created.errors += 1;
                self.made.push(made);
                self.drop_packet(packet, reason);
            }
            // The way back is the kernel's, so the kernel answers: it comes to the same verdict on the packet.
            ErrorPath::Kernel => self.punt(packet),
            ErrorPath::None => self.drop_packet(packet, reason),
        }
    }

    fn error_for(&mut self, packet: &Packet, error: IcmpError, now: Instant) -> ErrorPath {
        let group = packet.data().first().is_some_and(|first| first & 1 == 1) && packet.network_offset() > 0;
        if !may_send_error(packet, &error, group) {
            return ErrorPath::None;
        }
        let Some(peer) = source_of(packet) else { return ErrorPath::None };
        let kernel = self.ports.get(packet.port).is_some_and(|entry| entry.is_kernel());
        let link_local = matches!(peer, IpAddr::V6(peer) if peer.is_unicast_link_local());
        let source = match self.fib.lookup(peer).map(|index| self.fib.route(index)) {
            _ if link_local => self.source_towards(NextHop::new(packet.port, None), peer),
            Some(Route::Forward(hops)) => self.source_towards(*hops.select(packet.hash), peer),
            Some(Route::Kernel) if kernel => return ErrorPath::Kernel,
            _ => return ErrorPath::None,
        };
        let Some(source) = source else { return ErrorPath::None };
        if !self.errors.take(&error, now) {
            return ErrorPath::None;
        }
        self.identification = self.identification.wrapping_add(1);
        let options = ErrorOptions {
            traffic_class: self.options.icmp_dscp << 2,
            identification: self.identification,
            ..ErrorOptions::default()
        };
        match build_error(&self.pool, packet, error, source, &options) {
            Some(mut made) => {
                made.out_port = packet.port;
                ErrorPath::Made(made)
            }
            None => ErrorPath::None,
        }
    }

    /// The router's address at the port by which `peer` is reached; its id where the port has none of the family.
    fn source_towards(&self, hop: NextHop, peer: IpAddr) -> Option<IpAddr> {
        // An IPv4 route may lead to an IPv6 gateway (RFC 8950); the address shown is of the peer's family.
        let near = Some(hop.neighbour(peer)).filter(|near| near.is_ipv4() == peer.is_ipv4()).unwrap_or(peer);
        let own = self.ports.get(hop.port).and_then(|entry| entry.address_towards(near));
        let any = || {
            let mut addresses = self.ports.iter().flat_map(|(_, entry)| &entry.settings.addresses);
            addresses
                .find(|net| matches!(net.addr(), IpAddr::V6(v6) if !v6.is_unicast_link_local()))
                .map(|net| net.addr())
        };
        match peer {
            IpAddr::V4(_) => Some(own.unwrap_or(self.options.router_id.into())),
            IpAddr::V6(_) => own.or_else(any),
        }
    }

    fn redirect(&mut self, packet: &Packet, key: &FlowKey, now: Instant) {
        if packet.next_hop == NO_ROUTE || is_filter(packet.next_hop) {
            return;
        }
        let Route::Forward(hops) = self.fib.route(packet.next_hop) else { return };
        let hop = *hops.select(packet.hash);
        let query = RedirectQuery {
            arrival: packet.port,
            subnet: self.ports.get(packet.port).and_then(|entry| entry.subnet_of(key.source())),
            next_hop: &hop,
            source: key.source(),
            destination: key.destination(),
            source_routed: false,
        };
        let made = match (redirect_target(&query), key.destination()) {
            (Some(IpAddr::V4(gateway)), IpAddr::V4(_)) => {
                self.error_for(packet, IcmpError::Redirect { gateway }, now)
            }
            (Some(IpAddr::V6(target)), IpAddr::V6(_)) => self.redirect6(packet, target, now),
            _ => return,
        };
        if let ErrorPath::Made(made) = made {
            self.totals.created.errors += 1;
            self.made.push(made);
        }
    }

    /// The IPv6 redirect to `target` for who sent `packet`; it comes from the port's link-local address, or not at all
    /// (RFC 4861, 8.1 and 8.2).
    fn redirect6(&mut self, packet: &Packet, target: Ipv6Addr, now: Instant) -> ErrorPath {
        let Some(entry) = self.ports.get(packet.port) else { return ErrorPath::None };
        let link_local = |net: &IpNet| match net.addr() {
            IpAddr::V6(address) if address.is_unicast_link_local() => Some(address),
            _ => None,
        };
        let Some(source) = entry.settings.addresses.iter().find_map(link_local) else {
            return ErrorPath::None;
        };
        // It shares the limit of IPv4 redirects, where the gateway does not matter.
        let kind = IcmpError::Redirect { gateway: Ipv4Addr::UNSPECIFIED };
        if !may_send_error(packet, &kind, false) || !self.errors.take(&kind, now) {
            return ErrorPath::None;
        }
        let key = NeighbourKey { port: packet.port, address: target.into() };
        let station = match self.neighbours.get(key) {
            Some(NeighbourState::Reachable(mac)) => Some(mac),
            _ => None,
        };
        match build_redirect6(&self.pool, packet, source, target, station) {
            Some(mut made) => {
                made.out_port = packet.port;
                ErrorPath::Made(made)
            }
            None => ErrorPath::None,
        }
    }

    /// Gives a packet to the router's own stack.
    fn deliver(&mut self, packet: Packet, now: Instant) {
        if !self.enters(&packet, now) {
            return self.drop_packet(packet, DropReason::ControlPlane);
        }
        let mut outcome = Outcome::Delivered;
        self.with_own(now, |own, context| outcome = own.handle(&packet, context));
        match outcome {
            Outcome::Delivered => {
                self.totals.to_host += 1;
                if let Some(entry) = self.ports.get_mut(packet.port) {
                    entry.count.to_host += 1;
                }
            }
            Outcome::Dropped(reason) => self.drop_packet(packet, reason),
            Outcome::Refused(error) => self.refuse(packet, error, DropReason::LocalUnknown, now),
        }
    }

    /// Calls the own stack, and counts what it makes.
    pub(crate) fn with_own(&mut self, now: Instant, call: impl FnOnce(&mut OwnStack, &mut Context<'_>)) {
        let before = self.frames.len() + self.made.len();
        let mut context = Context {
            pool: &self.pool,
            ports: &self.ports,
            now,
            frames: &mut self.frames,
            packets: &mut self.made,
        };
        call(&mut self.own, &mut context);
        self.totals.created.own += (self.frames.len() + self.made.len() - before) as u64;
    }

    /// Holds a packet until its next hop's link address is known, and sees to it that it becomes known.
    fn wait(&mut self, packet: Packet, neighbour: IpAddr, now: Instant) {
        let key = NeighbourKey { port: packet.out_port, address: neighbour };
        let first = self.hold.waiting_for(key) == 0;
        let asks_control = |entry: &PortEntry| entry.is_kernel() || !self.has(entry.settings.device);
        if self.ports.get(key.port).is_some_and(asks_control) {
            if first && self.events.len() < EVENT_LIMIT {
                self.events.push_back(Event::Resolve(key.port, key.address));
            }
        } else {
            let origin = Origin { port: packet.port, source: source_of(&packet) };
            match self.own.resolver.solicit(key, origin, now, &mut self.own.actions) {
                Solicited::Pending | Solicited::Known(_) => {}
                Solicited::Failed => {
                    return self.refuse(packet, IcmpError::HostUnreachable, DropReason::NeighbourFailed, now);
                }
                Solicited::Limited => return self.drop_packet(packet, DropReason::NeighbourQueueFull),
            }
        }
        while let Some(evicted) = self.hold.evict_for(key, &packet) {
            self.drop_packet(evicted, DropReason::NeighbourQueueFull);
        }
        self.hold.hold(key, packet, now);
    }

    /// Notes what is known of a neighbour, and lets the packets that wait for it go.
    pub(crate) fn learn(&mut self, key: NeighbourKey, state: NeighbourState, now: Instant) {
        let known = self.neighbours.get(key);
        if matches!(known, Some(NeighbourState::Reachable(_))) && known != Some(state) {
            self.neighbour_moved(key);
        }
        // A full table keeps what it has; packets for the new neighbour then time out.
        if let Ok(Some(evicted)) = self.neighbours.upsert(key, state) {
            self.give_up(evicted, DropReason::NeighbourQueueFull);
        }
        let released: Vec<Packet> = self.hold.release(key).collect();
        match state {
            NeighbourState::Reachable(_) => self.waited.extend(released),
            _ => {
                for packet in released {
                    self.refuse(packet, IcmpError::HostUnreachable, DropReason::NeighbourFailed, now);
                }
            }
        }
    }

    fn give_up(&mut self, key: NeighbourKey, reason: DropReason) {
        let released: Vec<Packet> = self.hold.release(key).collect();
        released.into_iter().for_each(|packet| self.drop_packet(packet, reason));
    }

    /// Does what the resolver wants done.
    pub(crate) fn act(&mut self, now: Instant) {
        let mut actions = std::mem::take(&mut self.own.actions);
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
                    if self.events.len() < EVENT_LIMIT {
                        self.events.push_back(Event::AddressConflict(key.port, key.address, mac));
                    }
                }
            }
        }
        if self.own.actions.is_empty() {
            self.own.actions = actions;
        }
    }

    /// Queues the frames of the own stack.
    pub(crate) fn send_frames(&mut self, now: Instant) {
        let mut frames = std::mem::take(&mut self.frames);
        for frame in frames.drain(..) {
            let mut packet = frame.packet;
            packet.port = ROUTER;
            packet.out_port = frame.port;
            packet.set_network(0);
            self.enqueue(packet, frame.ether_type, frame.destination, now);
        }
        self.frames = frames;
    }

    /// Calls `send` with what each port sends now. What it leaves there stays held; it says how much of the rest it dropped for
    /// want of room, or `None` when the device is gone, and all is lost.
    pub(crate) fn for_each_queue(
        &mut self,
        now: Instant,
        mut send: impl FnMut(DeviceId, &mut VecDeque<Packet>, &mut Departures<'_>) -> Option<Amount>,
    ) {
        let Self { ports, queue_drops, route_accounts, gates, totals, drop_log, trace, .. } = self;
        // Packets that are traced are few: those that leave are looked for only while some are inside.
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
        if !self.queue_drops.is_empty() {
            self.drop_queued();
        }
    }
}

pub(crate) fn link_header(port: &PortSettings, destination: MacAddr, ether_type: EtherType) -> LinkHeader {
    let tag = |(protocol, id)| StackedTag { tag_protocol: EtherType(protocol), control: Control::new(id) };
    let mut tags = port.tags.iter().map(tag);
    match (tags.next(), tags.next()) {
        (Some(outer), Some(inner)) => LinkHeader::new(port.mac, destination, &[outer, inner], ether_type),
        (Some(outer), None) => LinkHeader::new(port.mac, destination, &[outer], ether_type),
        (None, _) => LinkHeader::new(port.mac, destination, &[], ether_type),
    }
}

/// How a packet's source comes to hear of an error.
enum ErrorPath {
    /// By this packet.
    Made(Packet),
    /// From the kernel.
    Kernel,
    /// It doesn't.
    None,
}

fn source_of(packet: &Packet) -> Option<IpAddr> {
    let network = packet.network();
    match network.first()? >> 4 {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(network.get(12..16)?).ok()?)),
        6 => Some(IpAddr::from(<[u8; 16]>::try_from(network.get(8..24)?).ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
