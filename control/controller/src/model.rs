//! What a configuration means, before any device is touched.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Display;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use millrace_classify::prefix_match::PrefixMatchKind;
use millrace_classify::{CompiledExpression, CompiledSelection, FilterExpression, Selection, UnknownPort};
use millrace_config::{
    Budget, Config, ConfigErrors, GateTable, OnFault, PortKind, RouteKind, SharedObjects, Step, VlanIds,
};
use millrace_forward::{MartianPolicy, NextHop, NextHops, Route};
use millrace_pipeline::{
    ClassLimits, DeviceId, NeighbourChange, NeighbourKnowledge, Options, PortSettings, ReversePath, Stack,
    TableKind, Tags,
};
use millrace_plugin::{CallLimits, Limits, Manifest, PluginChange, PluginControlError, PluginControlUnit};
use millrace_plugin_abi::{Home, Plugin};
use millrace_repository::{Memory, Repository};
use millrace_units::{GateId, InstanceId, PortId};
use millrace_wire::MacAddr;
use serde_json::{Map, Value};

use crate::built_in::{built_in_plugins, test_plugins};
use crate::control_plane::limits_of;
use crate::crash::beginning;
use crate::error::Unplannable;
use crate::load::Admitted;
use crate::loader::Loader;
use crate::placement::Placed;
use crate::routes::OwnRoutes;
use crate::scheduler_tree::{Part, Unplanned};
use crate::schedulers::Schedulers;
use crate::{ControlError, NewPlugin};

/// The control side's plugin control unit.
pub(crate) type Plugins = PluginControlUnit<FilterExpression, CompiledExpression>;

/// A binding as the control side keeps it.
pub(crate) type Bound = millrace_plugin::Bound<FilterExpression, CompiledExpression>;

/// A port as it is planned.
#[derive(Clone, Debug)]
pub(crate) struct PortPlan {
    /// Its id.
    pub id: PortId,
    /// What the configuration says of it.
    pub config: millrace_config::Port,
    /// What the pipeline is told of it. For kernel devices the mirror completes it.
    pub settings: PortSettings,
}

impl PortPlan {
    /// Whether the port is a kernel device itself.
    pub fn is_kernel(&self) -> bool {
        self.config.kind == PortKind::Device && self.config.vlan.is_none()
    }
}

/// A router as it is planned.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub ports: Vec<PortPlan>,
    pub own_routes: OwnRoutes,
    /// Routes that people want, as they said it.
    pub routes: BTreeMap<IpNet, millrace_config::Route>,
    pub neighbours: Vec<millrace_config::Neighbour>,
    /// Where flows are wanted; the first that concerns a flow counts.
    pub placements: Vec<Placed>,
    /// What was said of the whole router.
    pub router: millrace_config::Router,
    /// How much of what is for the router itself gets there.
    pub control_plane: millrace_config::ControlPlane,
    /// What was said of all plugins that are files.
    pub plugin_settings: millrace_config::Plugins,
    /// The HTTP interface, as the configuration says.
    pub api: millrace_config::Api,
    /// The files of plugins, by the names of the plugins, in the order in which they were loaded.
    pub files: Vec<(&'static str, millrace_config::Plugin)>,
    pub plugins: Plugins,
    /// Which plugins are loaded that are files, and which were.
    pub repository: Repository,
    /// Whether these may be shared objects.
    pub shared_objects: SharedObjects,
    /// In which order ports send, and at which rates.
    pub schedulers: Schedulers,
    /// How the filters of gates are searched, for those of which it was said.
    pub gate_tables: Vec<(GateId, TableKind)>,
    pub options: Options,
}

impl Model {
    /// Plans the router of a configuration, as if nothing had ever happened.
    pub fn new(config: &Config) -> Result<Self, ControlError> {
        Self::remembering(config, Memory::open(None), &Loader::new(config))
    }

    /// The same without running code of shared objects, for who only asks whether the configuration is right.
    pub fn planned(config: &Config) -> Result<Self, ControlError> {
        Self::remembering(config, Memory::open(None), &Loader::new(config).planning())
    }

