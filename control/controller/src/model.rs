//! Router that a configuration describes, planned before any device is opened.

pub(crate) mod flow_queues;
pub(crate) mod own_routes;
pub(crate) mod packets;
pub(crate) mod permits;
pub(crate) mod placements;
pub(crate) mod ports;
pub(crate) mod principals;
pub(crate) mod running;
pub(crate) mod schedulers;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::IpAddr;

use ipnet::IpNet;
use millrace_classify::prefix_match::PrefixMatchKind;
use millrace_classify::{CompiledExpression, CompiledSelection, FilterExpression, Selection, UnknownPort};
use millrace_config::{Budget, GateTable, OnFault, PortKind, RouteKind};
use millrace_forward::{MartianPolicy, NextHop, NextHops, Route};
use millrace_pipeline::{
    ClassLimits, NeighbourChange, NeighbourKnowledge, Options, PortSettings, ReversePath, TableKind,
};
use millrace_plugin::{CallLimits, Limits, PluginControlUnit};
use millrace_repository::Repository;
use millrace_units::{GateId, InstanceId, PortId};

use crate::ControlError;
use crate::model::own_routes::OwnRoutes;
use crate::model::placements::Placements;
use crate::model::principals::{Payer, PrincipalIds};
use crate::model::schedulers::Schedulers;

/// Plugin control unit with the filter types of this crate.
pub(crate) type Plugins = PluginControlUnit<FilterExpression, CompiledExpression>;

/// Binding at control, with its filter as configured and as compiled.
pub(crate) type Bound = millrace_plugin::Bound<FilterExpression, CompiledExpression>;

/// Change of plugins at the workers.
pub(crate) type PluginChange = millrace_plugin::PluginChange<CompiledExpression>;

#[derive(Clone, Debug)]
pub(crate) struct PortPlan {
    pub id: PortId,
    pub config: millrace_config::Port,
    /// Settings of the port in the pipeline. The mirror of the kernel completes the settings of kernel ports.
    pub settings: PortSettings,
}

impl PortPlan {
    /// Whether the port is a kernel device; false for sub-interfaces.
    pub fn is_kernel(&self) -> bool {
        self.config.kind == PortKind::Device && self.config.vlan.is_none()
    }
}

/// Configured settings that only a restart changes.
#[derive(Clone, Debug)]
pub(crate) struct Fixed {
    /// Settings that apply to all plugin files.
    pub plugins: millrace_config::Plugins,
    /// Configuration of the HTTP API.
    pub api: millrace_config::Api,
    /// Limits and idle times of connections.
    pub connections: millrace_config::Connections,
}

impl Fixed {
    pub fn of(config: &millrace_config::Config) -> Self {
        let (plugins, api) = (config.plugins.clone(), config.api.clone());
        Self { plugins, api, connections: config.connections.clone() }
    }
}

/// Router that a configuration describes.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub ports: Vec<PortPlan>,
    pub own_routes: OwnRoutes,
    /// Configured routes by prefix, in the form of the configuration.
    pub routes: BTreeMap<IpNet, millrace_config::Route>,
    pub neighbours: Vec<millrace_config::Neighbour>,
    /// Placements of flows and instances, and the services.
    pub placements: Placements,
    /// Configured router-wide settings.
    pub router: millrace_config::Router,
    /// Configured control-plane policing.
    pub control_plane: millrace_config::ControlPlane,
    /// How much may be promised.
    pub admission: millrace_config::Admission,
    /// Settings that only a restart changes.
    pub fixed: Fixed,
    /// Principals in the order of their addition.
    pub principals: Vec<millrace_config::Principal>,
    /// Ids of the principals at the workers.
    pub principal_ids: PrincipalIds,
    /// Plugin files by plugin name, in load order.
    pub files: Vec<(&'static str, millrace_config::Plugin)>,
    pub plugins: Plugins,
    /// Repository: trusted signers, versions of plugin files, and quarantine.
    pub repository: Repository,
    pub schedulers: Schedulers,
    /// Table kinds of the configured gates.
    pub gate_tables: Vec<(GateId, TableKind)>,
    pub options: Options,
}

