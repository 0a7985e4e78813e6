//! Checks across the tables of a configuration.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::ops::Range;

use millrace_plugin_abi::DEFAULT_GATES;

use crate::api::Api;
use crate::error::{ConfigError, Place};
use crate::nearest;
use crate::origin::{Step, span};
use crate::schema::{
    Config, Filter, Gate, GateTable, OnDeath, Placeable, Placement, Plugins, Port, PortKind, Route, RouteKind,
};
use crate::values::{Named, Text};

struct Checker<'a> {
    text: &'a str,
    origin: &'a str,
}

type Checked = Result<(), ConfigError>;

/// Where in the file something is wrong.
enum At<'a> {
    /// There, if that is known.
    Span(Option<Range<usize>>),
    /// At the value of this key of a table.
    Key(&'a str, &'a str),
    /// At the value of this key of an entry of a list, or of the table in it: `port`, 0, `impair`, `loss`.
    Entry(&'a str, usize, &'a [&'a str]),
}

impl From<Option<Range<usize>>> for At<'_> {
    fn from(span: Option<Range<usize>>) -> Self {
        Self::Span(span)
    }
}

impl At<'_> {
    /// It is looked for in the text only where something is wrong.
    fn span(self, text: &str) -> Option<Range<usize>> {
        match self {
            Self::Span(span) => span,
            Self::Key(table, key) => span(text, &[Step::Key(table), Step::Key(key)]),
            Self::Entry(list, index, keys) => {
                let steps = [Step::Key(list), Step::Entry(index)].into_iter();
                span(text, &steps.chain(keys.iter().copied().map(Step::Key)).collect::<Vec<_>>())
            }
        }
    }
}

pub(crate) fn check(config: &Config, text: &str, origin: &str) -> Checked {
    let checker = Checker { text, origin };
    checker.router(config)?;
    checker.plugins(&config.plugins)?;
    checker.api(&config.api)?;
    checker.unique("port", config.port.iter().map(|port| &port.name))?;
    checker.unique("instance", config.instance.iter().map(|instance| &instance.name))?;
    checker.unique("gate", config.gate.iter().map(|gate| &gate.name))?;
    config.plugin.iter().enumerate().try_for_each(|(index, plugin)| {
        checker.require(plugin.file.is_absolute(), At::Entry("plugin", index, &["file"]), || {
            format!("plugin {}: give the whole path of the file, from / on", plugin.file.display())
        })
    })?;
    config.port.iter().enumerate().try_for_each(|(index, port)| checker.port(index, port))?;
    checker.devices(config)?;
    checker.routes(config)?;
    let ports = || config.port.iter().map(|port| &*port.name);
    config.neighbour.iter().try_for_each(|neighbour| checker.known("port", &neighbour.port, ports()))?;
    config.place.iter().try_for_each(|place| checker.place(config, place))?;
    config.gate.iter().try_for_each(|gate| checker.gate(gate))?;
    checker.bindings(config)?;
    config.filter.iter().try_for_each(|filter| checker.filter(config, filter))?;
    checker.death(config)
}

/// The names of all gates.
fn gates(config: &Config) -> impl Iterator<Item = &str> {
    let own = config.gate.iter().map(|gate| &*gate.name).filter(|name| !is_default(name));
    DEFAULT_GATES.iter().map(|(name, _)| *name).chain(own)
}

/// Whether the gate is there from the start.
fn is_default(gate: &str) -> bool {
    DEFAULT_GATES.iter().any(|(name, _)| *name == gate)
}

/// Most `[[place]]` of a configuration: workers look at one after the other.
pub const MOST_PLACEMENTS: usize = 256;

