//! Queues whose packets can't go on yet. They are set aside, and take no turns until they are looked at again. Looks go
//! from principal to principal, so that many queues of one delay none of another.

use millrace_units::{Cycles, PrincipalId};

use super::CpuQueues;
use crate::cpu::chain::Chain;

impl<T> CpuQueues<T> {
    /// Sets the queue whose turn it is aside: its packets take no turns until [`look_aside`](Self::look_aside)
    /// finds that they can go on.
    pub fn set_aside(&mut self, PrincipalId(number): PrincipalId) {
        let Some(queue) = self.pop_turn(number) else { return };
        let backlog = &mut self.backlogs[number];
        backlog.aside.push(queue, &mut self.queues);
        if !backlog.awaits_look {
            self.await_look(number);
        }
        // The next queue may be empty, and stay only for its debt.
        self.charge(PrincipalId(number), Cycles(0));
    }

    /// Looks at up to `most` queues that are set aside, as many of each principal. Queues whose first packet
    /// `can_go_on` accepts take turns again; `woken` gets their principals. Principals come first whose queues went
    /// on longer ago, and their queues that were not looked at for longest.
    pub fn look_aside(
        &mut self,
        most: u32,
        mut can_go_on: impl FnMut(&T) -> bool,
        mut woken: impl FnMut(PrincipalId),
    ) {
        let queues = (most / self.principals_aside.max(1)).max(1);
        self.each_aside(most, |all, number| {
            let backlog = &mut all.backlogs[number];
            let (last, mut goes_on) = (backlog.aside.last, false);
            for _ in 0..queues {
                let Some(queue) = backlog.aside.pop(&all.queues) else { break };
                let first = all.arena.first(&all.queues[queue].stages.current.list);
                if first.is_none_or(&mut can_go_on) {
                    backlog.turns.push(queue, &mut all.queues);
                    woken(PrincipalId(number));
                    goes_on = true;
                } else {
                    backlog.aside.push(queue, &mut all.queues);
                }
                if queue == last {
                    break;
                }
            }
            goes_on
        });
    }

    /// Looks at up to `most` queues of a principal that are set aside, those first that were not looked at for longest.
    /// The first one whose first packet `can_go_on` accepts takes turns again. Returns whether there is one.
    pub fn look_at(
        &mut self,
        PrincipalId(number): PrincipalId,
        most: u32,
        mut can_go_on: impl FnMut(&T) -> bool,
    ) -> bool {
        let Some(backlog) = self.backlogs.find_mut(number) else { return false };
        let last = backlog.aside.last;
        for _ in 0..most {
            let Some(queue) = backlog.aside.pop(&self.queues) else { return false };
            let first = self.arena.first(&self.queues[queue].stages.current.list);
            if first.is_some_and(&mut can_go_on) {
                backlog.turns.push(queue, &mut self.queues);
                return true;
            }
            backlog.aside.push(queue, &mut self.queues);
            if queue == last {
                return false;
            }
        }
        false
    }

    /// Calls `look` with up to `most` principals with queues that are set aside, and puts those that keep some
    /// behind the others: at the end those for which `look` returns that a queue goes on.
    pub(super) fn each_aside(&mut self, most: u32, mut look: impl FnMut(&mut Self, u32) -> bool) {
        let (last, mut went_on) = (self.aside.last, Chain::EMPTY);
        for _ in 0..most {
            let Some(number) = self.aside.pop(&self.backlogs) else { break };
            self.principals_aside -= 1;
            self.backlogs[number].awaits_look = false;
            let goes_on = look(self, number);
            match self.backlogs[number].aside.is_empty() {
                false if goes_on => went_on.push(number, &mut self.backlogs),
                false => self.await_look(number),
                true => {}
            }
            if number == last {
                break;
            }
        }
        while let Some(number) = went_on.pop(&self.backlogs) {
            self.await_look(number);
        }
    }

    /// Puts a principal behind those whose queues will be looked at.
    fn await_look(&mut self, number: u32) {
        self.aside.push(number, &mut self.backlogs);
        self.backlogs[number].awaits_look = true;
        self.principals_aside += 1;
    }

    /// Lets all queues of a principal that are set aside take turns again.
    pub(super) fn join_turns(&mut self, number: u32) {
        let backlog = &mut self.backlogs[number];
        while let Some(queue) = backlog.aside.pop(&self.queues) {
            backlog.turns.push(queue, &mut self.queues);
        }
    }

    /// Whether queues are set aside.
    #[inline]
    pub fn are_set_aside(&self) -> bool {
        !self.aside.is_empty()
    }
}
