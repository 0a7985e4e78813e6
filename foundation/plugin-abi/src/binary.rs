//! The binary interface between the router and plugins that are files: WebAssembly modules and shared objects.
//!
//! `docs/plugin-abi.md` tells it in words. Everything here is little-endian and of a fixed layout. Structures only grow at
//! their end; each begins with its size, so that either side can tell what the other knows. An address is 64 bits wide in
//! both homes; in WebAssembly its upper half is 0.

/// The version of the interface. A plugin of another one is refused.
pub const ABI_VERSION: u32 = 1;

/// The name of the custom section of a WebAssembly module, and of the function of a shared object, that has the manifest.
pub const MANIFEST: &str = "millrace.manifest";

/// The module that a WebAssembly plugin imports the router's functions from.
pub const IMPORTS: &str = "millrace";

/// Packets in a call, at most.
pub const MOST_PACKETS: usize = 64;

/// Bytes of a packet that a plugin sees without asking, unless its manifest says otherwise.
pub const DEFAULT_WINDOW: u16 = 128;

/// Bytes of a window at most: what a frame of packet memory holds.
pub const MOST_WINDOW: u16 = 1536;

/// What a call is about: where its packets are, and when it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct RawCall {
    /// Bytes of this structure.
    pub size: u16,
    /// Bytes from one packet's description to the next.
    pub packet_size: u16,
    /// How many packets there are, 1 to [`MOST_PACKETS`].
    pub count: u32,
    /// The time, in nanoseconds of a clock that never goes back.
    pub now: u64,
    /// Where the first packet's description stands.
    pub packets: u64,
}

/// A packet, as a plugin sees it. The verdict is written in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct RawPacket {
    /// Bytes of this structure.
    pub size: u16,
    /// What [`packet_flags`] name.
    pub flags: u16,
    /// Bytes of the whole packet, link header included.
    pub length: u32,
    /// Where its first bytes stand. What is written there is written to the packet, if the plugin has the capability
    /// `packet-write`.
    pub window: u64,
    /// How many bytes stand there.
    pub window_length: u16,
    /// Where in the packet the network header begins.
    pub network: u16,
    /// Where the transport header begins; [`NO_OFFSET`] when it can't be read.
    pub transport: u16,
    /// The EtherType behind all VLAN tags.
    pub ether_type: u16,
    /// 4 or 6.
    pub family: u8,
    /// The protocol of the transport header.
    pub protocol: u8,
    /// The plugin tag, 0 to 31. It can be written.
    pub tag: u8,
    /// The exception bits.
    pub exceptions: u8,
    /// The port that it came in by.
    pub port: u16,
    /// The number under which functions of the router know the packet during the call.
    pub number: u16,
    /// Where the flow's state stands, as many bytes as the manifest declares; 0 where there is none. It can be written.
    pub state: u64,
    /// A name of the flow that stays the same as long as the router knows it; 0 where it doesn't.
    pub flow: u32,
    /// The source port of TCP, UDP and their like, else 0.
    pub source_port: u16,
    /// The destination port.
    pub destination_port: u16,
    /// One of [`verdict`]. At first [`verdict::PASS`].
    pub verdict: u8,
    /// With [`verdict::DROP`]: the plugin's own reason, 0 to 31.
    pub reason: u8,
    /// With [`verdict::PORT`], [`verdict::QUEUE`] and [`verdict::INSTANCE`]: which.
    pub target: u16,
    /// Nothing; 0.
    pub reserved: u32,
    /// With [`verdict::HOLD`]: until when, in the time of [`RawCall::now`]. With [`verdict::PORTS`]: a bit for each port.
    pub until: u64,
}

/// [`RawPacket::transport`] when there is no transport header that can be read.
pub const NO_OFFSET: u16 = u16::MAX;

/// Bits of [`RawPacket::flags`].
pub mod packet_flags {
    /// The packet is longer than the window.
    pub const MORE: u16 = 1;
    /// It is a copy: it is sent where [`verdict::PORT`] and [`verdict::PORTS`] say, and used up otherwise.
    pub const COPY: u16 = 2;
    /// It is the first packet of its flow that the instance gets.
    pub const FIRST: u16 = 4;
}

