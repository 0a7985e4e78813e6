//! Files of keys and signatures.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use millrace_plugin::manifest_of;
use millrace_plugin::wasm::MOST_MODULE;
use millrace_port::create_output;

use crate::notebook::read_at_most;
use crate::signature::Signature;
use crate::{
    Claims, KeyId, MOST_SIGNATURE, Origin, PublicKey, RepositoryError, SecretKey, SecretKeyProblem, Trust,
    sign,
};

/// Key pair that was written to files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GeneratedKey {
    /// File of the secret key, which only its owner can read.
    pub secret: PathBuf,
    /// File of the public key.
    pub public: PathBuf,
    /// Public key.
    pub key: PublicKey,
}

/// Signature of a plugin that was written to a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SignedFile {
    /// File of the signature.
    pub signature: PathBuf,
    /// Claims that were signed beside the plugin's bytes.
    pub claims: Claims,
    /// Public key for checking the signature.
    pub key: PublicKey,
}

/// Returns the path of the signature of a plugin's file.
pub fn signature_path(plugin: &Path) -> PathBuf {
    let mut path = plugin.as_os_str().to_owned();
    path.push(".minisig");
    path.into()
}

/// Generates a key pair, and writes it to `secret` and to a file beside it that ends in `.pub`.
///
/// # Errors
/// A file exists, or the system refuses; nothing is written then.
pub fn generate(secret: &Path) -> Result<GeneratedKey, RepositoryError> {
    let public = secret.with_extension("pub");
    if public == secret {
        return Err(RepositoryError::KeyName(secret.to_owned()));
    }
    let generated = SecretKey::generate()?;
    let (text, key) = (generated.text()?, generated.public()?);
    write_new(secret, &text, 0o600)?;
    let lines = format!("untrusted comment: minisign public key {}\n{key}\n", key.id());
    if let Err(error) = write_new(&public, &lines, 0o644) {
        // Remove the secret key, which is useless without the public key. `error` is the reason why the
        // public key is missing.
        let _ = fs::remove_file(secret);
        return Err(error);
    }
    Ok(GeneratedKey { secret: secret.to_owned(), public, key })
}

/// Writes a file that does not exist yet.
fn write_new(file: &Path, text: &str, mode: u32) -> Result<(), RepositoryError> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(file);
    let mut opened = opened.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => RepositoryError::Exists(file.to_owned()),
        _ => RepositoryError::io(file)(error),
    })?;
    opened.write_all(text.as_bytes()).and_then(|()| opened.sync_all()).map_err(RepositoryError::io(file))
}

/// Signs a plugin. `plugin` is its file, and `secret` is the file of the key. Writes the signature beside the
/// plugin, and overwrites an existing one. A shared object is loaded for this, so its constructors run.
///
/// # Errors
/// The file is no plugin, the key is invalid or needs a password, or the system refuses.
pub fn sign_file(plugin: &Path, secret: &Path) -> Result<SignedFile, RepositoryError> {
    let module = read(plugin, MOST_MODULE)?;
    let no_plugin = |problem: String| RepositoryError::NoPlugin { file: plugin.to_owned(), problem };
    let manifest = manifest_of(&module).map_err(no_plugin)?;
    let claims = Claims::of(&manifest);
    let text = String::from_utf8(read(secret, 4096)?).unwrap_or_default();
    let key = text.parse::<SecretKey>().map_err(|problem| match problem {
        SecretKeyProblem::Protected => RepositoryError::Protected {
            file: secret.to_owned(),
            plugin: plugin.to_owned(),
            comment: claims.to_string(),
        },
        SecretKeyProblem::Other(problem) => RepositoryError::SecretKey { file: secret.to_owned(), problem },
    })?;
    let signature = signature_path(plugin);
    let lines = sign(&module, &claims, &key)?;
    let written = create_output(&signature).and_then(|mut file| file.write_all(lines.as_bytes()));
    written.map_err(RepositoryError::io(&signature))?;
    Ok(SignedFile { signature, claims, key: key.public()? })
}

/// State of a plugin's signature, checked by a command without a router.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SignatureState {
    /// No signature.
    Unsigned,
    /// Signature by this key, unchecked because no trusted keys were given.
    Unchecked(KeyId),
    /// Valid signature by this key.
    Good(KeyId),
    /// Unreadable or invalid signature.
    Bad(String),
}

impl fmt::Display for SignatureState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned => f.write_str("unsigned"),
            Self::Unchecked(key) => {
                write!(f, "by key {key}, not checked: to check it, give the public key")
            }
            Self::Good(key) => write!(f, "signed by {key}"),
            Self::Bad(problem) => write!(f, "invalid: {problem}"),
        }
    }
}

