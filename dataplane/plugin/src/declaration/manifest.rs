//! Manifest of a file plugin: parsing and checking.
//!
//! `docs/plugin-abi.md` lists the keys. WebAssembly modules and shared objects have the same manifest.

use std::collections::BTreeMap;
use std::time::Duration;

use millrace_plugin_abi::binary::{ABI_VERSION, DEFAULT_WINDOW, HOST_FUNCTIONS, MOST_COUNTERS, MOST_WINDOW};
use millrace_plugin_abi::{
    Features, MOST_MAP_ENTRIES, MOST_MAP_KEY, MOST_MAP_MEMORY, MOST_MAP_VALUE, MOST_MAPS, MapShape,
    NotOffered, Position, RequestKinds,
};
use millrace_units::remedy;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Maximum bytes of a manifest.
pub const MOST_MANIFEST: usize = 64 * 1024;
/// Maximum bytes of a flow's state.
pub const MOST_FLOW_STATE: u16 = 256;
/// Maximum bytes of the state that is common to all flows.
pub const MOST_SERVICE_STATE: u16 = 4096;
/// Maximum number of characters of a plugin's name.
pub const MOST_NAME: usize = 64;

/// Maximum number of missing features that an error lists.
const MOST_MISSING: usize = 8;

/// Every key that a manifest may have.
const KEYS: [&str; 18] = [
    "abi",
    "features",
    "name",
    "version",
    "summary",
    "positions",
    "capabilities",
    "messages",
    "settings",
    "window",
    "flow-state",
    "service-state",
    "maps",
    "counters",
    "host-companion",
    "state-version",
    "period",
    "cost",
];

/// Reason that a manifest was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// Manifest longer than [`MOST_MANIFEST`].
    #[error("the manifest has {0} bytes; the limit is {MOST_MANIFEST}")]
    TooLarge(usize),
    /// Text that is no JSON object.
    #[error("the manifest is not a JSON object: {0}")]
    NotAnObject(String),
    /// Unknown key.
    #[error("the manifest has the unknown key {key:?}{remedy}")]
    UnknownKey {
        /// The key as written.
        key: String,
        /// The nearest known key, or all keys.
        remedy: String,
    },
    /// Missing mandatory key.
    #[error("the manifest lacks the mandatory key {0:?}")]
    Missing(&'static str),
    /// Value of the wrong type or out of range.
    #[error("the manifest's {key:?}: {problem}")]
    Value {
        /// The key.
        key: &'static str,
        /// Description of the problem and of the expected value.
        problem: String,
    },
    /// Plugin built for another version of the interface.
    #[error("built for version {0} of the plugin interface, this router has {ABI_VERSION}: rebuild it")]
    WrongAbi(u32),
    /// Required features that this router doesn't offer.
    #[error(transparent)]
    Features(#[from] NotOffered),
}

/// Cost of a plugin's calls as the plugin declares it.
#[derive(Clone, Copy, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Cycles per packet.
    #[serde(default)]
    pub packet: f64,
    /// Cycles per byte.
    #[serde(default)]
    pub byte: f64,
}

/// Checked manifest.
#[derive(Clone, PartialEq, Debug)]
pub struct Manifest {
    /// Name of the plugin.
    pub name: String,
    /// Version of the plugin, `major.minor.patch`.
    pub version: String,
    /// One-line summary of the plugin.
    pub summary: String,
    /// Positions whose gates accept the plugin's instances; at least one.
    pub positions: Vec<Position>,
    /// Required interface features: the declared ones, and those that other keys imply.
    pub features: Features,
    /// Requested capabilities, by the names of [`HOST_FUNCTIONS`].
    pub capabilities: Vec<&'static str>,
    /// Control messages, each with a line of help.
    pub messages: BTreeMap<String, String>,
    /// JSON Schema of the settings; `None` if the plugin takes none.
    pub settings: Option<Map<String, Value>>,
    /// Bytes of each packet that the plugin sees, up to [`MOST_WINDOW`].
    pub window: u16,
    /// Bytes of state for each flow, up to [`MOST_FLOW_STATE`].
    pub flow_state: u16,
    /// Bytes of state common to all flows, up to [`MOST_SERVICE_STATE`].
    pub service_state: u16,
    /// Maps that the plugin's instances own and write, up to [`MOST_MAPS`].
    pub maps: Vec<MapShape>,
    /// Names of the counters, up to [`MOST_COUNTERS`].
    pub counters: Vec<String>,
    /// File name of the host companion's module, in the plugin's own folder.
    pub host_companion: Option<String>,
    /// Version of the saved state's format.
    pub state_version: u32,
    /// Interval between two calls of `millrace_periodic`; `None` without such calls.
    pub period: Option<Duration>,
    /// Declared cost of calls.
    pub cost: Option<Cost>,
}

