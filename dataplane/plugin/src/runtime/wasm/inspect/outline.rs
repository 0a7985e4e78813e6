//! Declarations of a module outside its function bodies, and their checks.

use millrace_plugin_abi::binary::{HOST_FUNCTIONS, IMPORTS, MANIFEST, export};
use wasmparser::{
    CompositeInnerType, ExportSectionReader, ExternalKind, FuncType, Import, ImportSectionReader, Parser,
    Payload, TypeRef, TypeSectionReader,
};

use super::ModuleError;
use super::instance_bytes::instance_bytes;
use super::signature::{Signature, type_name};
use crate::Manifest;

/// Maximum number of globals of a module.
pub(super) const MOST_GLOBALS: u32 = 4096;

/// Declarations of a module outside its function bodies.
#[derive(Default)]
pub(super) struct Outline<'a> {
    pub manifest: Option<&'a [u8]>,
    /// Types of the module, by type index; `None` for a type that is no function type.
    types: Vec<Option<FuncType>>,
    pub imports: Vec<Import<'a>>,
    /// Type index of each function, imported functions first.
    functions: Vec<u32>,
    memories: Vec<wasmparser::MemoryType>,
    imported_memories: usize,
    exports: Vec<(&'a str, ExternalKind, u32)>,
    /// Maximum bytes that the engine allocates for each instance, besides memory and table entries.
    pub instance_bytes: usize,
}

fn malformed(error: wasmparser::BinaryReaderError) -> ModuleError {
    // Put the error on one line, like all error texts.
    let words: Vec<_> = error.to_string().split_whitespace().map(str::to_owned).collect();
    ModuleError::NotAModule(words.join(" "))
}

impl<'a> Outline<'a> {
    /// Reads the declarations of a module.
    pub fn read(module: &'a [u8]) -> Result<Self, ModuleError> {
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

    /// Checks that an import is a host function whose capability the manifest requests.
    pub fn check_import(&self, import: &Import<'_>, manifest: &Manifest) -> Result<(), ModuleError> {
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

    /// Checks that the module exports all mandatory names of the plugin interface, with the right types.
    pub fn check_exports(&self) -> Result<(), ModuleError> {
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
