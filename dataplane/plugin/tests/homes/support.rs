//! Helpers of the runtime tests: compilers, and an instance with its own packets and flow states.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use millrace_packet::{FlowKey, Packet, Pool};
use millrace_plugin::native::NativePlugin;
use millrace_plugin::wasm::{LoadedPlugin, Sandbox, SandboxSettings};
use millrace_plugin_abi::{
    Backlogs, Fault, FlowEnd, FlowStates, Instance, Instant, Known, MapHandle, MapShape, Message, Output,
    Packets, PayerBacklog, Plugin, PluginError, Progress, QueueBacklog, SharedMap, Verdict,
};
use millrace_testkit::built::{Format, Options, built_plugin};
use millrace_units::{PortId, QueueId};
use serde_json::{Map, Value};

static SANDBOX: LazyLock<Sandbox> = LazyLock::new(|| Sandbox::new(SandboxSettings::default()).unwrap());

/// Returns the path of a source file in this directory.
pub fn source(name: &str) -> PathBuf {
    std::path::absolute("tests/homes").unwrap().join(name)
}

/// Compiles a source. Without the compiler, prints a note and returns `None`; with the environment variable
/// `CI=true`, this is a failure.
fn compile(compiler: &str, flags: &[&str], source: &Path) -> Option<Vec<u8>> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("runtime-{}-{number}", std::process::id());
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let kit = Path::new("../../sdk/c");
    let mut command = Command::new(compiler);
    command.args(["-std=c11", "-O2", "-fvisibility=hidden", "-I"]).arg(kit);
    let output = command.args(flags).arg("-o").arg(&built).arg(source).output();
    let Ok(output) = output else {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "there is no {compiler}");
        println!("skipped: there is no {compiler}");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bytes = std::fs::read(&built).unwrap();
    std::fs::remove_file(&built).unwrap();
    Some(bytes)
}

/// Compiles a C source file to a shared object.
pub fn object(source: &Path, flags: &[&str]) -> Option<Vec<u8>> {
    compile("cc", &[&["-shared", "-fPIC"], flags].concat(), source)
}

/// Compiles a C source file to an executable, with shared libraries if `has_libraries` holds.
pub fn executable(source: &Path, has_libraries: bool) -> Option<Vec<u8>> {
    let form = if has_libraries { ["-pie", "-fPIE"] } else { ["-static-pie", "-fPIE"] };
    compile("cc", &[&form[..], &["-DMILLRACE_EXECUTABLE"]].concat(), source)
}

/// Compiles a C text to an executable.
pub fn executable_of(text: &str) -> Option<Vec<u8>> {
    built_of(text, |file| executable(file, false))
}

/// Compiles a C text to a shared object.
pub fn object_of(text: &str) -> Option<Vec<u8>> {
    built_of(text, |file| object(file, &[]))
}

/// Compiles a C text to a WebAssembly module.
pub fn module_of(text: &str) -> Option<Vec<u8>> {
    built_of(text, module)
}

fn built_of(text: &str, build: impl FnOnce(&Path) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("runtime-{}-{number}.c", std::process::id());
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&file, text).unwrap();
    let built = build(&file);
    std::fs::remove_file(&file).unwrap();
    built
}

/// Compiles a C source file to a WebAssembly module.
pub fn module(source: &Path) -> Option<Vec<u8>> {
    let flags = ["--target=wasm32", "-nostdlib", "-ffreestanding", "-Wl,--no-entry", "-Wl,--strip-all"];
    compile("clang", &flags, source)
}

/// Builds the Rust version of the rule for a runtime.
pub fn from_rust(format: Format) -> Option<Vec<u8>> {
    // Share the directory of other tests' builds, so that the Rust standard library is compiled once.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugins");
    std::fs::create_dir_all(&target).unwrap();
    let options = Options { result: Some(target.clone()), target: Some(target), machine: None };
    let built = built_plugin(&source("rule-rs"), format, &options)?;
    Some(std::fs::read(built.file).unwrap())
}

/// Loads a shared object.
pub fn native(bytes: &[u8]) -> NativePlugin {
    NativePlugin::new(bytes).unwrap()
}

/// Returns the reason that a module is refused.
pub fn refusal_of_module(bytes: &[u8]) -> String {
    SANDBOX.compile(bytes).unwrap_err().to_string()
}

/// Loads a module.
pub fn contained(bytes: &[u8]) -> LoadedPlugin {
    LoadedPlugin::new(SANDBOX.compile(bytes).unwrap()).unwrap()
}