impl Model {
    /// Returns the change that adds a static neighbour at the workers.
    pub fn known_for_good(
        &self,
        neighbour: &millrace_config::Neighbour,
    ) -> Result<NeighbourChange, ControlError> {
        let port = self.port(&neighbour.port)?;
        if port.is_kernel() {
            return Err(ControlError::invalid(format!(
                "neighbour {} at port {:?}: the kernel manages the neighbours of this device: set them with `ip neighbour`",
                neighbour.address, &*neighbour.port
            )));
        }
        let state = NeighbourKnowledge::Static(*neighbour.mac.value());
        Ok(NeighbourChange { port: port.id, address: neighbour.address, state })
    }

    /// Returns the configured routes that the kernel keeps. Control installs them in the kernel, and the
    /// mirror reports them back.
    pub fn kernel_routes(&self) -> impl Iterator<Item = &millrace_config::Route> {
        let own = |prefix: &IpNet| self.own_routes.is_added(prefix);
        self.routes.iter().filter(move |(prefix, _)| !own(prefix)).map(|(_, route)| route)
    }

    /// Whether the kernel keeps a configured route to exactly this prefix.
    pub fn is_for_kernel(&self, prefix: &IpNet) -> bool {
        self.routes.contains_key(prefix) && !self.own_routes.is_added(prefix)
    }

    pub fn port(&self, name: &str) -> Result<&PortPlan, ControlError> {
        let found = self.ports.iter().find(|plan| plan.settings.name == name);
        found.ok_or_else(|| {
            ControlError::unknown("port", name, self.ports.iter().map(|plan| plan.settings.name.as_str()))
        })
    }

    /// Returns the id of the port of this name.
    pub fn port_id(&self, name: &str) -> Option<PortId> {
        self.port(name).ok().map(|plan| plan.id)
    }

    /// Returns the name of a port; `-` for an unknown id.
    pub fn port_name(&self, id: PortId) -> &str {
        self.ports.iter().find(|plan| plan.id == id).map_or("-", |plan| &plan.settings.name)
    }

    pub fn instance(&self, name: &str) -> Result<InstanceId, ControlError> {
        let mut names = self.plugins.instance_names();
        let found = names.find(|(_, own, _)| *own == name).map(|(id, ..)| id);
        let known = || self.plugins.instance_names().map(|(_, name, _)| name);
        found.ok_or_else(|| ControlError::unknown("instance", name, known()))
    }

    pub fn compile(&self, filter: &FilterExpression) -> Result<CompiledExpression, ControlError> {
        filter.compile(|name| self.port_id(name)).map_err(|unknown| self.unknown_port(filter, &unknown))
    }

    /// Compiles a selection.
    pub fn compile_selection(&self, filter: &Selection) -> Result<CompiledSelection, ControlError> {
        filter.compile(|name| self.port_id(name)).map_err(|unknown| self.unknown_port(filter, &unknown))
    }

    /// Returns the error of a filter that names an unknown port.
    pub fn unknown_port(&self, filter: &impl Display, unknown: &UnknownPort) -> ControlError {
        let known = self.ports.iter().map(|plan| plan.settings.name.as_str());
        let missing = ControlError::unknown("port", &unknown.name, known);
        ControlError::invalid(format!("filter {:?}: {missing}", filter.to_string()))
    }

    /// Adds a route to the model. Returns whether the kernel keeps the route.
    pub fn add_route(&mut self, route: &millrace_config::Route) -> Result<bool, ControlError> {
        let prefix = *route.to.value();
        let own = self.plan_route(route, |address| self.own_routes.port_towards(address))?;
        let for_kernel = own.is_none();
        if let Some(own) = own {
            self.own_routes.add(prefix, own);
        }
        self.routes.insert(prefix, route.clone());
        Ok(for_kernel)
    }

    /// Returns the route for the workers, or `None` if the kernel keeps the route. `towards` finds the port
    /// whose subnet contains an address, among the ports without a kernel device.
    pub fn plan_route(
        &self,
        route: &millrace_config::Route,
        towards: impl Fn(IpAddr) -> Option<PortId>,
    ) -> Result<Option<Route>, ControlError> {
        if let Some(port) = &route.port {
            self.port(port)?;
        }
        let has_kernel = self.ports.iter().any(PortPlan::is_kernel);
        let own = match route.kind {
            RouteKind::Forward => own_hops(self, route, towards)?.map(Route::Forward),
            _ if has_kernel => None,
            RouteKind::Blackhole => Some(Route::Blackhole),
            RouteKind::Unreachable => Some(Route::Unreachable),
            RouteKind::Prohibit => Some(Route::Prohibit),
        };
        if own.is_none() && !has_kernel {
            return Err(in_no_subnet(route));
        }
        Ok(own)
    }
}

