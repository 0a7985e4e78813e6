//! Router that a configuration describes, planned before any device is opened.

mod ports;

use self::ports::plan_ports;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use millrace_classify::prefix_match::PrefixMatchKind;
use millrace_classify::{CompiledExpression, CompiledSelection, FilterExpression, Selection, UnknownPort};
use millrace_config::{
    Budget, Config, ConfigErrors, GateTable, OnFault, PortKind, RouteKind, SharedObjects, Step,
};
use millrace_forward::{MartianPolicy, NextHop, NextHops, Route};
use millrace_pipeline::{
    ClassLimits, NeighbourChange, NeighbourKnowledge, Options, PortSettings, ReversePath, TableKind,
};
use millrace_plugin::{CallLimits, Limits, Manifest, PluginChange, PluginControlError, PluginControlUnit};
use millrace_plugin_abi::{Home, Plugin};
use millrace_repository::{Memory, Repository};
use millrace_units::{GateId, InstanceId, PortId};
use serde_json::{Map, Value};

use crate::error::Unplannable;
use crate::flows::placement::Placed;
use crate::plugins::built_in::{built_in_plugins, test_plugins};
use crate::plugins::load::Admitted;
use crate::plugins::loader::Loader;
use crate::ports::control_plane::limits_of;
use crate::routes::OwnRoutes;
use crate::schedulers::Schedulers;
use crate::schedulers::tree::{Part, Unplanned};
use crate::workers::crash::beginning;
use crate::{ControlError, NewPlugin};

/// Plugin control unit with the filter types of this room.
pub(crate) type Plugins = PluginControlUnit<FilterExpression, CompiledExpression>;

/// Binding at control, with its filter as written and as compiled.
pub(crate) type Bound = millrace_plugin::Bound<FilterExpression, CompiledExpression>;

/// Planned port.
#[derive(Clone, Debug)]
pub(crate) struct PortPlan {
    /// Id of the port.
    pub id: PortId,
    /// Configuration of the port.
    pub config: millrace_config::Port,
    /// Settings of the port in the pipeline. At kernel ports the mirror completes them.
    pub settings: PortSettings,
}

impl PortPlan {
    /// Whether the port is a kernel device; false for sub-interfaces.
    pub fn is_kernel(&self) -> bool {
        self.config.kind == PortKind::Device && self.config.vlan.is_none()
    }
}

/// Planned router.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub ports: Vec<PortPlan>,
    pub own_routes: OwnRoutes,
    /// Configured routes, as given, by prefix.
    pub routes: BTreeMap<IpNet, millrace_config::Route>,
    pub neighbours: Vec<millrace_config::Neighbour>,
    /// Placements of flows; the first placement that matches a flow counts.
    pub placements: Vec<Placed>,
    /// Configured router-wide settings.
    pub router: millrace_config::Router,
    /// Configured control-plane policing.
    pub control_plane: millrace_config::ControlPlane,
    /// Configured settings that apply to all plugin files.
    pub plugin_settings: millrace_config::Plugins,
    /// Configuration of the HTTP interface.
    pub api: millrace_config::Api,
    /// Plugin files by plugin name, in load order.
    pub files: Vec<(&'static str, millrace_config::Plugin)>,
    pub plugins: Plugins,
    /// Repository: trusted signers, versions of plugin files, and quarantine.
    pub repository: Repository,
    /// Whether plugin files may be shared objects.
    pub shared_objects: SharedObjects,
    /// Schedulers of the ports.
    pub schedulers: Schedulers,
    /// Table kinds of the configured gates.
    pub gate_tables: Vec<(GateId, TableKind)>,
    pub options: Options,
}

impl Model {
    /// Plans the router of a configuration without any state of earlier runs.
    pub fn new(config: &Config) -> Result<Self, ControlError> {
        Self::remembering(config, Memory::open(None), &Loader::new(config))
    }

    /// Plans the router of a configuration to check it: no code of shared objects runs.
    pub fn planned(config: &Config) -> Result<Self, ControlError> {
        Self::remembering(config, Memory::open(None), &Loader::new(config).planning())
    }

