//! Kinds of IPv4 options (IANA, *IP Option Numbers*), and the meaning of the bits in the kind octet.

use crate::tlv::RawOption;

/// Record route (RFC 791).
pub const RECORD_ROUTE: u8 = 7;
/// Timestamp (RFC 791).
pub const TIMESTAMP: u8 = 68;
/// Loose source route (RFC 791).
pub const LOOSE_SOURCE_ROUTE: u8 = 131;
/// Strict source route (RFC 791).
pub const STRICT_SOURCE_ROUTE: u8 = 137;

/// Returns whether every fragment must have a copy of the option.
#[must_use]
pub fn is_copied(option: &RawOption<'_>) -> bool {
    option.kind() & 0x80 != 0
}

/// Returns whether the option is a source route.
#[must_use]
pub fn is_source_route(option: &RawOption<'_>) -> bool {
    matches!(option.kind(), LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE)
}

/// Returns the pointer of a route or timestamp option. It counts from 1 for the kind octet, so 4 or 5 is the
/// first slot.
#[must_use]
pub fn pointer(option: &RawOption<'_>) -> Option<u8> {
    option.data().first().copied()
}