/// Packet of a call: its flow, its destination port, its bytes.
#[derive(Clone, Debug)]
pub struct Sent {
    pub flow: u16,
    pub port: u16,
    pub bytes: Vec<u8>,
}

/// Number of a flow that gets no flow state.
pub const STATELESS: u16 = 4;
/// Offset of the instance's part in a state block.
const OFFSET: usize = 8;

/// Flow state blocks; block number N is at index N - 1.
#[derive(Debug, Default)]
struct Blocks(Vec<Vec<u8>>);

impl FlowStates for Blocks {
    fn block(&mut self, number: u32) -> Option<&mut [u8]> {
        self.0.get_mut((number as usize).checked_sub(1)?).map(Vec::as_mut_slice)
    }
}

/// Source of queue backlogs, which it derives from the packet's length. A packet whose length is a multiple
/// of 5 has no known backlog.
struct Queues;

impl Backlogs for Queues {
    fn of(&self, packet: &Packet) -> Option<QueueBacklog> {
        let length = packet.len() as u32;
        let queue = QueueId(length as u16 % 7);
        let (of_flow, bytes) = (length.is_multiple_of(2), u64::from(length) << 33);
        (!length.is_multiple_of(5)).then_some(QueueBacklog {
            port: packet.port,
            queue,
            of_flow,
            packets: length,
            bytes,
        })
    }
}

/// Returns the principal that pays for a call with a number of packets: nobody for each fourth number, and no
/// known allowance for the number after it.
fn payer(packets: usize) -> Option<PayerBacklog> {
    let number = packets as u32;
    let allowance = (number % 4 != 1).then(|| Duration::from_nanos(u64::from(number) << 34));
    (!number.is_multiple_of(4)).then_some(PayerBacklog {
        packets: number + 1,
        bytes: u64::from(number) << 35,
        allowance,
    })
}

/// Instance with its flow state blocks and maps.
pub struct Bench {
    pub instance: Box<dyn Instance>,
    numbers: HashMap<FlowKey, u32>,
    blocks: Blocks,
    maps: [Arc<SharedMap>; 2],
}

/// Tag and bytes of a packet that continues; `None` for other packets.
pub type Left = Option<(u8, Vec<u8>)>;

/// Result of a call, to be compared between runtimes.
#[derive(PartialEq, Debug)]
pub struct Came {
    pub packets: Vec<(Verdict, Left)>,
    pub fault: Option<Fault>,
    pub outputs: Vec<Output>,
}

pub fn message(name: &str, arguments: Value) -> Message {
    Message { name: name.to_owned(), arguments: arguments.as_object().cloned().unwrap_or_default() }
}

fn key(sent: &Sent) -> FlowKey {
    let ports = (1000 + sent.flow, sent.port);
    FlowKey::v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 17, ports, PortId(3))
}

impl Bench {
    /// Returns the flow key of a packet.
    pub fn key(sent: &Sent) -> FlowKey {
        key(sent)
    }

    pub fn new(mut instance: Box<dyn Instance>) -> Self {
        let shape = |name: &str| MapShape { name: name.to_owned(), key: 2, value: 12, entries: 6 };
        let maps = [SharedMap::new(shape("ports"), 2), SharedMap::new(shape("others"), 1)];
        let mut other = maps[1].handle(0, true);
        (7..11_u16).for_each(|port| other.set(&port.to_le_bytes(), &[port as u8; 12]).unwrap());
        instance.attach_maps(Self::handles(&maps));
        Self { instance, numbers: HashMap::new(), blocks: Blocks::default(), maps }
    }

    /// Returns handles of the map that the instance writes and of the map that it reads.
    fn handles(maps: &[Arc<SharedMap>; 2]) -> Vec<MapHandle> {
        vec![maps[0].handle(1, true), maps[1].handle(0, false)]
    }

    /// Returns the entries of the map that the instance writes.
    pub fn noted(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut noted = self.maps[0].entries(1, usize::MAX);
        noted.sort();
        noted
    }

    pub fn of(plugin: &dyn Plugin) -> Self {
        Self::new(plugin.create(&Map::new()).unwrap())
    }

    fn number(&mut self, sent: &Sent) -> u32 {
        let bytes = self.instance.flow_state();
        if bytes == 0 || sent.flow == STATELESS {
            return 0;
        }
        *self.numbers.entry(key(sent)).or_insert_with(|| {
            self.blocks.0.push(vec![0; OFFSET + bytes]);
            self.blocks.0.len() as u32
        })
    }

