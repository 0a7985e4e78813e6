//! Ids of the principals at the workers, and the principals that pay for bindings.

use std::collections::{BTreeMap, BTreeSet};

use millrace_config::{Principal, PromisedPart, Resource, Scheduler};
use millrace_plugin::{Action, BindingId, CallLimits};
use millrace_plugin_abi::{Features, Runtime};
use millrace_units::{InstanceId, PrincipalId, QueueId};

use crate::ControlError;
use crate::model::placements::PlacedService;
use crate::model::schedulers::links::{check_links, left, links, with_links};
use crate::model::{Bound, Model};

/// Principal that pays for the calls of a binding, and queue of the binding's packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Payer {
    /// Principal that pays; `None` if the workers call the instance at once.
    pub principal: Option<PrincipalId>,
    /// Queue of the named principal; 0 without one.
    pub link_queue: QueueId,
    /// Most cycles of a packet, if the calls run in line.
    pub in_line: Option<u32>,
}

/// Ids of the configured principals, and of the principals of services. A principal keeps its id until it is removed.
#[derive(Clone, Debug)]
pub(crate) struct PrincipalIds(BTreeMap<String, PrincipalId>);

impl PrincipalIds {
    /// Id of the built-in principal `default`.
    pub const DEFAULT: PrincipalId = PrincipalId(0);

    /// Returns the ids of these principals.
    pub fn of(principals: &[Principal]) -> Self {
        let mut ids = Self(BTreeMap::from([(Principal::DEFAULT.to_owned(), Self::DEFAULT)]));
        ids.follow(principals);
        ids
    }

    /// Forgets the configured principals that are gone, and gives each new one the lowest free id.
    pub fn follow(&mut self, principals: &[Principal]) {
        let is_there = |name: &str| principals.iter().any(|one| *one.name == *name);
        self.0.retain(|name, id| *id == Self::DEFAULT || is_of_service(name) || is_there(name));
        self.add(principals.iter().map(|principal| principal.name.to_string()));
    }

    /// Gives each new service with a promised load the lowest free id. Returns whether there is a new one.
    pub fn add_services(&mut self, services: &[PlacedService]) -> bool {
        let before = self.0.len();
        let promised = services.iter().filter(|one| one.has_principal());
        self.add(promised.map(|one| Principal::of_service(&one.instance)));
        self.0.len() > before
    }

    /// Forgets the services that are gone or have no promised load any more. Returns whether there was one.
    pub fn keep_services(&mut self, services: &[PlacedService]) -> bool {
        let before = self.0.len();
        let kept = services.iter().filter(|one| one.has_principal());
        let kept: BTreeSet<String> = kept.map(|one| Principal::of_service(&one.instance)).collect();
        self.0.retain(|name, _| !is_of_service(name) || kept.contains(name));
        self.0.len() < before
    }

    /// Gives the principal of a service the new name of its instance.
    pub fn rename_service(&mut self, from: &str, to: &str) {
        if let Some(id) = self.0.remove(&Principal::of_service(from)) {
            self.0.insert(Principal::of_service(to), id);
        }
    }

    /// Returns the instances whose services have a principal, and its id.
    pub fn services(&self) -> impl Iterator<Item = (&str, PrincipalId)> {
        self.0.iter().filter_map(|(name, id)| Some((name.strip_prefix(Principal::SERVICE_PREFIX)?, *id)))
    }

    /// Whether an id is that of a service.
    pub fn is_service(&self, id: PrincipalId) -> bool {
        self.0.iter().any(|(name, known)| *known == id && is_of_service(name))
    }

    fn add(&mut self, names: impl Iterator<Item = String>) {
        let used: BTreeSet<PrincipalId> = self.0.values().copied().collect();
        let mut free = (0..).map(PrincipalId).filter(|id| !used.contains(id));
        for name in names {
            self.0.entry(name).or_insert_with(|| free.next().unwrap_or(Self::DEFAULT));
        }
    }

    /// Returns the id of the principal of this name.
    pub fn id(&self, name: &str) -> Option<PrincipalId> {
        self.0.get(name).copied()
    }

    /// Returns the name of a principal, `core` or `control`; `-` for an unknown id.
    pub fn name(&self, id: PrincipalId) -> &str {
        match id {
            PrincipalId::CORE => return "core",
            PrincipalId::CONTROL => return "control",
            _ => {}
        }
        self.0.iter().find(|(_, known)| **known == id).map_or("-", |(name, _)| name)
    }

