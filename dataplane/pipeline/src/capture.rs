//! Taps at ports: copies of passing frames, for people who want to see what no tool of the kernel sees.
//!
//! A worker writes frames into a byte ring; a reader in control turns them into a file. When the ring is full, frames
//! are left out and counted: a capture never slows the router.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millrace_classify::{Candidate, CompiledFilter};
use millrace_packet::Packet;
use millrace_units::{Instant, PortId};
use rtrb::{Consumer, Producer, RingBuffer};

/// Which way a frame went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// It came in.
    Inbound,
    /// It went out.
    Outbound,
}

/// A frame that was captured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CapturedFrame {
    /// When it passed, by the worker's clock.
    pub at: Instant,
    /// Where it passed.
    pub port: PortId,
    /// Which way it went.
    pub direction: Direction,
    /// Its length on the wire, which may be more than was kept.
    pub length: u32,
    /// Its first bytes.
    pub bytes: Vec<u8>,
}

/// The worker's end of a capture.
pub struct CaptureSink {
    /// The number by which the capture is ended.
    pub id: u32,
    port: Option<PortId>,
    filter: Option<CompiledFilter>,
    snap: usize,
    ring: Producer<u8>,
    lost: Arc<AtomicU64>,
}

/// The reader's end of a capture.
#[derive(Debug)]
pub struct CaptureSource {
    ring: Consumer<u8>,
    lost: Arc<AtomicU64>,
}

const HEADER: usize = 20;

/// Makes a capture of frames at `port` (everywhere, if `None`) that `filter` matches, of each at most `snap` bytes.
/// `capacity` is the size of the ring in bytes.
pub fn capture(
    id: u32,
    port: Option<PortId>,
    filter: Option<CompiledFilter>,
    snap: usize,
    capacity: usize,
) -> (CaptureSink, CaptureSource) {
    let (producer, consumer) = RingBuffer::new(capacity);
    let lost = Arc::new(AtomicU64::new(0));
    let sink = CaptureSink { id, port, filter, snap, ring: producer, lost: Arc::clone(&lost) };
    (sink, CaptureSource { ring: consumer, lost })
}

impl CaptureSink {
    /// Whether the reader has gone: the capture can be ended.
    pub fn is_abandoned(&self) -> bool {
        self.ring.is_abandoned()
    }

    /// Takes a copy of the frame if it is wanted.
    pub fn offer(
        &mut self,
        packet: &Packet,
        candidate: Option<&Candidate>,
        port: PortId,
        direction: Direction,
        now: Instant,
    ) {
        if self.port.is_some_and(|wanted| wanted != port) {
            return;
        }
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
        let length = packet.len();
        let kept = length.min(self.snap);
        let Ok(chunk) = self.ring.write_chunk_uninit(HEADER + kept) else { return false };
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(&now.as_nanos().to_le_bytes());
        header[8..10].copy_from_slice(&port.0.to_le_bytes());
        header[10] = u8::from(direction == Direction::Outbound);
        header[12..16].copy_from_slice(&(length as u32).to_le_bytes());
        header[16..20].copy_from_slice(&(kept as u32).to_le_bytes());
        let bytes = packet.frames().flatten().copied().take(kept);
        chunk.fill_from_iter(header.into_iter().chain(bytes));
        true
    }
}

impl CaptureSource {
    /// The next frame, if one was captured.
    pub fn next_frame(&mut self) -> Option<CapturedFrame> {
        let mut header = [0; HEADER];
        self.take(&mut header)?;
        let word = |from: usize| {
            u32::from_le_bytes([header[from], header[from + 1], header[from + 2], header[from + 3]])
        };
        let mut bytes = vec![0; word(16) as usize];
        // A record is published in one piece, so its bytes are there when its header is.
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
        into[..first.len()].copy_from_slice(first);
        into[first.len()..].copy_from_slice(second);
        chunk.commit_all();
        Some(())
    }

    /// Frames that were left out because the reader was too slow.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Whether the capture was ended at the worker.
    pub fn is_ended(&self) -> bool {
        self.ring.is_abandoned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_packet::Pool;

    #[test]
    fn frames_come_out_as_they_went_in_until_the_ring_is_full() {
        let pool = Pool::new(8).unwrap();
        let (mut sink, mut source) = capture(1, Some(PortId(2)), None, 64, 200);
        let packet = pool.packet_from(&[7; 100]).unwrap();
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
