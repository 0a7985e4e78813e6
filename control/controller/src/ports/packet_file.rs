//! Pcapng files of packets with comments.

use millrace_telemetry::CaptureFile;

use crate::ControlError;
use crate::view::RawFrame;

/// Growing pcapng file, with one interface for each port.
#[derive(Debug)]
pub struct PacketFile {
    file: CaptureFile,
    ports: Vec<String>,
}

impl PacketFile {
    /// Creates a file without packets.
    pub fn new() -> Result<Self, ControlError> {
        let file = CaptureFile::new(&[], u32::from(u16::MAX));
        let file = file.map_err(ControlError::refused)?;
        Ok(Self { file, ports: Vec::new() })
    }

    /// Adds a packet with a comment.
    pub fn add(&mut self, frame: &RawFrame, comment: &str) -> Result<(), ControlError> {
        let failed = |error: millrace_telemetry::CaptureFileError| ControlError::refused(error);
        let number = match self.ports.iter().position(|port| *port == frame.port) {
            Some(number) => number,
            None => {
                self.file.interface(&frame.port).map_err(failed)?;
                self.ports.push(frame.port.clone());
                self.ports.len() - 1
            }
        };
        self.file
            .frame(number as u32, frame.at, false, frame.length, &frame.bytes, Some(comment))
            .map_err(failed)
    }

    /// Returns the bytes written since the last call.
    pub fn take(&mut self) -> Vec<u8> {
        self.file.take()
    }
}
