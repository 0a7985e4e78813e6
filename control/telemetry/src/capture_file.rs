//! Captures in pcapng format, returned in pieces while they are written.

use std::borrow::Cow;
use std::time::Duration;

use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{PcapNgBlock, PcapNgWriter};
use pcap_file::{DataLink, PcapError};

/// Error of writing a capture.
#[derive(Debug, thiserror::Error)]
#[error("can't write a capture: {0}")]
pub struct CaptureFileError(#[from] PcapError);

/// Pcapng file under construction, with one pcapng interface for each port. Times are nanoseconds since the
/// Unix epoch.
pub struct CaptureFile {
    writer: PcapNgWriter<Vec<u8>>,
    snap: u32,
}

impl std::fmt::Debug for CaptureFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CaptureFile").finish_non_exhaustive()
    }
}

impl CaptureFile {
    /// Creates a capture with these pcapng interfaces, numbered by their order from 0. `snap` is the maximum
    /// number of bytes kept of each frame.
    ///
    /// # Errors
    /// [`CaptureFileError`] for a name that the file format can't hold.
    pub fn new(interfaces: &[&str], snap: u32) -> Result<Self, CaptureFileError> {
        let mut file = Self { writer: PcapNgWriter::new(Vec::new())?, snap };
        interfaces.iter().try_for_each(|name| file.interface(name))?;
        Ok(file)
    }

    /// Adds a pcapng interface. Its number is the number of interfaces before it.
    ///
    /// # Errors
    /// [`CaptureFileError`] for a name that the file format can't hold.
    pub fn interface(&mut self, name: &str) -> Result<(), CaptureFileError> {
        let name = InterfaceDescriptionOption::IfName(Cow::Borrowed(name));
        let block = InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: self.snap,
            options: vec![name, InterfaceDescriptionOption::IfTsResol(9)],
        };
        self.writer.write_block(&block.into_block())?;
        Ok(())
    }

    /// Adds a frame that passed `interface` at the time `at` since the Unix epoch, optionally with a comment.
    /// `length` is the frame's original length.
    ///
    /// # Errors
    /// [`CaptureFileError`] if no interface has this number.
    pub fn frame(
        &mut self,
        interface: u32,
        at: Duration,
        outbound: bool,
        length: u32,
        bytes: &[u8],
        comment: Option<&str>,
    ) -> Result<(), CaptureFileError> {
        let flags = EnhancedPacketOption::Flags(if outbound { 2 } else { 1 });
        let comment = comment.map(|comment| EnhancedPacketOption::Comment(Cow::Borrowed(comment)));
        let block = EnhancedPacketBlock {
            interface_id: interface,
            timestamp: at,
            original_len: length,
            data: Cow::Borrowed(bytes),
            options: [Some(flags), comment].into_iter().flatten().collect(),
        };
        self.writer.write_block(&block.into_block())?;
        Ok(())
    }

    /// Returns the bytes written since the last call.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(self.writer.get_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcap_file::pcapng::PcapNgReader;

    #[test]
    fn pieces_make_a_file_that_readers_take() {
        let mut file = CaptureFile::new(&["lan", "wan"], 65_535).unwrap();
        let mut bytes = file.take();
        file.frame(1, Duration::new(7, 9), true, 100, &[1, 2, 3], None).unwrap();
        bytes.extend(file.take());
        let mut reader = PcapNgReader::new(bytes.as_slice()).unwrap();
        while let Some(block) = reader.next_block() {
            if let Some(frame) = block.unwrap().into_enhanced_packet() {
                assert_eq!((frame.interface_id, frame.original_len, &*frame.data), (1, 100, &[1, 2, 3][..]));
                assert_eq!(frame.timestamp, Duration::new(7, 9));
                return;
            }
        }
        panic!("no frame");
    }
}
