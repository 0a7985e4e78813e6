//! Writer of packets to a pcapng file (draft-ietf-opsawg-pcapng), as a stream.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use millrace_packet::Packet;
use millrace_units::Instant;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{PcapNgBlock, PcapNgWriter, RawBlock};
use pcap_file::{DataLink, PcapError};

use crate::PortError;
use crate::create_recording;

/// Size of the write buffer in bytes.
const BUFFER: usize = 1 << 16;
/// Type of the block that holds a packet.
const ENHANCED_PACKET_BLOCK: u32 = 6;
/// Code of the option with a packet's flags, and the length of its value.
const FLAGS_OPTION: (u16, u16) = (2, 4);

/// Direction of a packet, seen from the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Received packet.
    In,
    /// Packet to be transmitted.
    Out,
}

/// Writer of packets to a pcapng file with one Ethernet interface and times in nanoseconds.
///
/// After the first error the writer writes nothing more, so the file is readable up to the error.
pub struct PcapngWriter<W: Write> {
    writer: PcapNgWriter<BufWriter<W>>,
    origin: Duration,
    /// Body of the current block; reused, so that a packet costs no allocation.
    body: Vec<u8>,
    status: Rc<RefCell<Status>>,
}

/// Status of a writer. It remains valid after the writer is dropped.
#[derive(Clone, Debug, Default)]
pub struct WriterStatus(Rc<RefCell<Status>>);

#[derive(Debug, Default)]
struct Status {
    packets: u64,
    bytes: u64,
    lost: u64,
    error: Option<String>,
}

impl PcapngWriter<File> {
    /// Creates the file at `path` as [`create_recording`] does. `origin` is added to all times.
    pub fn create(path: &Path, origin: Duration) -> Result<Self, PortError> {
        let failed = |source| PortError::File { path: path.to_owned(), source };
        Self::new(create_recording(path).map_err(failed)?, origin).map_err(failed)
    }
}

impl<W: Write> PcapngWriter<W> {
    /// Starts a file in `output`. The writer adds `origin` to all times. If `origin` is the time from 1970 to
    /// [`Instant::ZERO`], the file has times of day.
    pub fn new(output: W, origin: Duration) -> io::Result<Self> {
        let mut writer = PcapNgWriter::new(BufWriter::with_capacity(BUFFER, output)).map_err(into_io)?;
        let mut interface = InterfaceDescriptionBlock::new(DataLink::ETHERNET, 0);
        interface.options.push(InterfaceDescriptionOption::IfTsResol(9));
        writer.write_block(&interface.into_block()).map_err(into_io)?;
        Ok(Self { writer, origin, body: Vec::new(), status: Rc::default() })
    }

    /// Writes a packet. Returns `false`, and the packet is lost, when this or an earlier write failed. The
    /// write of the buffer may also fail later; then the packets in the buffer are lost.
    pub fn write(&mut self, now: Instant, packet: &Packet, direction: Option<Direction>) -> bool {
        let mut status = self.status.borrow_mut();
        if status.error.is_none() {
            fill_body(
                &mut self.body,
                self.origin.saturating_add(now.since(Instant::ZERO)),
                packet,
                direction,
            );
            let length = self.body.len() as u32 + 12;
            let body = Cow::Borrowed(&self.body[..]);
            let block =
                RawBlock { type_: ENHANCED_PACKET_BLOCK, initial_len: length, body, trailer_len: length };
            match self.writer.write_raw_block(&block) {
                Ok(_) => {
                    status.packets += 1;
                    status.bytes += packet.len() as u64;
                    return true;
                }
                Err(error) => status.error = Some(into_io(error).to_string()),
            }
        }
        status.lost += 1;
        false
    }

    /// Writes the buffer to the file. The [status](Self::status) shows an error.
    pub fn flush(&mut self) {
        let flushed = self.writer.get_mut().flush();
        let mut status = self.status.borrow_mut();
        if let (Err(error), None) = (flushed, &status.error) {
            status.error = Some(error.to_string());
        }
    }

    /// Returns the status of the writer.
    pub fn status(&self) -> WriterStatus {
        WriterStatus(Rc::clone(&self.status))
    }
}

impl<W: Write> Drop for PcapngWriter<W> {
    fn drop(&mut self) {
        if self.status.borrow().error.is_none() {
            self.flush();
        }
    }
}

impl<W: Write> fmt::Debug for PcapngWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PcapngWriter").field("status", &self.status).finish_non_exhaustive()
    }
}

impl WriterStatus {
    /// Returns the number of packets taken.
    pub fn packets(&self) -> u64 {
        self.0.borrow().packets
    }

    /// Returns the number of bytes of the packets taken.
    pub fn bytes(&self) -> u64 {
        self.0.borrow().bytes
    }

    /// Returns the number of packets refused after a failed write.
    pub fn lost(&self) -> u64 {
        self.0.borrow().lost
    }

    /// Returns the error of the first failed write; `None` if no write failed.
    pub fn error(&self) -> Option<String> {
        self.0.borrow().error.clone()
    }
}

/// Fills the body of an enhanced packet block, in the processor's byte order. The section header of the file
/// declares that order.
fn fill_body(body: &mut Vec<u8>, time: Duration, packet: &Packet, direction: Option<Direction>) {
    let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let length = packet.len() as u32;
    body.clear();
    // Interface, upper and lower half of the time, captured bytes, bytes on the wire.
    for field in [0, (nanoseconds >> 32) as u32, nanoseconds as u32, length, length] {
        body.extend_from_slice(&field.to_ne_bytes());
    }
    packet.frames().for_each(|frame| body.extend_from_slice(frame));
    body.resize(body.len().next_multiple_of(4), 0);
    let Some(direction) = direction else { return };
    let flags = match direction {
        Direction::In => 1u32,
        Direction::Out => 2,
    };
    body.extend_from_slice(&FLAGS_OPTION.0.to_ne_bytes());
    body.extend_from_slice(&FLAGS_OPTION.1.to_ne_bytes());
    body.extend_from_slice(&flags.to_ne_bytes());
    // End of the options.
    body.extend_from_slice(&[0; 4]);
}

fn into_io(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}
