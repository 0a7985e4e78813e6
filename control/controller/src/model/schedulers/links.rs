//! Queues of principals: leaves with the rates that principals reserve at a port.
//!
//! Each principal with a `link` at the port has a leaf with a queue per flow. The leaf is below the root of the
//! scheduler if that is an `hfsc`; otherwise below a new root, which is an `hfsc` with the configured root as
//! another child. The configuration never contains these nodes.

use std::collections::BTreeMap;

use millrace_config::{
    Bits, CurveText, Principal, PromisedPart, QueueSize, Resource, Scheduler, SchedulerKind, SchedulerNode,
};
use millrace_units::{BitRate, here};

use crate::ControlError;
use crate::model::schedulers::changes::most_queues;

/// Name of the root above the configured root.
const TOP: &str = "principal:*";
/// Maximum number of flow queues of a principal at a port.
const QUEUES: u32 = 1_024;
/// Smallest rate of a curve, in bits per second.
const LEAST: u64 = Principal::LEAST_LINK;

/// Rate that a principal reserves at a port.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    /// Index of the principal in the list of principals.
    pub principal: usize,
    pub name: String,
    pub rate: u64,
    threshold: Option<QueueSize>,
}

/// Reservations of principals at a port.
#[derive(Clone, Debug, Default)]
pub(crate) struct Links {
    /// Rates that principals reserve, in the order of the principals.
    pub reserved: Vec<Link>,
    /// Queues of principals that share the rate of another one, with the queue of that one.
    pub same_as: BTreeMap<String, String>,
}

/// Returns the name of a principal's queue.
pub(crate) fn queue_name(principal: &str) -> String {
    format!("{}{principal}", Principal::QUEUE_PREFIX)
}

/// Returns the reservations of principals at a port. Leaves out chains of `same-as` that end at no rate.
pub(crate) fn links(principals: &[Principal], port: &str) -> Links {
    let link = |(index, one): (usize, &Principal)| {
        let Bits(rate) = one.reserved_link(port)?;
        let threshold = one.queue.map(|size| QueueSize::clamped(size.bytes()));
        Some(Link { principal: index, name: one.name.to_string(), rate, threshold })
    };
    let reserved: Vec<Link> = principals.iter().enumerate().filter_map(link).collect();
    let resource = Resource::Link(port);
    let shared = |one: &Principal| {
        one.same_as(resource)?;
        let owner = Principal::owner(principals, &one.name, resource);
        let is_reserved = reserved.iter().any(|link| link.name == owner);
        is_reserved.then(|| (queue_name(&one.name), queue_name(owner)))
    };
    let same_as = principals.iter().filter_map(shared).collect();
    Links { reserved, same_as }
}

fn is_of_principal(name: &str) -> bool {
    name.starts_with(Principal::QUEUE_PREFIX)
}

/// Refuses configured nodes with names of the nodes for principals, and settings that name such nodes.
pub(crate) fn check_names(scheduler: &Scheduler) -> Result<(), ControlError> {
    let prefix = Principal::QUEUE_PREFIX;
    if let Some(node) = scheduler.node.iter().find(|node| is_of_principal(&node.name)) {
        return Err(ControlError::invalid(format!(
            "node {:?}: names that begin with {prefix:?} are reserved for principals: give another name",
            node.name
        )));
    }
    let generated = |name: &Option<String>| name.clone().filter(|name| is_of_principal(name));
    let parents: Vec<&str> = scheduler.node.iter().filter_map(|node| node.under.as_deref()).collect();
    let names = || scheduler.node.iter().map(|node| &*node.name);
    if let Some((node, under)) = scheduler.node.iter().find_map(|node| Some((node, generated(&node.under)?)))
    {
        return Err(ControlError::invalid(format!(
            "node {:?}: `under` names {under:?}, which the router makes for principals: give a configured node, or \
             leave out `under` for a root; {}",
            node.name,
            here("node", names().filter(|name| *name != node.name))
        )));
    }
    match generated(&scheduler.default) {
        Some(leaf) => Err(ControlError::invalid(format!(
            "`default` names {leaf:?}, which the router makes for a principal: give a configured leaf; {}",
            here("node", names().filter(|name| !parents.contains(name)))
        ))),
        None => Ok(()),
    }
}

