//! Attacks, overload, and malformed frames.

mod attacks;
mod overload;
pub mod random;
mod short_messages;
