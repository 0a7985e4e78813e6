//! Checks that a user requests no more than the allowances that concern the user.

use std::collections::BTreeMap;

use millrace_admission::levels::{PROCESS, WORKER};
use millrace_config::{
    Admission, Allowance, Change, CpuShare, FilterAction, Instance, MemoryLimit, PlacementLevel, Principal,
    Resource, Role, Service, ServiceLevel,
};
use millrace_plugin_abi::Plugin;
use millrace_store::Who;
use millrace_units::{here, write_rate, write_size};

use super::services::{self, Demand, planned_cache};
use super::time::percent;
use crate::ControlError;
use crate::model::Model;
use crate::model::permits::{PlaceAt, permits};
use crate::model::placements::Owner;
use crate::principals::after;
use crate::view::{AllowanceView, HoldingView};

/// User who makes a request.
#[derive(Clone, Debug)]
pub(crate) struct Requester {
    /// Identity, as in the audit log.
    pub who: Who,
    /// Role; `None` for a user who may do nothing.
    pub role: Option<Role>,
}

impl Requester {
    /// Returns the owner of the principals that the user adds; `None` for the router itself.
    pub fn owner(&self) -> Option<String> {
        (!self.is_router()).then(|| self.who.name.clone())
    }

    /// Returns the owner of the instances that the user creates; `None` if no allowance concerns the user.
    pub fn owner_of_instances(&self, admission: &Admission) -> Option<Owner> {
        self.allowance(admission)?;
        Some(Owner { user: self.who.name.clone(), role: self.role })
    }

    fn is_router(&self) -> bool {
        self.who == Who::router()
    }

    fn is_admin(&self) -> bool {
        self.role >= Some(Role::Admin)
    }

    /// Returns the first allowance that concerns the user.
    pub fn allowance<'a>(&self, admission: &'a Admission) -> Option<&'a Allowance> {
        self.allowances(admission).next()
    }

    fn allowances<'a>(&self, admission: &'a Admission) -> impl Iterator<Item = &'a Allowance> {
        let all = admission.allowance.iter();
        all.filter(|one| !self.is_router() && one.concerns(&self.who.name, self.role))
    }
}

/// Checks that a user may make these changes: that they concern only principals of the user, stay within what each
/// allowance of the user permits, and use only its levels and processors. Admins without an allowance may make any
/// change, and other users without an allowance any that concerns no principal. Only admins declare loads of
/// instances: a load reserves processor time that counts to no principal of a user.
///
/// # Errors
/// Names the allowance, what it lacks, and what would fit.
pub(crate) fn check(model: &Model, by: &Requester, changes: &[Change]) -> Result<(), ControlError> {
    if by.is_router() {
        return Ok(());
    }
    let user = &*by.who.name;
    let wanted = changes.iter().fold(model.principals.clone(), |all, change| after(&all, change));
    let mut allowances = by.allowances(&model.admission).peekable();
    if !by.is_admin() {
        check_role(model, by, (allowances.peek().is_some(), &wanted), changes)?;
    }
    allowances.try_for_each(|allowance| {
        let checked = check_owners(by, &model.principals, &wanted)
            .and_then(|()| changes.iter().try_for_each(|change| check_change(model, user, &wanted, change)))
            .and_then(|()| check_amounts(allowance, user, &model.principals, &wanted))
            .and_then(|()| check_levels(model, allowance, changes));
        checked.map_err(|problem| refusal(allowance, by, problem))
    })
}

/// Checks that changes need no more than a role below `admin`.
fn check_role(
    model: &Model,
    by: &Requester,
    (has_allowance, wanted): (bool, &[Principal]),
    changes: &[Change],
) -> Result<(), ControlError> {
    let user = &*by.who.name;
    let forbidden = |problem: String| Err(ControlError::Forbidden(Role::Admin, problem));
    if let Some(instance) = changes.iter().find_map(|change| changed_load(model, change)) {
        return forbidden(format!(
            "instance {instance:?}: a declared load needs the role admin, because it reserves processor time that \
             counts to no principal of a user: reserve time for a principal instead, and bind the instance with it"
        ));
    }
    let concerns_principals = |change: &Change| {
        use Change::{AddPrincipal, ReleasePrincipal, RemovePrincipal, SetPrincipal};
        matches!(change, AddPrincipal(_) | RemovePrincipal(_) | ReleasePrincipal(_) | SetPrincipal { .. })
    };
    if has_allowance {
        return Ok(());
    }
    if changes.iter().any(concerns_principals) {
        return forbidden(format!(
            "principals need the role admin, or an allowance, but no allowance concerns {user}: an admin can add \
             one with `allowance add`"
        ));
    }
    let is_foreign = |name: &&str| {
        let found = wanted.iter().find(|one| *one.name == **name);
        found.is_some_and(|one| one.owner.as_deref().is_some_and(|owner| owner != user))
    };
    match changes.iter().filter_map(named_principal).find(is_foreign) {
        Some(name) => forbidden(format!("principal {name:?} belongs to another user")),
        None => Ok(()),
    }
}

