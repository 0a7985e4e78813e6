//! Inspection of a WebAssembly module before its compilation: manifest, imports and exports.
//!
//! Accepts any bytes without panicking. The compiler validates the code inside.

use std::fmt;

use millrace_plugin_abi::binary::{HOST_FUNCTIONS, IMPORTS, MANIFEST, export};
use wasmparser::{
    CompositeInnerType, ElementItems, ElementKind, ExportSectionReader, ExternalKind, FuncType, Import,
    ImportSectionReader, Parser, Payload, TypeRef, TypeSectionReader, ValType,
};

use crate::{Manifest, ManifestError};

/// Maximum bytes of a module.
pub const MOST_MODULE: usize = 64 << 20;
/// First bytes of a module.
const MAGIC: &[u8] = b"\0asm";

/// Reason that a module was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModuleError {
    /// Module longer than [`MOST_MODULE`].
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

/// Type of a function in the interface.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Signature {
    parameters: &'static [ValType],
    result: Option<ValType>,
}

const I32: ValType = ValType::I32;
const I64: ValType = ValType::I64;

const fn signature(parameters: &'static [ValType], result: Option<ValType>) -> Signature {
    Signature { parameters, result }
}

impl Signature {
    fn is(&self, function: &FuncType) -> bool {
        function.params() == self.parameters && function.results() == self.result.as_slice()
    }

    /// Returns the type of a plugin's export; `None` for a name outside the interface.
    fn of_export(name: &str) -> Option<Self> {
        Some(match name {
            export::ABI | export::SAVE => signature(&[], Some(I32)),
            export::RESERVE => signature(&[I32], Some(I32)),
            export::RELEASE | export::MESSAGE => signature(&[I32, I32], None),
            export::INIT => signature(&[I32, I32], Some(I32)),
            export::PACKETS | export::FLOW_ENDED => signature(&[I32], None),
            export::CONTROL => signature(&[I32, I32, I32, I32], Some(I32)),
            export::PERIODIC => signature(&[I64], None),
            export::RESTORE => signature(&[I32, I32, I32], Some(I32)),
            _ => return None,
        })
    }

    /// Returns the type of a host function; `None` for a name outside the interface.
    fn of_import(name: &str) -> Option<Self> {
        Some(match name {
            "fail" | "reply" => signature(&[I32, I32], None),
            "log" => signature(&[I32, I32, I32], None),
            "packet_read" | "packet_write" => signature(&[I32, I32, I32, I32], Some(I32)),
            "packet_resize" | "request" | "send" => signature(&[I32, I32], Some(I32)),
            "packet_make" | "flow_backlog" => signature(&[I32, I32, I32], Some(I32)),
            "timer" => signature(&[I64], None),
            "count" => signature(&[I32, I64], None),
            "map_get" | "map_set" => signature(&[I32, I32, I32, I32, I32], Some(I32)),
            "map_remove" => signature(&[I32, I32, I32], Some(I32)),
            "service_state" => signature(&[], Some(I32)),
            _ => return None,
        })
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_type(f, self.parameters, self.result.as_slice())
    }
}

fn write_type(f: &mut dyn fmt::Write, parameters: &[ValType], results: &[ValType]) -> fmt::Result {
    let list = |types: &[ValType]| types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    write!(f, "({}) -> ({})", list(parameters), list(results))
}

fn type_name(function: &FuncType) -> String {
    let mut text = String::new();
    // Writing to a string doesn't fail.
    let _ = write_type(&mut text, function.params(), function.results());
    text
}

