//! Queueing of finished frames at their egress ports, and counting of dropped packets.

use std::vec::Drain;

use millrace_packet::{DropReason, Packet, Pool};
use millrace_plugin::PaidStages;
use millrace_schedule::ScheduleError;
use millrace_units::{Instant, PathId, PortId};

use crate::accounts::Ledger;
use crate::gates::Gates;
use crate::handover::{Errand, Handover, Note, Transport};
use crate::observe::Observation;
use crate::observe::capture::Direction;
use crate::ports::scheduler::{Piece, QueueDrops, ScheduleChange};
use crate::ports::{DeviceId, PortTable};
use crate::work::Work;

/// Buffers that the stage reuses for each packet; their contents are meaningless between two packets.
#[derive(Default)]
pub(crate) struct EgressScratch {
    pub fragments: Vec<Packet>,
    /// Packets dropped by queues and not yet counted.
    pub queue_drops: QueueDrops,
    /// Account words of the filters that account for a packet in hand-over.
    handed_filters: Vec<u64>,
}

/// State of the queueing stage: the queues of the ports, and the counters of their packets.
pub(crate) struct Queueing<'a> {
    pub pool: &'a Pool,
    pub ports: &'a mut PortTable,
    pub gates: &'a mut Gates,
    /// Rings to other workers; `None` with a single worker.
    pub handover: Option<&'a mut Handover>,
    pub observation: &'a mut Observation,
    pub scratch: &'a mut EgressScratch,
}

