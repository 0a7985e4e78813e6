//! Binary interface between the router and plugin files: WebAssembly modules and shared objects.
//!
//! `docs/plugin-abi.md` describes the interface. All structures are little-endian and have a fixed layout. A
//! structure begins with its size and only grows at its end, so that each side can detect which fields the
//! other side knows. An address has 64 bits in both runtimes; in WebAssembly its upper half is 0.

/// Version of the binary interface. The router refuses a plugin of another version.
pub const ABI_VERSION: u32 = 1;

/// Name of the section that contains the manifest, in a WebAssembly module (custom section) or a shared
/// object.
pub const MANIFEST: &str = "millrace.manifest";

/// Module name under which a WebAssembly plugin imports the router's functions.
pub const IMPORTS: &str = "millrace";

/// Maximum number of packets in a call.
pub const MOST_PACKETS: usize = 64;

/// Default size of a packet's window in bytes. The window is the part of the packet that the plugin can
/// access without a host function.
pub const DEFAULT_WINDOW: u16 = 128;

/// Maximum size of a window in bytes. An Ethernet frame of 1,518 bytes fits.
pub const MOST_WINDOW: u16 = 1536;

/// Description of a call with packets, which the router passes to the plugin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct RawCall {
    /// Size of this structure in bytes.
    pub size: u16,
    /// Distance in bytes from one packet description to the next.
    pub packet_size: u16,
    /// Number of packets, 1 to [`MOST_PACKETS`].
    pub count: u32,
    /// Time of the call in nanoseconds of a monotonic clock.
    pub now: u64,
    /// Address of the first packet description.
    pub packets: u64,
}

/// Description of a packet in a call. The plugin writes the verdict about the packet into this structure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct RawPacket {
    /// Size of this structure in bytes.
    pub size: u16,
    /// Bits of [`packet_flags`].
    pub flags: u16,
    /// Length of the whole packet in bytes, link header included.
    pub length: u32,
    /// Address of the window, the packet's first bytes. Writes to the window change the packet if the plugin
    /// has the capability `packet-write`.
    pub window: u64,
    /// Length of the window in bytes.
    pub window_length: u16,
    /// Offset of the network header from the first byte of the packet, in bytes.
    pub network: u16,
    /// Offset of the transport header from the first byte of the packet, in bytes; [`NO_OFFSET`] if it can't
    /// be read.
    pub transport: u16,
    /// EtherType after all VLAN tags.
    pub ether_type: u16,
    /// Address family: 4 or 6.
    pub family: u8,
    /// IP protocol number of the transport header.
    pub protocol: u8,
    /// Plugin tag, 0 to 31. The plugin may write it.
    pub tag: u8,
    /// Exceptions, as bits: 1 TTL expired, 2 options, 4 later fragment, 8 transport header cut.
    pub exceptions: u8,
    /// Ingress port of the packet.
    pub port: u16,
    /// Number by which host functions identify the packet during the call.
    pub number: u16,
    /// Address of the state of the flow or connection, whose size the manifest declares; 0 without state. The plugin
    /// may write the state.
    pub state: u64,
    /// Number of the flow or connection, which stays the same while the router has a record of it; 0 without a
    /// record.
    pub flow: u32,
    /// Source port of TCP, UDP and other protocols with ports; otherwise 0.
    pub source_port: u16,
    /// Destination port of TCP, UDP and other protocols with ports; otherwise 0.
    pub destination_port: u16,
    /// Verdict, one of [`verdict`]. Initially [`verdict::PASS`].
    pub verdict: u8,
    /// Drop reason for [`verdict::DROP`] and [`verdict::REJECT`], 0 to 31; the plugin defines its meaning.
    pub reason: u8,
    /// Number of the port, queue or instance for [`verdict::PORT`], [`verdict::QUEUE`] and
    /// [`verdict::INSTANCE`].
    pub target: u16,
    /// Status of the packet's connection, one of [`connection`].
    pub connection: u32,
    /// For [`verdict::HOLD`]: end of the hold time, on the clock of [`RawCall::now`]. For [`verdict::PORTS`]:
    /// set of ports, one bit for each.
    pub until: u64,
}

