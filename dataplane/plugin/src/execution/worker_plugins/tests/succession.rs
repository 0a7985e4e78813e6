//! Tests of upgrades of instances, and of shadow instances.

use super::*;
use crate::execution::instances::ContextKey;
use crate::execution::waiting::AwaitedContext;

/// Instance that counts packets, and hands the count over to a successor with the same version of the state
/// format.
struct Keeper {
    count: u8,
    takes: u32,
    flow_state: usize,
    /// Service state: packets of this instance and its predecessors.
    common: Vec<u8>,
}

impl Instance for Keeper {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        packets.for_each(|_, _| {
            self.count += 1;
            self.common.iter_mut().for_each(|common| *common += 1);
            Verdict::Pass
        });
        Progress::Done
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn flow_state(&self) -> usize {
        self.flow_state
    }

    fn service_state(&self) -> Vec<u8> {
        self.common.clone()
    }

    fn adopt_service_state(&mut self, state: &[u8]) {
        self.common = state.to_vec();
    }

    fn hears_flow_ends(&self) -> bool {
        false
    }

    fn save(&mut self) -> Result<Option<Vec<u8>>, PluginError> {
        Ok(Some(vec![self.count]))
    }

    fn restore(&mut self, state: &[u8], version: u32) -> Result<(), PluginError> {
        if version != self.takes {
            return Err(PluginError::setting("keeper", "restore", format!("version {version}")));
        }
        self.count = state[0];
        Ok(())
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(json!(self.count))
    }
}

pub(super) fn successor(
    instance: impl Instance + 'static,
    inheritance: Inheritance,
    same_version: bool,
) -> Successor {
    Successor::new(vec![Box::new(instance)], inheritance, 1, same_version)
}

/// Replaces instance 0; the channel receives the result.
pub(super) fn succeed(
    worker: &mut WorkerPlugins<ByPort>,
    successor: Successor,
) -> std::sync::mpsc::Receiver<Option<Succession>> {
    let (sender, told) = std::sync::mpsc::channel();
    worker.succeed(InstanceId(0), successor, at(0), Box::new(move |end| sender.send(end).unwrap()));
    told
}

fn with_keeper() -> (WorkerPlugins<ByPort>, PathId) {
    let mut worker = worker();
    let keeper = Box::new(Keeper { count: 0, takes: 0, flow_state: 0, common: vec![0] });
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance: keeper });
    bind(&mut worker, 0, 0, 80, 0);
    let path = path_of(&mut worker, 80);
    send(&mut worker, path, Position::Early, &[1, 2, 3]);
    (worker, path)
}

/// The upgrade to another format of the flow state gives the instance another key.
#[test]
fn turns_at_a_context_stay_in_an_upgrade_and_end_with_the_instance() {
    let (mut worker, _) = with_keeper();
    let key = |worker: &WorkerPlugins<ByPort>| worker.calls.instances.key(InstanceId(0)).unwrap();
    let context = |worker: &WorkerPlugins<ByPort>| {
        AwaitedContext::of(ContextKey::first(key(worker)), &worker.calls.instances).unwrap()
    };
    let (before, old) = (context(&worker), key(&worker));
    for flow_state in [8, 16] {
        let keeper = Keeper { count: 0, takes: 1, flow_state, common: vec![0] };
        succeed(&mut worker, successor(keeper, Inheritance::Required, false));
        assert_eq!(context(&worker), before);
        assert_eq!(before.key(&worker.calls.instances), Some(ContextKey::first(key(&worker))));
    }
    assert_ne!(key(&worker), old);
    let keeper = Box::new(Keeper { count: 0, takes: 0, flow_state: 0, common: vec![0] });
    drop(worker.apply(PluginChange::AddInstance { id: InstanceId(0), instance: keeper }));
    assert_eq!(before.key(&worker.calls.instances), None);
    assert_ne!(context(&worker), before);
}

