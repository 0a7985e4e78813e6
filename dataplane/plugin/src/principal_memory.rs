//! Memory that the principals of a worker use: flow state, and packets that wait for the processor.
//!
//! A principal with a limit gets no more memory than that for both together. A block of flow state may have
//! parts of several principals. A flow gets its block if any of them has room; each pays for its part. So
//! a principal without room takes no state from another one, and its part counts against its packets.

use millrace_units::PrincipalId;

/// Memory of a principal at a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryAccount {
    /// Largest number of bytes for flow state and waiting packets together; `None` without a limit.
    pub limit: Option<u64>,
    /// Bytes of flow state.
    pub state: u64,
    /// Bytes of packets that wait for the processor.
    pub waiting: u64,
    /// Packets that might not wait because of the limit.
    pub dropped: u64,
    /// Flows that got no state because of the limit.
    pub refused: u64,
}

impl MemoryAccount {
    fn has_room(&self, bytes: u64) -> bool {
        self.limit.is_none_or(|limit| self.state.saturating_add(self.waiting).saturating_add(bytes) <= limit)
    }
}

/// Memory of all principals at a worker.
#[derive(Debug, Default)]
pub struct PrincipalMemory {
    /// Accounts by the number of the principal.
    accounts: Vec<MemoryAccount>,
}

impl PrincipalMemory {
    /// Sets the limit of a principal, which has an account from now on. Memory in use stays.
    pub fn set_limit(&mut self, PrincipalId(number): PrincipalId, limit: Option<u64>) {
        let number = number as usize;
        if self.accounts.len() <= number {
            self.accounts.resize(number + 1, MemoryAccount::default());
        }
        if let Some(account) = self.accounts.get_mut(number) {
            account.limit = limit;
        }
    }

    /// Forgets the limit and the counters of a removed principal. Flow state of the principal counts until its
    /// flows end.
    pub fn forget(&mut self, id: PrincipalId) {
        if let Some(account) = self.account_mut(id) {
            *account = MemoryAccount { state: account.state, ..MemoryAccount::default() };
        }
    }

    /// Returns the account of a principal; all zero for a principal without one.
    pub fn account(&self, PrincipalId(number): PrincipalId) -> MemoryAccount {
        self.accounts.get(number as usize).copied().unwrap_or_default()
    }

    /// Whether a packet of `bytes` bytes may wait for the processor. Counts a refusal.
    #[inline]
    pub fn admits(&mut self, id: PrincipalId, bytes: u64) -> bool {
        let Some(account) = self.account_mut(id) else { return true };
        let is_admitted = account.has_room(bytes);
        account.dropped += u64::from(!is_admitted);
        is_admitted
    }

    /// Sets the bytes of the packets that wait for the processor.
    #[inline]
    pub fn set_waiting(&mut self, id: PrincipalId, bytes: u64) {
        if let Some(account) = self.account_mut(id) {
            account.waiting = bytes;
        }
    }

    /// Charges the parts of a block of flow state, each to its payer if it has one. Returns whether the flow
    /// may have the block; otherwise charges nothing.
    pub(crate) fn charge(&mut self, parts: impl Iterator<Item = (Option<PrincipalId>, u64)> + Clone) -> bool {
        let has_room = |(payer, bytes): (Option<PrincipalId>, u64)| {
            payer.is_none_or(|payer| self.account(payer).has_room(bytes))
        };
        let is_admitted = parts.clone().any(has_room);
        for (payer, bytes) in parts {
            match payer.and_then(|payer| self.account_mut(payer)) {
                Some(account) if is_admitted => account.state += bytes,
                Some(account) => account.refused += 1,
                None => {}
            }
        }
        is_admitted
    }

    /// Releases the parts of a block of flow state.
    pub(crate) fn release(&mut self, parts: impl Iterator<Item = (Option<PrincipalId>, u64)>) {
        for (payer, bytes) in parts {
            if let Some(account) = payer.and_then(|payer| self.account_mut(payer)) {
                account.state = account.state.saturating_sub(bytes);
            }
        }
    }

    #[inline]
    fn account_mut(&mut self, PrincipalId(number): PrincipalId) -> Option<&mut MemoryAccount> {
        self.accounts.get_mut(number as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: PrincipalId = PrincipalId(0);
    const B: PrincipalId = PrincipalId(3);

    #[test]
    fn state_and_waiting_packets_share_a_limit() {
        let mut memory = PrincipalMemory::default();
        assert!(memory.admits(A, 1 << 40) && memory.charge([(Some(A), 1 << 40)].into_iter()));
        memory.set_limit(A, Some(1000));
        assert!(memory.charge([(Some(A), 600)].into_iter()));
        assert!(memory.admits(A, 400) && !memory.admits(A, 401));
        memory.set_waiting(A, 390);
        assert!(!memory.charge([(Some(A), 11)].into_iter()) && memory.charge([(Some(A), 10)].into_iter()));
        assert!(!memory.admits(A, 1));
        memory.release([(Some(A), 600)].into_iter());
        assert!(memory.admits(A, 600));
        let expected = MemoryAccount { limit: Some(1000), state: 10, waiting: 390, dropped: 2, refused: 1 };
        assert_eq!(memory.account(A), expected);
        memory.forget(A);
        assert_eq!(memory.account(A), MemoryAccount { state: 10, ..MemoryAccount::default() });
        memory.release([(Some(A), 600)].into_iter());
        assert_eq!(memory.account(A), MemoryAccount::default());
    }

    #[test]
    fn principal_without_room_takes_no_state_from_another_one() {
        let mut memory = PrincipalMemory::default();
        memory.set_limit(A, Some(10));
        memory.set_limit(B, Some(100));
        assert!(memory.charge([(Some(A), 16), (Some(B), 40)].into_iter()));
        assert!(!memory.charge([(Some(A), 16), (Some(B), 61)].into_iter()));
        assert!(memory.charge([(Some(A), 16), (None, 61)].into_iter()));
        assert_eq!((memory.account(A).state, memory.account(B).state), (32, 40));
        assert_eq!((memory.account(A).refused, memory.account(B).refused), (1, 1));
        assert!(memory.admits(B, 60) && !memory.admits(A, 0));
    }
}
