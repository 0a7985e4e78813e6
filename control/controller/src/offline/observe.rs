//! Captures, traces and explanations of packets.

use std::time::Duration;

use millrace_pipeline::{
    CapturePlace, CaptureSource, Lookup, MOST_TRACED, ObservationCommand, Question, SchedulerCommand,
    TraceOrder, TraceSource, capture, trace,
};

use super::OfflineRouter;
use crate::ControlError;
use crate::flows::lookup;
use crate::model::packets::parse_packet;
use crate::observe::words::Names;
use crate::view::LookupView;
use crate::workers::ask::Ask;

/// Size of each worker's capture ring in bytes.
const CAPTURE_ROOM: usize = 1 << 20;

impl OfflineRouter {
    /// Captures the first `snap` bytes of every frame, until the returned readers are dropped; there is one
    /// reader for each worker. While the ring of a worker is full, further frames are lost.
    pub fn capture(&mut self, snap: usize) -> Vec<CaptureSource> {
        let workers = 0..self.workers.len();
        let (sinks, sources): (Vec<_>, _) =
            workers.map(|_| capture(0, CapturePlace::Ports, None, snap, CAPTURE_ROOM)).unzip();
        self.workers.tell_each(
            sinks.into_iter().map(|sink| ObservationCommand::StartCapture(Box::new(sink))).collect(),
        );
        sources
    }

    /// Traces one in `every` packets, until the returned readers are dropped or the maximum number of packets
    /// is traced. There is one reader for each worker.
    pub fn trace(&mut self, every: u32) -> Vec<TraceSource> {
        let order = TraceOrder { filter: None, every, count: MOST_TRACED, time: Duration::MAX };
        let (sinks, sources): (Vec<_>, _) = (0..self.workers.len()).map(|_| trace(0, order.clone())).unzip();
        self.workers.tell_each(
            sinks.into_iter().map(|sink| ObservationCommand::StartTrace(Box::new(sink))).collect(),
        );
        sources
    }

    /// Explains how the router would treat a packet.
    pub fn lookup(&mut self, packet: &str) -> Result<LookupView, ControlError> {
        let lookup = self.lookup_of(parse_packet(packet, &self.model)?)?;
        let leaf = match lookup.queue() {
            Some((port, queue)) => {
                self.workers.ask(|reply| SchedulerCommand::FindLeaf(port, queue, reply))?
            }
            None => Vec::new(),
        };
        let leaf = leaf.into_iter().flatten().next();
        Ok(lookup::view(&lookup, leaf, &Names { model: &self.model, routes: &self.route_table }))
    }

    /// Returns how the router would treat a packet, as ids instead of texts.
    pub fn lookup_of(&mut self, question: Question) -> Result<Lookup, ControlError> {
        let worker = self.workers.owner_of_flow(question.key());
        self.workers.ask_one(worker, |reply| ObservationCommand::Lookup(question, reply))
    }
}