/// Result of an inspection.
#[derive(Clone, PartialEq, Debug)]
pub struct Inspected {
    /// Manifest of the module.
    pub manifest: Manifest,
    /// Maximum bytes that the engine allocates for each instance besides memory and table entries.
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

/// Maximum number of globals of a module.
const MOST_GLOBALS: u32 = 4096;

/// Bytes that the engine allocates for each instance, by kind of the module's declarations. The engine
/// doesn't ask its limiter about these bytes. Each function counts as if a reference to it existed.
mod bytes_of {
    /// `VMFunctionImport`; also used for imports of other kinds.
    pub const IMPORT: usize = 32;
    /// `VMFuncRef`.
    pub const FUNCTION: usize = 32;
    /// `VMGlobalDefinition`.
    pub const GLOBAL: usize = 16;
    /// `VMTableDefinition` and the engine's record of the table, without its entries.
    pub const TABLE: usize = 128;
    /// `VMTagDefinition`.
    pub const TAG: usize = 16;
    /// Address and length of a passive data segment, whose bytes all instances share.
    pub const DATA: usize = 16;
    /// Record of a passive element segment.
    pub const ELEMENTS: usize = 32;
    /// `ValRaw`: entry of a passive element segment.
    pub const ELEMENT: usize = 16;
}

/// Declarations of a module that are visible from outside.
#[derive(Default)]
struct Outline<'a> {
    manifest: Option<&'a [u8]>,
    /// Function types; `None` for types that are no functions.
    types: Vec<Option<FuncType>>,
    imports: Vec<Import<'a>>,
    /// Type index of each function, imported functions first.
    functions: Vec<u32>,
    memories: Vec<wasmparser::MemoryType>,
    imported_memories: usize,
    exports: Vec<(&'a str, ExternalKind, u32)>,
    /// Bytes of each instance besides memory and table entries.
    instance_bytes: usize,
}

fn malformed(error: wasmparser::BinaryReaderError) -> ModuleError {
    // Put the error on one line, like all error texts.
    let words: Vec<_> = error.to_string().split_whitespace().map(str::to_owned).collect();
    ModuleError::NotAModule(words.join(" "))
}

impl<'a> Outline<'a> {
    fn read(module: &'a [u8]) -> Result<Self, ModuleError> {
        let mut outline = Self::default();
        for payload in Parser::new(0).parse_all(module) {
            outline.take(payload.map_err(malformed)?)?;
        }
        Ok(outline)
    }

    fn take(&mut self, payload: Payload<'a>) -> Result<(), ModuleError> {
        let bytes = instance_bytes(&payload).map_err(malformed)?;
        self.instance_bytes = self.instance_bytes.saturating_add(bytes);
        match payload {
            Payload::Version { encoding: wasmparser::Encoding::Component, .. } => {
                return Err(ModuleError::NotAModule("a component; build a core module".to_owned()));
            }
            Payload::TypeSection(section) => self.take_types(section).map_err(malformed)?,
            Payload::ImportSection(section) => self.take_imports(section).map_err(malformed)?,
            Payload::FunctionSection(section) => {
                for index in section {
                    self.functions.push(index.map_err(malformed)?);
                }
            }
            Payload::MemorySection(section) => {
                for memory in section {
                    self.memories.push(memory.map_err(malformed)?);
                }
            }
            Payload::GlobalSection(section) if section.count() > MOST_GLOBALS => {
                let text = format!("it has {} globals; the limit is {MOST_GLOBALS}", section.count());
                return Err(ModuleError::NotAModule(text));
            }
            Payload::ExportSection(section) => self.take_exports(section).map_err(malformed)?,
            Payload::CustomSection(section) if section.name() == MANIFEST => {
                let earlier = self.manifest.replace(section.data());
                return earlier.map_or(Ok(()), |_| Err(ModuleError::TwoManifests));
            }
            _ => {}
        }
        Ok(())
    }

    fn take_types(&mut self, section: TypeSectionReader<'a>) -> wasmparser::Result<()> {
        for group in section {
            for subtype in group?.into_types() {
                self.types.push(match subtype.composite_type.inner {
                    CompositeInnerType::Func(function) => Some(function),
                    _ => None,
                });
            }
        }
        Ok(())
    }

    fn take_imports(&mut self, section: ImportSectionReader<'a>) -> wasmparser::Result<()> {
        for import in section.into_imports() {
            let import = import?;
            match import.ty {
                TypeRef::Func(index) | TypeRef::FuncExact(index) => self.functions.push(index),
                TypeRef::Memory(memory) => {
                    self.memories.push(memory);
                    self.imported_memories += 1;
                }
                _ => {}
            }
            self.imports.push(import);
        }
        Ok(())
    }

    fn take_exports(&mut self, section: ExportSectionReader<'a>) -> wasmparser::Result<()> {
        for export in section {
            let export = export?;
            self.exports.push((export.name, export.kind, export.index));
        }
        Ok(())
    }

    fn function(&self, index: u32) -> Result<&FuncType, ModuleError> {
        let of_type = self.functions.get(index as usize).and_then(|index| self.function_type(*index));
        of_type.ok_or_else(|| ModuleError::NotAModule(format!("there is no function {index}")))
    }

    fn function_type(&self, index: u32) -> Option<&FuncType> {
        self.types.get(index as usize)?.as_ref()
    }

