//! Preparation of packets and instances for calls of a plugin.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::{Duration, Instant as Clock};

use millrace_packet::{FlowKey, Packet, Pool};
use millrace_pipeline::{cycles, flow_hash, parse};
use millrace_plugin::{CallLimits, Limits, without_router};
use millrace_plugin_abi::{
    Fault, FlowStates, Instance, Packets, Plugin, PluginError, Progress, SharedMap, Verdict,
};
use millrace_units::{Instant, PortId};
use millrace_wire::ethernet::{self, Frame};
use millrace_wire::vlan;
use serde_json::{Map, Value};

/// Seed of the flow hash. Its value doesn't matter, since there is only one worker to select.
const SEED: u64 = 0;

/// Packet as it arrives at a gate, read by the router's parse stage.
#[derive(Debug)]
pub(crate) struct Ready {
    pub packet: Packet,
    pub key: FlowKey,
}

impl Ready {
    /// Reads a frame as the router's first port receives it. The error is the reason why the packet would
    /// reach no gate.
    pub fn of(pool: &Pool, bytes: &[u8]) -> Result<Self, String> {
        let mut packet =
            pool.packet_from(bytes).ok_or_else(|| format!("no packet memory for {} bytes", bytes.len()))?;
        let frame = Frame::new_checked(packet.data()).map_err(|error| error.to_string())?;
        let stack =
            vlan::Stack::parse(frame.ether_type(), frame.payload()).map_err(|error| error.to_string())?;
        let network = ethernet::HEADER_LEN + stack.len;
        packet.port = PortId(0);
        packet.set_network(network);
        let parsed = parse(&mut packet, stack.ether_type).map_err(|reason| reason.name().to_owned())?;
        packet.hash = flow_hash(&parsed.key, SEED);
        Ok(Self { packet, key: parsed.key })
    }
}

/// Creates an instance with the maps that its plugin declares, as for one worker.
pub(crate) fn instance_of(
    plugin: &dyn Plugin,
    settings: &Map<String, Value>,
) -> Result<Box<dyn Instance>, PluginError> {
    let mut instance = plugin.create(&without_router(plugin, settings)?)?;
    let maps = plugin.maps().iter().map(|shape| SharedMap::new(shape.clone(), 1).handle(0, true));
    instance.attach_maps(maps.collect());
    Ok(instance)
}

/// Flow state of an instance: one block per flow. The first 8 bytes of a block tell whether the instance has
/// seen the flow.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    numbers: HashMap<FlowKey, u32>,
    blocks: Vec<Vec<u8>>,
    bytes: usize,
}

/// Offset of the instance's own bytes in a block.
const STATE_OFFSET: usize = 8;

impl Flows {
    /// Creates the flow state of an instance that has seen no packet.
    pub fn new(instance: &dyn Instance) -> Self {
        Self { bytes: instance.flow_state(), ..Self::default() }
    }

    /// Returns the number of a flow's block; creates a missing block.
    fn number(&mut self, key: FlowKey) -> u32 {
        if self.bytes == 0 {
            return 0;
        }
        *self.numbers.entry(key).or_insert_with(|| {
            self.blocks.push(vec![0; STATE_OFFSET + self.bytes]);
            self.blocks.len() as u32
        })
    }
}

impl FlowStates for Flows {
    fn block(&mut self, number: u32) -> Option<&mut [u8]> {
        self.blocks.get_mut((number as usize).checked_sub(1)?).map(Vec::as_mut_slice)
    }
}

/// Maximum time of a call that a process runs. It is longer than the router's, since other programs may have the
/// processors.
const MOST_AWAITED: Duration = Duration::from_secs(1);

/// End of a call.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Number of times that the call was suspended at the end of a slice.
    pub suspensions: u32,
    /// Cycles in which this side sent the call to a process and took over its results; `None` if no process ran the
    /// call, and on a machine without a time-stamp counter.
    pub exchange: Option<u64>,
    /// Fault if the call failed.
    pub fault: Option<Fault>,
}

/// Returns the cycles since `start`.
fn since(start: Option<u64>) -> Option<u64> {
    Some(cycles()?.saturating_sub(start?))
}

/// Waits a moment for a process.
fn wait() {
    static HAS_OTHERS: LazyLock<bool> =
        LazyLock::new(|| std::thread::available_parallelism().is_ok_and(|count| count.get() > 1));
    // The process can only run on this processor if there is no other.
    if *HAS_OTHERS { std::hint::spin_loop() } else { std::thread::yield_now() }
}

/// Packets of one call, in the layout that a worker passes to an instance.
#[derive(Debug, Default)]
pub(crate) struct Call {
    pub packets: Vec<Packet>,
    keys: Vec<FlowKey>,
    members: Vec<u16>,
    numbers: Vec<u32>,
    pub verdicts: Vec<Verdict>,
}

impl Call {
    pub fn new(ready: impl IntoIterator<Item = Ready>) -> Self {
        let mut call = Self::default();
        for Ready { packet, key } in ready {
            call.members.push(call.packets.len() as u16);
            call.packets.push(packet);
            call.keys.push(key);
            call.verdicts.push(Verdict::Pass);
        }
        call
    }

