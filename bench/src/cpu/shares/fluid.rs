//! Generalised processor sharing (Parekh and Gallager, 1993): the fluid scheduler that serves all backlogged
//! principals at once, as the reference for delivered cycles.

use millrace_schedule::cpu::CpuShare;

use crate::memory::setup::CAPACITY;

/// Returns the cycles that a fluid scheduler gives to each of some principals out of `total` cycles, if all
/// of them are backlogged all the time. Absolute shares and the remaining capacity, which the principals with
/// weights divide, share the total in proportion.
pub(super) fn shares(principals: &[CpuShare], total: f64) -> Vec<f64> {
    let reserved: u32 = principals.iter().map(|share| parts(*share)).sum();
    let weights: u32 = principals.iter().map(|share| weight(*share)).sum();
    let weighted = if weights == 0 { 0 } else { CAPACITY - reserved };
    let all = f64::from(reserved + weighted);
    let share = |share: &CpuShare| match share {
        CpuShare::Absolute(parts) => f64::from(*parts) / all,
        CpuShare::Weight(weight) => f64::from(weighted) / all * f64::from(*weight) / f64::from(weights),
    };
    principals.iter().map(|principal| total * share(principal)).collect()
}

/// Returns the absolute share in parts per million; 0 for a weight.
pub(super) fn parts(share: CpuShare) -> u32 {
    match share {
        CpuShare::Absolute(parts) => parts,
        CpuShare::Weight(_) => 0,
    }
}

fn weight(share: CpuShare) -> u32 {
    match share {
        CpuShare::Weight(weight) => weight,
        CpuShare::Absolute(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_divide_what_absolute_shares_leave_of_the_capacity() {
        let principals = [CpuShare::Absolute(CAPACITY / 2), CpuShare::Weight(3), CpuShare::Weight(1)];
        assert_eq!(shares(&principals, 800.0), [400.0, 300.0, 100.0]);
        assert_eq!(shares(&principals[1..], 800.0), [600.0, 200.0]);
        assert_eq!(shares(&principals[..1], 800.0), [800.0]);
    }
}
