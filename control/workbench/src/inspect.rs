//! Inspection of a plugin's file: the declarations in its manifest, and the properties of its module.

use std::collections::BTreeMap;

use millrace_plugin::native::{check_object, is_object};
use millrace_plugin::{Cost, DeclaredCalls, Manifest, wasm};
use millrace_plugin_abi::MapShape;
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use wasmparser::{Parser, Payload};

use crate::{Module, WorkbenchError};

/// Manifest of a plugin, with properties of its file.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Inspection {
    /// Runtime of the plugin, with an explanation.
    pub runtime: &'static str,
    /// Name of the plugin.
    pub name: String,
    /// Version of the plugin.
    pub version: String,
    /// Summary of the plugin in one line.
    pub summary: String,
    /// Gate positions at which the plugin may be bound.
    pub positions: Vec<&'static str>,
    /// Capabilities that the plugin requests.
    pub capabilities: Vec<&'static str>,
    /// Features of the plugin interface that the plugin needs.
    pub features: Vec<String>,
    /// Counters of the plugin.
    pub counters: Vec<String>,
    /// Control messages of the plugin, by name, each with a line of help.
    pub messages: BTreeMap<String, String>,
    /// JSON Schema of the settings; `None` for a plugin without settings.
    pub settings: Option<Map<String, Value>>,
    /// Maximum number of bytes of each packet that the plugin sees.
    pub window: u16,
    /// Bytes of state per flow.
    pub flow_state: u16,
    /// Bytes of state shared by all flows.
    pub service_state: u16,
    /// Shared maps that the plugin's instances write.
    pub maps: Vec<MapStatement>,
    /// File of the host companion; `None` for a plugin without a host companion.
    pub host_companion: Option<String>,
    /// Version of the format of saved state, for upgrades.
    pub state_version: u32,
    /// Calls of the plugin's instances.
    #[serde(flatten)]
    pub calls: CallsStatement,
    /// Size of the file in bytes.
    pub bytes: usize,
    /// SHA-256 of the file.
    pub sha256: String,
    /// Initial memory of an instance in bytes.
    pub memory: u64,
    /// Imports of the module: `MODULE.NAME`.
    pub imports: Vec<String>,
    /// Exports of the module.
    pub exports: Vec<String>,
    /// Reason why the router would refuse the plugin although its file is valid; `None` for a plugin that the
    /// router accepts.
    pub refused: Option<String>,
}

/// Calls that a plugin declares.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CallsStatement {
    /// Number of contexts of an instance at each worker: copies with a call each.
    pub contexts: u8,
    /// Requested interval of periodic calls, which have no packets, in milliseconds; `None` for no periodic
    /// calls.
    pub period: Option<u64>,
    /// Cost that the plugin declares, as in its manifest; `None` if it declares none.
    pub cost: Option<Value>,
}

impl CallsStatement {
    fn of(DeclaredCalls { contexts, period, cost }: &DeclaredCalls) -> Self {
        Self {
            contexts: *contexts,
            period: period.map(|period| period.as_millis() as u64),
            cost: cost.as_ref().map(Cost::written),
        }
    }
}

/// Map that a plugin declares.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct MapStatement {
    /// Name of the map.
    pub name: String,
    /// Size of a key in bytes.
    pub key: u16,
    /// Size of a value in bytes.
    pub value: u16,
    /// Maximum number of entries in the copy of each worker.
    pub entries: u32,
    /// Memory of each worker's copy, in bytes.
    pub memory: usize,
}

impl MapStatement {
    fn of(shape: &MapShape) -> Self {
        let (key, value, entries) = (shape.key, shape.value, shape.entries);
        Self { name: shape.name.clone(), key, value, entries, memory: shape.memory() }
    }
}

/// Reads and compiles a plugin, to find errors in its code. Runs no code of a shared object.
///
/// # Errors
/// The module is not a plugin; the text is the same as when the router loads it.
pub fn inspect(module: &Module) -> Result<Inspection, WorkbenchError> {
    let compiled = module.examine()?;
    let refused = if is_object(module.bytes()) { None } else { module.load(&compiled).err() };
    let refused = refused.map(|error| match error {
        WorkbenchError::Refused { problem, .. } => problem,
        other => other.to_string(),
    });
    let outline = Outline::read(module.bytes());
    let manifest: &Manifest = compiled.manifest();
    Ok(Inspection {
        runtime: compiled.runtime().text(),
        name: manifest.name.clone(),
        version: manifest.version.clone(),
        summary: manifest.summary.clone(),
        positions: manifest.positions.iter().map(|position| position.name()).collect(),
        capabilities: manifest.capabilities.clone(),
        features: manifest.features.names(),
        counters: manifest.counters.clone(),
        messages: manifest.messages.clone(),
        settings: manifest.settings.clone(),
        window: manifest.window,
        flow_state: manifest.state.flow,
        service_state: manifest.state.service,
        maps: manifest.maps.iter().map(MapStatement::of).collect(),
        host_companion: manifest.host_companion.clone(),
        state_version: manifest.state.version,
        calls: CallsStatement::of(&manifest.calls),
        bytes: module.bytes().len(),
        sha256: hex(&Sha256::digest(module.bytes())),
        memory: outline.memory,
        imports: outline.imports,
        exports: outline.exports,
        refused,
    })
}

