//! Unix socket of the daemon: one router per path. Starting replaces a stale socket; ending removes the
//! socket's file.

use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, getsockopt, listen, socket, sockopt,
};
use nix::sys::stat::{Mode, fchmod};

use crate::ApiError;

/// Maximum length of a socket path in bytes, without the terminating zero.
const LONGEST: usize = 107;
/// Maximum time to wait for the lock on the directory. Another router that starts at the same time may hold
/// it.
const PATIENCE: Duration = Duration::from_secs(2);
/// Mode of the socket: owner and group may connect.
const MODE: Mode = Mode::from_bits_truncate(0o660);

/// Listening socket. Dropping it removes the socket's file, and the directory if [`Listener::bind`] created
/// the directory.
#[derive(Debug)]
pub struct Listener {
    listener: net::UnixListener,
    file: SocketFile,
}

impl Listener {
    /// Listens at `path`. Creates a missing directory (mode 0755), and replaces a stale socket. Clients may
    /// connect at once; [`crate::Server::run`] answers them.
    ///
    /// # Errors
    /// Returns [`ApiError::Occupied`] if a router listens there, and another error if `path` can't be used.
    /// Nothing has changed then.
    pub fn bind(path: &Path) -> Result<Self, ApiError> {
        let length = path.as_os_str().as_bytes().len();
        if length > LONGEST {
            return Err(ApiError::TooLong { path: path.to_owned(), length });
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let made = make_directory(parent)?;
        // The lock keeps other routers out, from the check of an old socket until the new one listens.
        let _lock =
            lock(parent).and_then(|lock| make_room(path).map(|()| lock)).inspect_err(|_| unmake(&made))?;
        let listener =
            open(path).map_err(ApiError::system("listen at", path)).inspect_err(|_| unmake(&made))?;
        let file = SocketFile::of(path, made)?;
        Ok(Self { listener, file })
    }

    /// Checks whether [`bind`](Self::bind) can listen at `path`, without changes.
    ///
    /// # Errors
    /// Returns the errors of [`bind`](Self::bind), as far as they can be foreseen.
    pub fn look(path: &Path) -> Result<(), ApiError> {
        let length = path.as_os_str().as_bytes().len();
        if length > LONGEST {
            return Err(ApiError::TooLong { path: path.to_owned(), length });
        }
        is_dead(path).map(drop)
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Makes the socket writable for every user, since access control checks each request.
    pub(crate) fn open_to_all(&self) -> Result<(), ApiError> {
        let opened = fs::set_permissions(self.path(), Permissions::from_mode(0o666));
        opened.map_err(ApiError::system("let all users connect at", self.path()))
    }

    /// Returns the socket, and the guard that removes its file.
    pub(crate) fn into_parts(self) -> (net::UnixListener, SocketFile) {
        (self.listener, self.file)
    }
}

/// Guard that removes the socket's file, unless another file has taken its path.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
    made: Option<PathBuf>,
}

impl SocketFile {
    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn of(path: &Path, made: Option<PathBuf>) -> Result<Self, ApiError> {
        let failed = |error| ApiError::system("find", path)(error);
        let path = std::path::absolute(path).map_err(failed)?;
        let made = made.map(std::path::absolute).transpose().map_err(failed)?;
        let metadata = fs::symlink_metadata(&path).map_err(failed)?;
        Ok(Self { identity: (metadata.dev(), metadata.ino()), path, made })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|now| (now.dev(), now.ino()) == self.identity);
        if ours {
            // A failed removal is harmless: the next router replaces the file.
            let _ = fs::remove_file(&self.path);
        }
        unmake(&self.made);
    }
}

/// Creates a missing directory. Returns its path if it was created.
fn make_directory(directory: &Path) -> Result<Option<PathBuf>, ApiError> {
    if directory.is_dir() {
        return Ok(None);
    }
    let made = DirBuilder::new().recursive(true).mode(0o755).create(directory);
    made.map_err(ApiError::system("create the directory", directory))?;
    Ok(Some(directory.to_owned()))
}

/// Removes a created directory, unless it has other content.
fn unmake(made: &Option<PathBuf>) {
    if let Some(directory) = made {
        let _ = fs::remove_dir(directory);
    }
}

/// Locks the directory against other routers. A router holds the lock for a moment only. If it is still held
/// after [`PATIENCE`], another program holds it: any user can lock a directory that it may read. The router
/// then starts without the lock.
fn lock(directory: &Path) -> Result<File, ApiError> {
    let file = File::open(directory).map_err(ApiError::system("open the directory", directory))?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
            Err(TryLockError::WouldBlock) => return Ok(file),
            Err(TryLockError::Error(error)) => {
                return Err(ApiError::system("lock the directory", directory)(error));
            }
        }
    }
}

/// Removes a stale socket.
fn make_room(path: &Path) -> Result<(), ApiError> {
    match is_dead(path)? {
        true => fs::remove_file(path).map_err(ApiError::system("remove the stale socket", path)),
        false => Ok(()),
    }
}

/// Whether `path` is a socket at which no process listens; false if there is no file.
fn is_dead(path: &Path) -> Result<bool, ApiError> {
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        result => result.map_err(ApiError::system("examine", path))?,
    };
    if !metadata.file_type().is_socket() {
        return Err(ApiError::NotASocket { path: path.to_owned() });
    }
    let probe = new_socket().map_err(ApiError::system("create a socket for", path))?;
    let address = UnixAddr::new(path).map_err(ApiError::system("listen at", path))?;
    match connect(probe.as_raw_fd(), &address) {
        Ok(()) => {
            let pid = getsockopt(&probe, sockopt::PeerCredentials).ok().map(|peer| peer.pid());
            Err(ApiError::Occupied { path: path.to_owned(), pid })
        }
        // A full backlog means that a process listens.
        Err(Errno::EAGAIN) => Err(ApiError::Occupied { path: path.to_owned(), pid: None }),
        Err(Errno::ECONNREFUSED) => Ok(true),
        Err(Errno::ENOENT) => Ok(false),
        Err(error) => Err(ApiError::system("probe the socket", path)(error)),
    }
}

fn new_socket() -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Unix, SockType::Stream, flags, None)
}

fn open(path: &Path) -> io::Result<net::UnixListener> {
    let socket = new_socket()?;
    // The umask may clear bits of this mode, so the file is never more open than `MODE`.
    fchmod(&socket, MODE)?;
    bind(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    let listening = fs::set_permissions(path, Permissions::from_mode(MODE.bits()))
        .and_then(|()| listen(&socket, Backlog::new(128)?).map_err(io::Error::from));
    listening.inspect_err(|_| drop(fs::remove_file(path)))?;
    Ok(net::UnixListener::from(socket))
}

#[cfg(test)]
mod tests;
