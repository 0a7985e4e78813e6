//! Changes of which a worker leaves a question unanswered.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use millrace_config::{Service, ServiceLevel};
use millrace_pipeline::{CounterCommand, PluginCommand};
use millrace_plugin::Health;
use millrace_plugin_abi::{
    DeclaredNeeds, Instance, Instant, Message, Packets, Plugin, PluginError, Position, Progress, Reply,
};
use millrace_repository::Held;
use millrace_telemetry::EventKind;
use tracing::field::Field;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::*;
use crate::model::PluginChange;
use crate::model::placements::{PlacedService, Used};
use crate::plugins::Earlier;
use crate::router::Inner;

/// Number of questions without an answer: one, or all, also those of the undo steps.
const LOST: [u64; 2] = [1, u64::MAX];

/// Executes a change again and again, and leaves a later question unanswered each time, until all are answered.
/// Nothing must have changed after each failure. Returns the outcome of the last execution.
pub(super) async fn leave_unanswered<O: Operation<Kind = Change> + Clone>(
    router: &Router,
    silence: &Silence,
    name: &str,
    operation: &O,
) -> Result<(), ControlError> {
    let (running, mut before) = (router.running(), seen(router).await);
    for (answered, lost) in (0..).flat_map(|answered| LOST.map(|lost| (answered, lost))) {
        silence.after(answered, lost);
        let outcome = router.execute(&Principal::router(), operation.clone()).await.map(drop);
        let is_answered = silence.is_whole(lost);
        silence.after(0, 0);
        if is_answered {
            let is_own = [
                "LoadPlugin",
                "UnloadPlugin",
                "SetAdmission",
                "AddAllowance",
                "SetAllowance",
                "RemoveAllowance",
            ];
            let is_own = is_own.contains(&name);
            assert!(answered > 0 || is_own, "{name} asks no worker");
            return outcome;
        }
        if outcome.is_ok() {
            // The question was only for a warning in the log.
            let changes = router.running().difference(&running).changes;
            router.change(move |_| Ok((changes, ())), |_, ()| Ok(())).await.unwrap();
            before = seen(router).await;
            continue;
        }
        // Control does this every second: it sends routes again that a worker may lack.
        router.lock().tell_own(&[]).unwrap();
        let context = format!("{name}, question {answered}, {lost} lost: {outcome:?}");
        let error = outcome.expect_err(&context).to_string();
        assert!(error.contains("worker 1 did not answer within 5 s; nothing was changed"), "{context}");
        assert!(!error.contains("except for"), "{context}");
        let after = seen(router).await;
        let different = after.lines().zip(before.lines()).find(|(after, before)| after != before);
        assert_eq!(different, None, "{context}");
        assert_eq!(after.len(), before.len(), "{context}");
    }
    Ok(())
}

/// Returns the state that control and workers report.
async fn seen(router: &Router) -> String {
    let own = Principal::router();
    let packet = |packet: &str| Lookup { packet: packet.to_owned() };
    let mut all = router.execute(&own, GetConfiguration).await.unwrap().text;
    for one in ["dst 10.9.0.1 proto tcp dport 25", "dst 10.6.0.1 proto udp dport 9", "dst 10.7.0.1 proto tcp"]
    {
        let lookup = packet(&format!("src 10.1.0.7 {one} in lan"));
        write!(all, "{:#?}", router.execute(&own, lookup).await.unwrap()).unwrap();
    }
    macro_rules! add {
        ($($query:expr),*) => {
            $(write!(all, "\n{:#?}", router.execute(&own, $query).await.unwrap()).unwrap();)*
        };
    }
    add!(ListBindings::default(), ListGates, ListInstances, ListSchedulers, ListNeighbours, ListPlacements);
    add!(ListRoutes::default(), GetSettings, GetAdmission);
    // Rates depend on the time since the last read, and the sizes of tables on what they held. Counters of a
    // scheduler's node begin anew when it has been below another root.
    let stays = |line: &&str| {
        let key = line.trim_start();
        !["memory: ", "delivered: ", "sent_", "peak_"].iter().any(|other| key.starts_with(other))
    };
    all.lines().filter(stays).collect::<Vec<_>>().join("\n")
}

