//! Checks of a shared object or an executable before any of its code runs: file type, machine, and the exports
//! that every shared object needs.
//!
//! The checks accept any bytes without a panic.

use std::ops::Range;

use millrace_plugin_abi::binary::{ABI_VERSION, export};
use object::Endianness;
use object::elf::{
    DF_1_PIE, DT_FLAGS_1, Dyn64, EM_AARCH64, EM_RISCV, EM_X86_64, ET_DYN, ET_EXEC, FileHeader64, PT_INTERP,
    PT_LOAD, SHT_DYNSYM,
};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _, SectionHeader as _, Sym as _};

use crate::runtime::wasm::MOST_MODULE;
use crate::{Manifest, ManifestError};

/// Export `() -> text`: returns the manifest, terminated by a zero byte.
pub(super) const MANIFEST: &str = "millrace_manifest";
/// Export `(table)`: receives the table of the router's functions.
pub(super) const ATTACH: &str = "millrace_attach";

/// First bytes of every ELF file.
pub(super) const MAGIC: &[u8] = b"\x7fELF";
/// Offset of the ELF class, and its value for 64 bits.
const CLASS: (usize, u8) = (4, 2);

/// Form of a plugin file that is an ELF file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Shared object, which the router loads into its own process or into another one.
    Object,
    /// Executable without a dynamic loader: it needs no other file.
    Static,
    /// Executable with a dynamic loader, which reads shared libraries.
    Dynamic,
}

impl Form {
    /// All forms with their names.
    const NAMES: [(&'static str, Self); 3] =
        [("object", Self::Object), ("static", Self::Static), ("dynamic", Self::Dynamic)];

    /// Returns the name of the form.
    pub fn name(self) -> &'static str {
        Self::NAMES.into_iter().find(|(_, form)| *form == self).map_or("", |(name, _)| name)
    }

    /// Returns the form with this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::NAMES.into_iter().find(|(known, _)| *known == name).map(|(_, form)| form)
    }

    /// Whether the file is an executable.
    pub fn is_executable(self) -> bool {
        self != Self::Object
    }
}

/// Reason that a shared object or an executable was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// File above the size limit, with its bytes.
    #[error("the file has {0} bytes; the limit is 64 MiB")]
    TooLarge(usize),
    /// File that is no shared object.
    #[error("not a shared object: {0}")]
    NotAnObject(String),
    /// Shared object for another machine architecture.
    #[error("the file is for {found}, but this machine is {machine}: build it for {machine}")]
    WrongMachine {
        /// Architecture of the object.
        found: String,
        /// Architecture of this machine.
        machine: &'static str,
    },
    /// Missing export that every plugin needs.
    #[error("missing export: {0}: check that the file is a plugin and that the function is visible")]
    MissingExport(&'static str),
    /// Load error of the operating system.
    #[error("the shared object can't be loaded: {0}")]
    Load(String),
    /// Code built for another version of the plugin interface, with that version.
    #[error("its code has plugin ABI version {0}, this router has {ABI_VERSION}: rebuild the plugin")]
    WrongAbi(u32),
    /// File without a manifest section.
    #[error(
        "the file has no section {SECTION} with its manifest: rebuild it with the header or crate of this \
         version"
    )]
    NoManifest,
    /// Object whose code returns another manifest than the manifest section.
    #[error("its code returns another manifest than its checked section {SECTION}: rebuild the plugin")]
    OtherManifest,
    /// Executable that should run in the process of the caller.
    #[error(
        "it is an executable, which runs only in a process of its own; build it as a shared object \
         (`--runtime native`) to run it in this process"
    )]
    Executable,
    /// Invalid manifest.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// Requirement of the manifest that this router doesn't meet.
    #[error("{0}")]
    NotGiven(String),
}

/// ELF section that holds the manifest as JSON.
const SECTION: &str = "millrace.manifest";

