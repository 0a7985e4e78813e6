//! Plugin that changes packets as the input prescribes, with the functions that a sandboxed plugin has. Its
//! changes to a packet depend on the packet alone, so that two routers make the same changes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millrace_packet::Packet;
use millrace_plugin_abi::{
    Instance, Instant, Message, Packets, Plugin, PluginError, Position, Progress, Reply, Verdict,
};
use millrace_units::{PortId, QueueId};
use serde_json::{Map, Value};

use crate::input::Input;

/// Change of a packet.
#[derive(Clone, Debug)]
pub enum Edit {
    /// Cut or lengthening at the front by `packet_resize`, in bytes.
    Resize(i16),
    /// Bytes written at an offset, by `packet_write` or in the window.
    Write(usize, Vec<u8>),
    /// Correction of the IPv4 header checksum.
    Checksum,
    /// Verdict of the packet.
    Verdict(Verdict),
}

/// Lists of edits. The bytes of a packet select one of them.
pub type Script = Arc<Mutex<Vec<Vec<Edit>>>>;

/// Reads a list of edits from the input.
pub fn next_edits(input: &mut Input<'_>) -> Vec<Edit> {
    (0..input.below(5)).map(|_| next_edit(input)).collect()
}

fn next_edit(input: &mut Input<'_>) -> Edit {
    match input.below(8) {
        0 => Edit::Resize(-(input.below(70) as i16)),
        1 => Edit::Resize(input.pick(&[-14, -16, -33, -34, -35, -54, -2048, 1, 14, 100, 256])),
        2..=4 => {
            let at = input.below(80);
            let length = 1 + input.below(4);
            Edit::Write(at, input.take(length).to_vec())
        }
        5 => Edit::Checksum,
        _ => Edit::Verdict(input.pick(&[
            Verdict::Pass,
            Verdict::Drop(3),
            Verdict::Drop(255),
            Verdict::Consume,
            Verdict::Hold(Instant::ZERO),
            Verdict::Classify,
            Verdict::Port(PortId(1)),
            Verdict::Port(PortId(9)),
            Verdict::Ports(0b110),
            Verdict::Ports(0),
            Verdict::Ports(u64::MAX),
            Verdict::Queue(QueueId(77)),
            Verdict::Queue(QueueId(1)),
            Verdict::Fault,
        ])),
    }
}

/// The writer plugin; each of its instances is equal to it.
#[derive(Clone, Debug)]
pub struct Writer(pub Script);

impl Plugin for Writer {
    fn name(&self) -> &'static str {
        "writer"
    }

    fn version(&self) -> &'static str {
        "1.0.0"
    }

    fn summary(&self) -> &'static str {
        "Changes packets as a fuzz input has it."
    }

    fn positions(&self) -> &[Position] {
        &[Position::Early, Position::Route, Position::Late, Position::Copy, Position::Queue]
    }

    fn messages(&self) -> &[(&'static str, &'static str)] {
        &[]
    }

    fn create(&self, _: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        Ok(Box::new(self.clone()))
    }
}

impl Instance for Writer {
    fn process(&mut self, packets: &mut Packets<'_>, now: Instant) -> Progress {
        let script = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        packets.for_each(|_, packet| {
            if script.is_empty() {
                return Verdict::Pass;
            }
            let sum = packet.network().iter().fold(0usize, |sum, byte| sum.wrapping_add(usize::from(*byte)));
            let mut verdict = Verdict::Pass;
            for edit in &script[sum % script.len()] {
                match edit {
                    Edit::Verdict(Verdict::Hold(_)) => {
                        verdict = Verdict::Hold(now + Duration::from_millis(1));
                    }
                    Edit::Verdict(other) => verdict = *other,
                    other => carry_out(packet, other),
                }
            }
            verdict
        });
        Progress::Done
    }

    fn control(&mut self, _: &Message) -> Reply {
        Ok(Value::Null)
    }
}

fn carry_out(packet: &mut Packet, edit: &Edit) {
    match edit {
        Edit::Resize(bytes) => {
            let count = usize::from(bytes.unsigned_abs());
            if *bytes >= 0 && count <= packet.headroom() {
                packet.prepend(count).expect("headroom")[..count].fill(0);
            } else if *bytes < 0 && count <= packet.data().len() {
                let _ = packet.trim_front(count);
            }
        }
        Edit::Write(at, bytes) => {
            let room = packet.data_mut().get_mut(*at..).unwrap_or_default();
            let count = room.len().min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
        }
        Edit::Checksum => {
            let header = packet.network_mut();
            let length = usize::from(header.first().copied().unwrap_or(0) & 15) * 4;
            if (20..=header.len()).contains(&length) {
                header[10..12].fill(0);
                let sum = millrace_tests::checksum(&header[..length]).to_be_bytes();
                header[10..12].copy_from_slice(&sum);
            }
        }
        Edit::Verdict(_) => {}
    }
}
