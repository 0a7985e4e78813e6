//! AF_XDP ports on veths, in network namespaces.

mod support;

use std::sync::{Arc, Mutex};

use millrace_packet::{Batch, DropReason, Packet, Pool};
use millrace_port::af_xdp::{Bind, LEAST_BATCH, Options, ProgramMode};
use millrace_port::{AfXdp, BatchSend, Mode, Port, PortError};
use millrace_units::Instant;
use support::redirect::Redirect;
use support::stream::Stream;
use support::{Raw, enter_namespace, eventually, frame, options, run, veth};

const NOW: Instant = Instant::ZERO;

fn open(pool: &Pool, options: Options) -> (AfXdp, Redirect) {
    let native = options.program == ProgramMode::Native;
    // The kernel detaches the program of a closed link a little later.
    let mut attached = None;
    assert!(eventually(|| {
        attached = Redirect::attach(options.ifindex, native, options.scatter).ok();
        attached.is_some()
    }));
    let redirect = attached.unwrap();
    let port = AfXdp::open(pool, options).unwrap();
    for (queue, socket) in port.sockets() {
        redirect.register(queue, socket).unwrap();
    }
    (port, redirect)
}

/// Checks that the port's counters account for all packets, and returns the counters.
fn check_law(port: &mut AfXdp, given: u64, taken: u64) -> millrace_port::PortCounters {
    let counters = port.counters();
    let lost_in = counters.drops.get(DropReason::ReceiveRingFull);
    let lost_out = counters.drops.total() - lost_in;
    assert_eq!(counters.received + counters.created, given + lost_in, "{counters:?}");
    assert_eq!(taken, counters.transmitted + lost_out + counters.held, "{counters:?}");
    counters
}

fn echo_sizes(pool: &Pool, port: &mut AfXdp, peer: &Raw, sizes: &[usize]) {
    let mut batch = Batch::new();
    for (number, size) in sizes.iter().enumerate() {
        let sent = frame(number as u32, *size);
        peer.send(&sent).unwrap();
        assert!(eventually(|| {
            port.receive(pool, NOW, &mut batch);
            !batch.is_empty()
        }));
        assert_eq!(batch.len(), 1);
        assert_eq!(batch[0].to_vec(), sent, "{size} bytes in");
        port.transmit(pool, NOW, &mut batch);
        port.flush(pool, NOW);
        let mut echoed = None;
        assert!(eventually(|| {
            echoed = peer.receive();
            echoed.is_some()
        }));
        assert_eq!(echoed.unwrap(), sent, "{size} bytes back");
    }
}

fn drain(pool: &Pool, port: &mut AfXdp) {
    assert!(eventually(|| {
        port.flush(pool, NOW);
        pool.in_use() == port.lent_frames() && port.counters().held == 0
    }));
}

#[test]
fn frames_of_all_sizes_pass_and_return_unchanged() {
    if !enter_namespace("AF_XDP echo") {
        return;
    }
    for (mode, bind) in [(ProgramMode::Native, Bind::Auto), (ProgramMode::Generic, Bind::Copy)] {
        veth("near", "far", 1500, 1);
        let pool = Pool::new(8192).unwrap();
        let (mut port, redirect) = open(&pool, Options { program: mode, bind, ..options("near", 1500) });
        assert_eq!(
            port.capabilities().mode,
            if mode == ProgramMode::Native { Mode::Native } else { Mode::Generic }
        );
        assert!(!port.capabilities().why.is_empty() || mode == ProgramMode::Generic);
        let sizes: Vec<usize> = (60..=1514).step_by(7).chain([1514]).collect();
        echo_sizes(&pool, &mut port, &Raw::open("far"), &sizes);
        drain(&pool, &mut port);
        let counters = check_law(&mut port, sizes.len() as u64, sizes.len() as u64);
        assert_eq!(counters.received_bytes, sizes.iter().sum::<usize>() as u64);
        assert_eq!(counters.transmitted_bytes, counters.received_bytes);
        drop((port, redirect));
        assert_eq!(pool.in_use(), 0, "all frames return when the port is closed");
        run("ip link del near");
    }
}

