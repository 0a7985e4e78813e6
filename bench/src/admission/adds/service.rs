//! Built-in plugin that uses its declared cycles and memory.

use std::sync::Arc;

use millrace_plugin_abi::{
    Instance, MemoryAccount, Message, Packets, Plugin, PluginError, Position, Progress, Reply,
};
use millrace_units::Instant;
use serde_json::{Map, Value};

use super::{Load, SERVICES};
use crate::cpu::burn::Burn;

/// Names of the services of a workload.
pub(super) const NAMES: [&str; SERVICES] = [
    "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "s12", "s13", "s14", "s15",
    "s16", "s17", "s18", "s19",
];

/// Plugin of a service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Declared {
    burn: Burn,
    /// Bytes of memory of an instance.
    memory: usize,
}

/// Instance with its memory, and the account of the principal that pays for it.
struct Holder {
    burn: Burn,
    memory: Vec<u8>,
    account: Option<Arc<MemoryAccount>>,
}

impl Declared {
    pub fn new(name: &'static str, load: Load) -> Self {
        Self { burn: Burn { name, cycles: load.cycles as u64 }, memory: load.memory }
    }
}

impl Plugin for Declared {
    fn name(&self) -> &'static str {
        self.burn.name
    }

    fn version(&self) -> &'static str {
        "1.0.0"
    }

    fn summary(&self) -> &'static str {
        "Uses cycles for each packet, and memory."
    }

    fn positions(&self) -> &[Position] {
        &Position::ALL
    }

    fn messages(&self) -> &[(&'static str, &'static str)] {
        &[]
    }

    fn create(&self, _settings: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        Ok(Box::new(Holder { burn: self.burn, memory: vec![1; self.memory], account: None }))
    }
}

impl Instance for Holder {
    fn process(&mut self, packets: &mut Packets<'_>, now: Instant) -> Progress {
        self.burn.process(packets, now)
    }

    fn control(&mut self, message: &Message) -> Reply {
        self.burn.control(message)
    }

    fn memory(&self) -> u64 {
        self.memory.len() as u64
    }

    fn set_memory_account(&mut self, account: Option<Arc<MemoryAccount>>) {
        if let Some(former) = &self.account {
            former.sub_plugin(self.memory());
        }
        if let Some(account) = &account {
            account.add_plugin(self.memory());
        }
        self.account = account;
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.set_memory_account(None);
    }
}