#[test]
fn successor_takes_over_the_state() {
    let (mut worker, path) = with_keeper();
    let keeper = |takes| Keeper { count: 100, takes, flow_state: 0, common: vec![0] };
    let told = succeed(&mut worker, successor(keeper(1), Inheritance::Required, true));
    assert_eq!(told.try_recv().unwrap().unwrap().inherited, Ok(Inherited::Bytes(1)));
    send(&mut worker, path, Position::Early, &[1]);
    assert_eq!((seen(&mut worker, 0), worker.bindings.take_reclassify()), (4, false));
    // This successor can't adopt the state.
    let told = succeed(&mut worker, successor(keeper(2), Inheritance::Required, true));
    assert!(told.try_recv().unwrap().unwrap().inherited.is_err());
    assert_eq!(seen(&mut worker, 0), 4);
    let told = succeed(&mut worker, successor(keeper(2), Inheritance::Tried, true));
    assert!(matches!(told.try_recv().unwrap().unwrap().inherited, Ok(Inherited::Lost(_))));
    assert_eq!(seen(&mut worker, 0), 100);
    let told = succeed(&mut worker, successor(keeper(1), Inheritance::Renounced, true));
    assert_eq!(told.try_recv().unwrap().unwrap().inherited, Ok(Inherited::Nothing));
    assert_eq!(seen(&mut worker, 0), 100);
    let (sender, told) = std::sync::mpsc::channel();
    let end = Box::new(move |end: Option<Succession>| sender.send(end.is_none()).unwrap());
    worker.succeed(InstanceId(7), successor(keeper(1), Inheritance::Tried, true), at(0), end);
    assert!(told.try_recv().unwrap());
}

#[test]
fn service_state_is_handed_over_within_a_version() {
    for (inheritance, same_version, expected) in [
        (Inheritance::Required, true, 3),
        (Inheritance::Tried, true, 3),
        (Inheritance::Required, false, 0),
        (Inheritance::Renounced, true, 0),
    ] {
        let (mut worker, path) = with_keeper();
        let keeper = Keeper { count: 0, takes: 1, flow_state: 0, common: vec![0] };
        let told = succeed(&mut worker, successor(keeper, inheritance, same_version));
        let old = told.try_recv().unwrap().unwrap();
        assert_eq!((old.inherited.is_ok(), old.contexts[0].service_state()), (true, vec![3]));
        send(&mut worker, path, Position::Early, &[1]);
        let none = Keeper { count: 0, takes: 1, flow_state: 0, common: vec![] };
        let told = succeed(&mut worker, successor(none, inheritance, same_version));
        let common = told.try_recv().unwrap().unwrap().contexts[0].service_state();
        assert_eq!(common, [expected + 1], "{inheritance:?} {same_version}");
        // A successor whose service state has another size adopts nothing.
        let told = succeed(&mut worker, successor(keeper_of_two(), inheritance, same_version));
        assert_eq!(told.try_recv().unwrap().unwrap().contexts[0].service_state(), [] as [u8; 0]);
    }
}

fn keeper_of_two() -> Keeper {
    Keeper { count: 0, takes: 1, flow_state: 0, common: vec![0; 2] }
}

#[test]
fn a_successor_waits_for_the_end_of_a_call() {
    let (mut worker, path) = with_slow(2);
    let pool = Pool::new(64).unwrap();
    send_and_keep(&mut worker, &pool, path, &[10], at(0));
    send_and_keep(&mut worker, &pool, path, &[11], at(0));
    let keeper = Keeper { count: 5, takes: 1, flow_state: 0, common: vec![0] };
    let told = succeed(&mut worker, successor(keeper, Inheritance::Tried, true));
    assert!(told.try_recv().is_err());
    let released: Vec<_> = (0..3).flat_map(|_| released(&mut worker, at(0))).collect();
    assert_eq!(released, [(10, None), (11, None)]);
    assert_eq!(told.try_recv().unwrap().unwrap().inherited, Ok(Inherited::Nothing));
    // The waiting packet went to the new instance.
    assert_eq!(seen(&mut worker, 0), 6);
    assert!(worker.is_idle());
}

