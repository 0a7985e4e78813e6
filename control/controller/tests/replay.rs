//! Tests of a replay through a scheduler: order and times of the sent frames.

use std::path::Path;

use millrace_config::Config;
use millrace_controller::replay::{Options, replay};
use millrace_port::pcap::Recording;

const CONFIG: &str = r#"
    [[port]]
    name = "lan"
    kind = "memory"
    mac = "02:00:00:00:00:01"
    address = ["10.1.0.1/24"]
    [[port]]
    name = "wan"
    kind = "memory"
    mac = "02:00:00:00:00:02"
    address = ["10.2.0.1/24"]
    [port.scheduler]
    rate = "1mbit"
    overhead = "none"
    [[port.scheduler.node]]
    name = "top"
    kind = "priority"
    [[port.scheduler.node]]
    name = "low"
    kind = "fifo"
    under = "top"
    level = 1
    [[port.scheduler.node]]
    name = "high"
    kind = "fifo"
    under = "top"
    level = 0
    [[neighbour]]
    port = "wan"
    address = "10.2.0.2"
    mac = "02:00:00:00:00:09"
    [[filter]]
    match = "dport 9001"
    action = "queue high"
"#;

/// Length of each frame in bytes.
const LENGTH: usize = 1000;

/// UDP frame to a destination port, without UDP checksum.
fn frame(port: u16) -> Vec<u8> {
    let mut frame = vec![0; LENGTH];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0x99, 8, 0]);
    frame[14..34].copy_from_slice(&[0x45, 0, 3, 0xda, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, 2, 10, 2, 0, 2]);
    let sum = frame[14..34].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum::<u32>();
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame[34..36].copy_from_slice(&1000_u16.to_be_bytes());
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    frame[38..40].copy_from_slice(&((LENGTH - 34) as u16).to_be_bytes());
    frame
}

/// Writes a pcap file with one frame to each of these UDP ports. All frames have the same timestamp.
fn recorded(path: &Path, ports: &[u16]) {
    let mut file = Vec::new();
    [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1].iter().for_each(|word| file.extend(word.to_le_bytes()));
    for port in ports {
        [100, 0, LENGTH as u32, LENGTH as u32].iter().for_each(|word| file.extend(word.to_le_bytes()));
        file.extend(frame(*port));
    }
    std::fs::write(path, file).unwrap();
}

#[test]
fn frames_wait_for_the_rate_of_their_port_in_the_order_of_their_queues() {
    let folder = std::env::temp_dir().join(format!("millrace-replay-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (input, output) = (folder.join("in.pcap"), folder.join("out.pcapng"));
    recorded(&input, &[9000, 9000, 9000, 9000, 9000, 9000, 9001, 9001]);
    let config = Config::parse(CONFIG, "test.toml").unwrap();
    let summary = replay(&config, &Options { input: &input, output: &output, at: None }).unwrap();
    let sent = Recording::read(&output).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!((summary.unaccounted, summary.dropped), (0, 0));
    let sent = (0..sent.len()).filter_map(|index| sent.get(index)).filter(|(_, frame)| frame.len() == LENGTH);
    let (times, ports): (Vec<_>, Vec<_>) =
        sent.map(|(at, frame)| (at, u16::from_be_bytes([frame[36], frame[37]]))).unzip();
    // The slack lets two frames go ahead of the rate. Then the frames of the high queue overtake the others.
    assert_eq!(ports, [9000, 9000, 9001, 9001, 9000, 9000, 9000, 9000], "{times:?}");
    // 1,000 bytes at 1 Mb/s take 8 ms.
    let gaps: Vec<u128> = times[2..].windows(2).map(|pair| (pair[1] - pair[0]).as_micros()).collect();
    assert_eq!(gaps, [8000; 5], "{times:?}");
}
