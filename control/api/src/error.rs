//! Errors of opening the API's sockets.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Reason why the API can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// Path that is too long for a socket address.
    #[error(
        "socket path {} has {length} bytes, and the limit is 107: choose a shorter path with --socket",
        path.display()
    )]
    TooLong {
        /// Path of the socket.
        path: PathBuf,
        /// Length of the path in bytes.
        length: usize,
    },
    /// Path at which a router listens already.
    #[error(
        "a router already listens at {}{}: stop that router, or choose another path with --socket",
        path.display(),
        pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    Occupied {
        /// Path of the socket.
        path: PathBuf,
        /// Process id of the router; `None` if it is too busy to accept.
        pid: Option<i32>,
    },
    /// Path of a file that is not a socket.
    #[error("{} exists and is no socket: remove it, or choose another path with --socket", path.display())]
    NotASocket {
        /// Path of the file.
        path: PathBuf,
    },
    /// Address that can't be bound.
    #[error("can't listen at {address}: {error}")]
    Address {
        /// Address to listen at.
        address: SocketAddr,
        /// Error of the operating system.
        error: io::Error,
    },
    /// Address that can't be bound together with an earlier one.
    #[error("listen addresses {address} and {other} overlap: remove one, or give it another port")]
    Covered {
        /// Later address.
        address: SocketAddr,
        /// Earlier address.
        other: SocketAddr,
    },
    /// Configured certificate that can't be used.
    #[error("certificate {} can't be used: {why}", path.display())]
    Certificate {
        /// File of the certificate or key.
        path: PathBuf,
        /// Cause.
        why: String,
    },
    /// Configured certificate that has expired.
    #[error("certificate {} expired {since}: replace it", path.display())]
    Expired {
        /// File of the certificate.
        path: PathBuf,
        /// Time of expiry, UTC.
        since: String,
    },
    /// Self-signed certificate that can't be made.
    #[error("can't generate a certificate: {why}")]
    OwnCertificate {
        /// Cause.
        why: String,
    },
    /// Client thread that can't be started or confined.
    #[error("can't {what} the thread {name}: {why}")]
    Thread {
        /// Name of the thread.
        name: &'static str,
        /// Failed step.
        what: &'static str,
        /// Cause.
        why: String,
    },
    /// Operation that the system refused.
    #[error("can't {action} {}: {source}", path.display())]
    System {
        /// Refused operation: `create the directory`, `listen at`, …
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}

impl ApiError {
    /// Returns a function that makes the error of `action` at `path`.
    pub(crate) fn system<E: Into<io::Error>>(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(E) -> Self {
        let path = path.into();
        move |source| Self::System { action, path, source: source.into() }
    }
}