/// What can be said of a packet.
pub mod verdict {
    /// It goes on.
    pub const PASS: u8 = 0;
    /// It is dropped.
    pub const DROP: u8 = 1;
    /// It is used up.
    pub const CONSUME: u8 = 2;
    /// It leaves by port `target`, whatever its route.
    pub const PORT: u8 = 3;
    /// It leaves by each port whose bit is set in `until`.
    pub const PORTS: u8 = 4;
    /// It goes on, to queue `target` of its port.
    pub const QUEUE: u8 = 5;
    /// Instance `target` gets it next, and then it goes on behind this one.
    pub const INSTANCE: u8 = 6;
    /// It is classified anew, with the tag that it has now.
    pub const CLASSIFY: u8 = 7;
    /// It goes on at the time `until`.
    pub const HOLD: u8 = 8;
}

/// A flow that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct RawFlowEnd {
    /// Bytes of this structure.
    pub size: u16,
    /// 4 or 6.
    pub family: u8,
    /// The protocol.
    pub protocol: u8,
    /// The source port.
    pub source_port: u16,
    /// The destination port.
    pub destination_port: u16,
    /// The port that its packets came in by.
    pub port: u16,
    /// Nothing; 0.
    pub reserved: u16,
    /// As in [`RawPacket::flow`].
    pub flow: u32,
    /// The source; IPv4 in the first four bytes.
    pub source: [u8; 16],
    /// The destination.
    pub destination: [u8; 16],
    /// Its packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Where its state stands; 0 where there is none.
    pub state: u64,
}

/// What waits before a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct RawBacklog {
    /// Bytes of this structure that were written.
    pub size: u16,
    /// One of [`backlog`]: what `packets` and `bytes` are of.
    pub of: u16,
    /// The port that the packet leaves by.
    pub port: u16,
    /// The leaf of that port's scheduler, as [`verdict::QUEUE`] names it; 0 where the port has none.
    pub queue: u16,
    /// Packets that wait there.
    pub packets: u32,
    /// Packets of all flows that wait for the instance to end the call that goes on.
    pub instance_packets: u32,
    /// Bytes of `packets`, link headers included.
    pub bytes: u64,
    /// Bytes of `instance_packets`, link headers included.
    pub instance_bytes: u64,
}

/// Values of [`RawBacklog::of`].
pub mod backlog {
    /// The packet's way is not known yet, or leads to no queue that the worker has: nothing is known.
    pub const UNKNOWN: u16 = 0;
    /// What is counted are the packets of all flows in the leaf.
    pub const LEAF: u16 = 1;
    /// What is counted are the packets of the packet's flow.
    pub const FLOW: u16 = 2;
}

/// Names of what plugins export. Those behind [`REQUIRED`](export::REQUIRED) may be missing.
pub mod export {
    /// The memory of a WebAssembly module.
    pub const MEMORY: &str = "memory";
    /// `() -> u32`: the version of the interface that it was built for.
    pub const ABI: &str = "millrace_abi";
    /// `(bytes: usize) -> address`: memory for the router, aligned to 8 bytes; 0 when there is none.
    pub const RESERVE: &str = "millrace_reserve";
    /// `(address, bytes: usize)`: gives it back.
    pub const RELEASE: &str = "millrace_release";
    /// `(settings: address, bytes: usize) -> i32`: begins with settings, as JSON; 0, or it has said `fail`.
    pub const INIT: &str = "millrace_init";
    /// `(call: address)`: handles packets.
    pub const PACKETS: &str = "millrace_packets";
    /// `(name: address, bytes: usize, arguments: address, bytes: usize) -> i32`: a control message, arguments as JSON.
    /// It says `reply` and returns 0, or says `fail`.
    pub const CONTROL: &str = "millrace_control";
    /// `(now: u64)`: what it does from time to time, as often as its manifest says.
    pub const PERIODIC: &str = "millrace_periodic";
    /// `(flow: address)`: a flow has ended.
    pub const FLOW_ENDED: &str = "millrace_flow_ended";
    /// `() -> i32`: hands its state over, by `reply`; 0, or it has said `fail`.
    pub const SAVE: &str = "millrace_save";
    /// `(state: address, bytes: usize, version: u32) -> i32`: takes over state that was saved under a version of the state.
    pub const RESTORE: &str = "millrace_restore";

