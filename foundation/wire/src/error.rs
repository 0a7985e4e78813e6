//! Errors of header parsing.

use std::fmt;

/// Error of a buffer that is not a valid header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireError {
    /// The buffer ends before the header does.
    Truncated {
        /// Protocol of the expected header.
        header: &'static str,
        /// Number of octets that the header needs.
        need: usize,
        /// Number of octets in the buffer.
        have: usize,
    },
    /// A field has a value that the protocol does not allow.
    Field {
        /// Protocol of the header.
        header: &'static str,
        /// Name of the field in the protocol's specification.
        field: &'static str,
        /// Offset of the field, in octets from the start of the header.
        offset: usize,
        /// Value found.
        found: u32,
        /// Description of the valid values.
        expected: &'static str,
    },
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { header, need, have } => {
                write!(f, "{header}: needs {need} octets, but only {have} are present")
            }
            Self::Field { header, field, offset, found, expected } => {
                write!(f, "{header}: {field} at offset {offset} is {found}, must be {expected}")
            }
        }
    }
}

impl std::error::Error for WireError {}

/// Accepts a buffer of at least `need` octets. `header` names the protocol in the error.
#[inline]
pub(crate) fn need(header: &'static str, need: usize, data: &[u8]) -> Result<(), WireError> {
    if data.len() < need { Err(WireError::Truncated { header, need, have: data.len() }) } else { Ok(()) }
}
