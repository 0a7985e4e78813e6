//! Test router for native tests of a plugin. It passes frames to the plugin through the interface of the real
//! router, and records the host functions that the plugin calls.
//!
//! ```ignore
//! let mut router = Router::<Counter>::new("{}").unwrap();
//! let fates = router.send(&[frame]);
//! assert_eq!(fates[0].verdict, Verdict::Pass);
//! assert_eq!(router.control("read", "{}").unwrap(), r#"{"packets":1}"#);
//! ```
//!
//! As in the real router, flows are six-tuples, and a frame that can't be parsed bypasses the plugin.

mod frame;
mod pcap;
mod record;

use std::boxed::Box;
use std::collections::BTreeMap;
use std::path::Path;
use std::string::String;
use std::vec;
use std::vec::Vec;

use millrace_plugin_abi::binary::{MOST_PACKETS, NO_OFFSET, RawCall, RawFlowEnd, RawPacket, packet_flags};

use crate::glue::{self, Slot};
use crate::{Backlog, ConnectionStatus, Declared, Refusal, Verdict};

pub use frame::{Description, FlowName, describe, frame_of_ports, mend_checksums};
pub use pcap::{PcapError, frames_of_pcap};
pub use record::{Record, TestMap};

/// Result of the plugin's call for a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fate {
    /// Verdict of the plugin; [`Verdict::Pass`] for a frame that bypassed it.
    pub verdict: Verdict,
    /// Content of the frame after the call.
    pub frame: Vec<u8>,
    /// Tag of the packet after the call.
    pub tag: u8,
}

/// Flow record. Its state consists of 8-byte words, which aligns it.
struct Flow {
    number: u32,
    state: Box<[u64]>,
    packets: u64,
    bytes: u64,
}

/// Test router with one instance of a plugin.
pub struct Router<P: Declared> {
    slot: Slot<P>,
    flows: BTreeMap<FlowName, Flow>,
    service: Box<[u64]>,
    /// Current time in nanoseconds, set by the test.
    pub now: u64,
    /// Number of the frames' ingress port.
    pub port: u16,
    /// Tag of the frames before the call.
    pub tag: u8,
    /// Whether the frames are copies, as at gates of the position `copy`.
    pub copies: bool,
    /// Status of the frames' connection, and whether they go to the side that opened it.
    pub connection: (ConnectionStatus, bool),
    /// Maps of the instance, followed by the maps of other instances that the settings name. The test must
    /// add the maps of other instances.
    pub maps: Vec<TestMap>,
    /// Backlog that each frame reports.
    pub backlog: Backlog,
}

impl<P: Declared> Router<P> {
    /// Creates a router with an instance. `settings` are JSON.
    ///
    /// # Errors
    /// The plugin's refusal.
    pub fn new(settings: &str) -> Result<Self, Refusal> {
        let service = vec![0; usize::from(P::SERVICE_STATE).div_ceil(8)].into_boxed_slice();
        let (slot, flows) = (Slot::new(), BTreeMap::new());
        let map = |(_, key, value, entries): &(&str, usize, usize, usize)| TestMap {
            key: *key,
            value: *value,
            entries: *entries,
            writes: true,
            content: BTreeMap::new(),
        };
        let maps = P::MAPS.iter().map(map).collect();
        let backlog = Backlog::default();
        let connection = Default::default();
        let (now, port, tag, copies) = (0, 0, 0, false);
        let mut router = Self { slot, flows, service, now, port, tag, copies, connection, maps, backlog };
        router.restart(settings)?;
        Ok(router)
    }

    /// Restarts the instance, as the router does after a fault. Only the state that the router keeps
    /// survives: service state and flow states.
    ///
    /// # Errors
    /// The plugin's refusal.
    pub fn restart(&mut self, settings: &str) -> Result<(), Refusal> {
        // During `init`, maps are not available.
        let maps = std::mem::take(&mut self.maps);
        // SAFETY: the length is that of the text, and only this call uses the slot.
        let begin =
            |router: &mut Self| unsafe { glue::init(&router.slot, settings.as_ptr(), settings.len()) };
        let code = self.enter(begin);
        self.maps = maps;
        record::answer(code).map(|_| ())
    }

