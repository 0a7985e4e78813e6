//! Recorded file in memory: pcap (draft-ietf-opsawg-pcap) or pcapng (draft-ietf-opsawg-pcapng).

use std::fs;
use std::io::Read as _;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use pcap_file::pcap::PcapParser;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgParser};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};

use crate::PortError;
use crate::file::open_input;

/// First octets of a pcapng file, in either byte order.
const PCAPNG_MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// Default resolution of a pcapng interface: 10^6 ticks per second.
const DEFAULT_RESOLUTION: u8 = 6;

/// Packets of a recorded file, in the order of their times.
#[derive(Debug, Default)]
pub struct Recording {
    file: Vec<u8>,
    packets: Vec<Recorded>,
    truncated: u64,
    /// Time of the first packet, in nanoseconds since 1970.
    origin: u64,
}

#[derive(Debug)]
struct Recorded {
    /// Time in nanoseconds: since 1970 while the file is being read, afterwards since the first packet.
    time: u64,
    bytes: Range<usize>,
}

impl Recording {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// [`PortError::File`] when the file cannot be read. [`PortError::Format`] when it is broken (with the
    /// offset), or has frames that are not Ethernet.
    pub fn read(path: &Path) -> Result<Self, PortError> {
        let file = fs::read(path).map_err(|source| PortError::File { path: path.to_owned(), source })?;
        Self::parse(file).map_err(|problem| PortError::Format { path: path.to_owned(), problem })
    }

    /// Reads a file that a configuration names, and that the router opens with its own rights. It must be a
    /// regular file, and no symbolic link.
    pub fn read_regular(path: &Path) -> Result<Self, PortError> {
        let failed = |source| PortError::File { path: path.to_owned(), source };
        let mut file = Vec::new();
        open_input(path).and_then(|mut input| input.read_to_end(&mut file)).map_err(failed)?;
        Self::parse(file).map_err(|problem| PortError::Format { path: path.to_owned(), problem })
    }

    /// Parses the bytes of a file.
    ///
    /// # Errors
    /// Description of the fault, its offset, and the correct form.
    pub fn parse(file: Vec<u8>) -> Result<Self, String> {
        let mut recording = Self { file, packets: Vec::new(), truncated: 0, origin: 0 };
        let file = std::mem::take(&mut recording.file);
        match file.get(..4) {
            Some(magic) if magic == PCAPNG_MAGIC => recording.parse_pcapng(&file)?,
            _ => recording.parse_pcap(&file)?,
        }
        recording.file = file;
        recording.packets.sort_by_key(|packet| packet.time);
        let first = recording.packets.first().map_or(0, |packet| packet.time);
        recording.origin = first;
        recording.packets.iter_mut().for_each(|packet| packet.time -= first);
        Ok(recording)
    }

    /// Returns the packet at `index`: its time since the first packet, and its bytes.
    #[inline]
    pub fn get(&self, index: usize) -> Option<(Duration, &[u8])> {
        let packet = self.packets.get(index)?;
        Some((Duration::from_nanos(packet.time), self.file.get(packet.bytes.clone())?))
    }

    /// Returns the time of the first packet, since 1970.
    pub fn origin(&self) -> Duration {
        Duration::from_nanos(self.origin)
    }

    /// Returns the number of packets.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Returns whether there is no packet.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Returns the number of packets that were skipped because the recording lacks their end.
    pub fn truncated(&self) -> u64 {
        self.truncated
    }

    fn parse_pcap(&mut self, file: &[u8]) -> Result<(), String> {
        let (mut rest, parser) = PcapParser::new(file).map_err(|error| match error {
            PcapError::IncompleteBuffer => "not a capture: a pcap or pcapng file is needed".to_owned(),
            _ => "not a capture: it starts with neither the magic number of pcap nor of pcapng".to_owned(),
        })?;
        let header = parser.header();
        // The upper half of the field tells whether frames end in a check sequence.
        check_link_type(u32::from(header.datalink) & 0xffff)?;
        let unit = if header.ts_resolution == TsResolution::NanoSecond { 1 } else { 1000 };
        while !rest.is_empty() {
            let at = file.len() - rest.len();
            let (next, packet) =
                parser.next_raw_packet(rest).map_err(|error| broken(at, file.len(), &error))?;
            let time = u64::from(packet.ts_sec) * 1_000_000_000 + u64::from(packet.ts_frac) * unit;
            self.add(file, time, &packet.data, packet.orig_len);
            rest = next;
        }
        Ok(())
    }

