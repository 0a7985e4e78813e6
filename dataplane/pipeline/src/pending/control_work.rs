//! Work of control: packets for the router itself, such as ARP, neighbour discovery, echo requests and packets to
//! the kernel. They wait until the packets of the iteration have been sent. While others need the processor,
//! control has a small part of the share of core.

use std::collections::VecDeque;

use millrace_packet::Packet;
use millrace_units::{Cycles, Instant};

use super::core_time::CORE_BURST;
use super::principal_counts::{PrincipalCounts, PrincipalDrops};

/// Maximum number of packets that wait for the own stack.
const CAPACITY: usize = 256;
/// Maximum number of packets between two readings of the counter.
pub(crate) const GROUP: usize = 32;
/// Part of the share of core that control has while others need the processor: one in so many.
pub const CONTROL_PART: u64 = 10;
/// Time that control may owe, in quanta.
const MOST_OWED: u64 = 20;
/// Parts per million in a whole processor.
const WHOLE: u64 = 1_000_000;

/// Packets for the router itself, and their processor time.
#[derive(Debug)]
pub(crate) struct ControlWork {
    /// Neighbour messages, which come first: without them, ports lose their neighbours.
    neighbours: VecDeque<Packet>,
    waiting: VecDeque<Packet>,
    bytes: u64,
    /// Packets for the router itself since the last charge of a reception.
    arrived: u64,
    /// Time used in this iteration, without reception, and with it.
    used: (u64, u64),
    /// Time of the path to the kernel in this iteration.
    punted: u64,
    /// Time used beyond the share while others needed the processor.
    debt: u64,
    /// Whether a batch of this iteration was full.
    is_full: bool,
    /// Time since which packets wait that could not run.
    waits_since: Option<Instant>,
    counts: PrincipalCounts,
}

impl ControlWork {
    pub fn new() -> Self {
        Self {
            neighbours: VecDeque::with_capacity(CAPACITY),
            waiting: VecDeque::with_capacity(CAPACITY),
            bytes: 0,
            arrived: 0,
            used: (0, 0),
            punted: 0,
            debt: 0,
            is_full: false,
            waits_since: None,
            counts: PrincipalCounts::default(),
        }
    }

    /// Queues a packet for the own stack. `is_neighbour`: whether it is a neighbour message.
    ///
    /// # Errors
    /// Returns the packet if too many of its kind wait. It is counted as dropped.
    pub fn push(&mut self, packet: Packet, is_neighbour: bool) -> Result<(), Packet> {
        self.arrived += 1;
        let waiting = if is_neighbour { &mut self.neighbours } else { &mut self.waiting };
        if waiting.len() == CAPACITY {
            self.counts.drops.queue += 1;
            return Err(packet);
        }
        self.bytes += packet.len() as u64;
        waiting.push_back(packet);
        Ok(())
    }

    /// Takes the neighbour message that has waited longest; if none waits, and `all` holds, the packet that has.
    pub fn pop(&mut self, all: bool) -> Option<Packet> {
        let other = |waiting: &mut VecDeque<Packet>| if all { waiting.pop_front() } else { None };
        let packet = self.neighbours.pop_front().or_else(|| other(&mut self.waiting))?;
        self.bytes -= packet.len() as u64;
        self.counts.packets += 1;
        Some(packet)
    }

    /// Counts a packet that goes to the kernel.
    pub fn count_punt(&mut self) {
        self.arrived += 1;
        self.counts.packets += 1;
    }

    /// Returns the number of waiting packets.
    pub fn len(&self) -> usize {
        self.neighbours.len() + self.waiting.len()
    }

    /// Whether neighbour messages wait.
    pub fn has_neighbours(&self) -> bool {
        !self.neighbours.is_empty()
    }

    /// Notes that a device or worker had a full batch in this iteration, so that further packets may wait there.
    pub fn note_full(&mut self) {
        self.is_full = true;
    }

    /// Whether control may go on. `wanted`: whether principals have work; `quantum`: slice of a principal.
    pub fn may_run(&self, wanted: bool, Cycles(quantum): Cycles) -> bool {
        !(wanted || self.is_full) || self.debt + self.used.0 <= quantum.saturating_mul(CORE_BURST)
    }

