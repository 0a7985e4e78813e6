//! Inspection of a WebAssembly module before its compilation: manifest, imports and exports.
//!
//! The inspection accepts any bytes without a panic. The compiler validates the function bodies.

mod instance_bytes;
mod outline;
mod signature;

use crate::{Manifest, ManifestError};
use outline::Outline;

/// Maximum bytes of a module.
pub const MOST_MODULE: usize = 64 << 20;
/// First bytes of a module.
const MAGIC: &[u8] = b"\0asm";

/// Reason that a module was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModuleError {
    /// Module longer than [`MOST_MODULE`], with its bytes.
    #[error("the module has {0} bytes; the limit is 64 MiB")]
    TooLarge(usize),
    /// File that is no WebAssembly module.
    #[error("not a WebAssembly module: {0}")]
    NotAModule(String),
    /// Module without manifest.
    #[error("the module lacks the custom section \"millrace.manifest\": build it with the SDK of plugins")]
    NoManifest,
    /// Module with more than one manifest.
    #[error("the module has more than one custom section \"millrace.manifest\"")]
    TwoManifests,
    /// Invalid manifest.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// Import that the router doesn't offer.
    #[error("unknown import {module}.{name}: a plugin may import only functions of \"millrace\"")]
    UnknownImport {
        /// Module part of the import's name.
        module: String,
        /// Function part of the import's name.
        name: String,
    },
    /// Import of a function whose capability the manifest doesn't request.
    #[error("capability not granted: {function} needs {capability:?} in the manifest's `capabilities`")]
    NotGranted {
        /// Name of the function.
        function: &'static str,
        /// Required capability.
        capability: &'static str,
    },
    /// Import of a host function with a wrong type.
    #[error("import {name}: its type is {found}, but must be {expected}")]
    ImportType {
        /// Name of the function.
        name: &'static str,
        /// Type in the module.
        found: String,
        /// Expected type.
        expected: String,
    },
    /// Missing mandatory export.
    #[error("missing export: {name} of type {expected}")]
    MissingExport {
        /// Name of the export.
        name: &'static str,
        /// Expected type.
        expected: String,
    },
    /// Export with a wrong type under a name of the interface.
    #[error("export {name}: it is {found}, but must be {expected}")]
    ExportType {
        /// Name of the export.
        name: &'static str,
        /// Type in the module.
        found: String,
        /// Expected type.
        expected: String,
    },
    /// Module that the compiler refused.
    #[error("the module can't be compiled: {0}")]
    Compile(String),
}

/// Inspected module: its manifest, and the size of its instances.
#[derive(Clone, PartialEq, Debug)]
pub struct Inspected {
    /// Manifest of the module.
    pub manifest: Manifest,
    /// Maximum bytes that the engine allocates for each instance, besides memory and table entries.
    pub instance_bytes: usize,
}

