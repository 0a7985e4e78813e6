//! Change of a plugin's manifest: replaces the custom section of a module, or the contents of a section of a shared
//! object or executable.

use millrace_plugin::Cost;
use millrace_plugin::native::{is_object, manifest_place};
use serde_json::{Map, Value};
use wasmparser::{Parser, Payload};

use crate::{Module, WorkbenchError, inspect};

/// Custom section with the manifest.
const NAME: &str = "millrace.manifest";

/// Returns the plugin file with `cost` in its manifest. All other sections stay as they are.
///
/// # Errors
/// A file that is no plugin, a shared object or executable whose section is too short for the new manifest, and a
/// plugin that the router would refuse with it.
pub fn with_cost(module: &Module, cost: &Cost) -> Result<Vec<u8>, WorkbenchError> {
    let changed = if is_object(module.bytes()) { in_object(module, cost) } else { in_module(module, cost) };
    let new = module.changed(changed?);
    inspect(&new).map(|_| new.bytes().to_vec())
}

/// Writes into the section of a shared object or executable, whose length stays.
fn in_object(module: &Module, cost: &Cost) -> Result<Vec<u8>, WorkbenchError> {
    let place = manifest_place(module.bytes()).map_err(|error| module.refused(error.to_string()))?;
    let mut changed = module.bytes().to_vec();
    let section = changed.get_mut(place).unwrap_or_default();
    let end = section.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let manifest = with_key(section.get(..end).unwrap_or_default(), cost);
    let manifest = manifest.ok_or_else(|| module.refused("its manifest is no JSON object".to_owned()))?;
    // A zero must follow the manifest.
    match section.split_at_mut_checked(manifest.len()) {
        Some((text, rest)) if !rest.is_empty() => {
            text.copy_from_slice(&manifest);
            rest.fill(0);
            Ok(changed)
        }
        _ => Err(module.refused(format!(
            "the manifest with its cost needs {} bytes, and its section has {}: rebuild the plugin with the SDK of \
             this version, or write the cost into its sources",
            manifest.len() + 1,
            section.len()
        ))),
    }
}

/// Returns the manifest with `cost`; `None` if it is no JSON object.
fn with_key(manifest: &[u8], cost: &Cost) -> Option<Vec<u8>> {
    let mut keys: Map<String, Value> = serde_json::from_slice(manifest).ok()?;
    keys.insert("cost".to_owned(), cost.written());
    serde_json::to_vec(&keys).ok()
}

/// Replaces the custom section of a module.
fn in_module(module: &Module, cost: &Cost) -> Result<Vec<u8>, WorkbenchError> {
    let wrong = || module.refused(format!("the custom section {NAME:?} can't be found"));
    let bytes = module.bytes();
    // End of the last section, and of the part of the file that is copied.
    let (mut end, mut copied) = (0, 0);
    let mut changed = Vec::new();
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(|_| wrong())? {
            Payload::Version { range, .. } => end = range.end,
            Payload::CustomSection(section) if section.name() == NAME => {
                let manifest = with_key(section.data(), cost).ok_or_else(wrong)?;
                // The id and the length of a section precede its range.
                changed.extend(bytes.get(copied..end).ok_or_else(wrong)?);
                changed.extend(written(&manifest));
                (end, copied) = (section.range().end, section.range().end);
            }
            other => end = other.as_section().map_or(end, |(_, range)| range.end),
        }
    }
    if copied == 0 {
        return Err(wrong());
    }
    changed.extend(bytes.get(copied..).ok_or_else(wrong)?);
    Ok(changed)
}

/// Returns the manifest's section with these contents.
fn written(manifest: &[u8]) -> Vec<u8> {
    let mut contents = leb(NAME.len());
    contents.extend(NAME.as_bytes());
    contents.extend(manifest);
    let mut section = vec![0];
    section.extend(leb(contents.len()));
    section.extend(contents);
    section
}

/// Writes an unsigned LEB128 number.
fn leb(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ready::test_modules::{Written, module};

    #[test]
    fn written_cost_is_read_back_and_the_rest_of_the_module_stays() {
        for keys in ["", r#", "cost": {"packet": 1}"#] {
            let file = Written::new(&module(keys, ""));
            let before = Module::read(file.path()).unwrap();
            let cost = Cost::read(&json!({"on": {"worker": {"call": 300, "packet": 12.5}}, "memory": 65536}))
                .unwrap();
            let after = before.changed(with_cost(&before, &cost).unwrap());
            let (old, new) = (inspect(&before).unwrap(), inspect(&after).unwrap());
            assert_eq!(new.calls.cost, Some(cost.written()));
            assert_eq!((old.name, old.imports, old.exports), (new.name, new.imports, new.exports));
            assert_eq!(with_cost(&after, &cost).unwrap(), after.bytes(), "a second change is none");
        }
    }

    #[test]
    fn damaged_files_are_refused() {
        let file = Written::new(&module("", ""));
        let whole = Module::read(file.path()).unwrap();
        let cost = Cost::default();
        for length in [0, 7, 8, 9, 40, whole.bytes().len() - 1] {
            let cut = whole.changed(whole.bytes()[..length].to_vec());
            assert!(with_cost(&cut, &cost).is_err(), "{length}");
        }
        assert!(with_cost(&whole.changed(b"\x7fELF".to_vec()), &cost).is_err());
    }

    #[test]
    fn other_sections_stay_wherever_the_manifest_is() {
        let file = Written::new(&module("", ""));
        let before = Module::read(file.path()).unwrap();
        // A section may have a longer form of its length than it needs.
        let odd = [0, 0x86, 0x80, 0x80, 0x80, 0x00, 3, b'o', b'd', b'd', 1, 2];
        let last = before.changed([before.bytes(), &odd].concat());
        let first = before.changed([&before.bytes()[..8], &odd, &before.bytes()[8..]].concat());
        let long = json!({"on": {"worker": {"packet": 1}}, "memory": 1_234_567_890_u32});
        for cost in [Cost::default(), Cost::read(&long).unwrap()] {
            let alone = with_cost(&before, &cost).unwrap();
            assert_eq!(with_cost(&last, &cost).unwrap(), [&alone, &odd[..]].concat());
            assert_eq!(with_cost(&first, &cost).unwrap(), [&alone[..8], &odd, &alone[8..]].concat());
        }
    }

    #[test]
    fn lengths_are_read_as_they_are_written() {
        for length in [0, 1, 100, 126, 127, 128, 300, 16_383, 16_384, 65_535] {
            let manifest = vec![b'x'; length];
            let whole = [b"\0asm\x01\0\0\0", &written(&manifest)[..]].concat();
            let section = Parser::new(0).parse_all(&whole).find_map(|payload| match payload.unwrap() {
                Payload::CustomSection(section) => Some(section),
                _ => None,
            });
            let section = section.unwrap();
            assert_eq!(
                (section.name(), section.data(), section.range().end),
                (NAME, &manifest[..], whole.len())
            );
        }
    }
}
