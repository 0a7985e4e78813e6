//! Archive of the files of new plugin projects. `build.rs` packs it.

use crate::Language;

/// Compressed archive.
static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/projects"));

/// Minimum length of a repetition in bytes.
const SHORTEST: usize = 4;

/// File of a project: its path in the project, and its text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ProjectFile {
    pub place: String,
    pub text: String,
}

/// Returns the files of a project, in the order of writing.
pub(crate) fn files(language: Language) -> Vec<ProjectFile> {
    let bytes = unpacked(PACKED);
    let archive = String::from_utf8_lossy(&bytes);
    let mut parts = archive.split_terminator('\0').map(str::to_owned);
    let mut files = Vec::new();
    while let (Some(of), Some(place), Some(text)) = (parts.next(), parts.next(), parts.next()) {
        if of == language.to_string() {
            files.push(ProjectFile { place, text });
        }
    }
    files
}

/// Decompresses bytes that `build.rs` has compressed.
fn unpacked(packed: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = packed.iter().copied();
    while let Some(flags) = rest.next() {
        for part in 0..8 {
            let Some(first) = rest.next() else { break };
            if flags >> part & 1 == 0 {
                bytes.push(first);
                continue;
            }
            let (Some(second), Some(length)) = (rest.next(), rest.next()) else { break };
            let distance = usize::from(u16::from_le_bytes([first, second]));
            for _ in 0..SHORTEST + usize::from(length) {
                let from = bytes.len().checked_sub(distance).and_then(|place| bytes.get(place));
                bytes.extend(from.copied());
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Folders of copies in a project, with their sources.
    const COPIES: [(&str, &str); 6] = [
        ("millrace/sdk/src/", "sdk/rust/src"),
        ("millrace/sdk/src/manifest/", "sdk/rust/src/manifest"),
        ("millrace/sdk/src/testing/", "sdk/rust/src/testing"),
        ("millrace/process/src/", "sdk/process/src"),
        ("millrace/plugin-abi/src/process/", "foundation/plugin-abi/src/process"),
        ("", "sdk/c"),
    ];

    #[test]
    fn all_files_of_the_sdk_are_copied_unchanged() {
        let files: Vec<_> = [Language::Rust, Language::C].into_iter().flat_map(files).collect();
        let mut sources = BTreeSet::new();
        for (copy, folder) in COPIES {
            for entry in fs::read_dir(Path::new("../..").join(folder)).unwrap() {
                let source = entry.unwrap();
                if source.file_type().unwrap().is_file() {
                    let name = source.file_name().into_string().unwrap();
                    sources.insert((format!("{copy}{name}"), fs::read_to_string(source.path()).unwrap()));
                }
            }
        }
        let found: BTreeSet<_> = files.into_iter().map(|file| (file.place, file.text)).collect();
        let missing: Vec<_> = sources.difference(&found).map(|(place, _)| place).collect();
        assert!(missing.is_empty() && sources.len() > 30, "{missing:?}");
    }
}
