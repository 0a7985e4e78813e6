//! Accounts of flows and principals, and packets dropped above their limits.

use millrace_packet::DropReason;
use millrace_plugin::CostHistogram;
use millrace_plugin_abi::{Fault, PayerBacklog};

use super::*;

/// Number of packets of a call, with the principal that pays for it.
type Calls = Arc<Mutex<Vec<(u32, Option<PayerBacklog>)>>>;

/// Instance that records the backlog of the first packet of each call and of each later slice of it, and uses
/// cycles for each packet.
struct Observant {
    cycles: u64,
    suspends: bool,
    calls: Calls,
}

impl Instance for Observant {
    fn process(&mut self, packets: &mut Packets<'_>, now: Instant) -> Progress {
        match self.suspends {
            true => Progress::Suspended,
            false => self.resume(packets, now),
        }
    }

    fn resume(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        self.calls.lock().unwrap().push((packets.len() as u32, packets.backlog(0).payer));
        pretended::pass(self.cycles * packets.len() as u64);
        packets.for_each(|_, _| Verdict::Pass);
        Progress::Done
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(Default::default())
    }
}

/// Sends 40 packets to an instance that needs 20,000 cycles for each, and returns its calls.
fn observed(principal: Option<u32>, suspends: bool) -> Vec<(u32, Option<PayerBacklog>)> {
    let (mut world, calls) = (World::new(), Calls::default());
    world.set_principal(1, 1, 1 << 20);
    let instance = Box::new(Observant { cycles: 20_000, suspends, calls: Arc::clone(&calls) });
    world.change(PluginChange::AddInstance { id: InstanceId(1), instance });
    world.rebind(1, 1, principal);
    (0..40).for_each(|number| world.send(1, number));
    world.check();
    let calls = calls.lock().unwrap().clone();
    assert_eq!(calls.iter().map(|(packets, _)| packets).sum::<u32>(), 40);
    calls
}

#[test]
fn plugin_sees_the_packets_of_its_principal_that_wait_and_the_time_that_is_left() {
    for suspends in [false, true] {
        let calls = observed(Some(1), suspends);
        let quantum = Duration::from_nanos(QUANTUM.0);
        let mut left = 40;
        for (packets, payer) in &calls {
            left -= packets;
            let PayerBacklog { packets: waiting, bytes, allowance } = payer.unwrap();
            assert_eq!((waiting, bytes), (left, u64::from(left) * frame(1, 0).len() as u64), "{calls:?}");
            assert!(allowance.unwrap() <= quantum, "{calls:?}");
        }
        // A suspended slice uses one cycle.
        let first = quantum - Duration::from_nanos(suspends.into());
        assert_eq!(calls[0].1.unwrap().allowance, Some(first), "{calls:?}");
        assert!(calls.len() > 1 && left == 0, "{calls:?}");
    }
}

#[test]
fn cost_of_a_suspended_call_is_that_of_all_its_slices() {
    let sizes =
        |suspends| observed(Some(1), suspends).into_iter().map(|(packets, _)| packets).collect::<Vec<_>>();
    assert_eq!(sizes(true), sizes(false));
}

#[test]
fn allowance_of_a_later_stage_is_what_earlier_ones_have_left() {
    let (mut world, calls) = (World::new(), Calls::default());
    world.set_principal(1, 1, 1 << 20);
    world.bind(2, 1, Some(1), (20_000, 0));
    let instance = Box::new(Observant { cycles: 5_000, suspends: false, calls: Arc::clone(&calls) });
    world.change(PluginChange::AddInstance { id: InstanceId(1), instance });
    let filter =
        CompiledExpression::from("dst 10.0.0.1/32".parse::<Filter>().unwrap().compile(|_| None).unwrap());
    world.change(PluginChange::Bind {
        binding: BindingId(1),
        gate: LATER,
        filter,
        priority: 0,
        action: Action::Instance(InstanceId(1)),
        call_limits: CallLimits { principal: Some(PrincipalId(1)), ..CallLimits::default() },
    });
    world.send(1, 0);
    world.iterate();
    let left = QUANTUM - Cycles(20_000);
    let allowance = calls.lock().unwrap()[0].1.unwrap().allowance;
    assert_eq!(allowance, Some(Duration::from_nanos(left.0)));
}

#[test]
fn plugin_that_nobody_pays_for_has_no_allowance() {
    assert!(observed(None, false).iter().all(|(_, payer)| payer.is_none()));
}

#[test]
fn packets_above_the_threshold_are_dropped_for_a_reason_of_their_own() {
    let mut world = World::new();
    world.set_principal(1, 1, 1000);
    world.bind(1, 1, Some(1), (1_000_000, 0));
    (0..40).for_each(|number| world.send(1, number));
    world.check();
    let dropped =
        world.worker.router.ports.get(PortId(1)).unwrap().count.drops.get(DropReason::PrincipalQueueFull);
    assert!(dropped >= 20, "{dropped}");
    assert_eq!(world.counts()[&1].drops.queue, dropped);
}

