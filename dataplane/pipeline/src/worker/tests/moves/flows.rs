//! Flows of the test, their frames and routes, and the binding of the service.

use std::net::Ipv4Addr;

use millrace_classify::{CompiledExpression, Filter};
use millrace_forward::{NextHop, NextHops, Route};
use millrace_packet::FlowKey;
use millrace_plugin::{Action, BindingId, CallLimits, PluginChange};
use millrace_units::{GateId, InstanceId, PortId};
use millrace_wire::MacAddr;

pub(super) const GATE: GateId = GateId(1);
pub(super) const INSTANCE: InstanceId = InstanceId(1);
/// Offset of the packet number in a frame: after the Ethernet, IPv4 and UDP headers.
const NUMBER: usize = 42;

/// Flow and number of a packet.
pub(super) type Known = (u8, u16);

/// Returns the change that binds the service to all flows.
pub(super) fn bind(worker: Option<u16>) -> PluginChange<CompiledExpression> {
    PluginChange::Bind {
        binding: BindingId(1),
        gate: GATE,
        filter: filter(),
        priority: 0,
        action: Action::Instance(INSTANCE),
        call_limits: CallLimits { worker, ..CallLimits::default() },
    }
}

pub(super) fn filter() -> CompiledExpression {
    "dst 10.0.0.0/24".parse::<Filter>().unwrap().compile(|_| None).unwrap().into()
}

pub(super) fn mac(device: u16) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, device as u8])
}

pub(super) fn out_port(out: u8) -> PortId {
    PortId(u16::from(out) + 3)
}

pub(super) fn gateway(out: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 9, out, 2)
}

pub(super) fn route(out: u8) -> Route {
    Route::Forward(NextHops::single(NextHop::new(out_port(out), Some(gateway(out).into()))))
}

pub(super) fn source(flow: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, flow + 1)
}

pub(super) fn destination(flow: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, flow)
}

pub(super) fn key(flow: u8) -> FlowKey {
    FlowKey::v4(source(flow), destination(flow), 17, (1000, 2000), PortId(u16::from(flow % 2) + 1))
}

/// Returns a UDP frame of a flow with a packet number.
pub(super) fn frame((flow, number): Known) -> Vec<u8> {
    let mut header = vec![0x45, 0, 0, 46, 0, 1, 0, 0, 64, 17, 0, 0];
    header.extend([source(flow), destination(flow)].map(|address| address.octets()).concat());
    let sum = millrace_wire::checksum::checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    let link = [&mac(u16::from(flow % 2)).0[..], &[2, 0, 0, 0, 1, 9, 8, 0]].concat();
    let udp = [3, 232, 7, 208, 0, 26, 0, 0];
    [link, header, udp.to_vec(), number.to_be_bytes().to_vec(), vec![0; 16]].concat()
}

pub(super) fn known(frame: &[u8]) -> Known {
    (frame[33], u16::from_be_bytes([frame[NUMBER], frame[NUMBER + 1]]))
}
