//! Packets that are ready for a plugin, and an instance that gets them.

use millrace_packet::{FlowKey, Packet, Pool};
use millrace_pipeline::{flow_hash, parse};
use millrace_plugin_abi::{Fault, Instance, Packets, Progress, Verdict};
use millrace_units::{Instant, PortId};
use millrace_wire::ethernet::{self, Frame};
use millrace_wire::vlan;

/// Slices after which a call is aborted: 10 ms of running or more, which is what the router allows. The clock would not do, as
/// this process may have to wait for the processor.
const MOST_SLICES: u32 = 200;
/// Any: with one worker a flow's hash chooses nothing.
const SEED: u64 = 0;

/// A packet as it comes to a gate.
#[derive(Debug)]
pub(crate) struct Ready {
    pub packet: Packet,
    pub key: FlowKey,
}

impl Ready {
    /// Reads a frame as the router does, on its first port. The error says why it would come to no gate.
    pub fn of(pool: &Pool, bytes: &[u8]) -> Result<Self, String> {
        let mut packet =
            pool.packet_from(bytes).ok_or_else(|| format!("no memory for {} bytes", bytes.len()))?;
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

/// The packets of a call, in the form in which a worker has them.
#[derive(Debug, Default)]
pub(crate) struct Call {
    pub packets: Vec<Packet>,
    keys: Vec<FlowKey>,
    members: Vec<u16>,
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

    /// Hands them to an instance, and waits for its verdicts. Returns how often it was stopped in the middle, and what it did
    /// wrong.
    pub fn run(&mut self, instance: &mut dyn Instance, now: Instant) -> (u32, Option<Fault>) {
        self.verdicts.fill(Verdict::Pass);
        let mut slices = 0;
        let mut packets = Packets::new(&mut self.packets, &self.keys, &self.members, &mut self.verdicts);
        let mut progress = instance.process(&mut packets, now);
        while progress == Progress::Suspended {
            slices += 1;
            if slices > MOST_SLICES {
                instance.abort();
                // What it was busy with is lost, as in the router.
                self.verdicts.fill(Verdict::Drop);
                break;
            }
            let mut packets = Packets::new(&mut self.packets, &self.keys, &self.members, &mut self.verdicts);
            progress = instance.resume(&mut packets, now);
        }
        (slices, instance.take_fault())
    }
}

#[cfg(test)]
pub(crate) mod test_modules {
    //! Modules for tests: plugins in the text format.

    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A plugin whose manifest has `keys` and whose module has `body` added. What `body` doesn't export itself is there.
    pub fn module(keys: &str, body: &str) -> Vec<u8> {
        let manifest = format!(
            r#"{{"abi": 1, "name": "test", "version": "1.0.0", "summary": "For tests.", "positions": ["late"]{keys}}}"#
        );
        let manifest = manifest.replace('"', "\\\"");
        let unless = |name: &str, text: &'static str| if body.contains(name) { "" } else { text };
        let init = unless(
            "millrace_init",
            r#"(func (export "millrace_init") (param i32 i32) (result i32) i32.const 0)"#,
        );
        let packets = unless("millrace_packets", r#"(func (export "millrace_packets") (param i32))"#);
        let text = format!(
            r#"(module (@custom "millrace.manifest" "{manifest}")
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

    /// A plugin that does `what` with each packet, whose description is at `$at`.
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

    /// Writes to the second byte of a packet.
    pub const WRITE: &str =
        "(i32.store8 offset=1 (i32.wrap_i64 (i64.load offset=8 (local.get $at))) (i32.const 0x99))";

    /// A file that goes with the test.
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
