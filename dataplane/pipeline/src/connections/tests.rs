//! Tests of the upkeep of connections.

use std::net::Ipv4Addr;

use millrace_connection::{ConnectionConfig, Timeouts};
use millrace_packet::Pool;

use super::*;

/// Number of connections that each batch opens.
const BATCH: u32 = 256;

/// Opens the connections of a batch, each with an address and a port of its own.
fn open_batch(connections: &mut Connections, pool: &Pool, batch: u32, now: Instant) {
    let mut datagram = [0; 28];
    (datagram[0], datagram[3], datagram[9]) = (0x45, 28, 17);
    let mut packet = pool.packet_from(&datagram).unwrap();
    packet.set_network(0);
    packet.set_transport(20);
    for number in batch * BATCH..(batch + 1) * BATCH {
        let source = Ipv4Addr::from(0x0a00_0000 | number);
        let key = FlowKey::v4(source, Ipv4Addr::new(10, 1, 0, 1), 17, (4000, 53), PortId(1));
        let tracked = connections.track(&packet, &key, now);
        assert_eq!(tracked.connection.map(|connection| connection.status), Ok(ConnectionStatus::New));
    }
}

/// A worker without idle iterations searches once for each batch.
#[test]
fn search_for_idle_connections_keeps_up_with_batches_of_new_ones() {
    let (maximum, timeouts) = (65_536, Timeouts::default());
    let config = ConnectionConfig { maximum, per_source: maximum, timeouts, adopts: false, seed: 1 };
    let mut now = Instant::from_millis(1000);
    let table = Box::new(ConnectionTable::new(&config, now).unwrap());
    let (mut connections, pool) = (Connections::new(table, now), Pool::new(4).unwrap());
    for batch in 0..200 {
        now += Duration::from_millis(500);
        open_batch(&mut connections, &pool, batch, now);
        let mut steps = connections.begin_upkeep(now, false).unwrap();
        while connections.expire(now, &mut steps).is_some() {}
    }
    // Without an answer, a connection lasts for 30 s: the time of 60 batches.
    let batches = connections.counts().connections / u64::from(BATCH);
    assert!((60..80).contains(&batches), "connections of {batches} batches");
}