    /// Plans the router of a configuration, with what is remembered of earlier times, and with the plugins of its files.
    pub fn remembering(config: &Config, memory: Memory, loader: &Loader) -> Result<Self, ControlError> {
        Self::with_plugins(config, memory, loader, built_in_plugins())
    }

    /// Plans the router of a configuration; these plugins are part of it.
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
            repository: crate::load::repository(&config.plugins, memory)?,
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
        // What leads to ports that are left out would be wrong for that alone.
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

    /// What is wrong with what is left of a configuration without that in which something is; nothing, where that can't be told apart from what
    /// follows of it.
    pub fn wrong_with_rest(rest: &Config, loader: &Loader) -> Option<ConfigErrors> {
        if rest.lacks("port") && plan_ports(rest).is_err() {
            return None;
        }
        match Self::remembering(rest, Memory::open(None), loader) {
            Err(ControlError::Config(wrong)) => Some(wrong),
            _ => None,
        }
    }

    /// Plans the trees of ports. What is said of flows is looked at where the trees are right.
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

    /// What workers are told of a neighbour that is known for good.
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

    /// Routes that people want by ports with a kernel below: the kernel gets them, and the mirror brings them.
    pub fn kernel_routes(&self) -> impl Iterator<Item = &millrace_config::Route> {
        let own = |prefix: &IpNet| self.own_routes.is_added(prefix);
        self.routes.iter().filter(move |(prefix, _)| !own(prefix)).map(|(_, route)| route)
    }

    /// Whether there is such a route to exactly this prefix.
    pub fn is_for_kernel(&self, prefix: &IpNet) -> bool {
        self.routes.contains_key(prefix) && !self.own_routes.is_added(prefix)
    }

    /// Which plugins are loaded that are files.
    pub fn admitted(&self) -> Admitted {
        Admitted { trust: self.repository.trust(), shared_objects: self.shared_objects, runs: true }
    }

    /// The port of that name.
    pub fn port(&self, name: &str) -> Result<&PortPlan, ControlError> {
        let known = self.ports.iter().map(|plan| plan.settings.name.as_str());
        self.ports
            .iter()
            .find(|plan| plan.settings.name == name)
            .ok_or_else(|| ControlError::unknown("port", name, known))
    }

    /// The name of a port.
    pub fn port_name(&self, id: PortId) -> &str {
        self.ports.iter().find(|plan| plan.id == id).map_or("-", |plan| &plan.settings.name)
    }

    /// The id of a gate.
    pub fn gate(&self, name: &str) -> Result<GateId, ControlError> {
        Ok(self.plugins.gate(name)?.id)
    }

    /// The id of an instance.
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

    /// Returns the error of a filter that names no port.
    pub fn unknown_port(&self, filter: &impl Display, unknown: &UnknownPort) -> ControlError {
        let known = self.ports.iter().map(|plan| plan.settings.name.as_str());
        let missing = ControlError::unknown("port", &unknown.name, known);
        ControlError::Invalid(format!("filter {:?}: {missing}", filter.to_string()))
    }

    /// Plans a route. Returns whether it is for the kernel to keep.
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

    /// What the workers do with packets of a route if they alone have it; nothing where it is for the kernel to keep.
    /// `towards` finds the port without a kernel whose subnet an address is in.
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

