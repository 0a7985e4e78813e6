//! Fuzz target of the XDP program, the tcx program and the socket filter, by dry runs in the kernel. On any
//! frame each program must decide as its twin in Rust. The flow cache must forward the frames that its twin
//! forwards.

use std::cell::RefCell;

use millrace_offload::fuzzing::DryRuns;

use crate::ebpf_variants::Variants;
use crate::input::Input;
use crate::router::frames::next_frames;

/// Length of the longest frame that a dry run takes, in bytes.
const LONGEST: usize = 1514;

thread_local! {
    static PROGRAMS: RefCell<Option<(DryRuns, Variants)>> = const { RefCell::new(None) };
}

/// Loads the programs. Ends the process if the kernel doesn't load them.
fn load() -> (DryRuns, Variants) {
    let mut programs = DryRuns::load().unwrap_or_else(|why| {
        println!("skipped: {why}");
        // libFuzzer treats an ordinary exit as a failure.
        // SAFETY: _exit ends the process and accesses none of its memory.
        unsafe { libc::_exit(0) }
    });
    let variants = Variants::load(&mut programs);
    (programs, variants)
}

/// Runs the programs on the frames of an input.
pub fn run(data: &[u8]) {
    PROGRAMS.with_borrow_mut(|programs| {
        let (programs, variants) = programs.get_or_insert_with(load);
        let mut input = Input::new(data);
        let first = input.byte();
        let raw = first & 3 == 0;
        let frames = match raw {
            true => vec![input.rest().to_vec()],
            false => next_frames(&mut input, "a", 0, true),
        };
        for mut frame in frames {
            if !raw {
                to_port(&mut input, &mut frame);
            }
            frame.truncate(LONGEST);
            if frame.len() > 14 {
                programs.check(&frame);
                variants.check(usize::from(first >> 2), programs, &frame);
            }
        }
    });
}

/// Gives a frame MAC addresses, VLAN tags and a destination. Some of them are in the maps of the port.
fn to_port(input: &mut Input<'_>, frame: &mut Vec<u8>) {
    let mac =
        input.pick(&[[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [1, 0, 0x5e, 0, 0, 1]]);
    if frame.len() < 14 {
        return;
    }
    frame[..6].copy_from_slice(&mac);
    let to = input.pick(&[
        [10, 0, 0, 1],
        [10, 0, 0, 255],
        [224, 0, 0, 5],
        [198, 51, 100, 1],
        [0; 4],
        [127, 0, 0, 1],
    ]);
    if input.one_in(2)
        && let Some(place) = frame.get_mut(30..34)
    {
        place.copy_from_slice(&to);
    }
    for _ in 0..input.below(4) {
        let tpid = input.pick(&[[0x81, 0], [0x88, 0xa8]]);
        let vid = input.pick(&[[0u8, 0], [0, 7], [0, 10], [0, 11], [15, 254], [0xe0, 10], [0x60, 0]]);
        frame.splice(12..12, [tpid, vid].concat());
    }
}
