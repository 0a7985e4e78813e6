//! Tests of revisions that wait for confirmation, and of rollbacks that run at the same time as other
//! changes.

use millrace_controller::operation::GetStatus;

use super::*;

#[test]
fn confirmation_and_rollback_exclude_each_other() {
    with_router(async |router| {
        let changed = BASE.replace("dport 25", "dport 26");
        let waiting = apply_waiting(&router, &changed).await;
        let (back, confirmed) = tokio::join!(ask(&router, RollBack::default()), confirm(&router, None));
        assert_eq!(back.unwrap().revision, None);
        assert!(matches!(confirmed, Err(ControlError::Conflict(_))), "{confirmed:?}");
        assert_runs(&router, BASE).await;
        let state = async |number| revision(&router, number).await.revision.state;
        assert_eq!(format!("{:?}", state(waiting).await), "Withdrawn");
        let waiting = apply_waiting(&router, &changed).await;
        let (confirmed, back) = tokio::join!(confirm(&router, None), ask(&router, RollBack::default()));
        assert_eq!(confirmed, Ok(waiting));
        match back {
            Err(ControlError::Conflict(_)) => assert_runs(&router, &changed).await,
            // The rollback ran after the confirmation, and stored the earlier configuration as a new
            // revision.
            back => assert_eq!(back.unwrap().revision, Some(waiting + 1)),
        }
        assert_eq!(format!("{:?}", state(waiting).await), "Good");
    });
}

#[test]
fn only_the_unconfirmed_revision_is_confirmed() {
    with_router(async |router| {
        let waiting = apply_waiting(&router, &BASE.replace("dport 25", "dport 26")).await;
        let refused = confirm(&router, Some(12345)).await.unwrap_err().to_string();
        assert_eq!(refused, "revision 2 waits to be confirmed, not revision 12345: nothing was confirmed");
        assert_eq!(ask(&router, GetConfiguration).await.unwrap().pending.unwrap().revision, waiting);
        assert_eq!(confirm(&router, Some(waiting)).await, Ok(waiting));
        assert!(ask(&router, GetConfiguration).await.unwrap().pending.is_none());
    });
}

#[test]
fn impossible_rollback_leaves_the_unconfirmed_revision() {
    with_router(async |router| {
        let changed = BASE.replace("dport 25", "dport 26");
        let waiting = apply_waiting(&router, &changed).await;
        let to = |number| RollBack { revision: Some(number), ..RollBack::default() };
        for order in [to(99), RollBack { if_revision: Some(99), ..to(1) }] {
            ask(&router, order).await.unwrap_err();
            assert_eq!(ask(&router, GetConfiguration).await.unwrap().pending.unwrap().revision, waiting);
            assert_runs(&router, &changed).await;
        }
        let view = ask(&router, to(1)).await.unwrap();
        // The target was running before the waiting revision, so withdrawing the waiting revision is the
        // whole rollback.
        assert_eq!((view.revision, view.changes.len()), (None, 0));
        assert!(ask(&router, GetConfiguration).await.unwrap().pending.is_none());
        assert_runs(&router, BASE).await;
    });
}

#[test]
fn rollback_during_other_changes_is_refused_as_busy() {
    with_router(async |router| {
        let filter = |port| format!("[[filter]]\nmatch = \"dport {port}\"\naction = \"drop\"\n");
        let text = (1000..2000).map(filter).fold(BASE.to_owned(), |text, filter| text + &filter);
        let order = || Apply { text: text.clone(), ..Apply::default() };
        let (applied, back) = tokio::join!(ask(&router, order()), async {
            while ask(&router, GetStatus).await.unwrap().applying.is_none() {
                tokio::task::yield_now().await;
            }
            ask(&router, RollBack::default()).await
        });
        assert_eq!(applied.unwrap().revision, Some(2));
        let refused = back.unwrap_err();
        assert!(
            matches!(&refused, ControlError::Conflict(text) if text.to_string().contains("is being applied")),
            "{refused}"
        );
    });
}
