//! Reads and writes in network byte order, and the macros for the views of all protocol files.
//!
//! No function panics. Reads past the end of the buffer return zeros, and writes past the end change nothing.
//! The `check` of each view verifies that the octets are in the buffer.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::slice::SliceIndex;

/// Returns the `N` octets from offset `at` on; zeros unless all are in the buffer.
#[inline]
pub(crate) fn array<const N: usize>(data: &[u8], at: usize) -> [u8; N] {
    data.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
}

/// Returns the octets of a range; an empty slice unless all are in the buffer.
#[inline]
pub(crate) fn octets<R: SliceIndex<[u8], Output = [u8]>>(data: &[u8], range: R) -> &[u8] {
    data.get(range).unwrap_or_default()
}

/// Writes `octets` from offset `at` on; writes nothing unless all of them fit.
#[inline]
pub(crate) fn put(data: &mut [u8], at: usize, octets: &[u8]) {
    if let Some(place) = data.get_mut(at..).and_then(|rest| rest.get_mut(..octets.len())) {
        place.copy_from_slice(octets);
    }
}

/// Replaces the bits of `mask` in the octet at offset `at` by those of `bits`; changes nothing past the end
/// of the buffer.
#[inline]
pub(crate) fn put_bits(data: &mut [u8], at: usize, mask: u8, bits: u8) {
    if let Some(octet) = data.get_mut(at) {
        *octet = (*octet & !mask) | (bits & mask);
    }
}

/// Value of a header field in network byte order.
pub(crate) trait Field: Sized {
    /// Returns the value at offset `at`. Its octets count as zeros unless all are in the buffer.
    fn get(data: &[u8], at: usize) -> Self;

    /// Writes the value at offset `at`; writes nothing unless all its octets fit.
    fn put(self, data: &mut [u8], at: usize);
}

/// Implements [`Field`] for types that convert from and to their octets.
macro_rules! field_types {
    ($($type:ty: $from:expr, $to:expr;)*) => {$(
        impl $crate::bytes::Field for $type {
            #[inline]
            fn get(data: &[u8], at: usize) -> Self {
                $from($crate::bytes::array(data, at))
            }

            #[inline]
            fn put(self, data: &mut [u8], at: usize) {
                $crate::bytes::put(data, at, &$to(self));
            }
        }
    )*};
}
pub(crate) use field_types;

field_types! {
    u8: u8::from_be_bytes, u8::to_be_bytes;
    u16: u16::from_be_bytes, u16::to_be_bytes;
    u32: u32::from_be_bytes, u32::to_be_bytes;
    Ipv4Addr: <Ipv4Addr as From<[u8; 4]>>::from, |address: Self| address.octets();
    Ipv6Addr: <Ipv6Addr as From<[u8; 16]>>::from, |address: Self| address.octets();
}

/// Declares a checked view: the type, its constructors, and access to the buffer. The file that uses the
/// macro must write `check`, which decides whether `new_checked` accepts a buffer.
macro_rules! view {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name<T: AsRef<[u8]>> {
            buffer: T,
        }

        impl<T: AsRef<[u8]>> $name<T> {
            /// Makes a view of a buffer without a check. Getters return zeros for octets that are missing.
            #[inline]
            pub const fn new_unchecked(buffer: T) -> Self {
                Self { buffer }
            }

            /// Makes a view of a buffer, if [`check`](Self::check) accepts it.
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

/// Declares the fields of a view. Each line gives the getter, the setter if the router writes the field, the
/// type, and the offset in octets.
macro_rules! fields {
    ($view:ident: $($(#[$doc:meta])* $get:ident $(/ $set:ident)?: $type:ty = $offset:expr;)*) => {
        impl<T: AsRef<[u8]>> $view<T> {$(
            $(#[$doc])*
            #[inline]
            pub fn $get(&self) -> $type {
                $crate::bytes::Field::get(self.data(), $offset)
            }
        )*}

        impl<T: AsRef<[u8]> + AsMut<[u8]>> $view<T> {$($(
            #[doc = concat!("Sets [`", stringify!($get), "`](Self::", stringify!($get), "); no checksum changes.")]
            #[inline]
            pub fn $set(&mut self, value: $type) {
                $crate::bytes::Field::put(value, self.buffer.as_mut(), $offset);
            }
        )?)*}
    };
}
pub(crate) use fields;
