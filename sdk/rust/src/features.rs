//! Interface features that a plugin requires, written into its manifest at compile time.

use crate::Features;

/// Expands to `$feature`, and ignores the further arguments. Callers pass a key of the manifest there, so
/// that a macro repetition uses the feature only if the key is given.
#[macro_export]
#[doc(hidden)]
macro_rules! __millrace_because {
    ($feature:expr, $($given:expr)+) => {
        $feature
    };
}
#[doc(hidden)]
pub use crate::__millrace_because as because;

/// Builds a manifest from the interface version, these features, and the manifest's further keys.
#[macro_export]
#[doc(hidden)]
macro_rules! __millrace_with_features {
    ($features:expr, $rest:expr) => {{
        const REST: &str = $rest;
        const TEXT: [u8; $crate::features::length($features, REST)] =
            $crate::features::whole($features, REST);
        match core::str::from_utf8(&TEXT) {
            Ok(text) => text,
            Err(_) => panic!("the manifest is no text"),
        }
    }};
}
#[doc(hidden)]
pub use crate::__millrace_with_features as with_features;

/// Beginning of a manifest, before the names of the features.
const BEFORE: &str = "{\"abi\":1,\"features\":[";
const BEHIND: &str = "]";

/// Returns the length in bytes of a manifest with these features.
#[must_use]
pub const fn length(features: Features, rest: &str) -> usize {
    let (mut bytes, mut at, mut count) = (BEFORE.len() + BEHIND.len() + rest.len(), 0, 0);
    while at < Features::NAMED.len() {
        if features.0 >> at & 1 != 0 {
            // Count the quotes around the name, and the comma in front of it if a feature precedes.
            bytes += Features::NAMED[at].0.len() + 2 + (count > 0) as usize;
            count += 1;
        }
        at += 1;
    }
    bytes
}

/// Returns a manifest with these features.
#[must_use]
pub const fn whole<const N: usize>(features: Features, rest: &str) -> [u8; N] {
    let mut bytes = [0; N];
    let mut end = put(&mut bytes, 0, BEFORE);
    let (mut at, mut count) = (0, 0);
    while at < Features::NAMED.len() {
        if features.0 >> at & 1 != 0 {
            end = put(&mut bytes, end, if count > 0 { ",\"" } else { "\"" });
            end = put(&mut bytes, end, Features::NAMED[at].0);
            end = put(&mut bytes, end, "\"");
            count += 1;
        }
        at += 1;
    }
    end = put(&mut bytes, end, BEHIND);
    put(&mut bytes, end, rest);
    bytes
}

/// Writes a text at index `from`, and returns the index behind it.
const fn put<const N: usize>(bytes: &mut [u8; N], from: usize, text: &str) -> usize {
    let mut at = 0;
    while at < text.len() {
        bytes[from + at] = text.as_bytes()[at];
        at += 1;
    }
    from + at
}

/// Returns the features that these capabilities require.
#[must_use]
pub const fn of_capabilities(capabilities: &[&str]) -> Features {
    let (mut features, mut at) = (Features::NONE, 0);
    while at < capabilities.len() {
        features = features.and(Features::of_capability(capabilities[at]));
        at += 1;
    }
    features
}

/// Whether the interface has a feature with this name.
#[must_use]
pub const fn is_feature(name: &str) -> bool {
    !Features::of_name(name).is_empty()
}
