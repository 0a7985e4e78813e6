//! Creation of a plugin project from a template. The project is complete: it contains the plugin SDK. So it
//! needs neither the router's sources nor a package registry.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use crate::archive::{self, ProjectFile};
use crate::{KitError, Language};

/// Names that a plugin can't have: cargo or the compiler reserves them, or other crates of the project use
/// them.
const TAKEN: [&str; 10] = [
    "alloc",
    "core",
    "std",
    "test",
    "proc_macro",
    "millrace-sdk",
    "millrace_sdk",
    "millrace-plugin-abi",
    "millrace-process",
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
    let mut files = Vec::new();
    for ProjectFile { place, text } in archive::files(language) {
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
