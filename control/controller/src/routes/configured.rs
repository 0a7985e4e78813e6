//! Changes of many routes at once.

use ipnet::IpNet;
use millrace_config::{Change, Route};
use millrace_host::{HostChange, Mirror};

use crate::ControlError;
use crate::router::{Inner, Router};
use crate::routes::changes::PATIENCE;
use crate::routes::from_kernel;

/// Handling of a route that the kernel refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The route is dropped, and the caller gets the error.
    IsError,
    /// The route existed before: it stays wanted, and is offered to the kernel again.
    IsWanted,
}

/// Changed routes, by the receiver of the change.
struct Changed {
    refused: Refused,
    /// Prefixes whose route only the workers have or had.
    own: Vec<IpNet>,
    /// Prefixes changed in the kernel, and whether Millrace's route is there now.
    kernel: Vec<(IpNet, bool)>,
}

impl Changed {
    fn new(refused: Refused) -> Self {
        Self { refused, own: Vec::new(), kernel: Vec::new() }
    }
}

impl Router {
    /// Changes routes up to the first that fails. When this returns, the next packet uses them. Returns the
    /// number of changes made, and the reason for the failure.
    pub(crate) async fn change_routes(
        &self,
        changes: &[Change],
        refused: Refused,
    ) -> (usize, Result<(), ControlError>) {
        let mut changed = Changed::new(refused);
        let (made, outcome) = self.lock().change_configured_routes(changes, &mut changed);
        let settled = self.settle(changed).await;
        (made, settled.and(outcome))
    }

    /// Changes a single route. When this returns, the next packet uses it.
    ///
    /// # Errors
    /// Returns the reason for the failure.
    pub(crate) async fn change_route(&self, change: Change) -> Result<(), ControlError> {
        let mut changed = Changed::new(Refused::IsError);
        let (_, outcome) = self.to_change()?.change_configured_routes(&[change], &mut changed);
        self.settle(changed).await.and(outcome)
    }

    /// Waits until the mirror has received the kernel's route changes, and the workers have all changes.
    async fn settle(&self, changed: Changed) -> Result<(), ControlError> {
        {
            let mut inner = self.lock();
            inner.tell_own(&changed.own)?;
            if changed.kernel.is_empty() {
                return inner.barrier();
            }
        }
        // If the kernel doesn't confirm in time, the state of the mirror counts.
        let _ = tokio::time::timeout(PATIENCE, self.hear_of(&changed.kernel)).await;
        let mut inner = self.lock();
        // The mirror may report the same changes again later; that is harmless.
        let route = |(prefix, _): &(IpNet, bool)| HostChange::Route {
            prefix: *prefix,
            route: inner.kernel.route_to(*prefix),
        };
        let changes = changed.kernel.iter().map(route).collect();
        inner.apply(changes)?;
        inner.barrier()
    }

    /// Waits until the mirror shows, for each prefix, that Millrace's route is present or absent.
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
    fn change_configured_routes(
        &mut self,
        changes: &[Change],
        changed: &mut Changed,
    ) -> (usize, Result<(), ControlError>) {
        for (made, change) in changes.iter().enumerate() {
            let outcome = match change {
                Change::AddRoute(route) => self.add_configured(route, changed),
                Change::RemoveRoute(route) => self.remove_configured(route, changed),
                Change::SetRoute { from, to } => self.set_configured(from, to, changed),
                other => Err(ControlError::System(format!("{other} changes no route"))),
            };
            if outcome.is_err() {
                return (made, outcome);
            }
        }
        (changes.len(), Ok(()))
    }

    fn add_configured(&mut self, route: &Route, changed: &mut Changed) -> Result<(), ControlError> {
        let prefix = *route.to.value();
        if self.model.routes.contains_key(&prefix) {
            return Err(self.there_is_one(prefix));
        }
        if self.model.add_route(route)? {
            self.give(route, changed).inspect_err(|_| drop(self.model.routes.remove(&prefix)))?;
        } else {
            changed.own.push(prefix);
        }
        Ok(())
    }

    /// Installs a route in the kernel. A refused route that existed before stays wanted.
    fn give(&mut self, route: &Route, changed: &mut Changed) -> Result<(), ControlError> {
        let prefix = *route.to.value();
        match self.install(route) {
            Ok(()) => changed.kernel.push((prefix, true)),
            Err(error) if changed.refused == Refused::IsError => return Err(error),
            Err(error) => self.want(prefix, &error),
        }
        Ok(())
    }

    fn remove_configured(&mut self, route: &Route, changed: &mut Changed) -> Result<(), ControlError> {
        let prefix = *route.to.value();
        if self.model.own_routes.remove(&prefix).is_some() {
            changed.own.push(prefix);
        } else {
            self.take_back(prefix)?;
            changed.kernel.push((prefix, false));
        }
        self.model.routes.remove(&prefix);
        Ok(())
    }

    fn set_configured(
        &mut self,
        from: &Route,
        to: &Route,
        changed: &mut Changed,
    ) -> Result<(), ControlError> {
        let prefix = *to.to.value();
        let was_own = self.model.own_routes.remove(&prefix);
        self.model.routes.remove(&prefix);
        let in_kernel = self
            .model
            .add_route(to)
            .and_then(|in_kernel| if in_kernel { self.give(to, changed).map(|()| true) } else { Ok(false) });
        let in_kernel = match in_kernel {
            Ok(in_kernel) => in_kernel,
            Err(error) => {
                self.model.routes.insert(prefix, from.clone());
                if let Some(route) = was_own {
                    self.model.own_routes.add(prefix, route);
                }
                return Err(error);
            }
        };
        if !in_kernel {
            changed.own.push(prefix);
        }
        match (was_own.is_some(), in_kernel) {
            (true, true) => changed.own.push(prefix),
            (false, false) => {
                self.take_back(prefix)?;
                changed.kernel.push((prefix, false));
            }
            _ => {}
        }
        Ok(())
    }

    /// Removes a route from the kernel.
    fn take_back(&mut self, prefix: IpNet) -> Result<(), ControlError> {
        let Some(route) = self.routes.installed.get(&prefix) else {
            // The kernel lacks the route: it was only wanted.
            self.routes.wanted.forget(&prefix);
            return Ok(());
        };
        if let Some(actions) = &mut self.kernel.actions {
            let removed = actions.remove_route(prefix, route.metric);
            removed.map_err(|error| ControlError::system("take the route back from the kernel", error))?;
        }
        self.routes.installed.remove(&prefix);
        self.routes.wanted.forget(&prefix);
        Ok(())
    }

    /// Sends the workers the current routes of prefixes that only workers have.
    pub(crate) fn tell_own(&mut self, prefixes: &[IpNet]) -> Result<(), ControlError> {
        let ports = self.devices.by_index();
        let route = |prefix: &IpNet| {
            let own = self.model.own_routes.get(prefix).cloned();
            (*prefix, own.or_else(|| from_kernel(&self.kernel.route_to(*prefix)?, &ports)))
        };
        let changes = prefixes.iter().map(route).collect();
        self.change_routes(changes)
    }
}
