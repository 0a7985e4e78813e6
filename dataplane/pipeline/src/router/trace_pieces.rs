//! Batches with traced packets. Each traced packet passes the stages alone. The other packets pass them
//! together, as without a trace. All packets then leave in their order of arrival.
//!
//! Instances see a traced packet before or after the rest of the batch, whichever keeps the order of its
//! flow. If packets of its flow come both before and after it in the batch, the batch is cut.

use millrace_classify::NearKey;
use millrace_packet::Packet;
use millrace_plugin::EMPTY_PATH;
use millrace_units::{Amount, Instant};

use crate::classify::Classifier;
use crate::ingress::steer::steer;
use crate::observe::trace::{Mark, Pick, Room, TraceStep, Traced, Turn};
use crate::router::Router;
use crate::work::{Alike, Bits, Fate, Work};

impl Router {
    /// Takes a batch through the stages like [`journey`](Router::journey), but each traced packet alone.
    #[cold]
    #[inline(never)]
    pub(crate) fn journey_watched(&mut self, work: &mut Work, pick: Pick, now: Instant) {
        let mut room = self.observation.trace.as_mut().map(|tracer| tracer.take_room()).unwrap_or_default();
        self.observation.find_traced(work, pick, &mut room.traced, now);
        if pick == Pick::Chosen
            && let Some(handover) = &self.handover
        {
            steer(&self.classifier.flows, handover, &self.ports, work);
        }
        if room.traced.is_empty() {
            self.stages(work, now);
        } else {
            self.classifier.begin_pieces(work.packets.len(), self.options.new_flows);
            TracedBatch { router: self, now }.go_in_pieces(work, &mut room);
            self.classifier.end_pieces();
        }
        if let Some(tracer) = &mut self.observation.trace {
            tracer.keep_room(room);
        }
        self.follow_up(now);
        self.classification().keep_flows(now, false);
    }
}

/// Router and time of a journey with traced packets.
struct TracedBatch<'a> {
    router: &'a mut Router,
    now: Instant,
}

impl TracedBatch<'_> {
    /// Takes a batch through the stages, cut into pieces where the order within a flow requires that.
    fn go_in_pieces(&mut self, work: &mut Work, room: &mut Room) {
        let Room { rest, alone, traced } = room;
        while let Some(cut) = self.next_cut(work, traced)
            && let Some((before, [first, ..])) = traced.split_at_mut_checked(cut)
        {
            let from = first.place;
            rest.take_tail(work, from);
            self.go_around(work, before, alone);
            std::mem::swap(work, rest);
            traced.drain(..cut);
            traced.iter_mut().for_each(|one| one.place -= from);
        }
        self.go_around(work, traced, alone);
    }

    /// Sets the [`Turn`] of the traced packets, up to the first packet before which the batch must be cut.
    /// Returns the index of that packet in `traced`; `None` if no cut is needed.
    fn next_cut(&self, work: &Work, traced: &mut [Traced]) -> Option<usize> {
        if !self.router.gates.is_bound() {
            // There are no instances that could see packets out of order, and dispose keeps the order.
            return None;
        }
        traced.iter_mut().position(|one| {
            let turn = turn_of(&self.router.classifier, work, one.place);
            one.turn = turn.unwrap_or(Turn::Last);
            turn.is_none()
        })
    }

    /// Takes a batch through the stages, each traced packet alone.
    fn go_around(&mut self, work: &mut Work, traced: &mut [Traced], alone: &mut Work) {
        for one in &mut *traced {
            // Makes the stages skip the packet: its key matches no flow, and its fate is not open.
            work.complete(one.place);
            one.near = std::mem::replace(&mut work.reading.nears[one.place], NearKey::NONE);
            one.fate = std::mem::replace(&mut work.fates[one.place], Fate::Consumed);
        }
        work.aside = traced.len();
        if self.router.gates.is_bound() {
            self.go_each(work, traced, Turn::First, alone);
        }
        work.leaving.begin();
        let all_leave = work.aside == work.packets.len() || self.router.settle(work, (), self.now);
        self.go_each(work, traced, Turn::Last, alone);
        work.aside = 0;
        for one in &*traced {
            (work.fates[one.place], work.reading.nears[one.place]) = (one.fate, one.near);
        }
        if all_leave && self.leave_all(work, traced) {
            return;
        }
        work.note_keys();
        let mut from = 0;
        for Traced { place, .. } in traced {
            self.router.disposal().dispose_first(work, from..*place, self.now);
            self.router.disposal().dispose_traced(work, *place, self.now);
            from = *place + 1;
        }
        self.router.disposal().dispose_first(work, from..from + work.packets.len(), self.now);
        self.router.gates.plugins_mut().end_of_batch();
    }

    /// Takes each traced packet of a [`Turn`] through the stages up to dispose, alone.
    fn go_each(&mut self, work: &mut Work, traced: &mut [Traced], turn: Turn, alone: &mut Work) {
        for one in traced.iter_mut().filter(|one| one.turn == turn) {
            alone.take_aside(work, one);
            if let Some(tracer) = &mut self.router.observation.trace {
                tracer.restart();
            }
            let mark = Mark(alone.packets.at(0).trace);
            self.router.settle(alone, mark, self.now);
            one.fate = alone.give_back(work, one.place);
        }
    }

    /// Sends the batch if every traced packet is a finished frame too, and all packets go to one queue that
    /// has room. The caller has checked the other packets. Returns whether the batch was sent.
    fn leave_all(&mut self, work: &mut Work, traced: &[Traced]) -> bool {
        if traced.iter().any(|one| one.fate != Fate::Queue) {
            return false;
        }
        for one in traced {
            let packet = work.packets.at(one.place);
            let accounts = (packet.next_hop, packet.counts_for);
            work.leaving.add(packet.out_port, accounts, Amount::packet(packet.len()));
        }
        let out = work.leaving.port().and_then(|port| self.router.ports.get(port));
        if !out.is_some_and(|out| out.has_room_for(work.packets.len())) {
            return false;
        }
        for one in traced {
            let packet = work.packets.at(one.place);
            let step = match self.router.ports.queue_of(packet) {
                TraceStep::Queued { port, leaf: None, before } => {
                    TraceStep::Queued { port, leaf: None, before: before + one.place as u32 }
                }
                step => step,
            };
            self.router.observation.write_queued(packet.trace, step, self.now);
        }
        self.router.queueing().leave(work)
    }
}

