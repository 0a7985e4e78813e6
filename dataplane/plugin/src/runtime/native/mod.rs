//! Runtime of shared-object plugins, which are trusted with the whole router.
//!
//! The router checks the outline of an object before it loads the object ([`ObjectError`] lists the errors).
//! Each instance loads its own copy, so that the variables belong to one instance. A copy is in sealed
//! memory, so that the running code is the checked code. Loading a copy runs the constructors of the object.
//! Therefore [`manifest`] reads the manifest from the object's bytes. The caller checks signature, name,
//! version and capabilities before [`NativePlugin::new`] loads a copy.
//!
//! A call proceeds in these steps: the router describes the packets in its own memory, without copying
//! windows or flow states. It calls the plugin on the worker's stack and waits until the plugin returns. Then
//! it reads the verdicts. A host function finds the calling instance by the current thread.
//!
//! A copy is never unloaded, since thread-local variables, handlers or threads may still refer to its code.
//! [`leftovers`] counts the unused copies.

mod described;
mod elf;
mod instance;
mod object;
mod plugin;
mod staging;
mod table;

pub use described::DescribedPlugin;
pub use elf::{ObjectError, check as check_object, manifest};
pub use instance::NativeInstance;
pub use object::leftovers;
pub use plugin::{NativePlugin, is_object};