/// Value of [`RawPacket::transport`] if there is no readable transport header.
pub const NO_OFFSET: u16 = u16::MAX;

/// Bits of [`RawPacket::flags`].
pub mod packet_flags {
    /// The packet is longer than the window.
    pub const MORE: u16 = 1;
    /// The packet is a copy. With [`verdict::PORT`] and [`verdict::PORTS`] the router sends the copy; with
    /// any other verdict the copy is consumed.
    pub const COPY: u16 = 2;
    /// The packet is the first one of its flow or connection that reaches the instance.
    pub const FIRST: u16 = 4;
    /// The packet goes to the side that opened its connection.
    pub const REPLY: u16 = 8;
}

/// Values of [`RawPacket::connection`].
pub mod connection {
    /// The router does not track the packet for this instance.
    pub const UNTRACKED: u32 = 0;
    /// The packet opens the connection, or repeats its opening before an answer.
    pub const NEW: u32 = 1;
    /// Both sides have sent packets, or the packet is the first answer.
    pub const ESTABLISHED: u32 = 2;
    /// The packet is an ICMP error that quotes a packet of the connection.
    pub const RELATED: u32 = 3;
    /// The packet belongs to no connection and can't open one, or contradicts the state of its connection.
    pub const INVALID: u32 = 4;
}

/// Verdicts about a packet.
pub mod verdict {
    /// The packet continues on its path.
    pub const PASS: u8 = 0;
    /// The router drops the packet.
    pub const DROP: u8 = 1;
    /// The plugin consumes the packet.
    pub const CONSUME: u8 = 2;
    /// The router sends the packet out of port `target`, whatever its route.
    pub const PORT: u8 = 3;
    /// The router sends the packet out of each port whose bit is set in `until`.
    pub const PORTS: u8 = 4;
    /// The packet continues, and enters queue `target` of its egress port.
    pub const QUEUE: u8 = 5;
    /// Instance `target` processes the packet next. Then the packet continues after this instance.
    pub const INSTANCE: u8 = 6;
    /// The router classifies the packet again, with its current tag.
    pub const CLASSIFY: u8 = 7;
    /// The packet waits until the time `until`, and then continues.
    pub const HOLD: u8 = 8;
    /// The router drops the packet, and sends an ICMP error to its source.
    pub const REJECT: u8 = 9;
}

/// Description of an ended flow, or of an ended connection in the direction of its first packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct RawFlowEnd {
    /// Size of this structure in bytes.
    pub size: u16,
    /// Address family: 4 or 6.
    pub family: u8,
    /// Protocol of the flow.
    pub protocol: u8,
    /// Source port of the flow.
    pub source_port: u16,
    /// Destination port of the flow.
    pub destination_port: u16,
    /// Ingress port of the flow's packets.
    pub port: u16,
    /// Reserved; 0.
    pub reserved: u16,
    /// Flow number, as in [`RawPacket::flow`].
    pub flow: u32,
    /// Source address; an IPv4 address is in the first four bytes.
    pub source: [u8; 16],
    /// Destination address; an IPv4 address is in the first four bytes.
    pub destination: [u8; 16],
    /// Number of the flow's packets.
    pub packets: u64,
    /// Bytes of the flow's packets.
    pub bytes: u64,
    /// Address of the flow's state; 0 without state.
    pub state: u64,
}

