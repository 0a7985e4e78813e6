//! Declared cost of a plugin: cycles by kind of processor, memory, code, and use of switches
//! (VERA, section 4.3.1).

use std::collections::BTreeMap;

use millrace_plugin_abi::{DeclaredCycles, DeclaredNeeds};
use millrace_units::remedy;
use serde_json::{Map, Value};

use super::ManifestError;
use super::keys::shortened;

/// Kind of processor that stands for all kinds without an entry.
pub const ANY_KIND: &str = "any";
/// Maximum number of kinds of processors.
const MOST_KINDS: usize = 16;

/// Cost of a plugin as the plugin declares it.
#[derive(Clone, PartialEq, Debug)]
pub struct Cost {
    /// Cycles by kind of processor, such as `worker`, `offload`, `process` or `host`; [`ANY_KIND`] stands for all
    /// kinds without an entry.
    pub on: BTreeMap<String, KindCost>,
    /// Memory of an instance in bytes.
    pub memory: f64,
    /// Slots for code that an instance takes.
    pub code: f64,
    /// Whether packets have to cross switches as a whole; else their headers are enough.
    pub whole_packet: bool,
    /// Packets that leave the plugin for each packet that arrives.
    pub output: f64,
}

/// Declared cycles on a kind of processor.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct KindCost {
    /// Cycles per second, independent of packets.
    pub fixed: f64,
    /// Cycles per call, whatever its number of packets. A call has 1 to 256 packets.
    pub call: f64,
    /// Cycles per packet, on average.
    pub packet: f64,
    /// Cycles per packet at most, for processors that are scheduled statically; the average if absent.
    pub packet_maximum: Option<f64>,
    /// Cycles per byte.
    pub byte: f64,
}

impl Default for Cost {
    fn default() -> Self {
        Self { on: BTreeMap::new(), memory: 0.0, code: 0.0, whole_packet: false, output: 1.0 }
    }
}

impl Cost {
    /// Returns the cost on a kind of processor; `None` if the plugin declares none there.
    pub fn of_kind(&self, kind: &str) -> Option<&KindCost> {
        self.on.get(kind).or_else(|| self.on.get(ANY_KIND))
    }

    /// Returns the cycles of calls on a kind of processor; `None` if the plugin declares none there.
    pub fn declared_on(&self, kind: &str) -> Option<DeclaredCycles> {
        let KindCost { fixed, call, packet, byte, .. } = *self.of_kind(kind)?;
        Some(DeclaredCycles { fixed, call, packet, byte })
    }

    /// Returns the most cycles of calls on a kind of processor; `None` if the plugin declares no maximum per packet
    /// there.
    pub fn worst_case_on(&self, kind: &str) -> Option<DeclaredCycles> {
        let KindCost { call, packet_maximum, byte, .. } = *self.of_kind(kind)?;
        Some(DeclaredCycles { fixed: 0.0, call, packet: packet_maximum?, byte })
    }

    /// Returns the needs of an instance beside cycles.
    pub fn needs(&self) -> DeclaredNeeds {
        DeclaredNeeds { memory: self.memory, output: self.output }
    }

    /// Reads the value of the manifest's key `cost`.
    ///
    /// # Errors
    /// Unknown keys, and values that are no numbers of at least 0, with their place in the value.
    pub fn read(value: &Value) -> Result<Self, ManifestError> {
        let mut cost = Self::default();
        let mut short = None;
        for (key, value) in object(value, "")? {
            match key.as_str() {
                "packet" => short.get_or_insert(KindCost::default()).packet = number(value, key)?,
                "byte" => short.get_or_insert(KindCost::default()).byte = number(value, key)?,
                "on" => cost.on = kinds(value)?,
                "memory" => cost.memory = number(value, key)?,
                "code" => cost.code = number(value, key)?,
                "output" => cost.output = number(value, key)?,
                "whole-packet" => {
                    cost.whole_packet = value.as_bool().ok_or_else(|| wrong(key, value, "true or false"))?;
                }
                _ => return Err(unknown("", key, &KEYS)),
            }
        }
        if let Some(short) = short
            && cost.on.insert(ANY_KIND.to_owned(), short).is_some()
        {
            return Err(problem(format!("on.{ANY_KIND}: give it only once; packet and byte say the same")));
        }
        Ok(cost)
    }

