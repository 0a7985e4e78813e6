//! A batch with packets that are traced is taken in pieces: those before one, it alone, those behind it. Where nothing is bound, and one
//! is traced, the others take the express way together, as without a trace, and the traced one comes to its place between them in the
//! queue.

use millrace_classify::NearKey;
use millrace_units::{Instant, PortId};

use crate::router::Router;
use crate::work::{Alike, Bits, Fate, Work};

/// Which packets of a batch are traced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pick {
    /// Those that the trace chooses: they have just come in.
    Chosen,
    /// Those that are marked already: another worker has handed them over.
    Marked,
}

impl Router {
    /// Takes a batch through the stages while a trace goes on: as [`journey`](Router::journey) does, but packets that are traced
    /// alone.
    #[cold]
    #[inline(never)]
    pub(crate) fn journey_watched(&mut self, work: &mut Work, pick: Pick, now: Instant) {
        let count = work.packets.len();
        let Some(first) = self.next_traced(work, pick, now) else {
            self.whole(work, pick, now);
            self.follow_up(now);
            return self.keep_flows(now, false);
        };
        self.classifier.begin_pieces(count, self.options.new_flows);
        let (mut rest, mut alone) = self.trace.as_mut().map(|tracer| tracer.take_room()).unwrap_or_default();
        let is_only_one = pick == Pick::Chosen
            && self.trace.as_mut().is_some_and(|tracer| tracer.passes(count - first - 1));
        let is_done = is_only_one && self.express_around(work, first, (&mut rest, &mut alone), now);
        let mut next = Some(first).filter(|_| !is_done);
        while let Some(at) = next {
            // What is before it stays in `work`, and goes first.
            rest.take_tail(work, at + 1);
            alone.take_tail(work, at);
            self.whole(work, pick, now);
            self.go_alone(&mut alone, pick, now);
            std::mem::swap(work, &mut rest);
            next = if is_only_one { None } else { self.next_traced(work, pick, now) };
        }
        self.whole(work, pick, now);
        self.classifier.end_pieces();
        if let Some(tracer) = &mut self.trace {
            tracer.keep_room((rest, alone));
        }
        self.follow_up(now);
        self.keep_flows(now, false);
    }

    /// Takes the express way with all packets but the one that is traced, together, and the rest of the way with those before it, it alone
    /// and those behind it; whether that could be. Nothing has happened otherwise.
    fn express_around(
        &mut self,
        work: &mut Work,
        traced: usize,
        (rest, alone): (&mut Work, &mut Work),
        now: Instant,
    ) -> bool {
        let is_plain = self.classifier.remembers() && !self.gates.is_bound();
        if !is_plain || self.is_tapped() || self.handover.is_some() || !work.fates[traced].is_open() {
            return false;
        }
        // So that the express way leaves it alone.
        work.fates[traced] = Fate::Consumed;
        let near = std::mem::replace(&mut work.nears[traced], NearKey::NONE);
        self.gates.groups.begin();
        self.express(work, now);
        work.nears[traced] = near;
        let count = work.packets.len();
        let is_last_left = *work.left == [traced as u16];
        let has_room = |port: &PortId| self.ports.get(*port).is_some_and(|out| out.has_room_for(count));
        match work.leaving.port().filter(|port| is_last_left && has_room(port)) {
            Some(port) => {
                self.offer_to_driver(work, now);
                alone.take_one(work, traced);
                self.leave_first(work, port, traced);
                alone.packets.take_front(&mut work.packets);
                self.go_alone(alone, Pick::Chosen, now);
                self.leave_first(work, port, count);
                self.count_leaving(work, Some(port));
            }
            None => {
                rest.take_tail_behind_express(work, traced + 1);
                work.fates[traced] = Fate::Forward;
                alone.take_tail(work, traced);
                work.left.retain(|index| usize::from(*index) < traced);
                self.go_on_behind_express(work, now);
                self.go_alone(alone, Pick::Chosen, now);
                // Its lookup was before that of the others: records may have come since.
                self.classifier.note_growth();
                self.go_on_behind_express(rest, now);
            }
        }
        true
    }

    /// The stages behind the express way, where nothing is bound.
    fn go_on_behind_express(&mut self, work: &mut Work, now: Instant) {
        match work.left.is_empty() {
            true => {
                self.offer_to_driver(work, now);
                self.dispose(work, now);
            }
            false => {
                self.classify_left(work, now);
                self.travel(work, now);
            }
        }
    }