/// Checks whether the module is a plugin, as far as possible without compiling or loading it.
pub fn check(module: &Module) -> Result<(), WorkbenchError> {
    let checked = match is_object(module.bytes()) {
        true => check_object(module.bytes()).map(drop).map_err(|error| error.to_string()),
        false => wasm::inspect(module.bytes()).map(drop).map_err(|error| error.to_string()),
    };
    checked.map_err(|problem| module.refused(problem))
}

/// Formats bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Properties of a module, read from its sections.
#[derive(Default)]
pub(crate) struct Outline {
    /// Initial size of the first memory in bytes.
    pub memory: u64,
    imports: Vec<String>,
    exports: Vec<String>,
}

/// Size of a memory page in bytes.
const PAGE: u64 = 64 << 10;

impl Outline {
    /// Reads a compiled module; unreadable parts are omitted.
    pub fn read(module: &[u8]) -> Self {
        let mut outline = Self::default();
        for payload in Parser::new(0).parse_all(module).map_while(Result::ok) {
            match payload {
                Payload::ImportSection(section) => {
                    let imports = section.into_imports().flatten();
                    outline.imports.extend(imports.map(|one| format!("{}.{}", one.module, one.name)));
                }
                Payload::ExportSection(section) => {
                    outline.exports.extend(section.into_iter().flatten().map(|one| one.name.to_owned()));
                }
                Payload::MemorySection(section) => {
                    let first = section.into_iter().flatten().next();
                    outline.memory = first.map_or(0, |memory| memory.initial.saturating_mul(PAGE));
                }
                _ => {}
            }
        }
        outline
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ready::test_modules::{Written, module};

    #[test]
    fn plugin_is_described_by_its_manifest() {
        let written = Written::new(&module(r#", "capabilities": ["packet-read"], "window": 64"#, ""));
        let inspection = inspect(&Module::read(written.path()).unwrap()).unwrap();
        assert_eq!((inspection.name.as_str(), inspection.version.as_str()), ("test", "1.0.0"));
        assert_eq!((inspection.window, inspection.memory), (64, 4 * PAGE));
        assert_eq!(inspection.capabilities, ["packet-read"]);
        assert!(inspection.exports.contains(&"millrace_packets".to_owned()));
        assert_eq!((inspection.sha256.len(), inspection.refused), (64, None));
        assert_eq!((inspection.features, inspection.counters), (vec!["packet-bytes".to_owned()], vec![]));
        let wanting =
            Written::new(&module(r#", "flow-state": 8, "service-state": 24, "counters": ["late"]"#, ""));
        let inspection = inspect(&Module::read(wanting.path()).unwrap()).unwrap();
        assert_eq!((inspection.flow_state, inspection.service_state), (8, 24));
        assert_eq!(inspection.counters, ["late"]);
        assert_eq!(inspection.features, ["flow-state", "service-state", "counters", "packet-bytes"]);
    }

    #[test]
    fn invalid_plugin_is_refused_as_at_loading() {
        for (bytes, kind) in [(b"\x7fELF", "not a shared object"), (b"GIF8", "not a WebAssembly module")] {
            let written = Written::new(bytes);
            let error = inspect(&Module::read(written.path()).unwrap()).unwrap_err().to_string();
            assert!(error.starts_with("plugin ") && error.contains(kind), "{error}");
        }
        let written = Written::new(&module("", ""));
        check(&Module::read(written.path()).unwrap()).unwrap();
        let written = Written::new(b"\0asm\x01\0\0\0");
        let error = check(&Module::read(written.path()).unwrap()).unwrap_err().to_string();
        assert!(error.ends_with("build it with the SDK of plugins"), "{error}");
        let folder = Module::read(&std::env::temp_dir()).unwrap_err().to_string();
        assert!(folder.contains("not a regular file"), "{folder}");
    }

    #[test]
    fn digests_match_the_standard() {
        assert_eq!(
            hex(&Sha256::digest(b"abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Outline::read(&bytes);
            let module = [b"\0asm\x01\0\0\0".as_slice(), &bytes].concat();
            let _ = Outline::read(&module);
        }
    }
}
