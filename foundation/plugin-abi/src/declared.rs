//! Macro that declares a built-in plugin, and manual pages, which are the module comments of plugins.

/// Implements the methods of [`Plugin`](crate::Plugin) that describe a built-in plugin, inside its `impl`.
///
/// The version is the version of the plugin's crate, and the manual page is the header of its `lib.rs`. The
/// JSON Schema of the settings is built at its first use. `packet_budget` is the number of cycles that a packet needs
/// at most; without it, the plugin may state a bound by [`Plugin::packet_budget`](crate::Plugin::packet_budget).
///
/// ```ignore
/// impl Plugin for Mirror {
///     declared! {
///         name: NAME,
///         summary: "Sends every copy to one or two ports.",
///         positions: &[Position::Copy],
///         features: Features::TO_PORTS,
///         messages: MESSAGES,
///         settings: settings_of(json!({ "to": { "type": "string", "format": "port" } }), &["to"]),
///         state_version: STATE_VERSION,
///         packet_budget: 300,
///     }
/// }
/// ```
#[macro_export]
macro_rules! declared {
    (
        name: $name:expr,
        summary: $summary:literal,
        positions: $positions:expr,
        features: $features:expr,
        messages: $messages:expr,
        settings: $settings:expr,
        state_version: $state_version:expr
        $(, packet_budget: $packet_budget:expr)? $(,)?
    ) => {
        fn name(&self) -> &'static str {
            $name
        }

        fn version(&self) -> &'static str {
            env!("CARGO_PKG_VERSION")
        }

        fn summary(&self) -> &'static str {
            $summary
        }

        fn positions(&self) -> &'static [$crate::Position] {
            $positions
        }

        fn features(&self) -> $crate::Features {
            $features
        }

        fn messages(&self) -> &'static [(&'static str, &'static str)] {
            $messages
        }

        fn settings_schema(&self) -> Option<&::serde_json::Map<String, ::serde_json::Value>> {
            static SCHEMA: ::std::sync::LazyLock<::serde_json::Map<String, ::serde_json::Value>> =
                ::std::sync::LazyLock::new(|| $settings);
            Some(&SCHEMA)
        }

        fn manual(&self) -> Option<String> {
            Some($crate::manual_of(include_str!("lib.rs")))
        }

        fn state_version(&self) -> u32 {
            $state_version
        }

        $(
            fn packet_budget(
                &self,
                _settings: &::serde_json::Map<String, ::serde_json::Value>,
            ) -> Option<u32> {
                Some($packet_budget)
            }
        )?
    };
}

/// Returns the module comment at the head of a source, without the comment marks.
pub fn manual_of(source: &str) -> String {
    let head = source.lines().map_while(|line| line.strip_prefix("//!"));
    let mut text = String::new();
    for line in head {
        text.push_str(line.strip_prefix(' ').unwrap_or(line).trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_is_the_manual() {
        let source =
            "//! `null`: nothing.\n//!\n//! # Gates\n//! -  all\n#![forbid(unsafe_code)]\n//! no more\n";
        assert_eq!(manual_of(source), "`null`: nothing.\n\n# Gates\n-  all\n");
        assert_eq!(manual_of("fn main() {}"), "");
    }
}
