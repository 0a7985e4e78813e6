//! Main function of a plugin's process: loads the shared object, and carries out the requests of a worker.
#![allow(unsafe_code)]

use std::convert::Infallible;
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

use millrace_plugin_abi::binary::{RawCall, RawFlowEnd, RawPacket};

use super::channel::{Channel, Request};
use super::kinds::{answer::done, request};
use super::layout::Layout;
use super::region::Region;
use super::table::{HOST, connect, with_channel};
use crate::Manifest;
use crate::runtime::native::elf::manifest_bytes;
use crate::runtime::native::object::Object;

/// Loads the shared object in the file `object`, and serves the worker at the other end of `memory`. Calls
/// `confine` after the object is loaded, and before the plugin gets any input. Returns only if that is not
/// possible any more.
///
/// # Errors
/// Describes why the object can't be loaded, the process can't be confined, or the exchange is broken.
pub fn serve(
    object: BorrowedFd<'_>,
    memory: BorrowedFd<'_>,
    confine: impl FnOnce() -> Result<(), String>,
) -> Result<Infallible, String> {
    let file = File::from(object.try_clone_to_owned().map_err(|error| unread(&error))?);
    let length = file.metadata().map_err(|error| unread(&error))?.len();
    let mut bytes = vec![0; length as usize];
    // Processes share the file's position, so read without it.
    file.read_exact_at(&mut bytes, 0).map_err(|error| unread(&error))?;
    let stated = manifest_bytes(&bytes).map_err(|error| error.to_string())?;
    let manifest = Manifest::parse(stated).map_err(|error| error.to_string())?;
    let layout = Layout::of(&manifest);
    let region = Region::open(memory, layout.words())
        .map_err(|error| format!("can't map the memory that it shares with the router: {error}"))?;
    let object = Object::load(&bytes, &HOST).map_err(|error| error.to_string())?;
    object.check(stated).map_err(|error| error.to_string())?;
    drop((bytes, manifest, file));
    confine()?;
    connect(Channel::new(region, layout));
    loop {
        let next = with_channel(Channel::request).ok_or("it has no channel to the router")?;
        let request = next.map_err(|error| error.to_string())?;
        let (code, bits) = carry_out(&object, request);
        let answered = with_channel(|channel| channel.done(code, bits));
        answered.ok_or("it has no channel to the router")?.map_err(|error| error.to_string())?;
    }
}

fn unread(error: &std::io::Error) -> String {
    format!("can't read the shared object from the router: {error}")
}

/// Carries out a request. Returns the number that the plugin's function returned, and bits of [`done`]. The
/// number is `None` if the plugin lacks the function.
fn carry_out(object: &Object, request: Request) -> (Option<i32>, u64) {
    let Request { kind, first, second, bytes } = request;
    let code = match kind {
        request::INIT => {
            let hears = if object.hears_flow_ends() { done::HEARS_FLOW_ENDS } else { 0 };
            let saves = if object.saves() { done::SAVES } else { 0 };
            return (Some(object.init(&bytes)), hears | saves);
        }
        request::PACKETS => {
            handle(object, first as u32, second);
            Some(0)
        }
        request::CONTROL => {
            let (name, arguments) = bytes.split_at_checked(first as usize).unwrap_or((&bytes, &[]));
            object.control(&String::from_utf8_lossy(name), arguments)
        }
        request::PERIODIC => {
            object.periodic(first);
            Some(0)
        }
        request::FLOW_ENDED => {
            end_flow(object, &bytes);
            Some(0)
        }
        request::MESSAGE => {
            object.message(&bytes);
            Some(0)
        }
        request::SAVE => object.save(),
        request::RESTORE => object.restore(&bytes, first as u32),
        _ => None,
    };
    (code, 0)
}

/// Calls the packet handler of the plugin with staged packets.
fn handle(object: &Object, count: u32, now: u64) {
    let Some(packets) = with_channel(|channel| channel.packets(count as usize)) else { return };
    let mut call = RawCall {
        size: size_of::<RawCall>() as u16,
        packet_size: size_of::<RawPacket>() as u16,
        count,
        now,
        packets,
    };
    // SAFETY: the descriptions, windows and states are in the shared memory, which stays mapped. This process
    // has no reference to them; the worker only copies words from and to them.
    unsafe { object.packets(&raw mut call) };
}

/// Notifies the plugin of the end of a flow, which the bytes describe.
fn end_flow(object: &Object, bytes: &[u8]) {
    let Some((flow, state)) = bytes.split_at_checked(size_of::<RawFlowEnd>()) else { return };
    // SAFETY: the slice has the size of the structure, and each of its bytes may have any value.
    let flow = unsafe { flow.as_ptr().cast::<RawFlowEnd>().read_unaligned() };
    let word = |bytes: &[u8]| {
        let mut whole = [0; 8];
        whole.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
        u64::from_ne_bytes(whole)
    };
    let mut words: Vec<_> = state.chunks(8).map(word).collect();
    object.flow_ended(flow, &mut words);
}
