//! Filters with their actions: adding, removing and explaining them.

pub(crate) mod check;
pub(crate) mod conflicts;
mod explain;
pub(crate) mod gates;
pub(crate) mod selection;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use millrace_classify::{CompiledExpression, Filter, FilterError, FilterExpression};
use millrace_config::{FilterAction, Policing};
use millrace_plugin::{Action, BindingId, CallLimits, PluginChange, PluginControlError, Policer, Way};
use millrace_plugin_abi::Position;

use crate::ControlError;
use crate::filters::conflicts::FilterConflicts;
use crate::flows::lookup::ReadPacket;
use crate::kernel::Kernel;
use crate::model::call_limits;
use crate::model::{Model, PortPlan};
use crate::ports::devices::Devices;
use crate::request::page::{Page, PageQuery};
use crate::request::{NewBinding, NewFilter, OldFilter};
use crate::router::Router;
use crate::show;
use crate::view::{BindingView, GateExplanationView};
use crate::workers::death::Need;

/// Maximum number of filters in a gate's explanation that don't match the packet; people read no longer list.
const MISMATCHES: usize = 32;

impl Model {
    /// Binds an action to a filter.
    ///
    /// # Errors
    /// Returns an error for unknown names, a gate that doesn't allow the action, or an existing filter.
    /// Nothing has changed then.
    pub fn add_filter(
        &mut self,
        filter: &FilterExpression,
        action: &FilterAction,
        gate: Option<&str>,
        priority: i32,
    ) -> Result<(BindingId, PluginChange<CompiledExpression>), ControlError> {
        let Some(gate) = gate.or(action.default_gate()) else {
            let gates = self.plugins.gates();
            let gates = millrace_units::here("gate", gates.iter().map(|gate| gate.name.as_str()));
            return Err(ControlError::Invalid(format!("the action \"{action}\" needs a gate; {gates}")));
        };
        let position = self.plugins.gate(gate)?.position;
        if matches!(action, FilterAction::Copy(_)) && position != Position::Copy {
            return Err(ControlError::Invalid(format!(
                "gate {gate:?} stands at position {position}, where \"{action}\" can't be: copies are made at gates of \
                 position copy, such as tap"
            )));
        }
        let compiled = self.compile(filter)?;
        let (written, action) = (action, self.action(action, filter)?);
        let added = self.plugins.add_filter(action, gate, filter.clone(), compiled, priority);
        // The error of the plugin control unit has the number of a queue, so its name is added here.
        let named = |error| match (error, written) {
            (PluginControlError::Bound { gate, filter, priority, .. }, FilterAction::Queue(_)) => {
                PluginControlError::Bound { what: written.to_string(), gate, filter, priority }
            }
            (PluginControlError::Position { gate, position, supported, .. }, FilterAction::Queue(_)) => {
                let what = format!("action {written}");
                PluginControlError::Position { gate, position, what, supported }
            }
            (error, _) => error,
        };
        Ok(added.map_err(named)?)
    }

    /// Binds an instance.
    ///
    /// # Errors
    /// Returns the errors of [`add_filter`](Self::add_filter).
    pub fn bind(
        &mut self,
        instance: &str,
        gate: &str,
        filter: FilterExpression,
        priority: i32,
        call_limits: CallLimits,
    ) -> Result<(BindingId, PluginChange<CompiledExpression>), ControlError> {
        let compiled = self.compile(&filter)?;
        Ok(self.plugins.register_instance(instance, gate, filter, compiled, priority, call_limits)?)
    }

    /// Returns an action with ports, instances and queues looked up.
    pub fn action(&self, action: &FilterAction, filter: &FilterExpression) -> Result<Action, ControlError> {
        let nets = |one: &Filter| [one.source(), one.destination()].into_iter().flatten();
        let is_v6 = filter.alternatives().iter().flat_map(nets).any(|net| net.addr().is_ipv6());
        let ways = || {
            let way = |way: &millrace_config::WayOut| match way.via {
                Some(via) if is_v6 && via.is_ipv4() => Err(ControlError::Invalid(format!(
                    "\"{action}\" for {:?}: IPv6 packets need an IPv6 neighbour",
                    filter.to_string()
                ))),
                via => {
                    let port = self.port(&way.port)?;
                    via.map_or(Ok(()), |via| self.refuse_unreachable(port, via, action))?;
                    Ok(Way { port: port.id, via })
                }
            };
            action.ways().iter().map(way).collect::<Result<_, _>>()
        };
        Ok(match action {
            FilterAction::Drop => Action::Drop,
            FilterAction::Accept => Action::Accept,
            FilterAction::Reject => Action::Reject,
            FilterAction::Host => Action::Host,
            FilterAction::Ports(_) => Action::Send(ways()?),
            FilterAction::CopyTo(_) => Action::Copy(ways()?),
            FilterAction::Queue(name) => Action::Queue(self.schedulers.queue(name)?),
            FilterAction::Police(Policing { rate, burst }) => {
                Action::Police(Policer::new(rate.0, *burst).into())
            }
            FilterAction::Copy(name) | FilterAction::Instance(name) => {
                Action::Instance(self.plugins.instance(name)?)
            }
        })
    }
}

