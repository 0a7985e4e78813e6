//! Macro that declares a plugin, and compile-time checks of the plugin's manifest.

mod values;

#[doc(hidden)]
pub use values::{cost, objects};

/// Declares the plugin of a crate from a type that implements [`Plugin`](crate::Plugin): manifest and exports.
///
/// The keys are those of `docs/plugin-abi.md`, in the same order; values are literals. The first three keys
/// are mandatory. The version is the version of the crate. Features that other keys imply are declared
/// automatically. An error in the manifest is a compile error.
///
/// ```ignore
/// millrace_plugin! {
///     Shaper,
///     name: "shaper",
///     summary: "Holds packets of flows that send too much.",
///     positions: ["early", "late"],
///     features: ["hold"],    // no other key implies these: to-ports, to-queues, to-instances, classify, hold, reject
///     capabilities: ["log", "timer"],
///     messages: { "read": "the counters", "reset": "sets them to zero" },
///     settings: r#"{"type": "object", "properties": {"rate": {"type": "integer"}}, "additionalProperties": false}"#,
///     window: 64,            // bytes of a packet's window
///     state: "flow",         // or "connection": both directions share a state
///     flow_state: 16,        // bytes of state for each flow, or connection
///     service_state: 64,     // bytes of state common to all flows
///     maps: [{ name: "seen", key: 4, value: 8, entries: 1000 }],  // own maps (map-write)
///     counters: ["late", "early"],  // counters of `host::count`, by index
///     host_companion: "shaper-slow.wasm",  // module of the host companion, same folder
///     state_version: 2,      // enables `save` and `restore`
///     contexts: 4,           // copies of an instance at each worker, each with a call of its own
///     period: 1000,          // milliseconds between two calls of `periodic`
///     cost: { packet: 50, byte: 0 },  // cycles; or JSON with the cost by kind of processor
///     flow_ends: true,       // enables `flow_ended`
///     hears: true,           // enables `message`: messages of the other part
/// }
/// ```
#[macro_export]
macro_rules! millrace_plugin {
    (
        $plugin:ty,
        name: $name:literal,
        summary: $summary:literal,
        positions: [$position:literal $(, $positions:literal)* $(,)?]
        $(, features: [$feature:literal $(, $features:literal)* $(,)?])?
        $(, capabilities: [$capability:literal $(, $capabilities:literal)* $(,)?])?
        $(, messages: { $message:literal: $help:literal $(, $messages:literal: $helps:literal)* $(,)? })?
        $(, settings: $settings:literal)?
        $(, window: $window:literal)?
        $(, state: $scope:literal)?
        $(, flow_state: $flow_state:literal)?
        $(, service_state: $service_state:literal)?
        $(, maps: [$({ name: $map:literal, key: $key:literal, value: $value:literal, entries: $entries:literal $(,)? }),+ $(,)?])?
        $(, counters: [$counter:literal $(, $counters:literal)* $(,)?])?
        $(, host_companion: $host_companion:literal)?
        $(, state_version: $state_version:literal)?
        $(, contexts: $contexts:literal)?
        $(, period: $period:literal)?
        $(, cost: $cost:tt)?
        $(, flow_ends: $flow_ends:tt)?
        $(, hears: $hears:tt)?
        $(,)?
    ) => {
        impl $crate::Declared for $plugin {
            // `stringify!` keeps the quotes and escapes, which JSON shares.
            const MANIFEST: &'static str = $crate::features::with_features!(<$plugin as $crate::Declared>::FEATURES, concat!(
                ",\"name\":", stringify!($name),
                ",\"version\":\"", env!("CARGO_PKG_VERSION"), "\"",
                ",\"summary\":", stringify!($summary),
                ",\"positions\":[", stringify!($position) $(, ",", stringify!($positions))*, "]"
                $(, ",\"capabilities\":[", stringify!($capability) $(, ",", stringify!($capabilities))*, "]")?
                $(, ",\"messages\":{", stringify!($message), ":", stringify!($help)
                    $(, ",", stringify!($messages), ":", stringify!($helps))*, "}")?
                $(, ",\"settings\":", $settings)?
                $(, ",\"window\":", $window)?
                $(, ",\"state\":", stringify!($scope))?
                $(, ",\"flow-state\":", $flow_state)?
                $(, ",\"service-state\":", $service_state)?
                $(, ",\"maps\":[", $crate::manifest::objects!($($map, $key, $value, $entries;)+), "]")?
                $(, ",\"counters\":[", stringify!($counter) $(, ",", stringify!($counters))*, "]")?
                $(, ",\"host-companion\":", stringify!($host_companion))?
                $(, ",\"state-version\":", $state_version)?
                $(, ",\"contexts\":", $contexts)?
                $(, ",\"period\":", $period)?
                $(, ",\"cost\":", $crate::manifest::cost!($cost))?,
                "}"
            ));
            const FEATURES: $crate::Features = $crate::features::of_capabilities(&[$($capability $(, $capabilities)*)?])
                $(.and($crate::Features::of_name($feature)) $(.and($crate::Features::of_name($features)))*)?
                $(.and($crate::Features::CONNECTIONS.when($crate::manifest::is_any_of($scope, &["connection"]))))?
                $(.and($crate::Features::FLOW_STATE.when($flow_state > 0)))?
                $(.and($crate::Features::SERVICE_STATE.when($service_state > 0)))?
                $(.and($crate::features::because!($crate::Features::MAPS, $($map)+)))?
                $(.and($crate::features::because!($crate::Features::COUNTERS, $counter)))?
                $(.and($crate::features::because!($crate::Features::HOST_COMPANION, $host_companion)))?
                $(.and($crate::features::because!($crate::Features::SAVED_STATE, $state_version)))?
                $(.and($crate::features::because!($crate::Features::TIMERS, $period)))?
                $(.and($crate::Features::FLOW_ENDS.when($flow_ends)))?
                $(.and($crate::Features::HOST_COMPANION.when($hears)))?;
            const FLOW_STATE: u16 = $crate::manifest::given!(0 $(, $flow_state)?);
            const SERVICE_STATE: u16 = $crate::manifest::given!(0 $(, $service_state)?);
            const MAPS: &'static [(&'static str, usize, usize, usize)] = &[$($(($map, $key, $value, $entries)),+)?];
            const WINDOW: u16 = $crate::manifest::given!($crate::binary::DEFAULT_WINDOW $(, $window)?);
            const CAPABILITIES: &'static [&'static str] = &[$($capability $(, $capabilities)*)?];
        }

        const _: () = {
            use $crate::Declared as _;
            use $crate::manifest::{is_any_of, is_json, is_name, is_version};

            assert!(is_name($name), "name: give 1 to 64 letters, digits, '-', '_' and '.'");
            assert!(is_version(env!("CARGO_PKG_VERSION")), "the crate's version: give major.minor.patch");
            assert!(is_any_of($position, &$crate::manifest::POSITIONS), "positions: early, route, late, queue or copy");
            $(assert!(is_any_of($positions, &$crate::manifest::POSITIONS), "positions: early, route, late, queue or copy");)*
            $(
                assert!($crate::features::is_feature($feature), "features: unknown feature; docs/plugin-abi.md lists the features");
                $(assert!($crate::features::is_feature($features), "features: unknown feature; docs/plugin-abi.md lists the features");)*
            )?
            $(
                assert!($crate::manifest::is_capability($capability), "capabilities: unknown capability; docs/plugin-abi.md lists the capabilities");
                $(assert!($crate::manifest::is_capability($capabilities), "capabilities: unknown capability; docs/plugin-abi.md lists the capabilities");)*
            )?
            $(assert!(is_json($settings), "settings: this is not JSON");)?
            assert!(is_json(<$plugin>::MANIFEST), "texts: write them without raw strings and \\x or \\u escapes");
            assert!(<$plugin>::WINDOW <= $crate::binary::MOST_WINDOW, "window: 1536 bytes at most");
            $(assert!(is_any_of($scope, &["flow", "connection"]), "state: flow or connection");)?
            assert!(<$plugin>::FLOW_STATE <= 256, "flow_state: 256 bytes at most");

            assert!(<$plugin>::SERVICE_STATE <= 4096, "service_state: 4096 bytes at most");

            $(assert!($contexts >= 1 && $contexts <= 16, "contexts: 1 to 16");)?

            $($(
                assert!(is_name($map), "maps: give names of 1 to 64 letters, digits, '-', '_' and '.'");
                assert!($key >= 1 && $key <= 64, "maps: keys have 1 to 64 bytes");
                assert!($value >= 1 && $value <= 256, "maps: values have 1 to 256 bytes");
                assert!($entries >= 1 && $entries <= 65_536, "maps: 1 to 65536 entries");
            )+)?

            $(
                assert!(is_name($counter), "counters: give names of 1 to 64 letters, digits, '-', '_' and '.'");
                $(assert!(is_name($counters), "counters: give names of 1 to 64 letters, digits, '-', '_' and '.'");)*
                assert!([$counter $(, $counters)*].len() <= $crate::binary::MOST_COUNTERS, "counters: 32 at most");
            )?

            static SLOT: $crate::glue::Slot<$plugin> = $crate::glue::Slot::new();
            $crate::__millrace_export!(always $plugin);
            $($crate::__millrace_export!(control $plugin, $message);)?
            $($crate::__millrace_export!(flow_ended $plugin, $flow_ends);)?
            $($crate::__millrace_export!(message $plugin, $hears);)?
            $($crate::__millrace_export!(save $plugin, $state_version);)?

            #[cfg(target_os = "linux")]
            $crate::executable::exported!($plugin, [$($message)?] [$($flow_ends)?] [$($hears)?] [$($state_version)?]);
        };
    };
}

