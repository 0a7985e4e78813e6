//! Main function of the process of a shared object: loads the object, and carries out the requests of a worker.

use std::convert::Infallible;
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

use millrace_process::{Channel, HOST};

use crate::runtime::native::elf::manifest_bytes;
use crate::runtime::native::object::Object;

/// Loads the shared object in the file `object`, and serves the worker at the other end of `memory`. Calls
/// `confine` after the object is loaded, which runs its constructors, and before the first call of a function of the
/// plugin. Returns only if that is not possible any more.
///
/// # Errors
/// Describes why the object can't be loaded, the process can't be confined, or the exchange is broken.
pub fn serve(
    object: BorrowedFd<'_>,
    memory: BorrowedFd<'_>,
    confine: impl FnOnce() -> Result<(), String>,
) -> Result<Infallible, String> {
    let file = File::from(object.try_clone_to_owned().map_err(|error| unread(&error))?);
    let length = file.metadata().map_err(|error| unread(&error))?.len();
    let mut bytes = vec![0; length as usize];
    // Processes share the file's position, so read without it.
    file.read_exact_at(&mut bytes, 0).map_err(|error| unread(&error))?;
    let stated = manifest_bytes(&bytes).map_err(|error| error.to_string())?;
    let channel = Channel::open(memory)?;
    // The router has sealed the file, so that the process needs no copy.
    let object = Object::load_file(&file).map_err(|error| error.to_string())?;
    confine()?;
    object.attach(&HOST);
    object.check(stated).map_err(|error| error.to_string())?;
    drop((bytes, file));
    millrace_process::serve(channel, &object)
}

fn unread(error: &std::io::Error) -> String {
    format!("can't read the shared object from the router: {error}")
}
