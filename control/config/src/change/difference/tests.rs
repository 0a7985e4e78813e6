use super::*;

const BASE: &str = r#"
[router]
icmp-rate = 100
on-death = "kernel"
[[port]]
name = "lan"
kind = "memory"
address = ["10.1.0.1/24"]
[[port]]
name = "wan"
kind = "memory"
address = ["10.2.0.1/24"]
[[gate]]
name = "audit"
position = "late"
[[instance]]
plugin = "port-filter"
name = "pf"
settings = { ports = "80" }
[[bind]]
instance = "pf"
gate = "firewall"
filter = "in lan"
[[filter]]
match = "proto tcp dport 25"
action = "drop"
[[route]]
to = "10.9.0.0/16"
via = "10.2.0.254"
"#;

fn config(text: &str) -> Config {
    Config::parse(text, "test.toml").unwrap().normalized()
}

fn commands(from: &str, to: &str) -> Vec<String> {
    let difference = config(from).difference(&config(to));
    assert!(difference.restart.is_empty(), "{difference:?}");
    difference.changes.iter().flat_map(Change::commands).collect()
}

/// Replaces `from` by `to` in the base configuration. Returns the commands that lead from the base
/// configuration to the result.
fn after(from: &str, to: &str) -> Vec<String> {
    assert!(BASE.contains(from), "{from}");
    commands(BASE, &BASE.replace(from, to))
}

#[test]
fn equivalent_configurations_have_no_difference() {
    for (from, to) in [
        ("proto tcp dport 25", "dport 25   proto tcp"),
        ("action = \"drop\"", "action = \" drop\"\ngate = \"route\""),
        ("filter = \"in lan\"", "filter = \"in lan\"\npriority = 0\non-fault = \"drop\"\nbudget = \"100ms\""),
        ("to = \"10.9.0.0/16\"", "to = \"10.9.0.0/16\"\nkind = \"forward\""),
        ("name = \"audit\"", "table = \"tuple-space\"\nname = \"audit\""),
        ("[[gate]]", "[[gate]]\nname = \"firewall\"\ntable = \"tuple-space\"\n[[gate]]"),
        (
            "[[bind]]\ninstance = \"pf\"\ngate = \"firewall\"\nfilter = \"in lan\"",
            "[[filter]]\nmatch = \"in lan\"\ngate = \"firewall\"\naction = \"instance pf\"",
        ),
    ] {
        assert_eq!(after(from, to), [] as [&str; 0], "{to}");
    }
}

#[test]
fn each_difference_is_the_command_that_produces_it() {
    for (from, to, command) in [
        ("icmp-rate = 100", "icmp-rate = 200", "router set icmp-rate=200"),
        ("icmp-rate = 100", "", "router set icmp-rate=1000"),
        ("[\"10.1.0.1/24\"]", "[\"10.1.0.2/24\"]", "port set lan 'address=[\"10.1.0.2/24\"]'"),
        ("via = \"10.2.0.254\"", "via = \"10.2.0.253\"", "route replace 10.9.0.0/16 via 10.2.0.253"),
        ("ports = \"80\"", "protocol = \"tcp\"", "instance set pf ports= protocol=tcp"),
        ("position = \"late\"", "position = \"late\"\ntable = \"dag\"", "gate set audit --table dag"),
        (
            "[[filter]]",
            "[[filter]]\nmatch = \"dport 22\"\naction = \"reject\"\npriority = 3\n[[filter]]",
            "filter add 'dport 22' --action reject --priority 3",
        ),
    ] {
        assert_eq!(after(from, to), [command]);
    }
    assert_eq!(
        after("action = \"drop\"", "action = \"reject\""),
        [
            "filter remove 'proto tcp dport 25' --action drop",
            "filter add 'proto tcp dport 25' --action reject"
        ]
    );
}

#[test]
fn an_instance_of_another_plugin_is_free_of_bindings_first() {
    let changed = after(
        "plugin = \"port-filter\"\nname = \"pf\"\nsettings = { ports = \"80\" }",
        "plugin = \"null\"\nname = \"pf\"",
    );
    assert_eq!(
        changed,
        [
            "unbind pf --gate firewall --filter 'in lan'",
            "instance free pf",
            "instance create null pf",
            "bind pf --gate firewall --filter 'in lan'"
        ]
    );
}