/// Defines the exported functions, as listed in `docs/plugin-abi.md`.
#[doc(hidden)]
#[macro_export]
macro_rules! __millrace_export {
    (always $plugin:ty) => {
        #[cfg(target_family = "wasm")]
        #[used]
        #[unsafe(link_section = "millrace.manifest")]
        static MANIFEST: [u8; <$plugin as $crate::Declared>::MANIFEST.len()] =
            $crate::manifest::array(<$plugin as $crate::Declared>::MANIFEST);

        #[cfg(not(target_family = "wasm"))]
        #[unsafe(no_mangle)]
        extern "C" fn millrace_manifest() -> *const u8 {
            const TEXT: &str = <$plugin as $crate::Declared>::MANIFEST;
            // The router reads and checks the section before any code runs. Zeros terminate the text.
            #[unsafe(link_section = "millrace.manifest")]
            static MANIFEST: [u8; TEXT.len() + $crate::manifest::ROOM] = $crate::manifest::array(TEXT);
            MANIFEST.as_ptr()
        }

        #[cfg(not(target_family = "wasm"))]
        #[unsafe(no_mangle)]
        extern "C" fn millrace_attach(table: *const core::ffi::c_void) {
            $crate::glue::attach(table);
        }

        #[unsafe(no_mangle)]
        extern "C" fn millrace_abi() -> u32 {
            $crate::binary::ABI_VERSION
        }

        #[unsafe(no_mangle)]
        extern "C" fn millrace_reserve(bytes: usize) -> *mut u8 {
            $crate::glue::reserve(bytes)
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn millrace_release(address: *mut u8, bytes: usize) {
            // SAFETY: the router releases only memory that it has reserved.
            unsafe { $crate::glue::release(address, bytes) }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn millrace_init(settings: *const u8, bytes: usize) -> i32 {
            // SAFETY: the router keeps the rules of the interface.
            unsafe { $crate::glue::init(&SLOT, settings, bytes) }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn millrace_packets(call: *const $crate::binary::RawCall) {
            // SAFETY: the router keeps the rules of the interface.
            unsafe { $crate::glue::packets(&SLOT, call) }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn millrace_periodic(now: u64) {
            // SAFETY: the router keeps the rules of the interface.
            unsafe { $crate::glue::periodic(&SLOT, now) }
        }
    };
    (control $plugin:ty, $message:literal) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn millrace_control(
            name: *const u8,
            name_bytes: usize,
            arguments: *const u8,
            bytes: usize,
        ) -> i32 {
            // SAFETY: the router keeps the rules of the interface.
            unsafe { $crate::glue::control(&SLOT, (name, name_bytes), (arguments, bytes)) }
        }
    };
    (flow_ended $plugin:ty, true) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn millrace_flow_ended(flow: *const $crate::binary::RawFlowEnd) {
            // SAFETY: the router keeps the rules of the interface.
            unsafe { $crate::glue::flow_ended(&SLOT, flow) }
        }
    };
    (flow_ended $plugin:ty, false) => {};
    (message $plugin:ty, true) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn millrace_message(bytes: *const u8, length: usize) {
            // SAFETY: the router keeps the rules of the interface.
            unsafe { $crate::glue::message(&SLOT, (bytes, length)) }
        }
    };
    (message $plugin:ty, false) => {};
    (save $plugin:ty, $version:literal) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn millrace_save() -> i32 {
            // SAFETY: the router keeps the rules of the interface.
            unsafe { $crate::glue::save(&SLOT) }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn millrace_restore(state: *const u8, bytes: usize, version: u32) -> i32 {
            // SAFETY: the router keeps the rules of the interface.
            unsafe { $crate::glue::restore(&SLOT, (state, bytes), version) }
        }
    };
}

/// Expands to the given value, or to the default.
#[macro_export]
#[doc(hidden)]
macro_rules! __millrace_given {
    ($default:expr) => {
        $default
    };
    ($default:expr, $given:expr) => {
        $given
    };
}
#[doc(hidden)]
pub use crate::__millrace_given as given;

/// Positions whose gates plugins can be bound at.
pub const POSITIONS: [&str; 5] = ["early", "route", "late", "queue", "copy"];

/// Bytes behind the manifest of a shared object or executable: a zero, and room into which
/// `millrace plugin bench --write` writes the measured cost.
pub const ROOM: usize = 513;

/// Returns the bytes of a text, padded with zeros.
#[must_use]
pub const fn array<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    let mut at = 0;
    while at < text.len() && at < N {
        bytes[at] = text.as_bytes()[at];
        at += 1;
    }
    bytes
}

