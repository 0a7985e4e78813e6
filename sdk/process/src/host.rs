//! Type of the table of the router's functions that plugins outside a sandbox call.

/// Function table, in the order of [`HOST_FUNCTIONS`](millrace_plugin_abi::binary::HOST_FUNCTIONS).
/// `docs/plugin-abi.md` describes the functions.
#[derive(Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "HOST_FUNCTIONS describes the functions")]
pub struct Host {
    pub size: u64,
    pub fail: extern "C" fn(*const u8, usize),
    pub reply: extern "C" fn(*const u8, usize),
    pub log: extern "C" fn(u32, *const u8, usize),
    pub packet: PacketFunctions,
    pub flow_backlog: extern "C" fn(u32, *mut u8, usize) -> u32,
    pub timer: extern "C" fn(u64),
    pub request: extern "C" fn(*const u8, usize) -> i32,
    pub service_state: extern "C" fn() -> *mut u8,
    pub map: MapFunctions,
    pub send: extern "C" fn(*const u8, usize) -> i32,
    pub count: extern "C" fn(u32, u64),
}

/// Functions on packets, a part of the table.
#[derive(Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "HOST_FUNCTIONS describes the functions")]
pub struct PacketFunctions {
    pub read: extern "C" fn(u32, u32, *mut u8, usize) -> u32,
    pub write: extern "C" fn(u32, u32, *const u8, usize) -> u32,
    pub resize: extern "C" fn(u32, i32) -> i32,
    pub make: extern "C" fn(*const u8, usize, u32) -> i32,
}

/// Functions on maps, a part of the table.
#[derive(Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "HOST_FUNCTIONS describes the functions")]
pub struct MapFunctions {
    pub get: extern "C" fn(u32, *const u8, usize, *mut u8, usize) -> i32,
    pub set: extern "C" fn(u32, *const u8, usize, *const u8, usize) -> i32,
    pub remove: extern "C" fn(u32, *const u8, usize) -> i32,
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use millrace_plugin_abi::binary::HOST_FUNCTIONS;

    use super::*;

    #[test]
    fn the_table_has_the_order_of_the_interface() {
        let offsets = [
            offset_of!(Host, fail),
            offset_of!(Host, reply),
            offset_of!(Host, log),
            offset_of!(Host, packet.read),
            offset_of!(Host, packet.write),
            offset_of!(Host, packet.resize),
            offset_of!(Host, packet.make),
            offset_of!(Host, flow_backlog),
            offset_of!(Host, timer),
            offset_of!(Host, request),
            offset_of!(Host, service_state),
            offset_of!(Host, map.get),
            offset_of!(Host, map.set),
            offset_of!(Host, map.remove),
            offset_of!(Host, send),
            offset_of!(Host, count),
        ];
        let names = [
            "fail",
            "reply",
            "log",
            "packet_read",
            "packet_write",
            "packet_resize",
            "packet_make",
            "flow_backlog",
            "timer",
            "request",
            "service_state",
            "map_get",
            "map_set",
            "map_remove",
            "send",
            "count",
        ];
        for (place, (name, _)) in HOST_FUNCTIONS.iter().enumerate() {
            assert_eq!((offsets[place], names[place]), (8 * (place + 1), *name));
        }
        assert_eq!(size_of::<Host>(), 8 * (HOST_FUNCTIONS.len() + 1));
    }
}
