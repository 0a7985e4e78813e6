//! Compiled code on disk. What is read is run as machine code, so three things stand before that: the directory and its files
//! are the daemon's own and nobody else may write there; each entry bears a tag (HMAC-SHA-256) over its key and all of its
//! code, under a secret that lies beside; and the tag is checked on the bytes in memory that are used afterwards.

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

/// What an entry begins with: the form of what follows, which is the tag and the code.
const MAGIC: &[u8; 8] = b"mrcode1\n";
/// Bytes of a tag, of a key and of the secret.
const TAG: usize = 32;
/// Bytes of all entries, unless it is said otherwise.
const MOST: u64 = 256 << 20;
/// The file of the secret.
const SECRET: &str = "secret";
/// How files are named that are still written.
const UNFINISHED: &str = ".new-";
/// Age from which such a file is one that nobody writes any more.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Why there is no cache.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// Others could put code there.
    #[error("{}: {why}: the plugin cache must be accessible to the router's user only", path.display())]
    Foreign {
        /// What.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The system refused.
    #[error("{}: {error}", path.display())]
    System {
        /// What.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// What code is kept under: the module, the tier, the engine with all its settings, and the processor's features.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key([u8; TAG]);

impl Key {
    /// The key of a module's code of a tier.
    ///
    /// # Errors
    /// [`ModuleError::Compile`] when there is no such tier on this machine.
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

/// SHA-256 for what can be hashed.
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

/// Compiled code, in a directory.
pub struct Cache {
    directory: PathBuf,
    secret: [u8; TAG],
    most: u64,
}

/// Without the secret.
impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl Cache {
    /// The cache in a directory, which is made if it isn't there. It keeps 256 MiB.
    ///
    /// # Errors
    /// [`CacheError`] when the directory or the secret in it is another user's, or when others may write there.
    pub fn open(directory: &Path) -> Result<Self, CacheError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| CacheError::System { path, error }
        };
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed(directory))?;
        let known = fs::symlink_metadata(directory).map_err(failed(directory))?;
        let whole = if known.is_dir() { own(&known) } else { Err("is no directory".to_owned()) };
        whole.map_err(|why| CacheError::Foreign { path: directory.to_owned(), why })?;
        let path = directory.join(SECRET);
        let secret = secret(directory, &path)?;
        let cache = Self { directory: directory.to_owned(), secret, most: MOST };
        cache.sweep();
        Ok(cache)
    }

    /// The same, keeping at most so many bytes.
    #[must_use]
    pub fn keeping(self, most: u64) -> Self {
        Self { most, ..self }
    }

    /// The code under a key; `None` when there is none.
    ///
    /// # Errors
    /// What is wrong with the entry: none of it must be used, and it is gone.
    pub fn get(&self, key: Key) -> Result<Option<Vec<u8>>, String> {
        let path = self.path(key);
        let content = match read_own(&path, self.most) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.refuse(&path, &error.to_string())),
        };
        let Some(code) = self.verified(key, content) else {
            return Err(self.refuse(&path, "its tag is not that of its content"));
        };
        // What was used last goes last; an entry whose time can't be set goes earlier.
        let _ = File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        Ok(Some(code))
    }

    /// Keeps code under a key, and lets go of what was not used for the longest time when there is too much.
    ///
    /// # Errors
    /// When it can't be written: the disk is full, for one. Nothing is lost but time then.
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

    /// Removes an entry that must not be used.
    fn refuse(&self, path: &Path, why: &str) -> String {
        // The next one is written over it in any case.
        let _ = fs::remove_file(path);
        format!("{}: {why}", path.display())
    }

    /// Removes what is too much, and what was left behind unfinished.
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
            // One that stays is tried again the next time.
            if fs::remove_file(path).is_ok() {
                bytes -= length;
            }
        }
    }
}

/// HMAC under a secret. All lengths of secrets are allowed.
fn keyed(secret: &[u8; TAG]) -> Hmac<Sha256> {
    let mut block = [0; 64];
    block[..TAG].copy_from_slice(secret);
    Hmac::new(&block.into())
}

/// Whether a file is this user's, and nobody else may write to it or read it.
fn own(known: &Metadata) -> Result<(), String> {
    if known.uid() != geteuid().as_raw() {
        return Err(format!("belongs to the user {}, not to {}", known.uid(), geteuid()));
    }
    match known.mode() & 0o077 {
        0 => Ok(()),
        _ => Err(format!("has the mode {:04o}: others must not have any access", known.mode() & 0o7777)),
    }
}

/// Reads a file of this user that is none of a link's or of anything but a file.
fn read_own(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let known = file.metadata()?;
    let refused = |why: String| io::Error::new(io::ErrorKind::PermissionDenied, why);
    if !known.is_file() {
        return Err(refused("is no regular file".to_owned()));
    }
    own(&known).map_err(refused)?;
    let mut content = Vec::with_capacity(known.len().min(most) as usize);
    file.take(most + 1).read_to_end(&mut content)?;
    if content.len() as u64 > most {
        return Err(refused("is too long".to_owned()));
    }
    Ok(content)
}

/// The secret of a directory, which is made if it isn't there.
fn secret(directory: &Path, path: &Path) -> Result<[u8; TAG], CacheError> {
    let system = |error| CacheError::System { path: path.to_owned(), error };
    match read_own(path, TAG as u64) {
        Ok(content) => {
            let why = || format!("has {} bytes, and has to have {TAG}", content.len());
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

/// Writes a file so that it is there as a whole or not at all, for this user only.
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
