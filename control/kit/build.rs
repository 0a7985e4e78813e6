//! Packs the files of new plugin projects, and of the SDK in them, into one compressed archive. The binary of
//! the router contains the archive (`src/archive.rs`).

use std::collections::HashMap;
use std::path::Path;
use std::{env, fs};

/// Files of a project in Rust: their places in the project, and their sources in this folder.
const RUST: &[(&str, &str)] = &[
    ("Cargo.toml", "templates/rust/project.toml"),
    ("src/lib.rs", "templates/rust/lib.template"),
    ("src/main.rs", "templates/rust/main.template"),
    ("tests/plugin.rs", "templates/rust/test.template"),
    (".gitignore", "templates/gitignore"),
    ("millrace/sdk/Cargo.toml", "templates/rust/sdk.toml"),
    ("millrace/process/Cargo.toml", "templates/rust/process.toml"),
    ("millrace/plugin-abi/Cargo.toml", "templates/rust/plugin-abi.toml"),
    ("millrace/plugin-abi/src/lib.rs", "templates/rust/plugin-abi.rs"),
    ("millrace/plugin-abi/src/binary.rs", "../../foundation/plugin-abi/src/binary.rs"),
    ("millrace/plugin-abi/src/features.rs", "../../foundation/plugin-abi/src/features.rs"),
];

/// Folders whose Rust files are copied to a project in Rust: their places, and their sources.
const RUST_FOLDERS: &[(&str, &str)] = &[
    ("millrace/sdk/src", "../../sdk/rust/src"),
    ("millrace/sdk/src/manifest", "../../sdk/rust/src/manifest"),
    ("millrace/sdk/src/testing", "../../sdk/rust/src/testing"),
    ("millrace/process/src", "../../sdk/process/src"),
    ("millrace/plugin-abi/src/process", "../../foundation/plugin-abi/src/process"),
];

/// Files of a project in C.
const C: &[(&str, &str)] = &[
    ("plugin.c", "templates/c/plugin.c"),
    ("millrace.h", "../../sdk/c/millrace.h"),
    ("millrace-process.h", "../../sdk/c/millrace-process.h"),
    (".gitignore", "templates/gitignore"),
];

/// Minimum and maximum length of a repetition, and its maximum distance, in bytes.
const LENGTHS: (usize, usize) = (4, 259);
const DISTANCE: usize = u16::MAX as usize;
/// Number of earlier places that are compared.
const TRIES: usize = 64;

fn main() {
    let mut archive = Vec::new();
    for (place, source) in RUST {
        add(&mut archive, "rust", place, Path::new(source));
    }
    for (place, folder) in RUST_FOLDERS {
        println!("cargo::rerun-if-changed={folder}");
        let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder}: {error}"));
        let mut sources: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        sources.sort();
        for source in sources.iter().filter(|source| source.extension().is_some_and(|kind| kind == "rs")) {
            let name = source.file_name().unwrap_or_default().to_string_lossy();
            add(&mut archive, "rust", &format!("{place}/{name}"), source);
        }
    }
    for (place, source) in C {
        add(&mut archive, "c", place, Path::new(source));
    }
    let folder = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    fs::write(Path::new(&folder).join("projects"), packed(&archive)).expect("the archive can be written");
}

/// Appends a file: language, place and text, each with a zero behind it.
fn add(archive: &mut Vec<u8>, language: &str, place: &str, source: &Path) {
    println!("cargo::rerun-if-changed={}", source.display());
    let text = fs::read_to_string(source).unwrap_or_else(|error| panic!("{}: {error}", source.display()));
    assert!(!text.contains('\0'), "{}: a zero ends a text", source.display());
    for part in [language, place, &text] {
        archive.extend(part.bytes());
        archive.push(0);
    }
}

/// Compresses bytes (LZSS): groups of eight parts behind a byte with a bit for each. The bit is 0 for a single
/// byte, and 1 for a repetition: distance (two bytes) and length.
fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut places = HashMap::<&[u8], Vec<usize>>::new();
    let (mut at, mut parts) = (0, 0);
    let mut flags = 0;
    while let Some(&byte) = bytes.get(at) {
        if parts % 8 == 0 {
            flags = packed.len();
            packed.push(0);
        }
        let known = bytes.get(at..at + LENGTHS.0).and_then(|start| places.get(start));
        let length = |from: &usize| {
            let same = bytes[at..].iter().zip(&bytes[*from..]).take(LENGTHS.1);
            same.take_while(|(a, b)| a == b).count()
        };
        let near = known.into_iter().flatten().rev().take(TRIES).filter(|from| at - **from <= DISTANCE);
        let step = match near.max_by_key(|from| length(from)) {
            Some(from) => {
                packed[flags] |= 1 << (parts % 8);
                packed.extend(((at - from) as u16).to_le_bytes());
                packed.push((length(from) - LENGTHS.0) as u8);
                length(from)
            }
            None => {
                packed.push(byte);
                1
            }
        };
        for place in at..at + step {
            if let Some(start) = bytes.get(place..place + LENGTHS.0) {
                places.entry(start).or_default().push(place);
            }
        }
        (at, parts) = (at + step, parts + 1);
    }
    packed
}
