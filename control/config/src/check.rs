//! Checks across the tables of a configuration.

mod port_files;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::ops::Range;

use millrace_classify::FilterExpression;
use millrace_plugin_abi::DEFAULT_GATES;
use millrace_units::{count, here, remedy};

use crate::api::Api;
use crate::error::Found;
use crate::origin::{LeftOut, Step, WrongParts};
use crate::schema::{
    Bind, Config, Filter, Gate, GateTable, OnDeath, Placeable, Placement, Plugins, Port, PortKind, Route,
    RouteKind,
};
use crate::values::{Named, Text};

struct Checker<'a> {
    config: &'a Config,
    left_out: &'a LeftOut,
    found: RefCell<&'a mut Found>,
    /// Table, or entry of a list, that is being checked.
    place: Cell<Option<(&'static str, Option<usize>)>>,
    wrong: RefCell<WrongParts>,
}

/// Problem and its byte range in the file.
type Wrong = (Option<Range<usize>>, String);

type Checked = Result<(), Wrong>;

/// Location of a problem in the file.
enum At<'a> {
    /// This byte range, if it is known.
    Span(Option<Range<usize>>),
    /// Value of this key of a table.
    Key(&'a str, &'a str),
    /// Value at a path of keys in a list entry, also in a table of it: `port`, 0, `impair`, `loss`.
    Entry(&'a str, usize, &'a [&'a str]),
}

impl From<Option<Range<usize>>> for At<'_> {
    fn from(span: Option<Range<usize>>) -> Self {
        Self::Span(span)
    }
}

/// Checks the tables against each other and notes one problem per entry. Skips the parts in `left_out`.
/// Returns the parts with problems.
pub(crate) fn check(config: &Config, left_out: &LeftOut, found: &mut Found) -> WrongParts {
    let found = RefCell::new(found);
    let checker = Checker { config, left_out, found, place: Cell::default(), wrong: RefCell::default() };
    checker.at("router", None).router();
    checker.at("control-plane", None).control_plane();
    checker.at("plugins", None).plugins(&config.plugins);
    checker.at("api", None).api(&config.api);
    checker.unique("port", config.port.iter().map(|port| &port.name));
    checker.unique("instance", config.instance.iter().map(|instance| &instance.name));
    checker.unique("gate", config.gate.iter().map(|gate| &gate.name));
    checker.files();
    config
        .port
        .iter()
        .enumerate()
        .for_each(|(index, port)| checker.note(checker.at("port", Some(index)).port(index, port)));
    checker.devices();
    checker.port_files();
    checker.routes();
    checker.each("neighbour", &config.neighbour, |neighbour| checker.known("port", &neighbour.port));
    checker.places();
    checker.each("gate", &config.gate, |gate| checker.gate(gate));
    checker.each("bind", &config.bind, |bind| checker.binding(bind));
    checker.each("filter", &config.filter, |filter| checker.filter(filter));
    // This problem belongs to no single entry.
    checker.place.set(None);
    checker.note(checker.death());
    checker.wrong.into_inner()
}

/// Returns the names of all gates.
fn gates(config: &Config) -> impl Iterator<Item = &str> {
    let own = config.gate.iter().map(|gate| &*gate.name).filter(|name| !is_default(name));
    DEFAULT_GATES.iter().map(|(name, _)| *name).chain(own)
}

/// Whether the gate is one of the default gates.
fn is_default(gate: &str) -> bool {
    DEFAULT_GATES.iter().any(|(name, _)| *name == gate)
}

/// Maximum number of `[[place]]` entries in a configuration; workers compare a flow with each in turn.
pub const MOST_PLACEMENTS: usize = 256;

/// Maximum number of comparisons of all `[[place]]` entries together, for each flow that may be offloaded.
pub const MOST_PLACED_COMPARISONS: usize = 4096;

