//! Dispose stage: carries out the fate of each packet of a batch (forward, queue, hold, punt, deliver,
//! consume or drop).

use std::net::IpAddr;
use std::ops::Range;

use millrace_forward::{FragmentError, IcmpError, NeighbourKey, Origin, Solicited, fragment4};
use millrace_packet::{DropReason, FlowKey, Packet};
use millrace_plugin::{PaidStages, Waiting};
use millrace_units::Instant;
use millrace_wire::{EtherType, MacAddr};

use crate::egress::errors::{ErrorMaker, ErrorPath, ErrorTables, IcmpErrors, source_of};
use crate::egress::queueing::Queueing;
use crate::forward::tables::ForwardingTables;
use crate::handover::{Handover, Transport};
use crate::observe::event::Event;
use crate::observe::trace::{Probe, TraceEnd, TraceStep, Waits};
use crate::options::Options;
use crate::parse::ROUTER;
use crate::pending::Pending;
use crate::ports::{PortEntry, link_header};
use crate::punt::control_plane::is_neighbour_message;
use crate::punt::own_stack::Outcome;
use crate::punt::{Punt, PuntStage};
use crate::route_number::NO_ROUTE;
use crate::work::{Fate, Work};

/// State of the dispose stage: everything that a packet's fate can change.
pub(crate) struct Disposal<'a> {
    pub queueing: Queueing<'a>,
    pub options: &'a Options,
    pub forwarding: &'a mut ForwardingTables,
    pub punt: &'a mut Punt,
    pub errors: &'a mut IcmpErrors,
    /// Packets that wait for another pass through the stages.
    pub pending: &'a mut Pending,
}