const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// Whether `word` is an element of `known`.
#[must_use]
pub const fn is_any_of(word: &str, known: &[&str]) -> bool {
    let mut at = 0;
    while at < known.len() {
        if same(word, known[at]) {
            return true;
        }
        at += 1;
    }
    false
}

/// Whether `word` is a capability of the router.
#[must_use]
pub const fn is_capability(word: &str) -> bool {
    let known = &crate::binary::HOST_FUNCTIONS;
    let mut at = 0;
    while at < known.len() {
        if let Some(capability) = known[at].1
            && same(word, capability)
        {
            return true;
        }
        at += 1;
    }
    is_any_of(word, &crate::binary::REQUEST_CAPABILITIES)
}

/// Whether `name` is a valid name of a plugin.
#[must_use]
pub const fn is_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if !(bytes[at].is_ascii_alphanumeric() || matches!(bytes[at], b'-' | b'_' | b'.')) {
            return false;
        }
        at += 1;
    }
    at > 0 && at <= 64
}

/// Whether `text` has the form `major.minor.patch`.
#[must_use]
pub const fn is_version(text: &str) -> bool {
    let bytes = text.as_bytes();
    let (mut at, mut dots, mut digits) = (0, 0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'0'..=b'9' => digits += 1,
            b'.' if digits > 0 => (dots, digits) = (dots + 1, 0),
            _ => return false,
        }
        at += 1;
    }
    dots == 2 && digits > 0
}

