//! Listing of connections for control, in pieces, so that packets don't wait.

use std::time::Duration;

use millrace_classify::CompiledSelection;
use millrace_connection::Listed;
use millrace_packet::FlowKey;
use millrace_units::Instant;
use millrace_wire::Protocol;

use super::{Connections, flow_key};

/// Maximum number of records checked by one command.
const RECORDS: u32 = 2048;

/// Request for the connections that match a filter, in a part of a worker's table.
#[derive(Clone, Debug)]
pub struct ConnectionScan {
    /// First number of the part: 1 in the first request, then `next` of the previous page.
    pub from: u32,
    /// Filter: a connection matches if packets of either direction may match, at any ingress port.
    pub filter: CompiledSelection,
    /// Maximum number of connections in the answer, which only counts the others.
    pub most: usize,
}

/// Answer to a [`ConnectionScan`]: the matching connections in a part of the table.
#[derive(Clone, Debug, Default)]
pub struct ConnectionPage {
    /// Number of matching connections.
    pub found: usize,
    /// First of them, up to the maximum.
    pub connections: Vec<ConnectionReport>,
    /// First number of the next part; `None` at the end of the table.
    pub next: Option<u32>,
}

/// Report on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionReport {
    /// Flow key of the packets of the opening side, without ingress port.
    pub key: FlowKey,
    /// Identifier of an ICMP query; `None` for other protocols.
    pub identifier: Option<u16>,
    /// Name of the phase.
    pub phase: &'static str,
    /// Whether the other side has answered.
    pub is_answered: bool,
    /// Whether new connections can't take the place of this one in a full table.
    pub is_assured: bool,
    /// Time until the connection ends if no packet comes, exact to 250 ms.
    pub rest: Duration,
}

impl ConnectionScan {
    /// Returns the matching connections in a part of the table, of at most [`RECORDS`] records.
    pub(crate) fn run(&self, connections: &Connections, now: Instant) -> ConnectionPage {
        let end = self.from.saturating_add(RECORDS);
        let mut page = ConnectionPage::default();
        for listed in connections.table.list(self.from..end) {
            let report = report(&listed, now);
            if self.matches(&report.key) {
                page.found += 1;
                if page.connections.len() < self.most {
                    page.connections.push(report);
                }
            }
        }
        page.next = (end < connections.table.numbers_end()).then_some(end);
        page
    }

    fn matches(&self, key: &FlowKey) -> bool {
        self.filter.may_match_flow(key) || self.filter.may_match_flow(&turned(key))
    }
}

fn report(listed: &Listed, now: Instant) -> ConnectionReport {
    let [from, to] = listed.endpoints();
    let is_query = matches!(listed.protocol(), Protocol::ICMP | Protocol::ICMPV6);
    ConnectionReport {
        key: flow_key(listed.protocol(), from, to),
        identifier: is_query.then_some(from.1),
        phase: listed.phase,
        is_answered: listed.is_answered,
        is_assured: listed.is_assured,
        rest: listed.until.since(now),
    }
}

/// Returns the key of the other direction.
fn turned(key: &FlowKey) -> FlowKey {
    let from = (key.destination(), key.destination_port);
    flow_key(Protocol(key.protocol), from, (key.source(), key.source_port))
}