    /// Returns the names of all principals, also of `default` and of services.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// Whether a name is that of a service's principal.
fn is_of_service(name: &str) -> bool {
    name.starts_with(Principal::SERVICE_PREFIX)
}

impl Model {
    /// Returns the principal that pays for a binding of an instance: the named one, or that of the instance's service,
    /// or `default`. `None` means core, and that the workers call the instance at once: its plugin is built in and
    /// states a bound, and the binding has no queue. With a principal, calls with a small bound run in line, too, and
    /// the principal is charged.
    ///
    /// # Errors
    /// No principal has the name.
    pub fn payer(
        &self,
        instance: &str,
        (named, has_queue): (Option<&str>, bool),
    ) -> Result<Payer, ControlError> {
        let bound = bound_of(self, instance).filter(|_| !has_queue);
        // An instance that passes packets on would take the others along.
        let in_line = bound.filter(|(budget, passes_on)| *budget <= CallLimits::MOST_IN_LINE && !passes_on);
        let in_line = in_line.map(|(budget, _)| budget);
        match (named.filter(|name| *name != Principal::DEFAULT), Owners(self).of_service(instance)) {
            (Some(name), _) => Ok(Payer { in_line, ..Owners(self).payer(name)? }),
            (None, Some(id)) => Ok(Payer { principal: Some(id), in_line, ..Payer::default() }),
            (None, None) if bound.is_some() => Ok(Payer { in_line, ..Payer::default() }),
            (None, None) => Owners(self).payer(Principal::DEFAULT),
        }
    }

    /// Returns the name of the principal that a binding or filter names, or of the principal that pays for its
    /// calls.
    pub fn payer_name(&self, call_limits: &CallLimits) -> Option<String> {
        let payer = || call_limits.principal.map(|id| self.principal_ids.name(id));
        Owners(self).named(call_limits).or_else(payer).map(str::to_owned)
    }

    /// Whether a principal pays for bindings, or for the paths of filters.
    pub fn pays(&self, name: &str) -> bool {
        self.bindings_paid_by(name) > 0
    }

    /// Returns the number of bindings that a principal pays for, with the filters that give it to paths.
    pub fn bindings_paid_by(&self, name: &str) -> usize {
        let id = self.principal_ids.id(name);
        id.map_or(0, |id| self.plugins.binding_registry().paid_by(id))
    }
}

/// Returns the cycles that a packet needs at most, as the built-in plugin of an instance states them, and whether
/// the plugin passes packets on to other instances; `None` without a bound.
fn bound_of(model: &Model, instance: &str) -> Option<(u32, bool)> {
    let plugin = model.plugins.plugin_of(instance).ok()?;
    if plugin.runtime() != Runtime::BuiltIn {
        return None;
    }
    let id = model.plugins.instance(instance).ok()?;
    let settings = model.plugins.instance_registry().settings_of(id)?;
    let budget = plugin.packet_budget(settings)?;
    Some((budget, plugin.features().0 & Features::TO_INSTANCES.0 != 0))
}

/// Bindings, filters and rates of the principals of a model.
#[derive(Clone, Copy)]
pub(crate) struct Owners<'m>(pub &'m Model);

impl<'m> Owners<'m> {
    /// Returns the principal of an instance's service; `None` without a promised load.
    pub fn of_service(self, instance: &str) -> Option<PrincipalId> {
        let placed = self.0.placements.service(instance).filter(|placed| placed.has_principal())?;
        self.0.principal_ids.id(&Principal::of_service(&placed.instance))
    }

    /// Returns the bindings of instances for which another principal pays than should, because their services have
    /// begun or ended.
    pub fn wrongly_paid(self) -> Vec<BindingId> {
        let names = self.0.plugins.instance_names();
        let services: BTreeMap<InstanceId, PrincipalId> =
            names.filter_map(|(id, name, _)| Some((id, self.of_service(name)?))).collect();
        let is_wrong = |bound: &Bound| {
            let (Some(instance), false) = (bound.action.instance(), bound.call_limits.names_principal())
            else {
                return false;
            };
            let paid = bound.call_limits.principal;
            match services.get(&instance) {
                Some(service) => paid != Some(*service),
                None => paid.is_some_and(|id| self.0.principal_ids.is_service(id)),
            }
        };
        self.0.plugins.bindings_by_age().filter(|(_, bound)| is_wrong(bound)).map(|(id, _)| id).collect()
    }