/// Whether `text` is one JSON value (RFC 8259) of at most 32 levels.
#[must_use]
pub const fn is_json(text: &str) -> bool {
    let text = text.as_bytes();
    match value(text, space(text, 0), 32) {
        Some(end) => space(text, end) == text.len(),
        None => false,
    }
}

const fn at(text: &[u8], index: usize) -> u8 {
    if index < text.len() { text[index] } else { 0 }
}

const fn space(text: &[u8], mut from: usize) -> usize {
    while matches!(at(text, from), b' ' | b'\t' | b'\n' | b'\r') {
        from += 1;
    }
    from
}

/// Returns the index behind the value that begins at `from`; `None` for an invalid value.
const fn value(text: &[u8], from: usize, levels: u32) -> Option<usize> {
    match at(text, from) {
        b'{' if levels > 0 => list(text, from + 1, b'}', levels - 1),
        b'[' if levels > 0 => list(text, from + 1, b']', levels - 1),
        b'"' => string(text, from + 1),
        b't' => word(text, from, b"true"),
        b'f' => word(text, from, b"false"),
        b'n' => word(text, from, b"null"),
        _ => number(text, from),
    }
}

/// Returns the index behind an object or array. `from` is the index behind its first bracket.
const fn list(text: &[u8], from: usize, close: u8, levels: u32) -> Option<usize> {
    let mut from = space(text, from);
    if at(text, from) == close {
        return Some(from + 1);
    }
    loop {
        if close == b'}' {
            from = match key(text, from) {
                Some(end) => space(text, end),
                None => return None,
            };
        }
        from = match value(text, from, levels) {
            Some(end) => space(text, end),
            None => return None,
        };
        match at(text, from) {
            b',' => from = space(text, from + 1),
            byte if byte == close => return Some(from + 1),
            _ => return None,
        }
    }
}

