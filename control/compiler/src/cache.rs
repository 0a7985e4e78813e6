//! Cache of compiled code on disk. Its content runs as machine code, so it is protected three times. First,
//! the directory and its files belong to the daemon's user, and nobody else may access them. Second, each
//! entry has an authentication tag (HMAC-SHA-256) over its key and its code. The tag uses a secret in the
//! same directory. Third, the tag is checked on the bytes in memory that later run, not on the file.

use std::fmt;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::hash::Hasher;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hmac::{Hmac, Mac};
use millrace_plugin::wasm::{ModuleError, Sandbox, Tier};
use nix::unistd::geteuid;
use sha2::{Digest, Sha256};

/// First bytes of an entry, with the version of the format. The tag and the code follow.
const MAGIC: &[u8; 8] = b"mrcode1\n";
/// Size of a tag, of a key and of the secret, in bytes.
const TAG: usize = 32;
/// Default maximum size of all entries together, in bytes.
const MOST: u64 = 256 << 20;
/// Name of the secret's file.
const SECRET: &str = "secret";
/// Name prefix of files that are not yet complete.
const UNFINISHED: &str = ".new-";
/// Age from which an unfinished file counts as abandoned, so that it may be removed.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Reason why the cache can't be used.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// Other users could write code into the cache.
    #[error(
        "plugin cache: {} {why}: let only the router's user own and access it, or remove it",
        path.display()
    )]
    Foreign {
        /// Path of the file or directory.
        path: PathBuf,
        /// Problem with the owner or mode of the file.
        why: String,
    },
    /// The system refused an operation.
    #[error("can't use {}: {error}", path.display())]
    System {
        /// Path of the file or directory.
        path: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
}

/// Key of an entry: hash of the module, the tier, the engine with all its settings, and the processor's
/// features.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key([u8; TAG]);

impl Key {
    /// Returns the key of a module's code in a tier.
    ///
    /// # Errors
    /// [`ModuleError::Compile`] if this machine does not support the tier.
    pub fn new(sandbox: &Sandbox, wasm: &[u8], tier: Tier) -> Result<Self, ModuleError> {
        let mut hasher = Sha(Sha256::new());
        sandbox.hash_compatibility(tier, &mut hasher)?;
        hasher.0.update(Sha256::digest(wasm));
        Ok(Self(hasher.0.finalize().into()))
    }

    fn file_name(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// SHA-256 as a [`Hasher`].
struct Sha(Sha256);

impl Hasher for Sha {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let digest = self.0.clone().finalize();
        digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

/// Cache of compiled code in a directory.
pub struct Cache {
    directory: PathBuf,
    secret: [u8; TAG],
    most: u64,
}

/// Formats the cache without its secret.
impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl Cache {
    /// Opens the cache in a directory, which is created if missing. The cache keeps up to 256 MiB.
    ///
    /// # Errors
    /// [`CacheError`] if the directory or its secret belongs to another user, or other users have access.
    pub fn open(directory: &Path) -> Result<Self, CacheError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| CacheError::System { path, error }
        };
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed(directory))?;
        let known = fs::symlink_metadata(directory).map_err(failed(directory))?;
        let whole = if known.is_dir() { own(&known) } else { Err("is not a directory".to_owned()) };
        whole.map_err(|why| CacheError::Foreign { path: directory.to_owned(), why })?;
        let path = directory.join(SECRET);
        let secret = secret(directory, &path)?;
        let cache = Self { directory: directory.to_owned(), secret, most: MOST };
        cache.sweep();
        Ok(cache)
    }

