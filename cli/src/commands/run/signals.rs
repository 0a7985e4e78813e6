//! Signals that end the daemon.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::output::Failure;

/// SIGTERM and SIGINT. The first signal requests an orderly end; the second ends the process at once with
/// exit code 1.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Installs the signal handlers. Ignores SIGPIPE: writing to a closed connection is then an error and
    /// doesn't end the process.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub fn new() -> Result<Self, Failure> {
        Self::install().map_err(|error| Failure::new(format!("can't set up signal handlers: {error}")))
    }

    fn install() -> io::Result<Self> {
        // SAFETY: ignoring a signal installs no handler function.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        let asked = Arc::new(AtomicBool::new(false));
        for number in [SIGTERM, SIGINT] {
            // The order matters. At the first signal, the first handler finds `asked` unset and does nothing;
            // then the second handler sets `asked`. At the second signal, the first handler ends the process.
            signal_hook::flag::register_conditional_shutdown(number, 1, Arc::clone(&asked))?;
            signal_hook::flag::register(number, Arc::clone(&asked))?;
        }
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the first signal; returns its name.
    pub async fn first(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
