//! Tests of the control side, and of both sides together.

use std::sync::Arc;

use millrace_plugin_abi::{Instance, Message, Packets, PluginError, Progress, Reply};
use millrace_units::Instant;
use serde_json::json;

use super::*;
use crate::{BindingTable, CallLimits, EMPTY_PATH, Remains, WorkerPlugins};

mod maps;

struct Quiet;

impl Instance for Quiet {
    fn process(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
        Progress::Done
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn control(&mut self, message: &Message) -> Reply {
        Ok(json!(message.name))
    }
}

/// Plugin that supports early and late gates, and takes no settings.
struct QuietPlugin;

impl Plugin for QuietPlugin {
    fn name(&self) -> &'static str {
        "quiet"
    }

    fn version(&self) -> &'static str {
        "1.0.0"
    }

    fn summary(&self) -> &'static str {
        "Does nothing."
    }

    fn positions(&self) -> &'static [Position] {
        &[Position::Early, Position::Late]
    }

    fn messages(&self) -> &'static [(&'static str, &'static str)] {
        &[("ping", "answers")]
    }

    fn create(&self, settings: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        match settings.keys().next() {
            None => Ok(Box::new(Quiet)),
            Some(key) => Err(PluginError::Setting {
                plugin: "quiet",
                setting: key.clone(),
                problem: "there are no settings".to_owned(),
            }),
        }
    }
}

type Unit = PluginControlUnit<String, u16>;

fn unit() -> Unit {
    let mut unit = Unit::new();
    unit.add_plugin(Arc::new(QuietPlugin)).unwrap();
    unit
}

fn create(unit: &mut Unit, name: &str) -> Result<InstanceId, Error> {
    unit.create_instance("quiet", name, Map::new()).map(|(id, _)| id)
}

fn bind_80(unit: &mut Unit, instance: &str, gate: &str) -> Result<BindingId, Error> {
    unit.register_instance(instance, gate, "dport 80".to_owned(), 80, 0, CallLimits::default())
        .map(|(id, _)| id)
}

#[test]
fn an_instance_is_created_bound_unbound_and_freed() {
    let mut unit = unit();
    let id = create(&mut unit, "q1").unwrap();
    bind_80(&mut unit, "q1", "monitor").unwrap();
    let (second, change) =
        unit.register_instance("q1", "process", "dport 81".to_owned(), 81, 7, CallLimits::default()).unwrap();
    assert_eq!(format!("{change:?}"), "bind 1: Instance(InstanceId(0)) at gate 4 for 81, priority 7");
    let (unbound, _) = unit.deregister_instance("q1", "process", &"dport 81".to_owned(), None).unwrap();
    assert_eq!(unbound, second);
    let changes = unit.free_instance("q1").unwrap();
    assert!(matches!(changes[0], PluginChange::Unbind { binding: BindingId(0), .. }));
    assert!(matches!(changes[1], PluginChange::RemoveInstance { id: gone } if gone == id));
    assert!(unit.bindings().is_empty() && unit.instances().is_empty());
}

#[test]
fn an_instance_is_bound_to_a_filter_once_for_each_priority() {
    let mut unit = unit();
    create(&mut unit, "q1").unwrap();
    let bind = |unit: &mut Unit, priority| {
        let filter = "dport 80".to_owned();
        unit.register_instance("q1", "monitor", filter, 80, priority, CallLimits::default()).map(|(id, _)| id)
    };
    let ids = [0, 7, -3].map(|priority| bind(&mut unit, priority).unwrap());
    assert!(bind(&mut unit, 7).unwrap_err().to_string().contains("already bound"));
    let mut unbind = |priority| {
        unit.deregister_instance("q1", "monitor", &"dport 80".to_owned(), priority).map(|(id, _)| id)
    };
    assert_eq!(unbind(Some(0)), Ok(ids[0]));
    assert!(matches!(unbind(Some(0)), Err(Error::NotBound { .. })));
    assert_eq!([unbind(None), unbind(None)], [Ok(ids[1]), Ok(ids[2])]);
}

#[test]
fn binding_number_is_never_reused() {
    let mut unit = unit();
    create(&mut unit, "q1").unwrap();
    create(&mut unit, "q2").unwrap();
    let number = |unit: &Unit, id| unit.binding(id).unwrap().number;
    let first = bind_80(&mut unit, "q1", "monitor").unwrap();
    let numbered = number(&unit, first);
    assert_eq!(unit.binding_registry().numbered(numbered), Some(first));
    unit.remove_binding(first).unwrap();
    assert_eq!(unit.binding_registry().numbered(numbered), None);
    // The unit may give the id of a removed binding to a new one, but never the number. This also holds after
    // the removal of an instance with all its bindings.
    let second = bind_80(&mut unit, "q1", "monitor").unwrap();
    assert_eq!(second, first);
    assert!(number(&unit, second) > numbered);
    let numbered = number(&unit, second);
    unit.free_instance("q1").unwrap();
    assert_eq!(unit.binding_registry().numbered(numbered), None);
    let third = bind_80(&mut unit, "q2", "monitor").unwrap();
    assert_eq!((third, unit.binding_registry().numbered(number(&unit, third))), (first, Some(third)));
    assert!(number(&unit, third) > numbered);
}

