//! Traffic generator: sends frames out of a device at rates that no socket reaches.

use std::os::fd::{AsFd, OwnedFd};

use aya::Ebpf;

use super::anchor::Anchor;
use super::live_run::{self, check_lengths};
use super::template::{Fields, SLOT_BYTES};
use crate::InjectError;
use crate::bpf::mapped_map::MappedMap;
use crate::bpf::object;

/// Number of entries of the map `slots`.
const SLOTS: usize = 256;
/// Length of `struct control` of bpf/source.c: six 32-bit words, then the 64-bit number of the next frame.
const CONTROL_BYTES: usize = 32;
const NUMBER_AT: usize = 24;

/// Fields that vary between the frames of one template. All variations keep the IPv4, UDP and TCP checksums
/// correct. Only untagged IPv4 and IPv6 templates vary; fields that a template lacks don't vary.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flows {
    /// Number of source addresses, used in turn: the template's address and the following ones. 0 and 1 both
    /// mean one address.
    pub addresses: u32,
    /// Number of UDP or TCP source ports, used in turn: the template's port and the following ones. 0 and 1
    /// both mean one port. Each port is used with all addresses before the next port.
    pub ports: u32,
    /// Whether the first 8 bytes of a UDP payload of 16 or more bytes get a 64-bit big-endian sequence
    /// number, from 0.
    pub sequence: bool,
    /// Whether the 8 bytes after the sequence number get CLOCK_MONOTONIC in nanoseconds, 64 bits big-endian.
    pub timestamp: bool,
}

/// Sender of copies of template frames. Measured on a busy machine with a veth pair and one thread: 370 to
/// 570 ns per frame in batches of 32 to 256. That includes reception at the peer, whose XDP program drops the
/// frames.
#[derive(Debug)]
pub struct FrameSource {
    program: OwnedFd,
    control: MappedMap,
    longest: Vec<u8>,
    _anchor: Anchor,
    _object: Ebpf,
}

impl FrameSource {
    /// Loads the program with `templates` (1 to 256, used in turn).
    pub fn new(templates: &[&[u8]], flows: Flows) -> Result<Self, InjectError> {
        check_lengths(templates)?;
        let longest = templates.iter().max_by_key(|frame| frame.len()).filter(|_| templates.len() <= SLOTS);
        let count = templates.len();
        let longest = longest.ok_or(InjectError::Templates { count, max: SLOTS })?.to_vec();
        let mut object = object::source()?;
        let program = object::load(&mut object, "millrace_source")?;
        let anchor = Anchor::hold(program.as_fd())?;
        let mut slots = MappedMap::new(&mut object, "slots", SLOTS, SLOT_BYTES)?;
        for (index, frame) in templates.iter().enumerate() {
            slots.write(index * SLOT_BYTES, &Fields::of(frame).slot(frame, flows.payload_bytes()));
        }
        let mut control = MappedMap::new(&mut object, "control", 1, CONTROL_BYTES)?;
        control.write(4, &flows.words(count as u32));
        Ok(Self { program, control, longest, _anchor: anchor, _object: object })
    }

    /// Sends `count` frames out of the device `ifindex` of the calling thread's namespace. The kernel handles
    /// `batch` frames (1 to 256) at a time. Returns the number of generated frames. The calling thread's
    /// processor does all the work; for a veth that includes the reception at its peer.
    ///
    /// A device may still lose frames. A veth loses them silently unless its peer has an XDP program in the
    /// driver or receive offload (GRO).
    pub fn send(&mut self, ifindex: u32, count: u32, batch: u32) -> Result<u64, InjectError> {
        if count == 0 {
            return Ok(0);
        }
        let before = self.sent();
        self.control.write(0, &ifindex.to_ne_bytes());
        match live_run::run(self.program.as_fd(), ifindex, &self.longest, count, batch) {
            Err(error) if !live_run::was_interrupted(&error) => Err(error),
            _ => Ok(self.sent() - before),
        }
    }

    /// Returns the number of frames generated so far, which is the next sequence number.
    pub fn sent(&self) -> u64 {
        u64::from_ne_bytes(self.control.read(NUMBER_AT))
    }
}

impl Flows {
    fn payload_bytes(self) -> usize {
        if self.timestamp {
            16
        } else if self.sequence {
            8
        } else {
            0
        }
    }

    /// Returns the bytes of `struct control` from its second word on.
    fn words(self, templates: u32) -> Vec<u8> {
        let words =
            [templates, self.addresses, self.ports, u32::from(self.sequence), u32::from(self.timestamp)];
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }
}
