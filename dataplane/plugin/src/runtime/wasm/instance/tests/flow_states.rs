//! Tests of flow states, which all packets of a flow share.

use millrace_plugin_abi::{ConnectionStatus, FlowStates, PacketConnection, StateScope};

use super::*;

#[test]
fn packets_of_a_flow_share_a_state() {
    // The plugin counts packets in the flow's state. It writes the count, the flow number and the flag for a
    // first packet into the packet.
    let count = for_each(
        "(i32.store (i32.wrap_i64 (i64.load offset=32 (local.get $at)))
           (i32.add (i32.load (i32.wrap_i64 (i64.load offset=32 (local.get $at)))) (i32.const 1)))
         (i32.store8 (local.get $window) (i32.load (i32.wrap_i64 (i64.load offset=32 (local.get $at)))))
         (i32.store8 offset=1 (local.get $window) (i32.load offset=40 (local.get $at)))
         (i32.store8 offset=2 (local.get $window) (i32.load16_u offset=2 (local.get $at)))",
    );
    let mut instance = begin_with(r#", "flow-state": 12"#, &count, Default::default()).unwrap();
    assert_eq!(instance.flow_state(), 12);
    let mut blocks = Blocks(vec![vec![0; 24]; 3]);
    for round in 0..2_u8 {
        let mut batch = Batch::equal(4, 60);
        let mut packets = batch.packets();
        packets = packets.with_states(&mut blocks, &[1, 2, 1, 1], 8, 12);
        let mut progress = instance.process(&mut packets, Instant::ZERO);
        while progress == Progress::Suspended {
            progress = instance.resume(&mut packets, Instant::ZERO);
        }
        let first = if round == 0 { u8::try_from(packet_flags::FIRST).unwrap() } else { 0 };
        let said: Vec<_> = batch.packets.iter().map(|packet| packet.data()[..3].to_vec()).collect();
        let (before_one, before_two) = (round * 3, round);
        let expected = [
            [before_one + 1, 1, first],
            [before_two + 1, 2, first],
            [before_one + 2, 1, 0],
            [before_one + 3, 1, 0],
        ];
        assert_eq!(said, expected);
    }
    assert_eq!((blocks.0[0][8], blocks.0[1][8], blocks.0[2][8]), (6, 2, 0));
}

#[test]
fn packets_come_with_their_connections() {
    // The plugin writes the status and the flags into the packet.
    let tell = for_each(
        "(i32.store8 (local.get $window) (i32.load8_u offset=52 (local.get $at)))
         (i32.store8 offset=1 (local.get $window) (i32.load16_u offset=2 (local.get $at)))",
    );
    let mut instance =
        begin_with(r#", "state": "connection", "flow-state": 8"#, &tell, Default::default()).unwrap();
    assert_eq!(instance.state_scope(), StateScope::Connection);
    let connection =
        |status, is_reply| PacketConnection { number: 1, serial: 1, status, is_reply, is_counted: false };
    let connections = [
        connection(ConnectionStatus::New, false),
        connection(ConnectionStatus::Established, true),
        connection(ConnectionStatus::Related, false),
        PacketConnection { status: ConnectionStatus::Invalid, ..PacketConnection::default() },
    ];
    let mut blocks = Blocks(vec![vec![0; 32]]);
    let mut batch = Batch::equal(4, 60);
    let mut packets = batch.packets();
    packets = packets.with_connections(&connections).with_states(&mut blocks, &[1, 1, 1, 0], 24, 8);
    let mut progress = instance.process(&mut packets, Instant::ZERO);
    while progress == Progress::Suspended {
        progress = instance.resume(&mut packets, Instant::ZERO);
    }
    let (first, reply) = (packet_flags::FIRST as u8, packet_flags::REPLY as u8);
    let said: Vec<_> = batch.packets.iter().map(|packet| packet.data()[..2].to_vec()).collect();
    assert_eq!(said, [[1, first], [2, reply], [3, 0], [4, 0]]);
}

/// Flow state blocks; block number N is at index N - 1.
struct Blocks(Vec<Vec<u8>>);

impl FlowStates for Blocks {
    fn block(&mut self, number: u32) -> Option<&mut [u8]> {
        self.0.get_mut((number as usize).checked_sub(1)?).map(Vec::as_mut_slice)
    }
}