#[test]
fn refusals_name_a_remedy_and_change_nothing() {
    let mut unit = unit();
    create(&mut unit, "stats1").unwrap();
    bind_80(&mut unit, "stats1", "monitor").unwrap();
    let before = (unit.instances(), unit.gates());
    let said = |error: Error| error.to_string();
    assert_eq!(
        said(create(&mut unit, "stats1").unwrap_err()),
        "instance \"stats1\" already exists: use another name"
    );
    assert_eq!(
        said(bind_80(&mut unit, "stat1", "monitor").unwrap_err()),
        "no instance \"stat1\": did you mean \"stats1\"?"
    );
    assert_eq!(
        said(bind_80(&mut unit, "stats1", "monitr").unwrap_err()),
        "no gate \"monitr\": did you mean \"monitor\"?"
    );
    assert_eq!(
        said(bind_80(&mut unit, "stats1", "schedule").unwrap_err()),
        "gate \"schedule\" is at position queue, which does not support plugin quiet: use a gate at one of the positions early, late"
    );
    assert_eq!(
        said(bind_80(&mut unit, "stats1", "monitor").unwrap_err()),
        "instance \"stats1\" is already bound at gate \"monitor\" to \"dport 80\", with priority 0"
    );
    assert_eq!(
        said(unit.deregister_instance("stats1", "monitor", &"dport 8".to_owned(), None).unwrap_err()),
        "instance \"stats1\" is not bound at gate \"monitor\" to \"dport 8\"; at this gate it is bound to \
         \"dport 80\""
    );
    assert_eq!(
        said(unit.create_instance("noisy", "n", Map::new()).unwrap_err()),
        "no plugin \"noisy\"; plugins here: quiet"
    );
    let settings = json!({ "loud": true }).as_object().unwrap().clone();
    assert_eq!(
        said(unit.create_instance("quiet", "n", settings).unwrap_err()),
        "plugin quiet: loud: there are no settings"
    );
    assert!(matches!(create(&mut unit, "a b"), Err(Error::Name { .. })));
    assert!(matches!(create(&mut unit, ""), Err(Error::Name { .. })));
    assert!(matches!(unit.remove_plugin("quiet"), Err(Error::InUse { .. })));
    assert!(matches!(unit.remove_gate("monitor"), Err(Error::InUse { .. })));
    assert!(matches!(unit.add_plugin(Arc::new(QuietPlugin)), Err(Error::Taken { .. })));
    assert_eq!((unit.instances(), unit.gates()), before);
}

#[test]
fn gates_are_created_at_their_ordered_position() {
    let mut unit = unit();
    unit.create_gate("between", Position::Early, Some(GateOrder(15))).unwrap();
    let (last, _) = unit.create_gate("last", Position::Early, None).unwrap();
    let names: Vec<_> = unit.gates().iter().take(5).map(|gate| (gate.name.clone(), gate.order.0)).collect();
    let expected = [("options", 10), ("between", 15), ("security-in", 20), ("firewall", 30), ("last", 40)];
    assert_eq!(names, expected.map(|(name, order)| (name.to_owned(), order)));
    let taken = unit.create_gate("other", Position::Early, Some(GateOrder(15))).unwrap_err();
    assert_eq!(
        taken.to_string(),
        "order 15 at position early is taken by gate \"between\": use another order"
    );
    unit.create_gate("end", Position::Early, Some(GateOrder(u16::MAX))).unwrap();
    assert!(matches!(unit.create_gate("beyond", Position::Early, None), Err(Error::NoOrderLeft { .. })));
    unit.remove_gate("last").unwrap();
    assert_eq!(unit.create_gate("anew", Position::Copy, None).unwrap().0, last);
}

#[test]
fn there_are_as_many_gates_as_ids() {
    let mut unit = unit();
    while unit.gates().len() < 256 {
        let name = format!("g{}", unit.gates().len());
        unit.create_gate(&name, Position::Late, None).unwrap();
    }
    assert!(matches!(unit.create_gate("more", Position::Late, None), Err(Error::Full { limit: 256, .. })));
}

#[test]
fn messages_are_checked_before_sending() {
    let mut unit = unit();
    let id = create(&mut unit, "q1").unwrap();
    let message = |name: &str| Message { name: name.to_owned(), arguments: Map::new() };
    assert_eq!(unit.instance_registry().address("q1", &message("ping")), Ok(id));
    assert_eq!(
        unit.instance_registry().address("q1", &message("pong")).unwrap_err().to_string(),
        "plugin quiet has no message \"pong\"; its messages: ping"
    );
}

