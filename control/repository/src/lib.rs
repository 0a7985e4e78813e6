//! Trust in plugins, and records of plugins on disk: keys, signatures, highest versions, quarantine.
//!
//! A signature is a file in the format of `minisign`, beside the plugin and named after it with `.minisig`
//! appended. It signs the plugin's bytes. Its trusted comment holds the [`Claims`], which it also signs:
//! name, version and capabilities of the manifest. A [`Trust`] holds the keys that the router trusts. It
//! checks the bytes of a module before they are parsed; exactly these bytes are compiled. The result,
//! [`Checked`], then compares the signed claims with the manifest. A [`Repository`] records the loaded
//! plugins. [`Memory`] is the state in files that survives a restart of the router.
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