impl Model {
    /// Refuses a neighbour that is in no subnet of its port, where the port has no kernel device: the
    /// neighbour could never be resolved.
    fn refuse_unreachable(
        &self,
        port: &PortPlan,
        via: IpAddr,
        action: &FilterAction,
    ) -> Result<(), ControlError> {
        let is_known = self.neighbours.iter().any(|one| *one.port == *port.config.name && one.address == via);
        if port.is_kernel() || is_known {
            return Ok(());
        }
        refuse_beyond(port.settings.addresses.iter().copied(), &port.config.name, via, action)
    }
}

/// Refuses a neighbour in none of these subnets of a port, unless its address is link-local.
fn refuse_beyond(
    subnets: impl Iterator<Item = IpNet>,
    port: &str,
    via: IpAddr,
    action: &FilterAction,
) -> Result<(), ControlError> {
    let subnets: Vec<IpNet> = subnets.filter(|net| net.addr().is_ipv4() == via.is_ipv4()).collect();
    let is_link_local = matches!(via, IpAddr::V6(via) if via.is_unicast_link_local());
    if is_link_local || subnets.iter().any(|net| net.contains(&via)) {
        return Ok(());
    }
    let there = match subnets.as_slice() {
        [] => "which has no address of its family".to_owned(),
        subnets => {
            let list: Vec<String> = subnets.iter().map(|net| net.trunc().to_string()).collect();
            format!("whose subnets are {}", list.join(", "))
        }
    };
    Err(ControlError::Invalid(format!("\"{action}\": {via} can't be a neighbour at port {port:?}, {there}")))
}

/// Refuses a filter that sends to a neighbour in none of the current subnets of its kernel port.
pub(crate) fn refuse_unreachable(
    filter: &millrace_config::Filter,
    model: &Model,
    kernel: &Kernel,
    devices: &Devices,
) -> Result<(), ControlError> {
    let Some(mirror) = &kernel.mirror else { return Ok(()) };
    let (state, action) = (mirror.state(), filter.action.value());
    for way in action.ways() {
        let port = model.port(&way.port)?;
        let Some((via, device)) = way.via.zip(devices.kernel.get(&port.id)) else { continue };
        if state.neighbour(device.ifindex, via).is_some() {
            continue;
        }
        let own = state.addresses().filter(|address| address.ifindex == device.ifindex);
        let subnets = own.flat_map(|address| {
            let net = IpNet::new(address.address, address.prefix_length).ok();
            net.into_iter().chain(address.peer.map(IpNet::from))
        });
        refuse_beyond(subnets, &way.port, via, action)?;
    }
    Ok(())
}

impl Router {
    /// Returns all bindings, or a page of them: bindings of instances, and filters with other actions.
    ///
    /// # Errors
    /// Returns an error for an invalid limit or cursor, or if the data plane does not answer.
    pub fn bindings(&self, query: &PageQuery) -> Result<Page<BindingView>, ControlError> {
        let most = query.most()?;
        let mut guard = self.lock();
        let inner = &mut *guard;
        if !query.is_asked() {
            let counts = inner.workers.filter_counts()?;
            return Ok(Page::whole(show::bindings(&counts, &inner.model)));
        }
        let wrong = |cursor: &String| ControlError::Invalid(format!("cursor {cursor:?} is of no page"));
        let after: Option<u64> =
            query.cursor.as_ref().map(|cursor| cursor.parse().map_err(|_| wrong(cursor))).transpose()?;
        let further = inner.model.plugins.bindings_by_age();
        let mut page: Vec<_> = further
            .filter(|(_, bound)| after.is_none_or(|after| bound.number > after))
            .take(most + 1)
            .collect();
        let more = page.len() > most;
        page.truncate(most);
        let ids: Vec<BindingId> = page.iter().map(|(id, _)| *id).collect();
        let counts = inner.workers.counts_of(&ids)?;
        let rows: Vec<_> =
            page.iter().map(|(id, bound)| show::binding(*id, bound, &counts, &inner.model)).collect();
        let next = rows.last().filter(|_| more).map(|row| row.id.to_string());
        Ok(Page { rows, next })
    }

