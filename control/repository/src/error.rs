//! Why a plugin is not trusted, and why a key or a signature could not be made.

use std::io;
use std::path::PathBuf;

use crate::{KeyId, Version};

/// Why a plugin is not loaded, by what its signature says.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Untrusted {
    /// It has no signature, and needs one.
    #[error(
        "it is unsigned, and the configuration refuses that: sign it with `millrace plugin sign`, and put the .minisig file beside it"
    )]
    Unsigned,
    /// The signature's file has another form.
    #[error("its signature can't be read: {0}")]
    Form(&'static str),
    /// No key that is trusted has made the signature.
    #[error("its signature was made with the key {0}, which is none of the configuration's [plugins] keys")]
    UnknownKey(KeyId),
    /// The signature is of other bytes.
    #[error(
        "its signature with the key {0} does not fit: the module or the signature was changed since it was signed"
    )]
    Changed(KeyId),
    /// The signature is of a plugin with another name, version or other capabilities.
    #[error("its signature is for {signed:?}, and its manifest says {found:?}")]
    OtherPlugin {
        /// What the signature says.
        signed: String,
        /// What it would have to say.
        found: String,
    },
    /// A newer one was loaded before.
    #[error(
        "version {version} of {name} is older than {highest}, which was loaded before: say --allow-downgrade if that is meant"
    )]
    Older {
        /// The plugin's name.
        name: String,
        /// Its version.
        version: Version,
        /// The highest one so far.
        highest: Version,
    },
    /// What was loaded before is not known.
    #[error(
        "can't check {name} {version} for a downgrade: {damage}: --allow-downgrade loads it and starts a new version file"
    )]
    Forgotten {
        /// The plugin's name.
        name: String,
        /// Its version.
        version: Version,
        /// What is wrong with the file.
        damage: String,
    },
    /// The manifest's version has no order.
    #[error("its version: {0}")]
    Version(String),
}

/// Why a key or a signature could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RepositoryError {
    /// The text is no public key.
    #[error("{text:?} is no public key: give the line of 56 characters, from RW on, out of the .pub file")]
    PublicKey {
        /// The text, or what begins it.
        text: String,
    },
    /// The file holds no secret key.
    #[error("{}: this is no secret key that `millrace plugin keygen` or minisign writes: {problem}", file.display())]
    SecretKey {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The secret key can't be used without a password.
    #[error(
        "{file}: the key is protected by a password: sign with minisign -S -s {file} -m {plugin} -t '{comment}'",
        file = file.display(), plugin = plugin.display()
    )]
    Protected {
        /// The key's file.
        file: PathBuf,
        /// The plugin's.
        plugin: PathBuf,
        /// The trusted comment that the signature needs.
        comment: String,
    },
    /// A file that would be overwritten.
    #[error("{} exists already: keys are not overwritten; give another name by --out", .0.display())]
    Exists(PathBuf),
    /// The secret and the public key would have the same file.
    #[error("{}: this is the name of the public key's file; give one that ends in .key", .0.display())]
    KeyName(PathBuf),
    /// What is to be signed is no plugin.
    #[error("{}: {problem}", file.display())]
    NoPlugin {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The system gives no random numbers, or the key is unfit.
    #[error("can't {what}: {problem}")]
    Signing {
        /// What was to be done.
        what: &'static str,
        /// Why it can't be done.
        problem: String,
    },
    /// The system has refused something.
    #[error("{}: {error}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
}

impl RepositoryError {
    /// Makes errors about a file.
    pub(crate) fn io(file: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let file = file.into();
        move |error| Self::Io { file, error }
    }
}