#[test]
fn jumbo_frames_pass_in_chains() {
    if !enter_namespace("AF_XDP jumbo frames") {
        return;
    }
    veth("near", "far", 9000, 1);
    let pool = Pool::new(8192).unwrap();
    let (mut port, _redirect) = open(&pool, options("near", 9000));
    let sizes = [60, 1792, 1793, 3584, 3585, 5000, 9013, 9014];
    echo_sizes(&pool, &mut port, &Raw::open("far"), &sizes);
    drain(&pool, &mut port);
    check_law(&mut port, sizes.len() as u64, sizes.len() as u64);
}

#[test]
fn a_copy_is_sent_without_touching_the_other() {
    if !enter_namespace("AF_XDP copies") {
        return;
    }
    veth("near", "far", 9000, 1);
    let pool = Pool::new(8192).unwrap();
    let (mut port, _redirect) = open(&pool, options("near", 9000));
    let far = Raw::open("far");
    let bytes = frame(7, 9000);
    let original = pool.packet_from(&bytes).unwrap();
    let mut batch = Batch::new();
    batch.push(original.copy(&pool).unwrap()).unwrap();
    // A packet of another pool is copied as well.
    let other = Pool::new(16).unwrap();
    batch.push(other.packet_from(&bytes).unwrap()).unwrap();
    port.transmit(&pool, NOW, &mut batch);
    port.flush(&pool, NOW);
    for _ in 0..2 {
        let mut seen = None;
        assert!(eventually(|| {
            seen = far.receive();
            seen.is_some()
        }));
        assert_eq!(seen.unwrap(), bytes);
    }
    assert_eq!(original.to_vec(), bytes);
    drop(original);
    drain(&pool, &mut port);
    assert_eq!(other.in_use(), 0);
    check_law(&mut port, 0, 2);
}

#[test]
fn a_hundred_thousand_frames_are_all_accounted_for() {
    if !enter_namespace("AF_XDP conservation") {
        return;
    }
    const FRAMES: u32 = 100_000;
    veth("near", "far", 1500, 1);
    let pool = Pool::new(8192).unwrap();
    let (mut port, _redirect) = open(&pool, options("near", 1500));
    let (far, back) = (Raw::open("far"), Raw::open("far"));
    let (mut batch, mut given, mut echoed) = (Batch::new(), 0, 0);
    let mut serve = |port: &mut AfXdp| {
        port.receive(&pool, NOW, &mut batch);
        given += batch.len() as u64;
        port.transmit(&pool, NOW, &mut batch);
        port.flush(&pool, NOW);
    };
    for number in 0..FRAMES {
        far.send(&frame(number, 60 + number as usize % 1400)).unwrap();
        // At times the test doesn't read the port until its rings overflow, so that some frames are lost.
        if number % 32 == 0 && number % 20_000 > 5_000 {
            serve(&mut port);
        }
        while number % 64 == 0 && back.receive().is_some() {
            echoed += 1;
        }
        while number % 64 == 0 && far.receive().is_some() {}
    }
    assert!(eventually(|| {
        serve(&mut port);
        port.counters().received == u64::from(FRAMES)
    }));
    let total = |port: &mut AfXdp| port.counters().transmitted;
    assert!(eventually(|| {
        while back.receive().is_some() {
            echoed += 1;
        }
        echoed == total(&mut port)
    }));
    drain(&pool, &mut port);
    let counters = check_law(&mut port, given, given);
    let lost = counters.drops.get(DropReason::ReceiveRingFull);
    assert!(lost > 0 && counters.transmitted > u64::from(FRAMES) / 2, "{counters:?}");
}

