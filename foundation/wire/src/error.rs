//! What can be wrong with a header.

use std::fmt;

/// Why a buffer was not accepted as a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireError {
    /// The buffer ends before the header does.
    Truncated {
        /// The protocol whose header was expected.
        header: &'static str,
        /// Octets the header needs.
        need: usize,
        /// Octets that were there.
        have: usize,
    },
    /// A field has a value that the protocol does not allow.
    Field {
        /// The protocol.
        header: &'static str,
        /// The field's name in the protocol's specification.
        field: &'static str,
        /// Offset of the field, in octets from the start of the header.
        offset: usize,
        /// What was found.
        found: u32,
        /// What would be right.
        expected: &'static str,
    },
    /// The checksum does not match the octets.
    Checksum {
        /// The protocol.
        header: &'static str,
    },
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { header, need, have } => {
                write!(f, "{header}: needs {need} octets, only {have} are there")
            }
            Self::Field { header, field, offset, found, expected } => {
                write!(f, "{header}: {field} at offset {offset} is {found}, must be {expected}")
            }
            Self::Checksum { header } => write!(f, "{header}: checksum does not match the octets"),
        }
    }
}

impl std::error::Error for WireError {}

/// Accepts a buffer of at least `need` octets.
#[inline]
pub(crate) fn need(header: &'static str, need: usize, data: &[u8]) -> Result<(), WireError> {
    if data.len() < need { Err(WireError::Truncated { header, need, have: data.len() }) } else { Ok(()) }
}
