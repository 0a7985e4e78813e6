//! Revisions of the configuration: text, time, user and reason of each applied configuration. Also the audit
//! log.
//!
//! The revisions are in one file of an embedded database, which changes atomically. After a crash at any
//! moment, it holds either the old revisions or the new ones. A new file is created under another name with
//! its first revisions, then renamed. Each access opens and closes the file, so that commands that run beside
//! the router read it, too. A second router with the same directory is refused.
#![forbid(unsafe_code)]

mod audit;
mod audit_entry;
mod audit_file;
mod audit_writer;
mod database;
mod error;
mod revision;
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
