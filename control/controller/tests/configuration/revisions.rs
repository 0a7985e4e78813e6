//! Tests of revisions: the list of revisions, the running revision, and rollbacks to a revision.

use millrace_controller::operation::{CompareConfiguration, SetQueue, SetScheduler, SetSchedulerNode};
use millrace_controller::{EventKind, EventQuery};

use super::*;

#[test]
fn single_commands_are_differences_and_a_revision_reverts_them() {
    with_router(async |router| {
        let new = NewFilter { filter: "dport 22".into(), action: "reject".into(), gate: None, priority: 0 };
        ask(&router, AddFilter(new)).await.unwrap();
        let flow = "src 10.0.0.2 dst 10.1.0.2 proto udp sport 4 dport 5 in lan";
        let changes = object(serde_json::json!({"rate": "1mbit"}));
        let (port, queue, flow) = ("wan".into(), "flows".into(), Some(flow.into()));
        ask(&router, SetQueue { port, queue, flow, changes }).await.unwrap();
        let difference = ask(&router, CompareConfiguration::default()).await.unwrap();
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
        // Each apply adds a revision, and revision 1 is the start configuration. Changes by single commands
        // would have added a revision too.
        let numbers =
            async || revisions(&router).await.into_iter().map(|one| (one.revision.number, one.runs));
        assert_eq!(numbers().await.collect::<Vec<_>>(), [(4, true), (3, false), (2, false), (1, false)]);
        assert_eq!(back(&router).await, (Some(5), "revision 3".to_owned()));
        assert_runs(&router, BASE).await;
        assert_eq!(numbers().await.find(|(_, runs)| *runs), Some((5, true)));
        let order = RollBack { revision: Some(9), ..RollBack::default() };
        let unknown = ask(&router, order).await.unwrap_err();
        assert_eq!(unknown.to_string(), "there is no revision 9; stored revisions: 1 to 5");
    });
}

#[test]
fn change_for_another_revision_changes_nothing() {
    with_router(async |router| {
        let changed = BASE.replace("dport 25", "dport 26");
        let only_if = async |text: &str, number| {
            let order = Apply { text: text.to_owned(), if_revision: Some(number), ..Apply::default() };
            ask(&router, order).await.map(|view| view.revision)
        };
        let refused = only_if(&changed, 1).await.unwrap_err();
        assert!(matches!(refused, ControlError::Changed(_)), "{refused:?}");
        assert!(
            refused
                .to_string()
                .contains("the router runs its start configuration, base.toml, not revision 1")
        );
        apply(&router, &changed).await.unwrap();
        let refused = only_if(BASE, 1).await.unwrap_err().to_string();
        assert!(
            refused.starts_with("revision 2 is running, since 20")
                && refused.contains("by router, not revision 1"),
            "{refused}"
        );
        assert_runs(&router, &changed).await;
        assert_eq!(only_if(BASE, 2).await, Ok(Some(3)));
        // A change by a single command adds no revision by itself.
        add_filter(&router, "dport 22").await;
        let ran = running(&router).await;
        let refused = only_if(&changed, 3).await.unwrap_err().to_string();
        assert!(
            refused
                .contains("revision 3 is running, but single commands have changed the configuration since"),
            "{refused}"
        );
        let order = RollBack { if_revision: Some(2), ..RollBack::default() };
        let refused = ask(&router, order).await.unwrap_err().to_string();
        assert!(refused.contains("revision 3 is running"), "{refused}");
        assert_runs(&router, &ran).await;
    });
}

