//! Tests of applying, confirming, rolling back and saving configurations.

use millrace_config::Config;
use millrace_controller::{
    Apply, ControlError, EventKind, EventQuery, Keep, NewFilter, Role, RollBack, Router, Save, Source,
    StartOptions, Who, start,
};

/// Configuration with two ports and every kind of table.
const BASE: &str = r#"
[router]
icmp-rate = 100
[plugins]
state = "none"
cache = "none"
[[port]]
name = "lan"
kind = "memory"
address = ["10.1.0.1/24"]
[[port]]
name = "wan"
kind = "memory"
address = ["10.2.0.1/24"]
scheduler = { rate = "10mbit", node = [{ name = "flows", kind = "flow-queues", rate = "10mbit", queues = 16 }] }
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
[[filter]]
match = "proto udp dport 5060"
action = "queue flows"
[[route]]
to = "10.9.0.0/16"
via = "10.2.0.254"
[[neighbour]]
port = "wan"
address = "10.2.0.254"
mac = "02:00:00:00:00:fe"
"#;

fn with_router(work: impl AsyncFn(Router)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let config = Config::parse(BASE, "base.toml").unwrap();
        let source = Some(Source { origin: "base.toml".into(), text: BASE.into() });
        let router = start(config, StartOptions { source, ..StartOptions::default() }).await.unwrap();
        work(router.clone()).await;
        router.shutdown().await.unwrap();
    });
}

async fn apply(router: &Router, text: &str) -> Result<Vec<String>, ControlError> {
    let order = Apply { text: text.to_owned(), ..Apply::default() };
    router.apply(order, Who::router()).await.map(|view| view.changes)
}

async fn save(router: &Router, text: &str, force: bool) -> Result<String, ControlError> {
    let order = Save { text: Some(text.to_owned()), origin: Some("router.toml".into()), force };
    router.save_into(order).await
}

fn add_filter(router: &Router, filter: &str) {
    let new = NewFilter { filter: filter.into(), action: "drop".into(), gate: None, priority: 0 };
    router.add_filter(&new).unwrap();
}

async fn back(router: &Router) -> (Option<u64>, String) {
    let view = router.roll_back(None, &RollBack::default(), Who::router()).await.unwrap();
    (view.revision, view.origin)
}

/// Checks that the running configuration equals the text.
async fn assert_runs(router: &Router, text: &str) {
    let difference = router.difference(text, "text", Role::Admin).await.unwrap();
    assert!(difference.changes.is_empty() && difference.restart.is_empty(), "{difference:?}");
}

/// Returns configurations that differ from the base in one or several entries.
fn others() -> Vec<String> {
    let other = |from: &str, to: &str| {
        assert!(BASE.contains(from), "{from}");
        BASE.replace(from, to)
    };
    vec![
        other("icmp-rate = 100", "icmp-rate = 7\nredirects = false\nroute-priority = 3"),
        other("10.1.0.1/24", "10.1.0.9/24"),
        other(
            "address = [\"10.1.0.1/24\"]",
            "address = [\"10.1.0.1/24\"]\nreverse-path = \"loose\"\ninput-weight = 9",
        ),
        other("rate = \"10mbit\", node", "rate = \"20mbit\", node"),
        other("kind = \"flow-queues\", rate = \"10mbit\", queues = 16", "kind = \"fifo\"")
            .replace("queue flows", "drop"),
        other(
            "queues = 16 }] }",
            "queues = 16 }], flow = [{ queue = \"flows\", rate = \"1mbit\", \
             flow = \"src 10.0.0.2 dst 10.1.0.2 proto udp sport 4 dport 5 in lan\" }] }",
        ),
        other("position = \"late\"", "position = \"late\"\ntable = \"linear\""),
        other("position = \"late\"", "position = \"early\""),
        other("settings = { ports = \"80\" }", "settings = { ports = \"81\", protocol = \"tcp\" }"),
        other(
            "plugin = \"port-filter\"\nname = \"pf\"\nsettings = { ports = \"80\" }",
            "plugin = \"null\"\nname = \"pf\"",
        ),
        other(
            "filter = \"in lan\"",
            "filter = \"in lan\"\npriority = 4\non-fault = \"bypass\"\nbudget = \"77us\"",
        ),
        other("action = \"drop\"", "action = \"reject\"\npriority = 9"),
        other("via = \"10.2.0.254\"", "via = [\"10.2.0.253\", \"10.2.0.254\"]"),
        other("via = \"10.2.0.254\"", "kind = \"blackhole\""),
        other("02:00:00:00:00:fe", "02:00:00:00:00:fd"),
        BASE.split("[[gate]]").next().unwrap().to_owned(),
        // Removes the leaf, and the filter that names it.
        other(
            "scheduler = { rate = \"10mbit\", node = [{ name = \"flows\", kind = \"flow-queues\", \
             rate = \"10mbit\", queues = 16 }] }\n",
            "",
        )
        .replace("queue flows", "drop"),
    ]
}

