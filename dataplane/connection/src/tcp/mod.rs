//! State of a TCP connection, followed from outside: opening, windows, reset and end.
//!
//! A router between two hosts sees segments that the hosts may never receive, and misses none that they do.
//! So it advances the state only by segments that the receiver is sure to accept, and passes segments that
//! the receiver answers with a challenge (RFC 5961) without advancing:
//!
//! - **SYN** of an open connection: only a closed connection opens again (RFC 5961, 4; RFC 9293, 3.10.7.4).
//! - **RST**: it ends the connection only with the sequence number that the receiver expects (RFC 5961, 3).
//!   Any other RST in the window passes, and one outside is invalid.
//! - **Acknowledgments** of data never sent, or long forgotten, are invalid (RFC 5961, 5).
//!
//! **Liberal checks.** Without all sequence numbers, valid segments would seem invalid. So the windows of a connection are
//! no longer checked after a fragmented segment, whose end is unknown, after packets that passed untracked, or if the
//! connection was adopted after its start, so that its window scales are unknown. The handshake is always checked, because
//! it shows that the originator's address is not forged.

mod phase;
mod segment;
mod side;
#[cfg(test)]
mod tests;

use millrace_memory::zeroable;
use millrace_wire::tcp::Flags;

pub use self::phase::Phase;
pub use self::segment::Segment;
use self::side::{ACK, FIN, FIN_TAKEN, OFFERS_SCALE, SYN, Side, is_after};
use crate::direction::Direction;
use crate::invalid::Invalid;

zeroable! {
    /// TCP state of a connection: 44 bytes.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    #[repr(C)]
    pub(crate) struct Tcp {
        sides: [Side; 2],
        phase: Phase,
        /// Whether the windows are not checked.
        is_liberal: bool,
        /// Epoch of the latest packet.
        pub epoch: u16,
    }
}

impl Tcp {
    /// Opens a connection by the first segment of its originator, a SYN.
    ///
    /// # Errors
    /// [`Invalid::NotOpening`] for any other segment.
    pub fn open(segment: &Segment) -> Result<Self, Invalid> {
        if !segment.has(Flags::SYN) || segment.has(Flags::ACK) {
            return Err(Invalid::NotOpening);
        }
        let mut tcp = Self { phase: Phase::SynSent, ..Self::default() };
        tcp.sides[0].begin(segment);
        Ok(tcp)
    }

    /// Adopts an open connection by any of its segments, whose sender then counts as the originator. The handshake counts as
    /// complete when the other side has sent a segment, too: the address of the first may be forged.
    ///
    /// # Errors
    /// [`Invalid::NotOpening`] for a segment that ends a connection, or answers its opening.
    pub fn adopt(segment: &Segment) -> Result<Self, Invalid> {
        if segment.has(Flags::SYN) || segment.has(Flags::RST) || segment.has(Flags::FIN) {
            return Err(Invalid::NotOpening);
        }
        let mut tcp = Self { phase: Phase::SynReceived, is_liberal: true, ..Self::default() };
        let (sender, receiver) = tcp.sides_of(Direction::Original);
        *sender = Side { end: segment.end(), seen: SYN, ..Side::default() };
        *receiver = Side { end: segment.acknowledgment, limit: segment.acknowledgment, ..Side::default() };
        sender.advance(segment, receiver);
        Ok(tcp)
    }

    /// Returns the phase.
    #[inline]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Notes that a segment has come in an epoch.
    #[inline]
    pub fn enter_epoch(&mut self, epoch: u16) {
        self.is_liberal |= self.epoch != epoch && self.phase.is_past_handshake();
        self.epoch = epoch;
    }

    /// Advances the state by a segment.
    ///
    /// # Errors
    /// The reason why no host that follows the protocol sends the segment now; the state stays the same.
    #[inline]
    pub fn advance(&mut self, direction: Direction, segment: &Segment) -> Result<(), Invalid> {
        if self.phase == Phase::SynSent || segment.has(Flags::SYN) {
            return self.advance_opening(direction, segment);
        }
        self.check(direction, segment)?;
        if segment.has(Flags::RST) {
            self.reset(direction, segment);
            return Ok(());
        }
        let (sender, receiver) = self.sides_of(direction);
        sender.advance(segment, receiver);
        if segment.has(Flags::FIN) && segment.end() == sender.end && !segment.is_fragment {
            sender.seen |= FIN;
        }
        self.phase = self.phase_now();
        self.is_liberal |= segment.is_fragment && self.phase.is_past_handshake();
        Ok(())
    }

    /// Returns whether a segment opens a new connection in place of this one: a SYN after the end of what was
    /// sent, on a connection that is over or was never answered.
    pub fn is_reopened_by(&self, direction: Direction, segment: &Segment) -> bool {
        let is_syn = segment.has(Flags::SYN) && !segment.has(Flags::ACK);
        let (sender, _) = self.sides_at(direction);
        is_syn
            && match self.phase {
                Phase::SynSent => direction == Direction::Original && segment.end() != sender.end,
                Phase::Reset => true,
                Phase::TimeWait => self.is_liberal || is_after(segment.sequence, sender.end),
                Phase::None | Phase::SynReceived | Phase::Established | Phase::Closing => false,
            }
    }

