//! A port on files: it receives the packets of a recorded one (pcap or pcapng) and writes what it transmits to another
//! (pcapng).

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

/// When recorded packets arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Pace {
    /// As far from the first as they were recorded; the first at the first call of `receive`.
    #[default]
    Recorded,
    /// As fast as they are taken.
    Fast,
}

/// The files of a [`Pcap`] port, and how it plays them.
#[derive(Clone, Debug, Default)]
pub struct PcapOptions {
    /// The regular file whose packets arrive; without one none do.
    pub input: Option<PathBuf>,
    /// The file for transmitted packets, which takes the place of one that is there; without one they are only counted.
    pub output: Option<PathBuf>,
    /// When the packets of `input` arrive.
    pub pace: Pace,
    /// What to add to `now` in the timestamps of `output`: the time from 1970 to [`Instant::ZERO`], to write the time
    /// of day.
    pub origin: Duration,
}

/// A port on files.
///
/// The input is read whole when the port is opened, so that a broken file is known before anything is forwarded, and
/// its packets are put in the order of their times: it takes as much memory as the file has bytes. Packets of which
/// the recording holds only the beginning are left out and counted by [`truncated`](Self::truncated), not as received.
///
/// The output is buffered; [`flush`](Port::flush) leaves it so, dropping the port writes the rest. Once a write has
/// failed no more is written; packets are dropped as [`TransmitFailed`](DropReason::TransmitFailed), and
/// [`output_status`](Self::output_status) says why.
#[derive(Debug)]
pub struct Pcap {
    recording: Recording,
    position: usize,
    pace: Pace,
    /// When the first packet arrived.
    start: Option<Instant>,
    output: Option<PcapngWriter<File>>,
    counters: PortCounters,
    capabilities: Capabilities,
}

/// The open files of a [`Pcap`] port, made where files may be opened.
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
    /// [`PortError::File`] when a file can't be read or made, or is no regular file; [`PortError::Format`] when the input is broken (with
    /// the offset), or holds frames that are not Ethernet.
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
    /// Opens the files. The port's own address is `mac`; `mtu` limits nothing here, it is what the router keeps to.
    ///
    /// # Errors
    /// As [`PcapFiles::open`] and [`new`](Self::new).
    pub fn open(mac: MacAddr, mtu: u16, options: &PcapOptions) -> Result<Self, PortError> {
        Self::new(mac, mtu, PcapFiles::open(options.clone())?)
    }

    /// A port on open files.
    ///
    /// # Errors
    /// [`PortError::File`] when the output can't be written.
    pub fn new(mac: MacAddr, mtu: u16, files: PcapFiles) -> Result<Self, PortError> {
        let PcapFiles { recording, output, pace, origin } = files;
        let writer =
            |(path, file)| PcapngWriter::new(file, origin).map_err(|source| PortError::File { path, source });
        let output = output.map(writer).transpose()?;
        Ok(Self { output, pace, ..Self::playing(recording, mac, mtu) })
    }

    /// A port that plays a recording at its pace, and counts what it transmits.
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

    /// How many packets of the input were left out because the recording holds only their beginning.
    pub fn truncated(&self) -> u64 {
        self.recording.truncated()
    }

    /// Where to see whether the output was written, also after the port is gone; `None` without an output.
    pub fn output_status(&self) -> Option<WriterStatus> {
        self.output.as_ref().map(PcapngWriter::status)
    }

    /// When the next packet arrives; `None` after the last.
    fn due(&self) -> Option<Instant> {
        let (time, _) = self.recording.get(self.position)?;
        match (self.pace, self.start) {
            (Pace::Fast, _) | (_, None) => Some(Instant::ZERO),
            (Pace::Recorded, Some(start)) => Some(start + time),
        }
    }

    /// Takes the next packet of the recording.
    fn play(&mut self, pool: &Pool, batch: &mut Batch) {
        let Some((_, bytes)) = self.recording.get(self.position) else { return };
        self.position += 1;
        self.counters.received += 1;
        match pool.packet_from(bytes) {
            Some(packet) => {
                self.counters.received_bytes += bytes.len() as u64;
                // The caller made sure that there is room.
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
