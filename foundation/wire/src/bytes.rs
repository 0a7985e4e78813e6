//! Reads and writes of network byte order, and the view code that all protocol files share.
//!
//! No function panics. Reads past the end of the buffer return zeros, and writes past the end change
//! nothing. The `check` of each view verifies that the octets are in the buffer.

use std::slice::SliceIndex;

/// Returns the octet at `at`; 0 past the end.
#[inline]
pub(crate) fn get_u8(data: &[u8], at: usize) -> u8 {
    data.get(at).copied().unwrap_or(0)
}

/// Returns the `N` octets at `at`; zeros unless all are in the buffer.
#[inline]
pub(crate) fn array<const N: usize>(data: &[u8], at: usize) -> [u8; N] {
    data.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
}

/// Returns the 16-bit number at `at`; 0 unless all of it is in the buffer.
#[inline]
pub(crate) fn get_u16(data: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array(data, at))
}

/// Returns the 32-bit number at `at`; 0 unless all of it is in the buffer.
#[inline]
pub(crate) fn get_u32(data: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array(data, at))
}

/// Returns the octets of a range; none unless all are in the buffer.
#[inline]
pub(crate) fn octets<R: SliceIndex<[u8], Output = [u8]>>(data: &[u8], range: R) -> &[u8] {
    data.get(range).unwrap_or_default()
}

/// Returns the octets of a range, for writes; none unless all are in the buffer.
#[inline]
pub(crate) fn octets_mut<R: SliceIndex<[u8], Output = [u8]>>(data: &mut [u8], range: R) -> &mut [u8] {
    data.get_mut(range).unwrap_or_default()
}

/// Writes `octets` at `at`; writes nothing unless all have room.
#[inline]
pub(crate) fn put(data: &mut [u8], at: usize, octets: &[u8]) {
    if let Some(place) = data.get_mut(at..).and_then(|rest| rest.get_mut(..octets.len())) {
        place.copy_from_slice(octets);
    }
}

/// Writes the octet at `at`; writes nothing past the end.
#[inline]
pub(crate) fn put_u8(data: &mut [u8], at: usize, value: u8) {
    put_bits(data, at, 0xff, value);
}

/// Writes a 16-bit number at `at`; writes nothing unless all of it has room.
#[inline]
pub(crate) fn put_u16(data: &mut [u8], at: usize, value: u16) {
    put(data, at, &value.to_be_bytes());
}

/// Writes a 32-bit number at `at`; writes nothing unless all of it has room.
#[inline]
pub(crate) fn put_u32(data: &mut [u8], at: usize, value: u32) {
    put(data, at, &value.to_be_bytes());
}

/// Replaces the bits of `mask` in the octet at `at` by the ones in `bits`; changes nothing past the end.
#[inline]
pub(crate) fn put_bits(data: &mut [u8], at: usize, mask: u8, bits: u8) {
    if let Some(octet) = data.get_mut(at) {
        *octet = (*octet & !mask) | (bits & mask);
    }
}

/// Declares a checked view: the type, its constructors, and access to the buffer. The calling file writes
/// `check`, which decides whether `new_checked` accepts a buffer.
macro_rules! view {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name<T: AsRef<[u8]>> {
            buffer: T,
        }

        impl<T: AsRef<[u8]>> $name<T> {
            /// Makes a view of an unchecked buffer. Until [`check`](Self::check) has accepted it, getters
            /// return zeros for missing octets.
            #[inline]
            pub const fn new_unchecked(buffer: T) -> Self {
                Self { buffer }
            }

            /// Makes a view of a buffer that has all octets.
            ///
            /// # Errors
            /// The errors of [`check`](Self::check).
            #[inline]
            pub fn new_checked(buffer: T) -> Result<Self, $crate::WireError> {
                let view = Self { buffer };
                view.check()?;
                Ok(view)
            }

            /// Returns the buffer.
            #[inline]
            pub fn into_inner(self) -> T {
                self.buffer
            }

            #[inline]
            fn data(&self) -> &[u8] {
                self.buffer.as_ref()
            }
        }
    };
}
pub(crate) use view;
