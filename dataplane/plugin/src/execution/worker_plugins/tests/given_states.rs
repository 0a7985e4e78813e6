//! Tests of the states of connections that control gives for upgrades.

use super::succession::succeed;
use super::*;
use crate::connection_state::ConnectionStates;

/// Instance with 8 bytes of state of this scope.
struct Keeps(StateScope);

impl Instance for Keeps {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        packets.for_each(|_, _| Verdict::Pass);
        Progress::Done
    }

    fn flow_state(&self) -> usize {
        8
    }

    fn state_scope(&self) -> StateScope {
        self.0
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(json!(null))
    }
}

fn give(worker: &mut WorkerPlugins<ByPort>) {
    let states = ConnectionStates::new(8, 4).unwrap();
    change(worker, PluginChange::GiveStates { id: InstanceId(0), states });
}

/// Returns whether states are kept for the next successor of instance 0.
fn are_kept(worker: &mut WorkerPlugins<ByPort>) -> bool {
    worker.calls.connections.take_given(0, 8).is_some()
}

fn keeper(scope: StateScope) -> Successor {
    Successor::new(vec![Box::new(Keeps(scope))], Inheritance::Tried, 1, true)
}

#[test]
fn upgrade_refused_by_a_busy_instance_gives_its_states_back() {
    let (mut worker, path) = with_slow(3);
    send_and_keep(&mut worker, &Pool::new(64).unwrap(), path, &[10], at(0));
    let message = Message { name: "read".into(), arguments: serde_json::Map::new() };
    let waiting: Vec<_> = (0..64).map(|_| ask_all(&mut worker, 0, &message, at(0))).collect();
    assert!(waiting.iter().all(|answer| answer.try_recv().is_err()), "the messages wait");
    give(&mut worker);
    let refused = succeed(&mut worker, keeper(StateScope::Connection)).try_recv().unwrap().unwrap();
    assert!(refused.inherited.is_err() && refused.connection_states.is_some());
    assert!(!are_kept(&mut worker));
}

#[test]
fn upgrade_that_control_has_called_off_gives_its_own_states_back() {
    for (scope, gives_back) in [(StateScope::Connection, true), (StateScope::Flow, false)] {
        let mut worker = worker();
        add(&mut worker, 0);
        // With the scope of flows, the states are those of another upgrade.
        give(&mut worker);
        let successor = keeper(scope);
        assert!(successor.claim.take());
        let refused = succeed(&mut worker, successor).try_recv().unwrap().unwrap();
        assert!(refused.inherited.is_err());
        assert_eq!(refused.connection_states.is_some(), gives_back);
        assert_eq!(are_kept(&mut worker), !gives_back);
    }
}
