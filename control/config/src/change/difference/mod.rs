//! Difference of two configurations: changes that can be made one after another, and differences that need a
//! restart.

mod restart;

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use millrace_units::Message;

use super::commands::{changed, object};
use crate::Resource;
use crate::change::{Change, Heir};
use crate::schema::scheduler::Scheduler;
use crate::schema::{Admission, Bind, Config, Filter, Gate, Instance, Plugin, Port, Principal, Service};
pub use restart::{Owner, Restart, Submission};

/// Keys of `[router]` that can change while the router runs.
const LIVE: &[&str] = &[
    "boot",
    "ignore-kernel-policy",
    "icmp-rate",
    "icmp-burst",
    "icmp-dscp",
    "redirects",
    "router-id",
    "forward-class-e",
    "forward-link-local",
    "forward-zero-net",
    "route-priority",
    "new-flows",
    "plugin-weight",
    "forwarding-weight",
    "core",
    "core-ceiling",
    "shed",
    "cpu-scheduler",
];

/// Keys of a port that can change while the port is open. A change of its scheduler is a separate change.
const LIVE_PORT: &[&str] = &["address", "reverse-path", "input-weight", "output-weight", "scheduler"];

/// Changes that turn one configuration into another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Difference {
    /// Changes in an order in which they can be made: an object is added before other objects use it, and
    /// removed after the objects that used it. Instances are created in the order of the new configuration, and removed
    /// in the reverse order of the earlier one.
    pub changes: Vec<Change>,
    /// Differences that only a restart removes.
    pub restart: Vec<Restart>,
}

impl Difference {
    /// Returns one sentence with all differences that only a restart removes.
    pub fn restart_message(&self, submission: Submission) -> Message {
        Message::join(self.restart.iter().map(|one| one.message(submission)), "; ")
    }

    /// Whether the two configurations are equal.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.restart.is_empty()
    }
}

/// Two lists compared by a key.
struct Compared<'a, T> {
    /// Entries only in the first list.
    gone: Vec<&'a T>,
    /// Entries only in the second list.
    new: Vec<&'a T>,
    /// Entries in both lists with different values.
    changed: Vec<(&'a T, &'a T)>,
}

fn compare<'a, T: PartialEq, K: Eq + Hash>(
    from: &'a [T],
    to: &'a [T],
    key: impl Fn(&'a T) -> K,
) -> Compared<'a, T> {
    let before: HashMap<K, &T> = from.iter().map(|one| (key(one), one)).collect();
    let after: HashSet<K> = to.iter().map(&key).collect();
    let gone = from.iter().filter(|one| !after.contains(&key(one))).collect();
    let (mut new, mut changed) = (Vec::new(), Vec::new());
    for one in to {
        match before.get(&key(one)) {
            None => new.push(one),
            Some(own) if *own != one => changed.push((*own, one)),
            Some(_) => {}
        }
    }
    Compared { gone, new, changed }
}

impl Config {
    /// Returns the difference between this configuration and `to`. Both must be
    /// [normalized](Self::normalized).
    pub fn difference(&self, to: &Self) -> Difference {
        let mut all = Difference::default();
        router(self, to, &mut all);
        // What grows precedes the reservations that need it; what shrinks follows them.
        let between = self.admission.looser(&to.admission);
        all.changes.extend(set_admission(&self.admission, &between));
        let plugins = compare(&self.plugin, &to.plugin, |plugin| &plugin.file);
        let ports = compare(&self.port, &to.port, |port| &*port.name);
        let gates = compare(&self.gate, &to.gate, |gate| &*gate.name);
        let instances = compare(&self.instance, &to.instance, |instance| &*instance.name);
        let anew = Anew::of(&instances, &gates);
        let bindings = bindings(self, to, &anew);
        let principals = compare(&self.principal, &to.principal, |principal| &*principal.name);

        let (paying, idle): (Vec<_>, Vec<_>) =
            principals.gone.iter().copied().partition(|one| self.pays(one));
        all.changes.extend(idle.into_iter().cloned().map(Change::RemovePrincipal));
        all.changes.extend(set_principals(&principals, &paying));
        set_runtimes(&plugins.changed, &mut all);
        all.changes.extend(plugins.new.into_iter().cloned().map(Change::AddPlugin));
        // Nodes are removed after the filters that name them.
        let fewer_nodes = set_ports(&ports, &mut all);
        let changes = &mut all.changes;
        // An object that is recreated loses its bindings first.
        changes.extend(bindings.before);
        add_gates_and_instances(&anew, &gates, &instances, [&self.instance, &to.instance], changes);
        changes.extend(bindings.after);
        changes.extend(fewer_nodes);
        set_neighbours_and_routes(self, to, changes);
        let without_service = |one: &&Instance| Instance { service: None, ..(*one).clone() };
        changes.extend(instances.gone.iter().rev().map(|one| Change::RemoveInstance(without_service(one))));
        changes.extend(gates.gone.iter().rev().flat_map(|gate| remove_gate(gate)));
        changes.extend(plugins.gone.into_iter().rev().cloned().map(Change::RemovePlugin));
        // Principals are removed after the bindings that name them.
        let released = paying.into_iter().map(without_share);
        changes.extend(released.map(Change::RemovePrincipal));
        if self.control_plane != to.control_plane {
            let (from, to) = (self.control_plane.clone(), to.control_plane.clone());
            changes.push(Change::ControlPlane { from: Box::new(from), to: Box::new(to) });
        }
        changes.extend(set_admission(&between, &to.admission));
        if self.place != to.place {
            changes.push(Change::Place { from: self.place.clone(), to: to.place.clone() });
        }
        all
    }
}

