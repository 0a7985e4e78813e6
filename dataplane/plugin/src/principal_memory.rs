//! Memory that the principals of a worker use: flow state, waiting packets, and memory of sandboxed instances.
//!
//! A principal with a limit gets no more memory than that for all together. A block of flow state may have
//! parts of several principals. A flow gets its block if any of them has room; each pays for its part. So
//! a principal without room takes no state from another one, and its part counts against its packets.
//!
//! The memory of an instance counts while one principal pays for all its bindings. It is refused to grow
//! beyond the limit; the memory with which it begins always counts.

use std::sync::Arc;

use millrace_plugin_abi::{MemoryAccount, MemoryUse};
use millrace_units::PrincipalId;

/// Memory of all principals at a worker.
#[derive(Debug, Default)]
pub struct PrincipalMemory {
    /// Accounts by the number of the principal.
    accounts: Vec<Arc<MemoryAccount>>,
}

impl PrincipalMemory {
    /// Returns the account of a principal, which it has from now on.
    pub fn open(&mut self, PrincipalId(number): PrincipalId) -> Option<&Arc<MemoryAccount>> {
        let number = number as usize;
        if self.accounts.len() <= number {
            self.accounts.resize_with(number + 1, Arc::default);
        }
        self.accounts.get(number)
    }

    /// Sets the limit of a principal, which has an account from now on. Memory in use stays.
    pub fn set_limit(&mut self, id: PrincipalId, limit: Option<u64>) {
        if let Some(account) = self.open(id) {
            account.set_limit(limit);
        }
    }

    /// Forgets the limit and the counters of a removed principal. Flow state of the principal counts until its
    /// flows end.
    pub fn forget(&self, id: PrincipalId) {
        if let Some(account) = self.find(id) {
            account.forget();
        }
    }

    /// Returns the memory that a principal uses; all zero for a principal without an account.
    pub fn account(&self, id: PrincipalId) -> MemoryUse {
        self.find(id).map(MemoryAccount::get).unwrap_or_default()
    }

    /// Whether a packet of `bytes` bytes may wait for the processor, or be held. Counts a refusal.
    #[inline]
    pub fn admits(&self, id: PrincipalId, bytes: u64) -> bool {
        self.find(id).is_none_or(|account| account.admits(bytes))
    }

    /// Sets the bytes of the packets that wait in queues for the processor.
    #[inline]
    pub fn set_queued(&self, id: PrincipalId, bytes: u64) {
        if let Some(account) = self.find(id) {
            account.set_queued(bytes);
        }
    }

    /// Counts packets that begin to wait in a suspended call of a principal, or for its end, or that an instance holds.
    pub(crate) fn suspend(&self, payer: Option<PrincipalId>, (packets, bytes): (u64, u64)) {
        if let Some(account) = payer.and_then(|payer| self.find(payer)) {
            account.suspend(packets, bytes);
        }
    }

    /// Counts packets whose call has ended, or that are held no longer.
    pub(crate) fn resume(&self, payer: Option<PrincipalId>, (packets, bytes): (u64, u64)) {
        if let Some(account) = payer.and_then(|payer| self.find(payer)) {
            account.resume(packets, bytes);
        }
    }

    /// Charges the parts of a block of flow state, each to its payer if it has one. Returns whether the flow
    /// may have the block; otherwise charges nothing.
    pub(crate) fn charge(&self, parts: impl Iterator<Item = (Option<PrincipalId>, u64)> + Clone) -> bool {
        let find = |payer: Option<PrincipalId>| payer.and_then(|payer| self.find(payer));
        let is_admitted =
            parts.clone().any(|(payer, bytes)| find(payer).is_none_or(|account| account.has_room(bytes)));
        for (payer, bytes) in parts {
            match find(payer) {
                Some(account) if is_admitted => account.add_state(bytes),
                Some(account) => account.refuse(),
                None => {}
            }
        }
        is_admitted
    }

    /// Releases the parts of a block of flow state.
    pub(crate) fn release(&self, parts: impl Iterator<Item = (Option<PrincipalId>, u64)>) {
        for (payer, bytes) in parts {
            if let Some(account) = payer.and_then(|payer| self.find(payer)) {
                account.sub_state(bytes);
            }
        }
    }

    #[inline]
    fn find(&self, PrincipalId(number): PrincipalId) -> Option<&MemoryAccount> {
        self.accounts.get(number as usize).map(|account| &**account)
    }
}

#[cfg(test)]
mod tests;