    /// `(bytes: address, length: usize)`: a message of the other half of the plugin.
    pub const MESSAGE: &str = "millrace_message";

    /// What every plugin exports.
    pub const REQUIRED: [&str; 5] = [ABI, RESERVE, RELEASE, INIT, PACKETS];
    /// What it may export.
    pub const OPTIONAL: [&str; 6] = [CONTROL, PERIODIC, FLOW_ENDED, SAVE, RESTORE, MESSAGE];
}

/// What a plugin may call, each with the capability that its manifest must name; those without one are always there.
pub const HOST_FUNCTIONS: [(&str, Option<&str>); 16] = [
    // (text, bytes): why `init`, `control`, `save` or `restore` fails.
    ("fail", None),
    // (bytes, length): the answer, as JSON; or the state that is saved, in whatever form.
    ("reply", None),
    // (level: 0 error to 3 debug, text, bytes). At most 10 lines a second of an instance get through; the rest are counted.
    ("log", Some("log")),
    // (packet, offset, to, bytes) -> bytes read
    ("packet_read", Some("packet-read")),
    // (packet, offset, from, bytes) -> bytes written
    ("packet_write", Some("packet-write")),
    // (packet, bytes at the front: negative ones are cut) -> 0, or 1 when there is no room
    ("packet_resize", Some("packet-resize")),
    // (bytes, length, port) -> 0, or 1 when there is no packet memory: a packet of the plugin's own, from the network header on
    ("packet_make", Some("packet-make")),
    // (packet, to, bytes) -> bytes of a `RawBacklog` that were written, 0 when it has no such packet
    ("flow_backlog", Some("flow-backlog")),
    // (nanoseconds): `periodic` is called then, once
    ("timer", Some("timer")),
    // (JSON, bytes) -> 0 when it was accepted: a change of filters, routes, queues or instances, made by control later
    ("request", Some("request")),
    // () -> where the state that is common to all flows stands, 0 when the manifest declares none
    ("service_state", None),
    // (map, key, bytes, to, bytes) -> one of `map_answer`
    ("map_get", Some("map-read")),
    // (map, key, bytes, from, bytes) -> one of `map_answer`
    ("map_set", Some("map-write")),
    // (map, key, bytes) -> one of `map_answer`
    ("map_remove", Some("map-write")),
    // (bytes, length) -> 0 when it was taken: a message to the other half of the plugin
    ("send", Some("message")),
    // (counter, number): adds to a counter, by its place in the manifest's `counters`
    ("count", None),
];

/// Capabilities to request changes of one kind each: filters, routes, queues, instances.
pub const REQUEST_CAPABILITIES: [&str; 4] =
    ["request-filters", "request-routes", "request-queues", "request-instances"];

/// Counters that a plugin may have.
pub const MOST_COUNTERS: usize = 32;

/// What functions for maps answer.
pub mod map_answer {
    /// It is done.
    pub const DONE: i32 = 0;
    /// There is no such key.
    pub const ABSENT: i32 = 1;
    /// There is no room for another key.
    pub const FULL: i32 = 2;
    /// There is no map of that number, or its keys or values have another size, or it is another instance's to write; or the
    /// plugin is still beginning.
    pub const REFUSED: i32 = 3;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The layout is a promise: a field may be added behind the last one, and nothing else.
    #[test]
    fn layouts_are_as_promised() {
        use std::mem::{offset_of, size_of};
        assert_eq!((size_of::<RawCall>(), size_of::<RawPacket>(), size_of::<RawFlowEnd>()), (24, 64, 72));
        assert_eq!(offset_of!(RawCall, packets), 16);
        let offsets = [
            offset_of!(RawPacket, window),
            offset_of!(RawPacket, family),
            offset_of!(RawPacket, state),
            offset_of!(RawPacket, flow),
            offset_of!(RawPacket, verdict),
            offset_of!(RawPacket, until),
        ];
        assert_eq!(offsets, [8, 24, 32, 40, 48, 56]);
        assert_eq!(offset_of!(RawFlowEnd, source), 16);
        let offsets = [
            offset_of!(RawBacklog, packets),
            offset_of!(RawBacklog, bytes),
            offset_of!(RawBacklog, instance_bytes),
        ];
        assert_eq!((offsets, size_of::<RawBacklog>()), ([8, 16, 24], 32));
    }
}