#[test]
fn from_any_of_many_configurations_any_other_is_reached_and_the_same_again_is_nothing() {
    with_router(async |router| {
        let others = others();
        assert_runs(&router, BASE).await;
        for other in &others {
            for text in [other.as_str(), BASE] {
                let changes = apply(&router, text).await.unwrap_or_else(|error| panic!("{error}\n{text}"));
                assert!(!changes.is_empty(), "{text}");
                assert_runs(&router, text).await;
                assert_eq!(apply(&router, text).await, Ok(vec![]));
            }
        }
        for pair in others.windows(2) {
            for text in pair {
                apply(&router, text).await.unwrap_or_else(|error| panic!("{error}\n{text}"));
                assert_runs(&router, text).await;
            }
        }
    });
}

#[test]
fn what_runs_reads_back_from_the_text_that_tells_it() {
    with_router(async |router| {
        for text in others() {
            apply(&router, &text).await.unwrap();
            let told = router.configuration().unwrap().text;
            assert_runs(&router, &told).await;
            assert_eq!(save(&router, &text, false).await.unwrap(), text);
        }
    });
}

#[test]
fn what_is_wrong_or_takes_a_restart_changes_nothing() {
    with_router(async |router| {
        for (text, word) in [
            (BASE.replace("dport 25", "dport x"), "x"),
            (BASE.replace("10.9.0.0/16", "10.9.0.1/16"), "has host bits"),
            (BASE.replace("via = \"10.2.0.254\"", "via = \"10.7.0.1\""), "in no subnet of a port"),
            (BASE.replace("via = \"10.2.0.254\"", "via = \"10.7.0.1\""), "configuration:35:7: "),
            (BASE.replace("queue flows", "queue flow"), "configuration:32:10: no queue is named \"flow\""),
            (BASE.replace("ports = \"80\"", "prts = \"80\""), "configuration:22:14: instance \"pf\""),
            (BASE.replace("\"port-filter\"", "\"port-filtr\""), "configuration:20:10: instance \"pf\""),
            (BASE.replace("icmp-rate = 100", "icmp-rate = 5\nworkers = 3"), "only a restart"),
            (format!("{BASE}[[port]]\nname = \"more\"\nkind = \"memory\"\n"), "\"more\": it is in the file"),
        ] {
            let refused = apply(&router, &text).await.unwrap_err().to_string();
            assert!(refused.contains(word), "{word}: {refused}");
            assert_runs(&router, BASE).await;
        }
    });
}