impl Manifest {
    /// Parses and checks a manifest.
    ///
    /// # Errors
    /// [`ManifestError`] for the first problem. The interface version is checked first, then the features: a
    /// plugin for a later router may have keys that this router doesn't know.
    pub fn parse(json: &[u8]) -> Result<Self, ManifestError> {
        if json.len() > MOST_MANIFEST {
            return Err(ManifestError::TooLarge(json.len()));
        }
        let keys: Map<String, Value> =
            serde_json::from_slice(json).map_err(|error| ManifestError::NotAnObject(error.to_string()))?;
        let abi: u32 = needed(&keys, "abi")?;
        if abi != ABI_VERSION {
            return Err(ManifestError::WrongAbi(abi));
        }
        let declared = features(&optional::<Vec<String>>(&keys, "features")?.unwrap_or_default())?;
        unless_known(&keys)?;
        let mut manifest = Self {
            features: declared,
            name: needed(&keys, "name")?,
            version: needed(&keys, "version")?,
            summary: needed(&keys, "summary")?,
            positions: positions(&needed::<Vec<String>>(&keys, "positions")?)?,
            capabilities: capabilities(&optional::<Vec<String>>(&keys, "capabilities")?.unwrap_or_default())?,
            messages: optional(&keys, "messages")?.unwrap_or_default(),
            settings: optional(&keys, "settings")?,
            window: optional(&keys, "window")?.unwrap_or(DEFAULT_WINDOW),
            flow_state: optional(&keys, "flow-state")?.unwrap_or_default(),
            service_state: optional(&keys, "service-state")?.unwrap_or_default(),
            maps: optional::<Vec<WrittenMap>>(&keys, "maps")?
                .into_iter()
                .flatten()
                .map(MapShape::from)
                .collect(),
            counters: optional(&keys, "counters")?.unwrap_or_default(),
            host_companion: optional(&keys, "host-companion")?,
            state_version: optional(&keys, "state-version")?.unwrap_or_default(),
            period: optional::<u32>(&keys, "period")?.map(|millis| Duration::from_millis(millis.into())),
            cost: optional(&keys, "cost")?,
        };
        manifest.check()?;
        manifest.features = declared.and(manifest.implied());
        Ok(manifest)
    }

    /// Returns the features that the manifest's keys and capabilities imply.
    fn implied(&self) -> Features {
        let of_capabilities = self.capabilities.iter().map(|name| Features::of_capability(name));
        let of_keys = [
            Features::FLOW_STATE.when(self.flow_state > 0),
            Features::SERVICE_STATE.when(self.service_state > 0),
            Features::SAVED_STATE.when(self.state_version > 0),
            Features::COUNTERS.when(!self.counters.is_empty()),
            Features::MAPS.when(!self.maps.is_empty()),
            Features::TIMERS.when(self.period.is_some()),
            Features::HALVES.when(self.host_companion.is_some()),
        ];
        of_capabilities.chain(of_keys).fold(Features::NONE, Features::and)
    }

