//! Connections of a worker: both directions of flows, for instances whose state belongs to connections.
//!
//! The gates stage tracks a packet before the first such instance on its path, and remembers the connection for later
//! instances. A packet that an instance classifies again is tracked again; so is each copy whose original is not tracked
//! yet. Other packets are not tracked. With several workers, each packet costs the hash of its connection, by which it
//! finds its worker.
//!
//! A connection ends when all its packets so far were dropped, so packets that policies drop fill no table. A packet
//! that waits counts as not dropped, and so does a packet that an instance classifies again.
//!
//! Control maps the table, and the kernel allocates its pages as they are used: the first connection at a page waits for
//! one.

mod reports;

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use millrace_connection::{
    ConnectionRef, ConnectionTable, Direction, EndReason, Ended, Fragment, Packet as Segment, Refusal,
    Relation, Tracked, Transport,
};
use millrace_packet::{DropReason, Exceptions, Family, FlowKey, Packet};
use millrace_plugin::{ConnectionEnd, TrackConnections, TrackedPacket};
use millrace_plugin_abi::{ConnectionStatus, PacketConnection};
use millrace_units::{Instant, PortId};
use millrace_wire::Protocol;
use millrace_wire::ipv6_ext::{self, End};
use millrace_wire::{ipv4, ipv6};

pub use reports::{ConnectionPage, ConnectionReport, ConnectionScan};

/// Number of flows of ICMP messages whose latest connection is stored. Must be a power of two.
const QUERIES: usize = 256;
/// Number of steps of the search for connections whose idle time is over, for each batch.
const UPKEEP: u32 = 64;
/// Further steps for each connection opened since the last search: as many as a connection needs, from its opening to its
/// end. So the search keeps up with new connections.
const UPKEEP_OF_CONNECTION: u32 = 8;
/// Maximum number of such steps in an iteration without packets.
const IDLE_UPKEEP: u32 = 1024;
/// Interval of the search while no packets arrive: the resolution of idle times.
const UPKEEP_INTERVAL: Duration = Duration::from_millis(250);

/// Counters of a worker's connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConnectionCounts {
    /// Number of connections.
    pub connections: u64,
    /// Maximum number of connections.
    pub maximum: u64,
    /// Number of addresses that have opened connections.
    pub sources: u64,
    /// Packets tracked.
    pub packets: u64,
    /// Connections that ended because no packet came.
    pub expired: u64,
    /// Connections whose place a new one has taken in a full table, before they were assured.
    pub recycled: u64,
    /// Connections that ended because the same endpoints opened another one.
    pub reopened: u64,
    /// Packets that belong to no connection, or contradict its state.
    pub invalid: u64,
    /// New connections refused because the table is full of assured connections.
    pub refused_full: u64,
    /// New connections refused because their source has its maximum.
    pub refused_source: u64,
}

/// Connections of a worker.
#[derive(Debug)]
pub(crate) struct Connections {
    pub table: Box<ConnectionTable>,
    /// Latest connections of ICMP messages, by the hashes of their flows. The later fragments of a message show no
    /// identifier, so they follow the first one.
    queries: [ConnectionRef; QUERIES],
    counts: ConnectionCounts,
    /// Connections opened since the last upkeep.
    opened: u32,
    /// Time of the next upkeep without packets.
    upkeep: Instant,
}

impl Connections {
    /// Returns the connections of an empty table.
    pub fn new(mut table: Box<ConnectionTable>, now: Instant) -> Self {
        table.begin(now);
        let queries = [ConnectionRef::default(); QUERIES];
        Self { table, queries, counts: ConnectionCounts::default(), opened: 0, upkeep: Instant::ZERO }
    }

    /// Returns the counters.
    pub fn counts(&self) -> ConnectionCounts {
        ConnectionCounts {
            connections: self.table.len().into(),
            maximum: self.table.maximum().into(),
            sources: self.table.sources().into(),
            ..self.counts
        }
    }

    /// Resets the counters of packets and of ended connections.
    pub fn clear_counts(&mut self) {
        self.counts = ConnectionCounts::default();
    }

    /// Begins an upkeep, and returns its number of steps; `None` if none is due. `idle`: the worker has no packets.
    pub fn begin_upkeep(&mut self, now: Instant, idle: bool) -> Option<u32> {
        if self.table.is_empty() || (idle && self.upkeep > now) {
            return None;
        }
        self.upkeep = now + UPKEEP_INTERVAL;
        let opened = std::mem::take(&mut self.opened).saturating_mul(UPKEEP_OF_CONNECTION);
        Some(opened.saturating_add(if idle { IDLE_UPKEEP } else { UPKEEP }))
    }

    /// Returns the time of the next upkeep if no packets arrive before; `None` if none is needed.
    pub fn next_upkeep(&self) -> Option<Instant> {
        (!self.table.is_empty()).then_some(self.upkeep)
    }

    /// Ends the next connection whose idle time is over, within a number of steps. If the steps don't suffice, the next
    /// upkeep is due at once.
    pub fn expire(&mut self, now: Instant, steps: &mut u32) -> Option<ConnectionEnd> {
        let ended = self.table.expire(now, steps);
        if *steps == 0 {
            self.upkeep = now;
        }
        ended.map(|ended| self.note_end(&ended))
    }