#[test]
fn single_commands_are_differences_and_a_revision_takes_them_back() {
    with_router(async |router| {
        let new = NewFilter { filter: "dport 22".into(), action: "reject".into(), gate: None, priority: 0 };
        router.add_filter(&new).unwrap();
        let flow = "src 10.0.0.2 dst 10.1.0.2 proto udp sport 4 dport 5 in lan";
        let rate = serde_json::json!({"rate": "1mbit"});
        router.set_queue("wan", "flows", Some(flow), rate.as_object().unwrap()).unwrap();
        let difference = router.difference_from_base().await.unwrap();
        assert_eq!(
            difference.changes,
            [
                "queue set wan flows --flow 'src 10.0.0.2 dst 10.1.0.2 proto udp sport 4 dport 5 in lan' rate=",
                "filter remove 'dport 22' --action reject"
            ]
        );
        apply(&router, BASE).await.unwrap();
        assert_runs(&router, BASE).await;
        let changed = BASE.replace("dport 25", "dport 26");
        apply(&router, &changed).await.unwrap();
        // Each apply adds a revision. Before the first one stands the configuration of the start; the state
        // that single commands made would be a revision too.
        let revisions = || router.revisions().unwrap().into_iter().map(|one| (one.revision.number, one.runs));
        assert_eq!(revisions().collect::<Vec<_>>(), [(4, true), (3, false), (2, false), (1, false)]);
        assert_eq!(back(&router).await, (Some(5), "revision 3".to_owned()));
        assert_runs(&router, BASE).await;
        assert_eq!(revisions().find(|(_, runs)| *runs), Some((5, true)));
        let unknown = router.roll_back(Some(9), &RollBack::default(), Who::router()).await.unwrap_err();
        assert_eq!(unknown.to_string(), "there is no revision 9; revisions here: 1 to 5");
    });
}

#[test]
fn who_says_which_revision_has_to_run_changes_nothing_where_another_one_does() {
    with_router(async |router| {
        let changed = BASE.replace("dport 25", "dport 26");
        let only_if = async |text: &str, number| {
            let order = Apply { text: text.to_owned(), if_revision: Some(number), ..Apply::default() };
            router.apply(order, Who::router()).await.map(|view| view.revision)
        };
        let refused = only_if(&changed, 1).await.unwrap_err();
        assert!(matches!(refused, ControlError::Changed(_)), "{refused:?}");
        assert!(
            refused.to_string().contains("no revision runs, but what the router was started with, base.toml")
        );
        apply(&router, &changed).await.unwrap();
        let refused = only_if(BASE, 1).await.unwrap_err().to_string();
        assert!(
            refused.starts_with("revision 2 runs, since 20") && refused.contains("by router, not 1"),
            "{refused}"
        );
        assert_runs(&router, &changed).await;
        assert_eq!(only_if(BASE, 2).await, Ok(Some(3)));
        // The change by a single command is no revision.
        add_filter(&router, "dport 22");
        let ran = router.configuration().unwrap().text;
        let refused = only_if(&changed, 3).await.unwrap_err().to_string();
        assert!(
            refused.contains("revision 3 runs, but single commands have changed what runs since"),
            "{refused}"
        );
        let order = RollBack { if_revision: Some(2), ..RollBack::default() };
        let refused = router.roll_back(None, &order, Who::router()).await.unwrap_err().to_string();
        assert!(refused.contains("revision 3 runs"), "{refused}");
        assert_runs(&router, &ran).await;
    });
}

#[test]
fn what_single_commands_made_can_be_had_back_after_an_apply() {
    with_router(async |router| {
        let changed = BASE.replace("dport 25", "dport 26");
        apply(&router, &changed).await.unwrap();
        add_filter(&router, "dport 22");
        let ran = router.configuration().unwrap().text;
        apply(&router, BASE).await.unwrap();
        let comments =
            || router.revisions().unwrap().into_iter().map(|one| one.revision.comment.unwrap_or_default());
        assert_eq!(comments().collect::<Vec<_>>(), ["", "what ran before", "", "as the router was started"]);
        assert_eq!(back(&router).await, (Some(5), "revision 3".to_owned()));
        assert_runs(&router, &ran).await;
        // The changes of single commands that a rollback discards can be restored as well.
        add_filter(&router, "dport 23");
        let ran = router.configuration().unwrap().text;
        assert_eq!(back(&router).await, (Some(7), "revision 5".to_owned()));
        assert_eq!(back(&router).await, (Some(8), "revision 6".to_owned()));
        assert_runs(&router, &ran).await;
        // Rolling back an unconfirmed revision also restores them, and adds no second equal revision.
        add_filter(&router, "dport 24");
        let ran = router.configuration().unwrap().text;
        let order = || Apply { text: BASE.into(), confirm: Some("10m".parse().unwrap()), ..Apply::default() };
        for newest in [10, 11] {
            assert_eq!(router.apply(order(), Who::router()).await.unwrap().revision, Some(newest));
            back(&router).await;
            assert_runs(&router, &ran).await;
            let runs = router.revisions().unwrap().into_iter().find(|one| one.runs).unwrap();
            assert_eq!(runs.revision.number, 9);
        }
    });
}