    /// Whether the plugin requests a capability. For the capability `request`, one kind of requests suffices.
    pub fn has_capability(&self, name: &str) -> bool {
        let asks_for = |name| self.capabilities.contains(&name);
        asks_for(name) || name == RequestKinds::ALL && self.requests() != RequestKinds::default()
    }

    /// Returns the kinds of requests to control that the plugin may make.
    pub fn requests(&self) -> RequestKinds {
        RequestKinds::of(&self.capabilities)
    }

    fn check(&self) -> Result<(), ManifestError> {
        check("name", is_name(&self.name), || {
            format!("{:?} must be 1 to {MOST_NAME} letters, digits, '-', '_' or '.'", self.name)
        })?;
        check("version", is_version(&self.version), || {
            format!("{:?} must be three numbers: major.minor.patch", self.version)
        })?;
        check("summary", is_line(&self.summary), || "give one line of text".to_owned())?;
        check("positions", !self.positions.is_empty(), || "give at least one position".to_owned())?;
        for (name, help) in &self.messages {
            check("messages", is_name(name), || {
                format!("{name:?} must be 1 to {MOST_NAME} letters, digits, '-', '_' or '.'")
            })?;
            check("messages", is_line(help), || format!("give {name:?} one line of help"))?;
        }
        check("window", self.window <= MOST_WINDOW, || format!("{} exceeds {MOST_WINDOW}", self.window))?;
        check("flow-state", self.flow_state <= MOST_FLOW_STATE, || {
            format!("{} exceeds the limit of {MOST_FLOW_STATE} bytes", self.flow_state)
        })?;
        check("service-state", self.service_state <= MOST_SERVICE_STATE, || {
            format!("{} exceeds the limit of {MOST_SERVICE_STATE} bytes", self.service_state)
        })?;
        check("host-companion", self.host_companion.as_deref().is_none_or(is_name), || {
            "give a file name in the plugin's own folder: letters, digits, '-', '_' and '.'".to_owned()
        })?;
        check("maps", self.maps.len() <= MOST_MAPS, || format!("{} exceed {MOST_MAPS}", self.maps.len()))?;
        let writes = self.maps.is_empty() || self.has_capability("map-write");
        check("maps", writes, || "a plugin with maps needs the capability \"map-write\"".to_owned())?;
        for (place, map) in self.maps.iter().enumerate() {
            let is_new = self.maps.iter().take(place).all(|other| other.name != map.name);
            check("maps", is_new, || format!("{:?} is listed twice", shortened(&map.name)))?;
            if let Some(problem) = map_problem(map) {
                return Err(ManifestError::Value { key: "maps", problem });
            }
        }
        let counters = &self.counters;
        check("counters", counters.len() <= MOST_COUNTERS, || {
            format!("{} counters exceed the limit of {MOST_COUNTERS}", counters.len())
        })?;
        for (place, name) in counters.iter().enumerate() {
            check("counters", is_name(name), || {
                format!("{:?} must be 1 to {MOST_NAME} letters, digits, '-', '_' or '.'", shortened(name))
            })?;
            check("counters", !counters.iter().take(place).any(|other| other == name), || {
                format!("{name:?} is listed twice")
            })?;
        }
        let period = self.period.is_none_or(|period| !period.is_zero());
        check("period", period, || "give 1 millisecond or more".to_owned())?;
        let sane = |cycles: f64| cycles.is_finite() && cycles >= 0.0;
        let cost = self.cost.is_none_or(|cost| sane(cost.packet) && sane(cost.byte));
        check("cost", cost, || "cycles must be 0 or more".to_owned())
    }
}

/// Map as written in a manifest.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenMap {
    name: String,
    key: u16,
    value: u16,
    entries: u32,
}

impl From<WrittenMap> for MapShape {
    fn from(WrittenMap { name, key, value, entries }: WrittenMap) -> Self {
        Self { name, key, value, entries }
    }
}

