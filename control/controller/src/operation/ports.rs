//! Operations on ports, neighbours, hardware and router-wide settings.

use std::collections::BTreeMap;
use std::net::IpAddr;

use millrace_packet::ClassCounts;
use millrace_units::Message;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::background::blocking;
use crate::configuration::ports::{PortSettings, plan_port};
use crate::configuration::single::{
    own_settings, plan_control_plane, plan_forgetting, plan_neighbour, plan_settings,
};
use crate::events::utc_now;
use crate::model::PortPlan;
use crate::operation::kinds::{Change, Changing, Query, Reading};
use crate::operation::{Effect, Operation};
use crate::ports::hardware::{Machine, Parts};
use crate::ports::neighbours::neighbour_views;
use crate::ports::{PortParts, control_plane, device_drops_now};
use crate::request::reading::read_settings;
use crate::request::{NewNeighbour, OldNeighbour};
use crate::router::{Inner, Seen};
use crate::view::{ControlPlaneView, CountersView, HardwareView, NeighbourView, PortView};
use crate::{ControlError, RouterSettings};

/// Changes settings of a port while the port forwards: `input-weight`, `output-weight` and `reverse-path`, and also `address`
/// if the port has no kernel device.
#[derive(Clone, Debug)]
pub struct SetPort {
    /// Name of the port.
    pub name: String,
    /// Changed settings; `null` resets a setting to its default.
    pub changes: Map<String, Value>,
}

impl Operation for SetPort {
    type Answer = PortView;
    type Kind = Change;

    /// # Errors
    /// Returns an error for an unknown port, a setting that can't be changed while the port forwards, or a
    /// value out of range. Nothing has changed then.
    async fn carry_out(self, router: &Changing) -> Result<PortView, ControlError> {
        let Self { name, changes } = self;
        let settings: PortSettings = read_settings("the request", changes).map_err(|error| {
            ControlError::invalid(
                Message::from(format!("port {name:?}: "))
                    .append(error.message())
                    .text("; only address, ")
                    .key("input-weight")
                    .text(", ")
                    .key("output-weight")
                    .text(" and ")
                    .key("reverse-path")
                    .text(
                        " can be set by a command: change other settings in the configuration file, and \
                         apply the file",
                    ),
            )
        })?;
        let plan = move |inner: &mut Inner| Ok((vec![plan_port(&inner.model, &name, settings)?], name));
        let answer = |inner: &mut Inner, name: String| {
            let found = port_views(&mut inner.seen())?.into_iter().find(|port| port.name == name);
            found.ok_or_else(|| ControlError::System(format!("port {name:?} is changed, but has no view")))
        };
        router.change(plan, answer).await
    }
}

/// Lists the ports with their counters and rates.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListPorts;

impl Operation for ListPorts {
    type Answer = Vec<PortView>;
    type Kind = Query;

    async fn carry_out(self, router: &Reading) -> Result<Vec<PortView>, ControlError> {
        port_views(&mut router.lock().seen())
    }
}

/// Reads the counters of all ports at the same time.
#[derive(Clone, Copy, Debug, Default)]
pub struct GetCounters;

impl Operation for GetCounters {
    type Answer = CountersView;
    type Kind = Query;

    async fn carry_out(self, router: &Reading) -> Result<CountersView, ControlError> {
        let mut guard = router.lock();
        let mut inner = guard.seen();
        let snapshot = inner.light_snapshot()?;
        let counters = |plan: &PortPlan| {
            let (share, on_death) = (inner.share(plan.id), inner.supervision.death.of_port(plan.id));
            PortParts { devices: inner.devices, share, on_death }.counters(plan, &snapshot)
        };
        let ports = inner.model.ports.iter().map(counters).collect();
        Ok(CountersView {
            time: utc_now(),
            seconds: snapshot.at.since(inner.observation.started).as_secs_f64(),
            ports,
        })
    }
}

/// Lists the neighbours of all ports.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListNeighbours;

