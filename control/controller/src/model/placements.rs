//! Configured placements of flows and instances.

use std::collections::BTreeMap;

use millrace_admission::levels::Figures;
use millrace_config::{
    Config, Instance, MOST_PLACED_COMPARISONS, MOST_PLACEMENTS, Placeable, PlacementLevel, Role, Service,
    ServiceLevel, Text,
};
use millrace_pipeline::Level;
use millrace_units::count;

use crate::ControlError;
use crate::model::Model;

/// Configured level of the flows of a filter, or of the packets of an instance.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Placed {
    pub what: Placeable,
    pub level: Level,
}

/// Placements of flows and instances, and the services.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Placements {
    /// Configured placements; the first placement that matches a flow decides.
    pub pinned: Vec<Placed>,
    /// Instances with a declared load or level, in the order of their admission.
    pub services: Vec<PlacedService>,
    /// Workers of configured instances whose services the start has not placed yet, by the name of the instance.
    pub planned: BTreeMap<String, u16>,
    /// Owners of instances, by the name of the instance.
    pub owners: BTreeMap<String, Owner>,
    /// Figures of the machine.
    pub figures: Figures,
}

/// User whose allowances limit the levels of an instance's service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    /// User, named as in the audit log.
    pub user: String,
    /// Role of the user.
    pub role: Option<Role>,
}

/// Instance with a declared load or level, at its level.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct PlacedService {
    /// Name of the instance.
    pub instance: String,
    /// Name of its plugin.
    pub plugin: &'static str,
    /// Configured load and level.
    pub service: Service,
    /// Level of the instance.
    pub level: ServiceLevel,
    /// Processor time that was admitted there.
    pub used: Used,
}

impl PlacedService {
    /// Whether the service has a principal of its own: it was promised a load.
    pub fn has_principal(&self) -> bool {
        self.service.rate > 0
    }
}

/// Processor time of services, in parts per million of one processor, and their memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used {
    /// At the workers.
    pub worker: u64,
    /// At the host.
    pub host: u64,
    /// Declared memory of all instances, in bytes.
    pub memory: u64,
}

impl Placements {
    /// Returns what the placed services use.
    pub fn used(&self) -> Used {
        self.services.iter().fold(Used::default(), |sum, PlacedService { used, .. }| Used {
            worker: sum.worker.saturating_add(used.worker),
            host: sum.host.saturating_add(used.host),
            memory: sum.memory.saturating_add(used.memory),
        })
    }

    /// Returns the level of an instance's packets, by a placement or else as a service; `None` without either.
    pub fn level_of(&self, instance: &str) -> Option<Level> {
        self.pin(instance).or_else(|| {
            Some(match self.service(instance)?.level {
                ServiceLevel::Offload => Level::Offload,
                ServiceLevel::Worker | ServiceLevel::Host => Level::Worker,
            })
        })
    }

    /// Returns the placements of a configuration, without services.
    pub fn of(config: &Config, figures: Figures) -> Self {
        let worker = |one: &Instance| Some((one.name.to_string(), one.service?.worker?));
        let owner = |one: &Instance| Some((one.name.to_string(), Owner::of(one)?));
        Self {
            pinned: config.place.iter().map(Placed::of).collect(),
            services: Vec::new(),
            planned: config.instance.iter().filter_map(worker).collect(),
            owners: config.instance.iter().filter_map(owner).collect(),
            figures,
        }
    }

    /// Returns the level to which a placement pins an instance's packets; `None` without a placement.
    pub fn pin(&self, instance: &str) -> Option<Level> {
        let is_it = |placed: &&Placed| matches!(&placed.what, Placeable::Instance(name) if name == instance);
        self.pinned.iter().find(is_it).map(|placed| placed.level)
    }

    /// Returns the service of an instance.
    pub fn service(&self, instance: &str) -> Option<&PlacedService> {
        self.services.iter().find(|placed| placed.instance == instance)
    }

    /// Returns the worker to which an instance is pinned; `None` if it runs at all workers.
    pub fn worker_of(&self, instance: &str) -> Option<u16> {
        match self.service(instance) {
            Some(placed) => placed.service.worker,
            None => self.planned.get(instance).copied(),
        }
    }