#[test]
fn every_queue_is_read_and_announced() {
    if !enter_namespace("AF_XDP with several queues") {
        return;
    }
    veth("near", "far", 1500, 4);
    let pool = Pool::new(16384).unwrap();
    let (mut port, _redirect) = open(&pool, Options { queues: vec![0, 1, 2, 3], ..options("near", 1500) });
    assert_eq!(port.sockets().map(|(queue, _)| queue).collect::<Vec<_>>(), [0, 1, 2, 3]);
    let far = Raw::open("far");
    assert_eq!(port.has_arrivals(), Some(false));
    for number in 0..64 {
        let mut bytes = frame(number, 100);
        bytes[11] = number as u8;
        far.send(&bytes).unwrap();
    }
    let readable = || {
        let mut poll = libc::pollfd { fd: port.descriptor().unwrap(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, writable.
        unsafe { libc::poll(&mut poll, 1, 1000) == 1 }
    };
    assert!(readable());
    assert_eq!(port.has_arrivals(), Some(true));
    let mut batch = Batch::new();
    assert!(eventually(|| {
        port.receive(&pool, NOW, &mut batch);
        batch.len() == 64
    }));
    assert_eq!(port.has_arrivals(), Some(false));
}

#[test]
fn a_killed_port_opens_again_and_a_taken_queue_is_named() {
    if !enter_namespace("AF_XDP reopening") {
        return;
    }
    veth("near", "far", 1500, 1);
    let pool = Pool::new(8192).unwrap();
    for round in 0..5 {
        let (mut port, _redirect) = open(&pool, options("near", 1500));
        echo_sizes(&pool, &mut port, &Raw::open("far"), &[60 + round, 1514]);
        let taken = AfXdp::open(&pool, options("near", 1500)).unwrap_err();
        assert!(matches!(taken, PortError::Busy { .. }), "{taken}");
        assert!(taken.to_string().contains("queue 0"), "{taken}");
    }
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn invalid_options_are_refused_with_a_reason() {
    if !enter_namespace("AF_XDP errors") {
        return;
    }
    veth("near", "far", 1500, 1);
    let pool = Pool::new(8192).unwrap();
    let queue = AfXdp::open(&pool, Options { queues: vec![7], ..options("near", 1500) }).unwrap_err();
    assert!(matches!(queue, PortError::Queue { .. }) && queue.to_string().contains("queue 7"), "{queue}");
    let none = AfXdp::open(&pool, Options { queues: vec![], ..options("near", 1500) }).unwrap_err();
    assert!(matches!(none, PortError::Queue { .. }), "{none}");
    let copy = AfXdp::open(&pool, Options { bind: Bind::ZeroCopy, ..options("near", 1500) }).unwrap_err();
    assert!(matches!(copy, PortError::NotSupported { .. }), "{copy}");
    let gone = AfXdp::open(&pool, Options { ifindex: 9999, ..options("near", 1500) }).unwrap_err();
    assert!(matches!(gone, PortError::UnknownDevice { .. }), "{gone}");
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn tagged_frames_keep_their_tags() {
    if !enter_namespace("AF_XDP VLAN tags") {
        return;
    }
    veth("near", "far", 1500, 1);
    let pool = Pool::new(8192).unwrap();
    let (mut port, _redirect) = open(&pool, options("near", 1500));
    let far = Raw::open("far");
    let mut batch = Batch::new();
    for tags in [&[0x81, 0, 0x20, 10][..], &[0x88, 0xa8, 0, 100, 0x81, 0, 0, 10]] {
        let plain = frame(1, 1514);
        // A raw socket may exceed the MTU by one customer tag, but by no other tag.
        let sent = [&plain[..12], tags, &plain[12..if tags.len() == 4 { 1514 } else { 1506 }]].concat();
        far.send(&sent).unwrap();
        assert!(eventually(|| {
            port.receive(&pool, NOW, &mut batch);
            !batch.is_empty()
        }));
        assert_eq!(batch[0].to_vec(), sent);
        batch.clear();
    }
}

/// Sends a stream from a host with default offloads through two ports. Returns the number of packets created.
fn stream(program: ProgramMode, scatter: bool) -> u64 {
    let stream = Stream::prepare();
    let pool = Pool::new(16384).unwrap();
    let (mut left, _left) = open(&pool, Options { scatter, program, ..options("r1", 1500) });
    let (mut right, _right) = open(&pool, Options { scatter, program, ..options("r2", 1500) });
    stream.run(&pool, &mut left, &mut right);
    left.counters().created
}

#[test]
fn a_stream_from_a_host_with_default_offloads_arrives_intact() {
    if enter_namespace("AF_XDP and partial checksums") {
        stream(ProgramMode::Native, false);
    }
}

#[test]
fn a_stream_through_ports_with_scatter_arrives_intact() {
    if enter_namespace("AF_XDP with scatter and partial checksums") {
        stream(ProgramMode::Native, true);
    }
}

#[test]
fn super_frames_from_a_host_with_default_offloads_arrive_intact() {
    if enter_namespace("AF_XDP and GSO packets") {
        assert!(stream(ProgramMode::Generic, true) > 0);
    }
}

#[test]
fn super_frames_arrive_intact_behind_a_program_without_frags_too() {
    if enter_namespace("AF_XDP and linear GSO packets") {
        assert!(stream(ProgramMode::Generic, false) > 0);
    }
}

/// Alternative sender that records its frames; on request it loses the last frame of a batch.
#[derive(Debug)]
struct Notes(Arc<Mutex<Noted>>);

#[derive(Debug, Default)]
struct Noted {
    longest: usize,
    loses: bool,
    frames: Vec<Vec<u8>>,
}

impl BatchSend for Notes {
    fn longest(&self) -> usize {
        self.0.lock().unwrap().longest
    }

    fn send(&mut self, packets: &[Packet]) -> usize {
        let mut noted = self.0.lock().unwrap();
        let taken = packets.len() - usize::from(noted.loses);
        noted.frames.extend(packets[..taken].iter().map(Packet::to_vec));
        taken
    }
}

#[test]
fn batches_leave_by_redirect_and_other_packets_by_the_socket() {
    if !enter_namespace("AF_XDP batches") {
        return;
    }
    veth("near", "far", 1500, 1);
    let pool = Pool::new(8192).unwrap();
    let (mut port, _redirect) = open(&pool, options("near", 1500));
    let noted = Arc::new(Mutex::new(Noted { longest: 1000, ..Noted::default() }));
    port.set_batch_send(Box::new(Notes(noted.clone())));
    let peer = Raw::open("far");
    let mut given = 0;
    let mut send = |lengths: &[usize]| {
        let mut batch = Batch::new();
        let frames: Vec<_> = lengths.iter().enumerate().map(|(n, length)| frame(n as u32, *length)).collect();
        for frame in &frames {
            batch.push(pool.packet_from(frame).unwrap()).unwrap();
        }
        given += frames.len() as u64;
        port.transmit(&pool, NOW, &mut batch);
        assert!(batch.is_empty());
        port.flush(&pool, NOW);
        let counters = check_law(&mut port, 0, given);
        let by_socket: Vec<_> = std::iter::from_fn(|| peer.receive()).collect();
        let by_way = std::mem::take(&mut noted.lock().unwrap().frames);
        let lost = counters.drops.get(DropReason::TransmitFailed);
        (frames.len(), by_way.len(), by_socket.len(), counters.batched, lost)
    };
    assert_eq!(send(&[60; LEAST_BATCH]), (LEAST_BATCH, LEAST_BATCH, 0, 24, 0));
    assert_eq!(send(&[60; LEAST_BATCH - 1]), (23, 0, 23, 24, 0), "too few");
    let mut lengths = [1000; 40];
    assert_eq!(send(&lengths), (40, 40, 0, 64, 0));
    lengths[39] = 1001;
    assert_eq!(send(&lengths), (40, 0, 40, 64, 0), "one is too long");
    noted.lock().unwrap().loses = true;
    assert_eq!(send(&[60; 30]), (30, 29, 0, 93, 1));
    noted.lock().unwrap().longest = 0;
    assert_eq!(send(&[60; 30]), (30, 0, 30, 93, 1), "the way is closed");
    drain(&pool, &mut port);
}
