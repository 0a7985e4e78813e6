//! Revisions of the configuration: text, time, user and reason of each applied configuration. Also the audit
//! log.
//!
//! The revisions are in one file of an embedded database (redb), which changes atomically. After a crash it
//! holds either the old or the new revisions. A new file is written under a temporary name, then renamed.
//! Each access opens and closes the file, so commands can read it while the router runs. A second router with
//! the same directory is refused.
#![forbid(unsafe_code)]

mod audit;
mod audit_entry;
mod audit_file;
mod audit_writer;
mod database;
mod error;
mod revision;
mod shortening;
mod store;
#[cfg(test)]
mod test_folder;

pub use audit::AuditLog;
pub use audit_entry::{AuditEntry, Outcome};
pub use audit_file::AuditLimits;
pub use audit_writer::{AuditTrouble, Written};
pub use error::StoreError;
pub use revision::{Draft, Revision, State, Who};
pub use store::Store;
