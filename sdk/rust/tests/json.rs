//! Compares the SDK's JSON code with a complete implementation.

use millrace_sdk::json::{Object, Value, Writer};
use millrace_sdk::manifest::is_json;
use proptest::prelude::*;
use serde_json::{Value as Json, json};

/// Random JSON values with integers only.
fn values() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<String>().prop_map(Json::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Json::from),
            prop::collection::btree_map(any::<String>(), inner, 0..5)
                .prop_map(|map| map.into_iter().collect()),
        ]
    })
}

fn same(ours: Value<'_>, theirs: &Json) -> bool {
    match theirs {
        Json::Null => ours.raw() == b"null",
        Json::Bool(value) => ours.boolean() == Some(*value),
        Json::Number(value) => ours.integer() == value.as_i64(),
        Json::String(value) => ours.string().as_ref() == Some(value),
        Json::Array(values) => {
            let ours: Vec<_> = ours.array().unwrap().collect();
            ours.len() == values.len() && ours.iter().zip(values).all(|(ours, theirs)| same(*ours, theirs))
        }
        Json::Object(_) => same_object(&ours.object().unwrap(), theirs),
    }
}

fn same_object(ours: &Object<'_>, theirs: &Json) -> bool {
    let theirs = theirs.as_object().unwrap();
    ours.iter().count() == theirs.len()
        && theirs.iter().all(|(key, value)| ours.get(key).is_some_and(|ours| same(ours, value)))
}

proptest! {
    #[test]
    fn objects_are_parsed_by_meaning(value in values(), pretty: bool) {
        let whole = json!({ "value": value, "a": 1 });
        let text = if pretty { serde_json::to_string_pretty(&whole) } else { serde_json::to_string(&whole) };
        let text = text.unwrap();
        prop_assert!(same_object(&Object::new(text.as_bytes()).unwrap(), &whole), "{}", text);
    }

    #[test]
    fn json_validity_equals_the_reference_parser(text in "[\\[\\]{}:,\"\\\\a0-9.eE+\\-truefalsn u\n]{0,12}") {
        prop_assert_eq!(is_json(&text), serde_json::from_str::<Json>(&text).is_ok() || too_large(&text));
    }

    #[test]
    fn any_bytes_are_parsed_without_a_panic(bytes: Vec<u8>) {
        if let Ok(object) = Object::new(&bytes) {
            for (_, value) in object.iter() {
                let _ = (value.string(), value.integer(), value.boolean());
            }
        }
    }

    #[test]
    fn written_texts_parse(text: String, number: u64) {
        let mut writer = Writer::new();
        writer.begin_object().key(&text).begin_array().number(number).string(&text).boolean(true);
        writer.end_array().end_object();
        let read: Json = serde_json::from_str(&writer.text()).unwrap();
        prop_assert_eq!(read, json!({ text.clone(): [number, text, true] }));
    }
}

/// Whether the text contains a valid JSON number that the other implementation can't represent.
fn too_large(text: &str) -> bool {
    serde_json::from_str::<Json>(text).is_err_and(|error| error.to_string().contains("out of range"))
}

#[test]
fn non_object_is_refused() {
    for text in ["[]", "1", "{", "{\"a\":}", "{a:1}", "{\"a\":1,}", "\u{feff}{}"] {
        assert!(Object::new(text.as_bytes()).is_err(), "{text}");
    }
    assert!(Object::new(b" ").unwrap().iter().next().is_none());
}
