//! Filters with their actions, and bindings of instances.

pub(crate) mod bindings;
pub(crate) mod check;
pub(crate) mod conflicts;
pub(crate) mod explain;
pub(crate) mod gates;
pub(crate) mod pinned;
pub(crate) mod selection;

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use millrace_classify::{Filter, FilterError, FilterExpression};
use millrace_config::{Bind, FilterAction, OnFault, Policing, Principal};
use millrace_plugin::{Action, BindingId, CallLimits, PluginControlError, Policer, Way};
use millrace_plugin_abi::Position;

use crate::ControlError;
use crate::kernel::Kernel;
use crate::model::principals::{Owners, PrincipalIds};
use crate::model::{Model, PluginChange, PortPlan, call_limits};
use crate::ports::devices::Devices;
use crate::request::NewFilter;

impl Model {
    /// Adds a filter: binds its action to the packets that it matches.
    ///
    /// # Errors
    /// Returns an error for unknown names, a gate that doesn't allow the action, or a filter that already
    /// exists. The model is unchanged then.
    pub fn add_filter(
        &mut self,
        configured: &millrace_config::Filter,
    ) -> Result<(BindingId, PluginChange), ControlError> {
        let (filter, action) = (configured.r#match.value(), configured.action.value());
        let Some(gate) = configured.gate.as_deref().or(action.default_gate()) else {
            let gates = self.plugins.gates();
            let gates = millrace_units::here("gate", gates.iter().map(|gate| gate.name.as_str()));
            return Err(ControlError::invalid(format!("the action \"{action}\" needs a gate; {gates}")));
        };
        let position = self.plugins.gate(gate)?.position;
        if matches!(action, FilterAction::Copy(_)) && position != Position::Copy {
            return Err(ControlError::invalid(format!(
                "gate {gate:?} is at position {position}, which does not support \"{action}\": use a gate at position \
                 copy, such as tap"
            )));
        }
        let compiled = self.compile(filter)?;
        // A filter with an instance is a binding with the default settings.
        if let FilterAction::Instance(name) | FilterAction::Copy(name) = action {
            let payer = self.payer(name, (None, false))?;
            let limits = call_limits((OnFault::default(), None, None), payer, None);
            return self.bind(name, gate, filter.clone(), configured.priority, limits);
        }
        let limits = match action.principal() {
            Some(name) => call_limits((OnFault::default(), None, None), Owners(self).payer(name)?, None),
            None => CallLimits::default(),
        };
        let (written, action) = (action, self.action(action, filter)?);
        let (filter, priority) = (filter.clone(), configured.priority);
        let added = self.plugins.add_filter(action, gate, filter, compiled, priority, limits);
        // The plugin control unit knows only the numbers of queues and principals, so names are added here.
        let named = |error| match (error, written) {
            (
                PluginControlError::Bound { gate, filter, priority, .. },
                FilterAction::Queue(_) | FilterAction::Principal(_),
            ) => PluginControlError::Bound { what: written.to_string(), gate, filter, priority },
            (
                PluginControlError::Position { gate, position, supported, .. },
                FilterAction::Queue(_) | FilterAction::Principal(_),
            ) => {
                let what = format!("action {written}");
                PluginControlError::Position { gate, position, what, supported }
            }
            (error, _) => error,
        };
        Ok(added.map_err(named)?)
    }

    /// Binds an instance.
    pub fn bind(
        &mut self,
        instance: &str,
        gate: &str,
        filter: FilterExpression,
        priority: i32,
        call_limits: CallLimits,
    ) -> Result<(BindingId, PluginChange), ControlError> {
        let compiled = self.compile(&filter)?;
        let worker = self.placements.worker_of(instance);
        if let Some(worker) = worker {
            pinned::check(self, (instance, worker), self.plugins.gate(gate)?, &compiled)?;
        }
        let limits = CallLimits { worker, ..call_limits };
        Ok(self.plugins.register_instance(instance, gate, filter, compiled, priority, limits)?)
    }

    /// Binds an instance as configured.
    pub fn bind_as(&mut self, bind: &Bind) -> Result<PluginChange, ControlError> {
        let queue = Bind::stage_queue(bind.queue, bind.queue_weight).map_err(ControlError::invalid)?;
        let payer = self.payer(&bind.instance, (bind.principal.as_deref(), bind.queue))?;
        let call_limits = call_limits((bind.on_fault, bind.budget, bind.packet_budget), payer, queue);
        let filter = bind.filter.value().clone();
        Ok(self.bind(&bind.instance, &bind.gate, filter, bind.priority, call_limits)?.1)
    }

    /// Returns an action with the ids of the ports, instances and queues that it names.
    pub fn action(&self, action: &FilterAction, filter: &FilterExpression) -> Result<Action, ControlError> {
        let nets = |one: &Filter| [one.source(), one.destination()].into_iter().flatten();
        let is_v6 = filter.alternatives().iter().flat_map(nets).any(|net| net.addr().is_ipv6());
        let ways = || {
            let way = |way: &millrace_config::WayOut| match way.via {
                Some(via) if is_v6 && via.is_ipv4() => Err(ControlError::invalid(format!(
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
            FilterAction::Queue(name) => match name.strip_prefix(Principal::QUEUE_PREFIX) {
                Some(principal) => {
                    if Owners(self).known_principal(principal)? == PrincipalIds::DEFAULT {
                        return Err(ControlError::invalid(format!(
                            "principal {principal:?} has no queue: name a configured principal"
                        )));
                    }
                    Action::Queue(self.schedulers.queue_of_principal(principal))
                }
                None => Action::Queue(self.schedulers.queue(name)?),
            },
            FilterAction::Principal(name) => Action::Principal(Owners(self).known_principal(name)?),
            FilterAction::Police(Policing { rate, burst }) => {
                Action::Police(Policer::new(rate.0, *burst).into())
            }
            FilterAction::Copy(name) | FilterAction::Instance(name) => {
                Action::Instance(self.plugins.instance(name)?)
            }
        })
    }

    /// Refuses a next hop outside the subnets of its port, because such a next hop could never be resolved.
    /// Accepts static neighbours, and any next hop at a kernel port.
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

/// Refuses a next hop outside the given subnets of its port. Accepts IPv6 link-local addresses.
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
    Err(ControlError::invalid(format!("\"{action}\": {via} can't be a neighbour at port {port:?}, {there}")))
}

/// Refuses a filter that sends packets to a next hop outside the current subnets of a kernel port. Accepts
/// next hops that the kernel knows as neighbours.
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

/// Parses a requested filter.
pub(crate) fn new_filter(new: &NewFilter) -> Result<millrace_config::Filter, ControlError> {
    if new.filter.trim().is_empty() {
        return Err(ControlError::invalid("the filter is empty: write * to match all packets"));
    }
    let wrong = |error| ControlError::invalid(format!("filter {:?}: {error}", new.filter));
    Ok(millrace_config::Filter {
        r#match: new.filter.parse().map_err(wrong)?,
        action: new.action.parse().map_err(ControlError::invalid)?,
        gate: new.gate.as_deref().map(Into::into),
        priority: new.priority,
    })
}

/// Reason why no arriving packet reaches a filter for multicast destinations.
const UNREACHED: &str = "multicast packets reach no gate, so this filter never matches: ports with a kernel device punt \
    224.0.0.0/4 and ff02::/16 to the kernel, and all other multicast packets are dropped with the reason `multicast`";

/// Whether a filter matches multicast destinations only.
fn is_for_groups(filter: &FilterExpression) -> bool {
    let is_group = |net: IpNet| match net {
        IpNet::V4(net) => net.addr().is_multicast() && net.prefix_len() >= 4,
        IpNet::V6(net) => net.addr().is_multicast() && net.prefix_len() >= 8,
    };
    let mut alternatives = filter.alternatives().iter().peekable();
    alternatives.peek().is_some() && alternatives.all(|one| one.destination().is_some_and(is_group))
}

/// Parses a filter, or a selection.
pub(crate) fn parse_filter<T: FromStr<Err = FilterError>>(filter: &str) -> Result<T, ControlError> {
    filter.parse().map_err(|error| ControlError::invalid(format!("filter {filter:?}: {error}")))
}
