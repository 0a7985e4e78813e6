//! A traffic generator: frames that leave a device at rates no socket reaches.

use std::os::fd::{AsFd, OwnedFd};

use aya::Ebpf;

use super::anchor::Anchor;
use super::live_run::{self, check_lengths};
use super::template::{Fields, SLOT_BYTES};
use crate::mapped_map::MappedMap;
use crate::{InjectError, object};

/// Entries of the map `slots`.
const SLOTS: usize = 256;
/// `struct control` of bpf/source.c: six 32-bit words, then the 64-bit number of the next frame.
const CONTROL_BYTES: usize = 32;
const NUMBER_AT: usize = 24;

/// How the frames made from one template differ. All changes keep IPv4, UDP and TCP checksums right. They apply to
/// untagged IPv4 and IPv6 templates; what a template doesn't have is not varied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flows {
    /// How many source addresses to use in turn, counted up from the template's; 0 and 1 mean one.
    pub addresses: u32,
    /// How many UDP or TCP source ports to use, counted up from the template's, each for a whole turn of the
    /// addresses; 0 and 1 mean one.
    pub ports: u32,
    /// Writes a 64-bit big-endian sequence number, from 0, into the first 8 bytes of a UDP payload of 16 or more.
    pub sequence: bool,
    /// Writes CLOCK_MONOTONIC in nanoseconds, 64 bits big-endian, into the next 8.
    pub timestamp: bool,
}

/// Sends copies of template frames out of a device. Measured on a veth pair, one thread, the receiving of the peer and its
/// dropping XDP program included, on a busy machine: 370 to 570 ns per frame in batches of 32 to 256.
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
    ///
    /// # Errors
    /// [`InjectError::Program`], [`InjectError::TooLong`], [`InjectError::TooShort`], [`InjectError::Templates`].
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

    /// Sends `count` frames out of `ifindex` of the calling thread's namespace, `batch` (1 to 256) at a time inside
    /// the kernel; returns how many were made. The calling thread's processor does all the work, for a veth also its
    /// peer's receiving.
    ///
    /// A device may still lose them: a veth does, silently, unless its peer has an XDP program in the driver or GRO on.
    ///
    /// # Errors
    /// [`InjectError::DeviceGone`], [`InjectError::Kernel`].
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

    /// How many frames were made so far: the next one's sequence number.
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

    /// `struct control` from its second word on.
    fn words(self, templates: u32) -> Vec<u8> {
        let words =
            [templates, self.addresses, self.ports, u32::from(self.sequence), u32::from(self.timestamp)];
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }
}