fn set_admission(from: &Admission, to: &Admission) -> Option<Change> {
    (from != to).then(|| Change::Admission { from: from.clone(), to: to.clone() })
}

impl Config {
    /// Whether something needs a principal: a binding, a filter or another principal names it, or it pays for
    /// one that a binding or filter names.
    fn pays(&self, principal: &Principal) -> bool {
        let name = &*principal.name;
        let binds = self.bind.iter().filter_map(|bind| bind.principal.as_deref());
        let mut named = binds.chain(self.filter.iter().filter_map(|filter| filter.named_principal()));
        named.any(|one| one == name || Principal::payer(&self.principal, one) == name)
            || self
                .principal
                .iter()
                .any(|one| one.same_as(Resource::Cpu).is_some_and(|payer| **payer == *name))
    }
}

/// Adds the changes of ports and their schedulers. Changes that only remove scheduler nodes are not added but
/// returned, so that the caller can add them later.
fn set_ports(ports: &Compared<'_, Port>, all: &mut Difference) -> Vec<Change> {
    ports.changed.iter().for_each(|(from, to)| set_port(from, to, all));
    let schedulers = ports.changed.iter().filter(|(from, to)| from.scheduler != to.scheduler);
    let (fewer, other): (Vec<_>, Vec<_>) =
        schedulers.partition(|(from, to)| only_loses(from.scheduler.as_ref(), to.scheduler.as_ref()));
    all.changes.extend(other.into_iter().map(|(from, to)| scheduler(from, to)));
    all.restart.extend(ports.new.iter().map(|port| Restart::AddPort(port.name.to_string())));
    all.restart.extend(ports.gone.iter().map(|port| Restart::RemovePort(port.name.to_string())));
    fewer.into_iter().map(|(from, to)| scheduler(from, to)).collect()
}

/// Adds the changes that create, recreate and set gates and instances. `running` and `wanted` list the instances before
/// and after the changes, in the order of their creation.
fn add_gates_and_instances(
    anew: &Anew<'_>,
    gates: &Compared<'_, Gate>,
    instances: &Compared<'_, Instance>,
    [running, wanted]: [&[Instance]; 2],
    changes: &mut Vec<Change>,
) {
    // What instances no longer need precedes the loads that may need it.
    changes.extend(instances.gone.iter().filter_map(|from| set_service(from, None)));
    let kept = instances.changed.iter().filter(|(from, to)| *from.plugin == *to.plugin && shrinks(from, to));
    changes.extend(kept.filter_map(|(from, to)| set_service(from, to.service)));
    let replaced = |one: &&Instance| anew.instances.iter().any(|(from, _)| from.name == one.name);
    changes.extend(running.iter().rev().filter(replaced).cloned().map(Change::RemoveInstance));
    changes.extend(anew.gates.iter().rev().map(|(from, _)| Change::RemoveGate((*from).clone())));
    changes.extend(anew.gates.iter().flat_map(|(_, to)| add_gate(to)));
    changes.extend(gates.new.iter().flat_map(|gate| add_gate(gate)));
    let moved = gates.changed.iter().filter(|(from, to)| from.position == to.position);
    changes.extend(moved.map(|(from, to)| set_gate(from, to)));
    for instance in wanted {
        let is = |other: &&Instance| other.name == instance.name;
        if instances.new.iter().any(&is) || anew.instances.iter().any(|(_, to)| is(to)) {
            changes.push(Change::AddInstance(instance.clone()));
        } else if let Some((from, to)) = instances.changed.iter().find(|(_, to)| is(to)) {
            if from.settings != to.settings {
                changes.push(Change::SetInstance { from: (*from).clone(), to: (*to).clone() });
            }
            changes.extend(set_service(from, to.service).filter(|_| !shrinks(from, to)));
        }
    }
}

