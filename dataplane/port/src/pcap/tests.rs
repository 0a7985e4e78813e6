use std::path::Path;

use millrace_packet::Packet;
use proptest::prelude::*;

use super::*;

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

/// Path of a test's file. Dropping it removes the file.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let file = format!("millrace-pcap-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(file))
    }

    fn holding(name: &str, bytes: &[u8]) -> Self {
        let scratch = Self::new(name);
        std::fs::write(&scratch.0, bytes).unwrap();
        scratch
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Returns a little-endian pcap file with times in microseconds.
fn classic(link_type: u32, packets: &[(u64, &[u8], u32)]) -> Vec<u8> {
    let mut file = Vec::new();
    for field in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, link_type] {
        file.extend(u32::to_le_bytes(field));
    }
    for (microseconds, bytes, original) in packets {
        let (seconds, rest) = (microseconds / 1_000_000, microseconds % 1_000_000);
        for field in [seconds as u32, rest as u32, bytes.len() as u32, *original] {
            file.extend(field.to_le_bytes());
        }
        file.extend_from_slice(bytes);
    }
    file
}

fn open(input: &Path, pace: Pace) -> Result<Pcap, PortError> {
    let options = PcapOptions { input: Some(input.to_owned()), pace, ..PcapOptions::default() };
    Pcap::open(MAC, 1500, &options)
}

fn received(port: &mut Pcap, pool: &Pool, now: Instant) -> Vec<Vec<u8>> {
    let mut batch = Batch::new();
    port.receive(pool, now, &mut batch);
    batch.iter().map(Packet::to_vec).collect()
}

#[test]
fn packets_arrive_in_the_order_and_at_the_distance_of_their_times() {
    let pool = Pool::new(16).unwrap();
    let start = 1_700_000_000_000_000;
    let file =
        classic(1, &[(start + 500, b"second", 6), (start, b"first", 5), (start + 2_000_000, b"third", 5)]);
    let file = Scratch::holding("order", &file);
    let mut port = open(file.path(), Pace::Recorded).unwrap();
    assert_eq!(port.next_event(), Some(Instant::ZERO));
    let begin = Instant::from_millis(77);
    assert_eq!(received(&mut port, &pool, begin), [b"first"]);
    assert_eq!(port.next_event(), Some(begin + Duration::from_micros(500)));
    assert!(received(&mut port, &pool, begin + Duration::from_micros(499)).is_empty());
    assert_eq!(received(&mut port, &pool, begin + Duration::from_micros(500)), [b"second"]);
    assert!(!port.is_finished());
    assert_eq!(received(&mut port, &pool, begin + Duration::from_secs(9)), [b"third"]);
    assert!(port.is_finished() && port.next_event().is_none());
}

#[test]
fn the_fast_pace_waits_for_nothing() {
    let pool = Pool::new(16).unwrap();
    let file = Scratch::holding("fast", &classic(1, &[(0, b"a", 1), (9_000_000_000, b"b", 1)]));
    let mut port = open(file.path(), Pace::Fast).unwrap();
    assert_eq!(received(&mut port, &pool, Instant::ZERO), [b"a", b"b"]);
    assert!(port.is_finished());
}

#[test]
fn packets_cut_by_the_recording_are_left_out_and_counted() {
    let pool = Pool::new(16).unwrap();
    let file = Scratch::holding("cut", &classic(1, &[(0, b"whole", 5), (1, b"only the begi", 1500)]));
    let mut port = open(file.path(), Pace::Fast).unwrap();
    assert_eq!(received(&mut port, &pool, Instant::ZERO), [b"whole"]);
    assert_eq!((port.truncated(), port.counters().received), (1, 1));
}

#[test]
fn frames_that_are_not_ethernet_are_refused_by_name() {
    let file = Scratch::holding("link-type", &classic(101, &[(0, b"raw", 3)]));
    let error = open(file.path(), Pace::Fast).unwrap_err().to_string();
    assert!(error.contains("101") && error.contains("RAW") && error.contains("only Ethernet"), "{error}");
}

#[test]
fn a_broken_file_is_refused_with_the_offset() {
    let mut bytes = classic(1, &[(0, b"whole", 5), (1, b"cut off here", 12)]);
    bytes.truncate(bytes.len() - 3);
    let file = Scratch::holding("broken", &bytes);
    let error = open(file.path(), Pace::Fast).unwrap_err().to_string();
    assert!(error.contains("offset 45") && error.contains("broken"), "{error}");
    for (name, bytes) in [("text", &b"this is no capture, it is a text"[..]), ("empty", b"")] {
        let file = Scratch::holding(name, bytes);
        let error = open(file.path(), Pace::Fast).unwrap_err().to_string();
        assert!(error.contains("not a capture"), "{error}");
    }
    assert!(matches!(open(Path::new("/nonexistent"), Pace::Fast), Err(PortError::File { .. })));
}

#[test]
fn port_without_files_receives_nothing_and_counts_sent_frames() {
    let pool = Pool::new(4).unwrap();
    let mut port = Pcap::open(MAC, 1500, &PcapOptions::default()).unwrap();
    assert!(port.is_finished() && port.output_status().is_none());
    let mut batch = Batch::new();
    batch.push(pool.packet_from(b"out").unwrap()).unwrap();
    port.transmit(&pool, Instant::ZERO, &mut batch);
    assert_eq!((port.counters().transmitted, port.counters().transmitted_bytes), (1, 3));
}

