//! Packets in a connection table, between steps of time. No packets make the table panic, exceed its maximum,
//! or lose a connection without saying so.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use millrace_connection::{
    ConnectionConfig, ConnectionRef, ConnectionTable, Fragment, Packet, Timeouts, Transport,
};
use millrace_packet::FlowKey;
use millrace_units::{Instant, PortId};

use crate::input::Input;

/// Connections of the table, and of an address.
const MAXIMUM: u32 = 8;
const PER_SOURCE: u32 = 6;
/// Protocols of packets: TCP, UDP, ICMP, ICMPv6, SCTP and GRE.
const PROTOCOLS: [u8; 6] = [6, 17, 1, 58, 132, 47];

/// Passes packets to a table until the input ends.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let config = ConnectionConfig {
        maximum: MAXIMUM,
        per_source: PER_SOURCE,
        timeouts: Timeouts::default(),
        adopts: input.one_in(2),
        seed: 7,
    };
    let mut now = Instant::ZERO;
    let mut table = ConnectionTable::new(&config, now).expect("a table");
    let (mut opened, mut ended, mut hint) = (0u32, 0u32, ConnectionRef::default());
    while !input.is_empty() {
        now += Duration::from_millis(u64::from(input.byte()).pow(3));
        let mut budget = 1000;
        while table.expire(now, &mut budget).is_some() {
            ended += 1;
        }
        let (before, key) = (table.len(), key(&mut input));
        let count = input.byte().into();
        let octets = input.take(count);
        let fragment = match input.byte() % 16 {
            0 => Fragment::First,
            1 | 2 => Fragment::Later,
            3 => {
                table.begin_epoch();
                Fragment::Whole
            }
            _ => Fragment::Whole,
        };
        let length = octets.len() + usize::from(input.byte());
        let packet = Packet { key: &key, transport: Transport { octets, length, fragment } };
        let tracked = table.track(&packet, hint, now);
        hint = tracked.known.map_or(hint, |known| known.connection);
        ended += u32::from(tracked.ended.is_some());
        opened += table.len() + u32::from(tracked.ended.is_some()) - before;
        assert!(table.len() <= MAXIMUM && table.sources() <= table.len());
        assert_eq!(opened - ended, table.len());
        assert_eq!(table.iter().count(), table.len() as usize);
    }
}

fn key(input: &mut Input<'_>) -> FlowKey {
    let (source, destination) = (input.below(4) as u8, input.below(4) as u8);
    let ports = (input.below(4) as u16, input.below(4) as u16);
    let protocol = input.pick(&PROTOCOLS);
    if input.one_in(3) {
        let [source, destination] = [source, destination].map(|last| Ipv6Addr::from_bits(last.into()));
        return FlowKey::v6(source, destination, protocol, ports, PortId(1));
    }
    let [source, destination] = [source, destination].map(|last| Ipv4Addr::new(10, 0, 0, last));
    FlowKey::v4(source, destination, protocol, ports, PortId(1))
}