    /// Binds an instance to the flows that a filter matches. When this returns, the next packet meets the
    /// binding.
    ///
    /// # Errors
    /// Returns an error for an unknown instance, gate or port, an invalid filter, or an existing binding.
    pub fn bind(&self, new: &NewBinding) -> Result<BindingView, ControlError> {
        let filter = parse_filter(&new.filter)?;
        let call_limits = call_limits(new.on_fault, new.budget, new.packet_budget);
        let mut inner = self.to_change()?;
        inner.supervision.death.refuse_silent(Need::Bindings)?;
        let bound = inner.model.bind(&new.instance, &new.gate, filter, new.priority, call_limits)?;
        inner.gates().bound(bound)
    }

    /// Removes all bindings of an instance to a filter at a gate, whatever their priority. When this returns,
    /// no further packet meets them. Returns the view of one of them.
    ///
    /// # Errors
    /// Returns an error if there is no such binding.
    pub fn unbind(&self, instance: &str, gate: &str, filter: &str) -> Result<BindingView, ControlError> {
        let filter: FilterExpression = parse_filter(filter)?;
        let mut inner = self.to_change()?;
        let written = filter.to_string();
        let is_it = |one: &millrace_plugin::BindingDescription| {
            one.instance.as_deref() == Some(instance) && one.gate == gate && one.filter == written
        };
        let described = inner.model.plugins.bindings().into_iter().filter(is_it);
        let there: Vec<BindingId> = described.map(|described| described.id).collect();
        let undone = match there.is_empty() {
            false => inner.gates().unbind(&there)?,
            // The lookup by name reports which name is wrong.
            true => {
                inner.model.plugins.deregister_instance(instance, gate, &filter, None).map(|_| Vec::new())?
            }
        };
        let undone = undone.into_iter().next();
        undone.ok_or_else(|| ControlError::System("the binding was not there".into()))
    }

    /// Adds a filter. When this returns, the filter applies to the next packet.
    ///
    /// # Errors
    /// Returns an error for an invalid filter or action, unknown names, or an existing filter. Nothing has
    /// changed then.
    pub fn add_filter(&self, new: &NewFilter) -> Result<BindingView, ControlError> {
        let filter = new_filter(new)?;
        let mut inner = self.to_change()?;
        inner.supervision.death.refuse_silent(Need::Filters)?;
        FilterConflicts::with_conditions_of(&inner.model, &filter).add(&inner.model, &filter)?;
        refuse_unreachable(&filter, &inner.model, &inner.kernel, &inner.devices)?;
        let bound = inner.model.add_configured_filter(&filter)?;
        inner.gates().bound(bound)
    }

    /// Removes the bindings with these numbers. The workers drop all of them between two batches.
    ///
    /// # Errors
    /// Returns an error if one of them doesn't exist. Nothing has changed then.
    pub fn remove_filters(&self, numbers: &[u64]) -> Result<Vec<BindingView>, ControlError> {
        let mut inner = self.to_change()?;
        let plugins = &inner.model.plugins;
        let numbered = |number: &u64| {
            plugins.binding_numbered(*number).ok_or_else(|| {
                ControlError::NotFound(format!("no filter has the id {number}: `filter list` shows all"))
            })
        };
        let numbers = BTreeSet::from_iter(numbers);
        let ids = numbers.into_iter().map(numbered).collect::<Result<Vec<_>, _>>()?;
        inner.gates().unbind(&ids)
    }

    /// Removes a filter identified by match, action and gate, and by priority if given.
    ///
    /// # Errors
    /// Returns an error for an invalid filter or action, or an unknown filter. Without a priority, also
    /// refuses if several filters fit. Nothing has changed then.
    pub fn remove_filter(&self, old: &OldFilter) -> Result<BindingView, ControlError> {
        let OldFilter { filter, action, gate, priority } = old.clone();
        let written =
            new_filter(&NewFilter { filter, action, gate, priority: priority.unwrap_or_default() })?;
        let mut inner = self.to_change()?;
        let id = match priority {
            Some(_) => inner.model.find_filter(&written)?,
            None => inner.model.find_only_filter(&written)?,
        };
        let removed = inner.gates().unbind(&[id])?.pop();
        removed.ok_or_else(|| ControlError::System("the filter was not there".into()))
    }

