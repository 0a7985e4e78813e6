//! State of an SCTP association, followed from outside (RFC 9260, 4 and 8.5).
//!
//! Each side chooses a verification tag, which the other side puts into its packets. A packet with another
//! tag is invalid, so nobody who doesn't see the packets can end an association.

use crate::direction::Direction;
use crate::invalid::Invalid;

/// Length of the common header in octets.
const HEADER: usize = 12;
/// Length of a chunk header in octets.
const CHUNK_HEADER: usize = 4;
/// Maximum number of chunks that the tracker reads of a packet. Chunks that change the state come first.
const CHUNKS: usize = 4;

/// Chunk types that change the state.
mod chunk {
    pub const INIT: u8 = 1;
    pub const INIT_ACK: u8 = 2;
    pub const ABORT: u8 = 6;
    pub const SHUTDOWN: u8 = 7;
    pub const SHUTDOWN_ACK: u8 = 8;
    pub const COOKIE_ECHO: u8 = 10;
    pub const COOKIE_ACK: u8 = 11;
    pub const SHUTDOWN_COMPLETE: u8 = 14;
    /// Flag of ABORT and SHUTDOWN COMPLETE: the packet has the sender's own tag (RFC 9260, 8.5.1).
    pub const REFLECTED_TAG: u8 = 1;
}

/// Phase of an association.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum SctpPhase {
    /// The originator has sent INIT.
    #[default]
    Init,
    /// The other side has answered with INIT ACK.
    InitAck,
    /// The originator has returned the cookie.
    CookieEcho,
    /// The other side has accepted the cookie.
    Established,
    /// A side has sent SHUTDOWN.
    Closing,
    /// The association is over.
    Closed,
}

impl SctpPhase {
    /// Returns the name in lists.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::InitAck => "init-ack",
            Self::CookieEcho => "cookie-echo",
            Self::Established => "established",
            Self::Closing => "closing",
            Self::Closed => "closed",
        }
    }
}

/// State of an association.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sctp {
    /// Tag that packets to the originator have, and tag of packets to the other side; 0 if not yet known.
    tags: [u32; 2],
    phase: SctpPhase,
    /// Whether each side's next packet shows an unknown tag.
    learns: bool,
    /// Epoch of the latest packet.
    pub epoch: u16,
}

/// Common header, and the chunks after it.
struct Packet<'a> {
    tag: u32,
    chunks: &'a [u8],
}

impl Sctp {
    /// Opens an association by the packet of its originator with an INIT chunk.
    ///
    /// # Errors
    /// [`Invalid::Malformed`] for a packet without a whole chunk header, [`Invalid::Tag`] for an invalid tag,
    /// [`Invalid::NotOpening`] for a packet without INIT.
    pub fn open(transport: &[u8]) -> Result<Self, Invalid> {
        let packet = Packet::read(transport)?;
        let Some((chunk::INIT, _, value)) = chunks(packet.chunks).next() else {
            return Err(Invalid::NotOpening);
        };
        // INIT is alone in its packet, whose tag is 0 (RFC 9260, 8.5.1).
        let tag = initiate_tag(value).filter(|_| packet.tag == 0).ok_or(Invalid::Tag)?;
        Ok(Self { tags: [tag, 0], ..Self::default() })
    }

    /// Returns the phase.
    #[inline]
    pub fn phase(&self) -> SctpPhase {
        self.phase
    }

    /// Notes the epoch of a packet. In a new epoch, the tags may belong to a later association.
    #[inline]
    pub fn enter_epoch(&mut self, epoch: u16) {
        if self.epoch != epoch && matches!(self.phase, SctpPhase::Established | SctpPhase::Closing) {
            (self.tags, self.learns) = ([0; 2], true);
        }
        self.epoch = epoch;
    }

    /// Returns whether a packet opens a new association in place of this one, which is over.
    pub fn is_reopened_by(&self, transport: &[u8]) -> bool {
        self.phase == SctpPhase::Closed && Self::open(transport).is_ok()
    }

    /// Advances by a packet.
    ///
    /// # Errors
    /// [`Invalid::Malformed`] for a packet without a whole chunk header, [`Invalid::Tag`] for a wrong tag; the
    /// state stays the same.
    pub fn advance(&mut self, direction: Direction, transport: &[u8]) -> Result<(), Invalid> {
        let packet = Packet::read(transport)?;
        let mut next = *self;
        for (kind, flags, value) in chunks(packet.chunks) {
            next.take(direction, packet.tag, (kind, flags, value))?;
        }
        *self = next;
        Ok(())
    }

