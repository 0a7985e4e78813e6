//! Captures at ports, gates and instances: copies of frames that the kernel's tools don't see.
//!
//! A worker writes frames into a byte ring, and a reader in control writes them to a file. If the ring is
//! full, the capture skips frames and counts them as lost. So a capture never slows the router.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millrace_classify::{Candidate, CompiledSelection};
use millrace_packet::{FlowKey, Packet, Pool};
use millrace_plugin::{Group, Refusal, Stop, Watch};
use millrace_units::{GateId, InstanceId, Instant, PortId};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::observe::Observation;
use crate::parse::parse_copy;
use crate::work::Work;

/// Direction of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Received.
    Inbound,
    /// Sent.
    Outbound,
}

/// Captured frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CapturedFrame {
    /// Time of the capture, by the worker's clock.
    pub at: Instant,
    /// Port of the capture.
    pub port: PortId,
    /// Direction of the frame.
    pub direction: Direction,
    /// Length of the frame in bytes; `bytes` may be shorter.
    pub length: u32,
    /// First bytes of the frame.
    pub bytes: Vec<u8>,
}

/// Worker's end of a capture.
pub struct CaptureSink {
    /// Number of the capture, used to end it.
    pub id: u32,
    place: CapturePlace,
    filter: Option<CompiledSelection>,
    snap: usize,
    ring: Producer<u8>,
    lost: Arc<AtomicU64>,
}

/// Reader's end of a capture.
#[derive(Debug)]
pub struct CaptureSource {
    ring: Consumer<u8>,
    lost: Arc<AtomicU64>,
}

const HEADER: usize = 20;

/// Place of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CapturePlace {
    /// Every port.
    Ports,
    /// Single port.
    Port(PortId),
    /// Gate: packets before and after each binding there.
    Gate(GateId),
    /// Instance, at all its gates.
    Instance(InstanceId),
}

/// Creates a capture of the packets at `place` that match `filter`, with at most `snap` bytes of each.
/// `capacity`: size of the ring in bytes.
pub fn capture(
    id: u32,
    place: CapturePlace,
    filter: Option<CompiledSelection>,
    snap: usize,
    capacity: usize,
) -> (CaptureSink, CaptureSource) {
    let (producer, consumer) = RingBuffer::new(capacity);
    let lost = Arc::new(AtomicU64::new(0));
    let sink = CaptureSink { id, place, filter, snap, ring: producer, lost: Arc::clone(&lost) };
    (sink, CaptureSource { ring: consumer, lost })
}

impl CaptureSink {
    /// Returns whether the reader no longer exists, so that the capture can be ended.
    pub fn is_abandoned(&self) -> bool {
        self.ring.is_abandoned()
    }

    /// Returns whether the capture is at a gate or an instance.
    pub fn is_at_gates(&self) -> bool {
        matches!(self.place, CapturePlace::Gate(_) | CapturePlace::Instance(_))
    }

    /// Returns whether the capture may see packets of a flow. `leaves_by`: egress port of the flow, if known.
    pub fn wants(&self, key: &FlowKey, leaves_by: Option<PortId>) -> bool {
        let is_here = match self.place {
            CapturePlace::Port(port) => key.port == port || leaves_by == Some(port),
            // The flow alone does not determine the gates that its packets pass.
            CapturePlace::Ports | CapturePlace::Gate(_) | CapturePlace::Instance(_) => true,
        };
        is_here && self.filter.as_ref().is_none_or(|filter| filter.may_match_flow(key))
    }

    /// Returns whether the capture is at this gate or at this gate's instance.
    fn is_at(&self, stop: Stop) -> bool {
        match self.place {
            CapturePlace::Gate(gate) => stop.gate == gate,
            CapturePlace::Instance(instance) => stop.instance == Some(instance),
            CapturePlace::Ports | CapturePlace::Port(_) => false,
        }
    }

    /// Writes a frame to the ring, if the capture covers `port` and its filter matches.
    pub fn offer(
        &mut self,
        packet: &Packet,
        candidate: Option<&Candidate>,
        port: PortId,
        direction: Direction,
        now: Instant,
    ) {
        let is_here = match self.place {
            CapturePlace::Ports => true,
            CapturePlace::Port(wanted) => wanted == port,
            CapturePlace::Gate(_) | CapturePlace::Instance(_) => false,
        };
        if is_here {
            self.take(packet, candidate, port, direction, now);
        }
    }

    /// Writes a frame to the ring, if the filter matches.
    fn take(
        &mut self,
        packet: &Packet,
        candidate: Option<&Candidate>,
        port: PortId,
        direction: Direction,
        now: Instant,
    ) {
        if let Some(filter) = &self.filter
            && !candidate.is_some_and(|candidate| filter.matches(candidate))
        {
            return;
        }
        if !self.write(packet, port, direction, now) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn write(&mut self, packet: &Packet, port: PortId, direction: Direction, now: Instant) -> bool {
        // A packet that the router has made has no link header yet.
        let link = if packet.network_offset() == 0 { made_up_link(packet) } else { &[] };
        let length = packet.len() + link.len();
        let kept = length.min(self.snap);
        let Ok(chunk) = self.ring.write_chunk_uninit(HEADER + kept) else { return false };
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(&now.as_nanos().to_le_bytes());
        header[8..10].copy_from_slice(&port.0.to_le_bytes());
        header[10] = u8::from(direction == Direction::Outbound);
        header[12..16].copy_from_slice(&(length as u32).to_le_bytes());
        header[16..20].copy_from_slice(&(kept as u32).to_le_bytes());
        let bytes = link.iter().chain(packet.frames().flatten()).copied().take(kept);
        chunk.fill_from_iter(header.into_iter().chain(bytes));
        true
    }
}

/// Returns an Ethernet header with zero addresses and the packet's EtherType.
fn made_up_link(packet: &Packet) -> &'static [u8] {
    match packet.data().first().map(|first| first >> 4) {
        Some(6) => &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x86, 0xdd],
        _ => &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0],
    }
}