/// Returns the instance whose declared load a change sets, changes or removes.
fn changed_load<'c>(model: &Model, change: &'c Change) -> Option<&'c str> {
    let load = |service: &Option<Service>| service.map(|one| Service { level: None, worker: None, ..one });
    let has_load = |service: &Option<Service>, needs: bool| service.is_some_and(|one| needs || one.rate > 0);
    match change {
        Change::AddInstance(one) | Change::RemoveInstance(one) => {
            let needs =
                model.plugins.plugin_named(&one.plugin).is_ok_and(|plugin| needs_without_packets(&*plugin));
            has_load(&one.service, needs).then_some(&*one.name)
        }
        Change::SetService { instance, from, to } => {
            let needs = model.plugins.plugin_of(instance).is_ok_and(|plugin| needs_without_packets(&*plugin));
            let is_load = has_load(from, needs) || has_load(to, needs);
            (is_load && load(from) != load(to)).then_some(&**instance)
        }
        _ => None,
    }
}

/// Whether a service reserves something even if it declares no packets.
fn needs_without_packets(plugin: &dyn Plugin) -> bool {
    let fixed = |kind: &str| plugin.declared_cycles(kind).is_some_and(|cycles| cycles.fixed > 0.0);
    plugin.declared_needs().memory > 0.0 || [WORKER, PROCESS].into_iter().any(fixed)
}

/// Returns the principal that a binding or filter names.
fn named_principal(change: &Change) -> Option<&str> {
    match change {
        Change::Bind(bind) => bind.principal.as_deref(),
        Change::AddFilter(filter) => match filter.action.value() {
            FilterAction::Queue(queue) => queue.strip_prefix(Principal::QUEUE_PREFIX),
            action => action.principal(),
        },
        _ => None,
    }
}

/// Checks that all added, changed and removed principals belong to the user.
fn check_owners(by: &Requester, before: &[Principal], wanted: &[Principal]) -> Result<(), String> {
    let foreign = |one: &&Principal| !one.belongs_to(&by.who.name);
    let gone_or_new = |one: &&Principal, others: &[Principal]| !others.contains(one);
    let changed = before.iter().filter(|one| gone_or_new(one, wanted));
    let new = wanted.iter().filter(|one| gone_or_new(one, before));
    if let Some(one) = changed.chain(new.clone()).find(foreign) {
        let owner = one.owner.as_deref().map_or("nobody".to_owned(), |owner| format!("{owner:?}"));
        return Err(format!("principal {:?} belongs to {owner}: only its owner may change it", &*one.name));
    }
    for one in new {
        let earlier = before.iter().find(|other| other.name == one.name);
        let (weight, process) = earlier.map_or((None, &[][..]), |other| (other.weight, &other.process));
        let key = match (one.weight == weight, one.process == process) {
            _ if by.is_admin() => None,
            (false, _) => Some("weight"),
            (_, false) => Some("process"),
            _ => None,
        };
        if let Some(key) = key {
            return Err(format!(
                "principal {:?}: `{key}` needs the role admin: leave it as it is",
                &*one.name
            ));
        }
        let shared = one.resources().filter_map(|resource| one.same_as(resource));
        for other in shared.filter(|other| ***other != *Principal::DEFAULT) {
            check_own(wanted, &by.who.name, other)?;
        }
    }
    Ok(())
}

/// Checks that a principal belongs to the user.
fn check_own(principals: &[Principal], user: &str, name: &str) -> Result<(), String> {
    match principals.iter().find(|one| *one.name == *name) {
        Some(one) if !one.belongs_to(user) => {
            let own = principals.iter().filter(|one| one.belongs_to(user)).map(|one| &*one.name);
            Err(format!("principal {name:?} belongs to another user; {}", here("own principal", own)))
        }
        _ => Ok(()),
    }
}

