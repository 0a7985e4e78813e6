//! Built-in plugins.

use std::sync::Arc;

use millrace_plugin_abi::Plugin;

pub fn built_in_plugins() -> Vec<Arc<dyn Plugin>> {
    vec![
        Arc::new(millrace_plugin_delay::Delay),
        Arc::new(millrace_plugin_null::Null),
        Arc::new(millrace_plugin_statistics::Statistics),
        Arc::new(millrace_plugin_port_filter::PortFilter),
        Arc::new(millrace_plugin_syn_monitor::SynMonitor),
        Arc::new(millrace_plugin_ack_monitor::AckMonitor),
        Arc::new(millrace_plugin_minimal_ip::MinimalIp),
        Arc::new(millrace_plugin_mirror::Mirror),
        Arc::new(millrace_plugin_spread::Spread),
        Arc::new(millrace_plugin_firewall::Firewall),
        Arc::new(millrace_plugin_sample::Sample),
    ]
}

/// Returns the test plugins that provoke faults; a release build has none.
#[cfg(not(debug_assertions))]
pub(crate) fn test_plugins() -> Vec<Arc<dyn Plugin>> {
    Vec::new()
}

/// Returns the test plugins that provoke faults, if an environment variable enables them in a debug build.
#[cfg(debug_assertions)]
pub(crate) fn test_plugins() -> Vec<Arc<dyn Plugin>> {
    match std::env::var_os("MILLRACE_TEST_PLUGINS") {
        Some(_) => vec![Arc::new(crate::plugins::panic_plugin::PanicPlugin)],
        None => Vec::new(),
    }
}

/// Returns the manual page of a built-in plugin.
pub fn manual_page(name: &str) -> Result<String, crate::ControlError> {
    let plugins = built_in_plugins();
    let page = plugins.iter().find(|plugin| plugin.name() == name).and_then(|plugin| plugin.manual());
    page.ok_or_else(|| {
        let known = plugins.iter().map(|plugin| plugin.name());
        crate::ControlError::unknown("plugin that is part of the router", name, known)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plugin_states_a_small_bound_except_null_with_much_work() {
        let bound = |plugin: &dyn Plugin, work: u64| {
            let settings = serde_json::json!({ "work": work });
            plugin.packet_budget(settings.as_object().unwrap()).unwrap()
        };
        for plugin in built_in_plugins() {
            assert!(bound(&*plugin, 0) <= millrace_plugin::CallLimits::MOST_IN_LINE, "{}", plugin.name());
            let is_null = plugin.name() == "null";
            assert_eq!(bound(&*plugin, 200) > millrace_plugin::CallLimits::MOST_IN_LINE, is_null);
        }
    }

    #[test]
    fn every_plugin_has_a_manual_page_with_all_settings_and_messages() {
        for plugin in built_in_plugins() {
            let (name, page) = (plugin.name(), plugin.manual().unwrap());
            assert!(page.starts_with(&format!("`{name}`: ")), "{page}");
            for heading in ["# Purpose", "# Gates", "# Settings", "# Messages", "# Counters", "# Example"] {
                assert!(page.lines().any(|line| line == heading), "{name} has no {heading}");
            }
            for (message, _) in plugin.messages() {
                assert!(page.contains(&format!("- `{message}")), "{name} does not tell of message {message}");
            }
            let schema = plugin.settings_schema().unwrap();
            for (setting, property) in schema["properties"].as_object().unwrap() {
                // The manual page lists `to2` to `to8` as a range.
                let told = page.contains(&format!("`{setting}`")) || setting.starts_with("to");
                assert!(told, "{name} does not tell of setting {setting}");
                assert!(property["description"].is_string(), "{name}: {setting}");
            }
        }
        let unknown = manual_page("statistcs").unwrap_err().to_string();
        assert!(unknown.ends_with("did you mean \"statistics\"?"), "{unknown}");
    }
}