impl Operation for ListNeighbours {
    type Answer = Vec<NeighbourView>;
    type Kind = Query;

    async fn carry_out(self, router: &Reading) -> Result<Vec<NeighbourView>, ControlError> {
        neighbours(&mut router.lock().seen())
    }
}

/// Reads the model of the hardware: processors, ports and switches, with their capabilities.
#[derive(Clone, Copy, Debug, Default)]
pub struct GetHardware;

impl Operation for GetHardware {
    type Answer = HardwareView;
    type Kind = Query;

    /// # Errors
    /// Returns an error if the kernel can't be queried.
    async fn carry_out(self, router: &Reading) -> Result<HardwareView, ControlError> {
        let (threads, devices) = {
            let inner = router.lock();
            let threads: Vec<i32> = inner.workers.watched().iter().map(|one| one.thread.as_raw()).collect();
            (threads, inner.devices.kernel.values().map(|device| device.ifindex).collect::<Vec<_>>())
        };
        // The kernel may answer slowly, so it is queried on a blocking thread without the lock.
        let ask = move || Ok(Machine::ask(threads, devices));
        let machine = blocking("ask the kernel for the hardware", ask).await?;
        let inner = router.lock();
        let parts = Parts { model: &inner.model, devices: &inner.devices, workers: inner.workers.len() };
        Ok(parts.describe(machine))
    }
}

/// Reads the counters and rates of all classes of control-plane policing.
#[derive(Clone, Copy, Debug, Default)]
pub struct GetControlPlane;

impl Operation for GetControlPlane {
    type Answer = ControlPlaneView;
    type Kind = Query;

    async fn carry_out(self, router: &Reading) -> Result<ControlPlaneView, ControlError> {
        control_plane_view(&mut router.lock().seen())
    }
}

/// Changes the rates of classes of control-plane policing.
#[derive(Clone, Debug)]
pub struct SetControlPlane {
    /// Changed settings; `null` resets a setting to its default.
    pub changes: Map<String, Value>,
}

impl Operation for SetControlPlane {
    type Answer = ControlPlaneView;
    type Kind = Change;
    const EFFECT: Effect = Effect::Protection;
    const TAKES_MEMORY: bool = false;

    /// # Errors
    /// Returns an error for unknown classes or settings, or rates out of range. Nothing has changed then.
    async fn carry_out(self, router: &Changing) -> Result<ControlPlaneView, ControlError> {
        let Self { changes } = self;
        let plan = move |inner: &mut Inner| Ok((plan_control_plane(&inner.model, &changes)?, ()));
        router.change(plan, |inner, ()| control_plane_view(&mut inner.seen())).await
    }
}

/// Returns the router-wide settings.
#[derive(Clone, Copy, Debug, Default)]
pub struct GetSettings;

impl Operation for GetSettings {
    type Answer = RouterSettings;
    type Kind = Query;

    async fn carry_out(self, router: &Reading) -> Result<RouterSettings, ControlError> {
        Ok(own_settings(&router.lock().model).router)
    }
}

/// Changes router-wide settings; `null` resets one to its default.
#[derive(Clone, Debug)]
pub struct SetSettings {
    /// Settings to change, by their keys in the configuration.
    pub changes: Map<String, Value>,
}

impl Operation for SetSettings {
    type Answer = RouterSettings;
    type Kind = Change;
    const EFFECT: Effect = Effect::Protection;

    /// # Errors
    /// Returns an error for unknown settings, values out of range, or settings that need a restart. Nothing
    /// has changed then.
    async fn carry_out(self, router: &Changing) -> Result<RouterSettings, ControlError> {
        let Self { changes } = self;
        let confirms_death = changes.get("on-death").is_some_and(|value| !value.is_null());
        let plan = move |inner: &mut Inner| Ok((plan_settings(&inner.model, &changes)?, ()));
        let answer = move |inner: &mut Inner, ()| {
            if confirms_death {
                inner.supervision.death.confirm();
            }
            Ok(own_settings(&inner.model).router)
        };
        router.change(plan, answer).await
    }
}

