//! Memory of a sandboxed instance, and the account of the principal that pays for it.

use std::sync::Arc;

use millrace_plugin_abi::MemoryAccount;

/// Memory of an instance, in bytes. It counts in the account of a principal if there is one.
#[derive(Debug, Default)]
pub(crate) struct InstanceMemory {
    bytes: u64,
    account: Option<Arc<MemoryAccount>>,
}

impl InstanceMemory {
    /// Returns the bytes in use.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the memory may grow by `bytes`. If so, counts them; if not, counts a refusal. The memory with which
    /// the instance begins (`is_first`) always counts.
    pub fn grow(&mut self, bytes: u64, is_first: bool) -> bool {
        if let Some(account) = &self.account {
            if !is_first && !account.has_room(bytes) {
                account.refuse();
                return false;
            }
            account.add_plugin(bytes);
        }
        self.bytes += bytes;
        true
    }

    /// Counts the end of the memory.
    pub fn release(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if let Some(account) = &self.account {
            account.sub_plugin(bytes);
        }
    }

    /// Lets the memory count in another account, or in none.
    pub fn set_account(&mut self, account: Option<Arc<MemoryAccount>>) {
        let bytes = self.bytes;
        self.release();
        self.account = account;
        self.grow(bytes, true);
    }
}

impl Drop for InstanceMemory {
    fn drop(&mut self) {
        self.release();
    }
}