    /// Charges time of the own stack.
    pub fn charge(&mut self, Cycles(used): Cycles) {
        self.used.0 += used;
        self.used.1 += used;
    }

    /// Charges time of the path to the kernel. It counts for no debt, so that packets to the kernel don't keep the own
    /// stack from its work.
    pub fn charge_punts(&mut self, Cycles(used): Cycles) {
        self.punted += used;
        self.used.1 += used;
    }

    /// Returns the time of this iteration for packets that were received before.
    pub fn work(&self) -> Cycles {
        Cycles(self.used.0 + self.punted)
    }

    /// Ends an iteration whose time isn't known, because the processor has no counter: control has no limit there.
    pub fn end_unmeasured(&mut self) {
        (self.used, self.punted, self.debt, self.is_full, self.arrived) = ((0, 0), 0, 0, false, 0);
    }

    /// Charges the time of the reception of `packets` packets: a part in proportion to those for the router
    /// itself. Returns the time that is left to core.
    #[inline]
    pub fn charge_reception(&mut self, Cycles(time): Cycles, packets: usize) -> Cycles {
        if self.arrived == 0 {
            return Cycles(time);
        }
        let packets = (packets as u64).max(1);
        let part = u128::from(time) * u128::from(self.arrived.min(packets)) / u128::from(packets);
        (self.arrived, self.used.1) = (0, self.used.1 + part as u64);
        Cycles(time - part as u64)
    }

    /// Whether nothing waits, is owed or is left to charge.
    pub fn is_at_rest(&self) -> bool {
        let is_charged = (self.used, self.punted, self.arrived) == ((0, 0), 0, 0);
        is_charged && self.debt == 0 && self.len() == 0 && self.waits_since.is_none() && !self.is_full
    }

    /// Notes whether packets still wait after their turn in an iteration.
    pub fn end_turn(&mut self, now: Instant) {
        let waits = (self.len() > 0).then_some(now);
        match (self.waits_since, waits) {
            (Some(since), _) => {
                self.counts.backlogged += now.since(since);
                self.counts.backlogged_sum = self.counts.backlogged;
            }
            (None, Some(_)) => self.counts.periods += 1,
            (None, None) => {}
        }
        self.waits_since = waits;
    }

    /// Ends an iteration that took `elapsed` cycles. Returns the time of control, which is not that of core.
    /// `wanted`: whether principals have work; `share` of core in parts per million.
    #[inline]
    pub fn end(&mut self, elapsed: u64, wanted: bool, (share, quantum): (u64, Cycles)) -> Cycles {
        if self.used.1 == 0 && self.debt == 0 {
            (self.is_full, self.arrived) = (false, 0);
            return Cycles(0);
        }
        self.divide(elapsed, wanted, (share, quantum))
    }

    #[inline(never)]
    fn divide(&mut self, elapsed: u64, wanted: bool, (share, Cycles(quantum)): (u64, Cycles)) -> Cycles {
        let (work, used) = std::mem::take(&mut self.used);
        self.punted = 0;
        let used = used.min(elapsed);
        self.counts.used += Cycles(used);
        let is_full = std::mem::take(&mut self.is_full);
        self.debt = match wanted || is_full {
            true => {
                let earned = u128::from(elapsed) * u128::from(share) / u128::from(WHOLE * CONTROL_PART);
                let most = quantum.saturating_mul(MOST_OWED);
                (self.debt + work).saturating_sub(earned as u64).min(most)
            }
            false => 0,
        };
        self.arrived = 0;
        Cycles(used)
    }

