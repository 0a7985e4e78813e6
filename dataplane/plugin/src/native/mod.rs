//! The home of plugins that are shared objects: trusted with the whole router.
//!
//! An object's outline is checked ([`ObjectError`] says what can be wrong), and each of its instances has a copy of it, loaded for
//! itself, so that variables are those of one instance. A copy lies in sealed memory: what was checked is what runs. The
//! constructors of an object run when a copy is loaded. So [`manifest`] reads what the object states from its bytes, and the caller
//! checks signature, name, version and capabilities before [`NativePlugin::new`] loads a copy.
//!
//! How a call goes. Packets are described in memory of the router. Windows and states of flows stand where they are; nothing is
//! copied. The plugin is called, on the worker's stack, and not stopped before it returns. Then its verdicts are read. Functions of
//! the router know by the thread whose call goes on.
//!
//! A copy is never taken out of memory, since code of it may still be referred to: by thread-local variables, handlers, threads.
//! [`leftovers`] counts those that nobody uses any longer.

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