#[test]
fn effects_of_single_commands_can_be_restored_after_an_apply() {
    with_router(async |router| {
        let changed = BASE.replace("dport 25", "dport 26");
        apply(&router, &changed).await.unwrap();
        add_filter(&router, "dport 22").await;
        let ran = running(&router).await;
        apply(&router, BASE).await.unwrap();
        let comments = revisions(&router).await.into_iter();
        let comments = comments.map(|one| one.revision.comment.unwrap_or_default());
        assert_eq!(comments.collect::<Vec<_>>(), ["", "previous configuration", "", "start configuration"]);
        assert_eq!(back(&router).await, (Some(5), "revision 3".to_owned()));
        assert_runs(&router, &ran).await;
        // If a rollback discards changes of single commands, another rollback can restore them.
        add_filter(&router, "dport 23").await;
        let ran = running(&router).await;
        assert_eq!(back(&router).await, (Some(7), "revision 5".to_owned()));
        assert_eq!(back(&router).await, (Some(8), "revision 6".to_owned()));
        assert_runs(&router, &ran).await;
        // Rolling back an unconfirmed revision also restores the changes of single commands. Both rollbacks
        // return to revision 9, and store no copy of it.
        add_filter(&router, "dport 24").await;
        let ran = running(&router).await;
        let order = || Apply { text: BASE.into(), confirm: Some("10m".parse().unwrap()), ..Apply::default() };
        for newest in [10, 11] {
            assert_eq!(ask(&router, order()).await.unwrap().revision, Some(newest));
            back(&router).await;
            assert_runs(&router, &ran).await;
            let runs = revisions(&router).await.into_iter().find(|one| one.runs).unwrap();
            assert_eq!(runs.revision.number, 9);
        }
    });
}

#[test]
fn a_change_of_several_commands_counts_alike_in_differences_revisions_and_events() {
    with_router(async |router| {
        // Changes the rate of the scheduler and also the rate of a node.
        let changed = BASE.replace("10mbit", "20mbit");
        let count = compare(&router, &changed).await.changes.len();
        assert_eq!(count, 2, "one change, two commands");
        let event = |kind: EventKind| {
            let events = router.events().page(&EventQuery::default()).events;
            events.into_iter().rev().find(|event| event.kind == kind).unwrap().details["changes"].clone()
        };
        let waiting = apply_waiting(&router, &changed).await;
        assert_eq!(revision(&router, waiting).await.revision.changes, count);
        assert_eq!(event(EventKind::ConfigurationApplied), count);
        let withdrawn = ask(&router, RollBack::default()).await.unwrap();
        assert_eq!(event(EventKind::ConfigurationRolledBack), withdrawn.changes.len());
        // Single commands change the running configuration. The next apply first stores it as a revision.
        apply(&router, BASE).await.unwrap();
        let rate = object(serde_json::json!({"rate": "20mbit"}));
        ask(&router, SetScheduler { port: "wan".into(), changes: rate.clone() }).await.unwrap();
        let (port, name) = ("wan".into(), "flows".into());
        ask(&router, SetSchedulerNode { port, name, changes: rate }).await.unwrap();
        let count = ask(&router, CompareConfiguration::default()).await.unwrap().changes.len();
        assert_eq!(count, 2);
        apply(&router, BASE).await.unwrap();
        let revisions = revisions(&router).await;
        let before =
            revisions.iter().find(|one| one.revision.comment.as_deref() == Some("previous configuration"));
        assert_eq!(before.unwrap().revision.changes, count);
    });
}

#[test]
fn rollback_after_a_start_from_a_file_applies_the_newest_revision() {
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
            // Nobody waits for the line of the shutdown's own operations: its write may create the file again.
            router.flush_audit().await;
        }
    });
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn file_equal_to_the_running_configuration_becomes_a_revision_if_the_newest_differs() {
    with_router(async |router| {
        let numbers =
            async || revisions(&router).await.into_iter().map(|one| (one.revision.number, one.runs));
        apply(&router, BASE).await.unwrap();
        assert_eq!(numbers().await.count(), 0, "it was started with that");
        let changed = BASE.replace("dport 25", "dport 26");
        apply(&router, &changed).await.unwrap();
        add_filter(&router, "dport 22").await;
        let file = format!("{changed}[[filter]]\nmatch = \"dport 22\"\naction = \"drop\"\n");
        let order = Apply { text: file.clone(), comment: Some("why".into()), ..Apply::default() };
        let view = ask(&router, order).await.unwrap();
        assert_eq!((view.revision, view.changes.len()), (Some(3), 0));
        let newest = revision(&router, 3).await;
        assert_eq!((newest.text, newest.revision.comment.as_deref()), (file.clone(), Some("why")));
        assert!(ask(&router, CompareConfiguration::default()).await.unwrap().changes.is_empty());
        // Applying the same text again changes nothing.
        apply(&router, &file).await.unwrap();
        assert_eq!(numbers().await.collect::<Vec<_>>(), [(3, true), (2, false), (1, false)]);
    });
}
