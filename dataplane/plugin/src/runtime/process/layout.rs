//! Layout of the memory that a worker shares with the process of a plugin.
//!
//! The memory holds, in this order: a header with the indices of both rings and the bell, the ring of
//! requests, the ring of answers, the service state, and the packets of a call: 64 descriptions, 64 windows
//! and 64 flow states. Each index has a cache line of its own.

use millrace_plugin_abi::binary::MOST_PACKETS;

use super::ring::Lane;
use crate::Manifest;
use crate::runtime::wasm::layout::PACKET;

/// Words of a cache line.
const LINE: usize = 8;
/// Words of the header.
const HEADER: usize = 8 * LINE;
/// Words of the ring of requests.
const REQUESTS: usize = 2048;
/// Words of the ring of answers.
const ANSWERS: usize = 4096;
/// Words of the description of a packet.
pub(super) const DESCRIPTION: usize = PACKET / 8;

/// Lane from the worker to the process.
pub(super) const REQUEST_LANE: Lane = Lane { posted: 0, taken: LINE, start: HEADER, words: REQUESTS };
/// Lane from the process to the worker.
pub(super) const ANSWER_LANE: Lane =
    Lane { posted: 2 * LINE, taken: 3 * LINE, start: HEADER + REQUESTS, words: ANSWERS };

/// Places of service state and packets in the shared memory, in words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    /// Maximum bytes of a window.
    pub window: usize,
    /// Words from one window to the next.
    stride: usize,
    /// Bytes of the state of a flow.
    pub state: usize,
    /// Bytes of the service state.
    pub service: usize,
}

impl Layout {
    /// Returns the layout for a plugin with this manifest.
    pub fn of(manifest: &Manifest) -> Self {
        let window = usize::from(manifest.window);
        Self {
            window,
            stride: window.div_ceil(8).next_multiple_of(LINE),
            state: manifest.state.flow.into(),
            service: manifest.state.service.into(),
        }
    }

    /// Returns the first word of the service state.
    pub fn service(&self) -> usize {
        HEADER + REQUESTS + ANSWERS
    }

    /// Returns the first word of the description of a packet.
    #[inline]
    pub fn description(&self, index: usize) -> usize {
        self.service() + self.service.div_ceil(8).next_multiple_of(LINE) + index * DESCRIPTION
    }

    /// Returns the first word of the window of a packet.
    #[inline]
    pub fn window(&self, index: usize) -> usize {
        self.description(MOST_PACKETS) + index * self.stride
    }

    /// Returns the first word of the state of a packet's flow.
    #[inline]
    pub fn state(&self, index: usize) -> usize {
        self.window(MOST_PACKETS) + index * self.state.div_ceil(8)
    }

    /// Returns the words of the whole memory.
    pub fn words(&self) -> usize {
        self.state(MOST_PACKETS).next_multiple_of(LINE)
    }
}
