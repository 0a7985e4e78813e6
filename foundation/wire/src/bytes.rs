//! Reading and writing network byte order, and the part of the skeleton that is the same in every file.
//!
//! The readers and writers panic when the octets are not there; each view's `check` makes sure they are.

/// The `N` octets at `at`.
#[inline]
pub(crate) fn array<const N: usize>(data: &[u8], at: usize) -> [u8; N] {
    let mut octets = [0; N];
    octets.copy_from_slice(&data[at..at + N]);
    octets
}

/// The 16-bit number at `at`.
#[inline]
pub(crate) fn get_u16(data: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array(data, at))
}

/// The 32-bit number at `at`.
#[inline]
pub(crate) fn get_u32(data: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array(data, at))
}

/// Writes `octets` at `at`.
#[inline]
pub(crate) fn put(data: &mut [u8], at: usize, octets: &[u8]) {
    data[at..at + octets.len()].copy_from_slice(octets);
}

/// Writes a 16-bit number at `at`.
#[inline]
pub(crate) fn put_u16(data: &mut [u8], at: usize, value: u16) {
    put(data, at, &value.to_be_bytes());
}

/// Writes a 32-bit number at `at`.
#[inline]
pub(crate) fn put_u32(data: &mut [u8], at: usize, value: u32) {
    put(data, at, &value.to_be_bytes());
}

/// Replaces the bits of `mask` in the octet at `at` by those of `bits`.
#[inline]
pub(crate) fn put_bits(data: &mut [u8], at: usize, mask: u8, bits: u8) {
    data[at] = (data[at] & !mask) | (bits & mask);
}

/// Declares a checked view: the type, its constructors, and access to the buffer. The file that uses it writes
/// `check`, which decides what `new_checked` accepts.
macro_rules! view {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name<T: AsRef<[u8]>> {
            buffer: T,
        }

        impl<T: AsRef<[u8]>> $name<T> {
            /// A view whose getters may panic until [`check`](Self::check) has accepted it.
            #[inline]
            pub const fn new_unchecked(buffer: T) -> Self {
                Self { buffer }
            }

            /// A view whose getters never panic.
            ///
            /// # Errors
            /// Those of [`check`](Self::check).
            #[inline]
            pub fn new_checked(buffer: T) -> Result<Self, $crate::WireError> {
                let view = Self { buffer };
                view.check()?;
                Ok(view)
            }

            /// Gives the buffer back.
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
