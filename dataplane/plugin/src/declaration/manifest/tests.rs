//! Tests of manifests: defaults, limits, and refusals with their remedies.

use proptest::prelude::*;
use serde_json::json;

use super::keys::KEYS;
use super::*;

fn smallest() -> Value {
    json!({ "abi": 1, "name": "count", "version": "1.0.2", "summary": "Counts.", "positions": ["late"] })
}

fn with(key: &str, value: Value) -> Result<Manifest, ManifestError> {
    let mut manifest = smallest();
    manifest[key] = value;
    Manifest::parse(manifest.to_string().as_bytes())
}

fn refusal(key: &str, value: Value) -> String {
    with(key, value).unwrap_err().to_string()
}

#[test]
fn features_are_the_declared_and_the_implied_ones() {
    assert_eq!(with("window", json!(64)).unwrap().features, Features::NONE);
    assert_eq!(with("features", json!(["hold"])).unwrap().features, Features::HOLD);
    assert_eq!(with("capabilities", json!(["timer"])).unwrap().features, Features::TIMERS);
    assert_eq!(with("counters", json!(["late"])).unwrap().features, Features::COUNTERS);
    let mut both = smallest();
    both["features"] = json!(["classify", "flow-state"]);
    both["flow-state"] = json!(8);
    let features = Manifest::parse(both.to_string().as_bytes()).unwrap().features;
    assert_eq!(features, Features::FLOW_STATE.and(Features::CLASSIFY));
}

#[test]
fn missing_features_are_reported_before_unknown_keys() {
    let mut later = smallest();
    later["features"] = json!(["hold", "teleport", "clone"]);
    later["clones"] = json!(3);
    let refused = Manifest::parse(later.to_string().as_bytes()).unwrap_err().to_string();
    let begin = "the plugin needs the features \"teleport\", \"clone\" of the plugin interface, which \
                 this router does not offer at its workers; offered there: flow-state, ";
    assert!(refused.starts_with(begin), "{refused}");
    assert_eq!(
        refusal("features", json!(["hold", "hold"])),
        "the manifest's \"features\": hold is listed twice"
    );
    let wrong = refusal("features", json!("hold"));
    assert!(wrong.starts_with("the manifest's \"features\": "), "{wrong}");
}

#[test]
fn values_of_a_wrong_type_are_refused_with_the_right_type() {
    let whole = "the manifest's \"window\": \"x\" is not right; give a whole number";
    assert_eq!(refusal("window", json!("x")), whole);
    let names = "the manifest's \"counters\": [1] is not right; give a list of names";
    assert_eq!(refusal("counters", json!([1])), names);
    let cost = "the manifest's \"cost\": bite: unknown key: did you mean \"byte\"?";
    assert_eq!(refusal("cost", json!({"bite": 1})), cost);
    assert!(refusal("abi", json!(-1)).ends_with("give a whole number"));
}

#[test]
fn absent_keys_have_defaults() {
    let manifest = Manifest::parse(smallest().to_string().as_bytes()).unwrap();
    assert_eq!((manifest.window, manifest.state.flow, manifest.state.version), (128, 0, 0));
    assert_eq!((manifest.calls.contexts, manifest.calls.period, manifest.calls.cost), (1, None, None));
    assert_eq!(manifest.positions, [Position::Late]);
}

#[test]
fn everything_that_is_given_is_read() {
    let text = json!({ "abi": 1, "name": "a", "version": "0.0.1", "summary": "x", "positions": ["early", "copy"],
        "capabilities": ["packet-read", "log"], "messages": { "read": "counts" }, "settings": { "type": "object" },
        "window": 1536, "flow-state": 256, "service-state": 4096, "state-version": 3, "contexts": 8, "period": 20,
        "cost": { "packet": 50, "byte": 0.5 } });
    let manifest = Manifest::parse(text.to_string().as_bytes()).unwrap();
    assert_eq!(manifest.positions, [Position::Early, Position::Copy]);
    assert!(manifest.has_capability("log") && !manifest.has_capability("timer"));
    assert_eq!((manifest.window, manifest.state.flow, manifest.state.version), (1536, 256, 3));
    assert_eq!(manifest.calls.contexts, 8);
    assert_eq!(manifest.calls.period, Some(Duration::from_millis(20)));
    let expected = KindCost { packet: 50.0, byte: 0.5, ..KindCost::default() };
    assert_eq!(manifest.calls.cost.unwrap().of_kind("worker"), Some(&expected));
}

#[test]
fn state_belongs_to_flows_or_connections() {
    let parsed = |value| with("state", json!(value)).unwrap();
    assert_eq!((parsed("flow").state.scope, parsed("flow").features), (StateScope::Flow, Features::NONE));
    let connection = parsed("connection");
    assert_eq!(
        (connection.state.scope, connection.features),
        (StateScope::Connection, Features::CONNECTIONS)
    );
    assert!(
        refusal("state", json!("both")).ends_with("\"both\" is not right; give \"flow\" or \"connection\"")
    );
}