    /// Returns the name of the principal that a binding or filter names.
    pub fn named(self, call_limits: &CallLimits) -> Option<&'m str> {
        self.0.schedulers.name(call_limits.link_queue).strip_prefix(Principal::QUEUE_PREFIX)
    }

    /// Returns the id of the principal of this name. The principals of services don't count: users can't name them.
    ///
    /// # Errors
    /// No principal has the name, or a service has it.
    pub fn known_principal(self, name: &str) -> Result<PrincipalId, ControlError> {
        self.refuse_service(name)?;
        let ids = &self.0.principal_ids;
        let names = ids.names().filter(|name| !is_of_service(name));
        ids.id(name).ok_or_else(|| ControlError::unknown("principal", name, names))
    }

    /// Refuses the principal of a service, which users neither name nor change.
    ///
    /// # Errors
    /// A service has a principal of this name.
    pub fn refuse_service(self, name: &str) -> Result<(), ControlError> {
        match self.0.principal_ids.id(name) {
            Some(_) if is_of_service(name) => Err(ControlError::conflict(format!(
                "principal {name:?} is built in: it pays for the bindings of its instance that name no principal, and \
                 follows the service, which `instance move` changes"
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the id of the principal of this name, which may be that of a service.
    ///
    /// # Errors
    /// No principal has the name.
    pub fn shown_principal(self, name: &str) -> Result<PrincipalId, ControlError> {
        let ids = &self.0.principal_ids;
        ids.id(name).ok_or_else(|| ControlError::unknown("principal", name, ids.names()))
    }

    /// Returns the principal that pays for the principal of this name, and the queue of the named one.
    ///
    /// # Errors
    /// No principal has the name.
    pub fn payer(self, name: &str) -> Result<Payer, ControlError> {
        self.known_principal(name)?;
        let principal = self.0.principal_ids.id(Principal::payer(&self.0.principals, name));
        Ok(Payer { principal, link_queue: self.0.schedulers.queue_of_principal(name), in_line: None })
    }

    /// Returns the names of the principals that bindings name or that filters give to paths, once for each
    /// binding or filter.
    pub fn bound_principals(self) -> impl Iterator<Item = &'m str> {
        self.0.plugins.bindings_by_age().filter_map(move |(_, bound)| self.named(&bound.call_limits))
    }

    /// Returns the bindings of instances that name a principal.
    pub fn bindings_of(self, name: &str) -> Vec<BindingId> {
        let queue = self.0.schedulers.queue_of_principal(name);
        let is_named = |bound: &Bound| bound.call_limits.link_queue == queue && queue != QueueId(0);
        self.selected(|bound| bound.action.instance().is_some() && is_named(bound))
    }

    /// Returns the filters that name a principal: they give it to paths, or put packets into its queue.
    pub fn filters_of(self, name: &str) -> Vec<BindingId> {
        let queue = Action::Queue(self.0.schedulers.queue_of_principal(name));
        let given = self.0.principal_ids.id(name).map(Action::Principal);
        self.selected(|bound| bound.action == queue || Some(&bound.action) == given.as_ref())
    }

    fn selected(self, is_meant: impl Fn(&Bound) -> bool) -> Vec<BindingId> {
        let all = self.0.plugins.bindings_by_age();
        all.filter(|(_, bound)| is_meant(bound)).map(|(id, _)| id).collect()
    }

    /// Returns the scheduler of a port with the queues of principals, from its configured scheduler.
    pub fn with_links(self, port: &str, configured: &Scheduler) -> Scheduler {
        with_links(configured, &links(&self.0.principals, port))
    }

    /// Checks that ports hold the rates that these principals reserve, and that their chains of `same-as` end
    /// at one of them.
    ///
    /// # Errors
    /// Names the first principal that is wrong, the problem and the remedy.
    pub fn check_principals(self, principals: &[Principal]) -> Result<(), ControlError> {
        let names = || principals.iter().map(|one| &*one.name).chain([Principal::DEFAULT]);
        for one in principals {
            let wrong = |error: &dyn std::fmt::Display| {
                ControlError::conflict(format!("principal {:?}: {error}", &*one.name))
            };
            for resource in one.resources() {
                if let Resource::Link(port) = resource {
                    self.0.port(port).map_err(|error| wrong(&error))?;
                }
                if let Some(other) =
                    one.same_as(resource).filter(|other| !names().any(|name| *name == ***other))
                {
                    let others = names().filter(|name| *name != &*one.name);
                    return Err(wrong(&ControlError::unknown("principal", other, others)));
                }
                if let Some(problem) = one.wrong_same_as(resource, principals) {
                    return Err(ControlError::conflict(problem));
                }
            }
            if let Some(problem) = one.wrong_process(principals) {
                return Err(ControlError::conflict(problem));
            }
        }
        self.check_links(principals, self.0.admission.link)
    }

    /// Checks that each port holds the rates that these principals reserve there, if `part` of its rate may be
    /// promised.
    ///
    /// # Errors
    /// Names the first principal whose rate does not fit.
    pub fn check_links(self, principals: &[Principal], part: PromisedPart) -> Result<(), ControlError> {
        self.0.ports.iter().try_for_each(|plan| {
            let (port, scheduler) = (&*plan.config.name, self.0.schedulers.configured(plan.id));
            let links = links(principals, port);
            check_links(scheduler.as_ref(), port, &links.reserved, part).map_err(|(_, error)| error)
        })
    }

    /// Returns the rate that principals can still reserve at a port, in bits per second; `None` without a rate.
    pub fn left_at(self, port: &str) -> Option<u64> {
        let scheduler = self.0.schedulers.configured(self.0.port(port).ok()?.id)?;
        left(&scheduler, &links(&self.0.principals, port), self.0.admission.link)
    }

    /// Returns the rate of a port, and what principals can still reserve of it, in bits per second; `None` without
    /// a rate.
    pub fn rate_at(self, port: &str) -> Option<(u64, u64)> {
        let scheduler = self.0.schedulers.configured(self.0.port(port).ok()?.id)?;
        Some((scheduler.rate?.0, self.left_at(port)?))
    }

    /// Checks that a changed scheduler of a port still holds the rates that principals reserve there.
    ///
    /// # Errors
    /// Names the first principal whose rate does not fit.
    pub fn check_links_at(self, port: &str, scheduler: &Scheduler) -> Result<(), ControlError> {
        let links = links(&self.0.principals, port);
        let part = self.0.admission.link;
        check_links(Some(scheduler), port, &links.reserved, part).map_err(|(_, error)| error)
    }
}

/// Returns the plugins that run in processes and have bindings, each with the principals that pay for these. The
/// principal of a service has a share of the workers only, so `default` pays for the processes of the service.
pub(crate) fn payers_of_processes(model: &Model) -> BTreeMap<&'static str, BTreeSet<PrincipalId>> {
    let has_processes =
        |plugin: &str| model.plugins.plugin_named(plugin).is_ok_and(|one| one.runtime().has_processes());
    let instances = model.plugins.instance_names().map(|(id, _, plugin)| (id, plugin));
    let plugins: BTreeMap<_, _> = instances.filter(|(_, plugin)| has_processes(plugin)).collect();
    let mut payers: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    if plugins.is_empty() {
        return payers;
    }
    for (instance, payer) in model.plugins.binding_registry().paid_instances() {
        let Some(plugin) = plugins.get(&instance) else { continue };
        let payer = if model.principal_ids.is_service(payer) { PrincipalIds::DEFAULT } else { payer };
        payers.entry(*plugin).or_default().insert(payer);
    }
    payers
}

#[cfg(test)]
mod tests {
    use millrace_config::Config;

    use super::*;

    fn principals(names: &[&str]) -> Vec<Principal> {
        let entry = |name: &&str| format!("[[principal]]\nname = \"{name}\"\n");
        Config::parse(&names.iter().map(entry).collect::<String>(), "f").unwrap().principal
    }

    #[test]
    fn principals_keep_their_ids_and_new_ones_get_the_lowest_free() {
        let mut ids = PrincipalIds::of(&principals(&["a", "b", "c"]));
        let of = |ids: &PrincipalIds, name| ids.id(name).map(|id| id.0);
        assert_eq!(
            ["a", "b", "c", "default"].map(|name| of(&ids, name)),
            [Some(1), Some(2), Some(3), Some(0)]
        );
        ids.follow(&principals(&["c", "a"]));
        ids.follow(&principals(&["e", "c", "a", "d"]));
        assert_eq!(
            ["a", "b", "c", "d", "e"].map(|name| of(&ids, name)),
            [Some(1), None, Some(3), Some(4), Some(2)]
        );
        assert_eq!((ids.name(PrincipalId(2)), ids.name(PrincipalId(9))), ("e", "-"));
    }

    #[test]
    fn services_with_a_load_have_principals_of_their_own() {
        let text = "[[instance]]\nplugin = \"null\"\nname = \"a\"\n[instance.service]\nrate = 10\npacket = 100\n\
                    [[instance]]\nplugin = \"null\"\nname = \"pinned\"\n[instance.service]\nworker = 0\n\
                    [[bind]]\ninstance = \"a\"\ngate = \"monitor\"\nfilter = \"*\"\n\
                    [[bind]]\ninstance = \"pinned\"\ngate = \"monitor\"\nfilter = \"proto udp\"\n";
        let mut model = Model::planned(&Config::parse(text, "f").unwrap()).unwrap();
        let service = Owners(&model).of_service("a");
        assert!(service.is_some_and(|id| model.principal_ids.is_service(id)));
        assert_eq!(Owners(&model).of_service("pinned"), None);
        let payers: Vec<_> = model.plugins.binding_registry().paid_instances().map(|(_, id)| id).collect();
        assert_eq!(payers, service.into_iter().collect::<Vec<_>>());
        assert!(Owners(&model).wrongly_paid().is_empty());
        assert!(Owners(&model).known_principal("service:a").is_err());
        assert!(Owners(&model).shown_principal("service:a").is_ok());
        model.placements.remove_service("a");
        assert_eq!(Owners(&model).wrongly_paid().len(), 1);
        assert!(model.principal_ids.keep_services(&model.placements.services));
        assert_eq!(model.principal_ids.names().collect::<Vec<_>>(), ["default"]);
    }
}
