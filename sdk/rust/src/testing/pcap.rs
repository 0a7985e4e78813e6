//! Reader for classic pcap files (draft-ietf-opsawg-pcap): either byte order, microseconds or nanoseconds.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::vec::Vec;

/// Error of a pcap file.
#[derive(Debug)]
pub enum PcapError {
    /// Error of the operating system.
    Io(PathBuf, io::Error),
    /// The file is not a classic pcap file of Ethernet frames, or it is damaged at this byte offset.
    Format(PathBuf, usize),
}

impl core::fmt::Display for PcapError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Io(file, error) => write!(f, "{}: {error}", file.display()),
            Self::Format(file, place) => write!(
                f,
                "{}: byte {place}: not a pcap file of Ethernet frames; convert a pcapng file with tcpdump -r \
                 FILE -w NEW",
                file.display()
            ),
        }
    }
}

impl core::error::Error for PcapError {}

/// Returns all frames of a pcap file.
///
/// # Errors
/// File that can't be read, or that is not a pcap file of Ethernet frames.
pub fn frames_of_pcap(file: &Path) -> Result<Vec<Vec<u8>>, PcapError> {
    let bytes = fs::read(file).map_err(|error| PcapError::Io(file.to_path_buf(), error))?;
    frames(&bytes).map_err(|place| PcapError::Format(file.to_path_buf(), place))
}

/// Returns all frames of a pcap file's bytes. The error is the offset of the damaged byte.
pub(super) fn frames(bytes: &[u8]) -> Result<Vec<Vec<u8>>, usize> {
    let big = match bytes.first_chunk::<4>() {
        Some([0xd4 | 0x4d, 0xc3 | 0x3c, 0xb2, 0xa1]) => false,
        Some([0xa1, 0xb2, 0xc3 | 0x3c, 0xd4 | 0x4d]) => true,
        _ => return Err(0),
    };
    let word = |at: usize| -> Option<u32> {
        let bytes = *bytes.get(at..)?.first_chunk()?;
        Some(if big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    };
    if word(20).map(|link| link & 0xffff) != Some(1) {
        return Err(20);
    }
    let (mut at, mut frames) = (24, Vec::new());
    while at < bytes.len() {
        let length = word(at + 8).ok_or(at)? as usize;
        let start = at + 16;
        let end = start.checked_add(length).ok_or(at)?;
        frames.push(bytes.get(start..end).ok_or(at)?.to_vec());
        at = end;
    }
    Ok(frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(big: bool, frames: &[&[u8]]) -> Vec<u8> {
        let word = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
        let mut bytes = Vec::new();
        for value in [0xa1b2_c3d4, 0x0002_0004, 0, 0, 65_535, 1] {
            bytes.extend(word(value));
        }
        for frame in frames {
            for value in [0, 0, frame.len() as u32, frame.len() as u32] {
                bytes.extend(word(value));
            }
            bytes.extend(*frame);
        }
        bytes
    }

    #[test]
    fn both_byte_orders_are_read() {
        for big in [false, true] {
            let bytes = file(big, &[b"first", b"", b"third"]);
            assert_eq!(frames(&bytes), Ok([b"first".to_vec(), Vec::new(), b"third".to_vec()].to_vec()));
            assert_eq!(frames(&bytes[..bytes.len() - 1]), Err(24 + 21 + 16));
        }
        assert_eq!(frames(b"\x0a\x0d\x0d\x0a"), Err(0));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_parsed_without_a_panic(bytes: Vec<u8>) {
            let _ = frames(&bytes);
            let mut long = file(false, &[]);
            long.extend(bytes);
            let _ = frames(&long);
        }
    }
}