/// Plugin and instance of a version, which the instance tells. Version 1.0.0 needs memory.
#[derive(Clone, Debug)]
pub(super) struct Versioned(pub(super) &'static str);

impl Plugin for Versioned {
    fn name(&self) -> &'static str {
        "versioned"
    }

    fn version(&self) -> &'static str {
        self.0
    }

    fn summary(&self) -> &'static str {
        "Tells its version."
    }

    fn positions(&self) -> &'static [Position] {
        &Position::ALL
    }

    fn messages(&self) -> &'static [(&'static str, &'static str)] {
        &[("version", "Tells the version.")]
    }

    fn declared_needs(&self) -> DeclaredNeeds {
        let memory = if self.0 == "1.0.0" { 4096.0 } else { 0.0 };
        DeclaredNeeds { memory, ..DeclaredNeeds::default() }
    }

    fn create(&self, _: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        Ok(Box::new(self.clone()))
    }
}

impl Instance for Versioned {
    fn process(&mut self, _: &mut Packets<'_>, _: Instant) -> Progress {
        Progress::Done
    }

    fn control(&mut self, _: &Message) -> Reply {
        Ok(json!(self.0))
    }
}

/// Adds instance `v` of version 2.0.0.
pub(super) fn add_versioned(router: &Router) {
    let mut inner = router.lock();
    inner.model.plugins.add_plugin(Arc::new(Versioned("2.0.0"))).unwrap();
    let (plugin, name) = ("versioned".into(), "v".into());
    let (settings, service, owner, owner_role) = (Map::new(), None, None, None);
    let instance = millrace_config::Instance { plugin, name, settings, service, owner, owner_role };
    inner.create_instance(&instance).unwrap();
}

/// Returns the version of instance `v` at each worker.
pub(super) fn versions(router: &Router) -> Vec<Value> {
    let mut inner = router.lock();
    let id = inner.model.plugins.instance("v").unwrap();
    let message = Message { name: "version".to_owned(), arguments: Map::new() };
    let replies = inner.workers.ask(|reply| PluginCommand::Control(id, message.clone(), reply)).unwrap();
    replies.into_iter().flat_map(Option::unwrap).map(Result::unwrap).collect()
}

#[tokio::test]
async fn a_version_that_a_worker_does_not_answer_is_taken_back_everywhere() {
    let router = started().await;
    let silence = Silence::before(router.lock().workers.get(1));
    add_versioned(&router);
    let earlier = Earlier { plugin: Arc::new(Versioned("1.0.0")), file: None };
    router.lock().plugins.previous.insert("versioned", earlier);
    let back = RollBackPlugin { name: "versioned".to_owned() };
    for lost in LOST {
        silence.after(0, lost);
        let refused = router.execute(&Principal::router(), back.clone()).await.map(drop).unwrap_err();
        silence.after(0, 0);
        let refused = refused.to_string();
        assert!(refused.contains("worker 1 did not answer") && refused.contains("2.0.0 keeps"), "{refused}");
        assert_eq!(versions(&router), ["2.0.0", "2.0.0"], "{lost} lost");
    }
    router.execute(&Principal::router(), back).await.unwrap();
    assert_eq!(versions(&router), ["1.0.0", "1.0.0"]);
    router.shutdown().await.unwrap();
}

