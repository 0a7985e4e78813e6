//! Ports on a veth: the receiver of each class of frames, and the state that remains after the process ends.

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use crate::bpf::syscall;
use crate::test_support::{
    Wire, attach_filter, frame_to, ip, ipv4_packet, ipv6_packet, now, packet_socket, receive_all,
    send_frames, with_tags,
};
use crate::{Attachment, Mode, OffloadError, OnDeath, PortPrograms, ProgramCounters, VlanStack};

const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];

fn tell(programs: &mut PortPrograms) {
    programs.set_own_mac(OWN).unwrap();
    programs
        .set_local_addresses(&["10.0.0.1", "10.0.0.255", "127.0.0.1"].map(|a| a.parse::<IpAddr>().unwrap()))
        .unwrap();
    programs.set_vlans(&[VlanStack::single(10)]).unwrap();
}

/// Returns two transit frames, one frame of the router's VLAN, and one frame for each class that the kernel
/// keeps.
fn mixture() -> Vec<Vec<u8>> {
    let v4 = |to| frame_to(OWN, 0x0800, &ipv4_packet("10.0.0.2", to, 20));
    let transit = v4("198.51.100.1");
    vec![
        transit.clone(),
        frame_to(OWN, 0x86dd, &ipv6_packet("2001:db8::1", "2001:db8:2::1", 20)),
        with_tags(&transit, &[(0x8100, 10)]),
        with_tags(&transit, &[(0x8100, 11)]),
        v4("10.0.0.1"),
        v4("224.0.0.9"),
        frame_to([2, 0, 0, 0, 0, 7], 0x0800, &ipv4_packet("10.0.0.2", "198.51.100.1", 20)),
        frame_to([255; 6], 0x88b5, &[0; 46]),
    ]
}

fn classes(counters: &ProgramCounters) -> [u64; 5] {
    let kept = &counters.kept;
    [kept.vlan, kept.local, kept.multicast, kept.not_ours, kept.other_ethertype]
}

