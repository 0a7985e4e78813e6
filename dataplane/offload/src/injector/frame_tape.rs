//! Frame tape: frames one after the other in memory. A program runs on the same number of live frames, and
//! copies the frames from the tape into them (bpf/frame_tape.h).

use std::os::fd::BorrowedFd;

use aya::Ebpf;

use super::live_run::{self, MAX_BATCH, MAX_FRAME, MIN_FRAME};
use crate::bpf::mapped_map::MappedMap;
use crate::{InjectError, OffloadError};

/// Constants `TAPE_BYTES`, `ENTRY_HEAD` and `LONGEST_ON_TAPE` of bpf/frame_tape.h.
const BYTES: usize = 0x40000;
const ENTRY_HEAD: usize = 8;
const LONGEST: usize = 4096;
/// Length of `struct tape_cursor`, and offsets of its fields.
const CURSOR_BYTES: usize = 16;
const AT: usize = 0;
const TAKEN: usize = 4;
const MEETS_AGAIN: usize = 8;

/// Number of frames after which the kernel releases the frames' pages for reuse. It must be below the queue
/// length of a veth's other end (256 frames). A small number keeps the pages in the CPU caches. Measured with
/// 256 frames of 60 bytes by a veth: 132 ns per frame if all pages are released together, 78 ns with 32.
const AT_A_TIME: u32 = 32;

/// Maps `tape` and `tape_cursor` of an object.
#[derive(Debug)]
pub(crate) struct FrameTape {
    tape: MappedMap,
    cursor: MappedMap,
    /// Number of frames on the tape.
    frames: u32,
    end: usize,
    longest: usize,
}

impl FrameTape {
    pub(crate) fn new(object: &mut Ebpf) -> Result<Self, OffloadError> {
        let tape = MappedMap::new(object, "tape", 1, BYTES + ENTRY_HEAD + LONGEST)?;
        let cursor = MappedMap::new(object, "tape_cursor", 1, CURSOR_BYTES)?;
        Ok(Self { tape, cursor, frames: 0, end: 0, longest: 0 })
    }

    /// Sets whether the port's own program sees the frames after the program `millrace_hand`. If so,
    /// `millrace_hand` announces each frame to the port's program.
    pub(crate) fn set_meets_again(&mut self, again: bool) {
        self.cursor.write(MEETS_AGAIN, &u32::from(again).to_ne_bytes());
    }

    /// Returns the number of frames on the tape.
    pub(crate) fn len(&self) -> u32 {
        self.frames
    }

    /// Returns whether no further frame fits.
    pub(crate) fn is_full(&self) -> bool {
        self.frames == MAX_BATCH || self.end >= BYTES
    }

    /// Appends a frame of `length` bytes, given in pieces. Returns `false` if the length is invalid or the
    /// tape has no room.
    #[inline]
    pub(crate) fn put<'a>(&mut self, length: usize, pieces: impl IntoIterator<Item = &'a [u8]>) -> bool {
        if !(MIN_FRAME..=MAX_FRAME).contains(&length) || self.is_full() {
            return false;
        }
        let mut at = self.end + ENTRY_HEAD;
        for piece in pieces {
            self.tape.write(at, piece);
            at += piece.len();
        }
        self.tape.write(self.end, &(length as u32).to_ne_bytes());
        self.end = (self.end + ENTRY_HEAD + length).next_multiple_of(ENTRY_HEAD);
        self.longest = self.longest.max(length);
        self.frames += 1;
        true
    }

    /// Runs `program` on the frames of the tape, as if received from `ifindex`, and empties the tape. Returns
    /// the number of frames that the kernel took, also if an error ended the run after some of them.
    pub(crate) fn run(&mut self, program: BorrowedFd<'_>, ifindex: u32) -> Result<u32, InjectError> {
        let (frames, longest) = (std::mem::take(&mut self.frames), std::mem::take(&mut self.longest));
        self.end = 0;
        self.cursor.write(AT, &[0; TAKEN + 4]);
        let mut taken = 0;
        while taken < frames {
            // The program replaces the contents of the frames; only their length matters.
            const BLANK: [u8; MAX_FRAME] = [0; MAX_FRAME];
            let blank = BLANK.get(..longest).unwrap_or(&BLANK);
            let run = live_run::run(program, ifindex, blank, frames - taken, AT_A_TIME);
            let before = std::mem::replace(&mut taken, u32::from_ne_bytes(self.cursor.read(TAKEN)));
            match run {
                // A signal interrupted the run; the next run takes the rest.
                Err(error) if live_run::was_interrupted(&error) && taken > before => {}
                Err(error) if !live_run::was_interrupted(&error) && taken == 0 => return Err(error),
                _ => break,
            }
        }
        Ok(taken)
    }
}