    /// Explains, for each gate with filters, which filter a packet chooses, and why the others don't apply.
    ///
    /// # Errors
    /// Returns an error if the packet is invalid.
    pub fn explain_filters(&self, packet: &str) -> Result<Vec<GateExplanationView>, ControlError> {
        let packet = ReadPacket::read(packet)?;
        let inner = self.lock();
        let candidate = packet.candidate(&inner.model)?;
        let route = inner.route_views().to_address(candidate.key.destination()).map(|route| route.to);
        let mut primary = false;
        let mut gates = Vec::new();
        for gate in inner.model.plugins.gates() {
            let id = inner.model.plugins.gate(&gate.name)?.id;
            let Some(table) = inner.tables.table(id).filter(|_| !gate.bindings.is_empty()) else { continue };
            let winner = table.lookup(&candidate);
            let at_route = gate.position == Position::Route.name();
            let beaten = winner.filter(|_| at_route).and_then(|winner| {
                let beaten = beaten(&inner.model, winner, primary, route.as_deref());
                primary |= beaten.is_none() && chooses_way(&inner.model, winner);
                beaten
            });
            let (candidates, left_out) =
                inner.model.explain_gate(table.filters(), &candidate, winner, beaten.as_deref());
            gates.push(GateExplanationView {
                gate: gate.name,
                position: gate.position,
                candidates,
                left_out,
            });
        }
        Ok(gates)
    }
}

/// Whether the action of a binding at a gate of position `route` replaces the route. Instances and `accept`
/// don't.
fn chooses_way(model: &Model, id: BindingId) -> bool {
    model.plugins.binding(id).is_some_and(|bound| bound.action.is_route())
}

/// Returns the reason why the winning filter at a gate of position `route` doesn't determine the packet's
/// route; `None` if it does.
fn beaten(model: &Model, winner: BindingId, primary: bool, route: Option<&str>) -> Option<String> {
    if !chooses_way(model, winner) {
        return None;
    }
    let bound = model.plugins.binding(winner)?;
    let priority = model.options.route_priority;
    if primary {
        return Some("matches, but a gate before this one has chosen the way".to_owned());
    }
    let route = route.filter(|_| bound.priority < priority)?;
    Some(format!("matches, but the route to {route} has priority {priority}, which is higher"))
}

/// Parses a requested filter.
pub(crate) fn new_filter(new: &NewFilter) -> Result<millrace_config::Filter, ControlError> {
    if new.filter.trim().is_empty() {
        return Err(ControlError::Invalid("an empty filter: write * if all packets are meant".into()));
    }
    let wrong = |error| ControlError::Invalid(format!("filter {:?}: {error}", new.filter));
    Ok(millrace_config::Filter {
        r#match: new.filter.parse().map_err(wrong)?,
        action: new.action.parse().map_err(ControlError::Invalid)?,
        gate: new.gate.as_deref().map(Into::into),
        priority: new.priority,
    })
}

/// Reason why no arriving packet reaches a filter for multicast destinations.
const UNREACHED: &str = "packets to multicast destinations meet no gate: at ports with a kernel the kernel gets 224.0.0.0/4 and \
    ff02::/16, all others are dropped as `multicast`";

/// Whether a filter matches multicast destinations only.
fn is_for_groups(filter: &FilterExpression) -> bool {
    let is_group = |net: IpNet| match net {
        IpNet::V4(net) => net.addr().is_multicast() && net.prefix_len() >= 4,
        IpNet::V6(net) => net.addr().is_multicast() && net.prefix_len() >= 8,
    };
    let mut alternatives = filter.alternatives().iter().peekable();
    alternatives.peek().is_some() && alternatives.all(|one| one.destination().is_some_and(is_group))
}

/// Parses a filter, or an expression that only selects packets.
pub(crate) fn parse_filter<T: FromStr<Err = FilterError>>(filter: &str) -> Result<T, ControlError> {
    filter.parse().map_err(|error| ControlError::Invalid(format!("filter {filter:?}: {error}")))
}
