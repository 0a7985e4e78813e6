//! Changes routes, and waits until the kernel's mirror and the workers have the changes.

use ipnet::IpNet;
use millrace_config::Change;
use millrace_host::{HostChange, Mirror};

use crate::ControlError;
use crate::follow::pace::is_silent;
use crate::router::{Inner, Router};
use crate::routes::changes::PATIENCE;
use crate::routes::configured::{Changed, Refused};
use crate::routes::from_kernel;

impl Router {
    /// Changes routes, up to the first change that fails. When this returns, the changes apply to the next
    /// packet. Returns the number of changes made, and the reason for the failure.
    pub(crate) async fn change_routes(
        &self,
        changes: &[Change],
        refused: Refused,
    ) -> (usize, Result<(), ControlError>) {
        let mut changed = Changed::new(refused);
        let (made, outcome) = self.lock().configured_routes().change(changes, &mut changed);
        let settled = self.settle(changed).await;
        (made, settled.and(outcome))
    }

    /// Waits until the mirror reports the routes changed in the kernel, and the workers have all changes.
    async fn settle(&self, changed: Changed) -> Result<(), ControlError> {
        {
            let mut inner = self.lock();
            inner.tell_own(&changed.own)?;
            if changed.kernel.is_empty() {
                return inner.workers.barrier();
            }
        }
        // If the mirror doesn't report the change in time, the workers get the routes that the mirror has by
        // then.
        let _ = tokio::time::timeout(PATIENCE, self.hear_of(&changed.kernel)).await;
        let mut inner = self.lock();
        // The mirror will report these changes again, which is harmless.
        let route = |(prefix, _): &(IpNet, bool)| HostChange::Route {
            prefix: *prefix,
            route: inner.kernel.route_to(*prefix),
        };
        let changes = changed.kernel.iter().map(route).collect();
        inner.apply(changes)?;
        inner.workers.barrier()
    }

    /// Waits until the mirror shows this router's route to each prefix as present (`true`) or gone (`false`).
    async fn hear_of(&self, told: &[(IpNet, bool)]) {
        let Some(mut news) = self.lock().kernel.mirror.as_ref().map(Mirror::news) else { return };
        for (prefix, present) in told {
            while self.lock().kernel.has_own_route(*prefix) != *present {
                if news.changed().await.is_err() {
                    return;
                }
            }
        }
    }
}

impl Inner {
    /// Sends the workers the current route to each of these prefixes: the route that only the workers hold,
    /// or else the kernel's route. If a worker doesn't answer, the next call sends the routes again.
    pub(crate) fn tell_own(&mut self, prefixes: &[IpNet]) -> Result<(), ControlError> {
        let ports = self.devices.by_index();
        let route = |prefix: &IpNet| {
            let own = self.model.own_routes.get(prefix).cloned();
            (*prefix, own.or_else(|| from_kernel(&self.kernel.route_to(*prefix)?, &ports)))
        };
        self.routes.untold.extend(prefixes);
        let changes = self.routes.untold.iter().map(route).collect();
        let told = self.routes.table.change(changes, &mut self.workers);
        if !is_silent(&told) {
            self.routes.untold.clear();
        }
        told
    }
}
