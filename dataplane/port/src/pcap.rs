//! Port on files: it receives the packets of a recorded file (pcap or pcapng), and writes transmitted packets
//! to another file (pcapng).

use std::fs::File;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::time::Duration;

use millrace_packet::{Batch, DropReason, Pool};
use millrace_units::Instant;
use millrace_wire::MacAddr;

use crate::{Capabilities, Mode, Port, PortCounters, PortError, create_recording};

mod reader;
mod writer;

pub use reader::Recording;
pub use writer::{Direction, PcapngWriter, WriterStatus};

/// Arrival times of recorded packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Pace {
    /// As recorded: each packet arrives at its recorded time after the first packet, and the first packet at
    /// the first call of `receive`.
    #[default]
    Recorded,
    /// At once: the packets arrive as fast as the caller takes them.
    Fast,
}

/// Options of a [`Pcap`] port: its files, and the arrival times of packets.
#[derive(Clone, Debug, Default)]
pub struct PcapOptions {
    /// Regular file with the packets to receive; `None` for no packets.
    pub input: Option<PathBuf>,
    /// File for transmitted packets, which replaces an existing file. With `None`, the port only counts
    /// packets.
    pub output: Option<PathBuf>,
    /// Arrival times of the packets of `input`.
    pub pace: Pace,
    /// Time of day at [`Instant::ZERO`], as the duration since 1970. Timestamps in `output` are `origin` plus
    /// the packet's instant.
    pub origin: Duration,
}

/// Port on files.
///
/// The port reads the whole input when it is opened, so that it finds a broken file before it forwards any
/// packet. It sorts the packets by time. The input takes as much memory as the file has bytes. The port skips
/// packets whose end is missing in the recording. They count as [`truncated`](Self::truncated), not as
/// received.
///
/// The output is buffered. [`flush`](Port::flush) does not write the buffer to the file; dropping the port
/// does. After a failed write nothing more is written. The port then drops packets as
/// [`TransmitFailed`](DropReason::TransmitFailed), and [`output_status`](Self::output_status) has the reason.
#[derive(Debug)]
pub struct Pcap {
    recording: Recording,
    position: usize,
    pace: Pace,
    /// Arrival time of the first packet; `None` before the first call of `receive`.
    start: Option<Instant>,
    output: Option<PcapngWriter<File>>,
    counters: PortCounters,
    capabilities: Capabilities,
}

/// Open files of a [`Pcap`] port. Another thread can open them, so the worker needs no right to open files.
#[derive(Debug)]
pub struct PcapFiles {
    recording: Recording,
    output: Option<(PathBuf, File)>,
    pace: Pace,
    origin: Duration,
}

impl PcapFiles {
    /// Opens the files.
    ///
    /// # Errors
    /// [`PortError::File`] when a file cannot be read or created, or is no regular file.
    /// [`PortError::Format`] when the input is broken (with the offset), or has frames that are not Ethernet.
    pub fn open(options: PcapOptions) -> Result<Self, PortError> {
        let PcapOptions { input, output, pace, origin } = options;
        let recording =
            input.map_or_else(|| Ok(Recording::default()), |path| Recording::read_regular(&path))?;
        let made = |path: PathBuf| match create_recording(&path) {
            Ok(file) => Ok((path, file)),
            Err(source) => Err(PortError::File { path, source }),
        };
        Ok(Self { recording, output: output.map(made).transpose()?, pace, origin })
    }
}

impl Pcap {
    /// Opens the files. The port's own address is `mac`. Only the router uses `mtu`; the port does not
    /// enforce it.
    ///
    /// # Errors
    /// As [`PcapFiles::open`].
    pub fn open(mac: MacAddr, mtu: u16, options: &PcapOptions) -> Result<Self, PortError> {
        Self::new(mac, mtu, PcapFiles::open(options.clone())?)
    }

    /// Creates a port on open files.
    pub fn new(mac: MacAddr, mtu: u16, files: PcapFiles) -> Result<Self, PortError> {
        let PcapFiles { recording, output, pace, origin } = files;
        let writer =
            |(path, file)| PcapngWriter::new(file, origin).map_err(|source| PortError::File { path, source });
        let output = output.map(writer).transpose()?;
        Ok(Self { output, pace, ..Self::playing(recording, mac, mtu) })
    }

    /// Creates a port that plays a recording at its pace, and counts transmitted packets.
    pub fn playing(recording: Recording, mac: MacAddr, mtu: u16) -> Self {
        let (driver, mode, why) = ("pcap", Mode::InProcess, String::new());
        Self {
            recording,
            position: 0,
            pace: Pace::Recorded,
            start: None,
            output: None,
            counters: PortCounters::default(),
            capabilities: Capabilities { driver, mode, why, mac, mtu, ifindex: None },
        }
    }

    /// Returns the number of packets of the input that were skipped because the recording lacks their end.
    pub fn truncated(&self) -> u64 {
        self.recording.truncated()
    }

    /// Returns the status of the output file, which remains valid after the port is dropped; `None` without
    /// an output.
    pub fn output_status(&self) -> Option<WriterStatus> {
        self.output.as_ref().map(PcapngWriter::status)
    }

    /// Returns the arrival time of the next packet; `None` after the last packet.
    fn due(&self) -> Option<Instant> {
        let (time, _) = self.recording.get(self.position)?;
        match (self.pace, self.start) {
            (Pace::Fast, _) | (_, None) => Some(Instant::ZERO),
            (Pace::Recorded, Some(start)) => Some(start + time),
        }
    }

    /// Moves the next packet of the recording into `batch`.
    fn play(&mut self, pool: &Pool, batch: &mut Batch) {
        let Some((_, bytes)) = self.recording.get(self.position) else { return };
        self.position += 1;
        self.counters.received += 1;
        match pool.packet_from(bytes) {
            Some(packet) => {
                self.counters.received_bytes += bytes.len() as u64;
                // The caller ensures that `batch` has room.
                let _ = batch.push(packet);
            }
            None => self.counters.drops.add(DropReason::NoMemory, 1),
        }
    }
}

impl Port for Pcap {
    fn receive(&mut self, pool: &Pool, now: Instant, batch: &mut Batch) {
        self.start.get_or_insert(now);
        while batch.room() > 0 && self.due().is_some_and(|due| due <= now) {
            self.play(pool, batch);
        }
    }

    fn transmit(&mut self, _pool: &Pool, now: Instant, batch: &mut Batch) {
        for packet in batch.drain() {
            let written = match &mut self.output {
                Some(output) => output.write(now, &packet, None),
                None => true,
            };
            if written {
                self.counters.transmitted += 1;
                self.counters.transmitted_bytes += packet.len() as u64;
            } else {
                self.counters.drops.add(DropReason::TransmitFailed, 1);
            }
        }
    }

    fn flush(&mut self, _pool: &Pool, _now: Instant) {}

    fn counters(&mut self) -> PortCounters {
        self.counters.clone()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn descriptor(&self) -> Option<RawFd> {
        None
    }

    fn next_event(&self) -> Option<Instant> {
        self.due()
    }

    fn is_finished(&self) -> bool {
        self.due().is_none()
    }
}

#[cfg(test)]
mod tests;
