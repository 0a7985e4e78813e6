//! Test of a manifest whose cost is by kind of processor.

use millrace_sdk::{Declared, Packets, Plugin, Refusal, millrace_plugin};

/// Plugin that does nothing.
struct Idle;

impl Plugin for Idle {
    fn init(_settings: &[u8]) -> Result<Self, Refusal> {
        Ok(Self)
    }

    fn packets(&mut self, _packets: &mut Packets<'_>, _now: u64) {}
}

millrace_plugin! {
    Idle,
    name: "idle",
    summary: "Does nothing.",
    positions: ["early"],
    cost: r#"{"on": {"worker": {"call": 300, "packet": 12.5}, "process": {"packet": 9}}, "memory": 65536}"#,
}

#[test]
fn cost_by_kind_is_the_cost_of_the_manifest() {
    let manifest: serde_json::Value = serde_json::from_str(Idle::MANIFEST).unwrap();
    let on = serde_json::json!({"worker": {"call": 300, "packet": 12.5}, "process": {"packet": 9}});
    assert_eq!(manifest["cost"], serde_json::json!({"on": on, "memory": 65536}));
    assert_eq!(manifest["name"], "idle");
}