/// Checks that a port can hold the rates that principals reserve there, and the guarantees of its own nodes. Only
/// `part` of its rate may be promised.
///
/// # Errors
/// Returns the first reservation that does not fit, or none if the own nodes alone don't, and what would be right.
pub(crate) fn check_links<'l>(
    scheduler: Option<&Scheduler>,
    port: &str,
    links: &'l [Link],
    part: PromisedPart,
) -> Result<(), (Option<&'l Link>, ControlError)> {
    scheduler.map_or(Ok(()), |own| check_own(own, port, part)).map_err(|error| (None, error))?;
    let mut taken = scheduler.map_or(0, guaranteed);
    for link in links {
        let wrong = |problem: String| {
            let name = &link.name;
            let rate = BitRate(link.rate as f64);
            Err((
                Some(link),
                ControlError::conflict(format!("principal {name:?}: link {port} = {rate}: {problem}")),
            ))
        };
        if link.rate < LEAST {
            return wrong("give at least 1kbit".to_owned());
        }
        let Some(scheduler) = scheduler.filter(|scheduler| !scheduler.node.is_empty()) else {
            return wrong(format!(
                "port {port:?} has no scheduler: add one with a rate, such as `scheduler add {port} all --kind \
                 fq-codel` and `scheduler set {port} rate=100mbit`"
            ));
        };
        let Some(Bits(rate)) = scheduler.rate else {
            return wrong(format!(
                "the scheduler of port {port:?} has no rate: set one with `scheduler set {port} rate=RATE`"
            ));
        };
        let left = part.of(rate).saturating_sub(taken);
        if link.rate > left {
            let (whole, left) = (BitRate(rate as f64), BitRate(left as f64));
            let promised = match part.of(rate) == rate {
                true => String::new(),
                false => format!(", of which admission promises {part},"),
            };
            return wrong(format!("of the {whole} of port {port:?}{promised} {left} are left: reserve less"));
        }
        taken += link.rate;
    }
    Ok(())
}

/// Checks that the guarantees of a port's own nodes fit into the promised `part` of its rate. The tree itself checks
/// them against the whole rate.
fn check_own(scheduler: &Scheduler, port: &str, part: PromisedPart) -> Result<(), ControlError> {
    let (Some(Bits(rate)), own) = (scheduler.rate, guaranteed(scheduler)) else { return Ok(()) };
    let most = part.of(rate);
    if most == rate || own <= most {
        return Ok(());
    }
    let [whole, own, most, lack] = [rate, own, most, own - most].map(|rate| BitRate(rate as f64));
    Err(ControlError::conflict(format!(
        "port {port:?}: its own nodes guarantee {own}, but of the {whole} of its link, admission promises {part}: {lack} \
         are missing; guarantee at most {most}, or promise more with `admission set link=PART`"
    )))
}

/// Returns the rate that further principals can reserve, in bits per second; `None` without a rate of the port.
pub(crate) fn left(scheduler: &Scheduler, links: &Links, part: PromisedPart) -> Option<u64> {
    let Bits(rate) = scheduler.rate?;
    let taken = links.reserved.iter().fold(guaranteed(scheduler), |sum, link| sum.saturating_add(link.rate));
    Some(part.of(rate).saturating_sub(taken))
}

/// Returns the sum of the rates that a scheduler guarantees to its own nodes, in bits per second.
pub(crate) fn guaranteed(scheduler: &Scheduler) -> u64 {
    let rate = |node: &SchedulerNode| match node.real_time {
        Some(curve) if node.kind != SchedulerKind::Hfsc => curve.first.0.max(curve.then.0),
        // Flows reserve parts of the rate of a root.
        None if node.kind == SchedulerKind::FlowQueues && node.under.is_none() => {
            node.rate.map_or(0, |Bits(rate)| rate)
        }
        _ => 0,
    };
    scheduler.node.iter().fold(0, |sum: u64, node| sum.saturating_add(rate(node)))
}

