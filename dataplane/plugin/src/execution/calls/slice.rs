//! Slice of a call with waiting packets.

use millrace_packet::BATCH_SIZE;
use millrace_plugin_abi::{Fault, Known, Packets, Position, Progress, Verdict};
use millrace_units::Instant;

use super::Outcome;
use super::visit::KeptState;
use crate::CallLimits;
use crate::execution::instances::{Awaited, Exceeded, Hosted, News};
use crate::execution::waiting::Call;
use crate::fault::{FaultKind, overrun};

/// Begins or resumes a call with waiting packets, and runs it for one slice.
pub(super) fn slice(
    hosted: &mut Hosted,
    call: &mut Call,
    verdicts: &mut [Verdict],
    (mut kept, known): (KeptState<'_>, Known<'_>),
    call_limits: &CallLimits,
    now: Instant,
    news: &mut News,
) -> Outcome {
    if call.place.is_some() {
        news.payer = call.payer;
    }
    if !hosted.is_well(now, news) {
        hosted.forget_shadow_call();
        return Outcome::Failed;
    }
    let members: [u16; BATCH_SIZE] = std::array::from_fn(|number| number as u16);
    let members = members.get(..call.packets.len()).unwrap_or(&members);
    kept.find(call);
    if call.slices == 0 {
        if hosted.needs_linear {
            call.gather();
        }
        hosted.show_shadow((&call.packets, &call.keys), members, call.payer);
    }
    let copies = call.place.is_some_and(|place| place.position == Position::Copy);
    let packets = Packets::new(&mut call.packets, &call.keys, members, verdicts);
    let packets = packets.with_known(known).as_copies(copies);
    let mut packets = kept.add_to(packets, &call.numbers, &call.connections);
    call.written |= hosted.writes;
    let progress = match call.slices {
        0 => hosted.call(|instance| instance.process(&mut packets, now)),
        _ => hosted.call(|instance| instance.resume(&mut packets, now)),
    };
    call.slices += 1;
    match progress {
        Progress::Done => {
            let failed = hosted.has_failed(now, news);
            hosted.run_shadow(&call.packets, members, verdicts, now);
            note_pace(hosted, call, failed);
            Outcome::Decided { failed }
        }
        Progress::Suspended => {
            hosted.counts.suspensions += 1;
            let most = hosted.most_slices(call_limits, call.load());
            if call.slices < most {
                return Outcome::Suspended;
            }
            let spent = overrun(members.len(), most, hosted.limits.slice);
            let text = format!("{spent}; `bind --budget` raises the budget");
            abort(hosted, (FaultKind::Overrun, text), now, news)
        }
        Progress::Awaited => {
            let Some(exceeded) = limit_of(hosted, call, call_limits, now) else { return Outcome::Suspended };
            hosted.paces.begin_again(call.payer);
            let kind = if exceeded.is_overrun() { FaultKind::Overrun } else { FaultKind::NoAnswer };
            abort(hosted, (kind, exceeded.to_string()), now, news)
        }
    }
}

/// Notes the end of a call with packets in the pace of its payer, if another process ran the call.
fn note_pace(hosted: &mut Hosted, call: &Call, failed: bool) {
    match call.times.awaited.filter(|_| !call.packets.is_empty()) {
        Some(_) if failed => hosted.paces.begin_again(call.payer),
        Some(Awaited { asked, seen, .. }) => {
            hosted.paces.note(call.payer, call.packets.len(), seen.since(asked));
        }
        None => {}
    }
}

/// Notes that another process still runs a call. Returns the time limit of the call if it is over.
fn limit_of(
    hosted: &mut Hosted,
    call: &mut Call,
    call_limits: &CallLimits,
    now: Instant,
) -> Option<Exceeded> {
    let awaited = call.times.awaited.get_or_insert(Awaited::since(now));
    let instance = &hosted.instance;
    awaited.look(instance.answers(), now);
    let times = || (instance.consumed(), instance.patience());
    awaited.exceeded(call_limits.awaited(call.packets.len()), times)
}

/// Aborts the instance's call, which has exceeded its time limit: a fault of this kind, with this description.
#[cold]
fn abort(hosted: &mut Hosted, (kind, text): (FaultKind, String), now: Instant, news: &mut News) -> Outcome {
    hosted.instance.abort();
    hosted.forget_shadow_call();
    // Discard the instance's own fault text: `text` also states the time limit.
    _ = hosted.instance.take_fault();
    hosted.fail(Fault { kind: kind.name(), text }, now, news);
    Outcome::Failed
}