    /// Plans the router of a configuration with the state of earlier runs, and loads plugin files with
    /// `loader`.
    pub fn remembering(config: &Config, memory: Memory, loader: &Loader) -> Result<Self, ControlError> {
        Self::with_plugins(config, memory, loader, built_in_plugins())
    }

    /// Plans the router of a configuration with the given built-in plugins.
    pub fn with_plugins(
        config: &Config,
        memory: Memory,
        loader: &Loader,
        built_in: Vec<Arc<dyn Plugin>>,
    ) -> Result<Self, ControlError> {
        let mut model = Self {
            ports: plan_ports(config)?,
            own_routes: OwnRoutes::default(),
            routes: BTreeMap::new(),
            neighbours: Vec::new(),
            placements: config.place.iter().map(Placed::of).collect(),
            router: config.router.clone(),
            control_plane: config.control_plane.clone(),
            plugin_settings: config.plugins.clone(),
            api: config.api.clone(),
            files: Vec::new(),
            plugins: Plugins::new(),
            repository: crate::plugins::load::repository(&config.plugins, memory)?,
            shared_objects: config.plugins.shared_objects,
            schedulers: Schedulers::default(),
            gate_tables: Vec::new(),
            options: Options {
                control_plane: limits_of(&config.control_plane),
                ..options(&config.router, limits(&config.plugins))
            },
        };
        for plan in &model.ports {
            for net in &plan.settings.addresses {
                model.own_routes.add_address(plan.id, *net);
            }
        }
        let mut wrong = Unplannable::of(config);
        model.plan_schedulers(config, &mut wrong);
        // Without the left-out ports, the routes and neighbours of these ports would be reported as errors.
        let (routes, neighbours) = match config.lacks("port") {
            true => (&[][..], &[][..]),
            false => (&config.route[..], &config.neighbour[..]),
        };
        for (index, route) in routes.iter().enumerate() {
            let at = [Step::Key("route"), Step::Entry(index), Step::Key("via")];
            wrong.unless(model.add_route(route).map_err(|error| error.placed(config, &at)));
        }
        for (index, neighbour) in neighbours.iter().enumerate() {
            let at = [Step::Key("neighbour"), Step::Entry(index), Step::Key("address")];
            wrong.unless(model.known_for_good(neighbour).map_err(|error| error.placed(config, &at)));
            model.neighbours.push(neighbour.clone());
        }
        model.check_placements(config, &mut wrong);
        model.plugins.set_workers(config.router.workers);
        let port = |plan: &PortPlan| (plan.settings.name.clone(), plan.id.0);
        model.plugins.set_ports(model.ports.iter().map(port).collect());
        model.add_plugins(config, loader, built_in, &mut wrong)?;
        wrong.refuse()?;
        Ok(model)
    }

    /// Returns the errors in the rest of a configuration whose invalid entries were left out. Returns `None`
    /// if there are none, or if the left-out entries may have caused them.
    pub fn wrong_with_rest(rest: &Config, loader: &Loader) -> Option<ConfigErrors> {
        if rest.lacks("port") && plan_ports(rest).is_err() {
            return None;
        }
        match Self::remembering(rest, Memory::open(None), loader) {
            Err(ControlError::Config(wrong)) => Some(wrong),
            _ => None,
        }
    }

    /// Plans the scheduler trees of ports. Checks the settings of flows only in valid trees.
    fn plan_schedulers(&mut self, config: &Config, wrong: &mut Unplannable) {
        let mut planned = Vec::new();
        for PortPlan { id, config: port, settings } in &self.ports {
            let Some(scheduler) = &port.scheduler else { continue };
            let tree = self.schedulers.plan(*id, &settings.name, scheduler);
            let placed = tree.map_err(|unplanned| unplanned.placed(config, &settings.name));
            planned.extend(wrong.unless(placed).map(|_| (&settings.name, scheduler)));
        }
        for (port, scheduler) in planned {
            let flows = self.flow_changes(port, &[], &scheduler.flow);
            let of_flows = |error| Unplanned { part: Part::Setting("flow"), error }.placed(config, port);
            wrong.unless(flows.map_err(of_flows));
        }
    }