/// Adds a static neighbour at a port without a kernel device.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct AddNeighbour(
    /// Neighbour to add.
    pub NewNeighbour,
);

impl Operation for AddNeighbour {
    type Answer = NeighbourView;
    type Kind = Change;

    /// # Errors
    /// Returns an error for an unknown port, a kernel port, or a neighbour that is already static. Nothing
    /// has changed then.
    async fn carry_out(self, router: &Changing) -> Result<NeighbourView, ControlError> {
        let Self(new) = self;
        let plan = move |inner: &mut Inner| Ok((vec![plan_neighbour(&inner.model, &new)?], new));
        router.change(plan, |inner, new| find_neighbour(&mut inner.seen(), &new.port, new.address)).await
    }
}

/// Removes a static neighbour. From then on, the router resolves its MAC address.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct RemoveNeighbour(
    /// Neighbour to remove.
    pub OldNeighbour,
);

impl Operation for RemoveNeighbour {
    type Answer = NeighbourView;
    type Kind = Change;
    const TAKES_MEMORY: bool = false;

    /// # Errors
    /// Returns an error if there is no such static neighbour. Nothing has changed then.
    async fn carry_out(self, router: &Changing) -> Result<NeighbourView, ControlError> {
        let Self(old) = self;
        let plan = move |inner: &mut Inner| {
            let change = plan_forgetting(&inner.model, &old)?;
            Ok((vec![change], find_neighbour(&mut inner.seen(), &old.port, old.address)?))
        };
        router.change(plan, |_, before| Ok(before)).await
    }
}

/// Returns the views of all ports.
fn port_views(inner: &mut Seen<'_>) -> Result<Vec<PortView>, ControlError> {
    let snapshot = inner.snapshot()?;
    let plans = &inner.model.ports;
    let view = |plan: &PortPlan| {
        let (share, on_death) = (inner.share(plan.id), inner.supervision.death.of_port(plan.id));
        let parts = PortParts { devices: inner.devices, share, on_death };
        parts.view(plan, &snapshot, &mut inner.counters.rates)
    };
    let mut views: Vec<_> = plans.iter().map(view).collect();
    let dropped = inner.counters.device_drops(device_drops_now(inner.model));
    for (view, plan) in views.iter_mut().zip(plans) {
        view.device_drops = dropped.get(&plan.id).copied().unwrap_or_default();
    }
    Ok(views)
}

/// Returns the views of all neighbours.
fn neighbours(inner: &mut Seen<'_>) -> Result<Vec<NeighbourView>, ControlError> {
    let snapshot = inner.snapshot()?;
    Ok(neighbour_views(&snapshot, inner.model, inner.devices, inner.kernel))
}

/// Returns the static neighbour with this address at a port.
///
/// # Errors
/// Returns an error if the data plane does not answer, or does not know the neighbour.
fn find_neighbour(inner: &mut Seen<'_>, port: &str, address: IpAddr) -> Result<NeighbourView, ControlError> {
    let (neighbours, address) = (neighbours(inner)?, address.to_string());
    let found = neighbours.into_iter().find(|one| one.port == port && one.address == address);
    found.ok_or_else(|| ControlError::System(format!("static neighbour {address} at {port:?} has no view")))
}

/// Returns the view of control-plane policing.
fn control_plane_view(inner: &mut Seen<'_>) -> Result<ControlPlaneView, ControlError> {
    let snapshot = inner.light_snapshot()?;
    let mut ports = BTreeMap::new();
    for plan in &inner.model.ports {
        let mut counts: ClassCounts = inner.share(plan.id).classes;
        let own = snapshot.ports.iter().find(|(id, _)| *id == plan.id);
        own.into_iter().for_each(|(_, own)| counts.add(&own.classes));
        ports.insert(plan.settings.name.clone(), counts);
    }
    let (settings, rates) = (&inner.model.control_plane, &mut inner.counters.rates);
    Ok(control_plane::control_plane_view(settings, &ports, rates, snapshot.at))
}