/// Whether an instance's declared load only shrinks, so that it fits where it fitted before. A cost by default is the
/// manifest's, which the configuration doesn't know: it is comparable with itself alone.
fn shrinks(from: &Instance, to: &Instance) -> bool {
    let none = Service::default();
    let [from, to] = [from, to].map(|instance| instance.service.as_ref().unwrap_or(&none));
    let size = |service: &Service| service.size.map_or(Service::USUAL_SIZE, |size| size.bytes());
    let cheaper =
        |from: Option<f64>, to: Option<f64>| from == to || from.zip(to).is_some_and(|(from, to)| to <= from);
    let stays = to.pin().is_none() || (to.pin(), to.worker) == (from.pin(), from.worker);
    // Without packets, their size and cost don't matter.
    let is_less = to.rate == 0
        || (to.rate <= from.rate
            && size(to) <= size(from)
            && cheaper(from.packet, to.packet)
            && cheaper(from.byte, to.byte));
    stays && is_less
}

/// Returns the change of an instance's declared load and level; `None` if nothing changes.
fn set_service(from: &Instance, to: Option<Service>) -> Option<Change> {
    let instance = from.name.to_string();
    (from.service != to).then_some(Change::SetService { instance, from: from.service, to })
}

/// Adds the changes of static neighbours and routes.
fn set_neighbours_and_routes(from: &Config, to: &Config, changes: &mut Vec<Change>) {
    let neighbours = compare(&from.neighbour, &to.neighbour, |one| (&*one.port, one.address));
    let routes = compare(&from.route, &to.route, |route| *route.to.value());
    let set_neighbours = neighbours.changed.iter().map(|(from, _)| *from);
    let gone = neighbours.gone.iter().copied().chain(set_neighbours);
    changes.extend(gone.cloned().map(Change::RemoveNeighbour));
    let new = neighbours.new.iter().copied().chain(neighbours.changed.iter().map(|(_, to)| *to));
    changes.extend(new.cloned().map(Change::AddNeighbour));
    changes.extend(routes.gone.into_iter().cloned().map(Change::RemoveRoute));
    let replaced = routes.changed.into_iter();
    changes.extend(replaced.map(|(from, to)| Change::SetRoute { from: from.clone(), to: to.clone() }));
    changes.extend(routes.new.into_iter().cloned().map(Change::AddRoute));
}

/// Returns the changes that set and add principals, and that release the reserved shares of the principals
/// that go and pay for bindings now. Changes that release shares come first.
fn set_principals(principals: &Compared<'_, Principal>, paying: &[&Principal]) -> Vec<Change> {
    let set = |from: &Principal, to: Principal| Change::SetPrincipal {
        from: Box::new(from.clone()),
        to: Box::new(to),
    };
    let gone = paying.iter().filter(|one| one.reserved_cpu().is_some());
    let released = gone.map(|one| set(one, without_share(one)));
    let (fewer, more): (Vec<_>, Vec<_>) =
        principals.changed.iter().copied().partition(|(from, to)| to.reserved_cpu() < from.reserved_cpu());
    // A payer must exist before it pays.
    let names_new = |(_, to): &(&Principal, &Principal)| {
        let payer = to.same_as(Resource::Cpu);
        principals.new.iter().any(|new| payer.is_some_and(|payer| *new.name == **payer))
    };
    let (after, before): (Vec<_>, Vec<_>) = fewer.into_iter().chain(more).partition(names_new);
    let changed = |pairs: Vec<(&Principal, &Principal)>| -> Vec<Change> {
        pairs.into_iter().map(|(from, to)| set(from, to.clone())).collect()
    };
    let new = principals.new.iter().copied().cloned().map(Change::AddPrincipal);
    released.chain(changed(before)).chain(new).chain(changed(after)).collect()
}

/// Returns a principal as it is before its removal: without a reserved share.
fn without_share(principal: &Principal) -> Principal {
    Principal { cpu: None, deadline: None, ..principal.clone() }
}

/// Instances that get another plugin, and gates that get another position. They keep their names, but must be
/// removed and created again.
struct Anew<'a> {
    instances: Vec<(&'a Instance, &'a Instance)>,
    gates: Vec<(&'a Gate, &'a Gate)>,
}