#[test]
fn unknown_names_are_refused_with_the_nearest() {
    assert_eq!(
        refusal("widnow", json!(1)),
        "the manifest has the unknown key \"widnow\": did you mean \"window\"?"
    );
    let capability = refusal("capabilities", json!(["packet-raed"]));
    assert!(
        capability.ends_with("no capability \"packet-raed\": did you mean \"packet-read\"?"),
        "{capability}"
    );
}

#[test]
fn another_version_is_reported_first() {
    let newer = json!({ "abi": 2, "novelty": true });
    assert_eq!(Manifest::parse(newer.to_string().as_bytes()), Err(ManifestError::WrongAbi(2)));
}

#[test]
fn each_limit_is_kept() {
    for (key, value) in [
        ("name", json!("")),
        ("name", json!("x".repeat(65))),
        ("name", json!("a b")),
        ("version", json!("1.2")),
        ("version", json!("1.2.x")),
        ("version", json!("1.2.+3")),
        ("summary", json!("two\nlines")),
        ("summary", json!("")),
        ("positions", json!([])),
        ("positions", json!(["late", "late"])),
        ("positions", json!(["middle"])),
        ("capabilities", json!(["log", "log"])),
        ("counters", json!(["late", "late"])),
        ("counters", json!(["two words"])),
        ("counters", json!(vec!["late"; 33])),
        ("messages", json!({ "read it": "x" })),
        ("messages", json!({ "read": "x\ny" })),
        ("settings", json!([])),
        ("window", json!(1537)),
        ("window", json!(-1)),
        ("state", json!("conection")),
        ("state", json!(1)),
        ("flow-state", json!(257)),
        ("state-version", json!(1.5)),
        ("contexts", json!(0)),
        ("contexts", json!(17)),
        ("contexts", json!(256)),
        ("contexts", json!("4")),
        ("period", json!(0)),
        ("cost", json!({ "packet": -1 })),
        ("cost", json!({ "packets": 1 })),
        ("abi", json!("1")),
    ] {
        let error = with(key, value.clone()).unwrap_err();
        assert!(
            matches!(&error, ManifestError::Value { key: named, .. } if *named == key),
            "{value}: {error}"
        );
    }
}

#[test]
fn refused_contexts_state_the_range() {
    for (given, text) in
        [(json!(0), "0"), (json!(17), "17"), (json!(300), "300"), (json!(-1), "-1"), (json!(1.5), "1.5")]
    {
        let expected =
            format!("the manifest's \"contexts\": {text} is not right; give a whole number from 1 to 16");
        assert_eq!(refusal("contexts", given), expected);
    }
}

#[test]
fn maps_have_names_of_their_own_and_bounds() {
    let maps = |maps: Value| {
        let mut manifest = smallest();
        manifest["capabilities"] = json!(["map-write"]);
        manifest["maps"] = maps;
        Manifest::parse(manifest.to_string().as_bytes()).map_err(|error| error.to_string())
    };
    let map = |key: u32, value: u32, entries: u32| json!({ "name": "m", "key": key, "value": value, "entries": entries });
    assert_eq!(maps(json!([map(4, 8, 100)])).unwrap().maps[0].entries, 100);
    for (wrong, words) in [
        (json!([map(0, 8, 1)]), "key 0; the range is 1 to 64"),
        (json!([map(4, 257, 1)]), "value 257"),
        (json!([map(4, 8, 0)]), "entries 0"),
        (json!([map(64, 256, 65_536)]), "bytes at each worker"),
        (json!([map(4, 8, 1), map(4, 8, 1)]), "twice"),
        (json!([{ "name": "a/b", "key": 1, "value": 1, "entries": 1 }]), "letters, digits"),
        (json!([{ "name": "a", "key": 1, "value": 1, "entries": 1, "size": 1 }]), "size"),
        (Value::from(vec![map(4, 8, 1); 9]), "9 exceed 8"),
    ] {
        let error = maps(wrong.clone()).unwrap_err();
        assert!(error.contains(words), "{wrong}: {error}");
    }
    assert!(refusal("maps", json!([map(4, 8, 1)])).contains("map-write"));
}

#[test]
fn missing_mandatory_keys_are_reported() {
    for key in ["abi", "name", "version", "summary", "positions"] {
        let mut manifest = smallest();
        manifest.as_object_mut().unwrap().remove(key);
        let error = Manifest::parse(manifest.to_string().as_bytes()).unwrap_err();
        assert_eq!(error, ManifestError::Missing(key));
    }
}

#[test]
fn non_object_or_overlong_manifest_is_refused() {
    assert!(matches!(Manifest::parse(b"[1]"), Err(ManifestError::NotAnObject(_))));
    assert!(matches!(Manifest::parse(b"{"), Err(ManifestError::NotAnObject(_))));
    assert_eq!(Manifest::parse(&vec![b' '; 65_537]), Err(ManifestError::TooLarge(65_537)));
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Manifest::parse(&bytes);
    }

    #[test]
    fn no_values_panic(key in prop::sample::select(&KEYS[..]), text in "\\PC{0,80}", number in any::<f64>()) {
        for value in [json!(text), json!(number), json!([text]), json!({ text.clone(): text })] {
            let _ = with(key, value);
        }
    }
}
