//! Tests of a router whose worker does not answer or has ended.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use millrace_config::Config;
use millrace_plugin_abi::{
    Instance, Instant, Message, Output, Packets, Plugin, PluginError, Position, Progress, Reply, Request,
};
use millrace_units::InstanceId;
use serde_json::{Map, Value, json};

use crate::operation::{GetSummary, Principal};
use crate::request::NewRoute;
use crate::router::Inner;
use crate::routes::changes::parse_route;
use crate::workers::handle::silence::Silence;
use crate::workers::memory_guard::MemoryGuard;
use crate::{ControlError, Router, StartOptions, start};

const CONFIG: &str = r#"
[router]
workers = 2
[plugins]
state = "none"
[[port]]
name = "lan"
kind = "memory"
address = ["10.1.0.1/24"]
"#;
/// Duration that includes at least two checks of the workers.
const ROUNDS: Duration = Duration::from_millis(2500);

/// Returns an instance without settings.
fn instance(plugin: &str, name: &str) -> millrace_config::Instance {
    let (plugin, name) = (plugin.into(), name.into());
    millrace_config::Instance {
        plugin,
        name,
        settings: Map::new(),
        service: None,
        owner: None,
        owner_role: None,
    }
}

fn with_router(work: impl AsyncFn(Router)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let config = Config::parse(CONFIG, "one.toml").unwrap();
        work(start(config, StartOptions::default()).await.unwrap()).await;
    });
}

#[test]
fn router_with_a_silent_worker_continues_and_reports_errors() {
    with_router(async |router| {
        let silence = Silence::before(router.lock().workers.get(0));
        silence.after(0, u64::MAX);
        let asked = async {
            tokio::time::sleep(ROUNDS).await;
            let refused = router.execute(&Principal::router(), GetSummary).await.map(drop).unwrap_err();
            assert!(
                matches!(&refused, ControlError::Silent(text) if text.contains("did not answer")),
                "{refused}"
            );
            silence.after(0, 0);
            tokio::time::sleep(ROUNDS).await;
            router.execute(&Principal::router(), GetSummary).await.map(drop).unwrap();
        };
        tokio::select! {
            biased;
            ended = router.run() => panic!("it ended: {ended:?}"),
            () = asked => {}
        }
        // `silence` is dropped last: the worker still has to receive the stop command.
        router.shutdown().await.unwrap();
    });
}

#[test]
fn a_router_whose_worker_has_ended_ends() {
    with_router(async |router| {
        router.lock().workers.stop().unwrap();
        let ended = tokio::time::timeout(4 * ROUNDS, router.run()).await.expect("it goes on");
        assert_eq!(ended.unwrap_err().to_string(), "a worker of the data plane has ended");
        router.shutdown().await.unwrap();
    });
}