impl Checker<'_> {
    /// Assigns the problems noted from now on to this table, or to this entry of a list.
    fn at(&self, part: &'static str, entry: Option<usize>) -> &Self {
        self.place.set(Some((part, entry)));
        self
    }

    /// Checks each entry of a list.
    fn each<T>(&self, list: &'static str, entries: &[T], check: impl Fn(&T) -> Checked) {
        for (index, entry) in entries.iter().enumerate() {
            self.at(list, Some(index)).note(check(entry));
        }
    }

    /// Returns the byte range of a location. It is computed only when a problem is found.
    fn span(&self, at: At<'_>) -> Option<Range<usize>> {
        let origin = &self.config.origin;
        match at {
            At::Span(span) => span,
            At::Key(table, key) => origin.span(&[Step::Key(table), Step::Key(key)]),
            At::Entry(list, index, keys) => {
                let steps = [Step::Key(list), Step::Entry(self.left_out.index(list, index))].into_iter();
                origin.span(&steps.chain(keys.iter().copied().map(Step::Key)).collect::<Vec<_>>())
            }
        }
    }

    /// Records the problem of a failed check.
    fn note(&self, checked: Checked) {
        if let Err((span, problem)) = checked {
            self.wrong.borrow_mut().extend(self.place.get());
            self.found.borrow_mut().note(span, problem);
        }
    }

    fn require<'a>(&self, holds: bool, at: impl Into<At<'a>>, problem: impl FnOnce() -> String) -> Checked {
        if holds { Ok(()) } else { Err((self.span(at.into()), problem())) }
    }

    /// Notes a problem with a value of a table if `holds` is false.
    fn value(&self, holds: bool, table: &str, key: &str, problem: impl FnOnce() -> String) {
        self.note(self.require(holds, At::Key(table, key), problem));
    }

    fn api(&self, api: &Api) {
        for (has, lacks, there) in [
            ("certificate", "key", api.certificate.is_some() && api.key.is_none()),
            ("key", "certificate", api.key.is_some() && api.certificate.is_none()),
        ] {
            self.value(!there || self.left_out.is_wrong("api"), "api", has, || {
                format!("api.{has} is set, but api.{lacks} is not: set both, or neither")
            });
        }
        let files = 1..=100;
        self.value(files.contains(&api.audit_files), "api", "audit-files", || {
            format!("api.audit-files = {} is out of range: give 1 to 100", api.audit_files)
        });
        let wrong = api.listen.iter().find(|address| address.port() == 0);
        self.value(wrong.is_none(), "api", "listen", || {
            "api.listen has an address with port 0: give a port, as in \"0.0.0.0:8443\"".to_owned()
        });
        let twice = api.listen.iter().enumerate().find(|(place, one)| api.listen[..*place].contains(one));
        self.value(twice.is_none(), "api", "listen", || {
            format!("api.listen has {} twice", twice.map(|(_, one)| one.to_string()).unwrap_or_default())
        });
    }

    fn plugins(&self, plugins: &Plugins) {
        let faults = plugins.faults;
        self.value((1..=1000).contains(&faults), "plugins", "faults", || {
            format!("plugins.faults = {faults} is out of range: give 1 to 1000")
        });
    }

    fn files(&self) {
        for (index, plugin) in self.config.plugin.iter().enumerate() {
            self.at("plugin", Some(index));
            let at = At::Entry("plugin", index, &["file"]);
            self.note(self.require(plugin.file.is_absolute(), at, || {
                format!("plugin file {}: give an absolute path, which begins with /", plugin.file.display())
            }));
        }
    }

    fn router(&self) {
        let router = &self.config.router;
        for (key, value, range, beside) in [
            ("frames", router.frames.into(), 1024..=1 << 22, ""),
            ("workers", router.workers as u64, 1..=16, ""),
            ("icmp-dscp", router.icmp_dscp.into(), 0..=63, ""),
            ("new-flows", router.new_flows.into(), 1..=256, ""),
            ("plugin-weight", router.plugin_weight.into(), 1..=256, " packets"),
            ("driver-flows", router.driver_flows.into(), 0..=4_194_304, ""),
        ] {
            self.value(range.contains(&value), "router", key, || {
                format!(
                    "router.{key} = {value} is out of range: give {} to {}{beside}",
                    range.start(),
                    range.end()
                )
            });
        }
        let flows = router.flows_max;
        self.value(flows == 0 || (1024..=1 << 24).contains(&flows), "router", "flows-max", || {
            format!("router.flows-max = {flows} is out of range: 1024 to 16777216, or 0 for no flow table")
        });
        let key = if router.icmp_rate == 0 { "icmp-rate" } else { "icmp-burst" };
        self.value(router.icmp_rate > 0 && router.icmp_burst > 0, "router", key, || {
            "router.icmp-rate and router.icmp-burst must be 1 or more: the router must be able to send ICMP \
             errors"
                .into()
        });
    }

    fn control_plane(&self) {
        for (key, rate) in self.config.control_plane.rates() {
            self.value((1..=10_000_000).contains(&rate), "control-plane", key, || {
                format!("control-plane.{key} = {rate} is out of range: give 1 to 10000000 packets per second")
            });
        }
    }

    fn unique<'a>(&self, noun: &'static str, names: impl Iterator<Item = &'a Named>) {
        let mut seen = HashSet::new();
        for (index, name) in names.enumerate() {
            self.at(noun, Some(index));
            let plain = !name.is_empty()
                && name.len() <= 63
                && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c));
            self.note(self.require(plain, Some(name.span()), || {
                format!("invalid {noun} name {:?}: give 1 to 63 ASCII letters, digits or - _ . :", &**name)
            }));
            self.note(self.require(seen.insert(&**name), Some(name.span()), || {
                format!("{noun} name {:?} is used twice: give each {noun} its own name", &**name)
            }));
        }
    }

    /// Returns the names of all entries of a noun, including entries with problems.
    fn names<'c>(&'c self, noun: &'c str) -> Vec<&'c str> {
        let config = self.config;
        let mut names: Vec<&str> = match noun {
            "port" => config.port.iter().map(|port| &*port.name).collect(),
            "instance" => config.instance.iter().map(|instance| &*instance.name).collect(),
            _ => gates(config).collect(),
        };
        names.extend(self.left_out.names(noun));
        names
    }

    fn known(&self, noun: &str, name: &Named) -> Checked {
        self.known_at(Some(name.span()), noun, name)
    }

    fn known_at(&self, span: Option<Range<usize>>, noun: &str, name: &str) -> Checked {
        let known = self.names(noun);
        self.require(known.contains(&name), span, || {
            format!("no {noun} is named {name:?}{}", remedy(noun, name, known.iter().copied()))
        })
    }

    fn port(&self, index: usize, port: &Port) -> Checked {
        let (span, name) = (Some(port.name.span()), &*port.name);
        let key = |key: &'static [&'static str]| At::Entry("port", index, key);
        let own = port.kind != PortKind::Device || port.vlan.is_some();
        self.require(port.device.is_some() == (port.kind == PortKind::Device), span.clone(), || match port
            .kind
        {
            PortKind::Device => {
                format!("port {name:?} has no device: set `device`, or set `kind` to tap, pcap or memory")
            }
            _ => {
                format!("port {name:?} has a `device`, but its `kind` uses none: remove one of them")
            }
        })?;
        self.require(port.vlan.is_none_or(|vlan| vlan.is_valid()), key(&["vlan"]), || {
            format!("port {name:?}: VLAN id is out of range: give 1 to 4094")
        })?;
        self.require(port.kind != PortKind::Tap || port.mac.is_none(), key(&["mac"]), || {
            format!("port {name:?}: the MAC address of a tap port is derived from its name: remove `mac`")
        })?;
        self.require(own || port.address.is_empty(), key(&["address"]), || {
            format!("port {name:?}: the kernel holds the addresses of its devices: use `ip address` instead")
        })?;
        let said: &[&str] = if port.mac.is_some() { &["mac"] } else { &["mtu"] };
        self.require(own || (port.mac.is_none() && port.mtu.is_none()), key(said), || {
            format!("port {name:?}: the kernel holds MAC address and MTU of its devices: use `ip link`")
        })?;
        let least = if port.address.iter().any(|net| net.value().addr().is_ipv6()) { 1280 } else { 68 };
        self.require(port.mtu.is_none_or(|mtu| mtu >= least), key(&["mtu"]), || {
            format!("port {name:?}: mtu is too small: give at least {least} (IPv4 needs 68, IPv6 1280)")
        })?;
        let files = port.input.is_some() || port.output.is_some();
        self.require(files == (port.kind == PortKind::Pcap), span, || {
            format!("port {name:?}: kind = \"pcap\" needs `input` or `output`, and other kinds take neither")
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
                    "port {name:?}: impair.{key} = {value}: a probability is 0 to 1, a time 0 to 60000 ms"
                )
            })?;
        }
        let jitter = At::Entry("port", index, &["impair", "jitter-ms"]);
        self.require(impair.jitter_ms <= impair.delay_ms, jitter, || {
            format!(
                "port {:?}: impair.jitter-ms exceeds impair.delay-ms: give at most the value of delay-ms",
                &*port.name
            )
        })
    }

    /// Checks that no two ports use the same device.
    fn devices(&self) {
        let mut seen = HashMap::new();
        for (index, port) in self.config.port.iter().enumerate() {
            // Sub-interfaces share the device of a port.
            let Some(device) = port.device.as_deref().filter(|_| port.vlan.is_none()) else { continue };
            if let Some(other) = seen.insert(device, &*port.name) {
                self.at("port", Some(index));
                let name = &*port.name;
                self.note(self.require(false, At::Entry("port", index, &["device"]), || {
                    format!("ports {other:?} and {name:?} use the same device: change one, or set its `vlan`")
                }));
            }
        }
    }

    fn routes(&self) {
        let mut seen = HashSet::new();
        for (index, route) in self.config.route.iter().enumerate() {
            self.at("route", Some(index)).note(self.route(route));
            self.note(self.require(seen.insert(route.to.value()), route.to.span(), || {
                format!(
                    "route {} is given twice: for several next hops, write one route with a list in `via`",
                    route.to.value()
                )
            }));
        }
    }

    fn route(&self, route: &Route) -> Checked {
        route.port.as_ref().map_or(Ok(()), |port| self.known("port", port))?;
        route.check().map_err(|problem| (route.to.span(), problem))
    }

    fn gate(&self, gate: &Gate) -> Checked {
        let (name, span) = (&*gate.name, Some(gate.name.span()));
        match (&gate.position, is_default(name)) {
            (None, false) => {
                Err((span, format!("gate {name:?} needs a `position`: early, route, late, queue or copy")))
            }
            (Some(_), true) => Err((span, format!("gate {name:?} is a default gate: remove its `position`"))),
            (None, true) => self.require(gate.table != GateTable::Auto, span, || {
                format!("gate {name:?} is a default gate: set its `table`, or remove this entry")
            }),
            (Some(_), false) => Ok(()),
        }
    }

    fn binding(&self, bind: &Bind) -> Checked {
        self.known("instance", &bind.instance)?;
        self.known("gate", &bind.gate)?;
        self.incoming(&bind.filter)
    }

    /// Checks that the incoming ports of a filter exist.
    fn incoming(&self, filter: &Text<FilterExpression>) -> Checked {
        let wrong = |(span, problem)| (span, format!("filter {:?}: {problem}", filter.written()));
        let ports = filter.value().alternatives().iter().filter_map(millrace_classify::Filter::incoming);
        self.incoming_at(filter.span(), ports).map_err(wrong)
    }

    fn incoming_at<'a>(
        &self,
        span: Option<Range<usize>>,
        mut ports: impl Iterator<Item = &'a str>,
    ) -> Checked {
        ports.try_for_each(|port| self.known_at(span.clone(), "port", port))
    }

    fn filter(&self, filter: &Filter) -> Checked {
        self.require(!filter.r#match.written().trim().is_empty(), filter.r#match.span(), || {
            "the filter is empty: to match all packets, write \"*\"".to_owned()
        })?;
        self.incoming(&filter.r#match)?;
        let (span, action) = (|| filter.action.span(), filter.action.value());
        action.ways().iter().try_for_each(|way| self.known_at(span(), "port", &way.port))?;
        if let Some(instance) = action.instance() {
            self.known_at(span(), "instance", instance)?;
        }
        match &filter.gate {
            Some(gate) => self.known("gate", gate),
            None => self.require(action.default_gate().is_some(), span(), || {
                let (action, gates) = (filter.action.written(), here("gate", self.names("gate")));
                format!("a filter with the action {action:?} needs a gate; {gates}")
            }),
        }
    }

    fn places(&self) {
        let places = &self.config.place;
        self.at("place", Some(MOST_PLACEMENTS));
        let beyond = At::Entry("place", MOST_PLACEMENTS, &[]);
        self.note(self.require(places.len() <= MOST_PLACEMENTS, beyond, || {
            format!("{} exceed the limit {MOST_PLACEMENTS}: remove some", count(places.len(), "placement"))
        }));
        let mut comparisons = 0;
        for (index, place) in places.iter().enumerate().take(MOST_PLACEMENTS) {
            let before = comparisons;
            comparisons += place.flow.value().comparisons();
            let is_full = comparisons > MOST_PLACED_COMPARISONS && before <= MOST_PLACED_COMPARISONS;
            let checks = self.at("place", Some(index));
            checks.note(self.place(place, &places[..index]));
            checks.note(self.require(!is_full, place.flow.span(), || {
                format!(
                    "this placement and the ones before it take {} per flow, and the limit is \
                     {MOST_PLACED_COMPARISONS}: write wider prefixes or ranges, or fewer `not`",
                    count(comparisons, "comparison")
                )
            }));
        }
    }

    fn place(&self, place: &Placement, before: &[Placement]) -> Checked {
        let (span, written) = (|| place.flow.span(), place.flow.written());
        self.require(!written.trim().is_empty(), span(), || {
            "the filter is empty: to match all flows, write \"*\"".to_owned()
        })?;
        let same = before.iter().any(|other| other.flow.value() == place.flow.value());
        self.require(!same, span(), || format!("placement {written:?} is given twice: remove one"))?;
        let known = match place.flow.value() {
            Placeable::Flows(filter) => self.incoming_at(span(), filter.incoming()),
            Placeable::Instance(name) => self.known_at(span(), "instance", name),
        };
        known.map_err(|(span, problem)| (span, format!("placement {written:?}: {problem}")))
    }

    /// Checks that a configuration with bindings or filters sets `on-death`, as the kernel ignores both.
    fn death(&self) -> Checked {
        let config = self.config;
        let binding = config.bind.first().map(|bind| ("bindings need", Some(bind.instance.span())));
        let filter = config.filter.first().map(|filter| ("filters need", filter.r#match.span()));
        let Some((need, span)) = binding.or(filter) else { return Ok(()) };
        let is_said = config.router.on_death.is_some() || self.left_out.is_wrong("router");
        match config.silent_on_death().filter(|_| !is_said) {
            Some(port) => Err((
                span,
                format!(
                    "{need} on-death for port {:?}, because the kernel ignores them after the router's death: set \
                     on-death = \"kernel\" or \"drop\" in [router] or at the port",
                    &*port.name
                ),
            )),
            None => Ok(()),
        }
    }
}

impl Route {
    /// Checks that the route is complete and consistent.
    ///
    /// # Errors
    /// The problem and its remedy.
    pub fn check(&self) -> Result<(), String> {
        let (to, written) = (self.to.value(), self.to.written());
        if to.trunc() != *to {
            return Err(format!("route {written:?} has host bits set: write {}", to.trunc()));
        }
        if self.kind == RouteKind::Forward && self.via.is_empty() && self.port.is_none() {
            return Err(format!(
                "route {written:?} has no next hop and no port: name its next hop with `via`, or its `port`"
            ));
        }
        if self.kind != RouteKind::Forward
            && let Some(said) = self.via.first().map(|_| "via").or(self.port.as_ref().map(|_| "port"))
        {
            let kind = self.kind.name();
            return Err(format!("route {written:?}: kind {kind} takes no next hop or port: remove `{said}`"));
        }
        if let Some(via) = self.via.iter().find(|via| is_link_local(via)).filter(|_| self.port.is_none()) {
            return Err(format!(
                "route {written:?}: next hop {via} is link-local, so the route needs its port: set `port`"
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
    /// Returns the first kernel-device port without its own `on-death`; sub-interfaces don't count.
    pub(crate) fn silent_on_death(&self) -> Option<&Port> {
        let device = |port: &&Port| port.kind == PortKind::Device && port.vlan.is_none();
        self.port.iter().filter(device).find(|port| port.on_death.is_none())
    }

    /// Returns the action on packets of `port` when the router dies.
    pub fn on_death(&self, port: &Port) -> OnDeath {
        port.on_death.or(self.router.on_death).unwrap_or(OnDeath::Kernel)
    }
}