    /// Returns the code of a key; `None` if the cache has no entry for the key.
    ///
    /// # Errors
    /// Problem with the entry. The entry is not used, and has been removed.
    pub fn get(&self, key: Key) -> Result<Option<Vec<u8>>, String> {
        let path = self.path(key);
        let content = match read_own(&path, self.most) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.refuse(&path, &error.to_string())),
        };
        let Some(code) = self.verified(key, content) else {
            return Err(self.refuse(&path, "the authentication tag doesn't match the content"));
        };
        // Set the file's time to mark the entry as used. If that fails, the entry is only evicted earlier.
        let _ = File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        Ok(Some(code))
    }

    /// Stores code under a key, and evicts the least recently used entries beyond the maximum size.
    ///
    /// # Errors
    /// The entry can't be written, for example because the disk is full. The plugin then has to be compiled
    /// again.
    pub fn put(&self, key: Key, code: &[u8]) -> io::Result<()> {
        if (MAGIC.len() + TAG + code.len()) as u64 > self.most {
            return Ok(());
        }
        let tag = self.mac(key, code).finalize().into_bytes();
        write_whole(&self.directory, &self.path(key), &[MAGIC, &tag, code])?;
        self.sweep();
        Ok(())
    }

    fn path(&self, key: Key) -> PathBuf {
        self.directory.join(key.file_name())
    }

    fn mac(&self, key: Key, code: &[u8]) -> Hmac<Sha256> {
        keyed(&self.secret).chain_update(MAGIC).chain_update(key.0).chain_update(code)
    }

    fn verified(&self, key: Key, mut content: Vec<u8>) -> Option<Vec<u8>> {
        let (head, code) = content.split_at_checked(MAGIC.len() + TAG)?;
        let tag = head.strip_prefix(MAGIC)?;
        self.mac(key, code).verify_slice(tag).ok()?;
        content.drain(..MAGIC.len() + TAG);
        Some(content)
    }

    /// Removes an invalid entry.
    fn refuse(&self, path: &Path, why: &str) -> String {
        // If the removal fails, the next `put` overwrites the entry.
        let _ = fs::remove_file(path);
        format!("{}: {why}", path.display())
    }

    /// Evicts the least recently used entries beyond the maximum size, and removes abandoned unfinished
    /// files.
    fn sweep(&self) {
        let Ok(files) = fs::read_dir(&self.directory) else { return };
        let mut entries = Vec::new();
        for file in files.flatten() {
            let (Ok(known), name) = (file.metadata(), file.file_name()) else { continue };
            let used = known.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let name = name.to_string_lossy();
            if name.starts_with(UNFINISHED) {
                if used.elapsed().is_ok_and(|age| age > ABANDONED) {
                    let _ = fs::remove_file(file.path());
                }
            } else if name != SECRET && known.is_file() {
                entries.push((used, known.len(), file.path()));
            }
        }
        entries.sort();
        let mut bytes: u64 = entries.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, length, path) in entries {
            if bytes <= self.most {
                break;
            }
            // If a removal fails, the next sweep tries it again.
            if fs::remove_file(path).is_ok() {
                bytes -= length;
            }
        }
    }
}

/// Returns an HMAC keyed with `secret`.
fn keyed(secret: &[u8; TAG]) -> Hmac<Sha256> {
    let mut block = [0; 64];
    block[..TAG].copy_from_slice(secret);
    Hmac::new(&block.into())
}

/// Checks that a file belongs to this user, and that no other user may read or write it.
fn own(known: &Metadata) -> Result<(), String> {
    if known.uid() != geteuid().as_raw() {
        return Err(format!("belongs to user {}, not to the router's user {}", known.uid(), geteuid()));
    }
    match known.mode() & 0o077 {
        0 => Ok(()),
        _ => Err(format!("has mode {:04o}, which lets other users access it", known.mode() & 0o7777)),
    }
}

/// Reads a regular file of this user; symbolic links and other file types are refused.
fn read_own(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let known = file.metadata()?;
    let refused = |why: String| io::Error::new(io::ErrorKind::PermissionDenied, why);
    if !known.is_file() {
        return Err(refused("is not a regular file".to_owned()));
    }
    own(&known).map_err(refused)?;
    let mut content = Vec::with_capacity(known.len().min(most) as usize);
    file.take(most + 1).read_to_end(&mut content)?;
    if content.len() as u64 > most {
        return Err(refused("is longer than allowed".to_owned()));
    }
    Ok(content)
}

/// Returns the secret of a directory; creates the secret if it is missing.
fn secret(directory: &Path, path: &Path) -> Result<[u8; TAG], CacheError> {
    let system = |error| CacheError::System { path: path.to_owned(), error };
    match read_own(path, TAG as u64) {
        Ok(content) => {
            let why = || format!("has {} bytes instead of {TAG}", content.len());
            let foreign = |_| CacheError::Foreign { path: path.to_owned(), why: why() };
            content.as_slice().try_into().map_err(foreign)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut secret = [0; TAG];
            File::open("/dev/urandom")
                .and_then(|mut random| random.read_exact(&mut secret))
                .map_err(system)?;
            write_whole(directory, path, &[&secret]).map_err(system)?;
            Ok(secret)
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(CacheError::Foreign { path: path.to_owned(), why: error.to_string() })
        }
        Err(error) => Err(system(error)),
    }
}

/// Writes a file atomically, with access for this user only.
fn write_whole(directory: &Path, path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let unfinished = directory.join(format!("{UNFINISHED}{}-{number}", std::process::id()));
    let written = write_new(&unfinished, parts).and_then(|()| fs::rename(&unfinished, path));
    if written.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    written
}

fn write_new(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    parts.iter().try_for_each(|part| file.write_all(part))
}

#[cfg(test)]
mod tests;