    /// The next hops of a route if they are behind ports without a kernel.
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
        let admit =
            |half, manifest: &Manifest, origin| crate::load::admit_new(self, half, manifest, origin, &new);
        let loaded = loader.load(&self.admitted(), &new.path, &admit)?;
        let (name, version) = (loaded.plugin.name(), loaded.plugin.version());
        crate::load::enter(self, loaded, &new)?;
        crate::load::log(&new.path, Ok((name, version)));
        Ok(())
    }

    /// A new instance, in quarantine if it was there when the router was last ended.
    pub fn create_instance(
        &mut self,
        plugin: &str,
        name: &str,
        settings: Map<String, Value>,
    ) -> Result<Vec<PluginChange<CompiledExpression>>, ControlError> {
        Ok(self.create_instance_as(plugin, name, settings)?)
    }

    /// The same, with the error as the plugin says it.
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

    /// Loads plugins, and makes gates, instances and bindings; of what can't be made, nothing more is said where others need it.
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
        // Whether they may be loaded may be what is wrong.
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

    /// Creates the instances of a configuration. Returns the names of those that can't be. Where a plugin could not be loaded, those of
    /// unknown plugins may be its own, so nothing is said of them.
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
            // What is wrong with a setting hides nothing of the others.
            while let Err(error) = self.create_instance_as(&instance.plugin, name, settings.clone()) {
                missing.insert(name);
                let setting = error.setting().unwrap_or_default().to_owned();
                let is_there = settings.remove(&setting).is_some();
                // What is missing may be what was misspelt.
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

/// The kind of a gate's table.
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

fn plan_ports(config: &Config) -> Result<Vec<PortPlan>, ControlError> {
    let mut plans: Vec<PortPlan> = Vec::new();
    // Sub-interfaces come last, for each shares the device of a port.
    let ports = config.port.iter().enumerate();
    let (subs, mains): (Vec<_>, Vec<_>) = ports.partition(|(_, port)| port.vlan.is_some());
    for (_, port) in mains {
        let id = PortId(plans.len() as u16);
        plans.push(PortPlan {
            id,
            config: port.clone(),
            settings: settings(port, DeviceId(id.0), Tags::NONE),
        });
    }
    for (index, port) in subs {
        let wrong = |key: &str, problem: String| {
            let at = [Step::Key("port"), Step::Entry(index), Step::Key(key)];
            Err(ControlError::Invalid(format!("port {:?}{problem}", &*port.name)).placed(config, &at))
        };
        let parent =
            plans.iter().find(|plan| plan.config.vlan.is_none() && plan.config.device == port.device);
        let Some(device) = parent.map(|plan| plan.settings.device) else {
            let device = port.device.as_deref().unwrap_or("nothing");
            let problem = format!(" is a sub-interface of {device}, which is no port: name it as a port too");
            return wrong("device", problem);
        };
        let tags = match port.vlan {
            Some(VlanIds::Single(id)) => Tags::single(id),
            Some(VlanIds::Double([outer, inner])) => Tags::double(outer, inner),
            None => Tags::NONE,
        };
        let id = PortId(plans.len() as u16);
        if plans.iter().any(|plan| plan.settings.device == device && plan.settings.tags == tags) {
            return wrong("vlan", format!(": another port has VLAN {tags} of that device"));
        }
        plans.push(PortPlan { id, config: port.clone(), settings: settings(port, device, tags) });
    }
    Ok(plans)
}

fn settings(port: &millrace_config::Port, device: DeviceId, tags: Tags) -> PortSettings {
    PortSettings {
        name: port.name.to_string(),
        device,
        tags,
        stack: Stack::Own,
        mac: port.mac.as_ref().map_or_else(|| made_mac(&port.name), |mac| *mac.value()),
        mtu: port.mtu.unwrap_or(1500),
        up: true,
        forwards4: true,
        forwards6: true,
        input_weight: port.input_weight.0,
        reverse_path: reverse_path(port.reverse_path),
        addresses: port.address.iter().map(|net| *net.value()).collect::<Vec<IpNet>>(),
    }
}

/// Whether the way back to a packet's source is looked at.
pub(crate) fn reverse_path(reverse_path: millrace_config::ReversePath) -> ReversePath {
    match reverse_path {
        millrace_config::ReversePath::Off => ReversePath::Off,
        millrace_config::ReversePath::Strict => ReversePath::Strict,
        millrace_config::ReversePath::Loose => ReversePath::Loose,
    }
}

/// A locally administered address that is always the same for a name.
fn made_mac(name: &str) -> MacAddr {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    let [a, b, c, d, e, ..] = hasher.finish().to_be_bytes();
    MacAddr([0x02, a, b, c, d, e])
}

/// What workers are told of the whole router.
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

/// What instances are granted.
fn limits(plugins: &millrace_config::Plugins) -> Limits {
    Limits {
        slice: plugins.slice.duration(),
        faults: plugins.faults,
        fault_window: plugins.fault_window.duration(),
    }
}

#[cfg(test)]
mod tests;