    /// Returns the change that adds a static neighbour at the workers.
    pub fn known_for_good(
        &self,
        neighbour: &millrace_config::Neighbour,
    ) -> Result<NeighbourChange, ControlError> {
        let port = self.port(&neighbour.port)?;
        if port.is_kernel() {
            return Err(ControlError::Invalid(format!(
                "neighbour {} at port {:?}: neighbours of kernel devices are the kernel's: set them with `ip neighbour`",
                neighbour.address, &*neighbour.port
            )));
        }
        let state = NeighbourKnowledge::Static(*neighbour.mac.value());
        Ok(NeighbourChange { port: port.id, address: neighbour.address, state })
    }

    /// Returns the configured routes that the kernel keeps. They are installed in the kernel, and the mirror
    /// reports them back.
    pub fn kernel_routes(&self) -> impl Iterator<Item = &millrace_config::Route> {
        let own = |prefix: &IpNet| self.own_routes.is_added(prefix);
        self.routes.iter().filter(move |(prefix, _)| !own(prefix)).map(|(_, route)| route)
    }

    /// Whether there is a configured route to exactly this prefix, and the kernel keeps it.
    pub fn is_for_kernel(&self, prefix: &IpNet) -> bool {
        self.routes.contains_key(prefix) && !self.own_routes.is_added(prefix)
    }

    /// Returns the policy under which plugin files are loaded.
    pub fn admitted(&self) -> Admitted {
        Admitted { trust: self.repository.trust(), shared_objects: self.shared_objects, runs: true }
    }

    /// Returns the port of this name.
    pub fn port(&self, name: &str) -> Result<&PortPlan, ControlError> {
        let known = self.ports.iter().map(|plan| plan.settings.name.as_str());
        self.ports
            .iter()
            .find(|plan| plan.settings.name == name)
            .ok_or_else(|| ControlError::unknown("port", name, known))
    }

    /// Returns the name of a port; `-` for an unknown id.
    pub fn port_name(&self, id: PortId) -> &str {
        self.ports.iter().find(|plan| plan.id == id).map_or("-", |plan| &plan.settings.name)
    }

    /// Returns the id of a gate.
    pub fn gate(&self, name: &str) -> Result<GateId, ControlError> {
        Ok(self.plugins.gate(name)?.id)
    }

    /// Returns the id of an instance.
    pub fn instance(&self, name: &str) -> Result<InstanceId, ControlError> {
        let mut names = self.plugins.instance_names();
        let found = names.find(|(_, own, _)| *own == name).map(|(id, ..)| id);
        let known = || self.plugins.instance_names().map(|(_, name, _)| name);
        found.ok_or_else(|| ControlError::unknown("instance", name, known()))
    }

    /// Compiles a filter.
    pub fn compile(&self, filter: &FilterExpression) -> Result<CompiledExpression, ControlError> {
        filter.compile(|name| self.port_id(name)).map_err(|unknown| self.unknown_port(filter, &unknown))
    }

    /// Compiles an expression that only selects packets.
    pub fn compile_selection(&self, filter: &Selection) -> Result<CompiledSelection, ControlError> {
        filter.compile(|name| self.port_id(name)).map_err(|unknown| self.unknown_port(filter, &unknown))
    }

    fn port_id(&self, name: &str) -> Option<PortId> {
        self.port(name).ok().map(|plan| plan.id)
    }