    /// Passes the packets to an instance, and waits for its verdicts.
    pub fn run(&mut self, instance: &mut dyn Instance, flows: &mut Flows, now: Instant) -> Ended {
        self.verdicts.fill(Verdict::Pass);
        self.numbers = self.keys.iter().map(|key| flows.number(*key)).collect();
        let start = cycles();
        match instance.process(&mut self.lend(flows), now) {
            Progress::Done => Ended { suspensions: 0, exchange: None, fault: instance.take_fault() },
            Progress::Suspended => self.go_on(Progress::Suspended, instance, flows, now),
            Progress::Awaited => {
                let sent = since(start);
                let ended = self.go_on(Progress::Awaited, instance, flows, now);
                Ended { exchange: sent.zip(ended.exchange).map(|(sent, taken)| sent + taken), ..ended }
            }
        }
    }

    /// Resumes a call that is suspended, or that a process runs, until the call ends. `first` is how the call began.
    pub fn go_on(
        &mut self,
        first: Progress,
        instance: &mut dyn Instance,
        flows: &mut Flows,
        now: Instant,
    ) -> Ended {
        // Limit the number of slices, as for a binding without its own time limit. A clock would be
        // unsuitable, since this process may wait for the processor.
        let most = CallLimits::default().slices(self.packets.len(), Limits::default().slice);
        let (mut suspensions, begun) = (u32::from(first == Progress::Suspended), Clock::now());
        loop {
            let start = cycles();
            let is_over = match instance.resume(&mut self.lend(flows), now) {
                Progress::Done => {
                    let exchange = since(start).filter(|_| instance.is_awaited());
                    return Ended { suspensions, exchange, fault: instance.take_fault() };
                }
                Progress::Suspended => {
                    suspensions += 1;
                    suspensions > most
                }
                Progress::Awaited => {
                    wait();
                    begun.elapsed() > MOST_AWAITED.saturating_mul(instance.patience())
                }
            };
            if is_over {
                instance.abort();
                self.verdicts.fill(Verdict::Fault);
                return Ended { suspensions, exchange: None, fault: instance.take_fault() };
            }
        }
    }

    fn lend<'a>(&'a mut self, flows: &'a mut Flows) -> Packets<'a> {
        let bytes = flows.bytes;
        let packets = Packets::new(&mut self.packets, &self.keys, &self.members, &mut self.verdicts);
        if bytes == 0 { packets } else { packets.with_states(flows, &self.numbers, STATE_OFFSET, bytes) }
    }
}

#[cfg(test)]
pub(crate) mod test_modules {
    //! Modules for tests: plugins in the text format.

    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Returns a plugin with `keys` in its manifest and `body` in its module. Exports that `body` lacks are
    /// added.
    pub fn module(keys: &str, body: &str) -> Vec<u8> {
        let writes = if keys.contains("capabilities") { "" } else { r#", "capabilities": ["packet-write"]"# };
        let manifest = format!(
            r#"{{"abi": 1, "name": "test", "version": "1.0.0", "summary": "For tests.", "positions": ["late"]{keys}{writes}}}"#
        );
        let manifest = manifest.replace('"', "\\\"");
        let unless = |name: &str, text: &'static str| if body.contains(name) { "" } else { text };
        let init = unless(
            "millrace_init",
            r#"(func (export "millrace_init") (param i32 i32) (result i32) i32.const 0)"#,
        );
        let packets = unless("millrace_packets", r#"(func (export "millrace_packets") (param i32))"#);
        // In a module, imports must precede all other fields.
        let (imports, body): (Vec<_>, Vec<_>) =
            body.lines().partition(|line| line.trim_start().starts_with("(import"));
        let (imports, body) = (imports.join("\n"), body.join("\n"));
        let text = format!(
            r#"(module (@custom "millrace.manifest" "{manifest}")
            {imports}
            (memory (export "memory") 4)
            (func (export "millrace_abi") (result i32) i32.const 1)
            (global $reserved (mut i32) (i32.const 1024))
            (func (export "millrace_reserve") (param $bytes i32) (result i32)
              global.get $reserved
              (global.set $reserved
                (i32.and (i32.add (i32.add (global.get $reserved) (local.get $bytes)) (i32.const 7)) (i32.const -8))))
            (func (export "millrace_release") (param i32 i32))
            {init} {packets} {body})"#
        );
        wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    /// Returns a plugin that runs the code `what` for each packet, with the packet's description at `$at`.
    pub fn for_each(what: &str) -> Vec<u8> {
        let body = format!(
            r#"(func (export "millrace_packets") (param $call i32) (local $at i32) (local $left i32)
                 (local.set $at (i32.wrap_i64 (i64.load offset=16 (local.get $call))))
                 (local.set $left (i32.load offset=4 (local.get $call)))
                 (loop $next
                   {what}
                   (local.set $at (i32.add (local.get $at) (i32.const 64)))
                   (br_if $next (local.tee $left (i32.sub (local.get $left) (i32.const 1))))))"#
        );
        module("", &body)
    }

    /// Code that writes the second byte of a packet.
    pub const WRITE: &str =
        "(i32.store8 offset=1 (i32.wrap_i64 (i64.load offset=8 (local.get $at))) (i32.const 0x99))";

    /// File that is removed at the end of the test.
    pub struct Written(PathBuf);

    impl Written {
        pub fn new(bytes: &[u8]) -> Self {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path =
                std::env::temp_dir().join(format!("millrace-workbench-{}-{number}", std::process::id()));
            std::fs::write(&path, bytes).unwrap();
            Self(path)
        }

        pub fn path(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for Written {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }
}
