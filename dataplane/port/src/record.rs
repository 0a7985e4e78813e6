//! Wrapper that writes all packets of a port to a pcapng file, with the direction of each packet.

use std::io::Write;
use std::os::fd::RawFd;

use millrace_packet::{Batch, Packet, Pool};
use millrace_units::Instant;

use crate::pcap::{Direction, PcapngWriter};
use crate::{Capabilities, Port, PortCounters};

/// Limits of a recording. The default is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLimit {
    /// Maximum number of packets.
    pub packets: u64,
    /// Maximum number of packet bytes. The recording ends before a packet that would exceed this number.
    pub bytes: u64,
}

impl Default for RecordLimit {
    fn default() -> Self {
        Self { packets: u64::MAX, bytes: u64::MAX }
    }
}

/// Port whose packets are recorded. The recording contains the packets that `receive` returned and all
/// packets given to `transmit`, even if the port then drops them.
///
/// At the limit, or after a failed write, the recording ends and the rest of the file is written; the port
/// continues. The writer's [status](PcapngWriter::status) has the number of packets written. Recording
/// changes no counter of the port.
pub struct Record<W: Write> {
    inner: Box<dyn Port>,
    writer: Option<PcapngWriter<W>>,
    left: RecordLimit,
}

impl<W: Write> Record<W> {
    /// Records `inner` with `writer` until `limit`.
    pub fn new(inner: Box<dyn Port>, writer: PcapngWriter<W>, limit: RecordLimit) -> Self {
        Self { inner, writer: Some(writer), left: limit }
    }

    /// Returns whether the recording is running.
    pub fn is_recording(&self) -> bool {
        self.writer.is_some()
    }

    fn record(&mut self, now: Instant, packets: &[Packet], direction: Direction) {
        for packet in packets {
            if !self.record_one(now, packet, direction) {
                // Dropping the writer writes its buffer to the file.
                self.writer = None;
                return;
            }
        }
    }

    /// Records a packet. Returns whether the recording continues.
    fn record_one(&mut self, now: Instant, packet: &Packet, direction: Direction) -> bool {
        let Some(writer) = &mut self.writer else { return false };
        let length = packet.len() as u64;
        if self.left.packets == 0 || self.left.bytes < length {
            return false;
        }
        self.left.packets -= 1;
        self.left.bytes -= length;
        writer.write(now, packet, Some(direction)) && self.left.packets > 0
    }
}

impl<W: Write> Port for Record<W> {
    fn has_arrivals(&self) -> Option<bool> {
        self.inner.has_arrivals()
    }

    fn receive(&mut self, pool: &Pool, now: Instant, batch: &mut Batch) {
        let before = batch.len();
        self.inner.receive(pool, now, batch);
        self.record(now, batch.get(before..).unwrap_or_default(), Direction::In);
    }

    fn transmit(&mut self, pool: &Pool, now: Instant, batch: &mut Batch) {
        self.record(now, batch, Direction::Out);
        self.inner.transmit(pool, now, batch);
    }

    fn room(&mut self) -> usize {
        self.inner.room()
    }

    fn flush(&mut self, pool: &Pool, now: Instant) {
        self.inner.flush(pool, now);
    }

    fn counters(&mut self) -> PortCounters {
        self.inner.counters()
    }

    fn set_mtu(&mut self, mtu: u16, segment_mtu: u16) {
        self.inner.set_mtu(mtu, segment_mtu);
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.inner.descriptor()
    }

    fn next_event(&self) -> Option<Instant> {
        self.inner.next_event()
    }