    /// Returns the error of a filter that names an unknown port.
    pub fn unknown_port(&self, filter: &impl Display, unknown: &UnknownPort) -> ControlError {
        let known = self.ports.iter().map(|plan| plan.settings.name.as_str());
        let missing = ControlError::unknown("port", &unknown.name, known);
        ControlError::Invalid(format!("filter {:?}: {missing}", filter.to_string()))
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
    /// without a kernel device whose subnet contains an address.
    pub fn plan_route(
        &self,
        route: &millrace_config::Route,
        towards: impl Fn(IpAddr) -> Option<PortId>,
    ) -> Result<Option<Route>, ControlError> {
        if let Some(port) = &route.port {
            self.port(port)?;
        }
        let plain = match route.kind {
            RouteKind::Forward => None,
            RouteKind::Blackhole => Some(Route::Blackhole),
            RouteKind::Unreachable => Some(Route::Unreachable),
            RouteKind::Prohibit => Some(Route::Prohibit),
        };
        let has_kernel = self.ports.iter().any(PortPlan::is_kernel);
        let hops = match &plain {
            None => self.own_hops(route, towards)?,
            Some(_) => None,
        };
        match (hops, plain) {
            (Some(hops), _) => Ok(Some(Route::Forward(hops))),
            (None, Some(plain)) if !has_kernel => Ok(Some(plain)),
            (None, _) if has_kernel => Ok(None),
            (None, _) => Err(ControlError::Invalid(format!(
                "route {:?}: its next hop is in no subnet of a port; say `port` as well",
                route.to.written()
            ))),
        }
    }

    /// Returns the next hops of a route, if all of them are behind ports without a kernel device.
    fn own_hops(
        &self,
        route: &millrace_config::Route,
        towards: impl Fn(IpAddr) -> Option<PortId>,
    ) -> Result<Option<NextHops>, ControlError> {
        let named = route.port.as_ref().map(|name| self.port(name)).transpose()?;
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
            .map_err(|error| ControlError::Invalid(format!("route {:?}: {error}", route.to.written())))
    }

    fn load_plugin(&mut self, plugin: &millrace_config::Plugin, loader: &Loader) -> Result<(), ControlError> {
        let path = plugin.file.display().to_string();
        let new = NewPlugin { path, allow_downgrade: plugin.allow_downgrade };
        let admit = |half, manifest: &Manifest, origin| {
            crate::plugins::load::admit_new(self, half, manifest, origin, &new)
        };
        let loaded = loader.load(&self.admitted(), &new.path, &admit)?;
        let (name, version) = (loaded.plugin.name(), loaded.plugin.version());
        crate::plugins::load::enter(self, loaded, &new)?;
        crate::plugins::load::log(&new.path, Ok((name, version)));
        Ok(())
    }

    /// Creates an instance, in quarantine if there is a quarantine entry for its name and plugin.
    pub fn create_instance(
        &mut self,
        plugin: &str,
        name: &str,
        settings: Map<String, Value>,
    ) -> Result<Vec<PluginChange<CompiledExpression>>, ControlError> {
        Ok(self.create_instance_as(plugin, name, settings)?)
    }

    /// Works like [`create_instance`](Self::create_instance), but returns the unconverted error.
    fn create_instance_as(
        &mut self,
        plugin: &str,
        name: &str,
        settings: Map<String, Value>,
    ) -> Result<Vec<PluginChange<CompiledExpression>>, PluginControlError> {
        let Some(held) = self.repository.quarantine().find(name, plugin) else {
            let home = self.plugins.plugin_named(plugin).map_or(Home::BuiltIn, |plugin| plugin.home());
            let create = || self.plugins.create_instance(plugin, name, settings);
            let created = if home == Home::Trusted { beginning(name, plugin, create) } else { create() };
            return Ok(vec![created?.1]);
        };
        let why = held.why.clone();
        let (_, changes) = self.plugins.create_quarantined(plugin, name, settings, why.clone())?;
        let out = format!("`millrace instance release {name}` lets it out");
        tracing::warn!(instance = name, plugin, "is in quarantine: {why}; {out}");
        Ok(changes)
    }

    /// Loads plugins, and creates gates, instances and bindings. Leaves out errors that only follow from
    /// other errors.
    fn add_plugins(
        &mut self,
        config: &Config,
        loader: &Loader,
        built_in: Vec<Arc<dyn Plugin>>,
        wrong: &mut Unplannable,
    ) -> Result<(), ControlError> {
        for plugin in built_in.into_iter().chain(test_plugins()) {
            self.plugins.add_plugin(plugin)?;
        }
        // An error in `plugins` may concern the permission to load plugins.
        let mut all_loaded = !config.lacks("plugin") && !config.lacks("plugins");
        for (index, plugin) in config.plugin.iter().enumerate().filter(|_| !config.lacks("plugins")) {
            let at = [Step::Key("plugin"), Step::Entry(index), Step::Key("file")];
            let loaded = self.load_plugin(plugin, loader).map_err(|error| error.placed(config, &at));
            all_loaded &= wrong.unless(loaded).is_some();
        }
        for gate in &config.gate {
            if let Some(position) = &gate.position {
                self.plugins.create_gate(&gate.name, *position.value(), None)?;
            }
            self.gate_tables.push((self.plugins.gate(&gate.name)?.id, table_kind(gate.table)));
        }
        let missing = self.create_instances(config, all_loaded, wrong);
        if config.lacks("port") {
            return Ok(());
        }
        for (index, bind) in config.bind.iter().enumerate() {
            if missing.contains(&*bind.instance) {
                continue;
            }
            let at = [Step::Key("bind"), Step::Entry(index)];
            wrong.unless_named(self.bind_as(bind).map_err(|error| error.placed(config, &at)));
        }
        for (index, filter) in config.filter.iter().enumerate() {
            let (matches, action) = (filter.r#match.value(), filter.action.value());
            if action.instance().is_some_and(|instance| missing.contains(instance)) {
                continue;
            }
            let at = [Step::Key("filter"), Step::Entry(index), Step::Key("action")];
            let added = self.add_filter(matches, action, filter.gate.as_deref(), filter.priority);
            wrong.unless_named(added.map_err(|error| error.placed(config, &at)));
        }
        Ok(())
    }

    /// Creates the configured instances. Returns the names of those that can't be created. If a plugin failed
    /// to load, instances of unknown plugins are not reported, since they may belong to it.
    fn create_instances<'c>(
        &mut self,
        config: &'c Config,
        all_loaded: bool,
        wrong: &mut Unplannable,
    ) -> HashSet<&'c str> {
        let mut missing = HashSet::new();
        for (index, instance) in config.instance.iter().enumerate() {
            let name: &str = &instance.name;
            let names_missing = |value: &Value| {
                let named = value.as_str().and_then(|named| named.split('/').next());
                named.is_some_and(|named| missing.contains(named))
            };
            let is_known = self.plugins.plugin_named(&instance.plugin).is_ok();
            if (!is_known && !all_loaded) || instance.settings.values().any(names_missing) {
                missing.insert(name);
                continue;
            }
            let table = if is_known { "settings" } else { "plugin" };
            let mut settings = instance.settings.clone();
            // Each faulty setting is left out in turn, so that all of them are reported.
            while let Err(error) = self.create_instance_as(&instance.plugin, name, settings.clone()) {
                missing.insert(name);
                let setting = error.setting().unwrap_or_default().to_owned();
                let is_there = settings.remove(&setting).is_some();
                // The missing setting may be one that was left out as misspelt.
                if !is_there && settings.len() < instance.settings.len() {
                    break;
                }
                let at = [Step::Key("instance"), Step::Entry(index), Step::Key(table), Step::Name(&setting)];
                let error = ControlError::from(error).of(&format!("instance {name:?}"));
                wrong.unless_named::<()>(Err(error.placed(config, &at)));
                if !is_there {
                    break;
                }
            }
        }
        missing
    }
}

/// Returns the table kind of a gate.
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

/// Returns the call limits of a binding.
pub(crate) fn call_limits(on_fault: OnFault, call: Option<Budget>, packet: Option<Budget>) -> CallLimits {
    CallLimits {
        on_fault: match on_fault {
            OnFault::Drop => millrace_plugin::OnFault::Drop,
            OnFault::Bypass => millrace_plugin::OnFault::Bypass,
        },
        call: call.map_or(CallLimits::DEFAULT_CALL, Budget::duration),
        packet: packet.map(Budget::duration),
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

/// Returns the workers' options from the router-wide settings.
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

/// Returns the limits of instances from the plugin settings.
fn limits(plugins: &millrace_config::Plugins) -> Limits {
    Limits {
        slice: plugins.slice.duration(),
        faults: plugins.faults,
        fault_window: plugins.fault_window.duration(),
    }
}

#[cfg(test)]
mod tests;