    fn check_import(&self, import: &Import<'_>, manifest: &Manifest) -> Result<(), ModuleError> {
        let unknown = || ModuleError::UnknownImport {
            module: import.module.chars().take(64).collect(),
            name: import.name.chars().take(64).collect(),
        };
        let TypeRef::Func(index) = import.ty else { return Err(unknown()) };
        let known = HOST_FUNCTIONS.into_iter().find(|(name, _)| *name == import.name);
        let Some((name, capability)) = known.filter(|_| import.module == IMPORTS) else {
            return Err(unknown());
        };
        if let Some(capability) = capability.filter(|capability| !manifest.has_capability(capability)) {
            return Err(ModuleError::NotGranted { function: name, capability });
        }
        let expected = Signature::of_import(name).ok_or_else(unknown)?;
        let found = self.function_type(index).map_or_else(|| "no function".to_owned(), type_name);
        if self.function_type(index).is_some_and(|function| expected.is(function)) {
            return Ok(());
        }
        Err(ModuleError::ImportType { name, found, expected: expected.to_string() })
    }

    fn check_exports(&self) -> Result<(), ModuleError> {
        self.check_memory()?;
        for name in export::REQUIRED.into_iter().chain(export::OPTIONAL) {
            let Some(expected) = Signature::of_export(name) else { continue };
            let expected_name = || expected.to_string();
            let Some((_, kind, index)) = self.exports.iter().find(|(other, ..)| *other == name) else {
                if export::REQUIRED.contains(&name) {
                    return Err(ModuleError::MissingExport { name, expected: expected_name() });
                }
                continue;
            };
            let found = match kind {
                ExternalKind::Func | ExternalKind::FuncExact => self.function(*index)?,
                _ => {
                    let found = "no function".to_owned();
                    return Err(ModuleError::ExportType { name, found, expected: expected_name() });
                }
            };
            if !expected.is(found) {
                let found = type_name(found);
                return Err(ModuleError::ExportType { name, found, expected: expected_name() });
            }
        }
        Ok(())
    }

    fn check_memory(&self) -> Result<(), ModuleError> {
        let (name, expected) = (export::MEMORY, "a memory of 32-bit addresses".to_owned());
        let exported = self.exports.iter().find(|(other, ..)| *other == name);
        let Some((_, kind, index)) = exported else {
            return Err(ModuleError::MissingExport { name, expected });
        };
        let found = match (kind, self.memories.get(*index as usize)) {
            (ExternalKind::Memory, Some(memory)) if memory.memory64 => "a memory of 64-bit addresses",
            (ExternalKind::Memory, Some(memory)) if memory.shared => "a shared memory",
            (ExternalKind::Memory, Some(_)) => return Ok(()),
            _ => "no memory",
        };
        Err(ModuleError::ExportType { name, found: found.to_owned(), expected })
    }
}

/// Returns the bytes of each instance that a section requires.
fn instance_bytes(payload: &Payload<'_>) -> wasmparser::Result<usize> {
    let each = |count: u32, bytes: usize| (count as usize).saturating_mul(bytes);
    Ok(match payload {
        Payload::ImportSection(section) => {
            let imports = section.clone().into_imports();
            imports.count().saturating_mul(bytes_of::IMPORT + bytes_of::FUNCTION)
        }
        Payload::FunctionSection(section) => each(section.count(), bytes_of::FUNCTION),
        Payload::GlobalSection(section) => each(section.count(), bytes_of::GLOBAL),
        Payload::TableSection(section) => each(section.count(), bytes_of::TABLE),
        Payload::TagSection(section) => each(section.count(), bytes_of::TAG),
        Payload::DataSection(section) => each(section.count(), bytes_of::DATA),
        Payload::ElementSection(section) => {
            let mut bytes = each(section.count(), bytes_of::ELEMENTS);
            for segment in section.clone() {
                let segment = segment?;
                let entries = match segment.items {
                    ElementItems::Functions(functions) => functions.count(),
                    ElementItems::Expressions(_, expressions) => expressions.count(),
                };
                if matches!(segment.kind, ElementKind::Passive) {
                    bytes = bytes.saturating_add(each(entries, bytes_of::ELEMENT));
                }
            }
            bytes
        }
        _ => 0,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::test_modules::{module, module_with};
    use super::*;

    fn refusal(body: &str) -> String {
        inspect(&module_with("", body)).unwrap_err().to_string()
    }

    #[test]
    fn a_whole_module_yields_its_manifest() {
        assert_eq!(inspect(&module("")).map(|inspected| inspected.manifest.name), Ok("test".to_owned()));
    }

    #[test]
    fn what_is_no_module_is_refused() {
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
        let whole = super::super::test_modules::text("", "");
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
        // The test module already has one global.
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
        // Entries of active segments are in tables; declared segments have no entries at run time.
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