/// Returns a configured scheduler with the queues of principals. Without nodes or a rate, it stays as it is.
///
/// A transaction may reserve more than the rate between two of its steps. All reservations are scaled down
/// then.
pub(crate) fn with_links(scheduler: &Scheduler, links: &Links) -> Scheduler {
    let mut whole = scheduler.clone();
    let Links { reserved: links, same_as } = links;
    let (Some(Bits(rate)), false) = (scheduler.rate, links.is_empty()) else { return whole };
    let Some(root) = whole.node.iter_mut().find(|node| node.under.is_none()) else { return whole };
    let own = guaranteed(scheduler);
    let left = rate.saturating_sub(own);
    let sum = links.iter().fold(0_u64, |sum, link| sum.saturating_add(link.rate)).max(1);
    let top = match root.kind {
        SchedulerKind::Hfsc => root.name.clone(),
        _ => {
            root.under = Some(TOP.to_owned());
            root.real_time = (own > 0).then(|| flat(own));
            root.link_sharing = Some(flat(rate.saturating_sub(sum)));
            whole.node.insert(0, SchedulerNode::below(TOP.to_owned(), SchedulerKind::Hfsc, None));
            TOP.to_owned()
        }
    };
    let queues = most_queues(scheduler).saturating_sub(1).clamp(1, QUEUES);
    whole.node.extend(links.iter().map(|link| {
        let scaled = u128::from(link.rate) * u128::from(left.min(sum)) / u128::from(sum);
        let name = queue_name(&link.name);
        let leaf = SchedulerNode::below(name, SchedulerKind::FlowQueues, Some(top.clone()));
        SchedulerNode {
            real_time: (scaled >= u128::from(LEAST)).then(|| flat(scaled as u64)),
            link_sharing: Some(flat(link.rate)),
            threshold: link.threshold,
            queues: Some(queues),
            ..leaf
        }
    }));
    whole.same_as.clone_from(same_as);
    whole
}

fn flat(rate: u64) -> CurveText {
    CurveText::flat(Bits(rate.max(LEAST)))
}

/// Returns a scheduler without the queues of principals: as it is configured.
pub(crate) fn without_links(scheduler: &Scheduler) -> Scheduler {
    let mut own = scheduler.clone();
    own.node.retain(|node| !is_of_principal(&node.name));
    own.same_as.clear();
    for root in own.node.iter_mut().filter(|node| node.under.as_deref() == Some(TOP)) {
        (root.under, root.real_time, root.link_sharing) = (None, None, None);
    }
    own
}

#[cfg(test)]
mod tests {
    use millrace_config::Config;

    use super::*;

    const WHOLE: PromisedPart = PromisedPart::clamped(1_000_000);

    fn config(nodes: &str, principals: &str) -> Config {
        let text = format!(
            "[[port]]\nname = \"wan\"\nkind = \"memory\"\n[port.scheduler]\nrate = \"20mbit\"\nnode = [{nodes}]\n\
             {principals}"
        );
        Config::parse(&text, "f").unwrap()
    }

    fn principal(name: &str, rate: &str) -> String {
        format!("[[principal]]\nname = \"{name}\"\nlink = {{ wan = \"{rate}\" }}\n")
    }

    const FIFO: &str = "{ name = \"all\", kind = \"fifo\" }";
    const HFSC: &str = "{ name = \"top\", kind = \"hfsc\" }, \
                        { name = \"own\", kind = \"fifo\", under = \"top\", real-time = \"15mbit\" }";

    #[test]
    fn queues_of_principals_are_children_of_an_hfsc_root() {
        let both = principal("a", "4mbit") + &principal("b", "1mbit");
        for (nodes, top, count) in [(FIFO, TOP, 4), (HFSC, "top", 4)] {
            let config = config(nodes, &both);
            let own = config.port[0].scheduler.clone().unwrap();
            let whole = with_links(&own, &links(&config.principal, "wan"));
            assert_eq!(whole.node.len(), count, "{whole:?}");
            let leaf = whole.node.iter().find(|node| node.name == "principal:a").unwrap();
            assert_eq!((leaf.under.as_deref(), leaf.real_time), (Some(top), Some(flat(4_000_000))));
            assert_eq!(without_links(&whole), own);
        }
    }