    /// Directs the calls of host functions to this router while `call` runs.
    fn enter<R>(&mut self, call: impl FnOnce(&mut Self) -> R) -> R {
        record::attach();
        record::set_service(&mut self.service);
        let maps = std::mem::take(&mut self.maps);
        let before = record::lend_maps(maps);
        let result = call(self);
        self.maps = record::lend_maps(before);
        result
    }

    /// Sends frames to the plugin, at most 64 in a call. Returns the result for each frame.
    pub fn send<F: AsRef<[u8]>>(&mut self, frames: &[F]) -> Vec<Fate> {
        frames.chunks(MOST_PACKETS).flat_map(|batch| self.send_batch(batch)).collect()
    }

    /// Sends all frames of a pcap file to the plugin. Returns the result for each frame.
    ///
    /// # Errors
    /// File that can't be read, or that is not a pcap file of Ethernet frames.
    pub fn send_pcap(&mut self, file: &Path) -> Result<Vec<Fate>, PcapError> {
        Ok(self.send(&frames_of_pcap(file)?))
    }

    /// Sends a control message, and returns the reply. `arguments` are JSON.
    ///
    /// # Errors
    /// The plugin's refusal.
    pub fn control(&mut self, message: &str, arguments: &str) -> Result<String, Refusal> {
        let (message, arguments) = (raw(message.as_bytes()), raw(arguments.as_bytes()));
        // SAFETY: the lengths are those of the slices, and only this call uses the slot.
        let code = self.enter(|router| unsafe { glue::control(&router.slot, message, arguments) });
        record::answer(code).map(|reply| String::from_utf8_lossy(&reply).into_owned())
    }

    /// Sends the plugin a message, as its other part (host companion or instance) does.
    pub fn message(&mut self, message: &[u8]) {
        // SAFETY: the length is that of the slice, and only this call uses the slot.
        self.enter(|router| unsafe { glue::message(&router.slot, raw(message)) });
    }

    /// Calls `periodic` at the current time.
    pub fn periodic(&mut self) {
        // SAFETY: only this call uses the slot.
        self.enter(|router| unsafe { glue::periodic(&router.slot, router.now) });
    }

    /// Ends all flows, in the order of their keys, and notifies the plugin.
    pub fn end_flows(&mut self) {
        for (name, flow) in std::mem::take(&mut self.flows) {
            let state = if P::FLOW_STATE == 0 { 0 } else { flow.state.as_ptr() as usize as u64 };
            let end = RawFlowEnd {
                size: size_of::<RawFlowEnd>() as u16,
                flow: flow.number,
                packets: flow.packets,
                bytes: flow.bytes,
                state,
                ..name.end()
            };
            // SAFETY: `flow` owns the state until the call is over, and only this call uses the slot.
            self.enter(|router| unsafe { glue::flow_ended(&router.slot, &raw const end) });
        }
    }

    /// Returns the state that the plugin saves.
    ///
    /// # Errors
    /// The plugin's refusal.
    pub fn save(&mut self) -> Result<Vec<u8>, Refusal> {
        // SAFETY: only this call uses the slot.
        let code = self.enter(|router| unsafe { glue::save(&router.slot) });
        record::answer(code)
    }

    /// Lets the plugin restore a state that was saved under a version of the state format.
    ///
    /// # Errors
    /// The plugin's refusal.
    pub fn restore(&mut self, state: &[u8], version: u32) -> Result<(), Refusal> {
        // SAFETY: the length is that of the slice, and only this call uses the slot.
        let code = self.enter(|router| unsafe { glue::restore(&router.slot, raw(state), version) });
        record::answer(code).map(|_| ())
    }

    /// Returns the calls of host functions on this thread since the previous call of `record`.
    pub fn record(&mut self) -> Record {
        record::take()
    }