/// Running captures at gates and instances, which record packets before and after each binding.
pub(crate) struct GateTap<'a> {
    pub captures: &'a mut [CaptureSink],
    pub pool: &'a Pool,
    pub now: Instant,
}

impl GateTap<'_> {
    fn tap(&mut self, group: &Group<'_>, at: Stop, direction: Direction) {
        for capture in self.captures.iter_mut().filter(|capture| capture.is_at(at)) {
            let packets = group.members.iter().filter_map(|member| group.packets.get(usize::from(*member)));
            for packet in packets {
                let parsed = parse_copy(packet, self.pool);
                let candidate = parsed.map(|(parsed, copy)| parsed.candidate(&copy));
                capture.take(packet, candidate.as_ref(), PortId(0), direction, self.now);
            }
        }
    }
}

impl Watch for GateTap<'_> {
    fn before(&mut self, group: &Group<'_>, at: Stop) {
        self.tap(group, at, Direction::Inbound);
    }

    fn after(&mut self, group: &Group<'_>, at: Stop, refusal: Option<Refusal>) {
        if refusal.is_none() {
            self.tap(group, at, Direction::Outbound);
        }
    }
}

impl<A: Watch, B: Watch> Watch for Both<A, B> {
    fn before(&mut self, group: &Group<'_>, at: Stop) {
        self.0.before(group, at);
        self.1.before(group, at);
    }

    fn after(&mut self, group: &Group<'_>, at: Stop, refusal: Option<Refusal>) {
        self.0.after(group, at, refusal);
        self.1.after(group, at, refusal);
    }
}

/// Two observers of gates, called one after the other.
pub(crate) struct Both<A, B>(pub A, pub B);

impl CaptureSource {
    /// Returns the next captured frame, if there is one.
    pub fn next_frame(&mut self) -> Option<CapturedFrame> {
        let mut header = [0; HEADER];
        self.take(&mut header)?;
        let word = |from: usize| {
            header.get(from..).and_then(|rest| rest.first_chunk()).copied().map_or(0, u32::from_le_bytes)
        };
        let mut bytes = vec![0; word(16) as usize];
        // Header and bytes are published together.
        self.take(&mut bytes)?;
        let mut at = [0; 8];
        at.copy_from_slice(&header[..8]);
        Some(CapturedFrame {
            at: Instant::from_nanos(u64::from_le_bytes(at)),
            port: PortId(u16::from_le_bytes([header[8], header[9]])),
            direction: if header[10] == 0 { Direction::Inbound } else { Direction::Outbound },
            length: word(12),
            bytes,
        })
    }

    fn take(&mut self, into: &mut [u8]) -> Option<()> {
        let chunk = self.ring.read_chunk(into.len()).ok()?;
        let (first, second) = chunk.as_slices();
        let (begin, end) = into.split_at_mut_checked(first.len())?;
        begin.copy_from_slice(first);
        end.copy_from_slice(second);
        chunk.commit_all();
        Some(())
    }

    /// Returns the number of frames lost because the ring was full.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Returns whether the worker has ended the capture.
    pub fn is_ended(&self) -> bool {
        self.ring.is_abandoned()
    }
}

impl Observation {
    /// Offers the packets of a batch to all captures, as inbound frames.
    pub(crate) fn tap_arrivals(&mut self, work: &Work, pool: &Pool, now: Instant) {
        for packet in work.packets.iter() {
            self.tap(packet, pool, (packet.port, Direction::Inbound), now);
        }
    }

    /// Offers a frame to all captures.
    #[cold]
    pub(crate) fn tap(
        &mut self,
        packet: &Packet,
        pool: &Pool,
        (port, direction): (PortId, Direction),
        now: Instant,
    ) {
        let parsed = parse_copy(packet, pool);
        let candidate = parsed.map(|(parsed, copy)| parsed.candidate(&copy));
        self.captures.retain(|capture| !capture.is_abandoned());
        for capture in &mut self.captures {
            capture.offer(packet, candidate.as_ref(), port, direction, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_leave_unchanged_until_the_ring_is_full() {
        let pool = Pool::new(8).unwrap();
        let (mut sink, mut source) = capture(1, CapturePlace::Port(PortId(2)), None, 64, 200);
        let mut packet = pool.packet_from(&[7; 100]).unwrap();
        packet.set_network(14);
        sink.offer(&packet, None, PortId(3), Direction::Inbound, Instant::ZERO);
        assert_eq!(source.next_frame(), None);
        for _ in 0..3 {
            sink.offer(&packet, None, PortId(2), Direction::Outbound, Instant::from_nanos(5));
        }
        assert_eq!(source.lost(), 1);
        let frame = source.next_frame().unwrap();
        assert_eq!((frame.length, frame.bytes.len(), frame.direction), (100, 64, Direction::Outbound));
        assert!(source.next_frame().is_some() && source.next_frame().is_none());
        drop(source);
        assert!(sink.is_abandoned());
    }
}
