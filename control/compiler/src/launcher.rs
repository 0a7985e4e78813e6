//! Launcher: the thread that starts programs for the daemon's other threads, which may not start programs.
//!
//! The launcher has the privileges of a file thread, and may also start programs. The kernel kills a child
//! with a parent-death signal when the thread that started the child ends. The launcher lives as long as the
//! process, so such a child ends with the process.

use std::io;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use millrace_confine::{ConfineError, Privileges};

/// Program to start, and the channel for the result.
struct Order {
    command: Command,
    reply: SyncSender<io::Result<Child>>,
}

/// Channel to the launcher. [`begin_launcher`] sets it, before other threads lose the right to start
/// programs.
static LAUNCHER: OnceLock<SyncSender<Order>> = OnceLock::new();

/// Starts the launcher for all threads of the process, unless it has started.
///
/// # Errors
/// The system refuses a thread, or the thread can't be confined.
pub fn begin_launcher() -> Result<(), ConfineError> {
    if LAUNCHER.get().is_some() {
        return Ok(());
    }
    let (orders, received) = sync_channel(1);
    let begin = || std::thread::Builder::new().name("launcher".to_owned()).spawn(move || serve(&received));
    Privileges::Programs.apart(begin)?.map_err(ConfineError::of("start the launcher thread"))?;
    // If another thread was faster, `LAUNCHER` keeps that thread's launcher. This one ends, since its channel
    // is dropped.
    let _ = LAUNCHER.set(orders);
    Ok(())
}

fn serve(orders: &Receiver<Order>) {
    for Order { mut command, reply } in orders {
        // If the requesting thread is gone, the child still ends by its own limits.
        let _ = reply.send(command.spawn());
    }
}

/// Starts a program.
///
/// # Errors
/// Errors of `Command::spawn`.
pub(crate) fn spawn(mut command: Command) -> io::Result<Child> {
    let Some(launcher) = LAUNCHER.get() else { return command.spawn() };
    let (reply, answer) = sync_channel(1);
    let gone = || io::Error::other("the launcher thread has ended");
    launcher.send(Order { command, reply }).map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}
