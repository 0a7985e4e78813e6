//! Plans the router that a configuration describes: loads its plugin files, and checks all its tables
//! together.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use millrace_config::{Config, ConfigErrors, Instance, Scheduler, Step};
use millrace_pipeline::Options;
use millrace_plugin::{InstanceNames, Limits, Manifest, cycle_error, instances_named};
use millrace_plugin_abi::Plugin;
use millrace_repository::{Memory, usual_state_directory};
use millrace_units::PortId;

use crate::admission::memory::excessive_memory;
use crate::admission::services;
use crate::admission::services::set::{Configured, place_set};
use crate::error::Unplannable;
use crate::filters::bindings::bind_again;
use crate::flows::placement::check_placements;
use crate::model::own_routes::OwnRoutes;
use crate::model::placements::Placements;
use crate::model::ports::plan_ports;
use crate::model::principals::{Owners, PrincipalIds};
use crate::model::schedulers::Schedulers;
use crate::model::schedulers::links::{check_links, check_names, links, with_links};
use crate::model::schedulers::tree::{Part, Unplanned};
use crate::model::{Fixed, Model, Plugins, PortPlan, options, table_kind};
use crate::plugins::built_in::{built_in_plugins, test_plugins};
use crate::plugins::load::{Admitted, admit_new, enter, log, repository};
use crate::plugins::loader::Loader;
use crate::ports::control_plane::limits_of;
use crate::workers::tsc;
use crate::{ControlError, NewPlugin};

/// Returns the configured state directory, or the default; `None` if the setting is `none`.
pub fn state_directory(config: &Config) -> Option<PathBuf> {
    match &config.plugins.state {
        Some(none) if none.as_os_str() == "none" => None,
        Some(directory) => Some(directory.clone()),
        None => usual_state_directory(),
    }
}

impl Model {
    /// Plans the router of a configuration without state of earlier runs.
    pub fn new(config: &Config) -> Result<Self, ControlError> {
        Self::remembering(config, Memory::open(None), &Loader::new(config))
    }

    /// Plans the router of a configuration only to check the configuration. No code of shared objects runs.
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
        let figures = services::figures::known_figures(state_directory(config).as_deref());
        let mut model = Self {
            ports: plan_ports(config)?,
            own_routes: OwnRoutes::default(),
            routes: BTreeMap::new(),
            neighbours: Vec::new(),
            placements: Placements::of(config, figures),
            router: config.router.clone(),
            control_plane: config.control_plane.clone(),
            admission: config.admission.clone(),
            fixed: Fixed::of(config),
            principals: config.principal.clone(),
            principal_ids: PrincipalIds::of(&config.principal),
            files: Vec::new(),
            plugins: Plugins::new(),
            repository: repository(&config.plugins, memory)?,
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
        model.schedulers.number_principals(&model.principals)?;
        plan_schedulers(&mut model, config, &mut wrong);
        // If ports were left out as invalid, routes and neighbours are not checked: their errors might only
        // follow from the missing ports.
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
        check_placements(&model, config, &mut wrong);
        model.plugins.instance_registry_mut().set_workers(config.router.workers);
        let port = |plan: &PortPlan| (plan.settings.name.clone(), plan.id.0);
        model.plugins.instance_registry_mut().set_ports(model.ports.iter().map(port).collect());
        add_plugins(&mut model, config, loader, built_in, &mut wrong)?;
        wrong.refuse()?;
        Ok(model)
    }

    /// Returns the errors in a configuration from which invalid entries were left out. Returns `None` if
    /// there are no errors, or if all errors might only follow from the left-out entries.
    pub fn wrong_with_rest(rest: &Config, loader: &Loader) -> Option<ConfigErrors> {
        if rest.lacks("port") && plan_ports(rest).is_err() {
            return None;
        }
        match Self::remembering(rest, Memory::open(None), loader) {
            Err(ControlError::Config(wrong)) => Some(wrong),
            _ => None,
        }
    }
}

/// Returns the positions of the configured instances in the order of their creation: each comes after the instances
/// that its settings name. Records an error for each cycle, and adds the instances of the cycle to `missing`.
fn creation_order<'c>(
    model: &Model,
    config: &'c Config,
    missing: &mut HashSet<&'c str>,
    wrong: &mut Unplannable,
) -> Vec<usize> {
    let mut names = InstanceNames::default();
    for instance in &config.instance {
        if let Ok(plugin) = model.plugins.plugin_named(&instance.plugin) {
            names.add(&instance.name, &*plugin, &instance.settings);
        }
    }
    let order = names.order();
    for cycle in &order.cycles {
        let is_first = |instance: &Instance| cycle.first() == Some(&&*instance.name);
        let index = config.instance.iter().position(is_first).unwrap_or_default();
        let at = [Step::Key("instance"), Step::Entry(index), Step::Key("settings")];
        wrong.unless::<()>(Err(ControlError::from(cycle_error(cycle)).placed(config, &at)));
        missing.extend(cycle);
    }
    let places = order.places();
    let mut positions: Vec<usize> = (0..config.instance.len()).collect();
    positions.sort_by_key(|position| places.get(&*config.instance[*position].name));
    positions
}