/// Texts of the warnings that a thread logs.
#[derive(Clone, Default)]
pub(super) struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    pub(super) fn text(&self) -> String {
        self.0.lock().unwrap().join("\n")
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = String::new();
        event.record(&mut |field: &Field, value: &dyn Debug| write!(text, "{field}={value:?} ").unwrap());
        self.0.lock().unwrap().push(text);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn a_version_stays_and_a_warning_is_logged_if_a_worker_does_not_answer_about_new_levels() {
    let router = started().await;
    let silence = Silence::before(router.lock().workers.get(1));
    add_versioned(&router);
    {
        let mut inner = router.lock();
        let earlier = Earlier { plugin: Arc::new(Versioned("1.0.0")), file: None };
        inner.plugins.previous.insert("versioned", earlier);
        // Neither version has an eBPF variant, so the service leaves the offload once its costs change.
        let service = Service { rate: 10, packet: Some(100.0), ..Service::default() };
        let (instance, plugin) = ("v".to_owned(), "versioned");
        let (level, used) = (ServiceLevel::Offload, Used::default());
        inner.model.placements.put(PlacedService { instance, plugin, service, level, used });
    }
    let level = || router.lock().model.placements.service("v").map(|placed| placed.level);
    let back = RollBackPlugin { name: "versioned".to_owned() };
    let warnings = Warnings::default();
    for answered in 0.. {
        let logs = tracing::subscriber::set_default(warnings.clone());
        silence.after(answered, 1);
        let outcome = router.execute(&Principal::router(), back.clone()).await.map(drop);
        let is_answered = silence.is_whole(1);
        silence.after(0, 0);
        drop(logs);
        assert!(!is_answered, "the workers are asked about the levels last: {outcome:?}");
        if outcome.is_ok() {
            break;
        }
        // A question before: nothing has changed.
        assert_eq!(versions(&router), ["2.0.0", "2.0.0"], "{outcome:?}");
        assert_eq!(level(), Some(ServiceLevel::Offload), "{outcome:?}");
        warnings.0.lock().unwrap().clear();
    }
    assert_eq!(versions(&router), ["1.0.0", "1.0.0"]);
    assert_eq!(level(), Some(ServiceLevel::Worker));
    let warned = warnings.text();
    let words = ["the levels and shares of its instances: worker 1 did not answer", "plugin=\"versioned\""];
    assert!(words.iter().all(|word| warned.contains(word)), "{warned}");
    router.shutdown().await.unwrap();
}

/// Puts instance `v` into quarantine. `is_held`: from its creation, by an entry on disk.
fn quarantine(router: &Router, is_held: bool) {
    let (why, since) = ("it hung".to_owned(), 0);
    if is_held {
        let (instance, plugin) = ("v".to_owned(), "versioned".to_owned());
        let held = Held { instance, plugin, since, why };
        router.lock().model.repository.quarantine_mut().put(held).unwrap();
        return add_versioned(router);
    }
    add_versioned(router);
    let mut inner = router.lock();
    let id = inner.model.plugins.instance("v").unwrap();
    inner.gates().tell_and_wait(vec![PluginChange::Quarantine { id, why: why.clone() }]).unwrap();
    let Inner { model, observation, .. } = &mut *inner;
    observation.note_quarantine(model, id, &why);
}

/// Returns whether instance `v` is in quarantine at a worker.
fn is_quarantined(router: &Router, worker: usize) -> bool {
    let mut inner = router.lock();
    let id = inner.model.plugins.instance("v").unwrap();
    let snapshot = inner.workers.get(worker).ask(CounterCommand::Snapshot).unwrap();
    snapshot.instances.iter().any(|(known, report)| *known == id && report.health == Health::Quarantined)
}

/// Returns the number of events of releases.
async fn releases(router: &Router) -> usize {
    let events = router.execute(&Principal::router(), ListEvents::default()).await.unwrap();
    events.events.iter().filter(|event| event.kind == EventKind::InstanceReleased).count()
}

#[tokio::test]
async fn a_release_that_a_worker_does_not_answer_takes_effect_there_when_it_answers() {
    for is_held in [true, false] {
        let router = started().await;
        let silence = Silence::before(router.lock().workers.get(1));
        quarantine(&router, is_held);
        assert_eq!([0, 1].map(|worker| is_quarantined(&router, worker)), [true; 2]);
        let release = async || {
            let (own, begun) = (Principal::router(), std::time::Instant::now());
            let released = router.execute(&own, ReleaseInstance { name: "v".to_owned() }).await;
            (released.map(drop).map_err(|error| error.to_string()), begun.elapsed().as_secs())
        };
        silence.hold(true);
        let pending =
            "instance \"v\": worker 1 has not answered: it releases the instance when it answers again";
        let (refused, seconds) = release().await;
        assert!(refused.unwrap_err().starts_with(pending) && seconds < 10, "{seconds} s");
        // The others have released it, and a further request doesn't wait.
        assert_eq!((is_quarantined(&router, 0), releases(&router).await), (false, 0));
        let (refused, seconds) = release().await;
        assert!(refused.unwrap_err().starts_with(pending) && seconds < 1, "{seconds} s");
        silence.hold(false);
        router.lock().workers.barrier().unwrap();
        assert_eq!([0, 1].map(|worker| is_quarantined(&router, worker)), [false; 2]);
        assert_eq!(versions(&router), ["2.0.0", "2.0.0"]);
        let (refused, _) = release().await;
        assert_eq!(refused.unwrap_err(), "instance \"v\" is not in quarantine");
        assert_eq!(releases(&router).await, 1);
        router.shutdown().await.unwrap();
    }
}
