use std::net::UdpSocket;
use std::process::Command;
use std::thread;
use std::time::Duration;

use millrace_wire::checksum;

use super::*;

const KERNEL: [u8; 4] = [10, 77, 0, 1];
const OURS: [u8; 4] = [10, 77, 0, 2];

/// Runs a test in its own network namespace, which ends with the thread. Without root, the test is skipped,
/// or fails in CI, where root is required.
fn in_namespace(test: fn(Pool)) {
    // SAFETY: the call only reads the caller's user id.
    if unsafe { libc::geteuid() } != 0 {
        assert!(std::env::var("CI").is_err(), "these tests need root");
        println!("skipped: network namespaces need root");
        return;
    }
    let thread = thread::spawn(move || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        test(Pool::new(512).unwrap());
    });
    thread.join().unwrap();
}

/// Runs `ip` in the thread's namespace.
fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(status.success(), "ip {arguments}");
}

fn opened(mtu: u16) -> Tap {
    let port = Tap::open("mr0", mtu).unwrap();
    ip("address add 10.77.0.1/24 dev mr0");
    port
}

/// Returns the first frame accepted by `wanted`, within two seconds. Skips other frames, such as the kernel's
/// neighbour discovery.
fn wait_for(port: &mut Tap, pool: &Pool, wanted: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
    for _ in 0..400 {
        let mut batch = Batch::new();
        port.receive(pool, Instant::ZERO, &mut batch);
        if let Some(packet) = batch.iter().find(|packet| wanted(packet.data())) {
            return Some(packet.to_vec());
        }
        thread::sleep(Duration::from_millis(5));
    }
    None
}

fn transmit(port: &mut Tap, pool: &Pool, frame: &[u8]) {
    let mut batch = Batch::new();
    batch.push(pool.packet_from(frame).unwrap()).unwrap();
    port.transmit(pool, Instant::ZERO, &mut batch);
}

fn is_arp(frame: &[u8]) -> bool {
    frame[12..14] == [0x08, 0x06]
}

fn is_udp(frame: &[u8]) -> bool {
    frame[12..14] == [0x08, 0x00] && frame[23] == 17
}

/// Returns the reply to an ARP request for the port's address.
fn arp_reply(request: &[u8], mac: MacAddr) -> Vec<u8> {
    let (sender_mac, sender) = (&request[22..28], &request[28..32]);
    let fixed = [0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 2];
    [sender_mac, &mac.0, &fixed, &mac.0, &OURS, sender_mac, sender].concat()
}

/// Returns a UDP datagram from the port to the kernel, without a UDP checksum.
fn udp_frame(to: MacAddr, from: MacAddr, port: u16, payload: &[u8]) -> Vec<u8> {
    let (total, length) = ((28 + payload.len()) as u16, (8 + payload.len()) as u16);
    let mut header =
        [&[0x45, 0][..], &total.to_be_bytes(), &[0, 0, 0, 0, 64, 17, 0, 0], &OURS, &KERNEL].concat();
    let sum = header.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum::<u32>();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    let udp = [&9u16.to_be_bytes()[..], &port.to_be_bytes(), &length.to_be_bytes(), &[0, 0]].concat();
    [&to.0[..], &from.0, &[0x08, 0x00], &header, &udp, payload].concat()
}

fn kernel_mac(port: &Tap) -> MacAddr {
    MacAddr(port.device.mac_address().unwrap())
}