#[test]
fn a_full_disk_is_counted_and_reported() {
    let options = PcapOptions { output: Some("/dev/full".into()), ..PcapOptions::default() };
    let pool = Pool::new(512).unwrap();
    let mut port = Pcap::open(MAC, 1500, &options).unwrap();
    let status = port.output_status().unwrap();
    for _ in 0..4 {
        let mut batch = Batch::new();
        while batch.room() > 0 {
            batch.push(pool.packet_from(&[0; 1000]).unwrap()).unwrap();
        }
        port.transmit(&pool, Instant::ZERO, &mut batch);
    }
    let counters = port.counters();
    let lost = counters.drops.get(DropReason::TransmitFailed);
    assert!(lost > 0 && counters.transmitted + lost == 1024, "{counters:?}");
    assert_eq!(status.lost(), lost);
    assert!(status.error().unwrap().contains("No space left"), "{:?}", status.error());
}

#[test]
fn an_error_of_the_last_write_is_seen_after_the_port_is_gone() {
    let options = PcapOptions { output: Some("/dev/full".into()), ..PcapOptions::default() };
    let port = Pcap::open(MAC, 1500, &options).unwrap();
    let status = port.output_status().unwrap();
    assert_eq!(status.error(), None);
    drop(port);
    assert!(status.error().is_some());
}

/// Returns a pcapng file of one interface with the given resolution, and packets with the given ticks.
fn pcapng_at(resolution: u8, ticks: &[u64]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut block = |kind: u32, body: &[u8]| {
        let length = (body.len() as u32 + 12).to_be_bytes();
        file.extend([&kind.to_be_bytes()[..], &length, body, &length].concat());
    };
    block(0x0a0d_0d0a, &[&[0x1a, 0x2b, 0x3c, 0x4d, 0, 1, 0, 0][..], &[255; 8]].concat());
    block(1, &[0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, resolution, 0, 0, 0, 0, 0, 0, 0]);
    for ticks in ticks {
        block(6, &[&[0; 4][..], &ticks.to_be_bytes(), &[0, 0, 0, 4, 0, 0, 0, 4], b"data"].concat());
    }
    file
}

#[test]
fn ticks_are_read_in_the_resolution_of_their_interface() {
    for (resolution, tick) in [(3, 1_000_000), (6, 1000), (9, 1), (0x80 | 10, 976_562)] {
        let recording = Recording::parse(pcapng_at(resolution, &[1 << 33, (1 << 33) + 1])).unwrap();
        let (time, bytes) = recording.get(1).unwrap();
        assert_eq!(bytes, b"data");
        assert!(time.as_nanos().abs_diff(tick) <= 1, "{resolution}: {time:?}");
    }
}

fn packets() -> impl Strategy<Value = Vec<(u64, Vec<u8>)>> {
    let packet = (0u64..1 << 40, proptest::collection::vec(any::<u8>(), 0..4000));
    proptest::collection::vec(packet, 0..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn transmitted_frames_are_received_from_the_file(mut packets in packets(), case: u64) {
        packets.sort_by_key(|(time, _)| *time);
        let pool = Pool::new(256).unwrap();
        let file = Scratch::new(&format!("round-{case}"));
        let options = PcapOptions { output: Some(file.path().to_owned()), ..PcapOptions::default() };
        let mut port = Pcap::open(MAC, 1500, &options).unwrap();
        for (time, bytes) in &packets {
            let mut batch = Batch::new();
            batch.push(pool.packet_from(bytes).unwrap()).unwrap();
            port.transmit(&pool, Instant::from_nanos(*time), &mut batch);
        }
        drop(port);
        let mut port = open(file.path(), Pace::Recorded).unwrap();
        let mut got = Vec::new();
        while let Some(now) = port.next_event() {
            got.extend(received(&mut port, &pool, now).into_iter().map(|bytes| (now.as_nanos(), bytes)));
        }
        let first = packets.first().map_or(0, |(time, _)| *time);
        packets.iter_mut().for_each(|(time, _)| *time -= first);
        prop_assert_eq!(got, packets);
        prop_assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), start in 0usize..4) {
        let starts: [&[u8]; 4] = [&[], &[0x0a, 0x0d, 0x0d, 0x0a], &[0xd4, 0xc3, 0xb2, 0xa1], &[0xa1, 0xb2, 0x3c, 0x4d]];
        let _ = Recording::parse([starts[start], &bytes].concat());
    }

    #[test]
    fn damaged_files_never_panic(
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
        keep in any::<proptest::sample::Index>(),
    ) {
        for whole in [pcapng_at(6, &[1, 2, 3]), classic(1, &[(5, b"one", 3), (6, b"two", 3)])] {
            let mut bytes = whole.clone();
            for (place, value) in &damage {
                bytes[place.index(whole.len())] = *value;
            }
            bytes.truncate(keep.index(whole.len()) + 1);
            let _ = Recording::parse(bytes);
        }
    }
}
