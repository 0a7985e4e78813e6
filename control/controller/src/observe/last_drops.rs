//! Last dropped packets of all workers, by drop reason.

use std::time::Duration;

use millrace_packet::DropReason;
use millrace_pipeline::{DropQuery, DroppedPacket, ObservationCommand};
use millrace_telemetry::utc_milliseconds;
use millrace_units::PortId;

use crate::ControlError;
use crate::model::Model;
use crate::observe::trace::with_link;
use crate::ports::device::time_of_day;
use crate::ports::headers::{Headers, hexadecimal};
use crate::router::Router;
use crate::show;
use crate::view::{DroppedView, RawFrame};

/// Number of the last dropped packet that a reader has seen at each worker.
#[derive(Clone, Debug, Default)]
pub struct DropCursor(Vec<u64>);

impl Router {
    /// Returns the remembered dropped packets that are newer than `cursor`, ordered by time, and advances
    /// `cursor` past them. Without a `reason`, returns packets of all reasons.
    ///
    /// # Errors
    /// Returns an error for an unknown reason, or if the data plane does not answer.
    pub fn last_drops(
        &self,
        reason: Option<&str>,
        cursor: &mut DropCursor,
    ) -> Result<Vec<DroppedView>, ControlError> {
        let known = || DropReason::ALL.iter().map(|reason| reason.name());
        let find =
            |name| DropReason::from_name(name).ok_or_else(|| ControlError::unknown("reason", name, known()));
        let reason = reason.map(find).transpose()?;
        let mut inner = self.lock();
        cursor.0.resize(inner.workers.len(), 0);
        let unseen = |worker: usize| DropQuery { reason, after: cursor.0[worker] };
        let answers =
            inner.workers.ask_each(|worker, reply| ObservationCommand::LastDrops(unseen(worker), reply))?;
        let mut dropped: Vec<(usize, DroppedPacket)> = Vec::new();
        for (worker, (seen, packets)) in cursor.0.iter_mut().zip(answers).enumerate() {
            *seen = packets.iter().map(|packet| packet.number).max().unwrap_or(*seen);
            dropped.extend(packets.into_iter().map(|packet| (worker, packet)));
        }
        dropped.sort_by_key(|(_, packet)| packet.at);
        let origin = time_of_day();
        Ok(dropped.iter().map(|(worker, packet)| view(*worker, packet, origin, &inner.model)).collect())
    }
}

fn view(worker: usize, packet: &DroppedPacket, origin: Duration, model: &Model) -> DroppedView {
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