    fn is_finished(&self) -> bool {
        self.inner.is_finished()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::io;
    use std::rc::Rc;
    use std::time::Duration;

    use millrace_wire::MacAddr;
    use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
    use pcap_file::pcapng::{Block, PcapNgParser};

    use super::*;
    use crate::{Memory, MemoryHandle};

    /// File in memory.
    #[derive(Clone, Default)]
    struct Shared(Rc<RefCell<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Shared {
        /// Returns the time in nanoseconds, the flags and the bytes of each packet.
        fn packets(&self) -> Vec<(u128, u32, Vec<u8>)> {
            let file = self.0.borrow();
            let (mut rest, mut parser) = PcapNgParser::new(&file).unwrap();
            let mut packets = Vec::new();
            while !rest.is_empty() {
                let (next, block) = parser.next_block(rest).unwrap();
                if let Block::EnhancedPacket(packet) = block {
                    let [EnhancedPacketOption::Flags(flags)] = packet.options[..] else { panic!("no flags") };
                    packets.push((packet.timestamp.as_nanos(), flags, packet.data.to_vec()));
                }
                rest = next;
            }
            packets
        }
    }

    fn recorded(limit: RecordLimit) -> (Record<Shared>, MemoryHandle, Shared) {
        let (port, wire) = Memory::new(MacAddr([2, 0, 0, 0, 0, 1]), 1500);
        let file = Shared::default();
        let writer = PcapngWriter::new(file.clone(), Duration::from_nanos(1000)).unwrap();
        (Record::new(Box::new(port), writer, limit), wire, file)
    }

    #[test]
    fn both_directions_are_written_with_time_and_flags() {
        let pool = Pool::new(16).unwrap();
        let (mut port, wire, file) = recorded(RecordLimit::default());
        let mut batch = Batch::new();
        wire.inject(b"in");
        wire.inject(&[7; 5000]);
        port.receive(&pool, Instant::from_nanos(5), &mut batch);
        port.transmit(&pool, Instant::from_nanos(9), &mut batch);
        assert_eq!(wire.take_transmitted().len(), 1, "the long one exceeds the port's MTU");
        drop(port);
        let (long, short) = (vec![7; 5000], b"in".to_vec());
        let expected = [(1005, 1, short.clone()), (1005, 1, long.clone()), (1009, 2, short), (1009, 2, long)];
        assert_eq!(file.packets(), expected);
    }

    #[test]
    fn earlier_frames_of_the_batch_are_not_recorded_as_received() {
        let pool = Pool::new(16).unwrap();
        let (mut port, wire, file) = recorded(RecordLimit::default());
        let mut batch = Batch::new();
        batch.push(pool.packet_from(b"other").unwrap()).unwrap();
        wire.inject(b"own");
        port.receive(&pool, Instant::ZERO, &mut batch);
        drop(port);
        assert_eq!(file.packets(), [(1000, 1, b"own".to_vec())]);
    }

    #[test]
    fn recording_ends_at_the_limit_and_the_port_works_on() {
        for limit in [
            RecordLimit { packets: 3, ..RecordLimit::default() },
            RecordLimit { bytes: 10, ..RecordLimit::default() },
        ] {
            let pool = Pool::new(16).unwrap();
            let (mut port, wire, file) = recorded(limit);
            (0..5).for_each(|_| wire.inject(b"abc"));
            let mut batch = Batch::new();
            port.receive(&pool, Instant::ZERO, &mut batch);
            assert_eq!((batch.len(), port.is_recording()), (5, false));
            assert_eq!(file.packets().len(), 3, "written out at once");
            port.transmit(&pool, Instant::ZERO, &mut batch);
            assert_eq!(wire.take_transmitted().len(), 5);
        }
    }

    #[test]
    fn failed_write_ends_the_recording_with_its_reason() {
        let pool = Pool::new(256).unwrap();
        let (inner, wire) = Memory::new(MacAddr([2, 0, 0, 0, 0, 1]), 1500);
        let writer = PcapngWriter::create("/dev/full".as_ref(), Duration::ZERO).unwrap();
        let status = writer.status();
        let mut port = Record::new(Box::new(inner), writer, RecordLimit::default());
        (0..100).for_each(|_| wire.inject(&[0; 1000]));
        let mut batch = Batch::new();
        port.receive(&pool, Instant::ZERO, &mut batch);
        assert_eq!((batch.len(), port.is_recording(), status.lost()), (100, false, 1));
        assert!(status.error().unwrap().contains("No space left"));
    }
}