#[test]
fn a_change_of_several_commands_counts_alike_in_differences_revisions_and_events() {
    with_router(async |router| {
        // Changes the rate of the scheduler, and that of its node.
        let changed = BASE.replace("10mbit", "20mbit");
        let count = router.difference(&changed, "test", Role::Admin).await.unwrap().changes.len();
        assert_eq!(count, 2, "one change, two commands");
        let event = |kind: EventKind| {
            let events = router.events().page(&EventQuery::default()).events;
            events.into_iter().rev().find(|event| event.kind == kind).unwrap().details["changes"].clone()
        };
        let waiting = apply_waiting(&router, &changed).await;
        assert_eq!(router.revision(waiting).unwrap().revision.changes, count);
        assert_eq!(event(EventKind::ConfigurationApplied), count);
        let withdrawn = router.roll_back(None, &RollBack::default(), Who::router()).await.unwrap();
        assert_eq!(event(EventKind::ConfigurationRolledBack), withdrawn.changes.len());
        // Single commands change the running configuration; the next apply stores that state as a revision.
        apply(&router, BASE).await.unwrap();
        let rate = serde_json::json!({"rate": "20mbit"});
        router.set_scheduler("wan", rate.as_object().unwrap()).unwrap();
        router.set_scheduler_node("wan", "flows", rate.as_object().unwrap()).unwrap();
        let count = router.difference_from_base().await.unwrap().changes.len();
        assert_eq!(count, 2);
        apply(&router, BASE).await.unwrap();
        let revisions = router.revisions().unwrap();
        let before = revisions.iter().find(|one| one.revision.comment.as_deref() == Some("what ran before"));
        assert_eq!(before.unwrap().revision.changes, count);
    });
}

#[test]
fn what_is_saved_is_a_revision_and_the_base_of_differences() {
    with_router(async |router| {
        add_filter(&router, "dport 22");
        let text = save(&router, BASE, false).await.unwrap();
        let order =
            |text: &str| Keep { text: Some(text.into()), origin: Some("router.toml".into()), comment: None };
        let refused = router.keep(order(BASE), Who::router(), Role::Admin).await.unwrap_err().to_string();
        assert!(refused.contains("router.toml is not what runs"), "{refused}");
        for _ in 0..2 {
            // Saving the same text again adds no revision.
            let kept = router.keep(order(&text), Who::router(), Role::Operator).await.unwrap();
            assert_eq!((kept.number, kept.comment.as_deref()), (2, Some("saved")));
            assert!(router.difference_from_base().await.unwrap().changes.is_empty());
        }
        assert_eq!(router.revision(2).unwrap().text, text);
        let runs = router.revisions().unwrap().into_iter().find(|one| one.runs).unwrap();
        assert_eq!(runs.revision.number, 2);
        // Without a text, the base is stored, with the later changes written into it.
        add_filter(&router, "dport 23");
        let kept = router.keep(Keep::default(), Who::router(), Role::Operator).await.unwrap();
        assert_eq!((kept.number, kept.changes, &*kept.origin), (3, 1, "router.toml"));
        let kept = router.revision(3).unwrap().text;
        assert!(kept.contains("dport 22") && kept.contains("dport 23"), "{kept}");
    });
}