    fn take(
        &mut self,
        direction: Direction,
        tag: u32,
        (kind, flags, value): (u8, u8, &[u8]),
    ) -> Result<(), Invalid> {
        let [own, others] = self.tags_of(direction);
        let reflects = matches!(kind, chunk::ABORT | chunk::SHUTDOWN_COMPLETE)
            && flags & chunk::REFLECTED_TAG != 0
            && tag == own
            && own != 0;
        match kind {
            chunk::INIT if tag == 0 => return self.take_init(direction, value),
            chunk::INIT => return Err(Invalid::Tag),
            _ if reflects || tag == others && others != 0 => {}
            _ if self.learns && others == 0 && tag != 0 => self.learn(direction, tag),
            _ => return Err(Invalid::Tag),
        }
        // A side that gets INIT again answers with another tag, since it keeps no state before the cookie
        // (RFC 9260, 5.1). The answer that counts is the latest before the cookie.
        let is_opening = matches!(self.phase, SctpPhase::Init | SctpPhase::InitAck);
        if kind == chunk::INIT_ACK && is_opening && direction == Direction::Reply {
            self.tags[1] = initiate_tag(value).ok_or(Invalid::Tag)?;
        }
        self.phase = next_phase(self.phase, direction, kind);
        Ok(())
    }

    /// Takes an INIT chunk: the originator's again, or one of a restart, which the receiver answers with a new
    /// cookie.
    fn take_init(&mut self, direction: Direction, value: &[u8]) -> Result<(), Invalid> {
        let tag = initiate_tag(value).ok_or(Invalid::Tag)?;
        if direction == Direction::Original && self.phase == SctpPhase::Init {
            self.tags = [tag, 0];
        }
        Ok(())
    }

    /// Takes the tag of packets of a direction.
    fn learn(&mut self, direction: Direction, tag: u32) {
        let [original, reply] = &mut self.tags;
        match direction {
            Direction::Original => *reply = tag,
            Direction::Reply => *original = tag,
        }
    }

    /// Returns the tag of packets to the sender of a direction, and the tag of packets to the receiver.
    fn tags_of(&self, direction: Direction) -> [u32; 2] {
        let [original, reply] = self.tags;
        match direction {
            Direction::Original => [original, reply],
            Direction::Reply => [reply, original],
        }
    }
}

fn next_phase(phase: SctpPhase, direction: Direction, kind: u8) -> SctpPhase {
    match (phase, direction, kind) {
        (_, _, chunk::ABORT) => SctpPhase::Closed,
        (SctpPhase::Init, Direction::Reply, chunk::INIT_ACK) => SctpPhase::InitAck,
        (SctpPhase::InitAck, Direction::Original, chunk::COOKIE_ECHO) => SctpPhase::CookieEcho,
        (SctpPhase::CookieEcho, Direction::Reply, chunk::COOKIE_ACK) => SctpPhase::Established,
        (SctpPhase::Established, _, chunk::SHUTDOWN | chunk::SHUTDOWN_ACK) => SctpPhase::Closing,
        (SctpPhase::Closing, _, chunk::SHUTDOWN_COMPLETE) => SctpPhase::Closed,
        (phase, _, _) => phase,
    }
}

impl<'a> Packet<'a> {
    fn read(transport: &'a [u8]) -> Result<Self, Invalid> {
        let [_, _, _, _, a, b, c, d, ..] = *transport else { return Err(Invalid::Malformed) };
        let chunks = transport.get(HEADER..).filter(|chunks| chunks.len() >= CHUNK_HEADER);
        Ok(Self { tag: u32::from_be_bytes([a, b, c, d]), chunks: chunks.ok_or(Invalid::Malformed)? })
    }
}

/// Returns type, flags and value of the first chunks. Stops at a chunk with an invalid length; a value that
/// goes beyond the given octets is cut.
fn chunks(mut rest: &[u8]) -> impl Iterator<Item = (u8, u8, &[u8])> {
    let next = move || {
        let [kind, flags, high, low, ref after @ ..] = *rest else { return None };
        let length = usize::from(u16::from_be_bytes([high, low])).checked_sub(CHUNK_HEADER)?;
        rest = after.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, flags, after.get(..length).unwrap_or(after)))
    };
    std::iter::from_fn(next).take(CHUNKS)
}

/// Returns the tag that INIT and INIT ACK carry; `None` for 0, which is no tag.
fn initiate_tag(value: &[u8]) -> Option<u32> {
    let [a, b, c, d, ..] = *value else { return None };
    Some(u32::from_be_bytes([a, b, c, d])).filter(|tag| *tag != 0)
}

#[cfg(test)]
mod tests;
