use millrace_pipeline::ScheduleChange;

use super::*;

fn planned(toml: &str) -> Result<Schedulers, ControlError> {
    let port = format!("[[port]]\nname = \"wan\"\nkind = \"memory\"\n[port.scheduler]\n{toml}");
    let config = millrace_config::Config::parse(&port, "test.toml")?;
    let mut schedulers = Schedulers::default();
    schedulers.plan(PortId(0), "wan", config.port[0].scheduler.as_ref().unwrap())?;
    Ok(schedulers)
}

const TREE: &str = r#"
        rate = "10mbit"
        node = [
            { name = "top", kind = "hfsc" },
            { name = "voice", kind = "fifo", under = "top", real-time = "1mbit 10ms 64kbit" },
            { name = "rest", kind = "fq-codel", under = "top", link-sharing = "9mbit" },
        ]"#;

#[test]
fn tree_becomes_changes_in_its_order() {
    let schedulers = planned(TREE).unwrap();
    let begin = schedulers.begin().unwrap();
    let [(PortId(0), changes)] = &begin[..] else { panic!("{begin:?}") };
    assert_eq!(changes.len(), 5);
    assert!(matches!(&changes[2], ScheduleChange::Add { node: QueueId(2), parent: Some(QueueId(1)), .. }));
    assert_eq!(changes[4], ScheduleChange::Default(QueueId(2)));
    assert_eq!(schedulers.queue("voice"), Ok(QueueId(2)));
    assert!(schedulers.queue("voic").unwrap_err().to_string().contains("did you mean \"voice\""));
}

#[test]
fn new_port_rate_reaches_dependent_nodes() {
    let of = |rate: &str| {
        let node = r#"node = [{ name = "top", kind = "priority" },
                { name = "a", kind = "fifo", under = "top", level = 1, manage = "red" },
                { name = "b", kind = "fifo", under = "top", level = 2, manage = "codel" }]"#;
        planned(&format!("rate = \"{rate}\"\n{node}")).unwrap()
    };
    let (before, after) = (of("1mbit"), of("2mbit"));
    let [from, to] = [&before, &after].map(|planned| planned.of(PortId(0)).unwrap());
    let changes = after.changes(from, to, changes::Leftovers::default()).unwrap();
    let set: Vec<_> = changes.iter().filter(|one| matches!(one, ScheduleChange::Set { .. })).collect();
    assert!(matches!(set[..], [ScheduleChange::Set { node: QueueId(2), .. }]), "{changes:?}");
}

#[test]
fn promises_above_the_link_are_refused_with_names() {
    let refused = planned(&TREE.replace("1mbit 10ms 64kbit", "20mbit")).unwrap_err().to_string();
    assert!(refused.contains("20") && refused.contains("10"), "{refused}");
    let unknown = planned(&TREE.replace("under = \"top\", link", "under = \"tpo\", link")).unwrap_err();
    assert!(unknown.to_string().contains("did you mean \"top\""), "{unknown}");
    let empty = planned("rate = \"1mbit\"").unwrap_err().to_string();
    assert!(empty.contains("has no node"), "{empty}");
    let apart =
        planned(&TREE.replace(", under = \"top\", link-sharing = \"9mbit\"", "")).unwrap_err().to_string();
    assert!(apart.contains("\"top\" is the root already"), "{apart}");
    let twice = planned(&TREE.replace("\"rest\"", "\"voice\"")).unwrap_err().to_string();
    assert!(twice.contains("node \"voice\": name already in use"), "{twice}");
}

#[test]
fn errors_name_nodes_instead_of_numbers() {
    let mut schedulers = Schedulers::default();
    let none = Scheduler::default();
    schedulers.number("top", &none).unwrap();
    schedulers.number("voice", &none).unwrap();
    let error = ScheduleError::ParentIsLeaf { node: NodeId(2), parent: NodeId(1), kind: "fifo" };
    let text = schedulers.refusal(error).to_string();
    assert!(text.starts_with("node \"voice\": its parent \"top\" is a fifo, a leaf"), "{text}");
}

#[test]
fn node_is_removed_with_all_descendants() {
    let schedulers = planned(TREE).unwrap();
    let scheduler = &schedulers.ports[&PortId(0)];
    assert_eq!(below(scheduler, "top"), HashSet::from(["top", "voice", "rest"]));
    assert_eq!(below(scheduler, "rest"), HashSet::from(["rest"]));
}

/// If planning took quadratic time, this test would take minutes.
#[test]
fn forty_thousand_leaves_are_removed_with_their_parent() {
    let planned = planned(TREE).unwrap();
    let mut large = planned.ports[&PortId(0)].clone();
    let leaf = large.node[2].clone();
    for number in 0..40_000 {
        large.node.push(SchedulerNode { name: format!("leaf{number}"), ..leaf.clone() });
    }
    assert!(without(&large, "wan", "top", None).unwrap().node.is_empty());
    let left = without(&large, "wan", "leaf9", Some("leaf7")).unwrap();
    assert_eq!(left.node.len(), large.node.len() - 1);
}
