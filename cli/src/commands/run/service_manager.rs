//! What the service manager hears that started the daemon: systemd's protocol, as sd_notify(3) tells it. Without one nothing is
//! said.

use std::cell::Cell;
use std::convert::Infallible;
use std::time::Duration;

use millrace_controller::Router;
use sd_notify::NotifyState;
use tokio::time::{MissedTickBehavior, interval};

/// The service manager.
#[derive(Debug)]
pub struct ServiceManager {
    /// How long it waits for a sign of life; `None` when it expects none.
    watchdog: Option<Duration>,
    /// Whether it knows that the router ends: workers that have ended answer no more.
    stopping: Cell<bool>,
}

impl ServiceManager {
    /// The one that the environment names by `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`.
    pub fn from_environment() -> Self {
        Self { watchdog: sd_notify::watchdog_enabled(), stopping: Cell::new(false) }
    }

    /// The router forwards.
    pub fn ready(&self) {
        tell(&[NotifyState::Ready, NotifyState::Status("forwards")]);
    }

    /// The router drains, and ends.
    pub fn stopping(&self) {
        self.stopping.set(true);
        tell(&[NotifyState::Stopping, NotifyState::Status("drains")]);
    }

    /// Gives signs of life, two in the time that the manager waits for one, each after control and all workers have shown that they
    /// live, until the router ends. Never returns.
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
                Err(error) => tracing::error!("no sign of life for the service manager: {error}"),
            }
        }
    }
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!("the service manager can't be told: {error}");
    }
}