/// Returns the state of the signature beside a plugin's file. `module` holds the bytes of that file. The
/// check is the same as in a router that trusts `keys`.
pub fn signature_state(plugin: &Path, module: &[u8], keys: Vec<PublicKey>) -> SignatureState {
    let file = match read(&signature_path(plugin), MOST_SIGNATURE) {
        Ok(file) => file,
        Err(RepositoryError::Io { error, .. }) if error.kind() == ErrorKind::NotFound => {
            return SignatureState::Unsigned;
        }
        Err(error) => return SignatureState::Bad(error.to_string()),
    };
    if keys.is_empty() {
        return match Signature::read(&file) {
            Ok(signature) => SignatureState::Unchecked(signature.key),
            Err(problem) => SignatureState::Bad(problem.to_string()),
        };
    }
    let origin = Trust::new(keys, None).check(module, Some(&file)).map_err(|problem| problem.to_string());
    let origin = origin.and_then(|checked| {
        let manifest = manifest_of(module)?;
        checked.fits(&manifest).map_err(|problem| problem.to_string())
    });
    match origin {
        Ok(Origin::Signed(key)) => SignatureState::Good(key),
        Ok(Origin::Unsigned) => SignatureState::Unsigned,
        Err(problem) => SignatureState::Bad(problem),
    }
}

fn read(file: &Path, most: usize) -> Result<Vec<u8>, RepositoryError> {
    File::open(file).and_then(|opened| read_at_most(opened, most)).map_err(RepositoryError::io(file))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::test_folder::Folder;

    #[test]
    fn keys_are_the_owners_and_are_not_overwritten() {
        let folder = Folder::new("keys");
        let file = folder.0.join("mine.key");
        let made = generate(&file).unwrap();
        assert_eq!(made.public, folder.0.join("mine.pub"));
        let mode = |file: &Path| fs::metadata(file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&made.secret), 0o600);
        let before = fs::read(&file).unwrap();
        assert!(matches!(generate(&file), Err(RepositoryError::Exists(_))));
        assert_eq!(fs::read(&file).unwrap(), before);
        fs::remove_file(&file).unwrap();
        assert!(matches!(generate(&file), Err(RepositoryError::Exists(path)) if path == made.public));
        assert!(!file.exists());
        assert!(matches!(generate(&folder.0.join("x.pub")), Err(RepositoryError::KeyName(_))));
        let text = fs::read_to_string(&made.public).unwrap();
        assert_eq!(text.lines().nth(1).unwrap().parse::<PublicKey>().unwrap(), made.key);
        assert!(text.contains(&made.key.id().to_string()));
    }

    /// Returns the smallest module with a manifest and the exports that a plugin must have.
    fn plugin() -> Vec<u8> {
        let manifest = r#"{"abi":1,"name":"a","version":"1.0.0","summary":"x","positions":["late"]}"#;
        let text = format!(
            r#"(module (@custom "millrace.manifest" "{}") (memory (export "memory") 1)
            (func (export "millrace_abi") (result i32) i32.const 1)
            (func (export "millrace_reserve") (param i32) (result i32) i32.const 1024)
            (func (export "millrace_release") (param i32 i32))
            (func (export "millrace_init") (param i32 i32) (result i32) i32.const 0)
            (func (export "millrace_packets") (param i32)))"#,
            manifest.replace('"', "\\\"")
        );
        wat::parse_str(text).unwrap()
    }

    #[test]
    fn the_signature_beside_a_plugin_is_seen() {
        let folder = Folder::new("state");
        let made = generate(&folder.0.join("mine.key")).unwrap();
        let (file, module) = (folder.0.join("a.wasm"), plugin());
        fs::write(&file, &module).unwrap();
        let state = |keys| signature_state(&file, &module, keys);
        assert_eq!(state(vec![made.key.clone()]), SignatureState::Unsigned);
        let signed = sign_file(&file, &made.secret).unwrap();
        assert_eq!(signed.claims.to_string(), "millrace name=a version=1.0.0 capabilities=none");
        assert_eq!(state(vec![]), SignatureState::Unchecked(made.key.id()));
        assert_eq!(state(vec![made.key.clone()]), SignatureState::Good(made.key.id()));
        let other = SecretKey::generate().unwrap().public().unwrap();
        assert!(matches!(state(vec![other]), SignatureState::Bad(_)));
        fs::write(&signed.signature, "junk").unwrap();
        assert!(matches!(state(vec![]), SignatureState::Bad(_)));
    }

    #[test]
    fn only_plugins_are_signed() {
        let folder = Folder::new("sign");
        let made = generate(&folder.0.join("mine.key")).unwrap();
        let file = folder.0.join("x.wasm");
        assert!(matches!(sign_file(&file, &made.secret), Err(RepositoryError::Io { .. })));
        fs::write(&file, "nothing").unwrap();
        let refused = sign_file(&file, &made.secret).unwrap_err().to_string();
        assert!(refused.contains("not a WebAssembly module"), "{refused}");
        assert!(!signature_path(&file).exists());
    }
}
