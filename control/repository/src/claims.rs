//! Claims: the properties of a plugin that its signature covers in addition to its bytes.

use std::fmt;
use std::str::FromStr;

use millrace_plugin::Manifest;

/// Plugin version `major.minor.patch`, compared number by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Version([u32; 3]);

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not three whole numbers: write major.minor.patch, such as 1.2.0");
        let number = |part: &str| part.parse().map_err(|_| wrong());
        let parts = text.split('.').map(number).collect::<Result<Vec<u32>, _>>()?;
        parts.try_into().map(Self).map_err(|_| wrong())
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.to_string()
    }
}

impl TryFrom<String> for Version {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

/// Name, version and capabilities that a signature covers. The trusted comment of the signature must be
/// exactly their text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claims {
    /// Name of the plugin.
    pub name: String,
    /// Version of the plugin, as the manifest writes it.
    pub version: String,
    /// Capabilities of the plugin, in alphabetical order.
    pub capabilities: Vec<&'static str>,
}

impl Claims {
    /// Returns the claims for a plugin with this manifest.
    pub fn of(manifest: &Manifest) -> Self {
        let mut capabilities = manifest.capabilities.clone();
        capabilities.sort_unstable();
        Self { name: manifest.name.clone(), version: manifest.version.clone(), capabilities }
    }
}

impl fmt::Display for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let capabilities = self.capabilities.join(",");
        let capabilities = if capabilities.is_empty() { "none" } else { &capabilities };
        write!(f, "millrace name={} version={} capabilities={capabilities}", self.name, self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_numbers() {
        let version = |text: &str| text.parse::<Version>().unwrap();
        assert!(version("1.10.0") > version("1.9.9") && version("2.0.0") > version("1.10.0"));
        assert_eq!(version("01.2.3").to_string(), "1.2.3");
        for wrong in ["", "1", "1.2", "1.2.3.4", "1.2.x", "1.2.-3", "1.2.4294967296"] {
            assert!(wrong.parse::<Version>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn claims_are_one_line() {
        let claims = |capabilities| Claims { name: "a".into(), version: "1.0.0".into(), capabilities };
        assert_eq!(claims(vec![]).to_string(), "millrace name=a version=1.0.0 capabilities=none");
        assert_eq!(
            claims(vec!["log", "timer"]).to_string(),
            "millrace name=a version=1.0.0 capabilities=log,timer"
        );
    }
}
