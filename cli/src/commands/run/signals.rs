//! The signals that end the daemon.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::output::Failure;

/// SIGTERM and SIGINT. The first asks for an end, the second is one: exit code 1 at once, even if nothing listens.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Takes the signals over, and lets those of closed connections be errors instead of our end.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn new() -> Result<Self, Failure> {
        Self::install().map_err(|error| Failure::new(format!("can't take over signals: {error}")))
    }

    fn install() -> io::Result<Self> {
        // SAFETY: ignoring a signal calls no code of ours.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        let asked = Arc::new(AtomicBool::new(false));
        for number in [SIGTERM, SIGINT] {
            // In this order: the first signal finds the flag down and raises it.
            signal_hook::flag::register_conditional_shutdown(number, 1, Arc::clone(&asked))?;
            signal_hook::flag::register(number, Arc::clone(&asked))?;
        }
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the first of them; returns its name.
    pub async fn first(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
