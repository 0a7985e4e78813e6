//! Packets that something is said of, as pcapng: what is said stands in their comments.

use millrace_telemetry::CaptureFile;

use crate::ControlError;
use crate::view::RawFrame;

/// A pcapng file in the making. One interface per port.
#[derive(Debug)]
pub struct PacketFile {
    file: CaptureFile,
    ports: Vec<String>,
}

impl PacketFile {
    /// A file without packets.
    ///
    /// # Errors
    /// None, as long as there is memory.
    pub fn new() -> Result<Self, ControlError> {
        let file = CaptureFile::new(&[], u32::from(u16::MAX));
        let file = file.map_err(ControlError::refused)?;
        Ok(Self { file, ports: Vec::new() })
    }

    /// Adds a packet, with what is said of it.
    ///
    /// # Errors
    /// A port's name that has no form in the file.
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
        self.file.commented(number as u32, frame.at, frame.length, &frame.bytes, comment).map_err(failed)
    }

    /// What was written since the last call.
    pub fn take(&mut self) -> Vec<u8> {
        self.file.take()
    }
}
