//! Host functions that a process calls through the ring of answers. The worker carries them out.
//!
//! Some functions return a result, for which the process waits; the others have none.

use millrace_plugin_abi::MOST_MAP_VALUE;
use millrace_plugin_abi::binary::{HOST_FUNCTIONS, map_answer};
use millrace_plugin_abi::process::{MOST_READ, Record, answer, request};

use super::staging::Stage;
use crate::declaration::maps::Key;
use crate::runtime::exchange::Exchange;
use crate::runtime::native::table::Granted;
use crate::runtime::raw_packet;
use crate::runtime::wasm::layout::{BACKLOG, backlog_bytes};

/// Space for the data that a host function returns.
pub(super) type Space = [u8; MOST_READ];

/// Carries out a call of a host function. Returns the record with its result; `None` if it has none, or if
/// the kind isn't that of a function.
pub(super) fn call<'s>(
    record: Record<'_>,
    exchange: &mut Exchange,
    stage: Stage<'_>,
    granted: Granted,
    space: &'s mut Space,
) -> Result<Option<Record<'s>>, UnknownKind> {
    let place = (record.kind as usize).wrapping_sub(1);
    let (name, _) = *HOST_FUNCTIONS.get(place).ok_or(UnknownKind(record.kind))?;
    if !granted.has(name) {
        exchange.faults.refuse(name);
        return Ok(refusal(record.kind).map(|number| result(number, &[])));
    }
    let Record { kind, first, second, bytes } = record;
    let number = first as u32;
    match kind {
        answer::FAIL => exchange.answer.fail(bytes),
        answer::REPLY => exchange.answer.reply(bytes),
        answer::LOG => exchange.log(number, bytes),
        answer::TIMER => exchange.set_timer(first),
        answer::COUNT => exchange.count(number, second),
        _ => return call_with_result(record, exchange, stage, space).map(Some),
    }
    Ok(None)
}

/// Carries out a call of a host function with a result.
fn call_with_result<'s>(
    record: Record<'_>,
    exchange: &mut Exchange,
    stage: Stage<'_>,
    space: &'s mut Space,
) -> Result<Record<'s>, UnknownKind> {
    let Record { kind, first, second, bytes } = record;
    let number = first as u32;
    Ok(match kind {
        answer::PACKET_READ => {
            let room = space.get_mut(..(second >> 32) as usize);
            let look = |packet: &mut millrace_packet::Packet| {
                room.map_or(0, |room| packet.read(second as u32 as usize, room))
            };
            let read = stage.with_packet(exchange, number, look).unwrap_or(0);
            result(read as i32, space.get(..read).unwrap_or_default())
        }
        answer::PACKET_WRITE => {
            let write = |packet: &mut _| raw_packet::write(packet, second as u32, bytes);
            result(stage.with_packet(exchange, number, write).unwrap_or(0) as i32, &[])
        }
        answer::PACKET_RESIZE => {
            let resize = |packet: &mut _| raw_packet::resize(packet, second as u32 as i32);
            refused_unless(stage.with_packet(exchange, number, resize) == Some(true))
        }
        answer::PACKET_MAKE => refused_unless(exchange.make(bytes, number)),
        answer::FLOW_BACKLOG => match exchange.backlog(number) {
            Some(backlog) => {
                let bytes: &mut [u8; BACKLOG] = space.first_chunk_mut().ok_or(UnknownKind(kind))?;
                *bytes = backlog_bytes(&backlog);
                result(BACKLOG as i32, bytes)
            }
            None => result(0, &[]),
        },
        answer::REQUEST => refused_unless(exchange.outbox.request(bytes)),
        answer::SEND => refused_unless(exchange.outbox.send(bytes)),
        answer::MAP_GET => map_get(exchange, number, second, bytes, space),
        answer::MAP_SET => {
            let split = bytes.split_at_checked(second as usize);
            let set = |(key, value)| exchange.maps.set(number, Key::of(key), value);
            result(split.map_or(map_answer::REFUSED, set), &[])
        }
        answer::MAP_REMOVE => result(exchange.maps.remove(number, Key::of(bytes)), &[]),
        other => return Err(UnknownKind(other)),
    })
}

/// Kind of an answer that doesn't exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it gave an answer of the unknown kind {0}")]
pub(super) struct UnknownKind(u32);

/// Returns the number that a refused function returns; `None` if the function has no result.
fn refusal(kind: u32) -> Option<i32> {
    match kind {
        answer::FAIL | answer::REPLY | answer::LOG | answer::TIMER | answer::COUNT => None,
        answer::PACKET_READ | answer::PACKET_WRITE | answer::FLOW_BACKLOG => Some(0),
        answer::MAP_GET | answer::MAP_SET | answer::MAP_REMOVE => Some(map_answer::REFUSED),
        _ => Some(1),
    }
}

fn result(number: i32, bytes: &[u8]) -> Record<'_> {
    Record { kind: request::RESULT, first: u64::from(number as u32), second: 0, bytes }
}

fn refused_unless<'s>(is_accepted: bool) -> Record<'s> {
    result(i32::from(!is_accepted), &[])
}

fn map_get<'s>(exchange: &mut Exchange, map: u32, room: u64, key: &[u8], space: &'s mut Space) -> Record<'s> {
    let room = usize::try_from(room).ok().filter(|room| *room <= usize::from(MOST_MAP_VALUE));
    let Some(value) = room.and_then(|room| space.get_mut(..room)) else {
        return result(map_answer::REFUSED, &[]);
    };
    match exchange.maps.get(map, Key::of(key), value) {
        map_answer::DONE => result(map_answer::DONE, value),
        other => result(other, &[]),
    }
}