/// Checks that a binding or filter names only principals of the user, that a new instance belongs to the user, and
/// that a change leaves allowances alone.
fn check_change(model: &Model, user: &str, wanted: &[Principal], change: &Change) -> Result<(), String> {
    match change {
        Change::Admission { to, .. } if to.allowance != model.admission.allowance => {
            Err("it concerns the user who asks: only other users may change allowances".to_owned())
        }
        Change::AddInstance(one)
            if model.plugins.instance(&one.name).is_err() && one.owner.as_deref() != Some(user) =>
        {
            let owner = one.owner.as_deref().map_or("nobody".to_owned(), |owner| format!("{owner:?}"));
            Err(format!("instance {:?} belongs to {owner}: make it your own", &*one.name))
        }
        change => named_principal(change).map_or(Ok(()), |name| check_own(wanted, user, name)),
    }
}

/// Amounts that the principals of a user hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Held {
    /// Reserved processor time in parts per million of a processor.
    cpu: u64,
    /// Reserved rates in bits per second, by port.
    link: BTreeMap<String, u64>,
    /// Memory in bytes.
    memory: u64,
    /// Number of principals.
    principals: u64,
}

impl Held {
    fn of(principals: &[Principal], user: &str) -> Self {
        let own = || principals.iter().filter(|one| one.belongs_to(user));
        let mut link = BTreeMap::new();
        for one in own() {
            for resource in one.resources() {
                if let Resource::Link(port) = resource
                    && let Some(rate) = one.reserved_link(port)
                {
                    *link.entry(port.to_owned()).or_default() += rate.0;
                }
            }
        }
        Self {
            cpu: own().filter_map(Principal::reserved_cpu).map(|share| u64::from(share.ppm())).sum(),
            link,
            memory: own().filter_map(|one| one.memory).map(MemoryLimit::bytes).sum(),
            principals: own().count() as u64,
        }
    }
}

/// Checks that the principals of the user stay within the amounts of an allowance. What already exceeds one, because
/// it was lowered, may stay but not grow.
fn check_amounts(
    allowance: &Allowance,
    user: &str,
    before: &[Principal],
    wanted: &[Principal],
) -> Result<(), String> {
    let (before, wanted) = (Held::of(before, user), Held::of(wanted, user));
    let within = |what: &str, most: Option<u64>, (had, wants): (u64, u64), write: &dyn Fn(u64) -> String| {
        let Some(most) = most.filter(|most| wants > *most && wants > had) else { return Ok(()) };
        let left = most.saturating_sub(had);
        let fits = match left {
            0 => "release some first".to_owned(),
            left => format!("ask for at most {}", write(left)),
        };
        let (asked, left, most) = (write(wants - had), write(left), write(most));
        Err(format!("{what}: {asked} more are asked for, but {left} of {most} are left: {fits}"))
    };
    let percents = |ppm: u64| format!("{} %", percent(ppm));
    let cpu = allowance.cpu.map(|share: CpuShare| u64::from(share.ppm()));
    within("cpu", cpu, (before.cpu, wanted.cpu), &percents)?;
    let memory = allowance.memory.map(MemoryLimit::bytes);
    within("memory", memory, (before.memory, wanted.memory), &write_size)?;
    let number = |number: u64| number.to_string();
    let most = allowance.principals.map(u64::from);
    within("principals", most, (before.principals, wanted.principals), &number)?;
    for (port, wants) in wanted.link.iter().filter(|_| !allowance.link.is_empty()) {
        let had = before.link.get(port).copied().unwrap_or_default();
        let most = allowance.link.get(port).map_or(0, |most| most.0);
        within(&format!("link {port}"), Some(most), (had, *wants), &write_rate)?;
    }
    Ok(())
}

/// Checks that instances, bindings and flows of changes run only at the levels and processors of an allowance.
fn check_levels(model: &Model, allowance: &Allowance, changes: &[Change]) -> Result<(), String> {
    for change in changes {
        let (what, levels) = levels(model, changes, change);
        levels.into_iter().try_for_each(|level| permits(model, allowance, &what, level))?;
    }
    Ok(())
}

/// Checks that a user may let an instance or flows run at a level.
///
/// # Errors
/// Names the allowance that refuses the level or one of its processors.
pub(crate) fn check_level(
    model: &Model,
    by: &Requester,
    what: &str,
    level: ServiceLevel,
) -> Result<(), ControlError> {
    let mut allowances = by.allowances(&model.admission);
    allowances.try_for_each(|one| {
        permits(model, one, what, (level, None)).map_err(|problem| refusal(one, by, problem))
    })
}

fn refusal(allowance: &Allowance, by: &Requester, problem: String) -> ControlError {
    ControlError::conflict(format!("allowance {:?} of {}: {problem}", &*allowance.name, by.who.name))
}