/// Returns the error for a route whose next hop is in no subnet of a port.
pub(crate) fn in_no_subnet(route: &millrace_config::Route) -> ControlError {
    ControlError::invalid(format!(
        "route {:?}: its next hop is in no subnet of a port: give its `port` as well",
        route.to.written()
    ))
}

/// Returns the next hops of a route if all of them are at ports without a kernel device, else `None`.
fn own_hops(
    model: &Model,
    route: &millrace_config::Route,
    towards: impl Fn(IpAddr) -> Option<PortId>,
) -> Result<Option<NextHops>, ControlError> {
    let named = route.port.as_ref().map(|name| model.port(name)).transpose()?;
    if named.is_some_and(PortPlan::is_kernel) {
        return Ok(None);
    }
    let hop = |via: Option<IpAddr>| {
        let port = named.map(|plan| plan.id).or_else(|| towards(via?))?;
        Some(NextHop::new(port, via))
    };
    let hops: Option<Vec<NextHop>> = match route.via.as_slice() {
        [] => Some(hop(None).into_iter().collect()),
        via => via.iter().map(|via| hop(Some(*via))).collect(),
    };
    hops.map(|hops| NextHops::new(&hops))
        .transpose()
        .map_err(|error| ControlError::invalid(format!("route {:?}: {error}", route.to.written())))
}

pub(crate) fn table_kind(table: GateTable) -> TableKind {
    match table {
        GateTable::Auto => TableKind::default(),
        GateTable::Linear => TableKind::Linear,
        GateTable::TupleSpace => TableKind::TupleSpace,
        GateTable::CuttingTree => TableKind::CuttingTree,
        GateTable::Dag => TableKind::Dag(PrefixMatchKind::BinarySearchOnLengths),
        GateTable::DagPatricia => TableKind::Dag(PrefixMatchKind::Patricia),
        GateTable::DagTreeBitmap => TableKind::Dag(PrefixMatchKind::TreeBitmap),
    }
}

/// Returns the call limits of a binding that a principal pays for, with their defaults.
pub(crate) fn call_limits(
    (on_fault, call, packet): (OnFault, Option<Budget>, Option<Budget>),
    Payer { principal, link_queue, in_line }: Payer,
    queue: Option<u16>,
) -> CallLimits {
    CallLimits {
        on_fault: match on_fault {
            OnFault::Drop => millrace_plugin::OnFault::Drop,
            OnFault::Bypass => millrace_plugin::OnFault::Bypass,
        },
        call: call.map_or(CallLimits::DEFAULT_PAID_CALL, Budget::duration),
        packet: packet.map(Budget::duration),
        principal,
        queue,
        link_queue,
        in_line,
        worker: None,
    }
}

/// Returns the reverse-path check of a port for the pipeline.
pub(crate) fn reverse_path(reverse_path: millrace_config::ReversePath) -> ReversePath {
    match reverse_path {
        millrace_config::ReversePath::Off => ReversePath::Off,
        millrace_config::ReversePath::Strict => ReversePath::Strict,
        millrace_config::ReversePath::Loose => ReversePath::Loose,
    }
}

/// Returns the workers' options that follow from the router-wide settings.
pub(crate) fn options(router: &millrace_config::Router, instances: Limits) -> Options {
    Options {
        martians: MartianPolicy {
            forward_this_network: router.forward_zero_net,
            forward_loopback: false,
            forward_link_local: router.forward_link_local,
            forward_class_e: router.forward_class_e,
        },
        icmp_rate: router.icmp_rate,
        icmp_burst: router.icmp_burst,
        icmp_dscp: router.icmp_dscp,
        redirects: router.redirects,
        router_id: router.router_id,
        route_priority: router.route_priority,
        flows_max: router.flows_max,
        new_flows: router.new_flows,
        plugin_weight: router.plugin_weight,
        flow_idle: router.flow_idle.duration(),
        instances,
        control_plane: ClassLimits::default(),
    }
}
