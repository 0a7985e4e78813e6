//! Tests of valid and invalid filters, gates and route priorities. Each error must give position and remedy.

use millrace_config::{Config, FilterAction, GateTable, ReversePath};

const PORTS: &str = "[router]\non-death = \"kernel\"\n\
    [[port]]\nname = \"lan\"\ndevice = \"eth1\"\n\
    [[port]]\nname = \"wan\"\ndevice = \"eth2\"\n";

fn refused(text: &str) -> String {
    match Config::parse(text, "f") {
        Ok(_) => panic!("accepted: {text}"),
        Err(error) => error.to_string(),
    }
}

fn filter(keys: &str) -> String {
    format!("{PORTS}[[filter]]\n{keys}\n")
}

#[test]
fn a_filter_has_an_action_and_defaults() {
    let config = Config::parse(&filter("match = \"proto udp dport 53\"\naction = \"drop\""), "f").unwrap();
    let [filter] = &config.filter[..] else { panic!("one filter") };
    assert_eq!(filter.r#match.value().to_string(), "proto udp dport 53");
    assert_eq!((filter.action.value(), filter.priority), (&FilterAction::Drop, 0));
    assert!(filter.gate.is_none());
    assert_eq!(filter.action.value().default_gate(), Some("route"));
}

#[test]
fn the_table_of_a_default_gate_is_chosen_without_a_new_gate() {
    let text = format!(
        "{PORTS}[[gate]]\nname = \"firewall\"\ntable = \"dag\"\n\
         [[gate]]\nname = \"audit\"\nposition = \"late\"\ntable = \"tuple-space\"\n"
    );
    let tables: Vec<_> = Config::parse(&text, "f").unwrap().gate.iter().map(|gate| gate.table).collect();
    assert_eq!(tables, [GateTable::Dag, GateTable::TupleSpace]);
}

#[test]
fn router_settings_of_filters_have_defaults_and_bounds() {
    let config = Config::parse(PORTS, "f").unwrap();
    let router = &config.router;
    assert_eq!(
        (router.route_priority, router.flows_max, router.flow_idle.microseconds()),
        (0, 1_048_576, 30_000_000)
    );
    assert!(config.port.iter().all(|port| port.reverse_path == ReversePath::Off));
    let text = "[router]\nroute-priority = -5\nflows-max = 4096\nflow-idle = \"5s\"\n\
        [[port]]\nname = \"a\"\ndevice = \"a\"\nreverse-path = \"strict\"\n";
    let config = Config::parse(text, "f").unwrap();
    let router = &config.router;
    assert_eq!(
        (router.route_priority, router.flows_max, router.flow_idle.microseconds()),
        (-5, 4096, 5_000_000)
    );
    assert_eq!(config.port[0].reverse_path, ReversePath::Strict);
    for (key, problem) in [
        ("flows-max = 1000", "flows-max must be 1024 to 16777216, or 0 for no flow table, not 1000"),
        ("flows-max = 16777217", "or 0 for no flow table, not 16777217"),
        ("flow-idle = \"0s\"", "the time must be 1s to 24h, not \"0s\""),
        ("flow-idle = \"86401s\"", "the time must be 1s to 24h, not \"86401s\""),
        ("flow-idle = 5", "\"5\" has no unit: write \"5s\", \"5m\" or \"5h\""),
    ] {
        let error = refused(&format!("[router]\n{key}\n"));
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn wrong_filters_are_refused_with_line_column_and_remedy() {
    let drop = "action = \"drop\"";
    let cases = [
        (
            filter("match = \"\"\naction = \"drop\""),
            "f:10:9: the filter is empty: to match all packets, write \"*\"",
        ),
        (filter(&format!("match = \"proto upd\"\n{drop}")), "f:10:9: \"proto upd\": column 7"),
        (filter(&format!("match = \"proto udp dport 90-80\"\n{drop}")), "f:10:9"),
        (filter(&format!("match = \"src 10.1.2.3/8\"\n{drop}")), "write 10.0.0.0/8"),
        (filter(&format!("match = \"src 10.0.0.1 dst fd00::1\"\n{drop}")), "give both of one family"),
        (filter(&format!("match = \"proto icmp dport 7\"\n{drop}")), "has no ports"),
        (
            filter(&format!("match = \"in lam\"\n{drop}")),
            "f:10:9: filter \"in lam\": no port is named \"lam\": did you mean \"lan\"?",
        ),
        (
            filter("match = \"*\"\naction = \"dorp\""),
            "f:11:10: \"dorp\": there is no action \"dorp\": did you mean \"drop\"?",
        ),
        (filter("match = \"*\"\naction = \"lane 3\""), "the actions are `accept`"),
        (
            filter("match = \"*\"\naction = \"port wam\""),
            "f:11:10: no port is named \"wam\": did you mean \"wan\"?",
        ),
        (filter("match = \"*\"\naction = \"copy-to wan,lam\""), "did you mean \"lan\"?"),
        (
            filter("match = \"*\"\naction = \"instance s1\"\ngate = \"tap\""),
            "no instance is named \"s1\"; no instances here",
        ),
        (
            filter("match = \"*\"\naction = \"drop\"\ngate = \"rout\""),
            "f:12:8: no gate is named \"rout\": did you mean \"route\"?",
        ),
        (filter("match = \"*\"\naction = \"drop\"\npriority = 3000000000"), "f:12:12"),
        (filter("match = \"*\"\nacton = \"drop\""), "unknown key \"acton\": did you mean \"action\"?"),
        (filter("match = \"*\""), "\"filter[0]\" lacks the key \"action\""),
        (
            format!(
                "{PORTS}[[instance]]\nplugin = \"null\"\nname = \"n\"\n[[filter]]\nmatch = \"*\"\naction = \"instance n\"\n"
            ),
            "f:14:10: a filter with the action \"instance n\" needs a gate; gates here: options, ",
        ),
        (
            filter("match = \"*\"\naction = \"drop\"").replace("on-death = \"kernel\"\n", ""),
            "f:9:9: filters need on-death for port \"lan\", because the kernel ignores them",
        ),
    ];
    for (text, problem) in &cases {
        assert!(refused(text).contains(problem), "{problem}\n{}\n{text}", refused(text));
    }
}

#[test]
fn wrong_gates_and_ports_are_refused() {
    let cases = [
        ("[[gate]]\nname = \"audit\"\n", "f:10:8: gate \"audit\" needs a `position`: early"),
        ("[[gate]]\nname = \"firewall\"\n", "set its `table`"),
        ("[[gate]]\nname = \"firewall\"\nposition = \"late\"\n", "remove its `position`"),
        ("[[gate]]\nname = \"firewall\"\ntable = \"dga\"\n", "unknown value \"dga\": did you mean \"dag\"?"),
        ("[[port]]\nname = \"c\"\ndevice = \"c\"\nreverse-path = \"lose\"\n", "did you mean \"loose\"?"),
    ];
    for (text, problem) in cases {
        let message = refused(&format!("{PORTS}{text}"));
        assert!(message.contains(problem), "{problem}\n{message}");
    }
}

#[test]
fn a_prefix_has_one_route() {
    let route = "[[route]]\nto = \"10.9.0.0/16\"\nvia = \"10.1.0.2\"\n";
    let problem = refused(&format!("{PORTS}{route}{route}"));
    assert!(problem.starts_with("f:13:6: route 10.9.0.0/16 is given twice"), "{problem}");
    let problem = refused(&format!("{PORTS}[[route]]\nto = \"10.9.0.1/16\"\nkind = \"blackhole\"\n"));
    assert!(
        problem.starts_with("f:10:6: route \"10.9.0.1/16\" has host bits set: write 10.9.0.0/16"),
        "{problem}"
    );
}

#[test]
fn route_has_destination_and_next_hops_only() {
    for (route, problem) in [
        ("to = \"10.9.0.0/16\"", "has no next hop and no port: name its next hop with `via`, or its `port`"),
        (
            "to = \"10.9.0.0/16\"\nkind = \"blackhole\"\nvia = \"10.1.0.2\"",
            "route \"10.9.0.0/16\": kind blackhole takes no next hop or port: remove `via`",
        ),
        ("to = \"10.9.0.0/16\"\nkind = \"prohibit\"\nport = \"lan\"", "remove `port`"),
        (
            "to = \"2001:db8::/32\"\nvia = \"fe80::1\"",
            "next hop fe80::1 is link-local, so the route needs its port: set `port`",
        ),
    ] {
        let message = refused(&format!("{PORTS}[[route]]\n{route}\n"));
        assert!(message.contains(problem), "{problem}\n{message}");
    }
    let right = "[[route]]\nto = \"2001:db8::/32\"\nvia = \"fe80::1\"\nport = \"lan\"\n";
    Config::parse(&format!("{PORTS}{right}"), "f").unwrap();
}
