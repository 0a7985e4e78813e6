//! Kinds of records: requests of the worker, and answers of the process.
//!
//! A function with a result gets a [`request::RESULT`]: all except `FAIL`, `REPLY`, `LOG`, `TIMER` and `COUNT`.
//! The service state is no record: it is in the shared memory.

/// Kinds of requests, with the meaning of their fields.
pub mod request {
    /// Initialisation. Bytes: settings as JSON.
    pub const INIT: u32 = 1;
    /// Call with staged packets. First: number of packets. Second: time.
    pub const PACKETS: u32 = 2;
    /// Control message. First: length of the name. Bytes: name and arguments.
    pub const CONTROL: u32 = 3;
    /// Periodic call. First: time.
    pub const PERIODIC: u32 = 4;
    /// End of a flow. Bytes: description of the flow, and its state.
    pub const FLOW_ENDED: u32 = 5;
    /// Message of the host companion. Bytes: message.
    pub const MESSAGE: u32 = 6;
    /// Request for the plugin's state.
    pub const SAVE: u32 = 7;
    /// State to restore. First: version of the state format. Bytes: state.
    pub const RESTORE: u32 = 8;
    /// Result of a host function. First: number that the function returns. Bytes: data that it reads.
    pub const RESULT: u32 = 9;
}

/// Kinds of answers. The calls of host functions have the order of
/// [`HOST_FUNCTIONS`](crate::binary::HOST_FUNCTIONS).
pub mod answer {
    /// End of the request. First: number that the plugin's function returned. Second: bits of [`done`].
    pub const DONE: u32 = 0;
    /// Bytes: text.
    pub const FAIL: u32 = 1;
    /// Bytes: reply, or saved state.
    pub const REPLY: u32 = 2;
    /// First: level. Bytes: line.
    pub const LOG: u32 = 3;
    /// First: packet. Second: offset, and number of bytes in the upper half.
    pub const PACKET_READ: u32 = 4;
    /// First: packet. Second: offset. Bytes: new content.
    pub const PACKET_WRITE: u32 = 5;
    /// First: packet. Second: number of bytes, a signed number of 32 bits.
    pub const PACKET_RESIZE: u32 = 6;
    /// First: port. Bytes: packet, from its network header on.
    pub const PACKET_MAKE: u32 = 7;
    /// First: packet.
    pub const FLOW_BACKLOG: u32 = 8;
    /// First: nanoseconds.
    pub const TIMER: u32 = 9;
    /// Bytes: JSON.
    pub const REQUEST: u32 = 10;
    /// First: map. Second: length of the value. Bytes: key.
    pub const MAP_GET: u32 = 12;
    /// First: map. Second: length of the key. Bytes: key and value.
    pub const MAP_SET: u32 = 13;
    /// First: map. Bytes: key.
    pub const MAP_REMOVE: u32 = 14;
    /// Bytes: message.
    pub const SEND: u32 = 15;
    /// First: counter. Second: number.
    pub const COUNT: u32 = 16;

    /// Bits of the second field of [`DONE`].
    pub mod done {
        /// The plugin lacks the export for the request.
        pub const MISSING: u64 = 1;
        /// After the initialisation: the plugin has a handler for ends of flows.
        pub const HEARS_FLOW_ENDS: u64 = 2;
        /// After the initialisation: the plugin can save its state.
        pub const SAVES: u64 = 4;
    }
}

#[cfg(test)]
mod tests {
    use crate::binary::HOST_FUNCTIONS;

    use super::answer::*;

    #[test]
    fn answers_have_the_order_of_the_host_functions() {
        let kinds = [
            (FAIL, "fail"),
            (REPLY, "reply"),
            (LOG, "log"),
            (PACKET_READ, "packet_read"),
            (PACKET_WRITE, "packet_write"),
            (PACKET_RESIZE, "packet_resize"),
            (PACKET_MAKE, "packet_make"),
            (FLOW_BACKLOG, "flow_backlog"),
            (TIMER, "timer"),
            (REQUEST, "request"),
            (MAP_GET, "map_get"),
            (MAP_SET, "map_set"),
            (MAP_REMOVE, "map_remove"),
            (SEND, "send"),
            (COUNT, "count"),
        ];
        for (kind, name) in kinds {
            assert_eq!(HOST_FUNCTIONS[kind as usize - 1].0, name);
        }
    }
}