/// Backlog of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct RawBacklog {
    /// Size in bytes of the structure that the router knows. It writes as many of them as the plugin has room for.
    pub size: u16,
    /// Scope of `packets` and `bytes`, one of [`backlog`].
    pub of: u16,
    /// Egress port of the packet.
    pub port: u16,
    /// Scheduler leaf of the packet at its egress port, as in [`verdict::QUEUE`]; 0 if the port has no
    /// scheduler.
    pub queue: u16,
    /// Number of waiting packets in the scope `of`.
    pub packets: u32,
    /// Number of packets of all flows that wait until the instance ends its current call.
    pub instance_packets: u32,
    /// Bytes of `packets`, link headers included.
    pub bytes: u64,
    /// Bytes of `instance_packets`, link headers included.
    pub instance_bytes: u64,
    /// Bytes of `payer_packets`, link headers included.
    pub payer_bytes: u64,
    /// Processor time in nanoseconds that the principal has left for this slice; [`NO_ALLOWANCE`] if nobody pays
    /// for the call, or the router can't measure the time.
    pub allowance: u64,
    /// Number of packets of all flows of the principal that wait for the processor at this worker, without
    /// those of the call; 0 if nobody pays for the call.
    pub payer_packets: u32,
    /// Whether a principal pays for the call: 1 or 0.
    pub paid: u32,
}

/// Value of [`RawBacklog::allowance`] without a known limit.
pub const NO_ALLOWANCE: u64 = u64::MAX;

/// Values of [`RawBacklog::of`].
pub mod backlog {
    /// There is no queue backlog: the queue is not chosen yet, or belongs to another worker.
    pub const UNKNOWN: u16 = 0;
    /// The numbers count the packets of all flows in the leaf.
    pub const LEAF: u16 = 1;
    /// The numbers count the packets of the packet's flow.
    pub const FLOW: u16 = 2;
}

/// Names of the exports of plugins. Exports outside [`REQUIRED`](export::REQUIRED) are optional.
pub mod export {
    /// Memory of a WebAssembly module.
    pub const MEMORY: &str = "memory";
    /// `() -> u32`: returns the interface version that the plugin was built for.
    pub const ABI: &str = "millrace_abi";
    /// `(bytes: usize) -> address`: reserves memory for the router, aligned to 8 bytes; 0 if there is none.
    pub const RESERVE: &str = "millrace_reserve";
    /// `(address, bytes: usize)`: releases reserved memory.
    pub const RELEASE: &str = "millrace_release";
    /// `(settings: address, bytes: usize) -> i32`: initialises the plugin with settings as JSON. Returns 0 on
    /// success. On failure, calls `fail` and returns another number.
    pub const INIT: &str = "millrace_init";
    /// `(call: address)`: processes packets.
    pub const PACKETS: &str = "millrace_packets";
    /// `(name: address, bytes: usize, arguments: address, bytes: usize) -> i32`: handles a control message
    /// with arguments as JSON. On success, calls `reply` and returns 0. On failure, calls `fail` and returns
    /// another number.
    pub const CONTROL: &str = "millrace_control";
    /// `(now: u64)`: periodic call, at the interval in the manifest or at the time requested by `timer`.
    pub const PERIODIC: &str = "millrace_periodic";
    /// `(flow: address)`: notifies the plugin of the end of a flow.
    pub const FLOW_ENDED: &str = "millrace_flow_ended";
    /// `() -> i32`: saves the state. On success, calls `reply` with the state and returns 0. On failure,
    /// calls `fail` and returns another number.
    pub const SAVE: &str = "millrace_save";
    /// `(state: address, bytes: usize, version: u32) -> i32`: restores state that was saved under state
    /// version `version`. Returns 0 on success. On failure, calls `fail` and returns another number.
    pub const RESTORE: &str = "millrace_restore";

    /// `(bytes: address, length: usize)`: delivers a message. An instance at a worker gets it from its host
    /// companion, a host companion from its instances.
    pub const MESSAGE: &str = "millrace_message";

    /// Mandatory exports.
    pub const REQUIRED: [&str; 5] = [ABI, RESERVE, RELEASE, INIT, PACKETS];
    /// Optional exports.
    pub const OPTIONAL: [&str; 6] = [CONTROL, PERIODIC, FLOW_ENDED, SAVE, RESTORE, MESSAGE];
}

