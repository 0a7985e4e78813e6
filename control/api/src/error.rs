//! Why the interface could not be opened.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a socket could not be listened at.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The path does not fit a socket address.
    #[error("socket path {} is {length} bytes long: at most 107 fit, choose a shorter one with --socket", path.display())]
    TooLong {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
    },
    /// A router is listening there.
    #[error(
        "a router already listens at {}{}: stop that one, or choose another path with --socket",
        path.display(),
        pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    Occupied {
        /// The path.
        path: PathBuf,
        /// The process that listens; unknown when it is too busy to answer.
        pid: Option<i32>,
    },
    /// Something else is there.
    #[error("{} exists and is no socket: it stays as it is, choose another path with --socket", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// An address can't be listened at.
    #[error("can't listen at {address}: {error}")]
    Address {
        /// The address.
        address: SocketAddr,
        /// The system's answer.
        error: io::Error,
    },
    /// Two addresses can't both be listened at.
    #[error(
        "{address} and {other} are the same, or one is all addresses of the machine: name one of them, or another port"
    )]
    Covered {
        /// The address.
        address: SocketAddr,
        /// The one before it.
        other: SocketAddr,
    },
    /// A certificate that was given can't be used.
    #[error("the certificate of {} can't be used: {why}", path.display())]
    Certificate {
        /// Its file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A certificate that was given holds no longer.
    #[error("the certificate of {} expired {since}", path.display())]
    Expired {
        /// Its file.
        path: PathBuf,
        /// When, UTC.
        since: String,
    },
    /// A certificate can't be made.
    #[error("a certificate can't be made: {why}")]
    OwnCertificate {
        /// Why.
        why: String,
    },
    /// A thread can't serve.
    #[error("can't {what} the thread {name}: {why}")]
    Thread {
        /// Its name.
        name: &'static str,
        /// What failed.
        what: &'static str,
        /// Why.
        why: String,
    },
    /// The system refused.
    #[error("can't {action} {}: {source}", path.display())]
    System {
        /// What was tried: `create the directory`, `listen at`, …
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

impl ApiError {
    /// The system refused to do `action` to `path`.
    pub(crate) fn system<E: Into<io::Error>>(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(E) -> Self {
        let path = path.into();
        move |source| Self::System { action, path, source: source.into() }
    }
}