    fn send_batch<F: AsRef<[u8]>>(&mut self, frames: &[F]) -> Vec<Fate> {
        let frames: Vec<Vec<u8>> = frames.iter().map(|frame| frame.as_ref().to_vec()).collect();
        let mut windows: Vec<Vec<u8>> = Vec::new();
        let mut packets = Vec::new();
        for (number, frame) in frames.iter().enumerate() {
            let Some(about) = describe(frame) else { continue };
            let mut window = frame[..frame.len().min(P::WINDOW.into())].to_vec();
            let mut packet = self.packet(&about, frame.len(), number);
            (packet.window, packet.window_length) = (window.as_mut_ptr() as u64, window.len() as u16);
            windows.push(window);
            packets.push(packet);
        }
        record::hold(frames);
        record::set_backlog(self.backlog.raw());
        self.enter(|router| router.call(&mut packets));
        finish(&packets, &windows, P::CAPABILITIES.contains(&"packet-write"))
    }

    /// Creates the description of a frame for the plugin, without its window.
    fn packet(&mut self, about: &Description, length: usize, number: usize) -> RawPacket {
        let mut packet = RawPacket {
            size: size_of::<RawPacket>() as u16,
            length: length as u32,
            network: about.network,
            transport: about.transport.unwrap_or(NO_OFFSET),
            ether_type: about.ether_type,
            family: about.flow.family(),
            protocol: about.flow.protocol,
            tag: self.tag,
            exceptions: about.exceptions,
            port: self.port,
            number: number as u16,
            source_port: about.flow.source_port,
            destination_port: about.flow.destination_port,
            ..RawPacket::default()
        };
        self.join_flow(&mut packet, about);
        if length > usize::from(P::WINDOW) {
            packet.flags |= packet_flags::MORE;
        }
        if self.copies {
            packet.flags |= packet_flags::COPY;
        }
        let (status, is_reply) = self.connection;
        packet.connection = status as u32;
        if is_reply {
            packet.flags |= packet_flags::REPLY;
        }
        packet
    }

    fn join_flow(&mut self, packet: &mut RawPacket, about: &Description) {
        let next = self.flows.len() as u32 + 1;
        let name = FlowName { port: self.port, ..about.flow };
        let flow = self.flows.entry(name).or_insert_with(|| {
            packet.flags |= packet_flags::FIRST;
            let words = usize::from(P::FLOW_STATE).div_ceil(8);
            Flow { number: next, state: vec![0; words].into_boxed_slice(), packets: 0, bytes: 0 }
        });
        flow.packets += 1;
        flow.bytes += u64::from(packet.length);
        packet.flow = flow.number;
        packet.state = if P::FLOW_STATE == 0 { 0 } else { flow.state.as_mut_ptr() as u64 };
    }

    fn call(&mut self, packets: &mut [RawPacket]) {
        if packets.is_empty() {
            return;
        }
        let call = RawCall {
            size: size_of::<RawCall>() as u16,
            packet_size: size_of::<RawPacket>() as u16,
            count: packets.len() as u32,
            now: self.now,
            packets: packets.as_mut_ptr() as u64,
        };
        // SAFETY: descriptions, windows and states belong to the caller and to `self`. Nothing else accesses
        // them during the call.
        unsafe { glue::packets(&self.slot, &raw const call) }
    }
}

fn raw(bytes: &[u8]) -> (*const u8, usize) {
    (bytes.as_ptr(), bytes.len())
}

/// Returns the results for the frames. If `writes` is set, copies the windows into the frames first.
fn finish(packets: &[RawPacket], windows: &[Vec<u8>], writes: bool) -> Vec<Fate> {
    let frames = record::release();
    let fate = |(frame, _): &(Vec<u8>, bool)| Fate { verdict: Verdict::Pass, frame: frame.clone(), tag: 0 };
    let mut fates: Vec<Fate> = frames.iter().map(fate).collect();
    for (packet, window) in packets.iter().zip(windows) {
        let number = usize::from(packet.number);
        let fate = &mut fates[number];
        (fate.verdict, fate.tag) = (Verdict::of(packet), packet.tag);
        // Skip a resized frame: the host functions have already changed it.
        if writes && !frames[number].1 {
            fate.frame[..window.len()].copy_from_slice(window);
        }
    }
    fates
}
