//! Fates of packets that leave their path.

use millrace_forward::IcmpError;
use millrace_packet::DropReason;
use millrace_plugin::{End, Refusal, Taken};

use crate::work::Fate;

/// Returns the fate of a packet that a binding refuses.
#[inline]
pub(crate) fn refused_by(refusal: Refusal) -> Fate {
    match refusal {
        Refusal::Drop => Fate::Drop(DropReason::Filter),
        Refusal::Reject => Fate::Refuse(IcmpError::AdminProhibited, DropReason::Filter),
    }
}

/// Returns the fate of a packet that an instance has taken out of its group.
#[inline]
pub(crate) fn fate(why: Taken) -> Fate {
    match why {
        Taken::End(end) => fate_at_end(end),
        Taken::Keep(ticket) => Fate::Kept(ticket),
    }
}

/// Returns the fate of a packet whose journey an instance has ended.
#[inline]
pub(crate) fn fate_at_end(end: End) -> Fate {
    match end {
        End::Drop(reason) => Fate::Drop(reason),
        End::Reject => Fate::Refuse(IcmpError::AdminProhibited, DropReason::Plugin),
        End::Consume => Fate::Consumed,
        End::Classify => Fate::Again,
    }
}
