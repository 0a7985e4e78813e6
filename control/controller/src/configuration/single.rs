//! Single changes that have no module of their own: router-wide settings, static neighbours, and replacement
//! of routes.
//!
//! Each is made as a transaction: completely or not at all.

use std::net::IpAddr;

use ipnet::IpNet;
use millrace_config::{Change, Config, Neighbour, Text};
use serde_json::{Map, Value};

use crate::ControlError;
use crate::model::Model;
use crate::request::merge_patch::patched_known;
use crate::request::{NewNeighbour, NewRoute, OldNeighbour};
use crate::router::Router;
use crate::routes::changes::parse_route;
use crate::view::{NeighbourView, RouteView};

impl Router {
    /// Returns the router-wide settings.
    ///
    /// # Errors
    /// Returns no error at present.
    pub fn settings(&self) -> Result<millrace_config::Router, ControlError> {
        Ok(own_settings(&self.lock().model).router)
    }

    /// Changes router-wide settings; `null` resets one to its default.
    ///
    /// # Errors
    /// Returns an error for unknown settings, values out of range, or settings that need a restart. Nothing
    /// has changed then.
    pub async fn set_settings(
        &self,
        changes: &Map<String, Value>,
    ) -> Result<millrace_config::Router, ControlError> {
        let changes = changes.clone();
        let confirms_death = changes.get("on-death").is_some_and(|value| !value.is_null());
        self.change(move |inner| Ok((plan_settings(&inner.model, &changes)?, ()))).await?;
        if confirms_death {
            self.lock().supervision.death.confirm();
        }
        self.settings()
    }

    /// Adds a static neighbour at a port without a kernel device.
    ///
    /// # Errors
    /// Returns an error for an unknown port, a kernel port, or a neighbour that is already static. Nothing
    /// has changed then.
    pub async fn add_neighbour(&self, new: &NewNeighbour) -> Result<NeighbourView, ControlError> {
        let (new, port, address) = (new.clone(), new.port.clone(), new.address.to_string());
        self.change(move |inner| Ok((vec![plan_neighbour(&inner.model, &new)?], ()))).await?;
        let found = self.neighbours()?.into_iter().find(|one| one.port == port && one.address == address);
        found.ok_or_else(|| ControlError::System("the neighbour is not there".into()))
    }

    /// Removes a static neighbour. Its MAC address is resolved again from then on.
    ///
    /// # Errors
    /// Returns an error if there is no such static neighbour. Nothing has changed then.
    pub async fn remove_neighbour(&self, old: &OldNeighbour) -> Result<NeighbourView, ControlError> {
        let old = old.clone();
        let address = old.address.to_string();
        let is_it = |one: &NeighbourView| one.port == old.port && one.address == address;
        let before = self.neighbours()?.into_iter().find(is_it);
        self.change(move |inner| Ok((vec![plan_forgetting(&inner.model, &old)?], ()))).await?;
        before.ok_or_else(|| ControlError::System("the neighbour was not there".into()))
    }

    /// Adds a route, or replaces the configured route to the same prefix, without a moment in which the
    /// prefix has no route.
    ///
    /// # Errors
    /// Returns the errors of [`add_route`](Self::add_route), except for an existing configured route. Nothing
    /// has changed then.
    pub async fn replace_route(&self, new: &NewRoute) -> Result<RouteView, ControlError> {
        let to = parse_route(new)?;
        let prefix: IpNet = *to.to.value();
        self.change(move |inner| {
            let change = match inner.model.routes.get(&prefix).cloned() {
                Some(from) => Change::SetRoute { from, to },
                None => Change::AddRoute(to),
            };
            Ok((vec![change], ()))
        })
        .await?;
        self.route_to_prefix(prefix)
    }
}

/// Returns a configuration with only the router-wide settings.
fn own_settings(model: &Model) -> Config {
    Config { router: model.router.clone(), ..Config::default() }.normalized()
}

fn plan_settings(model: &Model, changes: &Map<String, Value>) -> Result<Vec<Change>, ControlError> {
    let from = own_settings(model);
    let router = patched_known("setting of the router", &from.router, changes)?;
    let to = checked(Config { router, ..Config::default() })?.normalized();
    let difference = from.difference(&to);
    if !difference.restart.is_empty() {
        return Err(ControlError::Conflict(format!(
            "only a restart can change this, and nothing was changed: {}",
            difference.restart.join("; ").replace("the file says", "asked for is")
        )));
    }
    Ok(difference.changes)
}

fn plan_neighbour(model: &Model, new: &NewNeighbour) -> Result<Change, ControlError> {
    let mac = new.mac.parse().map_err(|_| {
        ControlError::Invalid(format!("{:?} is no MAC address: write it as 02:00:00:00:00:01", new.mac))
    })?;
    let neighbour = Neighbour { port: new.port.as_str().into(), address: new.address, mac: Text::of(mac) };
    model.known_for_good(&neighbour)?;
    match known_neighbour(model, &new.port, new.address) {
        Some(known) => Err(ControlError::Conflict(format!(
            "neighbour {} at port {:?} is known to be {}: remove it first",
            new.address,
            new.port,
            known.mac.value()
        ))),
        None => Ok(Change::AddNeighbour(neighbour)),
    }
}

fn plan_forgetting(model: &Model, old: &OldNeighbour) -> Result<Change, ControlError> {
    model.port(&old.port)?;
    let known = known_neighbour(model, &old.port, old.address).cloned();
    known.map(Change::RemoveNeighbour).ok_or_else(|| {
        ControlError::NotFound(format!(
            "no static neighbour {} at port {:?}: learnt neighbours expire by themselves",
            old.address, old.port
        ))
    })
}

fn known_neighbour<'a>(model: &'a Model, port: &str, address: IpAddr) -> Option<&'a Neighbour> {
    model.neighbours.iter().find(|one| &*one.port == port && one.address == address)
}

/// Checks a configuration: converts it to text and parses the text.
pub(crate) fn checked(config: Config) -> Result<Config, ControlError> {
    let text = config.to_text()?;
    Config::parse(&text, "settings").map_err(|wrong| {
        let problems = wrong.errors().iter().map(|error| error.problem.as_str());
        ControlError::Invalid(problems.collect::<Vec<_>>().join("; "))
    })
}
