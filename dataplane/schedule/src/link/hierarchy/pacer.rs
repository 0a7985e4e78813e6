//! Pacing of packets at the rate of the link.

use millrace_units::Instant;

use crate::Rate;
use crate::rate::Credit;

/// Rate at which a port sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkRate {
    /// Bits per second on the wire; `None` for no limit, so that each call may send.
    pub rate: Option<Rate>,
    /// Bytes that may leave ahead of the rate, to make up for late calls; 0 to 10^9. With 0, no packet begins
    /// before the previous packet ends. With the length of the largest packet, at most two packets leave at
    /// the same time.
    pub slack: u32,
}

/// Pacer of a link: delays packets so that they leave at the rate of the link.
#[derive(Debug, Default)]
pub(super) struct Pacer {
    link: LinkRate,
    credit: Option<Credit>,
}

impl Pacer {
    /// Returns the rate of the link.
    pub fn link(&self) -> LinkRate {
        self.link
    }

    /// Changes the rate of the link, from now on.
    pub fn set(&mut self, link: LinkRate, now: Instant) {
        self.link = link;
        match (link.rate, &mut self.credit) {
            (Some(rate), Some(credit)) => credit.set_link(rate, link.slack, now),
            (Some(rate), none) => *none = Some(Credit::for_link(rate, link.slack)),
            (None, credit) => *credit = None,
        }
    }

    /// Returns the credit of the link; `None` for a link without a rate.
    #[inline]
    pub fn credit(&mut self) -> Option<&mut Credit> {
        self.credit.as_mut()
    }

    /// Whether the link has no rate, so that each packet may leave at once.
    #[inline]
    pub fn is_unlimited(&self) -> bool {
        self.credit.is_none()
    }

    /// Whether the link is free for a packet now.
    #[inline]
    pub fn is_free(&mut self, now: Instant) -> bool {
        self.credit.as_mut().is_none_or(|credit| credit.covers(0, now))
    }

    /// Returns the time at which the link is free; may be in the past.
    #[inline]
    pub fn free_at(&self) -> Instant {
        self.credit.as_ref().map_or(Instant::ZERO, |credit| credit.covers_at(0))
    }

    /// Charges the link's credit for a packet of `wire` bytes that leaves now.
    #[inline]
    pub fn spend(&mut self, wire: u32, now: Instant) {
        if let Some(credit) = &mut self.credit {
            credit.spend(wire, now);
        }
    }
}