#[test]
fn dependencies_are_added_first_and_removed_last() {
    let less = BASE.split("[[gate]]").next().unwrap().to_owned();
    let away = commands(BASE, &less);
    assert_eq!(
        away,
        [
            "unbind pf --gate firewall --filter 'in lan'",
            "filter remove 'proto tcp dport 25' --action drop",
            "route remove 10.9.0.0/16",
            "instance free pf",
            "gate remove audit"
        ]
    );
    assert_eq!(
        commands(&less, BASE),
        [
            "gate create late audit",
            "instance create port-filter pf ports=80",
            "bind pf --gate firewall --filter 'in lan'",
            "filter add 'proto tcp dport 25' --action drop",
            "route add 10.9.0.0/16 via 10.2.0.254"
        ]
    );
}

#[test]
fn recreated_instances_leave_in_the_reverse_order_of_the_earlier_configuration() {
    let instance =
        |plugin: &str, name: &str| format!("[[instance]]\nplugin = \"{plugin}\"\nname = \"{name}\"\n");
    let from = format!("{BASE}{}{}", instance("null", "a"), instance("null", "b"));
    let to = format!("{BASE}{}{}", instance("delay", "b"), instance("delay", "a"));
    assert_eq!(
        commands(&from, &to),
        ["instance free b", "instance free a", "instance create delay b", "instance create delay a"]
    );
    assert_eq!(commands(&from, BASE), ["instance free b", "instance free a"]);
}

#[test]
fn differences_that_need_a_restart_are_listed_apart() {
    let to = BASE.replace("icmp-rate = 100", "icmp-rate = 5\nworkers = 2").replacen(
        "kind = \"memory\"",
        "kind = \"tap\"",
        1,
    );
    let difference = config(BASE).difference(&config(&to));
    assert_eq!(
        difference.restart.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            "router.workers: 1 runs, and the file says 2",
            "port \"lan\": kind: \"memory\" runs, and the file says \"tap\""
        ]
    );
    let by_request = difference.restart_message(Submission::Request);
    assert!(by_request.to_string().starts_with("router.workers: 1 runs, and the request sets 2; port "));
    let [Change::Router { from, to }] = &difference.changes[..] else { panic!("{difference:?}") };
    assert_eq!((from.icmp_rate, to.icmp_rate, to.workers), (100, 5, 1));
}

#[test]
fn a_leaf_becomes_another_without_a_command_that_drops() {
    let tree = |leaf: &str, flows: &str| {
        format!(
            "address = [\"10.2.0.1/24\"]\nscheduler = {{ node = [{{ name = \"top\", kind = \"priority\" }}, \
             {{ name = \"a\", under = \"top\", level = 0, {leaf} }}]{flows} }}"
        )
    };
    let flow = ", flow = [{ queue = \"a\", flow = \"src 10.0.0.1 dst 10.0.0.2 proto esp in wan\", quantum = \"9B\" }]";
    let with =
        |leaf: &str, flows: &str| config(&BASE.replace("address = [\"10.2.0.1/24\"]", &tree(leaf, flows)));
    let lines = |from: &Config, to: &Config| -> Vec<String> {
        from.difference(to).changes.iter().flat_map(Change::commands).collect()
    };
    let flow_queues = with("kind = \"flow-queues\", queues = 9", flow);
    let fq_codel = with("kind = \"fq-codel\", limit = 99", "");
    assert_eq!(
        lines(&flow_queues, &fq_codel),
        [
            "queue set wan a --flow 'src 10.0.0.1 dst 10.0.0.2 proto esp in wan' quantum=",
            "scheduler set wan --node a kind=fq-codel limit=99 queues="
        ]
    );
    assert_eq!(
        lines(&fq_codel, &flow_queues),
        [
            "scheduler set wan --node a kind=flow-queues limit= queues=9",
            "queue set wan a --flow 'src 10.0.0.1 dst 10.0.0.2 proto esp in wan' quantum=9B"
        ]
    );
}

#[test]
fn a_scheduler_changes_node_by_node() {
    let tree = "address = [\"10.2.0.1/24\"]\nscheduler = { rate = \"10mbit\", node = [{ name = \"top\", kind = \"priority\" }, \
                { name = \"a\", kind = \"fifo\", under = \"top\", level = 0 }] }";
    assert_eq!(
        after("address = [\"10.2.0.1/24\"]", tree),
        [
            "scheduler add wan top --kind priority",
            "scheduler add wan a --kind fifo --under top level=0",
            "scheduler set wan rate=10mbit"
        ]
    );
}

