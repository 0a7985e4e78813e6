//! Plans of single changes that have no module of their own: router-wide settings and static neighbours.
//!
//! Each plan is carried out as a transaction: completely or not at all.

use std::net::IpAddr;

use millrace_config::{Admission, Change, Config, Neighbour, Submission, Text};
use millrace_units::Message;
use serde_json::{Map, Value};

use crate::ControlError;
use crate::admission::memory::check_memory;
use crate::admission::services::check_settings;
use crate::admission::shares::check_with;
use crate::configuration::apply::without_restart;
use crate::model::Model;
use crate::model::principals::Owners;
use crate::request::merge_patch::patched_known;
use crate::request::{NewNeighbour, OldNeighbour};

/// Returns a configuration that has the router-wide settings, and no other entry.
pub(crate) fn own_settings(model: &Model) -> Config {
    Config { router: model.router.clone(), ..Config::default() }.normalized()
}

pub(crate) fn plan_settings(
    model: &Model,
    changes: &Map<String, Value>,
) -> Result<Vec<Change>, ControlError> {
    let from = own_settings(model);
    let router = patched_known("setting of the router", &from.router, changes)?;
    let to = checked(Config { router, ..Config::default() })?.normalized();
    check_with(model, &to.router, &model.admission)?;
    check_settings(model, &to.router, &model.admission)?;
    without_restart(from.difference(&to), Submission::Request)
}

pub(crate) fn plan_control_plane(
    model: &Model,
    changes: &Map<String, Value>,
) -> Result<Vec<Change>, ControlError> {
    let from = model.control_plane.clone();
    let to = patched_known("setting of the control plane", &from, changes)?;
    let to = checked(Config { control_plane: to, ..Config::default() })?.control_plane;
    let is_same = from == to;
    let change = Change::ControlPlane { from: Box::new(from), to: Box::new(to) };
    Ok(if is_same { Vec::new() } else { vec![change] })
}

pub(crate) fn plan_admission(
    model: &Model,
    changes: &Map<String, Value>,
) -> Result<Vec<Change>, ControlError> {
    let from = model.admission.clone();
    let without = Admission { allowance: Vec::new(), ..from.clone() };
    let to = patched_known("setting of admission", &without, changes)?;
    let to = checked(Config { admission: to, ..Config::default() })?.admission;
    let to = Admission { allowance: from.allowance.clone(), ..to };
    check_with(model, &model.router, &to)?;
    check_memory(&model.principals, model, &to)?;
    check_settings(model, &model.router, &to)?;
    Owners(model).check_links(&model.principals, to.link)?;
    Ok(if from == to { Vec::new() } else { vec![Change::Admission { from, to }] })
}

pub(crate) fn plan_neighbour(model: &Model, new: &NewNeighbour) -> Result<Change, ControlError> {
    let mac = new.mac.parse().map_err(|_| {
        ControlError::invalid(format!("{:?} is no MAC address: write it as 02:00:00:00:00:01", new.mac))
    })?;
    let neighbour = Neighbour { port: new.port.as_str().into(), address: new.address, mac: Text::of(mac) };
    model.known_for_good(&neighbour)?;
    match known_neighbour(model, &new.port, new.address) {
        Some(known) => Err(ControlError::conflict(format!(
            "neighbour {} at port {:?} already has the static MAC address {}: remove the neighbour first",
            new.address,
            new.port,
            known.mac.value()
        ))),
        None => Ok(Change::AddNeighbour(neighbour)),
    }
}

pub(crate) fn plan_forgetting(model: &Model, old: &OldNeighbour) -> Result<Change, ControlError> {
    model.port(&old.port)?;
    let known = known_neighbour(model, &old.port, old.address).cloned();
    known.map(Change::RemoveNeighbour).ok_or_else(|| {
        ControlError::not_found(format!(
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
        let problems = wrong.errors().iter().map(|error| error.problem.clone());
        ControlError::invalid(Message::join(problems, "; "))
    })
}
