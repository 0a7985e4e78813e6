//! Change of a module's manifest: replaces the custom section that contains it.

use millrace_plugin::Cost;
use serde_json::{Map, Value};

use crate::{Module, WorkbenchError, inspect};

/// Custom section with the manifest.
const NAME: &str = "millrace.manifest";
/// Bytes before the first section: magic number and version.
const HEADER: usize = 8;

/// Section of a module: its bytes with id and length, and the contents of the manifest's section.
struct Section<'a> {
    all: &'a [u8],
    manifest: Option<&'a [u8]>,
}

/// Returns the module with `cost` in its manifest. All other sections stay as they are.
///
/// # Errors
/// A file that is no module, and a module that the router would refuse with the new manifest.
pub fn with_cost(module: &Module, cost: &Cost) -> Result<Vec<u8>, WorkbenchError> {
    if millrace_plugin::native::is_object(module.bytes()) {
        let problem =
            "a shared object or executable has its manifest in its code: write the cost into its sources";
        return Err(module.refused(problem.to_owned()));
    }
    let wrong = || module.refused(format!("the custom section {NAME:?} can't be found"));
    let mut rest = module.bytes().get(HEADER..).ok_or_else(wrong)?;
    let mut changed = module.bytes().get(..HEADER).ok_or_else(wrong)?.to_vec();
    let mut is_changed = false;
    while !rest.is_empty() {
        let section = section(rest).ok_or_else(wrong)?;
        rest = rest.get(section.all.len()..).ok_or_else(wrong)?;
        match section.manifest {
            Some(manifest) => {
                let mut keys: Map<String, Value> = serde_json::from_slice(manifest).map_err(|_| wrong())?;
                keys.insert("cost".to_owned(), cost.written());
                changed.extend(written(&serde_json::to_vec(&keys).map_err(|_| wrong())?));
                is_changed = true;
            }
            None => changed.extend(section.all),
        }
    }
    let new = module.changed(changed);
    if is_changed { inspect(&new).map(|_| new.bytes().to_vec()) } else { Err(wrong()) }
}

/// Returns the first section; `None` for bytes that are no section.
fn section(bytes: &[u8]) -> Option<Section<'_>> {
    let id = bytes.first()?;
    let (length, head) = number(bytes.get(1..)?)?;
    let contents = bytes.get(1 + head..(1 + head).checked_add(length)?)?;
    let all = bytes.get(..1 + head + length)?;
    let is_custom = *id == 0;
    let name =
        number(contents).and_then(|(length, head)| Some((contents.get(head..head + length)?, head + length)));
    let manifest = match name {
        Some((name, end)) if is_custom && name == NAME.as_bytes() => contents.get(end..),
        _ => None,
    };
    Some(Section { all, manifest })
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

/// Reads an unsigned LEB128 number of at most 32 bits. Returns it with its number of bytes.
fn number(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut value = 0_u64;
    for (place, byte) in bytes.iter().enumerate().take(5) {
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Some((usize::try_from(value).ok()?, place + 1));
        }
    }
    None
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
    fn numbers_are_written_as_they_are_read() {
        for value in [0, 1, 127, 128, 300, 65_535, 4_294_967_295] {
            assert_eq!(number(&leb(value)), Some((value, leb(value).len())));
        }
        assert_eq!(number(&[0x80; 6]), None);
    }
}
