//! TCP connection of two hosts that send no data. It shares no code with the tracker: sequence numbers are whole numbers
//! that never wrap around, and all windows are equal.

use crate::direction::Direction;
use crate::invalid::Invalid;

/// Window of each segment, in octets.
const WINDOW: i64 = 1000;
/// Distance behind the end of sent octets at which acknowledgments are too old.
const OLDEST: i64 = 66_000;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// Segment without data.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    pub flags: u8,
    pub sequence: u32,
    pub acknowledgment: u32,
}

impl Segment {
    fn has(self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    fn is_first(self) -> bool {
        self.has(SYN) && !self.has(ACK)
    }

    fn from(self) -> i64 {
        i64::from(self.sequence)
    }

    fn to(self) -> i64 {
        self.from() + i64::from(self.has(SYN)) + i64::from(self.has(FIN))
    }

    fn acknowledges(self) -> Option<i64> {
        self.has(ACK).then(|| i64::from(self.acknowledgment))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Called,
    Answered,
    Open,
    Closing,
    Over,
    Reset,
}

/// Sent octets of a host, SYN and FIN included.
#[derive(Clone, Copy, Default, Debug)]
struct Host {
    /// Number after the last sent octet.
    end: i64,
    /// Number after the last octet that the other host takes.
    most: i64,
    /// Window of the host; 0 until it has sent a segment of the connection.
    window: i64,
    /// Largest number up to which the host has acknowledged the octets of the other one.
    acknowledged: Option<i64>,
    has_ended: bool,
    is_end_acknowledged: bool,
}

/// Connection: the originator, the other host, and what has passed between them.
#[derive(Clone, Copy, Debug)]
pub struct Tcp {
    phase: Phase,
    hosts: [Host; 2],
}

fn indices(direction: Direction) -> (usize, usize) {
    if direction == Direction::Original { (0, 1) } else { (1, 0) }
}

impl Tcp {
    /// Opens a connection by a segment.
    pub fn open(segment: Segment) -> Result<Self, Invalid> {
        if !segment.is_first() {
            return Err(Invalid::NotOpening);
        }
        let first = Host { end: segment.to(), most: segment.to(), window: WINDOW, ..Host::default() };
        Ok(Self { phase: Phase::Called, hosts: [first, Host::default()] })
    }

    /// Returns the name of the phase in lists.
    pub fn name(&self) -> &'static str {
        match self.phase {
            Phase::Called => "syn-sent",
            Phase::Answered => "syn-received",
            Phase::Open => "established",
            Phase::Closing => "closing",
            Phase::Over => "time-wait",
            Phase::Reset => "reset",
        }
    }

    /// Returns a segment of a host that goes on: with these flags, or the answer to a call.
    pub fn next(&self, direction: Direction, flags: u8) -> Segment {
        let (sender, receiver) = indices(direction);
        let [sequence, acknowledgment] = [sender, receiver].map(|host| self.hosts[host].end as u32);
        match self.phase == Phase::Called && direction == Direction::Reply {
            true => Segment { flags: SYN | ACK, sequence: 1, acknowledgment },
            false => Segment { flags, sequence, acknowledgment },
        }
    }

    /// Whether a segment opens another connection of the two hosts.
    pub fn is_reopened_by(&self, direction: Direction, segment: Segment) -> bool {
        let end = self.hosts[indices(direction).0].end;
        segment.is_first()
            && match self.phase {
                Phase::Called => direction == Direction::Original && segment.to() != end,
                Phase::Answered | Phase::Open | Phase::Closing => false,
                Phase::Over => segment.from() > end,
                Phase::Reset => true,
            }
    }

    /// Returns the connection after a segment; the reason if the segment is invalid.
    pub fn after(mut self, direction: Direction, segment: Segment) -> Result<Self, Invalid> {
        let (sender, receiver) = indices(direction);
        match self.phase {
            Phase::Called if sender == 1 => return self.answered(segment),
            Phase::Called if segment.is_first() || segment.has(RST) => return Ok(self),
            Phase::Called => return Err(Invalid::NotOpening),
            // The other host answers it with a challenge.
            _ if segment.is_first() => return Ok(self),
            _ => self.check(self.hosts[sender], self.hosts[receiver], segment)?,
        }
        if segment.has(RST) {
            let is_expected = segment.from() == self.hosts[sender].end
                || self.hosts[receiver].acknowledged == Some(segment.from());
            self.phase = if is_expected { Phase::Reset } else { self.phase };
            return Ok(self);
        }
        self.take(sender, receiver, segment);
        self.hosts[sender].has_ended |= segment.has(FIN) && segment.to() == self.hosts[sender].end;
        let [one, other] = &self.hosts;
        let is_early = one.acknowledged.is_none() || other.acknowledged.is_none();
        self.phase = match self.phase {
            Phase::Answered if is_early => Phase::Answered,
            Phase::Over | Phase::Reset => self.phase,
            _ if one.is_end_acknowledged && other.is_end_acknowledged => Phase::Over,
            _ if one.has_ended || other.has_ended => Phase::Closing,
            _ => Phase::Open,
        };
        Ok(self)
    }

    /// Returns the connection after a segment of the host that is called.
    fn answered(mut self, segment: Segment) -> Result<Self, Invalid> {
        let of_call = segment.acknowledges().map(|acknowledged| acknowledged == self.hosts[0].end);
        let (syn, rst) = (segment.has(SYN), segment.has(RST));
        match of_call {
            Some(false) if syn || rst => return Err(Invalid::Acknowledgment),
            None if rst => return Err(Invalid::Acknowledgment),
            _ if segment.has(FIN) => return Err(Invalid::NotOpening),
            _ if rst => self.phase = Phase::Reset,
            _ if syn => {
                self.hosts[1] = Host { end: segment.to(), window: WINDOW, ..Host::default() };
                for host in &mut self.hosts {
                    host.most = host.end + WINDOW;
                }
                self.take(1, 0, segment);
                self.phase = Phase::Answered;
            }
            _ => {}
        }
        Ok(self)
    }

    fn check(&self, sender: Host, receiver: Host, segment: Segment) -> Result<(), Invalid> {
        let end = segment.to();
        let is_behind_fin = sender.has_ended && end > sender.end;
        // A probe of a closed window has an octet more.
        if is_behind_fin || end > sender.most + 1 || end < sender.end - receiver.window.max(1) {
            return Err(Invalid::Sequence);
        }
        let valid = receiver.end - OLDEST..=receiver.end;
        match segment.acknowledges().is_none_or(|acknowledged| valid.contains(&acknowledged)) {
            true => Ok(()),
            false => Err(Invalid::Acknowledgment),
        }
    }

    fn take(&mut self, sender: usize, receiver: usize, segment: Segment) {
        self.hosts[sender].end = self.hosts[sender].end.max(segment.to());
        self.hosts[sender].window = WINDOW;
        let Some(acknowledged) = segment.acknowledges() else { return };
        let all = self.hosts[sender].acknowledged.max(Some(acknowledged));
        self.hosts[sender].acknowledged = all;
        let receiver = &mut self.hosts[receiver];
        receiver.most = receiver.most.max(acknowledged + WINDOW);
        receiver.is_end_acknowledged |= receiver.has_ended && all == Some(receiver.end);
    }
}
