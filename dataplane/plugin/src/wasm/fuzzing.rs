//! Entrance of the fuzz targets: calls of a sandboxed plugin whose memory and answers are the caller's, without a module that runs.

use millrace_plugin_abi::{Instant, Packets};

use super::staging::{Area, Step};
use crate::exchange::{Call, Exchange, Shared};
use crate::{Manifest, raw_packet};

/// Where the plugin reserved memory for calls.
const RESERVED: u32 = 64;

/// Memory of a plugin, and what it shares with the router.
pub struct PluginMemory {
    shared: Shared,
    memory: Vec<u8>,
    area: Area,
}

impl std::fmt::Debug for PluginMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PluginMemory").field("area", &self.area).finish_non_exhaustive()
    }
}

/// What a plugin can do during a call.
pub struct Answering<'a> {
    exchange: &'a mut Exchange,
    area: &'a Area,
    /// Memory of the plugin: descriptions, windows, states of flows, the call.
    pub memory: &'a mut [u8],
}

impl std::fmt::Debug for Answering<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answering").field("area", self.area).finish_non_exhaustive()
    }
}

impl Answering<'_> {
    /// `packet_resize`.
    pub fn resize(&mut self, number: u32, bytes: i32) {
        let resize = |packet: &mut _, _: &mut [u8]| raw_packet::resize(packet, bytes);
        let _ = self.exchange.with_packet(number, self.memory, self.area, resize);
    }

    /// `packet_write`.
    pub fn write(&mut self, number: u32, offset: u32, from: &[u8]) {
        let write = |packet: &mut _, _: &mut [u8]| raw_packet::write(packet, offset, from);
        let _ = self.exchange.with_packet(number, self.memory, self.area, write);
    }

    /// `packet_backlog`.
    pub fn backlog(&mut self, number: u32) {
        let _ = self.exchange.backlog(number);
    }
}

impl PluginMemory {
    /// Memory of a plugin with this manifest.
    ///
    /// # Panics
    /// When the manifest asks for more memory than there can be.
    pub fn new(manifest: &Manifest) -> Self {
        let mut memory = vec![0; RESERVED as usize + Area::bytes(manifest) + 64];
        let length = memory.len();
        let area = Area::reserved(RESERVED, manifest, length).expect("room for the area");
        memory.fill(0xa5);
        Self { shared: Shared::new(manifest), memory, area }
    }

    /// Calls the plugin with packets; `answer` gets up to 64 at a time, and how many these are.
    pub fn call(
        &mut self,
        packets: &mut Packets<'_>,
        now: Instant,
        mut answer: impl FnMut(&mut Answering<'_>, u32),
    ) {
        let Self { shared, memory, area } = self;
        shared.with(|exchange| exchange.call = Call::begin(now));
        shared.lend(packets, || {
            shared.with(|exchange| {
                while let Ok(Some(step)) = exchange.next(memory, area) {
                    let Step::Packets(_, count) = step else { break };
                    answer(&mut Answering { exchange, area, memory }, count);
                }
            });
        });
    }

    /// What the plugin did wrong since the last call.
    pub fn take_fault(&mut self) -> Option<String> {
        self.shared.with(|exchange| exchange.take_fault().map(|fault| fault.text))
    }
}
