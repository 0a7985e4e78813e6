//! Errors of checking signatures of plugins, and of making keys and signatures.

use std::io;
use std::path::PathBuf;

use crate::{KeyId, Version};

/// Reason why the router refuses a plugin because of its signature or version.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Untrusted {
    /// The plugin has no signature, but needs one.
    #[error(
        "it is unsigned, and the configuration refuses unsigned plugins: sign it with `millrace plugin \
         sign`, and put the .minisig file beside it"
    )]
    Unsigned,
    /// The signature file has an invalid format.
    #[error("its signature can't be read: {0}; sign the plugin again")]
    Form(&'static str),
    /// No trusted key made the signature.
    #[error(
        "its signature is by key {0}, which [plugins] keys doesn't list: add the public key there, or sign \
         with a listed key"
    )]
    UnknownKey(KeyId),
    /// The signature is for other bytes.
    #[error(
        "its signature with the key {0} does not match: the module or the signature was changed after signing; \
         sign it again"
    )]
    Changed(KeyId),
    /// The signature is for a plugin with another name, version or set of capabilities.
    #[error("its signature is for {signed:?}, but its manifest says {found:?}: sign the plugin again")]
    OtherPlugin {
        /// Claims in the signature.
        signed: String,
        /// Claims of the manifest.
        found: String,
    },
    /// A newer version was loaded before.
    #[error(
        "version {version} of {name} is older than {highest}, which was loaded before: to load it anyway, \
         use --allow-downgrade"
    )]
    Older {
        /// Name of the plugin.
        name: String,
        /// Version of the plugin.
        version: Version,
        /// Highest version loaded so far.
        highest: Version,
    },
    /// The record of the versions loaded before is damaged.
    #[error(
        "can't check {name} {version} for a downgrade: {damage}: to load it anyway and start a new version \
         file, use --allow-downgrade"
    )]
    Forgotten {
        /// Name of the plugin.
        name: String,
        /// Version of the plugin.
        version: Version,
        /// Damage of the version file.
        damage: String,
    },
    /// The manifest's version is not of the form `major.minor.patch`.
    #[error("invalid version in the manifest: {0}")]
    Version(String),
}

/// Error of making a key or a signature.
#[derive(Debug, thiserror::Error)]
pub enum RepositoryError {
    /// The text is no public key.
    #[error("{text:?} is no public key: give the line of 56 characters in the .pub file that begins with RW")]
    PublicKey {
        /// The text, or its beginning.
        text: String,
    },
    /// The file holds no secret key.
    #[error("{}: not a secret key made by `millrace plugin keygen` or minisign: {problem}", file.display())]
    SecretKey {
        /// Path of the file.
        file: PathBuf,
        /// Problem with the file.
        problem: String,
    },
    /// The secret key needs a password.
    #[error(
        "{file}: the key is protected by a password: sign with minisign -S -s {file} -m {plugin} -t '{comment}'",
        file = file.display(), plugin = plugin.display()
    )]
    Protected {
        /// File of the key.
        file: PathBuf,
        /// File of the plugin.
        plugin: PathBuf,
        /// The trusted comment that the signature needs.
        comment: String,
    },
    /// The file exists and would be overwritten.
    #[error("{} exists already, and keys are not overwritten: give another file with --out", .0.display())]
    Exists(PathBuf),
    /// The secret and the public key would have the same file.
    #[error(
        "{}: .pub is the extension of the public key: for the secret key, give a file that ends in .key",
        .0.display()
    )]
    KeyName(PathBuf),
    /// The file to sign is no plugin.
    #[error("{}: {problem}", file.display())]
    NoPlugin {
        /// Path of the file.
        file: PathBuf,
        /// Problem with the file.
        problem: String,
    },
    /// The signature can't be made: the system has no random numbers, or the key is invalid.
    #[error("can't {what}: {problem}")]
    Signing {
        /// Operation that failed.
        what: &'static str,
        /// Reason of the failure.
        problem: String,
    },
    /// The system refused an operation on a file.
    #[error("{}: {error}", file.display())]
    Io {
        /// Path of the file.
        file: PathBuf,
        /// Error of the operating system.
        #[source]
        error: io::Error,
    },
}

impl RepositoryError {
    /// Returns a function that converts I/O errors about a file.
    pub(crate) fn io(file: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let file = file.into();
        move |error| Self::Io { file, error }
    }
}
