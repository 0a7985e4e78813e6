//! The thread that starts programs for the threads of a daemon, which may not do so themselves.
//!
//! It has the privileges of threads for files, and the right to start programs. A child that ends with its parent ends with this
//! thread, which stays as long as the process.

use std::io;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use millrace_confine::{ConfineError, Privileges};

/// A program to start, and where the answer goes.
struct Order {
    command: Command,
    reply: SyncSender<io::Result<Child>>,
}

/// Starts programs from now on for all threads of the process. To be called before other threads give up the right to.
static LAUNCHER: OnceLock<SyncSender<Order>> = OnceLock::new();

/// Begins the thread that starts programs for all threads of the process, if it has not begun.
///
/// # Errors
/// When the system gives no thread, or it can't be confined.
pub fn begin_launcher() -> Result<(), ConfineError> {
    if LAUNCHER.get().is_some() {
        return Ok(());
    }
    let (orders, received) = sync_channel(1);
    let begin = || std::thread::Builder::new().name("launcher".to_owned()).spawn(move || serve(&received));
    Privileges::Programs.apart(begin)?.map_err(ConfineError::of("begin the thread that starts programs"))?;
    // A second one ends, since nobody can give it orders.
    let _ = LAUNCHER.set(orders);
    Ok(())
}

fn serve(orders: &Receiver<Order>) {
    for Order { mut command, reply } in orders {
        // Who asked has gone: the child ends by its own limits.
        let _ = reply.send(command.spawn());
    }
}

/// Starts a program.
///
/// # Errors
/// As `Command::spawn`.
pub(crate) fn spawn(mut command: Command) -> io::Result<Child> {
    let Some(launcher) = LAUNCHER.get() else { return command.spawn() };
    let (reply, answer) = sync_channel(1);
    let gone = || io::Error::other("the launcher thread has ended");
    launcher.send(Order { command, reply }).map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}