/// Creates the configured instances. Returns the names of the instances that can't be created. If a plugin
/// failed to load, instances of unknown plugins cause no errors, because the unknown name may be the name of
/// that plugin.
fn create_instances<'c>(
    model: &mut Model,
    config: &'c Config,
    all_loaded: bool,
    wrong: &mut Unplannable,
) -> HashSet<&'c str> {
    let mut missing = HashSet::new();
    for index in creation_order(model, config, &mut missing, wrong) {
        let instance = &config.instance[index];
        let name: &str = &instance.name;
        let plugin = model.plugins.plugin_named(&instance.plugin);
        let is_known = plugin.is_ok();
        let named =
            plugin.map_or_else(|_| Vec::new(), |plugin| instances_named(&*plugin, &instance.settings));
        let names_missing = named.iter().any(|named| missing.contains(&**named));
        if (!is_known && !all_loaded) || missing.contains(name) || names_missing {
            missing.insert(name);
            continue;
        }
        let table = if is_known { "settings" } else { "plugin" };
        let mut settings = instance.settings.clone();
        // The loop leaves out each faulty setting in turn, so that all faulty settings are reported.
        while let Err(error) = model.create_instance(&instance.plugin, name, settings.clone()) {
            missing.insert(name);
            let setting = error.setting().unwrap_or_default().to_owned();
            let is_there = settings.remove(&setting).is_some();
            // A required setting seems to be missing. It may be a misspelt setting that this loop has left
            // out.
            if !is_there && settings.len() < instance.settings.len() {
                break;
            }
            let at = [Step::Key("instance"), Step::Entry(index), Step::Key(table), Step::Name(&setting)];
            let names_unknown = error.names_unknown();
            let error = ControlError::from(error).of(&format!("instance {name:?}"));
            let error = if names_unknown { ControlError::NotFound(error.message()) } else { error };
            wrong.unless_named::<()>(Err(error), config, &at);
            if !is_there {
                break;
            }
        }
    }
    missing
}

/// Loads plugins, and creates gates, instances and bindings. Leaves out errors that only follow from
/// other errors.
fn add_plugins(
    model: &mut Model,
    config: &Config,
    loader: &Loader,
    built_in: Vec<Arc<dyn Plugin>>,
    wrong: &mut Unplannable,
) -> Result<(), ControlError> {
    for plugin in built_in.into_iter().chain(test_plugins()) {
        model.plugins.add_plugin(plugin)?;
    }
    // If `[plugins]` is invalid, the permission to load plugins is unknown.
    let mut all_loaded = !config.lacks("plugin") && !config.lacks("plugins");
    for (index, plugin) in config.plugin.iter().enumerate().filter(|_| !config.lacks("plugins")) {
        let at = [Step::Key("plugin"), Step::Entry(index), Step::Key("file")];
        let loaded = load_plugin(model, plugin, loader).map_err(|error| error.placed(config, &at));
        all_loaded &= wrong.unless(loaded).is_some();
    }
    for gate in &config.gate {
        if let Some(position) = &gate.position {
            model.plugins.create_gate(&gate.name, *position.value(), None)?;
        }
        model.gate_tables.push((model.plugins.gate(&gate.name)?.id, table_kind(gate.table)));
    }
    let missing = create_instances(model, config, all_loaded, wrong);
    if config.lacks("port") {
        return Ok(());
    }
    for (index, bind) in config.bind.iter().enumerate() {
        if missing.contains(&*bind.instance) {
            continue;
        }
        let at = [Step::Key("bind"), Step::Entry(index)];
        wrong.unless_named(model.bind_as(bind), config, &at);
    }
    for (index, filter) in config.filter.iter().enumerate() {
        if filter.action.value().instance().is_some_and(|instance| missing.contains(instance)) {
            continue;
        }
        let at = [Step::Key("filter"), Step::Entry(index), Step::Key("action")];
        wrong.unless_named(model.add_filter(filter), config, &at);
    }
    place_services(model, config, &missing, wrong)
}

