//! Why revisions can't be read or written.

use std::path::PathBuf;

/// Why revisions can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file or its directory can't be used.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        problem: String,
    },
    /// The revision is of another router.
    #[error(
        "revision {number} is of the router at {theirs}, and this one is at {own}: apply its text (`history show {number}`) if it is meant"
    )]
    Foreign {
        /// The number.
        number: u64,
        /// The socket of the router that it is of.
        theirs: String,
        /// The socket of this one.
        own: String,
    },
    /// There is no revision of that number.
    #[error("there is no revision {number}{}", known(*oldest, *newest))]
    Unknown {
        /// The number.
        number: u64,
        /// The oldest that is kept; 0 where there is none.
        oldest: u64,
        /// The newest.
        newest: u64,
    },
}

fn known(oldest: u64, newest: u64) -> String {
    match oldest {
        0 => ": nothing was applied yet".to_owned(),
        _ => format!("; revisions here: {oldest} to {newest}"),
    }
}