    /// Puts so many finished frames at the beginning of a batch, or all that are left, into the queue of the port that all leave by.
    fn leave_first(&mut self, work: &mut Work, port: PortId, count: usize) {
        if let Some(out) = self.ports.get_mut(port) {
            out.queue_all(work.packets.drain_front(count));
        }
    }

    /// Takes packets that are not traced through the stages.
    fn whole(&mut self, work: &mut Work, pick: Pick, now: Instant) {
        if pick == Pick::Chosen && self.handover.is_some() {
            self.steer(work);
        }
        if !work.packets.is_empty() {
            self.stages(work, now);
        }
    }

    /// The first packet that is traced.
    fn next_traced(&mut self, work: &mut Work, pick: Pick, now: Instant) -> Option<usize> {
        let tracer = self.trace.as_mut()?;
        if pick == Pick::Marked {
            return work.packets.iter().position(|packet| packet.trace != 0);
        }
        if tracer.is_over(now) {
            return None;
        }
        let mut from = 0;
        while let Some(at) = tracer.next_of(work.packets.len() - from) {
            let index = from + at;
            from = index + 1;
            work.complete(index);
            // Only what was parsed has a hash.
            let candidate = (work.packets[index].hash != 0).then(|| work.candidate(index));
            if tracer.choose(&mut work.packets[index], candidate.as_ref()) {
                return Some(index);
            }
        }
        None
    }
}

impl Work {
    /// Takes over what is noted of one open packet of another batch, for a batch of that alone.
    fn take_one(&mut self, other: &mut Self, place: usize) {
        other.complete(place);
        self.nears[0] = other.nears[place];
        self.keys[0] = other.keys[place];
        self.hashes[0] = other.hashes[place];
        self.varying[0] = other.varying[place];
        self.fates[0] = Fate::Forward;
        self.brief = Bits::default();
        self.alike = Alike::No;
        self.begin_classified(1);
    }

    /// Takes the packets from `from` on out of another batch, with all that was noted of them before they were classified. Packets
    /// that were read in brief stay so: of most of them nobody asks for more.
    fn take_tail(&mut self, other: &mut Self, from: usize) {
        let end = other.packets.len();
        let count = end - from;
        // They were in a batch, so they find room in one that is empty.
        self.packets.take_tail(&mut other.packets, from);
        self.nears[..count].copy_from_slice(&other.nears[from..end]);
        self.hashes[..count].copy_from_slice(&other.hashes[from..end]);
        self.brief = other.brief.from(from, count);
        self.alike = other.alike;
        let all_brief = self.brief == Bits::of(count);
        if all_brief {
            // Of what was read in brief nothing has been decided.
            self.fates[..count].fill(Fate::Forward);
        } else {
            self.fates[..count].copy_from_slice(&other.fates[from..end]);
            self.varying[..count].copy_from_slice(&other.varying[from..end]);
        }
        if !all_brief || !self.nears[..count].iter().all(|near| near.is_v4()) {
            self.keys[..count].copy_from_slice(&other.keys[from..end]);
        }
        self.begin_classified(count);
    }
}

impl Work {
    /// The same behind the express way, with what that has found out, and which packets it has left.
    fn take_tail_behind_express(&mut self, other: &mut Self, from: usize) {
        let end = other.packets.len();
        self.take_tail(other, from);
        self.fates[..end - from].copy_from_slice(&other.fates[from..end]);
        self.flows[..end - from].copy_from_slice(&other.flows[from..end]);
        let first = other.left.partition_point(|index| usize::from(*index) < from);
        self.left.clear();
        self.left.extend(other.left.drain(first..).map(|index| index - from as u16));
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

    /// A batch of these packets, of which those with a number below `brief` were read in brief.
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
                // As it is left: what was noted of another packet.
                work.keys[index] = if key.destination().is_ipv4() { key4(0) } else { *key };
                work.varying[index] = Varying { tcp_flags: None, dscp: 63 };
            }
        }
        work.brief = Bits::of(brief);
        work
    }

    #[test]
    fn what_is_noted_of_packets_moves_with_them_whether_they_were_read_in_brief_or_not() {
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
                    assert_eq!(tail.nears[place], work.nears[index]);
                    assert_eq!(tail.packets[place].data()[0], index as u8);
                    assert_eq!(tail.fates[place], work.fates[index]);
                    assert_ne!(tail.varying[place].dscp, 63, "it is this packet's own");
                }
            }
        }
    }
}
