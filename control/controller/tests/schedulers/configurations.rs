//! Tests that apply schedulers in configurations: any scheduler can replace any other, also with 20,000
//! leaves.

use millrace_controller::Apply;
use millrace_controller::operation::RemoveFilters;

use super::*;

/// Applies a configuration with this scheduler at port `wan`.
async fn apply(router: &Router, scheduler: &str) -> Result<Vec<String>, ControlError> {
    let text = format!("{PORTS}[port.scheduler]\n{scheduler}");
    let order = Apply { text, ..Apply::default() };
    ask(router, order).await.map(|view| view.changes)
}

/// Returns schedulers of every kind, including some that differ only in one setting.
fn schedulers() -> Vec<String> {
    let levels = |one: u32, other: u32| {
        format!(
            "node = [{{ name = \"top\", kind = \"priority\" }}, {{ name = \"a\", kind = \"fifo\", under = \"top\", level = {one} }}, \
             {{ name = \"b\", kind = \"fifo\", under = \"top\", level = {other} }}]"
        )
    };
    let curves = |link: &str, one: &str, other: &str| {
        format!(
            "rate = \"{link}\"\nnode = [{{ name = \"top\", kind = \"hfsc\" }}, {{ name = \"a\", kind = \"fifo\", under = \"top\", \
             real-time = \"{one}\" }}, {{ name = \"b\", kind = \"fifo\", under = \"top\", real-time = \"{other}\" }}]"
        )
    };
    let flows = |queues: u32, of_leaf: u32, rate: &str, one: &str, other: &str| {
        let flow = |port: u32, said: &str| {
            format!(
                "{{ queue = \"f\", flow = \"{}\", {said} }}",
                FLOW.replace("sport 4", &format!("sport {port}"))
            )
        };
        format!(
            "queues = {queues}\nnode = [{{ name = \"f\", kind = \"flow-queues\", queues = {of_leaf}, rate = \"{rate}\" }}]\nflow = [{}, {}]",
            flow(1, one),
            flow(2, other)
        )
    };
    let places = |above_a: &str, above_b: &str| {
        format!(
            "rate = \"10mbit\"\nnode = [{{ name = \"top\", kind = \"deficit-round-robin\" }}, {{ name = \"one\", kind = \"token-bucket\", under = \"top\", \
             rate = \"1mbit\", quantum = \"1B\" }}, {{ name = \"other\", kind = \"token-bucket\", under = \"top\", rate = \"2mbit\", quantum = \"2B\" }}, \
             {{ name = \"a\", kind = \"fifo\", under = \"{above_a}\" }}, {{ name = \"b\", kind = \"fifo\", under = \"{above_b}\" }}]"
        )
    };
    vec![
        "node = [{ name = \"a\", kind = \"fifo\" }]".to_owned(),
        "node = [{ name = \"b\", kind = \"token-bucket\", rate = \"1mbit\" }, { name = \"a\", kind = \"fifo\", under = \"b\" }]".to_owned(),
        places("one", "other"),
        places("other", "one"),
        levels(1, 2),
        levels(2, 1),
        curves("10mbit", "7mbit", "2mbit"),
        curves("10mbit", "2mbit", "7mbit"),
        curves("4mbit", "1mbit", "3mbit"),
        flows(8192, 4096, "5mbit", "rate = \"4mbit\"", "quantum = \"3000B\""),
        flows(100, 50, "5mbit", "rate = \"1kbit\"", "rate = \"4mbit\""),
        flows(8, 4, "1mbit", "quantum = \"9B\"", "threshold = \"9000B\""),
        flows(8192, 4096, "5mbit", "threshold = \"5B\"", "rate = \"4mbit\""),
    ]
}

#[test]
fn schedulers_become_each_other_that_no_order_of_single_changes_leads_to() {
    let schedulers = schedulers();
    with_router(async |router| {
        for before in &schedulers {
            for after in &schedulers {
                for one in [before, after] {
                    apply(&router, one).await.unwrap_or_else(|error| panic!("{error}\n{before}\n{after}"));
                    assert_eq!(apply(&router, one).await, Ok(vec![]));
                }
                let there = shown(&router).await;
                // The result is the same as for a port that had another scheduler before.
                apply(&router, "node = [{ name = \"z\", kind = \"fifo\" }]").await.unwrap();
                apply(&router, after).await.unwrap();
                assert_eq!(there, shown(&router).await, "{before}\n{after}");
            }
        }
    });
}