/// Reads a module's manifest, checks imports and exports, and counts the bytes of an instance.
///
/// # Errors
/// [`ModuleError`] for the first problem; never [`ModuleError::Compile`].
pub fn inspect(module: &[u8]) -> Result<Inspected, ModuleError> {
    if module.len() > MOST_MODULE {
        return Err(ModuleError::TooLarge(module.len()));
    }
    if !module.starts_with(MAGIC) {
        return Err(ModuleError::NotAModule(
            "it begins with neither \\0asm (WebAssembly) nor \\x7fELF (shared object)".to_owned(),
        ));
    }
    let outline = Outline::read(module)?;
    let manifest = Manifest::parse(outline.manifest.ok_or(ModuleError::NoManifest)?)?;
    for import in &outline.imports {
        outline.check_import(import, &manifest)?;
    }
    outline.check_exports()?;
    Ok(Inspected { manifest, instance_bytes: outline.instance_bytes })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use millrace_plugin_abi::binary::{HOST_FUNCTIONS, export};

    use super::outline::MOST_GLOBALS;
    use super::signature::Signature;
    use super::*;
    use crate::runtime::wasm::test_modules::{module, module_with, text};

    fn refusal(body: &str) -> String {
        inspect(&module_with("", body)).unwrap_err().to_string()
    }

    #[test]
    fn valid_module_yields_its_manifest() {
        assert_eq!(inspect(&module("")).map(|inspected| inspected.manifest.name), Ok("test".to_owned()));
    }

    #[test]
    fn non_module_is_refused() {
        assert!(matches!(inspect(b"#!/bin/sh"), Err(ModuleError::NotAModule(_))));
        assert!(matches!(inspect(&[]), Err(ModuleError::NotAModule(_))));
        let component = inspect(b"\0asm\x0d\0\x01\0").unwrap_err().to_string();
        assert!(component.contains("component"), "{component}");
        assert_eq!(inspect(&vec![0; MOST_MODULE + 1]), Err(ModuleError::TooLarge(MOST_MODULE + 1)));
    }

    #[test]
    fn a_manifest_must_be_there_once() {
        assert_eq!(inspect(b"\0asm\x01\0\0\0"), Err(ModuleError::NoManifest));
        let twice = r#"(module (@custom "millrace.manifest" "{}") (@custom "millrace.manifest" "{}"))"#;
        assert_eq!(inspect(&wat::parse_str(twice).unwrap()), Err(ModuleError::TwoManifests));
    }

    #[test]
    fn another_version_is_refused() {
        let text = r#"(module (@custom "millrace.manifest" "{\"abi\":7}"))"#;
        assert_eq!(inspect(&wat::parse_str(text).unwrap()), Err(ManifestError::WrongAbi(7).into()));
    }

    #[test]
    fn imports_are_functions_that_were_granted() {
        let import = |what: &str| refusal(&format!("(import {what})"));
        assert!(import(r#""env" "abort" (func)"#).starts_with("unknown import env.abort"));
        assert!(import(r#""millrace" "fly" (func)"#).starts_with("unknown import millrace.fly"));
        assert!(import(r#""millrace" "memory" (memory 1)"#).starts_with("unknown import millrace.memory"));
        assert_eq!(
            import(r#""millrace" "timer" (func (param i64))"#),
            "capability not granted: timer needs \"timer\" in the manifest's `capabilities`"
        );
        assert_eq!(
            import(r#""millrace" "fail" (func (param i32))"#),
            "import fail: its type is (i32) -> (), but must be (i32, i32) -> ()"
        );
    }

    #[test]
    fn every_function_of_the_router_has_a_type() {
        assert!(HOST_FUNCTIONS.iter().all(|(name, _)| Signature::of_import(name).is_some()));
        let exports = export::REQUIRED.into_iter().chain(export::OPTIONAL);
        assert!(exports.into_iter().all(|name| Signature::of_export(name).is_some()));
    }

    #[test]
    fn exports_must_be_there_and_of_their_type() {
        let with = |text: String| inspect(&wat::parse_str(text).unwrap()).unwrap_err().to_string();
        let whole = text("", "");
        assert_eq!(
            with(whole.replace("\"millrace_reserve\"", "\"reserve\"")),
            "missing export: millrace_reserve of type (i32) -> (i32)"
        );
        assert!(with(whole.replace("(export \"memory\")", "")).starts_with("missing export: memory"));
        assert_eq!(
            refusal("(func (export \"millrace_periodic\") (param i32))"),
            "export millrace_periodic: it is (i32) -> (), but must be (i64) -> ()"
        );
        assert_eq!(
            refusal("(global (export \"millrace_save\") i32 (i32.const 0))"),
            "export millrace_save: it is no function, but must be () -> (i32)"
        );
    }

    #[test]
    fn globals_beyond_the_limit_are_refused() {
        let globals = |count: u32| "(global i32 (i32.const 0))\n".repeat(count as usize);
        // The module of the test has one more global.
        assert!(inspect(&module(&globals(MOST_GLOBALS - 1))).is_ok());
        let refused = refusal(&globals(MOST_GLOBALS));
        assert!(refused.ends_with("it has 4097 globals; the limit is 4096"), "{refused}");
    }

    #[test]
    fn instance_bytes_count_passive_segments_functions_and_globals() {
        let bytes = |body: &str| inspect(&module(body)).unwrap().instance_bytes;
        let plain = bytes("");
        assert!(plain < 1024, "{plain}");
        let more = |body: &str| bytes(body) - plain;
        assert_eq!(more("(elem func 0 0 0)"), 32 + 3 * 16);
        assert_eq!(more("(elem funcref (ref.null func) (ref.func 0))"), 32 + 2 * 16);
        // Entries of active segments are in tables. Declared segments have no entries at run time.
        assert_eq!(more("(elem declare func 0 0 0)"), 32);
        assert_eq!(more("(table 3 funcref) (elem (i32.const 0) func 0 0 0)"), 128 + 32);
        assert_eq!(more("(func) (func)"), 64);
        assert_eq!(more("(global i64 (i64.const 0))"), 16);
        assert_eq!(more("(data \"abcdefgh\")"), 16);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = inspect(&bytes);
            let mut headed = b"\0asm\x01\0\0\0".to_vec();
            headed.extend(&bytes);
            let _ = inspect(&headed);
        }

        #[test]
        fn no_damaged_module_panics(place in any::<prop::sample::Index>(), value: u8, cut in any::<prop::sample::Index>()) {
            let mut bytes = module("");
            let place = place.index(bytes.len());
            bytes[place] = value;
            let _ = inspect(&bytes);
            bytes.truncate(cut.index(bytes.len()));
            let _ = inspect(&bytes);
        }
    }
}