impl Queueing<'_> {
    /// Returns whether this worker owns a device.
    #[inline]
    pub fn owns(&self, device: DeviceId) -> bool {
        self.handover.as_ref().is_none_or(|handover| handover.owns(device))
    }

    /// Counts and releases a dropped packet.
    pub fn drop_packet(&mut self, packet: Packet, reason: DropReason) {
        self.observation.drop_packet(packet, reason, self.ports, self.gates.plugins());
    }

    /// Puts a batch of finished frames into the queue of their common egress port.
    /// [`Leaving`](crate::work::Leaving) has counted the frames. Returns `false`, and leaves the batch as it
    /// is, if the frames have different ports or the port has no room.
    #[inline]
    pub fn leave(&mut self, work: &mut Work) -> bool {
        let Work { packets, leaving, .. } = work;
        let out = leaving.port().and_then(|port| self.ports.get_mut(port));
        let Some(out) = out.filter(|out| out.has_room_for(packets.len())) else { return false };
        out.queue_all(packets.drain());
        let mut ledger = ledger_of(self.observation, self.gates);
        for (accounts, amount) in leaving.amounts() {
            out.queue_bytes += amount.bytes;
            ledger.amount_queued(accounts, amount);
        }
        self.gates.plugins_mut().end_of_batch();
        true
    }

    /// Puts the first `count` frames of a batch, all with egress port `port`, into the queue of that port.
    pub fn queue_run(&mut self, packets: &mut Drain<'_, Packet>, port: PortId, count: usize, now: Instant) {
        let run = packets.by_ref().take(count);
        let mut ledger = ledger_of(self.observation, self.gates);
        match self.ports.get_mut(port).filter(|out| out.is_here) {
            Some(out) => out.enqueue_all(run, now, &mut self.scratch.queue_drops, &mut ledger),
            None => return run.for_each(|packet| self.queue_frame(packet, now)),
        }
        if !self.scratch.queue_drops.is_empty() {
            self.drop_queued();
        }
    }

    /// Puts a finished frame into the queue of its `out_port`.
    #[inline]
    pub fn queue_frame(&mut self, packet: Packet, now: Instant) {
        if self.observation.is_tapped() {
            let leaves = (packet.out_port, Direction::Outbound);
            self.observation.tap(&packet, self.pool, leaves, now);
        }
        if self.handover.is_some() {
            return self.queue_at_owner(packet, now);
        }
        self.queue_here(packet, now);
    }

    /// Puts a finished frame into the queue of its `out_port`, here or at the worker that owns the port's
    /// device.
    fn queue_at_owner(&mut self, packet: Packet, now: Instant) {
        let device = self.ports.get(packet.out_port).map(|out| out.settings.device);
        let filters = &mut self.scratch.handed_filters;
        let (Some(device), Some(handover)) = (device, self.handover.as_deref_mut()) else {
            return self.drop_packet(packet, DropReason::PortDown);
        };
        if handover.owns(device) {
            return self.queue_here(packet, now);
        }
        filters.clear();
        filters.extend(self.gates.plugins().paths.bindings_of(packet.counts_for));
        let payer = PaidStages::of(self.gates.plugins()).payer_of_account(packet.counts_for);
        let note = Note { filters, payer, ..Note::of(Errand::Transmit) };
        let put = handover.put_to_device(device, packet, note);
        self.note_handed(put);
    }

    /// Hands a packet over to another worker, which takes it through the stages from classify on. `path`: its path, if
    /// it is known.
    pub fn hand_over(&mut self, to: u16, packet: Packet, transport: Transport, path: PathId) {
        let payer = PaidStages::of(self.gates.plugins()).owners(path).next();
        let note = Note { transport, payer, ..Note::of(Errand::Flow) };
        let put = match self.handover.as_deref_mut() {
            Some(handover) => handover.put(to.into(), packet, note),
            None => Err(packet),
        };
        self.note_handed(put);
    }

    /// Counts a packet that was handed over, or drops a packet for which no parcel has room.
    fn note_handed(&mut self, put: Result<(), Packet>) {
        match put {
            Ok(()) => self.observation.totals.handed += 1,
            Err(packet) => self.drop_packet(packet, DropReason::HandoverFull),
        }
    }

    /// Puts a finished frame into the queue or scheduler of its `out_port`, which must be a port of this
    /// worker.
    #[inline]
    pub fn queue_here(&mut self, packet: Packet, now: Instant) {
        let mut ledger = ledger_of(self.observation, self.gates);
        match self.ports.get_mut(packet.out_port) {
            None => self.drop_packet(packet, DropReason::PortDown),
            Some(out) => out.enqueue(packet, now, &mut self.scratch.queue_drops, &mut ledger),
        }
        if !self.scratch.queue_drops.is_empty() {
            self.drop_queued();
        }
    }

    /// Counts and releases packets that queues dropped.
    #[cold]
    pub fn drop_queued(&mut self) {
        let mut drops = std::mem::take(&mut self.scratch.queue_drops);
        for (packet, reason) in drops.drain(..) {
            let mut ledger = ledger_of(self.observation, self.gates);
            ledger.goes_on(&packet);
            ledger.dropped(&packet);
            self.drop_packet(packet, reason);
        }
        self.scratch.queue_drops = drops;
    }

    /// Changes the scheduler of a port; does nothing if another worker owns the port's device. `seed` keys
    /// the flow hashes of a new scheduler.
    pub fn schedule(
        &mut self,
        port: PortId,
        changes: (&[ScheduleChange], Piece),
        seed: u64,
        now: Instant,
    ) -> Result<(), ScheduleError> {
        // All schedulers together get half of the packet memory.
        let frames = self.pool.capacity() / 2 / self.ports.iter().count().max(1) as u32;
        let is_ours = self.ports.get(port).is_some_and(|entry| self.owns(entry.settings.device));
        let Some(entry) = self.ports.get_mut(port).filter(|_| is_ours) else { return Ok(()) };
        let changed = entry.change_scheduler(changes, (frames, seed), now, &mut self.scratch.queue_drops);
        self.drop_queued();
        changed
    }
}

/// Returns the ledger that counts packets entering and leaving queues.
fn ledger_of<'a>(observation: &'a mut Observation, gates: &'a mut Gates) -> Ledger<'a> {
    Ledger { routes: &mut observation.route_accounts, filters: gates.plugins_mut() }
}