    /// Returns the counters.
    pub fn counts(&self) -> PrincipalCounts {
        let drops = PrincipalDrops { queue: self.counts.drops.queue, ..PrincipalDrops::default() };
        let (waiting, waiting_bytes) = (self.len() as u32, self.bytes);
        PrincipalCounts { waiting, waiting_bytes, drops, ..self.counts }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const QUANTUM: u64 = 50_000;

    /// Runs iterations of control that always has packets, each of 1,000 cycles, beside 100,000 cycles of other
    /// work. Returns the part of the time that control got, in percent.
    fn part(wanted: bool, is_full: bool) -> f64 {
        let (mut control, mut sum) = (ControlWork::new(), 0);
        for _ in 0..10_000 {
            let mut elapsed = 100_000;
            if is_full {
                control.note_full();
            }
            for _ in 0..300 {
                if control.may_run(wanted, Cycles(QUANTUM)) {
                    control.charge(Cycles(1000));
                    elapsed += 1000;
                }
            }
            control.end(elapsed, wanted, (500_000, Cycles(QUANTUM)));
            sum += elapsed;
        }
        100.0 * control.counts().used.0 as f64 / sum as f64
    }

    #[test]
    fn control_gets_a_tenth_of_the_share_of_core_while_others_need_the_processor() {
        for (wanted, is_full) in [(true, false), (false, true), (true, true)] {
            let percent = part(wanted, is_full);
            assert!((percent - 5.0).abs() < 0.1, "{wanted} {is_full}: {percent}");
        }
        assert!((part(false, false) - 75.0).abs() < 0.1);
    }

    #[test]
    fn reception_is_charged_in_proportion_to_the_packets_and_delays_nothing() {
        let mut control = ControlWork::new();
        assert_eq!(control.charge_reception(Cycles(1000), 10), Cycles(1000));
        (0..4).for_each(|_| control.count_punt());
        assert_eq!(control.charge_reception(Cycles(1000), 10), Cycles(600));
        assert_eq!(control.charge_reception(Cycles(1000), 10), Cycles(1000));
        // More packets than were received: others came from other workers.
        (0..4).for_each(|_| control.count_punt());
        assert_eq!(control.charge_reception(Cycles(1_000_000), 2), Cycles(0));
        assert!(control.may_run(true, Cycles(1)), "reception counts for no debt");
        assert_eq!(control.end(2_000_000, true, (500_000, Cycles(QUANTUM))), Cycles(1_000_400));
        assert_eq!((control.counts().used, control.counts().packets), (Cycles(1_000_400), 8));
    }

    #[test]
    fn packets_to_the_kernel_keep_the_own_stack_from_nothing_and_neighbours_come_first() {
        let mut control = ControlWork::new();
        control.charge_punts(Cycles(100 * QUANTUM));
        assert!(control.may_run(true, Cycles(QUANTUM)));
        assert_eq!(control.work(), Cycles(100 * QUANTUM));
        assert_eq!(control.end(200 * QUANTUM, true, (500_000, Cycles(QUANTUM))), Cycles(100 * QUANTUM));
        assert!(control.may_run(true, Cycles(QUANTUM)));
        let pool = millrace_packet::Pool::new(600).unwrap();
        (0..CAPACITY).for_each(|_| control.push(pool.packet_from(&[0]).unwrap(), false).unwrap());
        assert!(control.push(pool.packet_from(&[0]).unwrap(), false).is_err());
        control.push(pool.packet_from(&[1]).unwrap(), true).unwrap();
        assert_eq!(control.pop(false).unwrap().data(), [1]);
        assert_eq!((control.len(), control.has_neighbours()), (CAPACITY, false));
    }

    #[test]
    fn backlog_is_the_time_for_which_packets_could_not_run() {
        let pool = millrace_packet::Pool::new(4).unwrap();
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let mut control = ControlWork::new();
        control.end_turn(at(1));
        control.push(pool.packet_from(&[0; 60]).unwrap(), false).unwrap();
        (2..=5).for_each(|second| control.end_turn(at(second)));
        assert_eq!((control.counts().waiting, control.counts().waiting_bytes), (1, 60));
        assert!(control.pop(false).is_none() && control.pop(true).is_some() && control.pop(true).is_none());
        control.end_turn(at(6));
        control.end_turn(at(9));
        let counts = control.counts();
        assert_eq!((counts.backlogged, counts.periods), (Duration::from_secs(4), 1));
        assert_eq!((counts.waiting, counts.waiting_bytes), (0, 0));
    }
}