impl Checker<'_> {
    fn error<'a>(&self, at: impl Into<At<'a>>, problem: String) -> ConfigError {
        ConfigError { place: Place::of(at.into().span(self.text), self.text, self.origin), problem }
    }

    fn require<'a>(&self, holds: bool, at: impl Into<At<'a>>, problem: impl FnOnce() -> String) -> Checked {
        if holds { Ok(()) } else { Err(self.error(at, problem())) }
    }

    fn api(&self, api: &Api) -> Checked {
        for (has, lacks, there) in [
            ("certificate", "key", api.certificate.is_some() && api.key.is_none()),
            ("key", "certificate", api.key.is_some() && api.certificate.is_none()),
        ] {
            self.require(!there, At::Key("api", has), || {
                format!("api.{has} is said, and api.{lacks} is not: say both or none")
            })?;
        }
        let (size, files) = (65_536..=1 << 40, 1..=100);
        self.require(size.contains(&api.audit_size), At::Key("api", "audit-size"), || {
            format!("api.audit-size {}: 65536 to 1099511627776 bytes are right", api.audit_size)
        })?;
        self.require(files.contains(&api.audit_files), At::Key("api", "audit-files"), || {
            format!("api.audit-files {}: 1 to 100 are right", api.audit_files)
        })?;
        let wrong = api.listen.iter().find(|address| address.port() == 0);
        self.require(wrong.is_none(), At::Key("api", "listen"), || {
            "api.listen: give a port, as in \"0.0.0.0:8443\"".to_owned()
        })
    }

    fn plugins(&self, plugins: &Plugins) -> Checked {
        let limits = [
            ("slice", plugins.slice, 10..=10_000, " microseconds"),
            ("memory", plugins.memory, 1..=1024, " MiB"),
            ("faults", plugins.faults, 1..=1000, ""),
            ("fault-window", plugins.fault_window, 1..=86_400, " seconds"),
        ];
        limits.into_iter().try_for_each(|(key, value, range, unit)| {
            self.require(range.contains(&value), At::Key("plugins", key), || {
                format!("plugins.{key} = {value}: it takes {} to {}{unit}", range.start(), range.end())
            })
        })
    }

    fn router(&self, config: &Config) -> Checked {
        let router = &config.router;
        self.require((1024..=1 << 22).contains(&router.frames), At::Key("router", "frames"), || {
            format!("router.frames = {}: it takes 1024 to 4194304", router.frames)
        })?;
        self.require((1..=16).contains(&router.workers), At::Key("router", "workers"), || {
            format!("router.workers = {}: it takes 1 to 16", router.workers)
        })?;
        self.require(router.icmp_dscp < 64, At::Key("router", "icmp-dscp"), || {
            format!("router.icmp-dscp = {}: it takes 0 to 63", router.icmp_dscp)
        })?;
        self.require((1..=256).contains(&router.new_flows), At::Key("router", "new-flows"), || {
            format!("router.new-flows = {}: it takes 1 to 256", router.new_flows)
        })?;
        self.require(
            router.flows_max == 0 || (1024..=1 << 24).contains(&router.flows_max),
            At::Key("router", "flows-max"),
            || {
                format!(
                    "router.flows-max = {}: it takes 1024 to 16777216, or 0 for no flow table",
                    router.flows_max
                )
            },
        )?;
        self.require(router.driver_flows <= 4_194_304, At::Key("router", "driver-flows"), || {
            format!("router.driver-flows = {}: it takes 0 to 4194304", router.driver_flows)
        })?;
        self.require((1..=86_400).contains(&router.flow_idle), At::Key("router", "flow-idle"), || {
            format!("router.flow-idle = {}: it takes 1 to 86400 seconds", router.flow_idle)
        })?;
        let key = if router.icmp_rate == 0 { "icmp-rate" } else { "icmp-burst" };
        self.require(router.icmp_rate > 0 && router.icmp_burst > 0, At::Key("router", key), || {
            "router.icmp-rate and router.icmp-burst are 1 or more: a router must be able to report errors"
                .into()
        })
    }

    fn unique<'a>(&self, noun: &str, names: impl Iterator<Item = &'a Named>) -> Checked {
        let mut seen = HashSet::new();
        for name in names {
            let plain = !name.is_empty()
                && name.len() <= 63
                && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c));
            self.require(plain, Some(name.span()), || {
                format!("{noun} name {:?}: 1 to 63 letters, digits and - _ . : make a name", &**name)
            })?;
            self.require(seen.insert(&**name), Some(name.span()), || {
                format!("a second {noun} is named {:?}: names are unique", &**name)
            })?;
        }
        Ok(())
    }

    fn known<'a>(&self, noun: &str, name: &Named, known: impl Iterator<Item = &'a str>) -> Checked {
        self.known_at(Some(name.span()), noun, name, known)
    }

    fn known_at<'a>(
        &self,
        span: Option<Range<usize>>,
        noun: &str,
        name: &str,
        known: impl Iterator<Item = &'a str>,
    ) -> Checked {
        let known: Vec<&str> = known.collect();
        let hint = || match (nearest(name, known.iter().copied()), known.is_empty()) {
            (Some(near), _) => format!("did you mean {near:?}?"),
            (None, true) => "there is none".to_owned(),
            (None, false) => format!("there are: {}", known.join(", ")),
        };
        self.require(known.contains(&name), span, || format!("no {noun} is named {name:?}: {}", hint()))
    }

    fn port(&self, index: usize, port: &Port) -> Checked {
        let (span, name) = (Some(port.name.span()), &*port.name);
        let key = |key: &'static [&'static str]| At::Entry("port", index, key);
        let own = port.kind != PortKind::Device || port.vlan.is_some();
        self.require(port.device.is_some() == (port.kind == PortKind::Device), span.clone(), || match port
            .kind
        {
            PortKind::Device => {
                format!("port {name:?} has no device: say device = \"eth1\", or another kind")
            }
            _ => format!("port {name:?} has a device and a kind that has none: leave one of them out"),
        })?;
        self.require(port.vlan.is_none_or(|vlan| vlan.is_valid()), key(&["vlan"]), || {
            format!("port {name:?}: VLAN ids are 1 to 4094")
        })?;
        self.require(port.kind != PortKind::Tap || port.mac.is_none(), key(&["mac"]), || {
            format!("port {name:?}: a tap port's MAC address is made from its name: leave mac out")
        })?;
        self.require(own || port.address.is_empty(), key(&["address"]), || {
            format!(
                "port {name:?}: the addresses of a kernel device are the kernel's: set them with `ip address`"
            )
        })?;
        let said: &[&str] = if port.mac.is_some() { &["mac"] } else { &["mtu"] };
        self.require(own || (port.mac.is_none() && port.mtu.is_none()), key(said), || {
            format!("port {name:?}: MAC address and MTU of a kernel device are the kernel's: set them with `ip link`")
        })?;
        let least = if port.address.iter().any(|net| net.value().addr().is_ipv6()) { 1280 } else { 68 };
        self.require(port.mtu.is_none_or(|mtu| mtu >= least), key(&["mtu"]), || {
            format!("port {name:?}: an MTU of at least {least} is needed for its addresses")
        })?;
        let files = port.input.is_some() || port.output.is_some();
        self.require(files == (port.kind == PortKind::Pcap), span, || {
            format!(
                "port {name:?}: input and output go with kind = \"pcap\", which needs at least one of them"
            )
        })?;
        self.impairment(index, port)
    }

    fn impairment(&self, index: usize, port: &Port) -> Checked {
        let Some(impair) = &port.impair else { return Ok(()) };
        let (parts, times) = (0.0..=1.0, 0.0..=60_000.0);
        for (key, value, range) in [
            ("loss", impair.loss, &parts),
            ("duplicate", impair.duplicate, &parts),
            ("reorder", impair.reorder, &parts),
            ("corrupt", impair.corrupt, &parts),
            ("delay-ms", impair.delay_ms, &times),
            ("jitter-ms", impair.jitter_ms, &times),
        ] {
            self.require(range.contains(&value), At::Entry("port", index, &["impair", key]), || {
                let name = &*port.name;
                format!(
                    "port {name:?}: impair.{key} is {value}: impair takes parts from 0 to 1 and times from 0 to 60000 ms"
                )
            })?;
        }
        let jitter = At::Entry("port", index, &["impair", "jitter-ms"]);
        self.require(impair.jitter_ms <= impair.delay_ms, jitter, || {
            format!(
                "port {:?}: impair.jitter-ms goes up to delay-ms: the delay is delay-ms plus or minus it",
                &*port.name
            )
        })
    }

    /// A device is one port.
    fn devices(&self, config: &Config) -> Checked {
        let mut seen = HashMap::new();
        for (index, port) in config.port.iter().enumerate() {
            // Sub-interfaces share the device of a port.
            let Some(device) = port.device.as_deref().filter(|_| port.vlan.is_none()) else { continue };
            if let Some(other) = seen.insert(device, &*port.name) {
                return Err(self.error(
                    At::Entry("port", index, &["device"]),
                    format!(
                        "ports {other:?} and {:?} name the same device: a device is one port",
                        &*port.name
                    ),
                ));
            }
        }
        Ok(())
    }

    fn routes(&self, config: &Config) -> Checked {
        let mut seen = HashSet::new();
        config.route.iter().try_for_each(|route| {
            self.route(config, route)?;
            self.require(seen.insert(route.to.value()), route.to.span(), || {
                format!(
                    "a second route to {}: a route with several next hops is one, with a list",
                    route.to.value()
                )
            })
        })
    }

    fn route(&self, config: &Config, route: &Route) -> Checked {
        let span = || route.to.span();
        if let Some(port) = &route.port {
            self.known("port", port, config.port.iter().map(|port| &*port.name))?;
        }
        route.check().map_err(|problem| self.error(span(), problem))
    }

    fn gate(&self, gate: &Gate) -> Checked {
        let (name, span) = (&*gate.name, Some(gate.name.span()));
        match (&gate.position, is_default(name)) {
            (None, false) => Err(self.error(
                span,
                format!("gate {name:?} is none of those that are there from the start: say its position"),
            )),
            (Some(_), true) => {
                Err(self
                    .error(span, format!("gate {name:?} is there from the start: leave its position out")))
            }
            (None, true) => self.require(gate.table != GateTable::Auto, span, || {
                format!("gate {name:?} is there from the start: say its table, or leave it out")
            }),
            (Some(_), false) => Ok(()),
        }
    }

    fn bindings(&self, config: &Config) -> Checked {
        config.bind.iter().try_for_each(|bind| {
            self.known("instance", &bind.instance, config.instance.iter().map(|instance| &*instance.name))?;
            self.known("gate", &bind.gate, gates(config))?;
            self.incoming(config, &bind.filter)
        })
    }

    /// Checks the port that a filter's packets come in by.
    fn incoming(&self, config: &Config, filter: &Text<millrace_classify::Filter>) -> Checked {
        let Some(port) = filter.value().incoming() else { return Ok(()) };
        let known = config.port.iter().map(|port| &*port.name);
        self.known_at(filter.span(), "port", port, known).map_err(|error| ConfigError {
            problem: format!("filter {:?}: {}", filter.written(), error.problem),
            ..error
        })
    }

    fn filter(&self, config: &Config, filter: &Filter) -> Checked {
        self.require(!filter.r#match.written().trim().is_empty(), filter.r#match.span(), || {
            "an empty filter: write \"*\" if all packets are meant".to_owned()
        })?;
        self.incoming(config, &filter.r#match)?;
        let (span, action) = (|| filter.action.span(), filter.action.value());
        let ports = || config.port.iter().map(|port| &*port.name);
        action.ways().iter().try_for_each(|way| self.known_at(span(), "port", &way.port, ports()))?;
        if let Some(instance) = action.instance() {
            let known = config.instance.iter().map(|instance| &*instance.name);
            self.known_at(span(), "instance", instance, known)?;
        }
        match &filter.gate {
            Some(gate) => self.known("gate", gate, gates(config)),
            None => self.require(action.default_gate().is_some(), span(), || {
                format!(
                    "a filter with the action {:?} says its gate: there are {}",
                    filter.action.written(),
                    gates(config).collect::<Vec<_>>().join(", ")
                )
            }),
        }
    }

    fn place(&self, config: &Config, place: &Placement) -> Checked {
        self.require(
            config.place.len() <= MOST_PLACEMENTS,
            At::Entry("place", MOST_PLACEMENTS, &[]),
            || format!("{} placements: there can be {MOST_PLACEMENTS}", config.place.len()),
        )?;
        self.require(!place.flow.written().trim().is_empty(), place.flow.span(), || {
            "an empty filter: write \"*\" if all flows are meant".to_owned()
        })?;
        let same = config.place.iter().filter(|other| other.flow.value() == place.flow.value()).count();
        self.require(same == 1, place.flow.span(), || {
            format!("{:?} is placed twice: the first would count", place.flow.written())
        })?;
        let wrong = |error: ConfigError| ConfigError {
            problem: format!("placement {:?}: {}", place.flow.written(), error.problem),
            ..error
        };
        match place.flow.value() {
            Placeable::Flows(filter) => {
                let Some(port) = filter.incoming() else { return Ok(()) };
                let known = config.port.iter().map(|port| &*port.name);
                self.known_at(place.flow.span(), "port", port, known).map_err(wrong)
            }
            Placeable::Instance(name) => {
                let known = config.instance.iter().map(|instance| &*instance.name);
                self.known_at(place.flow.span(), "instance", name, known).map_err(wrong)
            }
        }
    }

    /// Whoever binds says what happens when the router dies, for the kernel knows nothing of it.
    fn death(&self, config: &Config) -> Checked {
        let binding = config.bind.first().map(|bind| ("bindings need", Some(bind.instance.span())));
        let filter = config.filter.first().map(|filter| ("filters need", filter.r#match.span()));
        let Some((need, span)) = binding.or(filter) else { return Ok(()) };
        match config.silent_on_death().filter(|_| config.router.on_death.is_none()) {
            Some(port) => Err(self.error(
                span,
                format!(
                    "{need} a word on what happens to port {:?} when the router dies, for the kernel knows none \
                     of them: say on-death = \"kernel\" or \"drop\" in [router] or at the port",
                    &*port.name
                ),
            )),
            None => Ok(()),
        }
    }
}

impl Route {
    /// Checks that the route says what it needs to, and nothing that contradicts it.
    ///
    /// # Errors
    /// What is wrong, and what would be right.
    pub fn check(&self) -> Result<(), String> {
        let (to, written) = (self.to.value(), self.to.written());
        if to.trunc() != *to {
            return Err(format!("route {written:?} has host bits: the prefix is {}", to.trunc()));
        }
        if self.kind == RouteKind::Forward && self.via.is_empty() && self.port.is_none() {
            return Err(format!(
                "route {written:?} leads nowhere: name its next hop with `via`, or its `port`"
            ));
        }
        if self.kind != RouteKind::Forward
            && let Some(said) = self.via.first().map(|_| "via").or(self.port.as_ref().map(|_| "port"))
        {
            let kind = self.kind.name();
            return Err(format!("route {written:?}: one of kind {kind} leads nowhere: leave `{said}` out"));
        }
        if let Some(via) = self.via.iter().find(|via| is_link_local(via)).filter(|_| self.port.is_none()) {
            return Err(format!(
                "route {written:?}: next hop {via} is a link-local address, which is at every port: name the `port`"
            ));
        }
        if to.addr().is_ipv6() && self.via.iter().any(|via| via.is_ipv4()) {
            return Err(format!("route {written:?}: an IPv6 prefix needs IPv6 next hops"));
        }
        Ok(())
    }
}

fn is_link_local(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

impl Config {
    /// A port of the kernel that doesn't itself say what happens to its packets when the router has died.
    pub(crate) fn silent_on_death(&self) -> Option<&Port> {
        let device = |port: &&Port| port.kind == PortKind::Device && port.vlan.is_none();
        self.port.iter().filter(device).find(|port| port.on_death.is_none())
    }

    /// What happens to the packets of `port` when the router has died.
    pub fn on_death(&self, port: &Port) -> OnDeath {
        port.on_death.or(self.router.on_death).unwrap_or(OnDeath::Kernel)
    }
}