impl Disposal<'_> {
    /// Carries out the fate of every packet, in order.
    pub fn dispose<P: Probe>(&mut self, work: &mut Work, probe: P, now: Instant) {
        match probe.mark() {
            None => self.dispose_first(work, 0..work.packets.len(), now),
            Some(_) => self.dispose_traced(work, 0, now),
        }
        self.queueing.gates.plugins_mut().end_of_batch();
    }

    /// Removes the first packets from a batch and carries out their fates. `notes`: indices of these packets
    /// in the other fields of `work`; its length is the number of packets.
    pub fn dispose_first(&mut self, work: &mut Work, notes: Range<usize>, now: Instant) {
        let Work { packets, keys, varying, states, paths, fates, destinations, .. } = work;
        let (mut index, tapped) = (notes.start, self.queueing.observation.is_tapped());
        let mut packets = packets.drain_front(notes.len());
        while let Some(first) = packets.as_slice().first() {
            if matches!(fates[index], Fate::Queue) && !tapped {
                let port = first.out_port;
                let both = packets.as_slice().iter().zip(&fates[index..]);
                let run = both
                    .take_while(|(packet, fate)| matches!(fate, Fate::Queue) && packet.out_port == port)
                    .count();
                self.queueing.queue_run(&mut packets, port, run, now);
                index += run;
                continue;
            }
            let Some(mut packet) = packets.next() else { break };
            match fates[index] {
                Fate::Forward if packet.is_framed => {
                    // The kernel chose the egress port, so no route accounts for the packet.
                    packet.next_hop = NO_ROUTE;
                    self.queueing.queue_frame(packet, now);
                }
                Fate::Queue => self.queueing.queue_frame(packet, now),
                Fate::Forward => self.send(packet, &keys[index], destinations[index], now),
                Fate::Drop(reason) => {
                    self.queueing.gates.note_dropped(states.connection(index));
                    self.drop_packet(packet, reason);
                }
                Fate::Refuse(error, reason) => {
                    self.queueing.gates.note_dropped(states.connection(index));
                    self.refuse(packet, error, reason, now);
                }
                Fate::Host => self.punt(packet),
                Fate::Own => self.accept(packet, now),
                Fate::Hold(neighbour) => self.hold(packet, neighbour, now),
                Fate::Consumed => self.queueing.observation.totals.consumed += 1,
                Fate::Kept(ticket) => {
                    let Queueing { pool, gates, .. } = &mut self.queueing;
                    let (key, destination) = (keys[index], destinations[index]);
                    let states = (states.flows[index], states.connection(index));
                    let kept = gates.keep(ticket, packet, key, destination, states, pool);
                    if let Err((packet, why)) = kept {
                        self.queueing.gates.note_dropped(states.1);
                        self.drop_packet(packet, why);
                    }
                }
                Fate::Again => self.classify_again(packet),
                Fate::Resume => self.pending.resumed.push(packet),
                Fate::HandOver(worker) => {
                    let transport = Transport::of(&keys[index], varying[index].tcp_flags);
                    self.queueing.hand_over(worker, packet, transport, paths[index]);
                }
            }
            index += 1;
        }
    }

    /// Removes the first packet from a batch, carries out its fate, and records the result in its trace.
    /// `note`: index of the packet in the other fields of `work`.
    pub fn dispose_traced(&mut self, work: &mut Work, note: usize, now: Instant) {
        let (packet, fate) = (work.packets.at(0), work.fates[note]);
        let (mark, Queueing { ports, observation, gates, .. }) = (packet.trace, &mut self.queueing);
        match fate {
            Fate::Refuse(error, _) => observation.write(mark, TraceStep::Refused(error), now),
            Fate::Hold(neighbour) => {
                let waits = Waits::Neighbour(packet.out_port, neighbour);
                observation.write(mark, TraceStep::Waits(waits), now);
            }
            Fate::Kept(ticket) => {
                let waits =
                    PaidStages::of(gates.plugins()).wait_of(ticket).map_or(Waits::Instance, Waits::Processor);
                observation.write(mark, TraceStep::Waits(waits), now);
            }
            Fate::Again => observation.write(mark, TraceStep::Again, now),
            Fate::Consumed => observation.end(mark, TraceEnd::Consumed, now),
            Fate::Forward
            | Fate::Queue
            | Fate::Drop(_)
            | Fate::Host
            | Fate::Own
            | Fate::Resume
            | Fate::HandOver(_) => {}
        }
        let leaves = matches!(fate, Fate::Forward | Fate::Queue);
        let may_be_handed = leaves || matches!(fate, Fate::HandOver(_));
        let queued = leaves.then(|| ports.queue_of(packet));
        let (handed, to_host) = (observation.totals.handed, observation.totals.to_host);
        observation.note_dropped(0);
        self.dispose_first(work, note..note + 1, now);
        let observation = &mut *self.queueing.observation;
        if fate == Fate::Own && observation.totals.to_host > to_host {
            observation.end(mark, TraceEnd::Own, now);
        } else if may_be_handed && observation.totals.handed > handed {
            (0..observation.totals.handed - handed).for_each(|_| observation.gone());
            observation.write(mark, TraceStep::HandedOver, now);
        } else if let Some(step) =
            queued.filter(|_| observation.trace.as_ref().is_none_or(|tracer| tracer.dropped != mark))
        {
            observation.write_queued(mark, step, now);
        }
    }

    /// Counts and releases a dropped packet.
    pub fn drop_packet(&mut self, packet: Packet, reason: DropReason) {
        self.queueing.drop_packet(packet, reason);
    }

    /// Counts and releases a dropped packet that has waited for an instance.
    pub fn drop_waiting(&mut self, waiting: Waiting, reason: DropReason) {
        self.queueing.gates.note_dropped(waiting.connection.get());
        self.drop_packet(waiting.packet, reason);
    }

    /// Sends a packet out of its `out_port` to a MAC address, and fragments the packet if necessary.
    fn send(&mut self, packet: Packet, key: &FlowKey, destination: MacAddr, now: Instant) {
        let Some(out) = self.queueing.ports.get(packet.out_port) else {
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
            // The packet fitted the MTU when it was routed. Since then, a plugin has lengthened it, or held
            // it while the MTU became smaller.
            return self.refuse(packet, too_big, DropReason::TooBig, now);
        }
        let (mut fragments, mark) = (std::mem::take(&mut self.queueing.scratch.fragments), packet.trace);
        match fragment4(self.queueing.pool, packet, mtu, &mut fragments) {
            Ok(()) => {
                self.queueing.observation.totals.created.fragments += fragments.len() as u64 - 1;
                if mark != 0 {
                    self.queueing.observation.trace_fragmented(mark, fragments.len(), now);
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
        self.queueing.scratch.fragments = fragments;
    }

    /// Prepends a link header to a packet, and puts the packet into the queue of its `out_port`.
    fn enqueue(&mut self, mut packet: Packet, ether_type: EtherType, destination: MacAddr, now: Instant) {
        let Some(out) = self.queueing.ports.get(packet.out_port) else {
            return self.drop_packet(packet, DropReason::PortDown);
        };
        let header = link_header(&out.settings, destination, ether_type);
        match header.apply(&mut packet) {
            true => self.queueing.queue_frame(packet, now),
            false => self.drop_packet(packet, DropReason::NoMemory),
        }
    }

    /// Queues the frames of the own stack.
    pub fn send_frames(&mut self, now: Instant) {
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

    /// Drops a packet and sends an ICMP error to its source, unless the ICMP rules or the rate limit forbid
    /// the error.
    pub fn refuse(&mut self, packet: Packet, error: IcmpError, reason: DropReason, now: Instant) {
        match self.error_maker().error_for(&packet, error, now) {
            ErrorPath::Made(made) => {
                self.begin_error(made);
                self.drop_packet(packet, reason);
            }
            ErrorPath::Kernel => self.punt(packet),
            ErrorPath::None => self.drop_packet(packet, reason),
        }
    }

    /// Sends an ICMP redirect to the source of a packet that leaves by its ingress port, if the source should
    /// use another first hop.
    fn redirect(&mut self, packet: &Packet, key: &FlowKey, now: Instant) {
        if let ErrorPath::Made(made) = self.error_maker().redirect(packet, key, now) {
            self.begin_error(made);
        }
    }

    fn begin_error(&mut self, made: Packet) {
        self.queueing.observation.totals.created.errors += 1;
        self.pending.made.push(made);
    }

    fn error_maker(&mut self) -> ErrorMaker<'_> {
        let Queueing { pool, ports, .. } = &self.queueing;
        let tables = ErrorTables { ports, forwarding: self.forwarding, options: self.options };
        ErrorMaker { errors: self.errors, pool, tables }
    }

    /// Queues a packet for the kernel.
    fn punt(&mut self, packet: Packet) {
        self.pending.count_punt();
        if let Err((packet, reason)) = self.punt.queue(packet, self.queueing.ports) {
            self.drop_packet(packet, reason);
        }
    }

    /// Accepts a packet for the router's own stack. With principals, the packet waits for control; a traced one
    /// does not.
    fn accept(&mut self, mut packet: Packet, now: Instant) {
        // The own stack reads whole messages in the first frame.
        packet.gather();
        if !self.punt.control_plane.enters(&packet, self.queueing.ports, now) {
            return self.drop_packet(packet, DropReason::ControlPlane);
        }
        if packet.trace != 0 {
            return self.deliver(packet, now);
        }
        match self.pending.for_processor.get_mut() {
            None => self.deliver(packet, now),
            Some(waiting) => {
                let is_neighbour = is_neighbour_message(&packet);
                if let Err(packet) = waiting.control.push(packet, is_neighbour) {
                    self.drop_packet(packet, DropReason::ControlCeiling);
                }
            }
        }
    }

    /// Delivers a packet to the router's own stack.
    pub fn deliver(&mut self, packet: Packet, now: Instant) {
        match self.punt_stage().deliver(&packet, now) {
            Outcome::Delivered => {}
            Outcome::Dropped(reason) => self.drop_packet(packet, reason),
            Outcome::Refused(error) => self.refuse(packet, error, DropReason::LocalUnknown, now),
        }
    }

    /// Returns the punt stage.
    pub fn punt_stage(&mut self) -> PuntStage<'_> {
        let Queueing { pool, ports, gates, handover, observation, .. } = &mut self.queueing;
        PuntStage {
            pool,
            ports,
            plugins: gates.plugins(),
            handover: handover.as_deref_mut(),
            observation,
            made: &mut self.pending.made,
            punt: self.punt,
        }
    }

    /// Holds a packet until the MAC address of its next hop is known, and starts the resolution of that
    /// address.
    fn hold(&mut self, packet: Packet, neighbour: IpAddr, now: Instant) {
        let key = NeighbourKey { port: packet.out_port, address: neighbour };
        self.queueing.gates.plugins_mut().paths.touch(packet.counts_for);
        let handover = self.queueing.handover.as_deref();
        let asks = self.queueing.ports.get(key.port).is_some_and(|entry| asks_control(entry, handover));
        if !asks {
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
        // Control may miss a request or an answer, so packets that wait for long ask again.
        if asks
            && self.forwarding.hold.is_due(key, now)
            && self.queueing.observation.report_event(Event::Resolve(key.port, key.address))
        {
            self.forwarding.hold.note_asked(key, now);
        }
    }

    /// Queues a packet for another classification.
    fn classify_again(&mut self, packet: Packet) {
        if let Err(packet) = self.pending.classify_again(packet) {
            self.drop_packet(packet, DropReason::PluginLoop);
        }
    }
}

/// Returns whether the kernel or another worker resolves the neighbours of a port, so that this worker has to
/// ask control.
pub(crate) fn asks_control(entry: &PortEntry, handover: Option<&Handover>) -> bool {
    entry.is_kernel() || handover.is_some_and(|handover| !handover.owns(entry.settings.device))
}

#[cfg(test)]
mod tests;