#[test]
fn what_was_written_into_a_file_by_hand_is_not_saved_over() {
    with_router(async |router| {
        add_filter(&router, "dport 22");
        let hand = "# mine\n[[filter]]\nmatch = \"dport 9\"\naction = \"drop\"\n";
        let file = format!("{BASE}{hand}").replace("icmp-rate = 100", "icmp-rate = 7");
        let refused = save(&router, &file, false).await.unwrap_err().to_string();
        for word in
            ["router.toml", "`router set icmp-rate=7`", "`filter add 'dport 9' --action drop`", "--force"]
        {
            assert!(refused.contains(word), "{word}: {refused}");
        }
        assert!(!refused.contains("dport 22"), "{refused}");
        let saved = save(&router, &file, true).await.unwrap();
        assert!(saved.contains("dport 22") && !saved.contains("dport 9"), "{saved}");
        // Not lost are comments, running entries, and entries stored as a revision.
        save(&router, &format!("# mine\n{BASE}"), false).await.unwrap();
        add_filter(&router, "dport 9");
        save(&router, &format!("{BASE}{hand}"), false).await.unwrap();
        apply(&router, &file).await.unwrap();
        apply(&router, BASE).await.unwrap();
        save(&router, &file, false).await.unwrap();
    });
}

#[test]
fn after_a_start_from_a_file_one_goes_back_to_the_newest_revision() {
    let folder = std::env::temp_dir().join(format!("millrace-newest-{}", std::process::id()));
    let own = BASE.replace("state = \"none\"", &format!("state = \"{}\"", folder.display()));
    let changed = own.replace("dport 25", "dport 26");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for again in [false, true] {
            let config = Config::parse(&own, "own.toml").unwrap();
            let source = Some(Source { origin: "own.toml".into(), text: own.clone() });
            let router = start(config, StartOptions { source, ..StartOptions::default() }).await.unwrap();
            match again {
                false => drop(apply(&router, &changed).await.unwrap()),
                true => assert_eq!(back(&router).await.1, "revision 2"),
            }
            assert_runs(&router, &changed).await;
            router.shutdown().await.unwrap();
        }
    });
    std::fs::remove_dir_all(folder).unwrap();
}

/// Applies a text that must be confirmed within ten minutes. Returns its revision.
async fn apply_waiting(router: &Router, text: &str) -> u64 {
    let order = Apply { text: text.to_owned(), confirm: Some("10m".parse().unwrap()), ..Apply::default() };
    router.apply(order, Who::router()).await.unwrap().revision.unwrap()
}

#[test]
fn what_goes_back_already_is_not_confirmed_and_what_is_being_confirmed_does_not_go_back() {
    with_router(async |router| {
        let changed = BASE.replace("dport 25", "dport 26");
        let waiting = apply_waiting(&router, &changed).await;
        let order = RollBack::default();
        let (back, confirmed) =
            tokio::join!(router.roll_back(None, &order, Who::router()), router.confirm(None));
        assert_eq!(back.unwrap().revision, None);
        assert!(matches!(confirmed, Err(ControlError::Conflict(_))), "{confirmed:?}");
        assert_runs(&router, BASE).await;
        let state = |number| router.revision(number).unwrap().revision.state;
        assert_eq!(format!("{:?}", state(waiting)), "Withdrawn");
        let waiting = apply_waiting(&router, &changed).await;
        let (confirmed, back) =
            tokio::join!(router.confirm(None), router.roll_back(None, &order, Who::router()));
        assert_eq!(confirmed, Ok(waiting));
        match back {
            Err(ControlError::Conflict(_)) => assert_runs(&router, &changed).await,
            // The rollback followed, and stored the earlier configuration as a new revision.
            back => assert_eq!(back.unwrap().revision, Some(waiting + 1)),
        }
        assert_eq!(format!("{:?}", state(waiting)), "Good");
    });
}

#[test]
fn another_revision_than_the_one_that_waits_is_not_confirmed() {
    with_router(async |router| {
        let waiting = apply_waiting(&router, &BASE.replace("dport 25", "dport 26")).await;
        let refused = router.confirm(Some(12345)).await.unwrap_err().to_string();
        assert_eq!(refused, "revision 2 waits to be confirmed, not revision 12345: nothing was confirmed");
        assert_eq!(router.configuration().unwrap().pending.unwrap().revision, waiting);
        assert_eq!(router.confirm(Some(waiting)).await, Ok(waiting));
        assert!(router.configuration().unwrap().pending.is_none());
    });
}