    /// Returns the value of the manifest's key `cost` that [`read`](Self::read) reads as this cost.
    pub fn written(&self) -> Value {
        let mut keys = Map::new();
        let mut put = |key: &str, value: f64, usual: f64| {
            if value != usual {
                keys.insert(key.to_owned(), value.into());
            }
        };
        put("memory", self.memory, 0.0);
        put("code", self.code, 0.0);
        put("output", self.output, 1.0);
        if self.whole_packet {
            keys.insert("whole-packet".to_owned(), true.into());
        }
        let on = self.on.iter().map(|(kind, cost)| (kind.clone(), cost.written()));
        keys.insert("on".to_owned(), Value::Object(on.collect()));
        Value::Object(keys)
    }
}

impl KindCost {
    /// Returns the cost with hundredths of cycles, and ten-thousandths for bytes.
    #[must_use]
    pub fn rounded(self) -> Self {
        let to = |digits: f64, value: f64| (value * digits).round() / digits;
        Self {
            fixed: to(1e2, self.fixed),
            call: to(1e2, self.call),
            packet: to(1e2, self.packet),
            packet_maximum: self.packet_maximum.map(|most| to(1e2, most)),
            byte: to(1e4, self.byte),
        }
    }

    fn written(&self) -> Value {
        let given = [
            ("fixed", Some(self.fixed).filter(|fixed| *fixed != 0.0)),
            ("call", Some(self.call).filter(|call| *call != 0.0)),
            ("packet", Some(self.packet)),
            ("packet-maximum", self.packet_maximum),
            ("byte", Some(self.byte).filter(|byte| *byte != 0.0)),
        ];
        let given = given.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.into())));
        Value::Object(given.collect())
    }
}

const KEYS: [&str; 7] = ["packet", "byte", "on", "memory", "code", "whole-packet", "output"];
const KIND_KEYS: [&str; 5] = ["fixed", "call", "packet", "packet-maximum", "byte"];

fn kinds(value: &Value) -> Result<BTreeMap<String, KindCost>, ManifestError> {
    let written = object(value, "on")?;
    if written.len() > MOST_KINDS {
        return Err(problem(format!("on: {} kinds of processors exceed {MOST_KINDS}", written.len())));
    }
    let read = |(kind, value): (&String, &Value)| {
        let place = format!("on.{}", shortened(kind));
        Ok((kind.clone(), kind_cost(value, &place)?))
    };
    written.iter().map(read).collect()
}

fn kind_cost(value: &Value, place: &str) -> Result<KindCost, ManifestError> {
    let mut cost = KindCost::default();
    for (key, value) in object(value, place)? {
        let at = format!("{place}.{}", shortened(key));
        match key.as_str() {
            "fixed" => cost.fixed = number(value, &at)?,
            "call" => cost.call = number(value, &at)?,
            "packet" => cost.packet = number(value, &at)?,
            "packet-maximum" => cost.packet_maximum = Some(number(value, &at)?),
            "byte" => cost.byte = number(value, &at)?,
            _ => return Err(unknown(place, key, &KIND_KEYS)),
        }
    }
    match cost.packet_maximum {
        Some(most) if most < cost.packet => Err(problem(format!(
            "{place}.packet-maximum: {most} is below packet, the average of {}",
            cost.packet
        ))),
        _ => Ok(cost),
    }
}

fn object<'a>(value: &'a Value, place: &str) -> Result<&'a Map<String, Value>, ManifestError> {
    let place = if place.is_empty() { "cost" } else { place };
    value.as_object().ok_or_else(|| wrong(place, value, "an object"))
}

/// Returns a number of cycles, bytes or slots.
fn number(value: &Value, place: &str) -> Result<f64, ManifestError> {
    let number = value.as_f64().filter(|number| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| wrong(place, value, "a number of 0 or more"))
}

fn wrong(place: &str, value: &Value, need: &str) -> ManifestError {
    problem(format!("{place}: {} is not right; give {need}", shortened(&value.to_string())))
}