/// Describes the problem of a map; returns `None` for a valid map.
fn map_problem(map: &MapShape) -> Option<String> {
    let name = shortened(&map.name);
    if !is_name(&map.name) {
        return Some(format!("{name:?} must be 1 to {MOST_NAME} letters, digits, '-', '_' or '.'"));
    }
    for (what, number, most) in [
        ("key", map.key.into(), MOST_MAP_KEY.into()),
        ("value", map.value.into(), MOST_MAP_VALUE.into()),
        ("entries", map.entries, MOST_MAP_ENTRIES),
    ] {
        if !(1..=most).contains(&number) {
            return Some(format!("{name:?} has {what} {number}; the range is 1 to {most}"));
        }
    }
    let memory = map.memory();
    (memory > MOST_MAP_MEMORY)
        .then(|| format!("{name:?} would take {memory} bytes at each worker; the limit is {MOST_MAP_MEMORY}"))
}

fn check(key: &'static str, holds: bool, problem: impl FnOnce() -> String) -> Result<(), ManifestError> {
    if holds { Ok(()) } else { Err(ManifestError::Value { key, problem: problem() }) }
}

fn optional<T: DeserializeOwned>(
    keys: &Map<String, Value>,
    key: &'static str,
) -> Result<Option<T>, ManifestError> {
    let Some(value) = keys.get(key) else { return Ok(None) };
    let wrong = |_: serde_json::Error| {
        let given = shortened(&value.to_string());
        ManifestError::Value { key, problem: format!("{given} is not right; give {}", wanted(key)) }
    };
    T::deserialize(value).map(Some).map_err(wrong)
}

/// Describes the value that a key expects.
fn wanted(key: &str) -> &'static str {
    match key {
        "name" | "version" | "summary" | "host-companion" => "a text",
        "features" | "positions" | "capabilities" | "counters" => "a list of names",
        "messages" => "an object of names, each with one line of help",
        "settings" => "a JSON Schema, which is an object",
        "maps" => "a list of {name, key, value, entries}",
        "cost" => "{packet, byte}, each in cycles",
        _ => "a whole number",
    }
}

fn needed<T: DeserializeOwned>(keys: &Map<String, Value>, key: &'static str) -> Result<T, ManifestError> {
    optional(keys, key)?.ok_or(ManifestError::Missing(key))
}

fn unless_known(keys: &Map<String, Value>) -> Result<(), ManifestError> {
    let Some(key) = keys.keys().find(|key| !KEYS.contains(&key.as_str())) else { return Ok(()) };
    Err(ManifestError::UnknownKey { key: shortened(key), remedy: remedy("key", key, KEYS) })
}

/// Returns the first [`MOST_NAME`] characters of a foreign name, for display.
fn shortened(name: &str) -> String {
    name.chars().take(MOST_NAME).collect()
}

/// Returns the set of the named features.
///
/// # Errors
/// All features that this router lacks, whether their names are known or not.
fn features(names: &[String]) -> Result<Features, ManifestError> {
    let mut missing = Vec::new();
    let mut found = Features::NONE;
    for name in names {
        match Features::of_name(name) {
            Features::NONE => missing.push(format!("{:?}", shortened(name))),
            feature if found.and(feature) == found => {
                let problem = format!("{name} is listed twice");
                return Err(ManifestError::Value { key: "features", problem });
            }
            feature => found = found.and(feature),
        }
    }
    if missing.is_empty() {
        return Ok(found);
    }
    missing.truncate(MOST_MISSING);
    Err(NotOffered { missing, place: "at its workers", offered: Features::AT_WORKERS }.into())
}

fn positions(names: &[String]) -> Result<Vec<Position>, ManifestError> {
    let mut positions = Vec::new();
    for name in names {
        let wrong = |problem| ManifestError::Value { key: "positions", problem };
        let position = shortened(name).parse().map_err(wrong)?;
        if positions.contains(&position) {
            return Err(wrong(format!("{position} is listed twice")));
        }
        positions.push(position);
    }
    Ok(positions)
}

