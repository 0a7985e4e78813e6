//! Tests of interface features: all runtimes offer and refuse the same features.

use std::sync::Arc;

use millrace_packet::Pool;
use millrace_plugin::PluginControlUnit;
use millrace_plugin::native::NativePlugin;
use millrace_plugin_abi::{Features, Instance, Instant, Plugin, PluginError, Position};
use serde_json::{Map, Value};

use crate::conformance::PLUGINS;
use crate::native::text;
use crate::process::in_process;
use crate::support::{
    Bench, Sent, contained, executable_of, module_of, native, object_of, refusal_of_module,
};

/// Built-in plugin that requires these features.
struct BuiltIn(Features);

impl Plugin for BuiltIn {
    fn name(&self) -> &'static str {
        "test"
    }

    fn version(&self) -> &'static str {
        "1.0.0"
    }

    fn summary(&self) -> &'static str {
        "For tests."
    }

    fn positions(&self) -> &[Position] {
        &[Position::Early]
    }

    fn messages(&self) -> &[(&'static str, &'static str)] {
        &[]
    }

    fn features(&self) -> Features {
        self.0
    }

    fn create(&self, _settings: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        Err(PluginError::Refused("never".to_owned()))
    }
}

fn added(features: Features) -> Result<(), String> {
    let mut unit = PluginControlUnit::<String, ()>::new();
    unit.add_plugin(Arc::new(BuiltIn(features))).map_err(|error| error.to_string())
}

#[test]
fn rule_needs_equal_features_in_all_runtimes() {
    // The rule keeps state for flows, so it can't keep one for connections.
    let others = Features::REQUESTS.and(Features::TO_QUEUES).and(Features::CONNECTIONS);
    let every = Features::AT_WORKERS.without(others);
    for (runtime, _, plugin) in PLUGINS.iter() {
        assert_eq!(plugin.features().names(), every.names(), "{runtime}");
        assert_eq!(plugin.counters(), ["packets", "ports"], "{runtime}");
        assert!(plugin.capabilities().contains(&"flow-backlog"), "{runtime}");
    }
}

#[test]
fn unavailable_features_are_refused_in_all_runtimes() {
    let offered = Features::AT_WORKERS.names().join(", ");
    let refused = |needed: &str| {
        format!(
            "the plugin needs the feature {needed} of the plugin interface, which this router does not offer \
             at its workers; offered there: {offered}"
        )
    };
    let later = text(r#","features":["hold","teleport"],"teleports":4"#, "");
    if let Some(module) = module_of(&later) {
        assert_eq!(refusal_of_module(&module), refused("\"teleport\""));
    }
    if let Some(object) = object_of(&later) {
        assert_eq!(NativePlugin::new(&object).unwrap_err().to_string(), refused("\"teleport\""));
    }
    assert_eq!(added(Features(1 << 63)), Err(format!("plugin test: {}", refused("bit 63"))));
    assert_eq!(added(Features::AT_WORKERS), Ok(()));
}

#[test]
fn older_plugin_gets_the_part_of_the_backlog_that_it_knows() {
    let older = text(
        r#","features":["flow-backlog"],"capabilities":["flow-backlog"],"counters":["written","beyond","of"]"#,
        "void millrace_packets(struct millrace_call *call) {
            (void)call;
            uint8_t room[33];
            room[32] = 0xee;
            millrace_count(0, MILLRACE_CALL(flow_backlog, 0, 0, room, 32));
            millrace_count(1, room[32] == 0xee);
            millrace_count(2, room[2]); }",
    );
    let mut plugins: Vec<(&str, Box<dyn Plugin>)> = Vec::new();
    if let Some(module) = module_of(&older) {
        plugins.push(("module", Box::new(contained(&module))));
    }
    if let Some(object) = object_of(&older) {
        plugins.push(("shared object", Box::new(native(&object))));
        plugins.push(("process of an object", Box::new(in_process(&object))));
    }
    if let Some(executable) = executable_of(&older) {
        plugins.push(("executable", Box::new(in_process(&executable))));
    }
    let pool = Pool::new(128).unwrap();
    for (runtime, plugin) in plugins {
        let mut bench = Bench::of(&*plugin);
        bench.send(&pool, &[Sent { flow: 0, port: 80, bytes: vec![0; 61] }], Instant::ZERO);
        let expected = [("written", 32), ("beyond", 1), ("of", 1)];
        assert_eq!(bench.instance.counters(), expected, "{runtime}");
    }
}
