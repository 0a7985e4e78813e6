//! Types for which zeroed memory is a valid value.

use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
};

use millrace_units::{GateId, InstanceId, Instant, NextHopIndex, PathId, PortId, QueueId};

/// Type for which memory of all zeros is a valid value.
///
/// [`zeroable!`](crate::zeroable) implements it for structs of such fields, so that the crate that declares
/// the struct needs no unsafe code.
///
/// # Safety
/// A value whose bytes are all zero must be valid.
pub unsafe trait Zeroable {}

macro_rules! zero_is_a_value {
    ($($name:ty),* $(,)?) => {
        $(
            // SAFETY: an integer, or a cell or newtype of an integer, for which 0 is a value.
            unsafe impl Zeroable for $name {}
        )*
    };
}

zero_is_a_value!(
    PathId,
    NextHopIndex,
    PortId,
    QueueId,
    GateId,
    InstanceId,
    Instant,
    u8,
    u16,
    u32,
    u64,
    u128,
    usize,
    i8,
    i16,
    i32,
    i64,
    i128,
    isize,
    bool,
    AtomicBool,
    AtomicU8,
    AtomicU16,
    AtomicU32,
    AtomicU64,
    AtomicUsize,
    AtomicI32,
    AtomicI64,
);

// SAFETY: elements of zeros are valid values, and an array has no other content.
unsafe impl<T: Zeroable, const N: usize> Zeroable for [T; N] {}

/// Declares a struct of [`Zeroable`] fields that is [`Zeroable`] itself, or an enum with a variant for zero.
///
/// Accepts one plain struct without type parameters, with named or unnamed fields. Accepts one enum without
/// type parameters, whose first variant has no fields and the number 0, and represents it by `#[repr(u8)]`.
///
/// ```
/// millrace_memory::zeroable! {
///     /// A slot of a table.
///     #[derive(Clone, Copy, Debug, PartialEq)]
///     #[repr(C, align(16))]
///     pub struct Slot {
///         /// Key of the slot.
///         pub key: u64,
///         values: [u16; 4],
///     }
/// }
/// let slots = millrace_memory::HugeSlice::<Slot>::new("slots", 100)?;
/// assert_eq!(slots[99].key, 0);
/// # Ok::<(), millrace_memory::MemoryError>(())
/// ```
///
/// The compiler refuses a field that isn't zeroable:
///
/// ```compile_fail
/// millrace_memory::zeroable! {
///     struct Slot {
///         value: &'static u8,
///     }
/// }
/// ```
#[macro_export]
macro_rules! zeroable {
    (
        $(#[$meta:meta])* $visibility:vis enum $name:ident {
            $(#[$first_meta:meta])* $first:ident = 0, $($others:tt)*
        }
    ) => {
        $(#[$meta])* #[repr(u8)] $visibility enum $name {
            $(#[$first_meta])* $first = 0, $($others)*
        }
        // SAFETY: zeros are the first variant: its number, in the first byte, is 0, and it has no fields.
        unsafe impl $crate::Zeroable for $name {}
    };
    (
        $(#[$meta:meta])* $visibility:vis struct $name:ident {
            $($(#[$field_meta:meta])* $field_visibility:vis $field:ident: $type:ty),* $(,)?
        }
    ) => {
        $(#[$meta])* $visibility struct $name {
            $($(#[$field_meta])* $field_visibility $field: $type),*
        }
        // SAFETY: each field is zeroable, as the bounds demand, and a struct has no other content.
        unsafe impl $crate::Zeroable for $name where $($type: $crate::Zeroable),* {}
    };
    (
        $(#[$meta:meta])* $visibility:vis struct $name:ident(
            $($(#[$field_meta:meta])* $field_visibility:vis $type:ty),* $(,)?
        );
    ) => {
        $(#[$meta])* $visibility struct $name($($(#[$field_meta])* $field_visibility $type),*);
        // SAFETY: each field is zeroable, as the bounds demand, and a struct has no other content.
        unsafe impl $crate::Zeroable for $name where $($type: $crate::Zeroable),* {}
    };
}
