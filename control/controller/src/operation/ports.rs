//! Operations on ports, neighbours, hardware and router-wide settings.

use crate::ControlError;
use crate::RouterSettings;
use crate::configuration::ports::PortSettings;
use crate::configuration::ports::plan_port;
use crate::configuration::single::checked;
use crate::configuration::single::own_settings;
use crate::configuration::single::plan_forgetting;
use crate::configuration::single::plan_neighbour;
use crate::configuration::single::plan_settings;
use crate::events::utc_now;
use crate::model::PortPlan;
use crate::operation::Authorized;
use crate::operation::Effect;
use crate::operation::Operation;
use crate::ports::PortParts;
use crate::ports::control_plane;
use crate::ports::device_drops_now;
use crate::ports::hardware::Machine;
use crate::ports::hardware::Parts;
use crate::ports::neighbours::neighbour_views;
use crate::request::NewNeighbour;
use crate::request::OldNeighbour;
use crate::request::merge_patch::patched_known;
use crate::request::reading::read_settings;
use crate::router::Inner;
use crate::router::Router;
use crate::view::ControlPlaneView;
use crate::view::CountersView;
use crate::view::HardwareView;
use crate::view::NeighbourView;
use crate::view::PortView;
use millrace_config::Change;
use millrace_config::Config;
use millrace_packet::ClassCounts;
use millrace_units::Message;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Map;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Changes settings of a port while it forwards: `input-weight`, `reverse-path`, and `address` if it has no
/// kernel device.
#[derive(Clone, Debug)]
pub struct SetPort {
    /// Name of the port.
    pub name: String,
    /// Changed settings; `null` resets a setting to its default.
    pub changes: Map<String, Value>,
}

impl Operation for SetPort {
    type Answer = PortView;
    const EFFECT: Effect = Effect::Forwarding;
    const TAKES_MEMORY: bool = true;

    /// # Errors
    /// Returns an error for an unknown port, other settings, or values out of range. Nothing has changed
    /// then.
    async fn carry_out(self, router: &Router, _: &Authorized<'_>) -> Result<PortView, ControlError> {
        let Self { name, changes } = self;
        let settings: PortSettings = read_settings("the request", changes).map_err(|error| {
            ControlError::invalid(
                Message::from(format!("port {name:?}: "))
                    .append(error.message())
                    .text("; only address, ")
                    .key("input-weight")
                    .text(" and ")
                    .key("reverse-path")
                    .text(
                        " can be set by a command: change other settings in the configuration file, and \
                         apply the file",
                    ),
            )
        })?;
        let port = name.clone();
        router.change(move |inner| Ok((vec![plan_port(&inner.model, &port, settings)?], ()))).await?;
        let found = port_views(&mut router.lock())?.into_iter().find(|port| port.name == name);
        found.ok_or_else(|| ControlError::System("the port was removed in the meantime".into()))
    }
}

/// Lists the ports with their counters and rates.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListPorts;

impl Operation for ListPorts {
    type Answer = Vec<PortView>;
    const EFFECT: Effect = Effect::Look;

    /// # Errors
    /// Returns an error if the data plane does not answer.
    async fn carry_out(self, router: &Router, _: &Authorized<'_>) -> Result<Vec<PortView>, ControlError> {
        port_views(&mut router.lock())
    }
}

/// Reads the counters of all ports at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct GetCounters;

impl Operation for GetCounters {
    type Answer = CountersView;
    const EFFECT: Effect = Effect::Look;

