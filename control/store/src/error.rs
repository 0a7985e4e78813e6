//! Errors of reading and writing revisions.

use std::io;
use std::path::PathBuf;

/// Error of reading or writing revisions.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file or its directory can't be used.
    #[error("{}: {problem}", path.display())]
    File {
        /// Path of the file or directory.
        path: PathBuf,
        /// Reason of the failure.
        #[source]
        problem: io::Error,
    },
    /// The revision belongs to another router.
    #[error(
        "revision {number} belongs to the router at {theirs}, and this router is at {own}: to use it anyway, apply its text (`history show {number}`)"
    )]
    Foreign {
        /// Number of the revision.
        number: u64,
        /// Socket of the router that owns the revision.
        theirs: String,
        /// Socket of this router.
        own: String,
    },
    /// No revision has this number.
    #[error("there is no revision {number}{}", known(*oldest, *newest))]
    Unknown {
        /// Requested number.
        number: u64,
        /// Oldest kept revision; 0 if there are none.
        oldest: u64,
        /// Newest revision.
        newest: u64,
    },
}

fn known(oldest: u64, newest: u64) -> String {
    match oldest {
        0 => ": no configuration was applied yet".to_owned(),
        _ => format!("; stored revisions: {oldest} to {newest}"),
    }
}
