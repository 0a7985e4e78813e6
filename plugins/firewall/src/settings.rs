//! Settings of plugin `firewall`.

use millrace_plugin_abi::{PluginError, settings_of};
use millrace_units::PortId;
use serde_json::{Map, Value, json};

use crate::NAME;
use crate::policy::Policy;

const MOST_ZONES: usize = 32;
pub(crate) const MOST_POLICIES: usize = 256;

/// Mark of a zone in the states of connections. It follows from the name, so it lasts when other zones come and go.
pub(crate) type Mark = [u8; 3];

/// Zones and policies.
pub(crate) struct Settings {
    /// Names of the zones, by number.
    zones: Vec<String>,
    /// Marks of the zones, by number.
    marks: Vec<Mark>,
    /// Zone of each port, by the port's number.
    of_ports: Vec<Option<u8>>,
    pub policies: Vec<Policy>,
}

/// Returns the JSON Schema of the settings.
pub(crate) fn schema() -> Map<String, Value> {
    let ports = json!({ "type": "array", "items": { "type": "string", "format": "port" } });
    settings_of(
        json!({
            "zones": {
                "description": "zones by name, each with the list of its ports",
                "type": "object",
                "maxProperties": MOST_ZONES,
                "additionalProperties": ports,
                "default": {},
            },
            "policies": {
                "description": "policies in order: ACTION ZONE to ZONE [PROTOCOL [PORTS]]",
                "type": "array",
                "maxItems": MOST_POLICIES,
                "items": { "type": "string" },
                "default": [],
            },
        }),
        &[],
    )
}

/// Returns the mark of a zone: the FNV-1a hash of its name, folded to 24 bits.
fn mark_of(name: &str) -> Mark {
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let [high, low @ ..] = hash.to_be_bytes();
    low.map(|byte| byte ^ high)
}

impl Settings {
    /// Reads the settings.
    ///
    /// # Errors
    /// [`PluginError::Setting`] names the first zone or policy that is wrong.
    pub fn new(given: &Map<String, Value>) -> Result<Self, PluginError> {
        let (mut zones, mut of_ports) = (Vec::new(), Vec::new());
        for (name, ports) in given.get("zones").and_then(Value::as_object).into_iter().flatten() {
            let refused = |problem: String| PluginError::setting(NAME, &format!("zones.{name}"), problem);
            if name == "any" || name == "to" || name.is_empty() || name.contains(char::is_whitespace) {
                let problem = "give another name: one word, neither \"any\" nor \"to\"";
                return Err(refused(problem.to_owned()));
            }
            for port in ports.as_array().into_iter().flatten() {
                let number = port.as_u64().and_then(|number| u16::try_from(number).ok());
                let number =
                    number.ok_or_else(|| refused(format!("{port} is not a port; give names of ports")))?;
                let index = usize::from(number);
                if index >= of_ports.len() {
                    of_ports.resize(index + 1, None);
                }
                let before = of_ports.get_mut(index).and_then(|zone| zone.replace(zones.len() as u8));
                if let Some(other) = before.and_then(|zone| zones.get(usize::from(zone))) {
                    let problem =
                        format!("a port of this zone is in zone {other:?}, too; give each port one zone");
                    return Err(refused(problem));
                }
            }
            zones.push(name.clone());
        }
        let names: Vec<&str> = zones.iter().map(String::as_str).collect();
        let given = given.get("policies").and_then(Value::as_array).into_iter().flatten();
        let policies = given.enumerate().map(|(at, text)| {
            let parsed = Policy::parse(text.as_str().unwrap_or_default(), &names);
            parsed.map_err(|problem| PluginError::setting(NAME, &format!("policies.{at}"), problem))
        });
        let policies = policies.collect::<Result<_, _>>()?;
        let marks = zones.iter().map(|name| mark_of(name)).collect();
        Ok(Self { zones, marks, of_ports, policies })
    }

    /// Returns the mark of a port's zone, or that of ports without a zone.
    #[inline]
    pub fn mark(&self, port: PortId) -> Mark {
        let zone = self.zone_of(port).and_then(|zone| self.marks.get(usize::from(zone)));
        zone.copied().unwrap_or_default()
    }

    /// Returns the zone of a port; `None` without one.
    #[inline]
    pub fn zone_of(&self, port: PortId) -> Option<u8> {
        self.of_ports.get(usize::from(port.0)).copied().flatten()
    }

    /// Returns the settings, with the numbers of ports.
    pub fn read(&self) -> Value {
        let ports = |number: usize| -> Vec<usize> {
            let all = self.of_ports.iter().enumerate();
            all.filter(|(_, zone)| **zone == Some(number as u8)).map(|(port, _)| port).collect()
        };
        let zones = self.zones.iter().enumerate().map(|(number, name)| (name.clone(), json!(ports(number))));
        let zones: Map<String, Value> = zones.collect();
        let policies: Vec<_> = self.policies.iter().map(|policy| &policy.text).collect();
        json!({ "zones": zones, "policies": policies })
    }
}
