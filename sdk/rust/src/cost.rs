//! Declared cost of a plugin, for its manifest.

/// Formats a cost as JSON: the short form, or a text that is JSON already.
#[macro_export]
#[doc(hidden)]
macro_rules! __millrace_cost {
    ({ packet: $packet:literal, byte: $byte:literal $(,)? }) => {
        concat!("{\"packet\":", $packet, ",\"byte\":", $byte, "}")
    };
    ($json:literal) => {
        $json
    };
}
#[doc(hidden)]
pub use crate::__millrace_cost as cost;