fn unknown(place: &str, key: &str, known: &[&str]) -> ManifestError {
    let (dot, key) = (if place.is_empty() { "" } else { "." }, shortened(key));
    problem(format!("{place}{dot}{key}: unknown key{}", remedy("key", &key, known.iter().copied())))
}

fn problem(problem: String) -> ManifestError {
    ManifestError::Value { key: "cost", problem }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refusal(value: &Value) -> String {
        let refused = Cost::read(value).unwrap_err().to_string();
        refused.strip_prefix("the manifest's \"cost\": ").expect(&refused).to_owned()
    }

    #[test]
    fn short_form_is_for_all_kinds() {
        let cost = Cost::read(&json!({"packet": 50, "byte": 0.5})).unwrap();
        let expected = KindCost { packet: 50.0, byte: 0.5, ..KindCost::default() };
        assert_eq!(cost.of_kind("worker"), Some(&expected));
        assert_eq!((cost.output, cost.memory), (1.0, 0.0));
    }

    #[test]
    fn each_kind_has_its_cost_and_kinds_without_entry_have_none() {
        let cost = Cost::read(&json!({
            "on": {"worker": {"fixed": 1000, "packet": 80, "byte": 1}, "offload": {"packet": 40, "packet-maximum": 60}},
            "memory": 65536, "code": 1, "whole-packet": true, "output": 2
        }))
        .unwrap();
        assert_eq!(cost.of_kind("worker").unwrap().fixed, 1000.0);
        assert_eq!(cost.of_kind("offload").unwrap().packet_maximum, Some(60.0));
        assert_eq!(cost.of_kind("process"), None);
        assert_eq!(cost.worst_case_on("worker"), None);
        assert_eq!(
            cost.worst_case_on("offload"),
            Some(DeclaredCycles { packet: 60.0, ..DeclaredCycles::default() })
        );
        let worker = DeclaredCycles { fixed: 1000.0, call: 0.0, packet: 80.0, byte: 1.0 };
        assert_eq!(cost.declared_on("worker"), Some(worker));
        assert_eq!(cost.needs(), DeclaredNeeds { memory: 65536.0, output: 2.0 });
        assert_eq!((cost.memory, cost.code, cost.whole_packet, cost.output), (65536.0, 1.0, true, 2.0));
    }

    #[test]
    fn written_cost_is_read_back() {
        let all = json!({"packet": 3, "on": {"worker": {"call": 300, "packet": 80.25, "fixed": 1, "byte": 2}, "offload": {"packet": 4, "packet-maximum": 9}},
            "memory": 7, "code": 2, "whole-packet": true, "output": 0.5});
        for value in [json!({}), json!({"packet": 50}), all] {
            let cost = Cost::read(&value).unwrap();
            assert_eq!(Cost::read(&cost.written()).unwrap(), cost, "{value}");
        }
    }

    #[test]
    fn errors_name_their_place() {
        assert_eq!(refusal(&json!(1)), "cost: 1 is not right; give an object");
        assert_eq!(refusal(&json!({"bite": 1})), "bite: unknown key: did you mean \"byte\"?");
        assert_eq!(refusal(&json!({"packet": -1})), "packet: -1 is not right; give a number of 0 or more");
        assert_eq!(
            refusal(&json!({"on": {"worker": {"packet": "x"}}})),
            "on.worker.packet: \"x\" is not right; give a number of 0 or more"
        );
        assert_eq!(
            refusal(&json!({"on": {"worker": {"pakcet": 1}}})),
            "on.worker.pakcet: unknown key: did you mean \"packet\"?"
        );
        assert_eq!(
            refusal(&json!({"on": {"offload": {"packet": 50, "packet-maximum": 40}}})),
            "on.offload.packet-maximum: 40 is below packet, the average of 50"
        );
        assert!(refusal(&json!({"packet": 1, "on": {"any": {}}})).starts_with("on.any: give it only once"));
        let many: Map<String, Value> = (0..17).map(|kind| (format!("k{kind}"), json!({}))).collect();
        assert_eq!(refusal(&json!({"on": many})), "on: 17 kinds of processors exceed 16");
        assert!(refusal(&json!({"whole-packet": 1})).starts_with("whole-packet: 1 is not right"));
    }
}
