//! Main loop of a plugin's process: carries out the requests of a worker.

use std::convert::Infallible;

use millrace_plugin_abi::binary::{RawCall, RawFlowEnd, RawPacket};
use millrace_plugin_abi::process::{answer::done, request};

use crate::Exports;
use crate::channel::{Channel, Request};
use crate::table::{connect, with_channel};

/// Serves the worker at the other end of the channel. The plugin must have the table [`HOST`](crate::HOST).
/// Returns only if the exchange is broken.
///
/// # Errors
/// Describes why the exchange is broken.
pub fn serve(channel: Channel, exports: &Exports) -> Result<Infallible, String> {
    connect(channel);
    loop {
        let next = with_channel(Channel::request).ok_or("it has no channel to the router")?;
        let request = next.map_err(|error| error.to_string())?;
        let (code, bits) = carry_out(exports, request);
        let answered = with_channel(|channel| channel.done(code, bits));
        answered.ok_or("it has no channel to the router")?.map_err(|error| error.to_string())?;
    }
}

/// Carries out a request. Returns the number that the plugin's function returned, and bits of [`done`]. The
/// number is `None` if the plugin lacks the function.
fn carry_out(exports: &Exports, request: Request) -> (Option<i32>, u64) {
    let Request { kind, first, second, bytes } = request;
    let code = match kind {
        request::INIT => {
            let hears = if exports.hears_flow_ends() { done::HEARS_FLOW_ENDS } else { 0 };
            let saves = if exports.saves() { done::SAVES } else { 0 };
            return (Some(exports.init(&bytes)), hears | saves);
        }
        request::PACKETS => {
            handle(exports, first as u32, second);
            Some(0)
        }
        request::CONTROL => {
            let (name, arguments) = bytes.split_at_checked(first as usize).unwrap_or((&bytes, &[]));
            exports.control(&String::from_utf8_lossy(name), arguments)
        }
        request::PERIODIC => {
            exports.periodic(first);
            Some(0)
        }
        request::FLOW_ENDED => {
            end_flow(exports, &bytes);
            Some(0)
        }
        request::MESSAGE => {
            exports.message(&bytes);
            Some(0)
        }
        request::SAVE => exports.save(),
        request::RESTORE => exports.restore(&bytes, first as u32),
        _ => None,
    };
    (code, 0)
}

/// Calls the packet handler of the plugin with staged packets.
fn handle(exports: &Exports, count: u32, now: u64) {
    let Some(packets) = with_channel(|channel| channel.packets()) else { return };
    let mut call = RawCall {
        size: size_of::<RawCall>() as u16,
        packet_size: size_of::<RawPacket>() as u16,
        count,
        now,
        packets,
    };
    // SAFETY: the descriptions, windows and states are in the shared memory, which stays mapped. This process
    // has no reference to them; the worker only copies words from and to them.
    unsafe { exports.packets(&raw mut call) };
}

/// Notifies the plugin of the end of a flow, which the bytes describe.
fn end_flow(exports: &Exports, bytes: &[u8]) {
    let Some((flow, state)) = bytes.split_at_checked(size_of::<RawFlowEnd>()) else { return };
    // SAFETY: the slice has the size of the structure, and each of its bytes may have any value.
    let flow = unsafe { flow.as_ptr().cast::<RawFlowEnd>().read_unaligned() };
    let word = |bytes: &[u8]| {
        let mut whole = [0; 8];
        whole.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
        u64::from_ne_bytes(whole)
    };
    let mut words: Vec<_> = state.chunks(8).map(word).collect();
    exports.flow_ended(flow, &mut words);
}
