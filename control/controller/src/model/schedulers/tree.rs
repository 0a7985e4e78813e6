//! Checks planned scheduler trees. Builds each tree as a trial that holds no packets, so that an error can
//! name the invalid part.

use std::collections::HashMap;

use millrace_config::{Bits, Config, Nodes, QueueSize, Scheduler, SchedulerKind, SchedulerNode, Step};
use millrace_pipeline::ScheduleChange;
use millrace_schedule::{BufferLimits, FlowNumber, Item, LinkScheduler, NodeId, Rate, ScheduleError};
use millrace_units::{BitRate, Instant, QueueId};

use crate::ControlError;
use crate::model::schedulers::changes::{Addition, above, link_rate, most_queues};
use crate::model::schedulers::{Schedulers, default_leaf, find};

/// Error text for a flow with a quantum of 0.
pub(crate) const NO_QUANTUM: &str = "its quantum is 0, so the flow could never send: give 1 to 1073741824 bytes, or leave out the quantum for the default of all flows";

/// Packet type of a trial tree, which never holds a packet.
pub(crate) struct Nothing;

impl Item for Nothing {
    fn length(&self) -> u32 {
        0
    }

    fn mark_congestion(&mut self) -> bool {
        false
    }
}

/// Invalid part of a scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    Whole,
    /// Setting of the scheduler as a whole.
    Setting(&'static str),
    /// Node by its index in the list, and the node's invalid setting. The setting is an empty string if
    /// several settings cause the error.
    Node(usize, &'static str),
    /// Flow settings by their index in the list.
    Flow(usize),
}

/// Error of a scheduler whose tree can't be built.
#[derive(Debug)]
pub(crate) struct Unplanned {
    pub part: Part,
    pub error: ControlError,
}

impl From<Unplanned> for ControlError {
    fn from(unplanned: Unplanned) -> Self {
        unplanned.error
    }
}

impl Unplanned {
    /// Returns the error with its position in the configuration file. `port` is the name of the scheduler's
    /// port.
    pub fn placed(self, config: &Config, port: &str) -> ControlError {
        let Some(place) = config.port.iter().position(|own| &*own.name == port) else { return self.error };
        let mut path = vec![Step::Key("port"), Step::Entry(place), Step::Key("scheduler")];
        match self.part {
            Part::Whole => {}
            Part::Setting(key) => path.push(Step::Key(key)),
            Part::Flow(index) => path.extend([Step::Key("flow"), Step::Entry(index)]),
            Part::Node(index, key) => path.extend([Step::Key("node"), Step::Entry(index), Step::Key(key)]),
        }
        config.error_at(&path, self.error.message()).map_or(self.error, ControlError::Config)
    }
}

fn at_node(index: usize, key: &'static str) -> impl Fn(ControlError) -> Unplanned {
    move |error| Unplanned { part: Part::Node(index, key), error }
}

impl Schedulers {
    /// Checks that the nodes form a tree, and that all guarantees can be kept.
    pub fn check(&self, scheduler: &Scheduler) -> Result<(), Unplanned> {
        if scheduler.node.is_empty() {
            let needed =
                "the scheduler has no nodes: add one, as in node = [{ name = \"all\", kind = \"fifo\" }]";
            return Err(Unplanned { part: Part::Whole, error: ControlError::invalid(needed) });
        }
        let nodes = Nodes::of(scheduler);
        for (index, node) in scheduler.node.iter().enumerate() {
            check_place(&nodes, index, node)?;
        }
        check_reserved(scheduler)?;
        let mut tree = self.build(scheduler, scheduler.rate)?;
        self.add_flows(scheduler, &mut tree)?;
        default_leaf(scheduler).map_err(|error| Unplanned { part: Part::Setting("default"), error })?;
        Ok(())
    }

    /// Builds the trial tree for a link of this rate. If all guarantees can be kept, adds them up only once.
    /// Otherwise searches for the first node whose guarantee can't be kept.
    pub fn build(
        &self,
        scheduler: &Scheduler,
        rate: Option<Bits>,
    ) -> Result<LinkScheduler<Nothing>, Unplanned> {
        let nodes = Nodes::of(scheduler);
        let count = scheduler.node.len();
        let all = match self.grow(scheduler, &nodes, rate, count) {
            Ok(tree) => return Ok(tree),
            Err(all) => all,
        };
        let (mut right, mut wrong) = (0, count);
        while wrong - right > 1 {
            let middle = right.midpoint(wrong);
            match self.grow(scheduler, &nodes, rate, middle) {
                Ok(_) => right = middle,
                Err(_) => wrong = middle,
            }
        }
        let mut tree = self.grow(scheduler, &nodes, rate, right)?;
        self.plant(scheduler, &nodes, right, &mut tree)?;
        Err(all)
    }

    /// Returns the trial tree of the first `count` nodes of a scheduler.
    fn grow(
        &self,
        scheduler: &Scheduler,
        nodes: &Nodes<'_>,
        rate: Option<Bits>,
        count: usize,
    ) -> Result<LinkScheduler<Nothing>, Unplanned> {
        let of_port = |key| move |error| Unplanned { part: Part::Setting(key), error: self.refusal(error) };
        let (no_link, no_overhead) = Default::default();
        let mut tree = LinkScheduler::<Nothing>::new(no_link, no_overhead, BufferLimits::default())
            .map_err(of_port("rate"))?;
        tree.edit().set_most_queues(most_queues(scheduler)).map_err(of_port("queues"))?;
        tree.set_link(link_rate(rate), Instant::ZERO).map_err(of_port("rate"))?;
        tree.defer_promises(true);
        for index in 0..count {
            self.plant(scheduler, nodes, index, &mut tree)?;
        }
        tree.defer_promises(false);
        // With all nodes present, the sum of their guarantees is checked against the rate of the link.
        let beyond = |error: ScheduleError| {
            let named = error.node().and_then(|node| nodes.place(self.name(QueueId(node.0 as u16))));
            let part = named.map_or(Part::Setting("rate"), |index| Part::Node(index, ""));
            Unplanned { part, error: self.refusal(error) }
        };
        tree.set_link(link_rate(rate), Instant::ZERO).map_err(beyond)?;
        Ok(tree)
    }

    /// Adds a node to a trial tree that already has all earlier nodes of the list.
    fn plant(
        &self,
        scheduler: &Scheduler,
        nodes: &Nodes<'_>,
        index: usize,
        tree: &mut LinkScheduler<Nothing>,
    ) -> Result<(), Unplanned> {
        let addition = Addition::of(self, nodes, &scheduler.node[index], scheduler.rate);
        if let ScheduleChange::Add { node, parent, share, kind } = addition.map_err(at_node(index, ""))?.add()
        {
            let id = |node: QueueId| NodeId(node.0.into());
            tree.edit()
                .add(id(node), parent.map(id), share, &kind, Instant::ZERO)
                .map_err(|error| at_node(index, "")(self.refusal(error)))?;
        }
        Ok(())
    }

    /// Adds the settings of flows to a trial tree.
    fn add_flows(&self, scheduler: &Scheduler, tree: &mut LinkScheduler<Nothing>) -> Result<(), Unplanned> {
        let mut before = HashMap::new();
        for (index, said) in scheduler.flow.iter().enumerate() {
            let at_flow = |problem: String| {
                let error = ControlError::invalid(format!("flow {:?}: {problem}", said.flow));
                Unplanned { part: Part::Flow(index), error }
            };
            find(scheduler, &said.queue).map_err(|error| at_flow(error.to_string()))?;
            let (quantum, threshold) =
                (said.quantum.map(QueueSize::bytes_u32), said.threshold.map(QueueSize::bytes_u32));
            if quantum == Some(0) {
                return Err(at_flow(NO_QUANTUM.to_owned()));
            }
            if let Some(other) = before.insert(said.of_queue(), &said.flow) {
                return Err(at_flow(same_queue(other)));
            }
            let leaf = NodeId(self.known(&said.queue).unwrap_or_default().0.into());
            // Any number that is unique among the flows is valid.
            let flow = FlowNumber(index as u32);
            if said.rate.is_some() && said.quantum.is_some() {
                return Err(at_flow("rate and quantum exclude each other: set only one of them".to_owned()));
            }
            let set = |tree: &mut LinkScheduler<Nothing>| {
                let mut tree = tree.edit();
                let mut flows = tree.flows(leaf)?;
                if let Some(Bits(rate)) = said.rate {
                    flows.reserve(flow, Rate(rate))?;
                }
                flows.set(flow, quantum, Some(threshold))
            };
            set(tree).map_err(|error| at_flow(self.refusal(error).to_string()))?;
        }
        Ok(())
    }
}

/// Returns the error text for a flow that shares its queue with `other`, another flow that has settings.
pub(crate) fn same_queue(other: &str) -> String {
    format!(
        "it shares its queue with {other:?}: a queue holds all packets of one source, destination, protocol and ports, from \
         any input port; name the flow {other:?}, or reset the settings of that flow first"
    )
}

/// Checks that each leaf with reserved flows has a configured rate, of which these flows reserve parts.
fn check_reserved(scheduler: &Scheduler) -> Result<(), Unplanned> {
    let mut reserved = HashMap::new();
    for said in &scheduler.flow {
        let (flows, sum) = reserved.entry(&*said.queue).or_insert((0_u32, 0_u64));
        if let Some(Bits(rate)) = said.rate {
            (*flows, *sum) = (*flows + 1, sum.saturating_add(rate));
        }
    }
    for (index, node) in scheduler.node.iter().enumerate().filter(|(_, node)| node.rate.is_none()) {
        let of_flows = reserved.get(&*node.name).filter(|_| node.kind == SchedulerKind::FlowQueues);
        let Some((flows, sum)) = of_flows.filter(|(flows, _)| *flows > 0) else { continue };
        let of_its =
            if *flows == 1 { "one of its flows".to_owned() } else { format!("{flows} of its flows") };
        return Err(at_node(index, "")(ControlError::invalid(format!(
            "node {:?}: it needs a rate above {}, which is reserved for {of_its}: set such a rate, or remove the reservations \
             first",
            node.name,
            BitRate(*sum as f64)
        ))));
    }
    Ok(())
}

/// Checks that a node has a unique name and a valid parent.
fn check_place(nodes: &Nodes<'_>, index: usize, node: &SchedulerNode) -> Result<(), Unplanned> {
    if nodes.place(&node.name) != Some(index) {
        let error = ControlError::conflict(format!("node {:?}: name already in use", node.name));
        return Err(at_node(index, "name")(error));
    }
    let Some(under) = &node.under else {
        let Some(root) = nodes.iter().take(index).find(|other| other.under.is_none()) else { return Ok(()) };
        return Err(at_node(index, "")(ControlError::invalid(format!(
            "node {:?} has no parent, but {:?} is the root already: give its parent; to put it above {:?}, apply a \
             configuration that has both",
            node.name, root.name, root.name
        ))));
    };
    // All earlier nodes are valid, and the parent is one of them. So this node is not its own ancestor.
    if nodes.place(under).is_some_and(|place| place < index) {
        return Ok(());
    }
    if let Some(circle) = circle(nodes, node) {
        let problem = format!("node {:?}: it would be its own ancestor: {circle}", node.name);
        return Err(at_node(index, "under")(ControlError::invalid(problem)));
    }
    let named = |error| {
        ControlError::not_found(format!("node {:?}: its parent {under:?} is unknown: {error}", node.name))
    };
    above(nodes, node).map_err(named).map_err(at_node(index, "under"))?;
    let problem = format!(
        "node {:?}: its parent {under:?} comes later: list the parent before its children",
        node.name
    );
    Err(at_node(index, "under")(ControlError::invalid(problem)))
}

/// Returns the path from a node up to the same node; `None` if the node is not its own ancestor.
fn circle(nodes: &Nodes<'_>, node: &SchedulerNode) -> Option<String> {
    let mut way = format!("{:?}", node.name);
    let mut above = node;
    for _ in nodes.iter() {
        let under = above.under.as_ref()?;
        way = format!("{way} under {under:?}");
        above = nodes.get(under)?;
        if above.name == node.name {
            return Some(way);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the error of a 10 Mb/s scheduler with these nodes. The text of the nodes starts in line 8.
    fn refused(nodes: &str) -> String {
        let text = format!(
            "[[port]]\nname = \"wan\"\nkind = \"memory\"\n\n[port.scheduler]\nrate = \"10mbit\"\nnode = [\n{nodes}\n]\n"
        );
        let config = match Config::parse(&text, "f") {
            Ok(config) => config,
            Err(error) => return error.to_string(),
        };
        let error = crate::check(&config).unwrap_err();
        assert!(matches!(error, ControlError::Config(_)), "{error}");
        error.to_string()
    }

    const HFSC: &str = "{ name = \"top\", kind = \"hfsc\" },";
    const FAIR: &str = "{ name = \"top\", kind = \"deficit-round-robin\" },";

    /// Returns the text of a leaf with these settings.
    fn leaf(name: &str, rest: &str) -> String {
        format!("  {{ name = \"{name}\", kind = \"fifo\", {rest} }},")
    }

    /// Returns the text of a leaf under the node `top`, with these settings.
    fn under(rest: &str) -> String {
        leaf("x", &format!("under = \"top\", {rest}"))
    }

    /// Checks that each list of nodes is refused, and that the error contains all texts of the case.
    fn assert_refused(cases: &[(String, &[&str])]) {
        for (nodes, texts) in cases {
            let error = refused(nodes);
            for text in *texts {
                assert!(error.contains(text), "{text}: {error}");
            }
        }
    }

    #[test]
    fn a_file_with_curves_above_the_link_is_refused_with_the_arithmetic() {
        assert_refused(&[
            (
                format!("{HFSC}\n{}", under("real-time = \"20mbit\"")),
                &["f:9:3: ", "20.00 Mb/s", "10.00 Mb/s"],
            ),
            (
                format!("{HFSC}\n{}", under("link-sharing = \"1mbit 10ms 11mbit\"")),
                &["f:9:3: ", "link-sharing", "11.00 Mb/s", "10.00 Mb/s"],
            ),
            (
                format!(
                    "{HFSC}\n{}\n{}",
                    under("real-time = \"6mbit\""),
                    leaf("y", "under = \"top\", real-time = \"5mbit\"")
                ),
                &["f:10:3: ", "11.00 Mb/s in the long run", "the link allows", "10.00 Mb/s"],
            ),
            (
                format!(
                    "{HFSC}\n{}\n{}",
                    under("real-time = \"9mbit 10ms 1mbit\""),
                    leaf("y", "under = \"top\", real-time = \"2mbit\"")
                ),
                &["promise 13750 bytes in the first 10 ms", "12500 bytes"],
            ),
        ]);
    }

    #[test]
    fn a_file_with_a_node_in_a_wrong_place_is_refused_with_line_and_column() {
        assert_refused(&[
            (format!("{HFSC}\n{}", leaf("x", "under = \"x\"")), &["f:9:40: ", "\"x\" under \"x\""]),
            (
                format!("{HFSC}\n{}\n{}", leaf("x", "under = \"y\""), leaf("y", "under = \"x\"")),
                &["f:9:40: ", "its own ancestor: \"x\" under \"y\" under \"x\""],
            ),
            (
                format!("{HFSC}\n{}", leaf("x", "under = \"tpo\"")),
                &["f:9:40: ", "\"tpo\"", "did you mean \"top\""],
            ),
            (format!("{}\n{HFSC}", under("real-time = \"1mbit\"")), &["f:8:40: ", "\"top\" comes later"]),
            (format!("{HFSC}\n{HFSC}"), &["f:9:10: ", "node \"top\": name already in use"]),
            (format!("{HFSC}\n{}", leaf("x", "")), &["f:9:3: ", "\"top\" is the root already"]),
        ]);
    }

    #[test]
    fn a_file_with_settings_out_of_range_is_refused_with_the_range() {
        assert_refused(&[
            (
                format!("{FAIR}\n{}", under("quantum = \"0B\"")),
                &["f:9:3: ", "quantum must be 1 to 1073741824, not 0"],
            ),
            (format!("{FAIR}\n{}", under("quantum = -1")), &["f:9:", "-1"]),
            (format!("{FAIR}\n{}", under("level = 1")), &["f:9:3: ", "\"x\"", "needs a quantum"]),
            (
                "{ name = \"a\", kind = \"flow-queues\", quantum = \"0B\" }".into(),
                &["f:8:1: ", "quantum must be 1 to 1073741824, not 0"],
            ),
            (
                "{ name = \"a\", kind = \"token-bucket\", rate = \"1mbit\", burst = \"0B\" }".into(),
                &["f:8:1: ", "burst must be 1 to"],
            ),
            ("{ name = \"a\", kind = \"flow-queues\", queues = 9000 }".into(), &["f:8:1: ", "9000", "8192"]),
            (
                leaf("x", "manage = \"red\", minimum = \"9B\", maximum = \"9B\""),
                &["f:8:3: ", "minimum 9 >= maximum 9"],
            ),
            (leaf("x", "threshold = \"9B\", burst = \"9B\""), &["f:8:3: ", "burst does not apply to a fifo"]),
        ]);
    }

    #[test]
    fn flows_of_a_file_are_complete_and_checked_in_place() {
        let refused = |flows: &[&str]| {
            let flow = |flow: &&str| format!("{{ queue = \"a\", flow = \"{flow}\", rate = \"1mbit\" }}");
            let flows: Vec<String> = flows.iter().map(flow).collect();
            let leaf = "[[port]]\nname = \"wan\"\nkind = \"memory\"\n[port.scheduler]\nnode = [{ name = \"a\", kind = \"flow-queues\", rate = \"9mbit\" }]\n";
            let text = format!("{leaf}flow = [\n{}\n]\n", flows.join(",\n"));
            let error = Config::parse(&text, "f")
                .map_err(ControlError::from)
                .and_then(|config| crate::check(&config));
            error.unwrap_err().to_string()
        };
        let bare = refused(&["src 10.0.0.1 dst 10.0.0.2 in wan"]);
        for text in ["f:7:23: ", "`proto udp` or another protocol is missing", "one flow is written"] {
            assert!(bare.contains(text), "{bare}");
        }
        let one = "src 10.0.0.1 dst 10.0.0.2 proto udp sport 1 dport 5060";
        let twice = refused(&[&format!("{one} in wan"), &format!("in wan {}", one.replace("udp", "17"))]);
        for text in [
            "f:8:",
            "it shares its queue with \"src 10.0.0.1 dst 10.0.0.2 proto udp sport 1 dport 5060 in wan\"",
        ] {
            assert!(twice.contains(text), "{twice}");
        }
    }

    #[test]
    fn port_settings_are_checked_in_place() {
        let port = "[[port]]\nname = \"wan\"\nkind = \"memory\"\n[port.scheduler]\nnode = [{ name = \"a\", kind = \"fifo\" }]\n";
        for (setting, text) in [
            ("default = \"b\"", "f:6:11: scheduler of port \"wan\": no node is named \"b\""),
            (
                "queues = 65537",
                "f:6:10: scheduler of port \"wan\": port: queues must be 1 to 65536, not 65537",
            ),
            ("queues = 0", "f:6:10: "),
            ("rate = \"0\"", "f:6:8: "),
        ] {
            let config = Config::parse(&format!("{port}{setting}\n"), "f");
            let error = match &config {
                Ok(config) => crate::check(config).unwrap_err().to_string(),
                Err(error) => error.to_string(),
            };
            assert!(error.starts_with(text), "{error}");
        }
    }
}