impl<'a> Anew<'a> {
    fn of(instances: &Compared<'a, Instance>, gates: &Compared<'a, Gate>) -> Self {
        let other_plugin = instances.changed.iter().filter(|(from, to)| *from.plugin != *to.plugin);
        let other_position = gates.changed.iter().filter(|(from, to)| from.position != to.position);
        Self { instances: other_plugin.copied().collect(), gates: other_position.copied().collect() }
    }

    fn concerns(&self, gate: &str, instance: Option<&str>) -> bool {
        self.gates.iter().any(|(gone, _)| *gone.name == *gate)
            || self.instances.iter().any(|(gone, _)| Some(&*gone.name) == instance)
    }
}

/// Changes of bindings and filters, in two groups: before and after the changes of the gates and instances
/// that they name.
struct Bindings {
    before: Vec<Change>,
    after: Vec<Change>,
}

fn bindings(from: &Config, to: &Config, anew: &Anew) -> Bindings {
    let bound_anew = |bind: &Bind| anew.concerns(&bind.gate, Some(&bind.instance));
    let filtered_anew = |filter: &Filter| {
        anew.concerns(filter.gate.as_deref().unwrap_or_default(), filter.action.value().instance())
    };
    let binds_left: HashSet<BindKey> = to.bind.iter().map(bind_key).collect();
    let filters_left: HashSet<FilterKey> = to.filter.iter().map(filter_key).collect();
    let binds_before: HashSet<BindKey> =
        from.bind.iter().filter(|one| !bound_anew(one)).map(bind_key).collect();
    let filters_before: HashSet<FilterKey> =
        from.filter.iter().filter(|one| !filtered_anew(one)).map(filter_key).collect();
    let mut before = Vec::new();
    // `places` finds the removals by gate and filter, so that an addition with the same gate and filter
    // directly follows the removal.
    let mut gone: Vec<Option<Change>> = Vec::new();
    let mut places: HashMap<Place, Vec<usize>> = HashMap::new();
    for bind in &from.bind {
        let unbind = || Change::Unbind(bind.clone());
        if bound_anew(bind) {
            before.push(unbind());
        } else if !binds_left.contains(&bind_key(bind)) {
            places.entry(bind.place()).or_default().push(gone.len());
            gone.push(Some(unbind()));
        }
    }
    for filter in &from.filter {
        let remove = || Change::RemoveFilter(filter.clone());
        if filtered_anew(filter) {
            before.push(remove());
        } else if !filters_left.contains(&filter_key(filter)) {
            places.entry(filter.place()).or_default().push(gone.len());
            gone.push(Some(remove()));
        }
    }
    let mut after = Vec::new();
    let mut add = |place: Place, new: Change| {
        let there = places.get(&place).into_iter().flatten();
        after.extend(there.filter_map(|at| gone.get_mut(*at)?.take()));
        after.push(new);
    };
    for bind in to.bind.iter().filter(|bind| !binds_before.contains(&bind_key(bind))) {
        add(bind.place(), Change::Bind(bind.clone()));
    }
    for filter in to.filter.iter().filter(|filter| !filters_before.contains(&filter_key(filter))) {
        add(filter.place(), Change::AddFilter(filter.clone()));
    }
    after.extend(gone.into_iter().flatten());
    Bindings { before, after }
}

/// Gate and filter of a binding.
pub(crate) type Place<'a> = (&'a str, &'a str);

impl Bind {
    pub(crate) fn place(&self) -> Place<'_> {
        (&self.gate, self.filter.written())
    }
}

impl Filter {
    pub(crate) fn place(&self) -> Place<'_> {
        (self.gate.as_deref().unwrap_or_default(), self.r#match.written())
    }
}

type BindKey<'a> = (&'a str, &'a str, &'a str, i32, [bool; 2], Option<&'a str>, [Option<u64>; 3]);

/// Returns a key that contains all fields of a binding.
fn bind_key(bind: &Bind) -> BindKey<'_> {
    let micros = |budget: crate::Budget| budget.microseconds();
    let numbers = [bind.budget.map(micros), bind.packet_budget.map(micros), bind.queue_weight.map(u64::from)];
    let bypass = bind.on_fault == crate::OnFault::Bypass;
    let principal = bind.principal.as_deref();
    (
        &bind.instance,
        &bind.gate,
        bind.filter.written(),
        bind.priority,
        [bypass, bind.queue],
        principal,
        numbers,
    )
}