/// Functions of the router for plugins. Each stands with the capability that the manifest must request;
/// `None` marks a function that is always available.
pub const HOST_FUNCTIONS: [(&str, Option<&str>); 16] = [
    // (text, bytes): reports why `init`, `control`, `save` or `restore` fails
    ("fail", None),
    // (bytes, length): returns the answer as JSON, or the saved state in any format
    ("reply", None),
    // (level: 0 error to 3 debug, text, bytes): logs a line. An instance may log 10 lines a second; further
    // lines are only counted
    ("log", Some("log")),
    // (packet, offset, to, bytes) -> number of bytes read
    ("packet_read", Some("packet-read")),
    // (packet, offset, from, bytes) -> number of bytes written
    ("packet_write", Some("packet-write")),
    // (packet, number of bytes to add at the front; negative to remove) -> 0, or 1 without room
    ("packet_resize", Some("packet-resize")),
    // (bytes, length, port) -> 0, or 1 without packet memory: makes a packet as if received by `port`; the
    // bytes begin at the network header
    ("packet_make", Some("packet-make")),
    // (packet, to, bytes) -> number of bytes written of a `RawBacklog`, 0 for an unknown packet
    ("flow_backlog", Some("flow-backlog")),
    // (nanoseconds): requests one call of `periodic` after this time
    ("timer", Some("timer")),
    // (JSON, bytes) -> 0 if accepted: requests a change of filters, routes, queues or instances; control
    // carries it out later
    ("request", Some("request")),
    // () -> address of the service state, 0 if the manifest declares none
    ("service_state", None),
    // (map, key, bytes, to, bytes) -> one of `map_answer`
    ("map_get", Some("map-read")),
    // (map, key, bytes, from, bytes) -> one of `map_answer`
    ("map_set", Some("map-write")),
    // (map, key, bytes) -> one of `map_answer`
    ("map_remove", Some("map-write")),
    // (bytes, length) -> 0 if accepted: sends a message from an instance to its host companion, or back
    ("send", Some("message")),
    // (counter, number): adds the number to a counter; the counter is given by its index in the manifest's
    // `counters`
    ("count", None),
];

/// Capabilities that permit requests of one kind each: filters, routes, queues, instances, principals.
pub const REQUEST_CAPABILITIES: [&str; 5] =
    ["request-filters", "request-routes", "request-queues", "request-instances", "request-principals"];

/// Maximum number of counters of a plugin.
pub const MOST_COUNTERS: usize = 32;

/// Maximum length of a key in bytes.
pub const MOST_MAP_KEY: u16 = 64;

/// Maximum length of a value in bytes.
pub const MOST_MAP_VALUE: u16 = 256;

/// Results of map functions.
pub mod map_answer {
    /// Success.
    pub const DONE: i32 = 0;
    /// The key is absent.
    pub const ABSENT: i32 = 1;
    /// The map has no room for another key.
    pub const FULL: i32 = 2;
    /// The map doesn't exist, its keys or values have another size, another instance owns it, or the call
    /// comes from `init`.
    pub const REFUSED: i32 = 3;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares sizes and offsets of all structures with fixed numbers. A new field may only follow the last
    /// one.
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
            offset_of!(RawPacket, connection),
            offset_of!(RawPacket, until),
        ];
        assert_eq!(offsets, [8, 24, 32, 40, 48, 52, 56]);
        assert_eq!(offset_of!(RawFlowEnd, source), 16);
        let offsets = [
            offset_of!(RawBacklog, packets),
            offset_of!(RawBacklog, bytes),
            offset_of!(RawBacklog, instance_bytes),
            offset_of!(RawBacklog, payer_bytes),
            offset_of!(RawBacklog, allowance),
            offset_of!(RawBacklog, payer_packets),
        ];
        assert_eq!((offsets, size_of::<RawBacklog>()), ([8, 16, 24, 32, 40, 48], 56));
    }
}