    /// Returns whether the sender of a direction may have sent a sequence number not long ago.
    pub fn has_sent(&self, direction: Direction, sequence: u32) -> bool {
        let (sender, receiver) = self.sides_at(direction);
        self.is_liberal || sender.has_sent(sequence, receiver)
    }

    #[inline]
    fn check(&self, direction: Direction, segment: &Segment) -> Result<(), Invalid> {
        if self.is_liberal {
            return Ok(());
        }
        let (sender, receiver) = self.sides_at(direction);
        if sender.has(FIN) && is_after(segment.end(), sender.end) {
            return Err(Invalid::Sequence);
        }
        if !sender.is_in_window(segment, receiver) {
            return Err(Invalid::Sequence);
        }
        match segment.has(Flags::ACK) && !sender.may_acknowledge(segment, receiver) {
            true => Err(Invalid::Acknowledgment),
            false => Ok(()),
        }
    }

    /// Ends the connection by a RST with the sequence number that its receiver expects: the highest that the
    /// receiver has acknowledged, or the end of the data that is on its way to the receiver.
    fn reset(&mut self, direction: Direction, segment: &Segment) {
        let (sender, receiver) = self.sides_of(direction);
        let expected =
            segment.sequence == sender.end || receiver.has(ACK) && segment.sequence == receiver.acknowledged;
        if expected {
            self.phase = Phase::Reset;
        }
    }

    /// Advances an unanswered connection, or one of which a SYN passes.
    #[cold]
    fn advance_opening(&mut self, direction: Direction, segment: &Segment) -> Result<(), Invalid> {
        let [syn, ack] = [Flags::SYN, Flags::ACK].map(|flag| segment.has(flag));
        match (self.phase, direction) {
            (Phase::SynSent, Direction::Original) => match syn && !ack || segment.has(Flags::RST) {
                true => Ok(()),
                false => Err(Invalid::NotOpening),
            },
            (Phase::SynSent, Direction::Reply) => self.answered(segment),
            // A repeated SYN, or one that the receiver answers with a challenge.
            (_, _) if !ack => Ok(()),
            (_, _) => {
                self.check(direction, segment)?;
                let (sender, receiver) = self.sides_of(direction);
                sender.advance(segment, receiver);
                self.phase = self.phase_now();
                Ok(())
            }
        }
    }

    /// Takes the first segments of the other side: its SYN, or a reset. An acknowledgment without SYN passes:
    /// a host that still has an older connection sends it as a challenge, and the originator answers by RST.
    fn answered(&mut self, segment: &Segment) -> Result<(), Invalid> {
        let [syn, ack, rst] = [Flags::SYN, Flags::ACK, Flags::RST].map(|flag| segment.has(flag));
        let taken = !is_after(segment.acknowledgment, self.sides[0].end)
            && !is_after(self.sides[0].limit, segment.acknowledgment);
        match (syn, rst) {
            (true, _) if ack && !taken => return Err(Invalid::Acknowledgment),
            (true, _) => self.answer(segment),
            (_, true) if !(ack && taken) => return Err(Invalid::Acknowledgment),
            (_, true) => self.phase = Phase::Reset,
            // A challenge has no payload.
            (false, false) if segment.payload > 0 || segment.has(Flags::FIN) => {
                return Err(Invalid::NotOpening);
            }
            (false, false) => {}
        }
        Ok(())
    }

    /// Takes the answer to the originator's SYN: SYN with ACK, or the SYN of a simultaneous opening.
    fn answer(&mut self, segment: &Segment) {
        let (sender, receiver) = self.sides_of(Direction::Reply);
        sender.begin(segment);
        if !(sender.has(OFFERS_SCALE) && receiver.has(OFFERS_SCALE)) {
            (sender.scale, receiver.scale) = (0, 0);
        }
        sender.limit = sender.end.wrapping_add(receiver.window);
        receiver.limit = receiver.end.wrapping_add(sender.window);
        sender.advance(segment, receiver);
        self.phase = Phase::SynReceived;
    }

    fn phase_now(&self) -> Phase {
        let [original, reply] = &self.sides;
        match self.phase {
            Phase::None | Phase::Reset | Phase::TimeWait | Phase::SynSent => self.phase,
            Phase::SynReceived if !(original.has(ACK) && reply.has(ACK)) => self.phase,
            _ if original.has(FIN_TAKEN) && reply.has(FIN_TAKEN) => Phase::TimeWait,
            _ if original.has(FIN) || reply.has(FIN) => Phase::Closing,
            _ => Phase::Established,
        }
    }

    /// Returns the sender and the receiver of segments of a direction.
    #[inline]
    fn sides_at(&self, direction: Direction) -> (&Side, &Side) {
        let [original, reply] = &self.sides;
        match direction {
            Direction::Original => (original, reply),
            Direction::Reply => (reply, original),
        }
    }

    /// Returns the sender and the receiver of segments of a direction.
    #[inline]
    fn sides_of(&mut self, direction: Direction) -> (&mut Side, &mut Side) {
        let [original, reply] = &mut self.sides;
        match direction {
            Direction::Original => (original, reply),
            Direction::Reply => (reply, original),
        }
    }
}