#[test]
fn a_scheduler_that_is_refused_leaves_nothing_behind() {
    with_router(async |router| {
        let flow = |port: u32, said: &str| {
            format!(
                "{{ queue = \"f\", flow = \"{}\", {said} }}",
                FLOW.replace("sport 4", &format!("sport {port}"))
            )
        };
        let leaf = "rate = \"6mbit\"\nnode = [{ name = \"f\", kind = \"flow-queues\", queues = 2, rate = \"5mbit\" }]";
        for (flows, problem) in [
            (
                vec![flow(1, "rate = \"4mbit\""), flow(2, "rate = \"4mbit\"")],
                "4.00 Mb/s reserved by others + 4.00 Mb/s = 8.00 Mb/s, which must stay below the capacity of 5.00 Mb/s",
            ),
            (
                vec![flow(1, "quantum = \"1B\""), flow(2, "quantum = \"1B\""), flow(3, "quantum = \"1B\"")],
                "all 2 for flows",
            ),
            (vec![flow(1, "quantum = \"0B\"")], "its quantum is 0"),
        ] {
            let text = format!("{leaf}\nflow = [{}]", flows.join(", "));
            let config = Config::parse(&format!("{PORTS}[port.scheduler]\n{text}"), "f").unwrap();
            let checked = check(&config).unwrap_err().to_string();
            assert!(checked.contains(problem) && checked.starts_with("f:"), "{checked}");
            assert!(apply(&router, &text).await.unwrap_err().to_string().contains(problem));
            assert_eq!(shown(&router).await, []);
        }
        apply(&router, leaf).await.unwrap();
        let before = shown(&router).await;
        let set = async |said: Value| set_queue(&router, "f", Some(FLOW), said).await;
        for said in
            [json!({"rate": "5mbit"}), json!({"quantum": "0B"}), json!({"quantum": "1B", "rate": "1mbit"})]
        {
            assert!(set(said).await.is_err());
        }
        assert!(set_queue(&router, "f", None, json!({"rate": "7mbit"})).await.is_err());
        assert_eq!((shown(&router).await, apply(&router, leaf).await), (before, Ok(vec![])));
        // Applying a configuration that has no settings for the flow removes the flow's settings.
        set(json!({"quantum": "3000B", "threshold": "9000B"})).await.unwrap();
        let said = flows(&router).await;
        assert_eq!(
            said.iter().map(|flow| (flow.quantum, flow.threshold)).collect::<Vec<_>>(),
            [(3000, 9000)]
        );
        assert_eq!(apply(&router, leaf).await.unwrap().len(), 1);
        let common = flows(&router).await;
        assert_eq!(
            common.iter().map(|flow| (flow.quantum, flow.threshold)).collect::<Vec<_>>(),
            [(1538, 262_144)]
        );
    });
}

/// Returns the text of a priority scheduler with this number of leaves.
fn wide(leaves: u32) -> String {
    let leaf =
        |level: u32| format!("{{ name = \"f{level}\", kind = \"fifo\", under = \"top\", level = {level} }}");
    let leaves: Vec<String> = (0..leaves).map(leaf).collect();
    format!("queues = 65536\nnode = [{{ name = \"top\", kind = \"priority\" }}, {}]", leaves.join(", "))
}

#[test]
fn twenty_thousand_leaves_are_added_and_removed_as_configured() {
    with_router(async |router| {
        apply(&router, &wide(20_000)).await.unwrap();
        let filter = to_queue(&router, "dport 1", "f19999").await;
        // First removes one leaf, then changes the kind of another leaf, and finally removes all leaves but
        // three.
        let removal = NodeRemoval { to: Some("f50".into()), with_filters: false };
        remove_node(&router, ("wan", "f19999"), removal).await.unwrap();
        assert_eq!(actions(&router).await, [("dport 1".to_owned(), "queue f50".to_owned())]);
        let kind = object(json!({"kind": "fq-codel"}));
        let shown = set_node(&router, "f7", kind).await.unwrap();
        assert_eq!((shown.nodes.len(), shown.default.as_deref()), (20_000, Some("f0")));
        assert_ne!(bindings(&router).await.unwrap()[0].id, filter);
        let ids = vec![bindings(&router).await.unwrap()[0].id];
        ask(&router, RemoveFilters { ids }).await.unwrap();
        apply(&router, &wide(3)).await.unwrap();
        let names: Vec<String> = shown_names(&router).await;
        assert_eq!(names, ["f0", "f1", "f2", "top"]);
        let removal = NodeRemoval { to: None, with_filters: false };
        apply(&router, &wide(20_000)).await.unwrap();
        remove_node(&router, ("wan", "top"), removal).await.unwrap();
        assert!(ask(&router, ListSchedulers).await.unwrap().is_empty());
    });
}

async fn shown_names(router: &Router) -> Vec<String> {
    shown(router).await.into_iter().map(|(name, ..)| name).collect()
}