#[test]
fn the_kernel_and_the_port_exchange_packets() {
    in_namespace(|pool| {
        let mut port = opened(1500);
        let socket = UdpSocket::bind("10.77.0.1:4000").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        socket.send_to(b"hello port", "10.77.0.2:9").unwrap();
        let request = wait_for(&mut port, &pool, is_arp).expect("an ARP request");
        assert_eq!(request[38..42], OURS);
        let mac = port.capabilities().mac;
        transmit(&mut port, &pool, &arp_reply(&request, mac));
        let datagram = wait_for(&mut port, &pool, is_udp).expect("the datagram");
        assert_eq!((&datagram[..6], &datagram[42..]), (&mac.0[..], &b"hello port"[..]));
        assert_eq!(udp_checksum_residue(&datagram), 0, "the kernel completes the checksum");
        let frame = udp_frame(kernel_mac(&port), mac, 4000, b"hello kernel");
        transmit(&mut port, &pool, &frame);
        let mut buffer = [0; 64];
        let (length, from) = socket.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..length], from.to_string()), (&b"hello kernel"[..], "10.77.0.2:9".to_owned()));
        assert_eq!((port.counters().transmitted, port.counters().drops.total()), (2, 0));
        drop(port);
        assert_eq!(pool.in_use(), 0);
    });
}

/// Returns the checksum over pseudo-header and datagram: 0 if the datagram's checksum is correct.
fn udp_checksum_residue(frame: &[u8]) -> u16 {
    let (addresses, udp) = (&frame[26..34], &frame[34..]);
    assert_ne!(udp[6..8], [0, 0], "no checksum at all");
    let pseudo = [addresses, &[0, 17], &(udp.len() as u16).to_be_bytes(), udp].concat();
    checksum::checksum(&pseudo)
}

#[test]
fn jumbo_frames_pass_in_chains() {
    in_namespace(|pool| {
        let mut port = opened(9000);
        let socket = UdpSocket::bind("10.77.0.1:4000").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let mac = port.capabilities().mac;
        ip(&format!("neighbour add 10.77.0.2 lladdr {mac} dev mr0"));
        socket.send_to(&[5; 8000], "10.77.0.2:9").unwrap();
        let datagram = wait_for(&mut port, &pool, is_udp).expect("the datagram");
        assert_eq!(datagram[42..], [5; 8000]);
        let frame = udp_frame(kernel_mac(&port), mac, 4000, &[6; 8000]);
        transmit(&mut port, &pool, &frame);
        let mut buffer = [0; 9000];
        assert_eq!(socket.recv(&mut buffer).unwrap(), 8000);
        assert_eq!(buffer[..8000], [6; 8000]);
    });
}

#[test]
fn frames_beyond_the_mtu_are_dropped_in_both_directions() {
    in_namespace(|pool| {
        let mut port = opened(1500);
        let mac = port.capabilities().mac;
        ip(&format!("neighbour add 10.77.0.2 lladdr {mac} dev mr0"));
        ip("link set mr0 mtu 9000");
        let socket = UdpSocket::bind("10.77.0.1:0").unwrap();
        socket.send_to(&[5; 4000], "10.77.0.2:9").unwrap();
        assert_eq!(wait_for(&mut port, &pool, is_udp), None);
        assert_eq!(port.counters().drops.get(DropReason::LinkOversize), 1);
        transmit(&mut port, &pool, &[0; 1523]);
        assert_eq!(port.counters().drops.get(DropReason::LinkOversize), 2);
    });
}

#[test]
fn a_device_that_is_down_or_deleted_is_counted() {
    in_namespace(|pool| {
        let mut port = opened(1500);
        let frame = udp_frame(kernel_mac(&port), port.capabilities().mac, 4000, b"x");
        ip("link set mr0 down");
        transmit(&mut port, &pool, &frame);
        assert_eq!(port.counters().drops.get(DropReason::PortDown), 1);
        ip("link set mr0 up");
        transmit(&mut port, &pool, &frame);
        assert_eq!(port.counters().transmitted, 1);
        ip("link delete mr0");
        transmit(&mut port, &pool, &frame);
        let mut batch = Batch::new();
        port.receive(&pool, Instant::ZERO, &mut batch);
        assert_eq!(port.counters().drops.get(DropReason::PortDown), 2);
    });
}