/// Returns the index behind a key and its colon.
const fn key(text: &[u8], from: usize) -> Option<usize> {
    if at(text, from) != b'"' {
        return None;
    }
    match string(text, from + 1) {
        Some(end) if at(text, space(text, end)) == b':' => Some(space(text, end) + 1),
        _ => None,
    }
}

/// Returns the index behind a string. `from` is the index behind its first quote.
const fn string(text: &[u8], mut from: usize) -> Option<usize> {
    while from < text.len() {
        match text[from] {
            b'"' => return Some(from + 1),
            0..=31 => return None,
            b'\\' => match at(text, from + 1) {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => from += 2,
                b'u' => {
                    let digits = from + 2;
                    from = digits;
                    while from < digits + 4 {
                        if !at(text, from).is_ascii_hexdigit() {
                            return None;
                        }
                        from += 1;
                    }
                }
                _ => return None,
            },
            _ => from += 1,
        }
    }
    None
}

const fn word(text: &[u8], mut from: usize, word: &[u8]) -> Option<usize> {
    let mut index = 0;
    while index < word.len() {
        if at(text, from) != word[index] {
            return None;
        }
        (from, index) = (from + 1, index + 1);
    }
    Some(from)
}

/// Returns the index behind one or more digits.
const fn digits(text: &[u8], mut from: usize) -> Option<usize> {
    let first = from;
    while at(text, from).is_ascii_digit() {
        from += 1;
    }
    if from > first { Some(from) } else { None }
}

const fn number(text: &[u8], mut from: usize) -> Option<usize> {
    if at(text, from) == b'-' {
        from += 1;
    }
    let leads_with_zero = at(text, from) == b'0';
    let mut end = match digits(text, from) {
        Some(end) if end == from + 1 || !leads_with_zero => end,
        _ => return None,
    };
    if at(text, end) == b'.' {
        let Some(after) = digits(text, end + 1) else { return None };
        end = after;
    }
    if matches!(at(text, end), b'e' | b'E') {
        let sign = matches!(at(text, end + 1), b'+' | b'-') as usize;
        return digits(text, end + 1 + sign);
    }
    Some(end)
}
