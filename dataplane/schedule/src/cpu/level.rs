//! Levels in the order of choice, and the discipline of each level.

use super::fair_share::Discipline;
use super::settings::{CpuPrincipal, CpuSchedulerKind, CpuShare};
use super::shares::ShareLevel;

/// Level of a principal in the order of choice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Server,
    Share(ShareLevel),
}

/// Cycles that a principal has used ahead of its level.
#[derive(Clone, Copy)]
pub(super) struct Debt {
    pub number: u32,
    pub level: Level,
    pub cycles: u64,
}

/// Returns the level of a principal with these settings.
pub(super) fn level(kind: CpuSchedulerKind, settings: &CpuPrincipal) -> Level {
    match settings {
        _ if kind == CpuSchedulerKind::EarliestDeadline => Level::Server,
        CpuPrincipal { deadline: Some(_), .. } => Level::Server,
        CpuPrincipal { share: CpuShare::Absolute(_), .. } => Level::Share(ShareLevel::Absolute),
        CpuPrincipal { .. } => Level::Share(ShareLevel::Weighted),
    }
}

/// Returns the discipline that divides shares under a kind. Under `edf`, no principal is divided by share.
pub(super) fn discipline(kind: CpuSchedulerKind) -> Discipline {
    match kind {
        CpuSchedulerKind::StartTimeFair | CpuSchedulerKind::EarliestDeadline => Discipline::StartTimeFair,
        CpuSchedulerKind::WorstCaseFair => Discipline::WorstCaseFair,
        CpuSchedulerKind::Stride => Discipline::Stride,
    }
}