    #[test]
    fn settings_that_name_a_node_of_a_principal_are_refused_with_the_remedy() {
        let refusal = |nodes: &str, default: Option<&str>| {
            let scheduler = config(nodes, "").port[0].scheduler.clone().unwrap();
            let scheduler = Scheduler { default: default.map(str::to_owned), ..scheduler };
            check_names(&scheduler).map_err(|error| error.to_string())
        };
        let under = "{ name = \"x\", kind = \"fifo\", under = \"principal:*\" }";
        let error = refusal(&format!("{HFSC}, {under}"), None).unwrap_err();
        assert!(error.starts_with("node \"x\": `under` names \"principal:*\""), "{error}");
        assert!(error.ends_with("nodes here: top, own"), "{error}");
        let error = refusal(HFSC, Some("principal:a")).unwrap_err();
        assert!(error.starts_with("`default` names \"principal:a\""), "{error}");
        assert!(error.ends_with("nodes here: own"), "{error}");
        let error = refusal("{ name = \"principal:a\", kind = \"fifo\" }", None).unwrap_err();
        assert!(error.contains("reserved for principals: give another name"), "{error}");
        assert_eq!(refusal(HFSC, Some("own")), Ok(()));
    }

    #[test]
    fn shared_rates_have_no_leaf_of_their_own() {
        let same_as = |name: &str, other: &str| {
            format!("[[principal]]\nname = \"{name}\"\nlink = {{ wan = {{ same-as = \"{other}\" }} }}\n")
        };
        let all = config(FIFO, &(principal("a", "4mbit") + &same_as("b", "a") + &same_as("c", "b")));
        let (own, links) = (all.port[0].scheduler.clone().unwrap(), links(&all.principal, "wan"));
        let whole = with_links(&own, &links);
        assert_eq!((links.reserved.len(), whole.node.len()), (1, 3));
        // 16 Mb/s of 20 Mb/s are left: a shared rate counts once.
        assert_eq!(left(&own, &links, WHOLE), Some(16_000_000));
        let shared: Vec<_> = whole.same_as.iter().map(|(queue, leaf)| (&**queue, &**leaf)).collect();
        assert_eq!(shared, [("principal:b", "principal:a"), ("principal:c", "principal:a")]);
        assert_eq!(without_links(&whole), own);
    }

    #[test]
    fn reservations_beyond_the_rate_are_refused_with_what_is_left_and_scaled_in_between() {
        let all = config(HFSC, &(principal("a", "4mbit") + &principal("b", "2mbit")));
        let (own, links) = (all.port[0].scheduler.clone().unwrap(), links(&all.principal, "wan"));
        let (link, error) = check_links(Some(&own), "wan", &links.reserved, WHOLE).unwrap_err();
        assert_eq!(link.unwrap().principal, 1);
        let text = error.to_string();
        assert!(text.contains("principal \"b\": link wan = 2.00 Mb/s: of the 20.00 Mb/s"), "{text}");
        assert!(text.contains("1.00 Mb/s are left"), "{text}");
        check_links(Some(&own), "wan", &links.reserved[..1], WHOLE).unwrap();
        let (_, error) =
            check_links(Some(&own), "wan", &links.reserved[..1], PromisedPart::clamped(900_000)).unwrap_err();
        assert!(error.to_string().contains("admission promises 90 %, 3.00 Mb/s are left"), "{error}");
        // The 15 Mb/s of the own nodes fit into 75 % of 20 Mb/s, not into 70 %.
        check_links(Some(&own), "wan", &[], PromisedPart::clamped(750_000)).unwrap();
        let (link, error) = check_links(Some(&own), "wan", &[], PromisedPart::clamped(700_000)).unwrap_err();
        assert!(link.is_none());
        let text = error.to_string();
        assert!(text.contains("own nodes guarantee 15.00 Mb/s") && text.contains("promises 70 %"), "{text}");
        assert!(text.contains("1.00 Mb/s are missing; guarantee at most 14.00 Mb/s"), "{text}");
        assert_eq!(left(&own, &links, WHOLE), Some(0));
        let sum: u64 =
            with_links(&own, &links).node[2..].iter().map(|node| node.real_time.unwrap().then.0).sum();
        assert!((4_999_990..=5_000_000).contains(&sum), "{sum}");
        let without_rate = Scheduler { rate: None, ..own };
        assert_eq!(with_links(&without_rate, &links), without_rate);
        for (scheduler, expected) in [(Some(&without_rate), "has no rate"), (None, "has no scheduler")] {
            let (_, error) = check_links(scheduler, "wan", &links.reserved, WHOLE).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
