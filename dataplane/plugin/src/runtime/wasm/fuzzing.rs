//! Interface for fuzz targets: calls a sandboxed plugin without a module. The caller provides its memory and
//! its answers.

use millrace_plugin_abi::{Instant, Packets};

use super::staging::{Area, Step};
use crate::Manifest;
use crate::runtime::exchange::{Call, Exchange, Shared};
use crate::runtime::raw_packet;

/// Address of the memory that the plugin has reserved for calls.
const RESERVED: u32 = 64;

/// Memory of a plugin, with the data that it shares with the router.
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

/// Access of the simulated plugin to its memory and to host functions during a call.
pub struct Answering<'a> {
    exchange: &'a mut Exchange,
    area: &'a Area,
    /// Memory of the plugin, with descriptions, windows, flow states and the call.
    pub memory: &'a mut [u8],
}

impl std::fmt::Debug for Answering<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answering").field("area", self.area).finish_non_exhaustive()
    }
}

impl Answering<'_> {
    /// Calls the host function `packet_resize`.
    pub fn resize(&mut self, number: u32, bytes: i32) {
        let resize = |packet: &mut _, _: &mut [u8]| raw_packet::resize(packet, bytes);
        let _ = self.exchange.with_packet(number, self.memory, self.area, resize);
    }

    /// Calls the host function `packet_write`.
    pub fn write(&mut self, number: u32, offset: u32, from: &[u8]) {
        let write = |packet: &mut _, _: &mut [u8]| raw_packet::write(packet, offset, from);
        let _ = self.exchange.with_packet(number, self.memory, self.area, write);
    }

    /// Calls the host function `flow_backlog`.
    pub fn backlog(&mut self, number: u32) {
        let _ = self.exchange.backlog(number);
    }
}

impl PluginMemory {
    /// Creates the memory of a plugin with this manifest.
    ///
    /// # Panics
    /// If the area for calls doesn't fit into a WebAssembly memory.
    pub fn new(manifest: &Manifest) -> Self {
        let mut memory = vec![0; RESERVED as usize + Area::bytes(manifest) + 64];
        let length = memory.len();
        let area = Area::reserved(RESERVED, manifest, length).expect("room for the area");
        memory.fill(0xa5);
        Self { shared: Shared::new(manifest), memory, area }
    }

    /// Calls the plugin with packets, up to 64 at a time. `answer` acts in place of the plugin's code, and
    /// gets the number of packets of a call.
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

    /// Returns the fault text of the plugin since the last call; `None` without a fault.
    pub fn take_fault(&mut self) -> Option<String> {
        self.shared.with(|exchange| exchange.faults.take().map(|fault| fault.text))
    }
}
