//! Views of dropped packets.

use std::time::Duration;

use millrace_pipeline::DroppedPacket;
use millrace_telemetry::utc_milliseconds;
use millrace_units::PortId;

use crate::model::Model;
use crate::observe::trace::with_link;
use crate::ports::headers::Headers;
use crate::show::{self, hexadecimal};
use crate::view::{DroppedView, RawFrame};

/// Position of a reader of dropped packets: for each worker, the number of the last packet that the reader
/// has seen.
#[derive(Clone, Debug, Default)]
pub struct DropCursor(pub(crate) Vec<u64>);

pub(crate) fn view(worker: usize, packet: &DroppedPacket, origin: Duration, model: &Model) -> DroppedView {
    let at = origin + Duration::from_nanos(packet.at.as_nanos());
    let headers = match packet.network {
        0 if packet.port == PortId::NONE => Headers::of_packet(packet.head.bytes()),
        _ => Headers::of_frame(packet.head.bytes()),
    };
    let bindings: Vec<_> = packet.bindings().filter_map(|id| model.plugins.binding(id)).collect();
    let only = match bindings.as_slice() {
        [only] => Some(only),
        _ => None,
    };
    let words = bindings.iter().map(|bound| {
        let gate = model.plugins.gate_name(bound.gate);
        format!(
            "filter {} {:?} at gate {gate} ({})",
            bound.number,
            bound.filter.to_string(),
            show::action(&bound.action, model)
        )
    });
    let by = words.collect::<Vec<_>>().join(" or ");
    let out_port = (packet.out_port != PortId::NONE).then(|| model.port_name(packet.out_port).to_owned());
    let port = model.port_name(packet.port).to_owned();
    let network = if packet.port == PortId::NONE { packet.network } else { packet.network.max(1) };
    let bytes = with_link(&packet.head, network, headers.ether_type());
    let instance = only.and_then(|bound| bound.action.instance());
    DroppedView {
        time: utc_milliseconds(at.as_millis() as u64),
        reason: packet.reason.name(),
        worker,
        length: packet.length,
        summary: headers.line(),
        binding: only.map(|bound| bound.number),
        filter: only.map(|bound| bound.filter.to_string()),
        instance: instance.map(|id| model.plugins.instance_name(id).to_owned()),
        by: (!by.is_empty()).then_some(by),
        frame: hexadecimal(packet.head.bytes()),
        raw: RawFrame { port: port.clone(), at, length: packet.length.max(bytes.len() as u32), bytes },
        port,
        out_port,
    }
}