fn capabilities(names: &[String]) -> Result<Vec<&'static str>, ManifestError> {
    let of_kinds = RequestKinds::CAPABILITIES.iter().map(|(name, _)| *name);
    let known = || HOST_FUNCTIONS.iter().filter_map(|(_, capability)| *capability).chain(of_kinds.clone());
    let mut found = Vec::new();
    for name in names {
        let problem = match known().find(|known| known == name) {
            Some(capability) if !found.contains(&capability) => {
                found.push(capability);
                continue;
            }
            Some(capability) => format!("{capability} is listed twice"),
            None => {
                let remedy = remedy("capability", name, known());
                format!("there is no capability {:?}{remedy}", shortened(name))
            }
        };
        return Err(ManifestError::Value { key: "capabilities", problem });
    }
    Ok(found)
}

fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=MOST_NAME).contains(&name.len()) && name.bytes().all(allowed)
}

fn is_version(version: &str) -> bool {
    let is_number =
        |part: &str| part.bytes().all(|byte| byte.is_ascii_digit()) && part.parse::<u32>().is_ok();
    version.split('.').count() == 3 && version.split('.').all(is_number)
}

fn is_line(text: &str) -> bool {
    !text.trim().is_empty() && !text.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

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
    fn features_are_what_it_says_and_what_its_keys_come_to() {
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
    fn features_that_the_router_lacks_are_told_before_keys_that_it_does_not_know() {
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
    fn values_of_another_type_are_told_with_the_right_one() {
        let whole = "the manifest's \"window\": \"x\" is not right; give a whole number";
        assert_eq!(refusal("window", json!("x")), whole);
        let names = "the manifest's \"counters\": [1] is not right; give a list of names";
        assert_eq!(refusal("counters", json!([1])), names);
        let cost = "the manifest's \"cost\": {\"bite\":1} is not right; give {packet, byte}, each in cycles";
        assert_eq!(refusal("cost", json!({"bite": 1})), cost);
        assert!(refusal("abi", json!(-1)).ends_with("give a whole number"));
    }

    #[test]
    fn what_is_left_out_has_its_default() {
        let manifest = Manifest::parse(smallest().to_string().as_bytes()).unwrap();
        assert_eq!((manifest.window, manifest.flow_state, manifest.state_version), (128, 0, 0));
        assert_eq!((manifest.period, manifest.cost), (None, None));
        assert_eq!(manifest.positions, [Position::Late]);
    }

    #[test]
    fn everything_that_is_given_is_read() {
        let text = json!({ "abi": 1, "name": "a", "version": "0.0.1", "summary": "x", "positions": ["early", "copy"],
            "capabilities": ["packet-read", "log"], "messages": { "read": "counts" }, "settings": { "type": "object" },
            "window": 1536, "flow-state": 256, "service-state": 4096, "state-version": 3, "period": 20,
            "cost": { "packet": 50, "byte": 0.5 } });
        let manifest = Manifest::parse(text.to_string().as_bytes()).unwrap();
        assert_eq!(manifest.positions, [Position::Early, Position::Copy]);
        assert!(manifest.has_capability("log") && !manifest.has_capability("timer"));
        assert_eq!((manifest.window, manifest.flow_state, manifest.state_version), (1536, 256, 3));
        assert_eq!(manifest.period, Some(Duration::from_millis(20)));
        assert_eq!(manifest.cost, Some(Cost { packet: 50.0, byte: 0.5 }));
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
    fn another_version_is_told_before_anything_else() {
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
            ("flow-state", json!(257)),
            ("state-version", json!(1.5)),
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
    fn what_must_be_there_is_asked_for() {
        for key in ["abi", "name", "version", "summary", "positions"] {
            let mut manifest = smallest();
            manifest.as_object_mut().unwrap().remove(key);
            let error = Manifest::parse(manifest.to_string().as_bytes()).unwrap_err();
            assert_eq!(error, ManifestError::Missing(key));
        }
    }

    #[test]
    fn what_is_no_object_or_too_long_is_refused() {
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
}