    /// Sends packets to the instance, as copies if their number is a multiple of 3.
    pub fn send(&mut self, pool: &Pool, sent: &[Sent], now: Instant) -> Came {
        let mut packets: Vec<_> = sent.iter().map(|sent| packet(pool, sent)).collect();
        let keys: Vec<_> = sent.iter().map(key).collect();
        let numbers: Vec<_> = sent.iter().map(|sent| self.number(sent)).collect();
        let members: Vec<_> = (0..sent.len() as u16).collect();
        let mut verdicts = vec![Verdict::Pass; sent.len()];
        let bytes = self.instance.flow_state();
        let mut first = true;
        loop {
            let call = Packets::new(&mut packets, &keys, &members, &mut verdicts);
            let known =
                Known { queues: &Queues, waiting: (sent.len() as u32, 1 << 33), payer: payer(sent.len()) };
            let mut call = call.with_known(known).as_copies(sent.len().is_multiple_of(3));
            if bytes > 0 {
                call = call.with_states(&mut self.blocks, &numbers, OFFSET, bytes);
            }
            let progress = match first {
                true => self.instance.process(&mut call, now),
                false => self.instance.resume(&mut call, now),
            };
            first = false;
            if progress == Progress::Done {
                break;
            }
        }
        let goes_on =
            |verdict: Verdict| !matches!(verdict, Verdict::Drop(_) | Verdict::Consume | Verdict::Fault);
        let shown = |(packet, verdict): (&Packet, &Verdict)| {
            (*verdict, goes_on(*verdict).then(|| (packet.tag, packet.to_vec())))
        };
        Came {
            packets: packets.iter().zip(&verdicts).map(shown).collect(),
            fault: self.instance.take_fault(),
            outputs: self.outputs(),
        }
    }

    pub fn outputs(&mut self) -> Vec<Output> {
        std::iter::from_fn(|| self.instance.take_output()).collect()
    }

    /// Ends a flow and clears its state.
    pub fn end(&mut self, sent: &Sent, packets: u64) {
        let number = self.number(sent);
        let state = self.blocks.block(number).map(|block| std::mem::take(&mut block[OFFSET..].to_vec()));
        if let Some(block) = self.blocks.block(number) {
            block.fill(0);
        }
        let flow = FlowEnd { key: key(sent), packets, bytes: packets * 90 };
        let progress = self.instance.flow_ended(&flow, &state.unwrap_or_default());
        self.finish(progress, Instant::ZERO);
    }

    /// Restarts the instance, and waits until it is ready.
    pub fn restart(&mut self) -> Result<(), PluginError> {
        let restarted = self.instance.restart();
        let progress = self.instance.resume(&mut Packets::new(&mut [], &[], &[], &mut []), Instant::ZERO);
        self.finish(progress, Instant::ZERO);
        restarted
    }

    /// Runs a call without packets to its end.
    fn finish(&mut self, mut progress: Progress, now: Instant) {
        while progress != Progress::Done {
            progress = self.instance.resume(&mut Packets::new(&mut [], &[], &[], &mut []), now);
        }
    }

    /// Sends the instance a message of its host companion, and runs the call to its end.
    pub fn tell(&mut self, bytes: &[u8]) {
        let progress = self.instance.message(bytes);
        self.finish(progress, Instant::ZERO);
    }

    /// Calls the instance's timer, and runs the call to its end.
    pub fn periodic(&mut self, now: Instant) {
        let progress = self.instance.periodic(now);
        self.finish(progress, now);
    }

    /// Replaces the instance by a successor, which gets the saved state. Returns that state.
    pub fn replace(&mut self, mut successor: Box<dyn Instance>, version: u32) -> Vec<u8> {
        let state = self.instance.save().unwrap().unwrap();
        successor.attach_maps(Self::handles(&self.maps));
        successor.adopt_service_state(&self.instance.service_state());
        successor.restore(&state, version).unwrap();
        self.instance = successor;
        state
    }
}

/// Creates a packet. Sets its offsets as if an Ethernet header and an IPv4 header were in front of the
/// transport header.
fn packet(pool: &Pool, sent: &Sent) -> Packet {
    let mut packet = pool.packet_from(&sent.bytes).unwrap();
    packet.set_network(14.min(sent.bytes.len()));
    packet.set_transport(34.min(sent.bytes.len()));
    packet
}