    /// Takes a dropped packet back from its connection. Returns the connection's end if all its packets were dropped.
    pub fn withdraw(&mut self, dropped: PacketConnection) -> Option<ConnectionEnd> {
        let ended = self.table.drop_counted(ConnectionRef::new(dropped.number, dropped.serial))?;
        Some(self.note_end(&ended))
    }

    /// Counts the end of a connection.
    pub fn note_end(&mut self, ended: &Ended) -> ConnectionEnd {
        match ended.reason {
            EndReason::Expired => self.counts.expired += 1,
            EndReason::Recycled => self.counts.recycled += 1,
            EndReason::Reopened => self.counts.reopened += 1,
            EndReason::Dropped | EndReason::Removed => {}
        }
        let Ended { connection, key, originator, .. } = ended;
        let [from, to] = key.endpoints(*originator);
        let key = flow_key(key.protocol(), from, to);
        ConnectionEnd { number: connection.number(), serial: connection.serial(), key }
    }

    /// Returns the place of a flow of ICMP messages; `None` for other flows.
    fn query(&mut self, packet: &Packet, key: &FlowKey) -> Option<&mut ConnectionRef> {
        match Protocol(key.protocol) {
            Protocol::ICMP | Protocol::ICMPV6 => self.queries.get_mut(packet.hash as usize % QUERIES),
            _ => None,
        }
    }

    fn refuse(&mut self, refusal: Refusal) -> Result<PacketConnection, DropReason> {
        match refusal {
            Refusal::Invalid(_) => {
                self.counts.invalid += 1;
                Ok(PacketConnection { status: ConnectionStatus::Invalid, ..PacketConnection::default() })
            }
            Refusal::SourceFull => {
                self.counts.refused_source += 1;
                Err(DropReason::ConnectionSourceFull)
            }
            Refusal::TableFull => {
                self.counts.refused_full += 1;
                Err(DropReason::ConnectionTableFull)
            }
        }
    }
}

impl TrackConnections for Connections {
    fn track(&mut self, packet: &Packet, key: &FlowKey, now: Instant) -> TrackedPacket {
        self.counts.packets += 1;
        let transport = Transport {
            octets: packet.transport(),
            length: packet.len() - packet.transport_offset(),
            fragment: fragment_of(packet, key),
        };
        let hint = self.query(packet, key).copied().unwrap_or_default();
        let Tracked { known, ended } = self.table.track(&Segment { key, transport }, hint, now);
        let ended = ended.map(|ended| self.note_end(&ended));
        let connection = match known {
            Ok(known) => {
                if known.relation != Relation::Related
                    && let Some(query) = self.query(packet, key)
                {
                    *query = known.connection;
                }
                let status = match known.relation {
                    Relation::Opening | Relation::New => ConnectionStatus::New,
                    Relation::Established => ConnectionStatus::Established,
                    Relation::Related => ConnectionStatus::Related,
                };
                let (number, serial) = (known.connection.number(), known.connection.serial());
                let is_reply = known.direction == Direction::Reply;
                let (opens, is_counted) = (known.relation == Relation::Opening, known.is_counted);
                self.opened = self.opened.saturating_add(opens.into());
                Ok(PacketConnection { number, serial, status, is_reply, is_counted })
            }
            Err(refusal) => self.refuse(refusal),
        };
        TrackedPacket { connection, ended }
    }
}

/// Returns the flow key of packets between two endpoints, without ingress port.
fn flow_key(protocol: Protocol, from: (IpAddr, u16), to: (IpAddr, u16)) -> FlowKey {
    // The ports of ICMP queries are no ports of the flow.
    let ports = if protocol.has_ports() { (from.1, to.1) } else { (0, 0) };
    match (from.0, to.0) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            FlowKey::v4(source, destination, protocol.0, ports, PortId::NONE)
        }
        (source, destination) => {
            FlowKey::v6(mapped(source), mapped(destination), protocol.0, ports, PortId::NONE)
        }
    }
}

/// Returns which fragment a packet is. The exceptions of a later fragment don't show it if the first one is known.
fn fragment_of(packet: &Packet, key: &FlowKey) -> Fragment {
    if packet.exceptions.contains(Exceptions::FRAGMENT) {
        return Fragment::Later;
    }
    let network = packet.network();
    let (is_later, is_fragment) = match key.family() {
        Family::V4 => ipv4::Packet::new_checked(network)
            .map_or((false, false), |header| (header.fragment_offset() > 0, header.is_fragment())),
        Family::V6 if network.get(6) == Some(&key.protocol) => (false, false),
        Family::V6 => ipv6::Packet::new_checked(network).map_or((false, false), |header| {
            let walk = ipv6_ext::walk(&header);
            (walk.end == End::LaterFragment, walk.fragment.is_some_and(|(_, fragment)| fragment.more))
        }),
    };
    match (is_later, is_fragment) {
        (true, _) => Fragment::Later,
        (false, true) => Fragment::First,
        (false, false) => Fragment::Whole,
    }
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

#[cfg(test)]
mod tests;
