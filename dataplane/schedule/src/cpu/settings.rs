//! Settings of the CPU scheduler and of its principals.

use std::time::Duration;

use millrace_units::Cycles;

/// Parts per million in a whole processor.
pub(super) const WHOLE: u32 = 1_000_000;
/// Greatest weight of a principal.
pub(super) const MOST_WEIGHT: u32 = 1_000_000;
/// Greatest number of principals of a scheduler.
pub(super) const MOST_PRINCIPALS: u32 = 1 << 20;
/// Shortest and longest deadline.
const DEADLINES: std::ops::RangeInclusive<Duration> = Duration::from_micros(100)..=Duration::from_secs(10);

/// Discipline that divides the processor among principals without a deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CpuSchedulerKind {
    /// Start-time fair queueing (Goyal, Vin and Cheng, 1996). It needs no cost in advance.
    #[default]
    StartTimeFair,
    /// Worst-case fair weighted fair queueing, WF2Q+ (Bennett and Zhang, 1997): no principal runs ahead of its
    /// share by more than a quantum.
    WorstCaseFair,
    /// Stride scheduling (Waldspurger and Weihl, 1995), as in Click.
    Stride,
    /// Earliest deadline first with constant-bandwidth servers (Abeni and Buttazzo, 1998), for all principals.
    EarliestDeadline,
}

/// Size limits of the memory for waiting packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuQueueLimits {
    /// Maximum number of packets.
    pub packets: u32,
    /// Maximum number of bytes.
    pub bytes: u32,
    /// Maximum number of flow queues. A principal gets as many as are free; its further flows share a queue. As many
    /// further queues exist for flows that wait at several stages.
    pub flows: u32,
}

/// Settings of a scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuSchedulerSettings {
    /// Discipline.
    pub kind: CpuSchedulerKind,
    /// Expected cycles of a slice, at least 1. WF2Q+ predicts finish times with it, and limits allow bursts of
    /// it.
    pub quantum: Cycles,
    /// Cycles per second of the processor, at least 1.
    pub frequency: u64,
    /// Processor time that core leaves at its ceiling, in parts per million of one processor.
    pub capacity: u32,
}

/// Share of a principal in the processor time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CpuShare {
    /// Parts per million of one processor, 1 to the free capacity.
    Absolute(u32),
    /// Weight, 1 to 1,000,000, among the principals without an absolute share. They divide the capacity that
    /// absolute shares leave.
    Weight(u32),
}

/// Settings of a principal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuPrincipal {
    /// Share.
    pub share: CpuShare,
    /// Upper limit in parts per million of one processor, also on otherwise idle time; `None`: no limit.
    pub limit: Option<u32>,
    /// Time within which a backlogged principal gets its share of that time, 100 µs to 10 s; `None`: the
    /// scheduler's kind orders the principal. A deadline needs an absolute share.
    pub deadline: Option<Duration>,
}

/// Refused setting of a scheduler or a principal. The scheduler is unchanged.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CpuScheduleError {
    /// The principal's number is too great.
    #[error("principal {0}: number must be below {MOST_PRINCIPALS}")]
    Id(u32),
    /// The number is in use.
    #[error("principal {0}: number already in use")]
    Duplicate(u32),
    /// No principal has the number.
    #[error("principal {0}: no such principal")]
    Unknown(u32),
    /// The weight is out of range.
    #[error("weight must be 1 to {MOST_WEIGHT}, not {0}")]
    Weight(u32),
    /// The absolute shares would exceed the capacity.
    #[error(
        "cpu = \"{} %\" is more than the free {} %; other principals reserve {} %",
        percent(*.share), percent(*.free), percent(*.reserved)
    )]
    Share {
        /// Requested share, in parts per million.
        share: u32,
        /// Capacity without other reservations, in parts per million.
        free: u32,
        /// Absolute shares of other principals, in parts per million.
        reserved: u32,
    },
    /// The absolute share is zero.
    #[error("cpu must be above 0 %")]
    NoShare,
    /// The limit is below the share.
    #[error("cpu-limit = \"{} %\" is below cpu = \"{} %\"", percent(*.limit), percent(*.share))]
    Limit {
        /// Requested limit, in parts per million.
        limit: u32,
        /// Absolute share in parts per million; 0 for a weight.
        share: u32,
    },
    /// The limit is zero.
    #[error("cpu-limit must be above 0 %")]
    NoLimit,
    /// A weight has no deadline.
    #[error("deadline needs an absolute share, such as cpu = \"5 %\", not a weight")]
    DeadlineOfWeight,
    /// The deadline is out of range.
    #[error("deadline must be 100 us to 10 s, not {0:?}")]
    Deadline(Duration),
    /// The scheduler's capacity is below the reservations.
    #[error("a capacity of {} % is below the {} % that principals reserve", percent(*.capacity), percent(*.reserved))]
    Capacity {
        /// Requested capacity, in parts per million.
        capacity: u32,
        /// Absolute shares of all principals, in parts per million.
        reserved: u32,
    },
}

/// Formats parts per million as percent, without trailing zeros.
fn percent(parts: u32) -> String {
    let text = format!("{}.{:04}", parts / 10_000, parts % 10_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl CpuPrincipal {
    /// Returns the absolute share in parts per million; 0 for a weight.
    pub(super) fn reserved(&self) -> u32 {
        match self.share {
            CpuShare::Absolute(parts) => parts,
            CpuShare::Weight(_) => 0,
        }
    }

    /// Checks the settings, with `free` parts per million of capacity beside other reservations.
    pub(super) fn check(&self, free: u32, reserved: u32) -> Result<(), CpuScheduleError> {
        match self.share {
            CpuShare::Weight(weight) if !(1..=MOST_WEIGHT).contains(&weight) => {
                return Err(CpuScheduleError::Weight(weight));
            }
            CpuShare::Weight(_) if self.deadline.is_some() => return Err(CpuScheduleError::DeadlineOfWeight),
            CpuShare::Absolute(0) => return Err(CpuScheduleError::NoShare),
            CpuShare::Absolute(share) if share > free => {
                return Err(CpuScheduleError::Share { share, free, reserved });
            }
            CpuShare::Absolute(_) | CpuShare::Weight(_) => {}
        }
        match self.limit {
            Some(0) => return Err(CpuScheduleError::NoLimit),
            Some(limit) if limit < self.reserved() => {
                return Err(CpuScheduleError::Limit { limit, share: self.reserved() });
            }
            _ => {}
        }
        match self.deadline {
            Some(deadline) if !DEADLINES.contains(&deadline) => Err(CpuScheduleError::Deadline(deadline)),
            _ => Ok(()),
        }
    }
}