/// Returns whether the flow of a packet has a current record, and is bound to no instance.
fn meets_nobody(classifier: &Classifier, work: &Work, place: usize) -> bool {
    let flows = &classifier.flows;
    let flow = flows.find(&work.keys[place], work.hashes[place], 0).filter(|_| classifier.remembers());
    flow.map(|flow| flows.record(flow).answer).is_some_and(|answer| {
        let is_right = answer.generation == classifier.changes.current();
        is_right && answer.path == EMPTY_PATH && answer.varying_mask == 0
    })
}

/// Returns the [`Turn`] of a traced packet; `None` if both turns would change the order of its flow.
fn turn_of(classifier: &Classifier, work: &Work, place: usize) -> Option<Turn> {
    if !work.fates[place].is_open() {
        return Some(Turn::Last);
    }
    let hash = work.hashes[place];
    let is_one_of_it = |(other, packet): (&u64, &Packet)| *other == hash && packet.trace == 0;
    let (before, behind) = work.packets.split_at(place);
    if !work.hashes.all().iter().zip(before).any(is_one_of_it) {
        return Some(Turn::First);
    }
    let is_last = !work.hashes[place..].iter().zip(behind).any(is_one_of_it);
    (is_last || meets_nobody(classifier, work, place)).then_some(Turn::Last)
}

impl Work {
    /// Moves the packet of `one` out of `other` into this empty batch, with all results of the stages before
    /// classify.
    fn take_aside(&mut self, other: &mut Self, one: &Traced) {
        let place = one.place;
        self.reading.nears[0] = one.near;
        self.keys[0] = other.keys[place];
        self.hashes[0] = other.hashes[place];
        self.varying[0] = other.varying[place];
        self.fates[0] = one.fate;
        (self.reading.brief, self.reading.keys_due) = (Bits::default(), false);
        self.reading.alike = Alike::No;
        self.begin_classified(1);
        // Can't fail: the batch is empty.
        let _ = self.packets.push(other.packets.take_out(place));
    }

    /// Moves the only packet back to index `place` of `other`, with the results that dispose needs. Returns
    /// its fate.
    fn give_back(&mut self, other: &mut Self, place: usize) -> Fate {
        if let Some(packet) = self.packets.pop() {
            other.packets.put_back(place, packet);
        }
        other.keys[place] = self.keys[0];
        other.states.flows[place] = self.states.flows[0];
        other.states.set_connection(place, self.states.connection(0));
        other.destinations[place] = self.destinations[0];
        self.fates[0]
    }