/// Places the configured services together.
fn place_services(
    model: &mut Model,
    config: &Config,
    missing: &HashSet<&str>,
    wrong: &mut Unplannable,
) -> Result<(), ControlError> {
    let at = |index| [Step::Key("instance"), Step::Entry(index), Step::Key("service")];
    let (mut indices, mut configured) = (Vec::new(), Vec::new());
    for (index, instance) in config.instance.iter().enumerate() {
        let Some(service) = instance.service.filter(|_| !missing.contains(&*instance.name)) else { continue };
        let refused = services::refuse_placed(model, &instance.name, Some(service));
        if wrong.unless(refused.map_err(|error| error.placed(config, &at(index)))).is_some() {
            let plugin = model.plugins.plugin_of(&instance.name)?;
            indices.push(index);
            configured.push(Configured { instance: &instance.name, service, plugin });
        }
    }
    if !configured.is_empty() {
        let placed = place_set(model, &configured, services::planned_cache(model))?;
        for (index, placed) in indices.into_iter().zip(placed) {
            let placed = wrong.unless(placed.map_err(|error| error.placed(config, &at(index))));
            placed.into_iter().for_each(|placed| model.placements.put(placed));
        }
    }
    model.placements.planned.clear();
    pay_by_services(model)?;
    if let Some((principal, error)) = excessive_memory(model) {
        let at = [Step::Key("principal"), Step::Entry(principal), Step::Key("memory")];
        wrong.unless::<()>(Err(error.placed(config, &at)));
    }
    if let Some(((principal, port), error)) = services::excessive_link(model) {
        let entry = config.principal.iter().position(|one| *one.name == *principal).unwrap_or_default();
        let at = [Step::Key("principal"), Step::Entry(entry), Step::Key("link"), Step::Key(&port)];
        wrong.unless::<()>(Err(error.placed(config, &at)));
    }
    Ok(())
}

/// Lets the principals of services pay for bindings of their instances that name none.
fn pay_by_services(model: &mut Model) -> Result<(), ControlError> {
    model.principal_ids.add_services(&model.placements.services);
    // Bindings keep their order.
    model.plugins.set_transaction(true);
    for id in Owners(model).wrongly_paid() {
        for change in bind_again(model, id) {
            model.change_binding(&change)?;
        }
    }
    model.plugins.set_transaction(false);
    Ok(())
}

fn load_plugin(
    model: &mut Model,
    plugin: &millrace_config::Plugin,
    loader: &Loader,
) -> Result<(), ControlError> {
    let new = NewPlugin::configured(plugin);
    let admit = |part, manifest: &Manifest, origin| admit_new(model, part, manifest, origin, &new);
    let loaded = loader.load(&Admitted::of(model), &new, &admit)?;
    let (name, version) = (loaded.plugin.name(), loaded.plugin.version());
    enter(model, loaded, &new)?;
    log(&new.path, Ok((name, version)));
    Ok(())
}

/// Plans the scheduler trees of ports. Checks the settings of single flows only in valid trees.
fn plan_schedulers(model: &mut Model, config: &Config, wrong: &mut Unplannable) {
    let mut planned = Vec::new();
    for PortPlan { id, config: port, settings } in &model.ports {
        let Some(scheduler) = &port.scheduler else { continue };
        let tree = model.schedulers.plan(*id, &settings.name, scheduler);
        let tree =
            tree.and_then(|()| plan_links(&mut model.schedulers, (*id, &settings.name), config, scheduler));
        let placed = tree.map_err(|unplanned| unplanned.placed(config, &settings.name));
        planned.extend(wrong.unless(placed).map(|_| (&settings.name, scheduler)));
    }
    check_all_links(model, config, wrong);
    for (port, scheduler) in planned {
        let flows = model.flow_changes(port, &[], &scheduler.flow);
        let of_flows = |error| Unplanned { part: Part::Setting("flow"), error }.placed(config, port);
        wrong.unless(flows.map_err(of_flows));
    }
}

/// Adds the queues of principals to the scheduler of a port, as far as the port can hold them.
fn plan_links(
    schedulers: &mut Schedulers,
    (port, name): (PortId, &str),
    config: &Config,
    configured: &Scheduler,
) -> Result<(), Unplanned> {
    let whole = |error| Unplanned { part: Part::Whole, error };
    check_names(configured).map_err(whole)?;
    let with_links = with_links(configured, &links(&config.principal, name));
    if with_links == *configured {
        return Ok(());
    }
    schedulers.plan(port, name, &with_links).map_err(|unplanned| whole(unplanned.error))
}

/// Checks that the ports hold the rates that principals reserve.
fn check_all_links(model: &Model, config: &Config, wrong: &mut Unplannable) {
    for PortPlan { id, config: port, .. } in &model.ports {
        let (scheduler, links) = (model.schedulers.configured(*id), links(&config.principal, &port.name));
        let checked = check_links(scheduler.as_ref(), &port.name, &links.reserved, config.admission.link);
        wrong.unless(checked.map_err(|(link, error)| match link.map(|link| Step::Entry(link.principal)) {
            Some(entry) => {
                let path = [Step::Key("principal"), entry, Step::Key("link"), Step::Key(&port.name)];
                error.placed(config, &path)
            }
            None => Unplanned { part: Part::Whole, error }.placed(config, &port.name),
        }));
    }
}

/// Returns the limits of instances that the plugin settings configure.
fn limits(plugins: &millrace_config::Plugins) -> Limits {
    Limits {
        slice: plugins.slice.duration(),
        faults: plugins.faults,
        fault_window: plugins.fault_window.duration(),
        frequency: tsc::frequency(),
    }
}

#[cfg(test)]
mod tests;