#[test]
fn failed_instance_is_replaced_without_its_state() {
    let (mut worker, path) = with_slow(0);
    let pool = Pool::new(64).unwrap();
    send_and_keep(&mut worker, &pool, path, &[9], at(0));
    let keeper = Keeper { count: 5, takes: 1, flow_state: 0, common: vec![0] };
    let told = succeed(&mut worker, successor(keeper, Inheritance::Required, true));
    let Ok(Inherited::Lost(why)) = told.try_recv().unwrap().unwrap().inherited else {
        panic!("nothing is lost")
    };
    assert_eq!(
        why,
        "the old instance was pausing and handed over no state; the new instance starts without state"
    );
    assert_eq!(worker.instances().reports().next().unwrap().1.health, Health::Well);
    send(&mut worker, path, Position::Early, &[1]);
    assert_eq!(seen(&mut worker, 0), 6);
}

/// Instance that counts packets, and dies when it saves its state.
#[derive(Default)]
struct DiesOfSaving {
    packets: u8,
    dead: bool,
}

impl Instance for DiesOfSaving {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        let dead = self.dead;
        packets.for_each(|_, _| if dead { Verdict::Fault } else { Verdict::Pass });
        self.packets += 1;
        Progress::Done
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn save(&mut self) -> Result<Option<Vec<u8>>, PluginError> {
        self.dead = true;
        Err(PluginError::Refused("it is dead".into()))
    }

    fn take_fault(&mut self) -> Option<Fault> {
        self.dead.then(|| Fault { kind: "dead", text: "it died of saving".into() })
    }

    fn restart(&mut self) -> Result<(), PluginError> {
        *self = Self::default();
        Ok(())
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(json!(self.packets))
    }
}

#[test]
fn instance_that_faults_during_state_hand_over_is_replaced_at_once() {
    let mut worker = worker();
    let old = Box::new(DiesOfSaving::default());
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance: old });
    bind(&mut worker, 0, 0, 80, 0);
    let path = path_of(&mut worker, 80);
    let keeper = || Keeper { count: 5, takes: 1, flow_state: 0, common: vec![] };
    // Repeat more often than the number of faults that leads to quarantine.
    for _ in 0..2 * Limits::default().faults {
        let told = succeed(&mut worker, successor(keeper(), Inheritance::Required, true));
        assert!(told.try_recv().unwrap().unwrap().inherited.is_err());
        assert_eq!(worker.instances().reports().next().unwrap().1.health, Health::Well);
        send(&mut worker, path, Position::Early, &[1]);
        assert_eq!(seen(&mut worker, 0), 1);
    }
    assert_eq!(worker.bindings.counts(BindingId(0)).unwrap().drops, 0);
    let (_, report) = worker.instances().reports().next().unwrap();
    assert_eq!((report.faults["dead"], &*report.last_fault), (16, "it died of saving"));
}

#[test]
fn another_kind_of_flow_state_starts_empty() {
    let (mut worker, path) = with_keeper();
    for (flow_state, same_version, anew) in
        [(8, true, true), (8, true, false), (8, false, true), (0, true, true)]
    {
        let keeper = Keeper { count: 0, takes: 1, flow_state, common: vec![] };
        let told = succeed(&mut worker, successor(keeper, Inheritance::Required, same_version));
        assert!(told.try_recv().unwrap().unwrap().inherited.is_ok());
        assert_eq!(worker.bindings.take_reclassify(), anew, "{flow_state} {same_version}");
    }
    let new = path_of(&mut worker, 80);
    assert_ne!(new, path);
    assert_eq!(seen(&mut worker, 0), 3);
    send(&mut worker, new, Position::Early, &[1]);
    assert_eq!(seen(&mut worker, 0), 4);
}

/// Packets may wait for the processor meanwhile.
#[test]
fn successor_gets_packets_that_found_their_path_before_the_upgrade() {
    let (mut worker, path) = with_keeper();
    for (flow_state, packets) in [(8, 4), (16, 5)] {
        let path = if flow_state == 8 { path } else { path_of(&mut worker, 80) };
        let keeper = Keeper { count: 0, takes: 1, flow_state, common: vec![] };
        succeed(&mut worker, successor(keeper, Inheritance::Required, false));
        send(&mut worker, path, Position::Early, &[1]);
        assert_eq!(seen(&mut worker, 0), packets, "{flow_state}");
    }
}

