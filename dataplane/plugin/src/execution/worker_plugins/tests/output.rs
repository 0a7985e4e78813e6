//! Tests of outputs of instances besides verdicts.

use millrace_plugin_abi::{LogLevel, Output};

use super::succession::{succeed, successor};
use super::*;
use crate::Payers;

/// Instance that logs a line in each call, also at the end of a flow and when it saves its state.
#[derive(Default)]
struct Talker(Vec<&'static str>);

impl Talker {
    fn say(&mut self, line: &'static str) {
        self.0.push(line);
    }
}

impl Instance for Talker {
    fn process(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
        self.say("packets");
        Progress::Done
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn take_output(&mut self) -> Option<Output> {
        let line = self.0.pop()?;
        Some(Output::Log(LogLevel::Information, line.to_owned()))
    }

    fn has_output(&self) -> bool {
        true
    }

    fn save(&mut self) -> Result<Option<Vec<u8>>, PluginError> {
        self.say("saved");
        Ok(Some(Vec::new()))
    }

    fn restore(&mut self, _state: &[u8], _version: u32) -> Result<(), PluginError> {
        self.say("restored");
        Ok(())
    }

    fn flow_ended(&mut self, _flow: &FlowEnd, _state: &[u8]) -> Progress {
        self.say("a flow has ended");
        Progress::Done
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(json!(null))
    }
}

/// Returns the log lines that nobody has collected yet.
fn said(worker: &mut WorkerPlugins<ByPort>) -> Vec<String> {
    let line = |given: crate::Given| match given.output {
        Output::Log(_, line) => line,
        other => panic!("{other:?}"),
    };
    std::iter::from_fn(|| worker.instances_mut().take_given()).map(line).collect()
}

#[test]
fn output_of_a_successor_is_read_even_if_the_old_instance_had_none() {
    let mut worker = worker();
    add(&mut worker, 0);
    bind(&mut worker, 0, 0, 80, 0);
    let path = path_of(&mut worker, 80);
    for told in [Inherited::Nothing, Inherited::Bytes(0)] {
        let end = succeed(&mut worker, successor(Talker::default(), Inheritance::Required, true));
        assert_eq!(end.try_recv().unwrap().unwrap().inherited, Ok(told));
    }
    assert_eq!(said(&mut worker), ["saved", "restored"]);
    send(&mut worker, path, Position::Early, &[1]);
    assert_eq!(said(&mut worker), ["packets"]);
    // This instance declares no output, so the worker doesn't collect any from it.
    succeed(&mut worker, successor(Picky(0), Inheritance::Renounced, true));
    send(&mut worker, path, Position::Early, &[1]);
    assert_eq!(said(&mut worker), [""; 0]);
}

#[test]
fn output_at_the_end_of_a_flow_is_read_at_once() {
    let mut worker = worker();
    change(
        &mut worker,
        PluginChange::AddInstance { id: InstanceId(0), instance: Box::new(Talker::default()) },
    );
    bind(&mut worker, 0, 0, 80, 0);
    let path = path_of(&mut worker, 80);
    let key = FlowKey::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 17, (1, 80), PortId(0));
    worker.flow_ended(path, &FlowEnd { key, packets: 1, bytes: 60 }, 0);
    assert_eq!(said(&mut worker), ["a flow has ended"]);
}

/// Sends a packet to the instance at a port while a principal has the processor, and ends its flow. Returns the payers
/// of both calls.
fn payers_at(worker: &mut WorkerPlugins<ByPort>, port: u16, principal: u32) -> Vec<Option<u32>> {
    let path = path_of(worker, port);
    Payers::of(worker).set_running(Some(PrincipalId(principal)));
    send(worker, path, Position::Early, &[3]);
    Payers::of(worker).set_running(None);
    worker.flow_ended(path, &FlowEnd { key: key_of(3), packets: 1, bytes: 60 }, 0);
    let payer = |given: crate::Given| given.payer.map(|PrincipalId(number)| number);
    std::iter::from_fn(|| worker.instances_mut().take_given()).map(payer).collect()
}

#[test]
fn output_names_the_principal_that_pays_for_its_call() {
    let mut worker = worker();
    Payers::of(&mut worker).schedule(|| None);
    let talker = Box::new(Talker::default());
    change(&mut worker, PluginChange::AddInstance { id: InstanceId(0), instance: talker });
    bind_paid(&mut worker, (0, 0, 80, 0), Some(PrincipalId(1)));
    assert_eq!(payers_at(&mut worker, 80, 1), [Some(1); 2]);
    // Several principals pay for the instance, so none pays for the end of a flow.
    bind_paid(&mut worker, (1, 1, 81, 0), Some(PrincipalId(2)));
    assert_eq!(payers_at(&mut worker, 81, 2), [Some(2), None]);
}
