use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::mpsc::sync_channel;

use millrace_classify::{CompiledSelection, FlowAnswer};
use millrace_forward::SharedFib;
use millrace_packet::{DropReason, FlowKey};
use millrace_port::Memory;
use millrace_schedule::{LinkOverhead, LinkRate, NodeKind, Rate, Share};
use millrace_units::{PortId, QueueId};
use millrace_wire::MacAddr;

use super::*;
use crate::commands::{FlowCommand, RouteCommand};
use crate::flow_reports::FlowScan;
use crate::forward::changes::RouteChange;
use crate::options::Options;
use crate::parse::tags::Tags;
use crate::ports::PortSettings;
use crate::ports::scheduler::{Piece, ScheduleChange};
use crate::ports::tests::settings;
use crate::punt::host_path::NoHost;

mod connections;
mod control;
mod moves;
mod overload;
mod path_users;
mod principals;

fn worker() -> (Worker, WorkerLink, SharedFib) {
    let fib = SharedFib::new().unwrap();
    let pool = Pool::new(64).unwrap();
    let (worker, link) = Worker::new(pool, fib.reader(), Box::new(NoHost), 1).unwrap();
    (worker, link, fib)
}

/// Returns settings of a port without addresses, so that the router sends no packets of its own there.
fn bare_port() -> PortSettings {
    PortSettings { addresses: Vec::new(), ..settings(0, Tags::single(1)) }
}

#[test]
fn packets_wait_for_one_large_command_or_a_few_small_commands() {
    let (mut worker, mut link, _fib) = worker();
    let changes = |count| {
        let change = RouteChange { prefix: "10.0.0.0/8".parse().unwrap(), own: false };
        RouteCommand::Changed(vec![change; count]).into()
    };
    for count in [64, 64, 1, 1, 64, 1] {
        link.commands.push(changes(count)).unwrap();
    }
    let taken: Vec<usize> =
        (0..5).map(|_| worker.iterate(Instant::ZERO, || Instant::ZERO).commands).collect();
    assert_eq!(taken, [1, 1, 3, 1, 0]);
    (0..20).for_each(|_| link.commands.push(changes(1)).unwrap());
    let taken: Vec<usize> =
        (0..3).map(|_| worker.iterate(Instant::ZERO, || Instant::ZERO).commands).collect();
    assert_eq!(taken, [16, 4, 0]);
}

#[test]
fn queues_send_at_the_time_after_packets_were_received() {
    let (mut worker, _link, _fib) = worker();
    let (device, wire) = Memory::new(MacAddr::ZERO, 1500);
    worker.add_device(DeviceId(0), Box::new(device));
    let (port, start) = (PortId(1), Instant::ZERO);
    worker.carry_out(PortCommand::Set(port, bare_port()).into(), start);
    let (node, kind) = (QueueId(1), NodeKind::Fifo(Default::default()));
    let rate = LinkRate { rate: Some(Rate::from_megabits(8)), slack: 0 };
    let changes = [
        ScheduleChange::Add { node, parent: None, share: Share::Only, kind },
        ScheduleChange::Link(rate, LinkOverhead::None),
    ];
    worker.router.queueing().schedule(port, (&changes, Piece::WHOLE), 1, start).unwrap();
    let entry = worker.router.ports.get_mut(port).unwrap();
    for _ in 0..3 {
        let packet = worker.pool.packet_from(&[0; 1000]).unwrap();
        entry.scheduler.as_mut().unwrap().enqueue(packet, start, &mut Vec::new());
    }
    // The shaper sends a packet per millisecond. The second packet is not due at the start of the iteration,
    // but it is when a frame has been received.
    let (early, late) = (Instant::from_nanos(999_999), Instant::from_nanos(1_000_000));
    let sent = [(start, false), (early, false), (early, true)].map(|(begins, receives)| {
        if receives {
            wire.inject(&[0; 60]);
        }
        worker.iterate(begins, || late);
        wire.take_transmitted().len()
    });
    assert_eq!(sent, [1, 0, 1]);
}

#[test]
fn iteration_takes_packets_of_plugins_by_weight() {
    let (mut worker, _link, _fib) = worker();
    let options = Options { plugin_weight: 3, ..Options::default() };
    worker.carry_out(options.into(), Instant::ZERO);
    worker.carry_out(PortCommand::Set(PortId(1), bare_port()).into(), Instant::ZERO);
    // The destination has no route, so the router drops the packets after classification.
    let mut frame = [0; 28];
    (frame[0], frame[3], frame[8], frame[9]) = (0x45, 28, 9, 17);
    frame[12..20].copy_from_slice(&[192, 0, 2, 1, 198, 51, 100, 1]);
    assert!((0..8).all(|_| worker.router.gate_run().begin_made(&frame, PortId(1), 0, None)));
    let rounds = [0; 4].map(|_| {
        let iteration = worker.iterate(Instant::ZERO, || Instant::ZERO);
        (worker.router.pending.from_plugins.len(), iteration.next_event == Some(Instant::ZERO))
    });
    assert_eq!(rounds, [(5, true), (2, true), (0, false), (0, false)]);
    let totals = &worker.router.observation.totals;
    assert_eq!((totals.created.plugins, totals.dropped, worker.pool.in_use()), (8, 8, 0));
    assert!((0..20).all(|_| worker.router.gate_run().begin_made(&frame, PortId(1), 0, None)));
    let drops = &worker.router.ports.get(PortId(1)).unwrap().count.drops;
    assert_eq!((worker.router.pending.from_plugins.len(), drops.get(DropReason::QueueFull)), (8, 12));
    assert_eq!(carried(&worker.router), 8);
    for port in [PortId::NONE, PortId(2)] {
        assert!(
            !worker.router.gate_run().begin_made(&frame, port, 0, None),
            "{port}: the router's own, or of nobody"
        );
    }
    assert_eq!(worker.router.observation.totals.created.plugins, 28);
}

#[test]
fn flows_are_listed_and_forgotten_some_at_a_time_and_none_is_left_out() {
    let (mut worker, mut link, _fib) = worker();
    let flows = &mut worker.router.classifier.flows;
    for number in 0..300_u32 {
        let (source, target) = (Ipv4Addr::from_bits(number), Ipv4Addr::LOCALHOST);
        let key = FlowKey::v4(source, target, 17, (1, 2), PortId(1));
        let hash = flows.hash(&key);
        flows.insert(&key, hash, 0, FlowAnswer::default(), Instant::ZERO).unwrap();
    }
    let filter = CompiledSelection::any();
    for forgets in [false, true] {
        let (mut found, mut from, mut pages) = (BTreeSet::new(), Some(0), 0);
        while let Some(start) = from {
            let (reply, answer) = sync_channel(1);
            let scan = FlowScan { from: start, records: u32::MAX, filter: filter.clone() };
            let command =
                if forgets { FlowCommand::Flush(scan, reply) } else { FlowCommand::Scan(scan, reply) };
            link.commands.push(command.into()).unwrap();
            worker.iterate(Instant::ZERO, || Instant::ZERO);
            let page = answer.try_recv().unwrap();
            assert!(page.flows.len() <= 64);
            found.extend(page.flows.iter().map(|flow| flow.key.source()));
            (from, pages) = (page.next, pages + 1);
        }
        assert_eq!((found.len(), pages), (300, 5), "{forgets}");
    }
    assert!(worker.router.classifier.flows.is_empty());
}