#[test]
fn a_return_that_cannot_be_leaves_what_waits_as_it_is() {
    with_router(async |router| {
        let changed = BASE.replace("dport 25", "dport 26");
        let waiting = apply_waiting(&router, &changed).await;
        let other = RollBack { if_revision: Some(99), ..RollBack::default() };
        for (number, order) in [(99, &RollBack::default()), (1, &other)] {
            router.roll_back(Some(number), order, Who::router()).await.unwrap_err();
            assert_eq!(router.configuration().unwrap().pending.unwrap().revision, waiting);
            assert_runs(&router, &changed).await;
        }
        let view = router.roll_back(Some(1), &RollBack::default(), Who::router()).await.unwrap();
        // The target ran before the waiting revision, so withdrawing that one is the whole rollback.
        assert_eq!((view.revision, view.changes.len()), (None, 0));
        assert!(router.configuration().unwrap().pending.is_none());
        assert_runs(&router, BASE).await;
    });
}

#[test]
fn a_return_during_other_changes_is_told_to_wait() {
    with_router(async |router| {
        let filter = |port| format!("[[filter]]\nmatch = \"dport {port}\"\naction = \"drop\"\n");
        let text = (1000..2000).map(filter).fold(BASE.to_owned(), |text, filter| text + &filter);
        let order = || Apply { text: text.clone(), ..Apply::default() };
        let none = RollBack::default();
        let (applied, back) = tokio::join!(router.apply(order(), Who::router()), async {
            while router.status().unwrap().applying.is_none() {
                tokio::task::yield_now().await;
            }
            router.roll_back(None, &none, Who::router()).await
        });
        assert_eq!(applied.unwrap().revision, Some(2));
        let refused = back.unwrap_err();
        assert!(
            matches!(&refused, ControlError::Conflict(text) if text.contains("is being applied")),
            "{refused}"
        );
    });
}

#[test]
fn what_runs_is_told_whole_or_not_at_all_while_it_changes() {
    with_router(async |router| {
        let filter = |port| format!("[[filter]]\nmatch = \"dport {port}\"\naction = \"drop\"\n");
        let text = (1000..3000).map(filter).fold(BASE.to_owned(), |text, filter| text + &filter);
        let before = router.configuration().unwrap().text;
        let order = Apply { text, ..Apply::default() };
        let (mut told, mut refused) = (Vec::new(), 0);
        let done = std::cell::Cell::new(false);
        let apply = async {
            router.apply(order, Who::router()).await.unwrap();
            done.set(true);
        };
        let ask = async {
            while !done.get() {
                match router.configuration() {
                    Ok(running) => told.push(running.text),
                    Err(ControlError::Conflict(why)) if why.contains("try again in a second") => refused += 1,
                    Err(other) => panic!("{other}"),
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::join!(apply, ask);
        let after = router.configuration().unwrap().text;
        let half = told.iter().find(|text| **text != before && **text != after);
        assert_eq!(half.map(|text| text.matches("[[filter]]").count()), None, "half of the change");
        assert!(refused > 0, "nobody asked in between");
    });
}

#[test]
fn a_file_that_is_what_runs_is_a_revision_where_the_newest_one_is_not() {
    with_router(async |router| {
        let numbers = || router.revisions().unwrap().into_iter().map(|one| (one.revision.number, one.runs));
        apply(&router, BASE).await.unwrap();
        assert_eq!(numbers().count(), 0, "it was started with that");
        let changed = BASE.replace("dport 25", "dport 26");
        apply(&router, &changed).await.unwrap();
        add_filter(&router, "dport 22");
        let file = format!("{changed}[[filter]]\nmatch = \"dport 22\"\naction = \"drop\"\n");
        let order = Apply { text: file.clone(), comment: Some("why".into()), ..Apply::default() };
        let view = router.apply(order, Who::router()).await.unwrap();
        assert_eq!((view.revision, view.changes.len()), (Some(3), 0));
        let newest = router.revision(3).unwrap();
        assert_eq!((newest.text, newest.revision.comment.as_deref()), (file.clone(), Some("why")));
        assert!(router.difference_from_base().await.unwrap().changes.is_empty());
        // Applying the same text again changes nothing.
        apply(&router, &file).await.unwrap();
        assert_eq!(numbers().collect::<Vec<_>>(), [(3, true), (2, false), (1, false)]);
    });
}