/// Stops the workers, and waits until their threads have ended.
fn stop_workers(inner: &mut Inner) {
    inner.workers.stop().unwrap();
    while !inner.workers.has_one_ended() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn port_settings_that_a_worker_did_not_get_count_as_unchanged() {
    with_router(async |router| {
        {
            let mut inner = router.lock();
            stop_workers(&mut inner);
            let before: Vec<_> = inner.model.ports.iter().map(|plan| plan.settings.clone()).collect();
            inner.model.ports[0].settings.mtu = 1400;
            inner.tell_ports(before.clone()).unwrap_err();
            assert_eq!(inner.model.ports[0].settings, before[0]);
        }
        router.shutdown().await.unwrap();
    });
}

#[test]
fn an_own_route_that_a_silent_worker_did_not_get_is_sent_again() {
    with_router(async |router| {
        let silence = Silence::before(router.lock().workers.get(0));
        let has_route = || router.lock().routes.table.prefix_of([10, 9, 0, 1].into()).is_some();
        let new = NewRoute {
            to: "10.9.0.0/16".into(),
            via: vec![[10, 1, 0, 2].into()],
            port: None,
            kind: Default::default(),
        };
        let route = parse_route(&new).unwrap();
        silence.after(0, 1);
        {
            let mut inner = router.lock();
            inner.model.add_route(&route).unwrap();
            let refused = inner.tell_own(&[*route.to.value()]).unwrap_err();
            assert!(matches!(&refused, ControlError::Silent(_)), "{refused}");
        }
        assert!(!has_route());
        tokio::select! {
            biased;
            ended = router.run() => panic!("it ended: {ended:?}"),
            () = tokio::time::sleep(ROUNDS) => {}
        }
        assert!(has_route());
        router.shutdown().await.unwrap();
    });
}

#[test]
fn memory_is_watched_while_a_worker_is_silent() {
    static RECOVERED: AtomicBool = AtomicBool::new(false);
    let recover = || {
        RECOVERED.store(true, Ordering::Relaxed);
        true
    };
    with_router(async |router| {
        let silence = Silence::before(router.lock().workers.get(0));
        silence.after(0, 1);
        router.lock().look(Some(MemoryGuard { has_room: |_| true, recover })).unwrap_err();
        assert!(RECOVERED.load(Ordering::Relaxed));
        drop(silence);
    });
}

/// Host companion that answers each message with a message and a request, and panics at an empty message.
struct Asker(VecDeque<Output>);

impl Instance for Asker {
    fn process(&mut self, _: &mut Packets<'_>, _: Instant) -> Progress {
        Progress::Done
    }

    fn control(&mut self, _: &Message) -> Reply {
        Ok(json!({}))
    }

    fn message(&mut self, bytes: &[u8]) -> Progress {
        assert!(!bytes.is_empty(), "empty message");
        let request = Request { json: "{}".to_owned(), granted: Default::default() };
        self.0.extend([Output::Message(vec![1]), Output::Request(request)]);
        Progress::Done
    }

    fn has_output(&self) -> bool {
        !self.0.is_empty()
    }

    fn take_output(&mut self) -> Option<Output> {
        self.0.pop_front()
    }
}

const COMPANION: InstanceId = InstanceId(7);

fn put_companion(inner: &mut Inner) {
    inner.plugins.host_level.put(COMPANION, Some(Box::new(Asker(VecDeque::new()))), (0, true)).unwrap();
}

#[test]
fn instances_are_created_and_freed_after_the_thread_of_host_companions_has_ended() {
    with_router(async |router| {
        {
            let mut inner = router.lock();
            put_companion(&mut inner);
            inner.plugins.host_level.message(COMPANION, Vec::new());
            while inner.plugins.host_level.report().is_ok_and(|reports| !reports.is_empty()) {}
            std::thread::sleep(Duration::from_millis(100));
            inner.create_instance(&instance("null", "n")).unwrap();
            inner.free_instance("n").unwrap();
            put_companion(&mut inner);
            assert_eq!(inner.plugins.host_level.report().unwrap().len(), 1);
        }
        router.shutdown().await.unwrap();
    });
}

/// Plugin whose instances can't be created at the second worker.
#[derive(Debug, Default)]
struct Fickle(AtomicUsize);

impl Plugin for Fickle {
    fn name(&self) -> &'static str {
        "fickle"
    }

    fn version(&self) -> &'static str {
        "1.0.0"
    }

    fn summary(&self) -> &'static str {
        "Refuses every second instance."
    }

    fn positions(&self) -> &'static [Position] {
        &Position::ALL
    }

    fn messages(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    fn create(&self, _: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        match self.0.fetch_add(1, Ordering::Relaxed) % 2 {
            0 => Ok(Box::new(Asker(VecDeque::new()))),
            _ => Err(PluginError::Refused("no room".to_owned())),
        }
    }
}

#[test]
fn an_instance_that_one_worker_can_t_create_exists_nowhere() {
    with_router(async |router| {
        {
            let mut inner = router.lock();
            inner.model.plugins.add_plugin(Arc::new(Fickle::default())).unwrap();
            let refused = inner.create_instance(&instance("fickle", "f")).unwrap_err();
            assert!(refused.to_string().contains("no room"), "{refused}");
            assert!(inner.model.plugins.instance("f").is_err());
        }
        router.shutdown().await.unwrap();
    });
}
