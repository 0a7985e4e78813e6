//! Tests that compare the JSON reader in `sdk/c/millrace.h` with a complete JSON reader (serde_json).

use std::fs;
use std::sync::OnceLock;

use millrace_kit::{Format, Language, new};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{Folder, Native, build};

/// Plugin in C. Its control message names a key; the answer is the unchanged value of that key.
const SOURCE: &str = r#"#include "millrace.h"
MILLRACE_PLUGIN("{\"abi\":1,\"name\":\"json\",\"version\":\"0.1.0\",\"summary\":\"For tests.\",\"positions\":[\"early\"]}");
int32_t millrace_init(const uint8_t *settings, size_t bytes) { return (void)settings, (int32_t)(bytes & 0); }
void millrace_packets(struct millrace_call *call) { (void)call; }
int32_t millrace_control(const char *name, size_t name_bytes, const uint8_t *arguments, size_t bytes) {
    char key[64];
    uint64_t number;
    if (name_bytes >= sizeof key) return millrace_fail("the key is too long");
    memcpy(key, name, name_bytes);
    key[name_bytes] = 0;
    struct millrace_json value = millrace_json_get(arguments, bytes, key);
    if (!value.start) return millrace_fail("it is not there");
    if (!millrace_json_number(value, UINT64_MAX, &number)) return millrace_reply(value.start, value.length);
    char memory[32];
    struct millrace_text text = {memory, sizeof memory, 0, false};
    millrace_add_number(&text, number);
    return millrace_reply_text(&text);
}
"#;

/// Returns the plugin, built and loaded once; `None` without a compiler.
fn plugin() -> Option<&'static Native> {
    static PLUGIN: OnceLock<Option<Native>> = OnceLock::new();
    let load = || {
        let folder = Folder::new("json");
        let project = folder.0.join("json");
        new("json", Language::C, &project).unwrap();
        fs::write(project.join("plugin.c"), SOURCE).unwrap();
        Some(Native::load(&build(&project, Format::Native, &folder.0)?.file))
    };
    PLUGIN.get_or_init(load).as_ref()
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..5)
                .prop_map(|map| map.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn values_are_found_whole(before in values(), value in values(), pretty: bool) {
        let Some(plugin) = plugin() else { return Ok(()) };
        let object = json!({ "a": before, "key": value, "z": {"key": 1} });
        let text = if pretty { serde_json::to_string_pretty(&object) } else { serde_json::to_string(&object) };
        let found = plugin.control("\"key\"", &text.unwrap()).unwrap();
        prop_assert_eq!(serde_json::from_str::<Value>(&found).unwrap(), value);
        prop_assert!(plugin.control("\"ke\"", &object.to_string()).is_err());
    }

    #[test]
    fn any_text_is_parsed_without_a_panic(text in "[{}\\[\\]:,\"\\\\ a0-9]{0,24}") {
        let Some(plugin) = plugin() else { return Ok(()) };
        if let Ok(found) = plugin.control("\"a\"", &text) {
            prop_assert!(found.len() <= text.len());
        }
    }
}