type FilterKey<'a> = (&'a str, &'a str, Option<&'a str>, i32);

/// Returns a key that contains all fields of a filter.
fn filter_key(filter: &Filter) -> FilterKey<'_> {
    (filter.r#match.written(), filter.action.written(), filter.gate.as_deref(), filter.priority)
}

fn add_gate(gate: &Gate) -> Vec<Change> {
    let plain = Gate { table: Default::default(), ..gate.clone() };
    let table = (gate.table != plain.table).then(|| set_gate(&plain, gate));
    // A default gate has no position, and exists already.
    plain.position.is_some().then(|| Change::AddGate(plain.clone())).into_iter().chain(table).collect()
}

fn remove_gate(gate: &Gate) -> Vec<Change> {
    add_gate(gate).into_iter().rev().map(Change::inverse).collect()
}

fn set_gate(from: &Gate, to: &Gate) -> Change {
    Change::SetGate { gate: to.name.to_string(), from: from.table, to: to.table }
}

fn scheduler(from: &Port, to: &Port) -> Change {
    let own = |port: &Port| port.scheduler.clone().map(Box::new);
    Change::SetScheduler { port: to.name.to_string(), from: own(from), to: own(to), heir: Heir::Any }
}

/// Whether `to` has fewer nodes than `from`, and all of its nodes are unchanged.
fn only_loses(from: Option<&Scheduler>, to: Option<&Scheduler>) -> bool {
    let nodes = |scheduler: Option<&'_ Scheduler>| scheduler.map_or_else(Vec::new, |own| own.node.clone());
    let (from, to) = (nodes(from), nodes(to));
    to.len() < from.len() && to.iter().all(|node| from.contains(node))
}

fn set_port(from: &Port, to: &Port, all: &mut Difference) {
    let keys = changed(from, to);
    let (live, other): (Vec<_>, Vec<_>) = keys.keys().partition(|key| LIVE_PORT.contains(&key.as_str()));
    let was = object(from);
    let owner = Owner::Port(to.name.to_string());
    all.restart.extend(other.into_iter().map(|key| Restart::set(owner.clone(), key, &was, &keys)));
    if live.iter().any(|key| *key != "scheduler") {
        // The change leaves out keys that need a restart.
        let to = Port {
            address: to.address.clone(),
            reverse_path: to.reverse_path,
            input_weight: to.input_weight,
            output_weight: to.output_weight,
            ..from.without_scheduler()
        };
        all.changes.push(Change::SetPort { from: Box::new(from.without_scheduler()), to: Box::new(to) });
    }
}

fn router(from: &Config, to: &Config, all: &mut Difference) {
    let keys = changed(&from.router, &to.router);
    let was = object(&from.router);
    let (live, other): (Vec<_>, Vec<_>) = keys.keys().partition(|key| LIVE.contains(&key.as_str()));
    all.restart.extend(other.into_iter().map(|key| Restart::set(Owner::Table("router"), key, &was, &keys)));
    if !live.is_empty() {
        let (from, mut after) = (from.router.clone(), to.router.clone());
        after.keep_fixed(&from);
        all.changes.push(Change::Router { from: Box::new(from), to: Box::new(after) });
    }
    fixed("plugins", &from.plugins, &to.plugins, all);
    fixed("api", &from.api, &to.api, all);
    fixed("connections", &from.connections, &to.connections, all);
}

/// Adds the differences in the runtimes of plugins. Another `allow-downgrade` makes no difference to a plugin
/// that is loaded.
fn set_runtimes(plugins: &[(&Plugin, &Plugin)], all: &mut Difference) {
    for (from, to) in plugins.iter().filter(|(from, to)| from.runtime != to.runtime) {
        let owner = Owner::Plugin(to.file.display().to_string());
        let [runs, submitted] = [from, to].map(|plugin| serde_json::to_value(plugin.runtime).ok());
        all.restart.push(Restart::Set { owner, key: "runtime".to_owned(), runs, submitted });
    }
}

/// Adds the differences of a table whose keys can't change while the router runs.
fn fixed<T: serde::Serialize>(table: &'static str, from: &T, to: &T, all: &mut Difference) {
    let (was, keys) = (object(from), changed(from, to));
    all.restart.extend(keys.keys().map(|key| Restart::set(Owner::Table(table), key, &was, &keys)));
}

impl Port {
    /// Returns the port without its scheduler.
    fn without_scheduler(&self) -> Self {
        Self { scheduler: None, ..self.clone() }
    }
}

#[cfg(test)]
mod tests;
