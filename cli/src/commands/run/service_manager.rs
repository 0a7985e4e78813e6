//! Notifications to the service manager that started the daemon, by systemd's protocol (sd_notify(3)).
//! Without a service manager no notification is sent.

use std::cell::Cell;
use std::convert::Infallible;
use std::time::Duration;

use millrace_controller::Router;
use sd_notify::NotifyState;
use tokio::time::{MissedTickBehavior, interval};

/// Service manager that started the daemon, such as systemd.
#[derive(Debug)]
pub struct ServiceManager {
    /// Watchdog timeout; `None` if the manager expects no keep-alives.
    watchdog: Option<Duration>,
    /// Whether the manager was notified that the router is stopping. Keep-alives then no longer wait for the
    /// stopped workers.
    stopping: Cell<bool>,
}

impl ServiceManager {
    /// Returns the manager that the variables `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID` describe.
    pub fn from_environment() -> Self {
        Self { watchdog: sd_notify::watchdog_enabled(), stopping: Cell::new(false) }
    }

    /// Notifies the manager that the router forwards.
    pub fn ready(&self) {
        tell(&[NotifyState::Ready, NotifyState::Status("forwards")]);
    }

    /// Notifies the manager that the router drains and ends.
    pub fn stopping(&self) {
        self.stopping.set(true);
        tell(&[NotifyState::Stopping, NotifyState::Status("drains")]);
    }

    /// Sends keep-alives, two per timeout. Each requires answers from control and all workers. Never returns.
    pub async fn keep_up(&self, router: &Router) -> Infallible {
        let Some(limit) = self.watchdog.filter(|limit| !limit.is_zero()) else {
            return std::future::pending().await;
        };
        let mut due = interval(limit / 2);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            due.tick().await;
            if self.stopping.get() {
                return std::future::pending().await;
            }
            match router.answers() {
                Ok(()) => tell(&[NotifyState::Watchdog]),
                Err(error) => tracing::error!(
                    "no keep-alive sent to the service manager, because the router does not respond: {error}"
                ),
            }
        }
    }
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!("can't notify the service manager: {error}");
    }
}