#[test]
fn a_new_default_leaf_and_the_heir_are_in_the_commands() {
    let tree = |settings: &str, leaves: &[&str]| {
        let leaf =
            |name: &&str| format!("{{ name = \"{name}\", kind = \"fifo\", under = \"top\", level = 0 }}");
        let leaves: Vec<String> = leaves.iter().map(leaf).collect();
        let scheduler = format!(
            "scheduler = {{ {settings}node = [{{ name = \"top\", kind = \"priority\" }}, {}] }}",
            leaves.join(", ")
        );
        BASE.replace("address = [\"10.2.0.1/24\"]", &format!("address = [\"10.2.0.1/24\"]\n{scheduler}"))
    };
    let lead =
        |from: (&str, &[&str]), to: (&str, &[&str])| commands(&tree(from.0, from.1), &tree(to.0, to.1));
    let same: [&str; 0] = [];
    // The first leaf is the default leaf, unless `default` names another one.
    assert_eq!(lead(("", &["a", "b"]), ("", &["b", "a"])), ["scheduler set wan default=b"]);
    assert_eq!(lead(("default = \"a\", ", &["a", "b"]), ("default = \"a\", ", &["b", "a"])), same);
    assert_eq!(
        lead(("", &["a", "b"]), ("", &["c", "a", "b"])),
        ["scheduler add wan c --kind fifo --under top level=0", "scheduler set wan default=c"]
    );
    // Packets of a removed leaf move to a leaf that stays.
    assert_eq!(lead(("", &["a", "b", "c"]), ("", &["b", "c"])), ["scheduler remove wan a --to b"]);
    assert_eq!(
        lead(("default = \"c\", ", &["a", "b", "c"]), ("default = \"c\", ", &["b", "c"])),
        ["scheduler remove wan a --to c"]
    );
    assert_eq!(
        lead(("", &["a"]), ("", &["d"])),
        ["scheduler remove wan a", "scheduler add wan d --kind fifo --under top level=0"]
    );
}

#[test]
fn every_change_reverts_its_inverse() {
    let less = BASE.split("[[gate]]").next().unwrap().replace("icmp-rate = 100", "icmp-rate = 7");
    let there = config(BASE).difference(&config(&less)).changes;
    let back: Vec<Change> = there.iter().rev().cloned().map(Change::inverse).collect();
    for change in &back {
        assert_eq!(change.clone().inverse().inverse(), *change);
    }
    let mut commands: Vec<_> = back.iter().flat_map(Change::commands).collect();
    let mut direct: Vec<_> =
        config(&less).difference(&config(BASE)).changes.iter().flat_map(Change::commands).collect();
    commands.sort();
    direct.sort();
    assert_eq!(commands, direct);
}

#[test]
fn promises_grow_before_the_reservations_that_need_them_and_shrink_after_them() {
    let file = |cpu: &str, link: &str, memory: &str, share: &str| {
        format!(
            "[admission]\ncpu = \"{cpu}\"\nlink = \"{link}\"\nmemory = \"{memory}\"\n[[principal]]\nname = \"a\"\n\
             cpu = \"{share}\"\n"
        )
    };
    // The part of the processor grows, that of the links shrinks, and so does the memory.
    let changed = commands(&file("50 %", "90 %", "2MiB", "10 %"), &file("80 %", "60 %", "1MiB", "30 %"));
    let expected =
        ["admission set 'cpu=80 %'", "principal set a 'cpu=30 %'", "admission set 'link=60 %' memory=1MiB"];
    assert_eq!(changed, expected);
    let without = file("50 %", "90 %", "2MiB", "10 %").replace("memory = \"2MiB\"\n", "");
    assert_eq!(commands(&without, &file("50 %", "90 %", "2MiB", "10 %")), ["admission set memory=2MiB"]);
}

#[test]
fn load_that_shrinks_precedes_load_that_grows() {
    let config = |loads: &[(&str, u32)]| {
        let entry = |(name, rate): &(&str, u32)| {
            format!(
                "[[instance]]\nplugin = \"null\"\nname = \"{name}\"\nservice = {{ rate = {rate}, packet = 10 }}\n"
            )
        };
        loads.iter().map(entry).collect::<String>()
    };
    let both = config(&[("a", 10), ("b", 90)]);
    assert_eq!(
        commands(&both, &config(&[("a", 80), ("b", 20)])),
        ["instance move b --rate 20", "instance move a --rate 80"]
    );
    let (a, c) = ("[[instance]]\nplugin = \"null\"\nname = \"a\"\n", config(&[("c", 90)]));
    assert_eq!(
        commands(&both, &format!("{a}service = {{ level = \"worker\", byte = 0.5 }}\n{c}")),
        [
            "instance move b --rate 0 --packet default",
            "instance move a --rate 0 --packet default --byte 0.5 --level worker",
            "instance create null c --rate 90 --packet 10",
            "instance free b",
        ]
    );
}