/// Returns the ELF number and the name of this machine's architecture; `None` if this function doesn't know
/// the architecture.
fn machine() -> Option<(u16, &'static str)> {
    Some(match std::env::consts::ARCH {
        "x86_64" => (EM_X86_64, "x86-64"),
        "aarch64" => (EM_AARCH64, "AArch64"),
        "riscv64" => (EM_RISCV, "RISC-V"),
        _ => return None,
    })
}

/// Returns the name of an ELF machine number.
fn name_of(machine: u16) -> String {
    match machine {
        3 => "32-bit x86".to_owned(),
        40 => "32-bit ARM".to_owned(),
        EM_X86_64 => "x86-64".to_owned(),
        EM_AARCH64 => "AArch64".to_owned(),
        EM_RISCV => "RISC-V".to_owned(),
        other => format!("ELF machine {other}"),
    }
}

/// Returns the place of the manifest section in the file. Zeros follow the manifest in it.
///
/// # Errors
/// The file is no plugin, or its manifest section lies outside of it.
pub fn manifest_place(bytes: &[u8]) -> Result<Range<usize>, ObjectError> {
    check(bytes)?;
    let header = FileHeader64::<Endianness>::parse(bytes).map_err(malformed)?;
    let endian = header.endian().map_err(malformed)?;
    let sections = header.sections(endian, bytes).map_err(malformed)?;
    let (_, section) = sections.section_by_name(endian, SECTION.as_bytes()).ok_or(ObjectError::NoManifest)?;
    let (start, length) = section.file_range(endian).ok_or(ObjectError::NoManifest)?;
    let end = start.checked_add(length).filter(|end| *end <= bytes.len() as u64);
    let end = end.ok_or_else(|| ObjectError::NotAnObject("the file is truncated".to_owned()))?;
    Ok(start as usize..end as usize)
}

/// Returns the bytes of the manifest in the file's manifest section, without trailing zeros. No code of the
/// file runs.
pub(in crate::runtime) fn manifest_bytes(bytes: &[u8]) -> Result<&[u8], ObjectError> {
    let text = bytes.get(manifest_place(bytes)?).ok_or(ObjectError::NoManifest)?;
    let end = text.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    text.get(..end).filter(|text| !text.is_empty()).ok_or(ObjectError::NoManifest)
}

/// Returns the manifest in the file's manifest section. No code of the file runs.
pub fn manifest(bytes: &[u8]) -> Result<Manifest, ObjectError> {
    Ok(Manifest::parse(manifest_bytes(bytes)?)?)
}

fn malformed(error: object::read::Error) -> ObjectError {
    ObjectError::NotAnObject(error.to_string())
}

/// Checks an object or executable without loading it. Returns its form.
pub fn check(bytes: &[u8]) -> Result<Form, ObjectError> {
    if bytes.len() > MOST_MODULE {
        return Err(ObjectError::TooLarge(bytes.len()));
    }
    if !bytes.starts_with(MAGIC) {
        return Err(ObjectError::NotAnObject("it does not begin with \\x7fELF".to_owned()));
    }
    if bytes.get(CLASS.0) != Some(&CLASS.1) {
        return Err(ObjectError::NotAnObject("it is not a 64-bit ELF file".to_owned()));
    }
    let header = FileHeader64::<Endianness>::parse(bytes).map_err(malformed)?;
    let endian = header.endian().map_err(malformed)?;
    let found = header.e_machine(endian);
    if let Some((number, machine)) = machine()
        && number != found
    {
        return Err(ObjectError::WrongMachine { found: name_of(found), machine });
    }
    check_segments(header, endian, bytes)?;
    let form = form(header, endian, bytes)?;
    if form == Form::Object {
        check_exports(header, endian, bytes)?;
    }
    Ok(form)
}

