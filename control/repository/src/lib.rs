//! Where plugins come from, and what is remembered of them: keys, signatures, versions that don't go back, quarantine.
//!
//! A signature is a file of the format of `minisign`, beside the plugin and with `.minisig` behind its name. It signs the
//! plugin's bytes, and in its trusted comment the [`Claims`]: name, version and capabilities, as the manifest has them. What
//! the router trusts is a [`Trust`]. It is asked before anything of a module is read, about the very bytes that are compiled
//! then, and what it answers, [`Checked`], is held against the manifest. What was loaded so far a [`Repository`] remembers;
//! what has to outlive the router stands in files, its [`Memory`].
#![forbid(unsafe_code)]

mod claims;
mod crashes;
mod error;
mod files;
mod key;
mod key_id;
mod memory;
mod notebook;
mod quarantine;
mod repository;
mod signature;
mod state_lock;
#[cfg(test)]
mod test_folder;
mod trust;
mod versions;

pub use claims::{Claims, Version};
pub use crashes::captures::{CrashCaptures, MOST_CAPTURES, MOST_FRAME_BYTES, MOST_REPORT_BYTES, report_of};
pub use crashes::{CrashLine, Found, crash_file};
pub use error::{RepositoryError, Untrusted};
pub use files::{
    GeneratedKey, SignatureState, SignedFile, generate, sign_file, signature_path, signature_state,
};
pub use key::{PublicKey, SecretKey, SecretKeyProblem};
pub use key_id::KeyId;
pub use memory::{Memory, state_directory_at, usual_state_directory};
pub use notebook::{Notebook, NotebookError};
pub use quarantine::{Held, Quarantine};
pub use repository::{Admission, Remembered, Repository};
pub use signature::{MOST_SIGNATURE, sign};
pub use state_lock::{StateLock, StateTaken};
pub use trust::{Checked, Origin, Trust, Unsigned};