#[test]
fn unread_frames_are_counted() {
    in_namespace(|pool| {
        let mut port = opened(1500);
        let mac = port.capabilities().mac;
        ip(&format!("neighbour add 10.77.0.2 lladdr {mac} dev mr0"));
        let socket = UdpSocket::bind("10.77.0.1:0").unwrap();
        let sent = (0..3000).filter(|_| socket.send_to(&[0; 20], "10.77.0.2:9").is_ok()).count();
        let mut given = 0;
        loop {
            let mut batch = Batch::new();
            port.receive(&pool, Instant::ZERO, &mut batch);
            if batch.is_empty() {
                break;
            }
            given += batch.len() as u64;
        }
        let counters = port.counters();
        let lost = counters.drops.get(DropReason::ReceiveRingFull);
        assert!(lost > 0, "{sent} sent, {given} read");
        assert_eq!(counters.received, given + counters.drops.total());
    });
}

#[test]
fn the_device_disappears_with_the_port() {
    in_namespace(|_| {
        let port = Tap::open("mr0", 1400).unwrap();
        assert_eq!(port.device.mtu().unwrap(), 1400);
        assert!(port.device.is_running().unwrap());
        assert_ne!(port.capabilities().mac, kernel_mac(&port));
        assert!(nix::net::if_::if_nametoindex("mr0").is_ok());
        drop(port);
        assert!(nix::net::if_::if_nametoindex("mr0").is_err());
    });
}

#[test]
fn a_device_in_use_and_one_of_another_kind_are_refused() {
    in_namespace(|_| {
        let _port = Tap::open("mr0", 1500).unwrap();
        assert!(matches!(Tap::open("mr0", 1500), Err(PortError::Busy { .. })));
        let error = Tap::open("lo", 1500).err().unwrap().to_string();
        assert!(error.contains("lo does not support TAP at this MTU"), "{error}");
    });
}

#[test]
fn names_that_no_device_can_have_are_refused() {
    for name in ["", "sixteen-letters!", "a b", "a/b", "tap%d", ".."] {
        let error = Tap::open(name, 1500).err().unwrap().to_string();
        assert!(error.contains("1 to 15 bytes"), "{error}");
    }
}

#[test]
fn the_address_follows_from_the_name_and_is_local_unicast() {
    let mac = mac_of("lan", MacAddr::ZERO);
    assert_eq!(mac, mac_of("lan", MacAddr::ZERO));
    assert_ne!(mac, mac_of("wan", MacAddr::ZERO));
    assert_ne!(mac, mac_of("lan", mac));
    assert!(mac.is_unicast() && mac.0[0] & 2 != 0);
}

#[test]
fn catcher_takes_packets_of_other_senders_only() {
    in_namespace(|pool| {
        let mut catcher = Tap::open_catcher("mr0").unwrap();
        ip("address add 10.77.0.1/24 dev mr0");
        let socket = UdpSocket::bind("10.77.0.1:4000").unwrap();
        // The kernel sends its own ARP request for the destination, which the port must ignore.
        socket.send_to(b"hello", "10.77.0.2:9").unwrap();
        assert_eq!(wait_for(&mut catcher, &pool, |_| true), None);
        assert_eq!(catcher.counters().received, 0);
        // A frame with another source address is output of another device, and may have any valid length.
        let mac = kernel_mac(&catcher);
        ip("link set mr0 address 02:00:00:00:00:77 mtu 9000");
        ip("neighbour replace 10.77.0.2 lladdr 02:00:00:00:00:99 dev mr0");
        socket.send_to(&[7; 8000], "10.77.0.2:9").unwrap();
        let frame = wait_for(&mut catcher, &pool, is_udp).expect("the datagram");
        assert_eq!((frame.len(), &frame[..6]), (14 + 28 + 8000, &[2, 0, 0, 0, 0, 0x99][..]));
        assert_eq!(udp_checksum_residue(&frame), 0);
        assert_ne!(frame[6..12], mac.0);
    });
}
