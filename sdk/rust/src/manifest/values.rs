//! Values of a manifest as JSON: maps and cost.

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

/// Formats the declarations of maps as JSON, for a manifest.
#[macro_export]
#[doc(hidden)]
macro_rules! __millrace_objects {
    ($map:expr, $key:expr, $value:expr, $entries:expr; $($rest:tt)+) => {
        concat!($crate::__millrace_objects!($map, $key, $value, $entries;), ",", $crate::__millrace_objects!($($rest)+))
    };
    ($map:expr, $key:expr, $value:expr, $entries:expr;) => {
        concat!("{\"name\":", stringify!($map), ",\"key\":", $key, ",\"value\":", $value, ",\"entries\":", $entries, "}")
    };
}
#[doc(hidden)]
pub use crate::__millrace_objects as objects;
