//! Changes configured routes, and installs configured routes again that the kernel lacks.

use std::collections::HashMap;
use std::time::Instant;

use ipnet::IpNet;
use millrace_config::{Change, Route};
use millrace_host::{HostChange, HostRoute, OwnRoute, PROTOCOL_MILLRACE, PrefixRange};
use millrace_telemetry::EventKind;
use serde_json::json;

use crate::ControlError;
use crate::events::Events;
use crate::kernel::Kernel;
use crate::model::Model;
use crate::ports::claim::Claim;
use crate::ports::devices::Devices;
use crate::routes::Routes;
use crate::routes::changes::own_route;
use crate::routes::wanted::TOGETHER;
use crate::show::protocol;

/// Text for a missing route that the kernel has removed.
const GONE: &str = "the kernel no longer has it";
const MOVED: &str = "its next hops are now reached through another device";

/// Treatment of a route that the kernel refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The route is not added, and the caller gets the error.
    IsError,
    /// The route stays configured, because it existed before. Control offers it to the kernel again later.
    IsWanted,
}

/// Prefixes of changed routes, listed by the owner of the route: workers or kernel.
pub(crate) struct Changed {
    refused: Refused,
    /// Prefixes whose route only the workers hold, before or after the change.
    pub own: Vec<IpNet>,
    /// Prefixes whose route was changed in the kernel. The flag tells whether this router's route was
    /// installed (`true`) or removed (`false`).
    pub kernel: Vec<(IpNet, bool)>,
}

impl Changed {
    pub fn new(refused: Refused) -> Self {
        Self { refused, own: Vec::new(), kernel: Vec::new() }
    }
}

/// Configured routes, and the parts of the router needed to change them.
pub(crate) struct ConfiguredRoutes<'a> {
    pub model: &'a mut Model,
    pub routes: &'a mut Routes,
    pub kernel: &'a mut Kernel,
    pub devices: &'a Devices,
    pub events: &'a Events,
}

