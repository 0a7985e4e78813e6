//! What goes on in a router without packets: a trace, and a capture.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use millrace_controller::view::{RawFrame, TraceView};

use crate::control::{Recording, Tracing};

/// A trace of as many packets as were asked for.
pub(crate) struct TestTrace(pub u64);

impl Tracing for TestTrace {
    fn take(&mut self) -> (Vec<TraceView>, bool) {
        let packets = (1..=std::mem::take(&mut self.0)).map(|number| TraceView {
            number,
            time: String::new(),
            port: "lan".into(),
            level: "worker 0".into(),
            length: 60,
            frame: "00".into(),
            steps: Vec::new(),
            verdict: "sent by port wan".into(),
            reason: None,
            cycles: None,
            is_over: true,
            raw: raw_frame(),
        });
        (packets.collect(), true)
    }

    fn lost(&self) -> u64 {
        0
    }
}

pub(crate) fn raw_frame() -> RawFrame {
    RawFrame { port: "lan".into(), at: std::time::Duration::ZERO, length: 60, bytes: vec![0; 14] }
}

/// Two frames of 16 bytes at each look, after a header of 12.
pub(crate) struct TestRecording {
    pub captures: Arc<AtomicUsize>,
    pub first: bool,
}

pub(crate) fn block(kind: u32, length: u32) -> Vec<u8> {
    let mut block = vec![0; length as usize];
    block[..4].copy_from_slice(&kind.to_ne_bytes());
    block[4..8].copy_from_slice(&length.to_ne_bytes());
    block
}

impl Recording for TestRecording {
    fn take(&mut self) -> (Vec<u8>, u64, bool) {
        let frames = [block(6, 16), block(6, 16)].concat();
        let header = if std::mem::take(&mut self.first) { block(0x0a0d_0d0a, 12) } else { Vec::new() };
        ([header, frames].concat(), 2, false)
    }

    fn lost(&self) -> u64 {
        0
    }
}

impl Drop for TestRecording {
    fn drop(&mut self) {
        self.captures.fetch_sub(1, Ordering::SeqCst);
    }
}
