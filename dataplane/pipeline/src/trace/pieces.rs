//! A batch with packets that are traced is taken in pieces: those before one, it alone, those behind it.

use millrace_units::Instant;

use crate::router::Router;
use crate::work::{Bits, Work};

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
        // What is noted moves with the packets.
        work.complete_all();
        self.classifier.begin_pieces(count, self.options.new_flows);
        let (mut rest, mut alone) = self.trace.as_mut().map(|tracer| tracer.take_room()).unwrap_or_default();
        let mut next = Some(first);
        while let Some(at) = next {
            // What is before it stays in `work`, and goes first.
            rest.take_tail(work, at + 1);
            alone.take_tail(work, at);
            self.whole(work, pick, now);
            self.go_alone(&mut alone, pick, now);
            std::mem::swap(work, &mut rest);
            next = self.next_traced(work, pick, now);
        }
        self.whole(work, pick, now);
        self.classifier.end_pieces();
        if let Some(tracer) = &mut self.trace {
            tracer.keep_room((rest, alone));
        }
        self.follow_up(now);
        self.keep_flows(now, false);
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
    /// Takes the packets from `from` on out of another batch, with all that was noted of them before they were classified.
    fn take_tail(&mut self, other: &mut Self, from: usize) {
        let end = other.packets.len();
        let count = end - from;
        // They were in a batch, so they find room in one that is empty.
        self.packets.take_tail(&mut other.packets, from);
        self.keys[..count].copy_from_slice(&other.keys[from..end]);
        self.nears[..count].copy_from_slice(&other.nears[from..end]);
        self.hashes[..count].copy_from_slice(&other.hashes[from..end]);
        self.varying[..count].copy_from_slice(&other.varying[from..end]);
        self.fates[..count].copy_from_slice(&other.fates[from..end]);
        self.brief = Bits::default();
        self.begin_classified(count);
    }
}
