//! Native runtime: shared objects, which are trusted with the whole router.
//!
//! The router checks an object's file before it loads the object ([`ObjectError`] lists the errors). Loading
//! runs the object's constructors; therefore [`manifest`] reads the manifest from the bytes of the file. The
//! caller checks signature, name, version and capabilities before [`NativePlugin::new`] loads a copy.
//!
//! Each instance loads its own copy, because the object's variables belong to one instance. Each copy is
//! loaded from a sealed memory file, so nobody can change the code between its check and its load.
//!
//! A call proceeds in these steps:
//!
//! 1. The router describes the packets in its own memory. It copies neither windows nor flow states.
//! 2. It calls the plugin on the worker's stack, and waits until the plugin returns.
//! 3. It reads the verdicts.
//!
//! Host functions find the calling instance by the current thread.
//!
//! A copy is never unloaded, because thread-local variables, handlers or threads may still refer to its code.
//! [`leftovers`] counts the unused copies.

mod described;
pub(in crate::runtime) mod elf;
mod instance;
pub(in crate::runtime) mod object;
mod plugin;
mod staging;
pub(in crate::runtime) mod table;

pub use described::DescribedPlugin;
pub use elf::{Form, ObjectError, check as check_object, manifest, manifest_place};
pub use instance::NativeInstance;
pub use object::leftovers;
pub use plugin::{NativePlugin, is_object};