/// Returns the levels at which a change makes an instance or flows run, and their name. An instance may be created
/// by another one of the changes.
fn levels(model: &Model, changes: &[Change], change: &Change) -> (String, Vec<PlaceAt>) {
    let of_instance = |name: &str, worker: Option<u16>| {
        let new = new_instance(changes, name).map(|one| &*one.plugin);
        let plugin = new.or_else(|| model.plugins.plugin_of(name).ok().map(|plugin| plugin.name()));
        let levels = plugin.map_or_else(Vec::new, |plugin| of_plugin(model, plugin));
        (format!("instance {name:?}"), levels.into_iter().map(|level| (level, worker)).collect::<Vec<_>>())
    };
    let of_bound = |name: &str| {
        let new = new_instance(changes, name).and_then(|one| one.service);
        of_instance(name, new.map_or_else(|| model.placements.worker_of(name), |service| service.worker))
    };
    let of_service = |name: &str, service: Option<Service>| {
        let worker = service.and_then(|service| service.worker);
        let (what, mut levels) = of_instance(name, worker);
        let level = service.and_then(|service| level_of(model, changes, name, service));
        levels.extend(level.map(|level| (level, worker)));
        (what, levels)
    };
    match change {
        Change::AddInstance(one) => of_service(&one.name, one.service),
        Change::SetService { instance, to, .. } => of_service(instance, *to),
        Change::Bind(bind) => of_bound(&bind.instance),
        Change::AddFilter(filter) => match filter.action.value() {
            FilterAction::Instance(name) | FilterAction::Copy(name) => of_bound(name),
            _ => (String::new(), Vec::new()),
        },
        Change::Place { from, to } => {
            let mut new = to.iter().filter(|one| !from.contains(one));
            match new.next() {
                None => (String::new(), Vec::new()),
                Some(one) => {
                    let levels = std::iter::once(one).chain(new).map(|one| match one.level {
                        PlacementLevel::Offload => (ServiceLevel::Offload, None),
                        PlacementLevel::Worker => (ServiceLevel::Worker, None),
                    });
                    (format!("flow {:?}", one.flow.written()), levels.collect())
                }
            }
        }
        _ => (String::new(), Vec::new()),
    }
}

/// Returns the instance of this name that one of the changes creates.
fn new_instance<'c>(changes: &'c [Change], name: &str) -> Option<&'c Instance> {
    changes.iter().find_map(|change| match change {
        Change::AddInstance(one) if *one.name == *name => Some(one),
        _ => None,
    })
}

/// Returns the level at which the router would place a service; `None` for one that it would refuse.
fn level_of(model: &Model, changes: &[Change], name: &str, service: Service) -> Option<ServiceLevel> {
    let new = new_instance(changes, name);
    let plugin = match new {
        Some(new) => model.plugins.plugin_named(&new.plugin),
        None => model.plugins.plugin_of(name),
    };
    let plugin = plugin.ok()?;
    let owner = new.and_then(Owner::of);
    let demand = Demand::of(name, &*plugin, service).owned_by(owner.as_ref());
    let decided = services::decide(model, demand, planned_cache(model));
    service.pin().or_else(|| Some(decided.ok()?.placed.level))
}

/// Returns the levels of the instances of a plugin. A plugin that is not loaded yet may need the host.
fn of_plugin(model: &Model, name: &str) -> Vec<ServiceLevel> {
    let Ok(plugin) = model.plugins.plugin_named(name) else { return vec![ServiceLevel::Host] };
    match (plugin.runtime().has_processes(), plugin.host_companion().is_some()) {
        (true, _) => vec![ServiceLevel::Host],
        (false, true) => vec![ServiceLevel::Worker, ServiceLevel::Host],
        (false, false) => vec![ServiceLevel::Worker],
    }
}

/// Returns an allowance with what its users hold: those it names, and the user who asks if it concerns that user.
pub(crate) fn view(model: &Model, allowance: &Allowance, by: &Requester) -> AllowanceView {
    let asks = Some(&by.who.name).filter(|name| allowance.concerns(name, by.role));
    let others = asks.filter(|name| !allowance.user.contains(name));
    let held = |user: &String| {
        let Held { cpu, link, memory, principals } = Held::of(&model.principals, user);
        HoldingView { user: user.clone(), cpu: percent(cpu), link, memory, principals }
    };
    AllowanceView {
        name: allowance.name.to_string(),
        user: allowance.user.clone(),
        role: allowance.role.clone(),
        level: allowance.level.clone(),
        processor: allowance.processor.clone(),
        cpu: allowance.cpu,
        link: allowance.link.clone(),
        memory: allowance.memory,
        principals: allowance.principals,
        held: allowance.user.iter().chain(others).map(held).collect(),
    }
}