/// Waits until the program has seen `frames`.
fn settled(programs: &PortPrograms, frames: u64) -> ProgramCounters {
    let start = now();
    loop {
        let counters = programs.counters().unwrap();
        if counters.seen >= frames || start.elapsed() > Duration::from_secs(5) {
            return counters;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the programs at tcx, once there are none or after 5 s. A child of another test keeps the link until it begins
/// its own program.
fn left_at_tcx(wire: &Wire, port: u32) -> Vec<(u32, bool)> {
    let start = now();
    loop {
        let left = wire.near(|| syscall::query_tcx(port).unwrap());
        if left.is_empty() || start.elapsed() > Duration::from_secs(5) {
            return left;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn send(wire: &Wire, frames: &[Vec<u8>]) {
    let peer = wire.peer();
    let frames: Vec<_> = frames.iter().map(Vec::as_slice).collect();
    wire.far(|| send_frames(peer, &frames));
}

fn each_class_is_counted(mode: Mode, frags: bool, expected: Attachment) {
    let Some(wire) = Wire::loadable() else { return };
    let port = wire.port();
    let mut programs = wire.near(|| PortPrograms::attach_xdp(port, mode, frags, OnDeath::Drop).unwrap());
    assert_eq!((programs.mode(), programs.why(), programs.queues()), (expected, None, 1));
    tell(&mut programs);
    let frames = mixture();
    send(&wire, &frames);
    let counters = settled(&programs, frames.len() as u64);
    assert_eq!(classes(&counters), [1; 5], "{counters:?}");
    assert_eq!((counters.fallback.dropped, counters.redirected), (3, 0));
    assert_eq!(counters.seen, counters.passed() + 3);
    assert_eq!(counters.seen_bytes, frames.iter().map(|frame| frame.len() as u64).sum::<u64>());
    assert!(wire.show().contains("xdp"), "{}", wire.show());
    wire.near(|| programs.detach().unwrap());
    assert!(!wire.show().contains("xdp"), "{}", wire.show());
}

#[test]
fn each_class_is_counted_by_the_xdp_program() {
    each_class_is_counted(Mode::Auto, false, Attachment::Native);
}

#[test]
fn each_class_is_counted_with_frags() {
    each_class_is_counted(Mode::Native, true, Attachment::Native);
}

#[test]
fn each_class_is_counted_in_generic_mode() {
    each_class_is_counted(Mode::Generic, false, Attachment::Generic);
}

#[test]
fn packet_socket_receives_exactly_the_packets_taken_by_tcx() {
    let Some(wire) = Wire::loadable() else { return };
    let port = wire.port();
    let mut programs = wire.near(|| PortPrograms::attach_tcx(port, OnDeath::Kernel).unwrap());
    tell(&mut programs);
    let socket = wire.near(|| packet_socket(port));
    attach_filter(&socket, programs.socket_filter_fd().unwrap());
    let frames = mixture();
    send(&wire, &frames);
    let counters = settled(&programs, frames.len() as u64);
    assert_eq!(classes(&counters), [1; 5], "{counters:?}");
    assert_eq!((counters.redirected, counters.seen), (3, counters.passed() + 3));
    // The kernel has removed the tag of the third frame.
    assert_eq!(receive_all(&socket), [frames[0].clone(), frames[1].clone(), frames[0].clone()]);
    wire.near(|| programs.detach().unwrap());
    assert_eq!(left_at_tcx(&wire, port), []);
}

#[test]
fn nothing_is_taken_before_the_mac_is_known_and_a_drop_detaches() {
    let Some(wire) = Wire::loadable() else { return };
    let programs = wire.attach_native(OnDeath::Drop);
    send(&wire, &mixture()[..2]);
    assert_eq!(settled(&programs, 2).kept.not_ours, 2);
    wire.near(|| drop(programs));
    assert!(!wire.show().contains("xdp"), "{}", wire.show());
}

#[test]
fn addresses_and_vlans_can_be_taken_away_again() {
    let Some(wire) = Wire::loadable() else { return };
    let mut programs = wire.attach_native(OnDeath::Drop);
    tell(&mut programs);
    programs.set_local_addresses(&[]).unwrap();
    programs.set_vlans(&[]).unwrap();
    let frames = mixture();
    send(&wire, &frames);
    let counters = settled(&programs, frames.len() as u64);
    assert_eq!(classes(&counters), [2, 0, 1, 1, 1], "{counters:?}");
    wire.near(|| programs.detach().unwrap());
}

/// Replaces all addresses of a family by as many others. The map holds 16,384 addresses, fewer than the old
/// and the new ones together.
#[test]
fn addresses_are_replaced_by_as_many_others() {
    let Some(wire) = Wire::loadable() else { return };
    let mut programs = wire.attach_native(OnDeath::Drop);
    let addresses = |first: u32| -> Vec<IpAddr> {
        (first..first + 10_000)
            .map(|number| std::net::Ipv4Addr::from_bits(0x0a00_0000 + number).into())
            .collect()
    };
    programs.set_local_addresses(&addresses(0)).unwrap();
    programs.set_local_addresses(&addresses(20_000)).unwrap();
    let more = [addresses(20_000), addresses(40_000)].concat();
    let refused = programs.set_local_addresses(&more).unwrap_err();
    assert!(matches!(refused, OffloadError::Map { map: "local4", .. }), "{refused}");
    programs.set_local_addresses(&addresses(40_000)).unwrap();
    wire.near(|| programs.detach().unwrap());
}

#[test]
fn another_program_is_named_and_left_alone() {
    let Some(wire) = Wire::loadable() else { return };
    let port = wire.port();
    let first = wire.attach_native(OnDeath::Kernel);
    let id = first.program_id().unwrap();
    match wire.near(|| PortPrograms::attach_xdp(port, Mode::Auto, false, OnDeath::Kernel)) {
        Err(OffloadError::Occupied { device, id: found, name }) => {
            assert_eq!((device.as_str(), found, name.as_str()), ("port", id, "millrace_xdp"));
        }
        other => panic!("{other:?}"),
    }
    assert!(wire.show().contains(&format!("id {id}")), "{}", wire.show());
    wire.near(|| first.detach().unwrap());
}

#[test]
fn large_peer_needs_frags_and_a_missing_device_is_reported() {
    let Some(wire) = Wire::loadable() else { return };
    let port = wire.port();
    ip(&format!("-n {} link set peer mtu 9000", wire.far));
    let attach = |index, frags| PortPrograms::attach_xdp(index, Mode::Auto, frags, OnDeath::Kernel);
    wire.near(|| {
        match attach(port, false) {
            Err(OffloadError::MtuTooLarge { device, detail }) => {
                assert_eq!(device, "port");
                assert!(detail.contains("MTU"), "{detail}");
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(attach(9999, false), Err(OffloadError::DeviceGone { ifindex: 9999 })));
        let programs = attach(port, true).unwrap();
        assert_eq!(programs.mode(), Attachment::Native);
        ip(&format!("-n {} link del port", wire.near));
        programs.detach().unwrap();
    });
}

/// Attaches a program in a child process and kills the process.
fn die_attached(wire: &Wire, on_death: OnDeath, tcx: bool) {
    let port = wire.port();
    let (near, mut ready) = (wire.near.clone(), [0; 1]);
    let (read, write) = nix::unistd::pipe().unwrap();
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["port_programs::tests::child_of_a_death", "--exact", "--ignored", "--nocapture"])
        .env(
            "MILLRACE_CHILD",
            format!("{near} {port} {} {}", u8::from(on_death == OnDeath::Drop), u8::from(tcx)),
        )
        .stdout(write.try_clone().unwrap())
        .spawn();
    let mut child = status.unwrap();
    drop(write);
    let mut text = String::new();
    while !text.contains("attached\n") {
        assert_eq!(nix::unistd::read(read.as_fd(), &mut ready).unwrap(), 1, "the child ended early: {text}");
        text.push(ready[0] as char);
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
#[ignore = "run by the tests that need a process to kill"]
fn child_of_a_death() {
    let Ok(order) = std::env::var("MILLRACE_CHILD") else { return };
    let words: Vec<_> = order.split(' ').collect();
    let (port, on_death) =
        (words[1].parse().unwrap(), if words[2] == "1" { OnDeath::Drop } else { OnDeath::Kernel });
    let mut programs = crate::test_support::in_namespace(words[0], || match words[3] {
        "1" => PortPrograms::attach_tcx(port, on_death).unwrap(),
        _ => PortPrograms::attach_xdp(port, Mode::Native, false, on_death).unwrap(),
    });
    tell(&mut programs);
    println!("attached");
    std::thread::sleep(Duration::from_secs(30));
}

#[test]
fn a_killed_process_leaves_nothing_when_the_kernel_shall_forward() {
    let Some(wire) = Wire::loadable() else { return };
    let port = wire.port();
    die_attached(&wire, OnDeath::Kernel, false);
    die_attached(&wire, OnDeath::Kernel, true);
    let start = now();
    while wire.show().contains("xdp") && start.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!wire.show().contains("xdp"), "{}", wire.show());
    assert_eq!(left_at_tcx(&wire, port), []);
}

#[test]
fn killed_process_drops_until_replaced() {
    let Some(wire) = Wire::loadable() else { return };
    let port = wire.port();
    die_attached(&wire, OnDeath::Drop, false);
    assert!(wire.show().contains("millrace_xdp") || wire.show().contains("prog/xdp"), "{}", wire.show());
    let programs = wire.attach_native(OnDeath::Drop);
    // The addresses of the dead process's program still apply, because the new program was not configured.
    let frames = mixture();
    send(&wire, &frames);
    let counters = settled(&programs, frames.len() as u64);
    assert_eq!((classes(&counters), counters.fallback.dropped), ([1; 5], 3), "{counters:?}");
    drop(wire.near(|| programs.detach()));
    assert!(!wire.show().contains("xdp"), "{}", wire.show());
    die_attached(&wire, OnDeath::Drop, false);
    // A program with another attachment replaces the leftover program as well.
    let programs =
        wire.near(|| PortPrograms::attach_xdp(port, Mode::Generic, false, OnDeath::Kernel).unwrap());
    assert_eq!(programs.mode(), Attachment::Generic);
    wire.near(|| programs.detach().unwrap());
    assert!(!wire.show().contains("xdp"), "{}", wire.show());
}

#[test]
fn killed_packet_port_drops_until_replaced() {
    let Some(wire) = Wire::loadable() else { return };
    let port = wire.port();
    die_attached(&wire, OnDeath::Drop, true);
    assert_eq!(wire.near(|| syscall::query_tcx(port).unwrap()).len(), 1);
    let programs = wire.near(|| PortPrograms::attach_tcx(port, OnDeath::Drop).unwrap());
    assert_eq!(wire.near(|| syscall::query_tcx(port).unwrap()).len(), 1);
    let frames = mixture();
    send(&wire, &frames);
    let counters = settled(&programs, frames.len() as u64);
    assert_eq!((classes(&counters), counters.redirected), ([1; 5], 3), "{counters:?}");
    wire.near(|| programs.detach().unwrap());
    assert_eq!(left_at_tcx(&wire, port), []);
}

#[test]
fn only_an_af_xdp_socket_of_a_queue_that_exists_is_registered() {
    let Some(wire) = Wire::loadable() else { return };
    let mut programs = wire.attach_native(OnDeath::Kernel);
    let file = std::fs::File::open("/dev/null").unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    for queue in [0, 256] {
        assert!(
            matches!(programs.register_socket(queue, fd), Err(OffloadError::Queue { queue: q, .. }) if q == queue)
        );
    }
    assert!(matches!(programs.unregister_socket(0), Err(OffloadError::Queue { queue: 0, .. })));
}
