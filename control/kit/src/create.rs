//! Creation of a plugin project from a template. The project is complete: it contains the plugin SDK. So it
//! needs neither the router's sources nor a package registry.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use crate::{KitError, Language};

/// Header file that is the SDK for C.
pub(crate) const C_HEADER: &str = include_str!("../../../sdk/c/millrace.h");

/// Expands to a list of the Rust SDK's files, each with its path in `sdk/rust/src` and its text.
macro_rules! sdk {
    ($($file:literal),* $(,)?) => {
        &[$((concat!("millrace/sdk/src/", $file), include_str!(concat!("../../../sdk/rust/src/", $file)))),*]
    };
}
const RUST_SDK: &[(&str, &str)] = sdk![
    "backlog.rs",
    "exceptions.rs",
    "features.rs",
    "glue.rs",
    "host.rs",
    "json.rs",
    "lib.rs",
    "manifest.rs",
    "map.rs",
    "packet.rs",
    "packets.rs",
    "plain.rs",
    "plugin.rs",
    "runtime.rs",
    "testing/frame.rs",
    "testing/mod.rs",
    "testing/pcap.rs",
    "testing/record.rs",
];

/// Files of the Rust SDK outside `sdk/rust/src`.
const RUST_KIT: &[(&str, &str)] = &[
    ("millrace/sdk/Cargo.toml", include_str!("../templates/rust/sdk.toml")),
    ("millrace/plugin-abi/Cargo.toml", include_str!("../templates/rust/plugin-abi.toml")),
    ("millrace/plugin-abi/src/lib.rs", include_str!("../templates/rust/plugin-abi.rs")),
    ("millrace/plugin-abi/src/binary.rs", include_str!("../../../foundation/plugin-abi/src/binary.rs")),
    ("millrace/plugin-abi/src/features.rs", include_str!("../../../foundation/plugin-abi/src/features.rs")),
];

const RUST: &[(&str, &str)] = &[
    ("Cargo.toml", include_str!("../templates/rust/project.toml")),
    ("src/lib.rs", include_str!("../templates/rust/lib.template")),
    ("tests/plugin.rs", include_str!("../templates/rust/test.template")),
    (".gitignore", include_str!("../templates/gitignore")),
];

const C: &[(&str, &str)] = &[
    ("plugin.c", include_str!("../templates/c/plugin.c")),
    ("millrace.h", C_HEADER),
    (".gitignore", include_str!("../templates/gitignore")),
];

/// Names that a plugin can't have: cargo or the compiler reserves them, or other crates of the project use
/// them.
const TAKEN: [&str; 9] = [
    "alloc",
    "core",
    "std",
    "test",
    "proc_macro",
    "millrace-sdk",
    "millrace_sdk",
    "millrace-plugin-abi",
    "crate",
];

/// Rust keywords, which can't name a crate, separated by spaces.
const WORDS: &str = "abstract as async await become box break const continue do dyn else enum extern false final fn for \
    gen if impl in let loop macro match mod move mut override priv pub ref return self static struct super trait true try \
    type typeof unsafe unsized use virtual where while yield";

/// Writes the project of a plugin into a new folder. Returns the files in the order of writing; the plugin's
/// source is one of the first two.
///
/// # Errors
/// An invalid name, an existing folder, or a refusal of the system.
pub fn new(name: &str, language: Language, directory: &Path) -> Result<Vec<PathBuf>, KitError> {
    check(name)?;
    if directory.symlink_metadata().is_ok() {
        return Err(KitError::Exists(directory.to_owned()));
    }
    let parts: &[&[(&str, &str)]] = match language {
        Language::Rust => &[RUST, RUST_KIT, RUST_SDK],
        Language::C => &[C],
    };
    let mut files = Vec::new();
    for (place, text) in parts.iter().copied().flatten() {
        let file = directory.join(place);
        write(&file, &text.replace("PLUGIN_NAME", name).replace("PLUGIN_CRATE", &name.replace('-', "_")))?;
        files.push(file);
    }
    Ok(files)
}

/// Checks that a name is valid for the router, for cargo, and for files.
fn check(name: &str) -> Result<(), KitError> {
    let refuse = |problem| Err(KitError::Name { name: name.to_owned(), problem });
    if name.is_empty() || name.len() > 64 {
        return refuse("give 1 to 64 characters");
    }
    if !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return refuse("begin the name with an ASCII letter");
    }
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')) {
        return refuse("use only ASCII letters, digits, '-' and '_'");
    }
    if TAKEN.contains(&name) || WORDS.split_whitespace().any(|word| word == name) {
        return refuse(
            "Rust, Cargo or the SDK reserves this name; choose another, for example with a word added",
        );
    }
    Ok(())
}

/// Writes a file, and creates missing folders. An existing file is replaced; a symbolic link is not followed.
pub(crate) fn write(file: &Path, text: &str) -> Result<(), KitError> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).map_err(KitError::io(folder))?;
    }
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(KitError::io(file)(error)),
        _ => {}
    }
    let written = File::create_new(file).and_then(|mut made| made.write_all(text.as_bytes()));
    written.map_err(KitError::io(file))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::env;

    use super::*;

    fn folder(test: &str) -> PathBuf {
        env::temp_dir().join(format!("millrace-kit-{test}-{}", std::process::id()))
    }

    #[test]
    fn new_project_has_its_name_and_the_kit() {
        for (language, source) in [(Language::Rust, "src/lib.rs"), (Language::C, "plugin.c")] {
            let folder = folder(&format!("new-{language}"));
            let files = new("my-plugin", language, &folder).unwrap();
            assert!(files[..2].contains(&folder.join(source)));
            let text = fs::read_to_string(folder.join(source)).unwrap();
            assert!(text.contains("my-plugin") && !text.contains("PLUGIN_"), "{text}");
            assert!(matches!(new("my-plugin", language, &folder), Err(KitError::Exists(_))));
            fs::remove_dir_all(&folder).unwrap();
        }
    }

    #[test]
    fn names_that_make_trouble_are_refused() {
        let place = folder("names");
        let long = "a".repeat(65);
        for name in
            ["", "9lives", "-a", "a b", "a/b", "../a", "größe", "a.b", "fn", "std", "millrace-sdk", &long]
        {
            assert!(matches!(new(name, Language::C, &place), Err(KitError::Name { .. })), "{name}");
        }
        assert!(!place.exists());
    }

    #[test]
    fn all_files_of_the_kit_are_copied() {
        let sources = Path::new("../../sdk/rust/src");
        let mut found = BTreeSet::new();
        for folder in ["", "testing/"] {
            for file in fs::read_dir(sources.join(folder)).unwrap() {
                let name = file.unwrap().file_name().into_string().unwrap();
                if name.ends_with(".rs") {
                    found.insert(format!("millrace/sdk/src/{folder}{name}"));
                }
            }
        }
        let copied: BTreeSet<_> = RUST_SDK.iter().map(|(place, _)| (*place).to_owned()).collect();
        assert_eq!(copied, found);
    }

    #[test]
    fn a_file_takes_the_place_of_a_link() {
        let folder = folder("link");
        fs::create_dir_all(&folder).unwrap();
        let (victim, link) = (folder.join("victim"), folder.join("link"));
        fs::write(&victim, "kept").unwrap();
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        write(&link, "new").unwrap();
        let read = |file: &Path| fs::read_to_string(file).unwrap();
        assert_eq!((&*read(&victim), &*read(&link)), ("kept", "new"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
