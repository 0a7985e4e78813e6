//! Plain data: types for which any bytes are a valid value, so they can be stored in a flow state.

/// Data with a fixed number of bytes, in native byte order and without padding. Every content of these bytes
/// must be a valid value. [`plain!`](crate::plain) implements the trait for structures.
pub trait Plain: Copy + Default {
    /// Number of bytes, without padding.
    const BYTES: usize;

    /// Reads a value from the first bytes of `bytes`; `None` if there are too few.
    fn read(bytes: &[u8]) -> Option<Self>;

    /// Writes the value into the first bytes of `bytes`. Returns `false`, and writes nothing, if there are
    /// too few.
    fn write(&self, bytes: &mut [u8]) -> bool;
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Plain for $number {
            const BYTES: usize = size_of::<Self>();

            #[inline]
            fn read(bytes: &[u8]) -> Option<Self> {
                Some(Self::from_ne_bytes(*bytes.first_chunk()?))
            }

            #[inline]
            fn write(&self, bytes: &mut [u8]) -> bool {
                let Some(place) = bytes.first_chunk_mut() else { return false };
                *place = self.to_ne_bytes();
                true
            }
        }
    )*};
}
numbers! { u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 }

impl<T: Plain, const N: usize> Plain for [T; N]
where
    Self: Default,
{
    const BYTES: usize = N * T::BYTES;

    fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..Self::BYTES)?;
        let mut value = Self::default();
        for (index, element) in value.iter_mut().enumerate() {
            *element = T::read(&bytes[index * T::BYTES..])?;
        }
        Some(value)
    }

    fn write(&self, bytes: &mut [u8]) -> bool {
        let Some(bytes) = bytes.get_mut(..Self::BYTES) else { return false };
        self.iter().enumerate().all(|(index, element)| element.write(&mut bytes[index * T::BYTES..]))
    }
}

/// Declares a structure of [`Plain`] fields and implements [`Plain`] for it.
///
/// ```
/// millrace_sdk::plain! {
///     /// State of a flow.
///     pub struct Seen {
///         /// Number of packets.
///         pub packets: u32,
///         /// Time of the latest packet.
///         pub last: u64,
///     }
/// }
/// # use millrace_sdk::Plain;
/// assert_eq!(Seen::BYTES, 12);
/// ```
#[macro_export]
macro_rules! plain {
    ($(#[$about:meta])* $see:vis struct $name:ident {
        $($(#[$field_about:meta])* $field_see:vis $field:ident: $kind:ty),+ $(,)?
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
        $see struct $name {
            $($(#[$field_about])* $field_see $field: $kind),+
        }

        impl $crate::Plain for $name {
            const BYTES: usize = 0 $(+ <$kind as $crate::Plain>::BYTES)+;

            fn read(bytes: &[u8]) -> ::core::option::Option<Self> {
                let rest = bytes;
                $(let ($field, rest) = (<$kind as $crate::Plain>::read(rest)?, &rest[<$kind as $crate::Plain>::BYTES..]);)+
                let _ = rest;
                ::core::option::Option::Some(Self { $($field),+ })
            }

            fn write(&self, bytes: &mut [u8]) -> bool {
                if bytes.len() < Self::BYTES {
                    return false;
                }
                let rest = bytes;
                $(
                    self.$field.write(rest);
                    let rest = &mut rest[<$kind as $crate::Plain>::BYTES..];
                )+
                let _ = rest;
                true
            }
        }
    };
}