#[test]
fn shadow_reports_different_verdicts() {
    let pool = Pool::new(64).unwrap();
    for (verdict, different) in [(Verdict::Pass, 0), (Verdict::Drop(1), 3)] {
        let (mut worker, path) = with_keeper();
        let (sender, told) = std::sync::mpsc::channel();
        let reported = Box::new(move |report| sender.send(report).unwrap());
        worker.instances_mut().shadow((InstanceId(0), 0), Box::new(Says(verdict)), 3, pool.clone(), reported);
        send(&mut worker, path, Position::Early, &[1, 2]);
        assert!(told.try_recv().is_err());
        send(&mut worker, path, Position::Early, &[1, 2]);
        let report = told.try_recv().unwrap().unwrap();
        assert_eq!((report.packets, report.different, report.fault), (3, different, None));
        let first = "packet 1, from 127.0.0.1 to 127.0.0.1: the old version passes it, the new version drops it for reason 1";
        assert_eq!(report.first.as_deref(), (different > 0).then_some(first));
        assert_eq!(seen(&mut worker, 0), 7);
    }
    let (mut worker, path) = with_keeper();
    let (sender, told) = std::sync::mpsc::channel();
    let reported = Box::new(move |report| sender.send(report).unwrap());
    let slow = Box::new(Slow { slices: 10, ..Slow::default() });
    worker.instances_mut().shadow((InstanceId(0), 0), slow, 3, pool.clone(), reported);
    send(&mut worker, path, Position::Early, &[1, 2]);
    let report: Option<ShadowReport> = told.try_recv().unwrap();
    let fault = "a call for 2 packets took more than its budget of 500 us (10 slices of 50 us): a loop, or a long search";
    assert_eq!(report.unwrap().fault.unwrap(), fault);
    assert_eq!(pool.in_use(), 0);
}

/// Instance that adopts a part of a state before it refuses the rest. It can restart only if `can` is set.
struct Halfway {
    count: u8,
    can: bool,
}