/// Returns the form of a file. An executable has a fixed address, or linkers mark it as position-independent
/// (`DF_1_PIE`).
fn form(header: &FileHeader64<Endianness>, endian: Endianness, bytes: &[u8]) -> Result<Form, ObjectError> {
    let segments = header.program_headers(endian, bytes).map_err(malformed)?;
    let is_executable = match header.e_type(endian) {
        ET_EXEC => true,
        ET_DYN => {
            let is_mark = |entry: &Dyn64<Endianness>| {
                entry.d_tag(endian) == DT_FLAGS_1 && entry.d_val(endian) & u64::from(DF_1_PIE) != 0
            };
            let mut is_marked = false;
            for segment in segments {
                let entries = segment.dynamic(endian, bytes).map_err(malformed)?;
                is_marked |= entries.is_some_and(|entries| entries.iter().any(is_mark));
            }
            is_marked
        }
        _ => {
            return Err(ObjectError::NotAnObject(
                "it is an ELF file of another type; link it with -shared".to_owned(),
            ));
        }
    };
    let has_loader = segments.iter().any(|segment| segment.p_type(endian) == PT_INTERP);
    Ok(match (is_executable, has_loader) {
        (false, _) => Form::Object,
        (true, false) => Form::Static,
        (true, true) => Form::Dynamic,
    })
}

/// Checks that the file contains all mapped segments: otherwise the loader would read past the end of the
/// file.
fn check_segments(
    header: &FileHeader64<Endianness>,
    endian: Endianness,
    bytes: &[u8],
) -> Result<(), ObjectError> {
    for segment in header.program_headers(endian, bytes).map_err(malformed)? {
        let end = segment.p_offset(endian).checked_add(segment.p_filesz(endian));
        if segment.p_type(endian) == PT_LOAD && end.is_none_or(|end| end > bytes.len() as u64) {
            return Err(ObjectError::NotAnObject("the file is truncated".to_owned()));
        }
    }
    Ok(())
}

/// Checks the exports. If the file lists no dynamic symbols, this function accepts it, and the load of the
/// object finds missing exports.
fn check_exports(
    header: &FileHeader64<Endianness>,
    endian: Endianness,
    bytes: &[u8],
) -> Result<(), ObjectError> {
    let sections = header.sections(endian, bytes).map_err(malformed)?;
    let symbols = sections.symbols(endian, bytes, SHT_DYNSYM).map_err(malformed)?;
    if symbols.is_empty() {
        return Ok(());
    }
    let exported = |name: &str| {
        symbols.iter().any(|symbol| {
            !symbol.is_undefined(endian) && symbol.name(endian, symbols.strings()) == Ok(name.as_bytes())
        })
    };
    match required().find(|name| !exported(name)) {
        Some(missing) => Err(ObjectError::MissingExport(missing)),
        None => Ok(()),
    }
}

/// Returns the names of the functions that every plugin must export.
fn required() -> impl Iterator<Item = &'static str> {
    [ATTACH, MANIFEST].into_iter().chain(export::REQUIRED)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the bytes of this test program: an ELF file, but no plugin.
    fn program() -> Vec<u8> {
        std::fs::read("/proc/self/exe").unwrap()
    }

    #[test]
    fn non_object_is_refused() {
        assert!(matches!(check(b""), Err(ObjectError::NotAnObject(_))));
        assert!(matches!(check(b"\0asm\x01\0\0\0"), Err(ObjectError::NotAnObject(_))));
        assert!(matches!(check(b"\x7fELF"), Err(ObjectError::NotAnObject(_))));
        assert_eq!(check(&vec![0; MOST_MODULE + 1]), Err(ObjectError::TooLarge(MOST_MODULE + 1)));
    }

    #[test]
    fn another_machine_and_a_missing_export_are_named() {
        let mut bytes = program();
        bytes.truncate(MOST_MODULE);
        let own = u16::from_le_bytes([bytes[18], bytes[19]]);
        if machine().is_some_and(|(number, _)| number == own) {
            // ELF number of the s390 architecture.
            (bytes[18], bytes[19]) = (22, 0);
            let refused = check(&bytes).unwrap_err().to_string();
            assert!(refused.contains("machine 22") && refused.contains("build it for "), "{refused}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = manifest(&bytes);
            let mut headed = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0".to_vec();
            headed.extend(&bytes);
            let _ = manifest(&headed);
        }
    }
}
