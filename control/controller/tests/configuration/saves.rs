//! Tests of saves: a save adds a revision, and doesn't delete entries that a user has written into the file.

use millrace_controller::operation::CompareConfiguration;

use super::*;

#[test]
fn saved_configuration_is_a_revision_and_the_base_of_differences() {
    with_router(async |router| {
        add_filter(&router, "dport 22").await;
        let text = save(&router, BASE, false).await.unwrap();
        let order =
            |text: &str| Keep { text: Some(text.into()), origin: Some("router.toml".into()), comment: None };
        let refused = keep(&router, order(BASE), Role::Admin).await.unwrap_err().to_string();
        assert!(refused.contains("router.toml differs from the running configuration"), "{refused}");
        for _ in 0..2 {
            // Saving the same text again adds no revision.
            let kept = keep(&router, order(&text), Role::Operator).await.unwrap();
            assert_eq!((kept.number, kept.comment.as_deref()), (2, Some("saved")));
            assert!(ask(&router, CompareConfiguration::default()).await.unwrap().changes.is_empty());
        }
        assert_eq!(revision(&router, 2).await.text, text);
        let runs = revisions(&router).await.into_iter().find(|one| one.runs).unwrap();
        assert_eq!(runs.revision.number, 2);
        // If the request has no text, the base is stored, with the later changes written into it.
        add_filter(&router, "dport 23").await;
        let kept = keep(&router, Keep::default(), Role::Operator).await.unwrap();
        assert_eq!((kept.number, kept.changes, &*kept.origin), (3, 1, "base.toml"));
        let kept = revision(&router, 3).await.text;
        assert!(kept.contains("dport 22") && kept.contains("dport 23"), "{kept}");
    });
}

#[test]
fn operator_does_not_choose_the_file_that_later_saves_write() {
    with_router(async |router| {
        let order = |origin: &str| Keep { origin: Some(origin.into()), ..Keep::default() };
        let file = async || ask(&router, GetConfiguration).await.unwrap().origin;
        for (number, other) in [(1, "/etc/profile.d/x.sh"), (2, "revision 2")] {
            add_filter(&router, &format!("dport {number}")).await;
            let kept = keep(&router, order(other), Role::Operator).await.unwrap();
            assert_eq!(kept.origin, format!("router:{other}"));
            // The newest revision has the same text, so none is added.
            let again = keep(&router, order(other), Role::Operator).await.unwrap();
            assert_eq!((again.number, file().await), (kept.number, "base.toml".to_owned()));
        }
        let kept = keep(&router, order("base.toml"), Role::Operator).await.unwrap();
        assert_eq!((kept.origin.as_str(), file().await.as_str()), ("router:revision 2", "base.toml"));
        // A save of an administrator names the file of later saves.
        add_filter(&router, "dport 22").await;
        let kept = keep(&router, order("/etc/router.toml"), Role::Admin).await.unwrap();
        assert_eq!((kept.origin.as_str(), file().await.as_str()), ("/etc/router.toml", "/etc/router.toml"));
    });
}

#[test]
fn manual_file_changes_are_not_overwritten_by_save() {
    with_router(async |router| {
        add_filter(&router, "dport 22").await;
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
        // No entry is lost if the file has only comments, running entries, and entries stored as a revision.
        save(&router, &format!("# mine\n{BASE}"), false).await.unwrap();
        add_filter(&router, "dport 9").await;
        save(&router, &format!("{BASE}{hand}"), false).await.unwrap();
        apply(&router, &file).await.unwrap();
        apply(&router, BASE).await.unwrap();
        save(&router, &file, false).await.unwrap();
    });
}

#[test]
fn apply_rollback_save_and_restart_carry_principals() {
    with_router(async |router| {
        let text = with_principals();
        assert!(!apply(&router, &text).await.unwrap().is_empty());
        assert_runs(&router, &text).await;
        back(&router).await;
        assert_runs(&router, BASE).await;
        assert!(!running(&router).await.contains("[[principal]]"));
        back(&router).await;
        assert_runs(&router, &text).await;
        let saved = save(&router, BASE, false).await.unwrap();
        let again =
            start(Config::parse(&saved, "saved.toml").unwrap(), StartOptions::default()).await.unwrap();
        assert_runs(&again, &text).await;
        assert_eq!(running(&again).await, running(&router).await);
        again.shutdown().await.unwrap();
    });
}