impl Instance for Halfway {
    fn process(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
        Progress::Done
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn restore(&mut self, state: &[u8], _version: u32) -> Result<(), PluginError> {
        self.count = state[0];
        Err(PluginError::Refused("the other half is missing".into()))
    }

    fn restart(&mut self) -> Result<(), PluginError> {
        self.count = 0;
        if self.can { Ok(()) } else { Err(PluginError::Refused("no memory".into())) }
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(json!(self.count))
    }
}

#[test]
fn successor_with_partial_state_restarts() {
    let (mut worker, _) = with_keeper();
    let problem = "the new instance does not accept the state: the other half is missing";
    let half = |can| successor(Halfway { count: 0, can }, Inheritance::Tried, true);
    let told = succeed(&mut worker, half(false));
    let refused = format!("{problem}; and the new instance can't restart: no memory");
    assert_eq!(told.try_recv().unwrap().unwrap().inherited, Err(refused));
    assert_eq!(seen(&mut worker, 0), 3);
    let told = succeed(&mut worker, half(true));
    assert_eq!(told.try_recv().unwrap().unwrap().inherited, Ok(Inherited::Lost(problem.into())));
    assert_eq!(seen(&mut worker, 0), 0);
}

/// Instance that can't save its state.
struct Mute;

impl Instance for Mute {
    fn process(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
        Progress::Done
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn save(&mut self) -> Result<Option<Vec<u8>>, PluginError> {
        Err(PluginError::Refused("no words".into()))
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(json!(null))
    }
}

#[test]
fn successor_without_state_continues_unchanged() {
    for inheritance in [Inheritance::Tried, Inheritance::Required] {
        let (mut worker, _) = with_keeper();
        succeed(&mut worker, successor(Mute, Inheritance::Renounced, true));
        // No state is handed over, so the successor need not restart. It could not restart, either.
        let told = succeed(&mut worker, successor(Halfway { count: 7, can: false }, inheritance, true));
        let inherited = told.try_recv().unwrap().unwrap().inherited;
        let problem = "the old instance hands over no state: no words".to_owned();
        match inheritance {
            Inheritance::Tried => {
                assert_eq!(inherited, Ok(Inherited::Lost(problem)));
                assert_eq!(seen(&mut worker, 0), 7);
            }
            _ => assert_eq!(inherited, Err(problem)),
        }
    }
}

#[test]
fn refused_state_hand_over_is_reported_in_a_sentence() {
    let (mut worker, _) = with_keeper();
    let told = succeed(&mut worker, successor(Picky(0), Inheritance::Required, true));
    let problem = "the new instance does not accept the state: can't restore state of version 1: the plugin takes over no state";
    assert_eq!(told.try_recv().unwrap().unwrap().inherited, Err(problem.into()));
}

/// Instance that reports these counters.
struct Counting(Vec<(&'static str, u64)>);

impl Instance for Counting {
    fn process(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
        Progress::Done
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(json!(null))
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.0.clone()
    }
}

#[test]
fn counters_of_equal_names_continue_and_are_cleared_together() {
    let mut worker = worker();
    let first = Box::new(Counting(vec![("late", 3), ("early", 1)]));
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance: first });
    let second = Counting(vec![("late", 2), ("odd", 5)]);
    let told = succeed(&mut worker, successor(second, Inheritance::Renounced, false));
    let contexts = told.recv().unwrap().unwrap().contexts;
    let counters = |worker: &WorkerPlugins<ByPort>| worker.instances().reports().next().unwrap().1.counters;
    // Counts that the successor had before the upgrade are left out.
    assert_eq!(counters(&worker), [("late", 3), ("odd", 0)].into());
    let back = Successor::new(contexts, Inheritance::Renounced, 0, false);
    drop(succeed(&mut worker, back));
    assert_eq!(counters(&worker), [("late", 3), ("early", 0)].into(), "nothing is counted twice");
    worker.instances_mut().clear_counts();
    assert_eq!(counters(&worker), [("late", 0), ("early", 0)].into());
}

/// Replaces instance 0, and restores the old one as after a failed upgrade. Returns its health before and afterwards.
fn replaced_and_restored(worker: &mut WorkerPlugins<ByPort>) -> [Health; 2] {
    let health = |worker: &WorkerPlugins<ByPort>| worker.instances().reports().next().unwrap().1.health;
    let before = health(worker);
    let keeper = Keeper { count: 0, takes: 1, flow_state: 0, common: vec![0] };
    let told = succeed(worker, successor(keeper, Inheritance::Tried, true));
    let Succession { contexts, history, .. } = told.try_recv().unwrap().unwrap();
    assert_eq!(health(worker), Health::Well);
    let (inheritance, history) = (Inheritance::Renounced, Some(history));
    let back = Successor { history, ..Successor::new(contexts, inheritance, 0, false) };
    drop(succeed(worker, back));
    [before, health(worker)]
}

#[test]
fn failed_upgrade_leaves_an_instance_in_quarantine_or_in_its_pause() {
    let (mut worker, path) = with_slow(0);
    let pool = Pool::new(64).unwrap();
    send_and_keep(&mut worker, &pool, path, &[9], at(0));
    let [before, after] = replaced_and_restored(&mut worker);
    assert!(matches!(before, Health::Pausing(_)) && after == before, "{before:?} {after:?}");
    // It restarts after its pause.
    send(&mut worker, path, Position::Early, &[1]);
    let (hosted, _) = worker
        .calls
        .instances
        .get_mut(ContextKey::first(worker.calls.instances.key(InstanceId(0)).unwrap()))
        .unwrap();
    hosted.quarantine("faults".to_owned());
    assert_eq!(replaced_and_restored(&mut worker), [Health::Quarantined; 2]);
}