#[test]
fn longest_wait_of_a_principal_with_a_deadline_lasts_until_the_end_of_its_calls() {
    for deadline in [None, Some(Duration::from_millis(1))] {
        let mut world = World::new();
        world.set_cpu(1, CpuPrincipal { share: CpuShare::Absolute(100_000), limit: None, deadline }, 1 << 20);
        world.bind(1, 1, Some(1), (200_000, 0));
        (0..40).for_each(|number| world.send(1, number));
        let begun = world.now;
        world.check();
        let longest = world.counts()[&1].longest_wait;
        let most = world.now.since(begun);
        match deadline {
            Some(_) => assert!(longest.abs_diff(most) <= Duration::from_micros(300), "{longest:?}, {most:?}"),
            None => assert_eq!(longest, Duration::ZERO),
        }
    }
}

/// Its packet waits behind those of another principal, for the end of the suspended call of a third one.
#[test]
fn longest_wait_of_a_principal_includes_the_wait_for_suspended_calls_of_others() {
    let mut world = World::new();
    [2, 3].into_iter().for_each(|id| world.set_principal(id, 1, 1 << 20));
    let deadline = Some(Duration::from_millis(1));
    world.set_cpu(1, CpuPrincipal { share: CpuShare::Absolute(100_000), limit: None, deadline }, 1 << 20);
    world.bind(1, 1, Some(2), (100_000, 20));
    world.bind_also(1, (2, 2), 3);
    world.bind_also(1, (3, 3), 1);
    for flow in [1, 2] {
        world.send(flow, 0);
        (0..3).for_each(|_| _ = world.iterate());
    }
    world.send(3, 0);
    let begun = world.now;
    while !world.seen.lock().unwrap().contains(&(3, 0)) {
        world.iterate();
    }
    let (longest, took) = (world.counts()[&1].longest_wait, world.now.since(begun));
    assert!(took > Duration::from_millis(2), "{took:?}");
    assert!(longest.abs_diff(took) <= Duration::from_micros(300), "{longest:?}, {took:?}");
    world.check();
}

#[test]
fn packets_above_the_memory_of_their_principal_are_dropped_for_a_reason_of_their_own() {
    let mut world = World::new();
    for id in [1, 2] {
        world.set_principal(id, 1, 1 << 20);
        world.bind(id, id as u8, Some(id), (200_000, 0));
    }
    world.tell(PrincipalCommand::LimitMemory(PrincipalId(1), Some(1000)));
    for number in 0..100 {
        world.send(1, number);
        world.send(2, number);
    }
    for _ in 0..20 {
        world.iterate();
        assert!(world.counts()[&1].waiting_bytes <= 1000);
    }
    let drops = |world: &World| {
        let port = world.worker.router.ports.get(PortId(1)).unwrap();
        port.count.drops.get(DropReason::PrincipalMemory)
    };
    let dropped = drops(&world);
    assert!(dropped > 50, "{dropped}");
    assert_eq!((world.counts()[&1].drops.memory, world.counts()[&1].drops.queue), (dropped, 0));
    assert_eq!(world.counts()[&2].drops.total(), 0);
    world.tell(PrincipalCommand::LimitMemory(PrincipalId(1), None));
    (100..200).for_each(|number| world.send(1, number));
    world.check();
    assert_eq!(drops(&world), dropped);
}

/// Each flow of the flood waits with few packets, and all of them would take nearly all places.
#[test]
fn flood_over_many_flows_leaves_other_principals_their_part() {
    let mut world = World::with_frames(512);
    (1..4).for_each(|id| world.set_principal(id, 1, 1 << 20));
    world.bind(1, 1, Some(1), (200_000, 0));
    world.bind_also(1, (2, 2), 2);
    world.bind_at(GATE, 1, (3, "dst 10.0.0.64/26"), Some(3));
    for number in 0..20 {
        (64..128).for_each(|flow| world.send(flow, number));
        world.iterate();
        for flow in [1, 2] {
            world.send(flow, number);
        }
        world.iterate();
    }
    let counts = world.counts();
    assert_eq!([counts[&1].drops.total(), counts[&2].drops.total()], [0, 0], "{counts:?}");
    let port = world.worker.router.ports.get(PortId(1)).unwrap();
    let dropped = port.count.drops.get(DropReason::PrincipalPart);
    assert!(dropped > 500 && counts[&3].drops.queue == dropped, "{dropped}: {counts:?}");
    world.check();
}