    /// Adds a service, or replaces the service of the instance.
    pub fn put(&mut self, placed: PlacedService) {
        match self.services.iter_mut().find(|known| known.instance == placed.instance) {
            Some(known) => *known = placed,
            None => self.services.push(placed),
        }
    }

    /// Moves services back to where `before` has them, if they still have the load of that time. Returns whether a
    /// service has moved.
    pub fn move_back(&mut self, before: &[PlacedService]) -> bool {
        let mut has_moved = false;
        for placed in &mut self.services {
            let earlier = before.iter().find(|one| one.instance == placed.instance);
            if let Some(earlier) = earlier.filter(|one| one.service == placed.service && *one != placed) {
                *placed = earlier.clone();
                has_moved = true;
            }
        }
        has_moved
    }

    /// Records the owner of a new instance, if it has one.
    pub fn own(&mut self, new: &Instance) {
        self.owners.extend(Owner::of(new).map(|owner| (new.name.to_string(), owner)));
    }

    /// Removes the service and the owner of an instance.
    pub fn remove_instance(&mut self, instance: &str) {
        self.remove_service(instance);
        self.owners.remove(instance);
    }

    /// Removes the service of an instance.
    pub fn remove_service(&mut self, instance: &str) {
        self.services.retain(|placed| placed.instance != instance);
    }
}

impl Owner {
    /// Returns the owner of an instance in the form of the configuration; `None` without an owner.
    pub fn of(instance: &Instance) -> Option<Self> {
        Some(Self { user: instance.owner.clone()?, role: instance.owner_role })
    }
}

impl Placed {
    /// Reads a placement from the configuration.
    pub fn of(place: &millrace_config::Placement) -> Self {
        let level = match place.level {
            PlacementLevel::Offload => Level::Offload,
            PlacementLevel::Worker => Level::Worker,
        };
        Self { what: place.flow.value().clone(), level }
    }

    /// Returns the placement in the form of the configuration.
    pub fn written(&self) -> millrace_config::Placement {
        let level = match self.level {
            Level::Offload => PlacementLevel::Offload,
            Level::Worker => PlacementLevel::Worker,
        };
        millrace_config::Placement { flow: Text::of(self.what.clone()), level }
    }
}

impl Model {
    /// Adds a placement. Refuses a placement above the maximum number of placements, or above the maximum
    /// number of comparisons that all placements need for a flow.
    pub(crate) fn add_placement(&mut self, placed: Placed) -> Result<(), ControlError> {
        if self.placements.pinned.len() >= MOST_PLACEMENTS {
            return Err(ControlError::conflict(format!(
                "the maximum of {MOST_PLACEMENTS} placements is reached: remove one with `place FLOW auto`"
            )));
        }
        let own = placed.what.comparisons();
        let others: usize = self.placements.pinned.iter().map(|placed| placed.what.comparisons()).sum();
        if own + others > MOST_PLACED_COMPARISONS {
            return Err(ControlError::conflict(format!(
                "placement {:?} takes {} for a flow, the other placements take {others}, and the limit is \
                 {MOST_PLACED_COMPARISONS}: write wider prefixes or ranges, or fewer `not`",
                placed.what.to_string(),
                count(own, "comparison")
            )));
        }
        self.placements.pinned.push(placed);
        Ok(())
    }
}

/// Returns the placements without those of an instance.
pub(crate) fn without_instance(placements: &[Placed], instance: &str) -> Vec<Placed> {
    let is_it = |placed: &Placed| matches!(&placed.what, Placeable::Instance(name) if name == instance);
    placements.iter().filter(|placed| !is_it(placed)).cloned().collect()
}

pub(crate) fn rename_instance(placements: &mut Placements, from: &str, to: &str) {
    for placed in placements.services.iter_mut().filter(|placed| placed.instance == from) {
        to.clone_into(&mut placed.instance);
    }
    if let Some(owner) = placements.owners.remove(from) {
        placements.owners.insert(to.to_owned(), owner);
    }
    for placed in &mut placements.pinned {
        if let Placeable::Instance(name) = &mut placed.what
            && name == from
        {
            to.clone_into(name);
        }
    }
}