impl ConfiguredRoutes<'_> {
    /// Installs the configured routes that the kernel keeps. They stay in the kernel if the router dies. The
    /// mirror reports them back.
    pub fn begin(&mut self) -> Result<(), ControlError> {
        let own = |route| own_route(route, self.model, self.devices);
        let routes: Vec<OwnRoute> = self.model.kernel_routes().map(own).collect::<Result<_, _>>()?;
        let Some(actions) = &mut self.kernel.actions else { return Ok(()) };
        let keep: Vec<_> = routes.iter().map(|route| (route.prefix, route.metric)).collect();
        let failed = |error| ControlError::system("install the configured routes in the kernel", error);
        let (devices, mut taken) = (self.devices.by_index(), HashMap::new());
        let is_others = |index: u32| {
            !devices.contains_key(&index) && *taken.entry(index).or_insert_with(|| Claim::is_taken(index))
        };
        actions.sweep_routes(&keep, is_others).map_err(failed)?;
        let now = Instant::now();
        for route in &routes {
            actions.install_route(route).map_err(failed)?;
            self.routes.installed.insert(route.prefix, route.clone());
            self.routes.wanted.given(route.prefix, now);
        }
        Ok(())
    }

    /// Changes routes, up to the first change that fails. Collects the prefixes of the changed routes in
    /// `changed`. Returns the number of changes made, and the reason for the failure.
    pub fn change(&mut self, changes: &[Change], changed: &mut Changed) -> (usize, Result<(), ControlError>) {
        for (made, change) in changes.iter().enumerate() {
            let outcome = match change {
                Change::AddRoute(route) => self.add(route, changed),
                Change::RemoveRoute(route) => self.remove(route, changed),
                Change::SetRoute { from, to } => self.set(from, to, changed),
                other => {
                    Err(ControlError::System(format!("internal error: `{other}` is not a change of routes")))
                }
            };
            if outcome.is_err() {
                return (made, outcome);
            }
        }
        (changes.len(), Ok(()))
    }

    fn add(&mut self, route: &Route, changed: &mut Changed) -> Result<(), ControlError> {
        let prefix = *route.to.value();
        if self.model.routes.contains_key(&prefix) {
            return Err(self.routes.there_is_one(prefix));
        }
        if self.model.add_route(route)? {
            self.give(route, changed).inspect_err(|_| drop(self.model.routes.remove(&prefix)))?;
        } else {
            changed.own.push(prefix);
        }
        Ok(())
    }

    /// Installs a route in the kernel. If the kernel refuses the route, `changed.refused` decides whether the
    /// route stays configured.
    fn give(&mut self, route: &Route, changed: &mut Changed) -> Result<(), ControlError> {
        let prefix = *route.to.value();
        match self.install(route) {
            Ok(()) => changed.kernel.push((prefix, true)),
            Err(error) if changed.refused == Refused::IsError => return Err(error),
            Err(error) => self.want(prefix, &error),
        }
        Ok(())
    }

    fn remove(&mut self, route: &Route, changed: &mut Changed) -> Result<(), ControlError> {
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

    fn set(&mut self, from: &Route, to: &Route, changed: &mut Changed) -> Result<(), ControlError> {
        let prefix = *to.to.value();
        let was_own = self.model.own_routes.remove(&prefix);
        self.model.routes.remove(&prefix);
        let set = self.model.add_route(to).and_then(|in_kernel| {
            if in_kernel {
                self.give(to, changed)?;
            } else if was_own.is_none() {
                self.take_back(prefix)?;
                changed.kernel.push((prefix, false));
            }
            Ok(in_kernel)
        });
        if set.is_err() {
            self.model.own_routes.remove(&prefix);
            self.model.routes.insert(prefix, from.clone());
            if let Some(route) = was_own {
                self.model.own_routes.add(prefix, route);
            }
        } else if was_own.is_some() || matches!(set, Ok(false)) {
            changed.own.push(prefix);
        }
        set.map(drop)
    }

    /// Removes a route from the kernel.
    fn take_back(&mut self, prefix: IpNet) -> Result<(), ControlError> {
        let Some(route) = self.routes.installed.get(&prefix) else {
            // The kernel lacks the route, so there is nothing to remove.
            self.routes.wanted.forget(&prefix);
            return Ok(());
        };
        if let Some(actions) = &mut self.kernel.actions {
            let removed = actions.remove_route(prefix, route.metric);
            removed.map_err(|error| ControlError::system("remove the route from the kernel", error))?;
        }
        self.routes.installed.remove(&prefix);
        self.routes.wanted.forget(&prefix);
        Ok(())
    }

    fn install(&mut self, route: &millrace_config::Route) -> Result<(), ControlError> {
        let route = own_route(route, self.model, self.devices)?;
        let in_the_way = self.kernel.route_to(route.prefix);
        let Some(actions) = &mut self.kernel.actions else {
            let problem = "the router has no kernel routing table to install the route in";
            return Err(ControlError::System(problem.into()));
        };
        actions.install_route(&route).map_err(|error| {
            let owner = |other: HostRoute| {
                let protocol = protocol(other.protocol);
                format!("; the kernel already has a route to this prefix, of protocol {protocol}")
            };
            let owner = in_the_way.map(owner).unwrap_or_default();
            ControlError::conflict(format!("the kernel refused the route: {error}{owner}"))
        })?;
        self.routes.wanted.given(route.prefix, Instant::now());
        self.routes.installed.insert(route.prefix, route);
        Ok(())
    }

    /// Compares the configured routes to these prefixes with the kernel's routes. Then installs the missing
    /// routes whose next attempt is due. After changes of links or addresses (`about_ports`), every missing
    /// route is due.
    pub fn follow(&mut self, prefixes: &[IpNet], about_ports: bool) {
        let now = Instant::now();
        self.compare(prefixes, now, false);
        if about_ports {
            self.routes.wanted.hurry(now);
        }
        self.give_missing(now);
    }

    /// Compares a bounded number of configured routes with the kernel's routes. Control calls this about once
    /// a second, and successive calls cover all routes.
    pub fn compare_next(&mut self) {
        let range = PrefixRange { after: self.routes.wanted.compared, within: None };
        let next = range.of(&self.model.routes).map(|(prefix, _)| prefix);
        let prefixes: Vec<IpNet> = next.take(TOGETHER).collect();
        self.routes.wanted.compared = prefixes.last().copied().filter(|_| prefixes.len() == TOGETHER);
        let now = Instant::now();
        self.compare(&prefixes, now, true);
        self.give_missing(now);
    }

    /// Notes the routes to these prefixes that the kernel no longer has. With `whole`, also notes routes that
    /// lead through other devices than configured.
    fn compare(&mut self, prefixes: &[IpNet], now: Instant, whole: bool) {
        let Some(mirror) = &self.kernel.mirror else { return };
        let state = mirror.state();
        let (mut lost, mut moved) = (Vec::new(), Vec::new());
        for prefix in prefixes.iter().filter(|prefix| self.model.is_for_kernel(prefix)) {
            if !state.has_route_of(*prefix, PROTOCOL_MILLRACE) {
                lost.extend(self.routes.wanted.lost(*prefix, GONE, now).then_some(*prefix));
            } else if whole && self.leads_elsewhere(prefix) {
                moved.extend(self.routes.wanted.lost(*prefix, MOVED, now).then_some(*prefix));
            } else {
                self.routes.wanted.heard(prefix, now);
            }
        }
        drop(state);
        for prefix in &lost {
            let route = self.routes.installed.remove(prefix);
            if let (Some(route), Some(actions)) = (route, &mut self.kernel.actions) {
                actions.forget_route(*prefix, route.metric);
            }
        }
        self.note_missing(&lost, GONE);
        self.note_missing(&moved, MOVED);
    }

    /// Whether the kernel's route uses other devices than the devices that lead to the configured next hops
    /// now.
    fn leads_elsewhere(&self, prefix: &IpNet) -> bool {
        let (Some(given), Some(route)) = (self.routes.installed.get(prefix), self.model.routes.get(prefix))
        else {
            return false;
        };
        own_route(route, self.model, self.devices).is_ok_and(|now| now != *given)
    }

    /// Installs missing routes whose next attempt is due. A call installs only a bounded number of routes.
    fn give_missing(&mut self, now: Instant) {
        let mut back = Vec::new();
        for prefix in self.routes.wanted.due(now) {
            let Some(route) = self.model.routes.get(&prefix).cloned() else {
                self.routes.wanted.forget(&prefix);
                continue;
            };
            match self.install(&route) {
                Ok(()) => back.push(prefix),
                Err(error) => {
                    let why = error.to_string();
                    if self.routes.wanted.refused(prefix, why.clone(), now) {
                        tracing::warn!(%prefix, "a configured route is missing: {why}");
                    }
                }
            }
        }
        let Some(first) = back.first() else { return };
        let text = format!("the configured route to {} is back in the kernel", several(&back));
        tracing::info!("{text}");
        let details = json!({"to": first, "routes": back.len()});
        self.events.note(EventKind::RouteBack, &first.to_string(), text, details);
    }

    /// Notes an event for configured routes that the kernel lacks.
    fn note_missing(&self, prefixes: &[IpNet], why: &str) {
        let Some(first) = prefixes.first() else { return };
        let text = format!("the route to {} is missing: {why}", several(prefixes));
        tracing::warn!("{text}");
        let details = json!({"to": first, "routes": prefixes.len(), "why": why});
        self.events.note(EventKind::RouteMissing, &first.to_string(), text, details);
    }

    /// Notes that the kernel refuses a route for now. The route stays configured.
    fn want(&mut self, prefix: IpNet, error: &ControlError) {
        let why = error.to_string();
        if self.routes.wanted.refused(prefix, why.clone(), Instant::now()) {
            self.note_missing(&[prefix], &why);
        }
    }
}

/// Returns the prefixes in the kernel's changes that have a configured route.
pub(crate) fn wanted_among(model: &Model, changes: &[HostChange]) -> Vec<IpNet> {
    let prefix = |change: &HostChange| match change {
        HostChange::Route { prefix, .. } if model.routes.contains_key(prefix) => Some(*prefix),
        _ => None,
    };
    changes.iter().filter_map(prefix).collect()
}

/// Returns the text that names prefixes in an event: the first one, and the number of others.
fn several(prefixes: &[IpNet]) -> String {
    match prefixes {
        [] => String::new(),
        [one] => one.to_string(),
        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
    }
}