    /// Moves the packets from index `from` on out of `other` into this empty batch, with all results of the
    /// stages before classify. Packets read in brief remain so, because most of them need no further fields.
    fn take_tail(&mut self, other: &mut Self, from: usize) {
        let end = other.packets.len();
        let count = end - from;
        // Can't fail: an empty batch has room for any part of another batch.
        self.packets.take_tail(&mut other.packets, from);
        self.reading.nears[..count].copy_from_slice(&other.reading.nears[from..end]);
        self.hashes[..count].copy_from_slice(&other.hashes[from..end]);
        self.reading.brief = other.reading.brief.from(from, count);
        self.reading.alike = other.reading.alike;
        let all_brief = self.reading.brief == Bits::of(count);
        if all_brief {
            // A packet read in brief always has an open fate.
            self.fates[..count].fill(Fate::Forward);
        } else {
            self.fates[..count].copy_from_slice(&other.fates[from..end]);
            self.varying[..count].copy_from_slice(&other.varying[from..end]);
        }
        if !all_brief || !self.reading.nears[..count].iter().all(|near| near.is_v4()) {
            self.keys[..count].copy_from_slice(&other.keys[from..end]);
        }
        self.begin_classified(count);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use millrace_packet::{DropReason, FlowKey, Pool};
    use millrace_units::PortId;

    use super::*;
    use crate::work::Varying;

    fn key4(last: u8) -> FlowKey {
        FlowKey::v4(Ipv4Addr::new(10, 1, 0, 2), Ipv4Addr::new(10, 2, 0, last), 17, (1, 2), PortId(1))
    }

    fn key6(last: u16) -> FlowKey {
        let address = |last| Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, last);
        FlowKey::v6(address(2), address(last), 17, (1, 2), PortId(1))
    }

    /// Returns a batch with a packet for each of the flow keys. Packets with an index below `brief` count as
    /// read in brief.
    fn batch(pool: &Pool, keys: &[FlowKey], brief: usize) -> Work {
        let mut work = Work::default();
        for index in 0..keys.len() {
            work.packets.push(pool.packet_from(&[index as u8; 60]).unwrap()).unwrap();
        }
        work.begin();
        for (index, key) in keys.iter().enumerate() {
            work.set_key(index, *key);
            work.hashes[index] = index as u64;
            if index < brief {
                // Stores a wrong key: brief reading doesn't set this field, which then holds the key of an
                // earlier packet.
                work.keys[index] = if key.destination().is_ipv4() { key4(0) } else { *key };
                work.varying[index] = Varying { tcp_flags: None, dscp: 63 };
            }
        }
        work.reading.brief = Bits::of(brief);
        work
    }

    #[test]
    fn notes_move_with_their_packets_in_both_parse_modes() {
        let pool = Pool::new(512).unwrap();
        let v4: Vec<FlowKey> = (0..200).map(key4).collect();
        let v6: Vec<FlowKey> = (0..200).map(key6).collect();
        let mixed: Vec<FlowKey> =
            v4.iter().zip(&v6).flat_map(|(four, six)| [*four, *six]).take(200).collect();
        for keys in [v4, v6, mixed] {
            for (brief, from) in [(200, 0), (200, 65), (200, 199), (130, 64), (130, 150), (0, 3)] {
                let mut work = batch(&pool, &keys, brief);
                if brief < 200 {
                    work.fates[199] = Fate::Drop(DropReason::Ip4Short);
                }
                let mut tail = Work::default();
                tail.take_tail(&mut work, from);
                assert_eq!((work.packets.len(), tail.packets.len()), (from, 200 - from));
                tail.complete_all();
                for (place, key) in keys[from..].iter().enumerate() {
                    let index = from + place;
                    assert_eq!(
                        (tail.keys[place], tail.hashes[place]),
                        (*key, index as u64),
                        "{brief} {index}"
                    );
                    assert_eq!(tail.reading.nears[place], work.reading.nears[index]);
                    assert_eq!(tail.packets[place].data()[0], index as u8);
                    assert_eq!(tail.fates[place], work.fates[index]);
                    assert_ne!(tail.varying[place].dscp, 63, "it is this packet's own");
                }
            }
        }
    }
}
