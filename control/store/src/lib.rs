//! The revisions of the configuration: what was applied, when, by whom and why.
//!
//! They stand in one file of an embedded database, which changes from one state to the next as a whole: after a crash at any
//! moment it holds the old revisions or the new ones. A file that isn't there yet is made beside its place, with its first
//! revisions in it, and renamed. The file is opened for each question and closed behind it, so that a second router that shares
//! the directory waits its turn and is not refused.
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
