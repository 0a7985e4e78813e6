//! Devices of ports: memory, a played recording, and wrappers that impair and record.

use std::io;
use std::time::Duration;

use millrace_port::pcap::{PcapngWriter, Recording};
use millrace_port::{Impair, Impairment, ImpairmentDirection, Memory, Pcap, Port, Record, RecordLimit};
use millrace_wire::MacAddr;

use super::frames;
use crate::input::Input;

/// Maximum number of frames of the recording.
const MOST: usize = 6;
/// Upper bound of an impaired link's delay including jitter, in seconds.
const LONGEST_DELAY: u64 = 10;
/// Possible times between two frames of the recording, in milliseconds.
const TIMES: [u32; 4] = [1, 7, 900, 4000];
/// MAC address of the port that plays the recording.
const PLAYER: [u8; 6] = [2, 0, 0, 0, 0, 0x0f];

/// Devices of one router's ports.
#[derive(Debug)]
pub struct Devices {
    impairment: Option<Impairment>,
    records: Option<RecordLimit>,
    recording: Vec<u8>,
    /// Time of the recording's last frame, in milliseconds.
    recorded: u32,
}

impl Devices {
    /// Reads devices from the input. `kinds` has two bits for wrappers and one bit for the recording. The
    /// recording's frames have correct checksums unless `lies` is set.
    pub fn next(input: &mut Input<'_>, kinds: u8, lies: bool) -> Self {
        let impairment = (kinds & 3 == 2).then(|| next_impairment(input));
        let records = (kinds & 3 == 3).then(|| RecordLimit {
            packets: u64::from(input.byte()),
            bytes: input.pick(&[0, 60, 1000, u64::MAX]),
        });
        let (recording, recorded) =
            if kinds & 8 != 0 { next_recording(input, lies) } else { (Vec::new(), 0) };
        Self { impairment, records, recording, recorded }
    }

    /// Whether a link is impaired. If so, the fate of a packet depends on the number of earlier packets.
    pub fn impairs(&self) -> bool {
        self.impairment.is_some()
    }

    /// Returns the maximum time for which devices keep frames that no router counts, in seconds. Such frames
    /// are delayed, or not yet played.
    pub fn longest(&self) -> u64 {
        let delayed = if self.impairs() { LONGEST_DELAY } else { 0 };
        delayed.max(u64::from(self.recorded).div_ceil(1000))
    }

    /// Makes the device of a port.
    pub fn make(&self, port: &str, memory: Memory) -> Box<dyn Port> {
        let device: Box<dyn Port> = match port {
            "p" => {
                // An input may cut a recording short; such a recording plays nothing.
                let recording = Recording::parse(self.recording.clone()).unwrap_or_default();
                Box::new(Pcap::playing(recording, MacAddr(PLAYER), u16::MAX))
            }
            _ => Box::new(memory),
        };
        if port != "a" && port != "b" {
            return device;
        }
        if let Some(impairment) = &self.impairment {
            let inwards = impairment.direction == ImpairmentDirection::In;
            return match inwards == (port == "a") {
                true => Box::new(Impair::new(device, impairment).expect("settings in range")),
                false => device,
            };
        }
        match self.records {
            Some(limit) => {
                let writer = PcapngWriter::new(io::sink(), Duration::ZERO).expect("a sink takes all");
                Box::new(Record::new(device, writer, limit))
            }
            None => device,
        }
    }
}

/// Returns an impairment, of reception at port `a` or of transmission at port `b`. It flips no bits, because
/// the input itself provides corrupted frames.
fn next_impairment(input: &mut Input<'_>) -> Impairment {
    let delay = input.pick(&[0u64, 1, 50, 3000]);
    let parts = [0.0, 0.1, 0.5, 1.0];
    Impairment {
        direction: input.pick(&[ImpairmentDirection::In, ImpairmentDirection::Out]),
        delay: Duration::from_millis(delay),
        jitter: Duration::from_millis(delay / 2),
        loss: input.pick(&[0.0, 0.0, 0.3, 1.0]),
        duplicate: input.pick(&parts),
        reorder: input.pick(&parts),
        seed: u64::from(input.byte()),
        queue: input.pick(&[1000, 1, 4, 1000]),
        ..Impairment::default()
    }
}

/// Returns a pcap file of a few frames with ascending times, and the last of these times in milliseconds.
fn next_recording(input: &mut Input<'_>, lies: bool) -> (Vec<u8>, u32) {
    let mut file = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1].map(u32::to_le_bytes).concat();
    let mut time = 0;
    for number in 0..1 + input.below(MOST) {
        time += input.pick(&TIMES);
        for frame in frames::next_frames(input, "p", 1000 + number as u32, lies) {
            let length = frame.len() as u32;
            let head = [time / 1000, time % 1000 * 1000, length, length];
            file.extend(head.map(u32::to_le_bytes).concat());
            file.extend(frame);
        }
    }
    (file, time)
}