/// A packet of 9,000 bytes takes five memory frames.
#[test]
fn long_packets_that_wait_leave_half_of_the_memory() {
    let mut world = World::with_frames(1024);
    world.set_principal(1, 1, 1 << 25);
    world.bind(1, 1, Some(1), (1_000_000, 0));
    let (port, wire) = Memory::new(MAC, 9000);
    world.worker.add_device(DeviceId(1), Box::new(port));
    let settings = PortSettings { mac: MAC, mtu: 9000, addresses: Vec::new(), ..settings(1, Tags::NONE) };
    world.tell(PortCommand::Set(PortId(2), settings));
    let mut long = frame(1, 0);
    long.resize(14 + 9000, 0);
    long[16..18].copy_from_slice(&9000_u16.to_be_bytes());
    long[24..26].fill(0);
    let sum = millrace_wire::checksum::checksum(&long[14..34]);
    long[24..26].copy_from_slice(&sum.to_be_bytes());
    for _ in 0..20 {
        (0..20).for_each(|_| wire.inject(&long));
        world.iterate();
    }
    let drops = &world.worker.router.ports.get(PortId(2)).unwrap().count.drops;
    let (refused, in_use) = (drops.get(DropReason::PrincipalPart), world.worker.router.pool.in_use());
    assert!(refused > 100 && in_use <= 512, "{refused} packets refused, {in_use} frames in use");
}

#[test]
fn flow_report_has_the_account_of_the_flow_at_its_principal() {
    let mut world = World::new();
    world.set_principal(1, 1, 1000);
    world.bind(1, 1, Some(1), (50_000, 0));
    for number in 0..100 {
        world.send(1, number);
        world.send(9, number);
    }
    for _ in 0..3 {
        world.iterate();
    }
    let scan = FlowScan { from: 0, records: u32::MAX, filter: CompiledSelection::any() };
    let flows = scan.run(&world.worker.router, world.now).flows;
    let payments = |flow: u8| {
        let found = flows.iter().find(|report| report.key.destination() == IpAddr::from([10, 0, 0, flow]));
        found.unwrap().payments.clone()
    };
    assert_eq!(payments(9), []);
    let counts = world.counts()[&1];
    let account = CpuFlowAccount {
        used: counts.used,
        packets: counts.waiting,
        bytes: counts.waiting_bytes,
        dropped: counts.drops.queue,
    };
    assert!(account.used.0 > 0 && account.packets > 0 && account.dropped > 0, "{account:?}");
    assert_eq!(payments(1), [FlowPayment { principal: PrincipalId(1), account: Some(account) }]);
    world.check();
}

/// Returns the cycles per packet that an instance reports after 40 packets.
fn costs_of(instance: Box<dyn Instance>) -> CostHistogram {
    let mut world = World::new();
    world.set_principal(1, 1, 1 << 20);
    world.change(PluginChange::AddInstance { id: InstanceId(1), instance });
    world.rebind(1, 1, Some(1));
    (0..40).for_each(|number| world.send(1, number));
    world.check();
    let mut reports = world.worker.router.gates.plugins().instances().reports();
    reports.find(|(id, _)| *id == InstanceId(1)).unwrap().1.costs
}

#[test]
fn report_of_an_instance_has_the_cycles_per_packet_of_its_calls() {
    for suspends in [false, true] {
        let calls = Calls::default();
        let costs = costs_of(Box::new(Observant { cycles: 5_000, suspends, calls: Arc::clone(&calls) }));
        let made = calls.lock().unwrap().len() as u64;
        assert_eq!((costs.packets(), costs.calls()), (40, made), "{suspends}");
        let median = costs.percentile(50).unwrap();
        assert!((median - 5_000.0).abs() < 0.125 * 5_000.0, "{suspends}: {median}");
        assert!(costs.cycles() >= 40 * 5_000 && costs.cycles() < 41 * 5_000, "{suspends}: {costs:?}");
    }
}

/// Instance whose calls fail.
struct Failing(Option<Fault>);

impl Instance for Failing {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        pretended::pass(5_000);
        packets.for_each(|_, _| Verdict::Pass);
        self.0 = Some(Fault { kind: "test", text: String::new() });
        Progress::Done
    }

    fn take_fault(&mut self) -> Option<Fault> {
        self.0.take()
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(Default::default())
    }
}

#[test]
fn failed_calls_are_not_in_the_cycles_per_packet() {
    let costs = costs_of(Box::new(Failing(None)));
    assert_eq!((costs.packets(), costs.calls(), costs.cycles()), (0, 0, 0));
}

#[test]
fn packets_that_wait_for_a_released_principal_are_dropped_on_request_and_no_others() {
    let mut world = World::new();
    for id in [1, 2] {
        world.set_principal(id, 1, 1 << 20);
        world.bind(id, id as u8, Some(id), (200_000, 0));
        (0..50).for_each(|number| world.send(id as u8, number));
    }
    world.iterate();
    let (first, other) = (world.counts()[&1].waiting, world.counts()[&2].waiting);
    assert!(first > 40, "{:?}", world.counts());
    world.tell(PrincipalCommand::DropWaiting(PrincipalId(1)));
    world.unbind(1);
    world.tell(PrincipalCommand::Remove(PrincipalId(1)));
    assert!(world.counts()[&2].waiting + 2 >= other, "{:?}", world.counts());
    world.check();
    let port = world.worker.router.ports.get(PortId(1)).unwrap();
    assert_eq!(port.count.drops.get(DropReason::PrincipalReleased), u64::from(first));
}