    /// # Errors
    /// Returns an error if the data plane does not answer.
    async fn carry_out(self, router: &Router, _: &Authorized<'_>) -> Result<CountersView, ControlError> {
        let mut inner = router.lock();
        let snapshot = inner.counters()?;
        let counters = |plan: &PortPlan| {
            let (share, on_death) = (inner.share(plan.id), inner.supervision.death.of_port(plan.id));
            PortParts { devices: &inner.devices, share, on_death }.counters(plan, &snapshot)
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
    const EFFECT: Effect = Effect::Look;

    /// # Errors
    /// Returns an error if the data plane does not answer.
    async fn carry_out(
        self,
        router: &Router,
        _: &Authorized<'_>,
    ) -> Result<Vec<NeighbourView>, ControlError> {
        neighbours(&mut router.lock())
    }
}

/// Reads the processors, ports and switches, with their capabilities.
#[derive(Clone, Copy, Debug, Default)]
pub struct GetHardware;

impl Operation for GetHardware {
    type Answer = HardwareView;
    const EFFECT: Effect = Effect::Look;

    /// # Errors
    /// Returns an error if the kernel can't be queried.
    async fn carry_out(self, router: &Router, _: &Authorized<'_>) -> Result<HardwareView, ControlError> {
        let (threads, devices) = {
            let inner = router.lock();
            let threads: Vec<i32> = inner.workers.watched().iter().map(|one| one.thread.as_raw()).collect();
            (threads, inner.devices.kernel.values().map(|device| device.ifindex).collect::<Vec<_>>())
        };
        // The kernel may answer slowly, so it is queried on a blocking thread without the lock.
        let asked = tokio::task::spawn_blocking(move || Machine::ask(threads, devices)).await;
        let machine =
            asked.map_err(|error| ControlError::system("ask the kernel for the hardware", error))?;
        let inner = router.lock();
        let parts = Parts { model: &inner.model, devices: &inner.devices, workers: inner.workers.len() };
        Ok(parts.describe(machine))
    }
}

/// Reads the counters and rates of all classes.
#[derive(Clone, Copy, Debug, Default)]
pub struct GetControlPlane;

impl Operation for GetControlPlane {
    type Answer = ControlPlaneView;
    const EFFECT: Effect = Effect::Look;

    /// # Errors
    /// Returns an error if the data plane does not answer.
    async fn carry_out(self, router: &Router, _: &Authorized<'_>) -> Result<ControlPlaneView, ControlError> {
        control_plane_view(&mut router.lock())
    }
}

/// Changes the rates of classes.
#[derive(Clone, Debug)]
pub struct SetControlPlane {
    /// Changed settings; `null` resets a setting to its default.
    pub changes: Map<String, Value>,
}

impl Operation for SetControlPlane {
    type Answer = ControlPlaneView;
    const EFFECT: Effect = Effect::Protection;

    /// # Errors
    /// Returns an error for unknown settings or rates out of range. Nothing has changed then.
    async fn carry_out(self, router: &Router, _: &Authorized<'_>) -> Result<ControlPlaneView, ControlError> {
        let Self { changes } = self;
        router
            .change(move |inner| {
                let from = inner.model.control_plane.clone();
                let to = patched_known("setting of the control plane", &from, &changes)?;
                let to = checked(Config { control_plane: to, ..Config::default() })?.control_plane;
                let change = Change::ControlPlane { from: Box::new(from.clone()), to: Box::new(to.clone()) };
                Ok((if from == to { Vec::new() } else { vec![change] }, ()))
            })
            .await?;
        control_plane_view(&mut router.lock())
    }
}

/// Returns the router-wide settings.
#[derive(Clone, Copy, Debug, Default)]
pub struct GetSettings;

impl Operation for GetSettings {
    type Answer = RouterSettings;
    const EFFECT: Effect = Effect::Look;

    /// # Errors
    /// Returns no error at present.
    async fn carry_out(self, router: &Router, _: &Authorized<'_>) -> Result<RouterSettings, ControlError> {
        Ok(own_settings(&router.lock().model).router)
    }
}

/// Changes router-wide settings; `null` resets one to its default.
#[derive(Clone, Debug)]
pub struct SetSettings {
    /// Settings to change, with their keys in the configuration.
    pub changes: Map<String, Value>,
}

impl Operation for SetSettings {
    type Answer = RouterSettings;
    const EFFECT: Effect = Effect::Protection;
    const TAKES_MEMORY: bool = true;

    /// # Errors
    /// Returns an error for unknown settings, values out of range, or settings that need a restart. Nothing
    /// has changed then.
    async fn carry_out(self, router: &Router, _: &Authorized<'_>) -> Result<RouterSettings, ControlError> {
        let Self { changes } = self;
        let confirms_death = changes.get("on-death").is_some_and(|value| !value.is_null());
        router.change(move |inner| Ok((plan_settings(&inner.model, &changes)?, ()))).await?;
        let mut inner = router.lock();
        if confirms_death {
            inner.supervision.death.confirm();
        }
        Ok(own_settings(&inner.model).router)
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
    const EFFECT: Effect = Effect::Forwarding;
    const TAKES_MEMORY: bool = true;

    /// # Errors
    /// Returns an error for an unknown port, a kernel port, or a neighbour that is already static. Nothing
    /// has changed then.
    async fn carry_out(self, router: &Router, _: &Authorized<'_>) -> Result<NeighbourView, ControlError> {
        let Self(new) = self;
        let (port, address) = (new.port.clone(), new.address);
        router.change(move |inner| Ok((vec![plan_neighbour(&inner.model, &new)?], ()))).await?;
        let found = find_neighbour(router, &port, address)?;
        found.ok_or_else(|| ControlError::System("the neighbour was removed in the meantime".into()))
    }
}

/// Removes a static neighbour. Its MAC address is resolved again from then on.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct RemoveNeighbour(
    /// Neighbour to remove.
    pub OldNeighbour,
);

impl Operation for RemoveNeighbour {
    type Answer = NeighbourView;
    const EFFECT: Effect = Effect::Forwarding;

    /// # Errors
    /// Returns an error if there is no such static neighbour. Nothing has changed then.
    async fn carry_out(self, router: &Router, _: &Authorized<'_>) -> Result<NeighbourView, ControlError> {
        let Self(old) = self;
        let before = find_neighbour(router, &old.port, old.address)?;
        router.change(move |inner| Ok((vec![plan_forgetting(&inner.model, &old)?], ()))).await?;
        before.ok_or_else(|| ControlError::System("the neighbour is removed, but its view is missing".into()))
    }
}

/// Returns the views of all ports.
///
/// # Errors
/// Returns an error if the data plane does not answer.
fn port_views(inner: &mut Inner) -> Result<Vec<PortView>, ControlError> {
    let snapshot = inner.snapshot()?;
    let plans = inner.model.ports.clone();
    let view = |plan: &PortPlan| {
        let (share, on_death) = (inner.share(plan.id), inner.supervision.death.of_port(plan.id));
        let parts = PortParts { devices: &inner.devices, share, on_death };
        parts.view(plan, &snapshot, &mut inner.counters.rates)
    };
    let mut views: Vec<_> = plans.iter().map(view).collect();
    let dropped = inner.counters.device_drops(device_drops_now(&inner.model));
    for (view, plan) in views.iter_mut().zip(plans.iter()) {
        view.device_drops = dropped.get(&plan.id).copied().unwrap_or_default();
    }
    Ok(views)
}

/// Returns the views of all neighbours.
///
/// # Errors
/// Returns an error if the data plane does not answer.
fn neighbours(inner: &mut Inner) -> Result<Vec<NeighbourView>, ControlError> {
    let snapshot = inner.snapshot()?;
    Ok(neighbour_views(&snapshot, &inner.model, &inner.devices, &inner.kernel))
}

/// Returns the neighbour with this address at a port; `None` if there is none.
///
/// # Errors
/// Returns an error if the data plane does not answer.
fn find_neighbour(
    router: &Router,
    port: &str,
    address: IpAddr,
) -> Result<Option<NeighbourView>, ControlError> {
    let (neighbours, address) = (neighbours(&mut router.lock())?, address.to_string());
    Ok(neighbours.into_iter().find(|one| one.port == port && one.address == address))
}

/// Returns the view of control-plane policing.
///
/// # Errors
/// Returns an error if the data plane does not answer.
fn control_plane_view(inner: &mut Inner) -> Result<ControlPlaneView, ControlError> {
    let snapshot = inner.counters()?;
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