#[test]
fn code_of_a_plugin_contains_type_and_number() {
    let [quiet] = &unit().plugin_registry().describe()[..] else { panic!("one plugin") };
    assert_eq!(quiet.positions, ["early", "late"]);
    assert_eq!(quiet.codes, [PluginCode(0x1_0000), PluginCode(0x3_0000)]);
    assert_eq!(
        (PluginCode::new(Position::Copy, 7).kind(), PluginCode::new(Position::Copy, 7).number()),
        (5, 7)
    );
}

/// Table in which the first filter equal to the packet wins.
#[derive(Default)]
struct Exact(Vec<(u16, BindingId)>);

impl BindingTable for Exact {
    type Filter = u16;
    type Candidate = u16;

    fn insert(&mut self, filter: u16, _priority: i32, binding: BindingId) {
        self.0.push((filter, binding));
    }

    fn remove(&mut self, _filter: u16, binding: BindingId) {
        self.0.retain(|(_, other)| *other != binding);
    }

    fn lookup(&self, candidate: &u16) -> Option<BindingId> {
        self.0.iter().find(|(filter, _)| filter == candidate).map(|(_, binding)| *binding)
    }
}

fn path_of(worker: &mut WorkerPlugins<Exact>, port: u16) -> millrace_units::PathId {
    worker.classify(&port, None).path
}

#[test]
fn new_worker_gets_the_state_of_the_others() {
    let mut unit = unit();
    for name in ["a", "b"] {
        create(&mut unit, name).unwrap();
        bind_80(&mut unit, name, "monitor").unwrap();
    }
    // The removal frees the id 0, and the youngest binding gets this id.
    unit.deregister_instance("a", "monitor", &"dport 80".to_owned(), None).unwrap();
    assert_eq!(bind_80(&mut unit, "a", "monitor").unwrap(), BindingId(0));
    let mut worker = WorkerPlugins::<Exact>::new();
    for change in unit.populate().unwrap() {
        assert!(matches!(worker.apply(change), Remains::Nothing));
    }
    assert_eq!(worker.bindings.gates().len(), 9);
    let path = path_of(&mut worker, 80);
    let [stage] = worker.stages(path).collect::<Vec<_>>()[..] else { panic!("one stage") };
    assert_eq!((unit.gate_name(stage.gate), unit.instance_name(stage.instance.unwrap())), ("monitor", "b"));
    for change in unit.free_instance("b").unwrap().into_iter().chain(unit.free_instance("a").unwrap()) {
        drop(worker.apply(change));
    }
    assert_eq!(path_of(&mut worker, 80), EMPTY_PATH);
}

#[test]
fn trial_on_a_clone_leaves_the_original_unchanged() {
    let mut unit = unit();
    create(&mut unit, "a").unwrap();
    let mut trial = unit.clone();
    trial.free_instance("a").unwrap();
    assert!(unit.instance("a").is_ok() && trial.instance("a").is_err());
}

#[test]
fn instance_in_quarantine_runs_no_plugin_code_until_release() {
    let mut unit = unit();
    let settings = json!({"a": 1}).as_object().cloned().unwrap();
    // The plugin would refuse this setting, but none of its code runs.
    let (id, changes) =
        unit.create_quarantined("quiet", "q1", settings.clone(), "it hung".to_owned()).unwrap();
    let words: Vec<_> = changes.iter().map(|change| format!("{change:?}")).collect();
    assert_eq!(words, [format!("add instance {id}"), format!("instance {id} is in quarantine: it hung")]);
    bind_80(&mut unit, "q1", "monitor").unwrap();
    assert!(unit.is_held(id));
    assert_eq!(unit.instance_registry().further(&changes, 0).unwrap().len(), 1);
    assert_eq!(unit.populate().unwrap().len(), Gate::defaults().len() + 3);
    assert!(unit.successors(&QuietPlugin, 2).unwrap().is_empty(), "an upgrade doesn't let it out");
    assert!(unit.create_quarantined("quiet", "q1", settings, String::new()).is_err(), "the name is taken");
    // Release the instance with settings that the plugin accepts.
    assert!(unit.instance_registry().afresh("q1", 2).is_err());
    let less = json!({"a": null}).as_object().cloned().unwrap();
    let (successors, settings) = unit.instance_registry().with_settings("q1", &less, 2).unwrap();
    assert!(successors.instances.is_empty());
    unit.instance_registry_mut().note_settings(id, settings);
    assert_eq!(unit.instance_registry().afresh("q1", 2).unwrap().instances.len(), 2);
    unit.instance_registry_mut().note_release(id);
    assert!(!unit.is_held(id));
    assert_eq!(unit.populate().unwrap().len(), Gate::defaults().len() + 2);
}
