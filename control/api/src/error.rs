//! Errors of opening the interface.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Error of opening a socket of the interface.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The path does not fit a socket address.
    #[error(
        "socket path {} has {length} bytes, and the limit is 107: choose a shorter path with --socket",
        path.display()
    )]
    TooLong {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
    },
    /// A router is listening there.
    #[error(
        "a router already listens at {}{}: stop that router, or choose another path with --socket",
        path.display(),
        pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    Occupied {
        /// The path.
        path: PathBuf,
        /// Process that listens; `None` when it is too busy to answer.
        pid: Option<i32>,
    },
    /// The path is another kind of file.
    #[error("{} exists and is no socket: remove it, or choose another path with --socket", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The address can't be bound.
    #[error("can't listen at {address}: {error}")]
    Address {
        /// The address.
        address: SocketAddr,
        /// The system's answer.
        error: io::Error,
    },
    /// Two addresses can't both be bound.
    #[error("listen addresses {address} and {other} overlap: remove one, or give it another port")]
    Covered {
        /// The address.
        address: SocketAddr,
        /// The earlier address.
        other: SocketAddr,
    },
    /// A configured certificate can't be used.
    #[error("certificate {} can't be used: {why}", path.display())]
    Certificate {
        /// File of the certificate or key.
        path: PathBuf,
        /// Cause.
        why: String,
    },
    /// A configured certificate has expired.
    #[error("certificate {} expired {since}: replace it", path.display())]
    Expired {
        /// File of the certificate.
        path: PathBuf,
        /// Time of expiry, UTC.
        since: String,
    },
    /// The router can't make its own certificate.
    #[error("can't generate a certificate: {why}")]
    OwnCertificate {
        /// Cause.
        why: String,
    },
    /// A client thread can't serve.
    #[error("can't {what} the thread {name}: {why}")]
    Thread {
        /// Name of the thread.
        name: &'static str,
        /// Failed step.
        what: &'static str,
        /// Cause.
        why: String,
    },
    /// The system refused an operation.
    #[error("can't {action} {}: {source}", path.display())]
    System {
        /// Attempted operation: `create the directory`, `listen at`, …
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

impl ApiError {
    /// Returns the error of `action` at `path`.
    pub(crate) fn system<E: Into<io::Error>>(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(E) -> Self {
        let path = path.into();
        move |source| Self::System { action, path, source: source.into() }
    }
}
