//! Bytes that the engine allocates for each instance of a module, besides memory and table entries.

use wasmparser::{ElementItems, ElementKind, Payload};

/// Bytes that the engine allocates for each instance, by kind of declaration. The engine's resource limiter
/// doesn't count these bytes. The count assumes that the module takes a reference to each function.
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

/// Returns the bytes that each instance needs for the declarations of a section.
pub(super) fn instance_bytes(payload: &Payload<'_>) -> wasmparser::Result<usize> {
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
