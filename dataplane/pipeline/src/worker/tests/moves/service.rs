//! Service of the test: an instance with an eBPF variant.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use millrace_plugin_abi::{Fault, Instance, Message, Packets, Progress, Reply, VariantMemory, Verdict};
use millrace_units::Instant;

/// Workers at which packets of the service ran.
pub(super) type Ran = Arc<Mutex<BTreeSet<usize>>>;

/// Instance of the service at one worker.
pub(super) struct Service {
    pub worker: usize,
    /// Further iterations of a call.
    pub takes: u8,
    /// The same, at least.
    pub slow: Arc<AtomicU8>,
    pub left: u8,
    pub failed: bool,
    pub ran: Ran,
    pub fails: Arc<AtomicBool>,
}

impl Service {
    fn go_on(&mut self, packets: &mut Packets<'_>) -> Progress {
        if self.left > 0 {
            self.left -= 1;
            return Progress::Suspended;
        }
        let fails = self.fails.swap(false, Ordering::Relaxed);
        self.failed |= fails;
        packets.for_each(|_, _| if fails { Verdict::Fault } else { Verdict::Pass });
        Progress::Done
    }
}

impl Instance for Service {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        self.ran.lock().unwrap().insert(self.worker);
        self.left = self.takes.max(self.slow.load(Ordering::Relaxed));
        self.go_on(packets)
    }

    fn resume(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        self.go_on(packets)
    }

    fn take_fault(&mut self) -> Option<Fault> {
        std::mem::take(&mut self.failed).then(|| Fault { kind: "test", text: "by chance".into() })
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(Default::default())
    }
}

/// Memory of the service's eBPF variant, which counts nothing.
#[derive(Debug)]
pub(super) struct NoMemory;

impl VariantMemory for NoMemory {
    fn id(&self) -> u64 {
        1
    }

    fn configure(&self, _settings: &[u64]) {}

    fn counted(&self, _word: usize) -> u64 {
        0
    }
}