    fn parse_pcapng(&mut self, file: &[u8]) -> Result<(), String> {
        let (mut rest, mut parser) =
            PcapNgParser::new(file).map_err(|error| broken(0, file.len(), &error))?;
        let mut last = 0;
        while !rest.is_empty() {
            let at = file.len() - rest.len();
            let (next, block) = parser.next_block(rest).map_err(|error| broken(at, file.len(), &error))?;
            self.add_block(file, &parser, block, &mut last)
                .map_err(|what| format!("{what} (offset {at})"))?;
            rest = next;
        }
        Ok(())
    }

    /// Adds the packet of a block. A packet without a time gets `last`, the time of the previous packet.
    fn add_block(
        &mut self,
        file: &[u8],
        parser: &PcapNgParser,
        block: Block<'_>,
        last: &mut u64,
    ) -> Result<(), String> {
        let interface = |index: usize| {
            parser
                .interfaces()
                .get(index)
                .ok_or(format!("broken: a packet names interface {index}, which the file does not describe"))
        };
        match block {
            Block::InterfaceDescription(interface) => check_link_type(interface.linktype.into())?,
            Block::EnhancedPacket(packet) => {
                // The pcap crate treats every tick as a nanosecond.
                let ticks = packet.timestamp.as_nanos() as u64;
                *last = nanoseconds(ticks, interface(packet.interface_id as usize)?);
                self.add(file, *last, &packet.data, packet.original_len);
            }
            Block::Packet(packet) => {
                // The upper half of the time comes first in either byte order, but the pcap crate reads both
                // halves as one number.
                let swapped = parser.section().endianness == Endianness::Little;
                let ticks = if swapped { packet.timestamp.rotate_left(32) } else { packet.timestamp };
                *last = nanoseconds(ticks, interface(packet.interface_id.into())?);
                self.add(file, *last, &packet.data, packet.original_len);
            }
            Block::SimplePacket(packet) => {
                let limit = match interface(0)?.snaplen {
                    0 => u32::MAX,
                    limit => limit,
                };
                let length = packet.data.len().min(packet.original_len.min(limit) as usize);
                self.add(file, *last, packet.data.get(..length).unwrap_or(&packet.data), packet.original_len);
            }
            _ => {}
        }
        Ok(())
    }

    fn add(&mut self, file: &[u8], time: u64, bytes: &[u8], original_length: u32) {
        if bytes.len() < original_length as usize {
            self.truncated += 1;
            return;
        }
        // The parsers return slices of the file, so the difference of the addresses is the offset.
        let start = bytes.as_ptr().addr() - file.as_ptr().addr();
        self.packets.push(Recorded { time, bytes: start..start + bytes.len() });
    }
}

fn check_link_type(link_type: u32) -> Result<(), String> {
    if link_type == u32::from(DataLink::ETHERNET) {
        return Ok(());
    }
    Err(format!(
        "link type {link_type} ({:?}) is not supported: only Ethernet (1) can be played",
        DataLink::from(link_type)
    ))
}

/// Converts ticks of an interface to nanoseconds. The resolution gives the number of ticks per second: the
/// exponent of a power of ten, or of a power of two if the upper bit is set.
fn nanoseconds(ticks: u64, interface: &InterfaceDescriptionBlock<'_>) -> u64 {
    let resolution = interface.options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfTsResol(resolution) => Some(*resolution),
        _ => None,
    });
    let resolution = resolution.unwrap_or(DEFAULT_RESOLUTION);
    let exponent = u32::from(resolution & 0x7f);
    let per_second =
        if resolution & 0x80 == 0 { 10u128.checked_pow(exponent) } else { 1u128.checked_shl(exponent) };
    let time = per_second.map_or(0, |per_second| u128::from(ticks) * 1_000_000_000 / per_second);
    u64::try_from(time).unwrap_or(u64::MAX)
}

fn broken(at: usize, length: usize, error: &PcapError) -> String {
    match error {
        PcapError::IncompleteBuffer => {
            format!("broken: the file ends inside the block or packet at offset {at}, after {length} bytes")
        }
        PcapError::Utf8Error(_) | PcapError::FromUtf8Error(_) => {
            format!("broken at offset {at}: a text that is not UTF-8")
        }
        other => format!("broken at offset {at}: {other}"),
    }
}
