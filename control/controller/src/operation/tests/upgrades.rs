//! Replacements of a plugin by a version with a host companion.

use std::sync::Arc;

use millrace_plugin::WithCompanion;
use millrace_plugin_abi::Message;

use super::silent::{Versioned, Warnings, add_versioned, versions};
use super::*;
use crate::plugins::Earlier;
use crate::plugins::host_level::tests::deaf;

/// Adds instance `v` of version 2.0.0, whose earlier version 1.0.0 has a host companion. Returns the rollback to it.
fn add_rollback(router: &Router) -> RollBackPlugin {
    add_versioned(router);
    let version = || Arc::new(Versioned("1.0.0"));
    let plugin = Arc::new(WithCompanion::new(version(), version()));
    router.lock().plugins.previous.insert("versioned", Earlier { plugin, file: None });
    RollBackPlugin { name: "versioned".to_owned() }
}

#[tokio::test]
async fn a_version_that_runs_is_reported_as_running_although_its_host_companion_is_missing() {
    let router = started().await;
    let back = add_rollback(&router);
    let (level, end) = deaf();
    let whole = std::mem::replace(&mut router.lock().plugins.host_level, level);
    let warnings = Warnings::default();
    let logs = tracing::subscriber::set_default(warnings.clone());
    let outcome = router.execute(&Principal::router(), back).await;
    drop(logs);
    drop(end);
    router.lock().plugins.host_level = whole;
    assert_eq!(versions(&router), ["1.0.0", "1.0.0"]);
    let view = outcome.unwrap();
    assert_eq!((view.from, view.to), ("2.0.0", "1.0.0"));
    {
        let inner = router.lock();
        assert_eq!(inner.model.plugins.plugin_named("versioned").unwrap().version(), "1.0.0");
        assert_eq!(inner.plugins.previous["versioned"].plugin.version(), "2.0.0");
    }
    let warned = warnings.text();
    assert!(warned.contains("its host companion: the thread of the host companions"), "{warned}");
    router.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_thread_of_host_companions_starts_before_a_worker_gets_the_new_version() {
    let router = started().await;
    let silence = Silence::before(router.lock().workers.get(1));
    let back = add_rollback(&router);
    silence.after(0, 1);
    let outcome = router.execute(&Principal::router(), back).await.map(drop);
    silence.after(0, 0);
    assert!(outcome.is_err(), "a worker did not answer");
    assert_eq!(versions(&router), ["2.0.0", "2.0.0"]);
    {
        let inner = router.lock();
        let id = inner.model.plugins.instance("v").unwrap();
        let message = Message { name: "version".to_owned(), arguments: Map::new() };
        // Without the thread, this is an error.
        assert!(inner.plugins.host_level.control(id, message).is_ok());
    }
    router.shutdown().await.unwrap();
}
