//! eBPF variants of plugins: on any packet of a cached flow, a variant decides and counts as an instance at
//! the worker.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use millrace_offload::fuzzing::{CachedPacket, DryRuns};
use millrace_offload::{LoadedVariant, VariantMaps, VariantObject};
use millrace_packet::{FlowKey, Pool};
use millrace_pipeline::EBPF_VARIANT_LIMIT;
use millrace_plugin_abi::{Instance, Instant, Message, Packets, Plugin, VariantMemory, Verdict};
use millrace_units::PortId;
use serde_json::{Map, Value, json};

/// Plugins with their settings.
fn plugins() -> [(&'static dyn Plugin, Value); 4] {
    let filter: &dyn Plugin = &millrace_plugin_port_filter::PLUGIN;
    let statistics: &dyn Plugin = &millrace_plugin_statistics::PLUGIN;
    [
        (filter, json!({ "ports": "0-100,1000-2000,53,65535", "protocol": "any" })),
        (filter, json!({ "ports": "53-80", "protocol": "tcp" })),
        (filter, json!({ "ports": "", "protocol": "udp" })),
        (statistics, json!({ "what": "all" })),
    ]
}

/// Plugin with its eBPF variant and its instance at the worker.
struct Tested {
    loaded: LoadedVariant,
    /// Instance through which the counters of the variant are read.
    variant: Box<dyn Instance>,
    worker: Box<dyn Instance>,
}

/// Loaded eBPF variants.
pub struct Variants {
    all: Vec<Tested>,
    pool: Pool,
}

/// Memory of a variant, as an instance uses it.
#[derive(Debug)]
struct Memory(Arc<VariantMaps>);

impl VariantMemory for Memory {
    fn id(&self) -> u64 {
        self.0.id()
    }

    fn configure(&self, settings: &[u64]) {
        self.0.configure(settings);
    }

    fn counted(&self, word: usize) -> u64 {
        self.0.counted(word)
    }
}

impl Variants {
    /// Loads the variant of each plugin.
    pub fn load(programs: &mut DryRuns) -> Self {
        let all = plugins().map(|(plugin, settings)| {
            let ebpf = plugin.ebpf_variant().expect("a plugin with an eBPF variant");
            let loaded = programs.load_variant(VariantObject {
                object: ebpf.object,
                settings: ebpf.settings,
                counters: ebpf.counters,
                most_instructions: EBPF_VARIANT_LIMIT,
            });
            let settings = settings.as_object().expect("a table");
            let create = || plugin.create(settings).unwrap_or_else(|error| panic!("{error}"));
            let (mut variant, worker) = (create(), create());
            variant.attach_ebpf_variant(Arc::new(Memory(loaded.memory().clone())));
            Tested { loaded, variant, worker }
        });
        Self { all: all.into(), pool: Pool::new(16).expect("memory for packets") }
    }

    /// Sends a frame through the flow cache, with the variant that `number` chooses. One number in five
    /// chooses no variant.
    pub fn check(&mut self, number: usize, programs: &mut DryRuns, frame: &[u8]) {
        let number = number % (self.all.len() + 1);
        let Some(tested) = self.all.get_mut(number) else {
            return programs.check_cache(frame, None, |_| false);
        };
        let (worker, pool) = (&mut tested.worker, &self.pool);
        programs.check_cache(frame, Some(&tested.loaded), |packet| drops(&mut **worker, pool, packet));
        assert_eq!(
            read(&mut *tested.variant),
            read(&mut *tested.worker),
            "counted by the variant, at the worker: {frame:02x?}"
        );
    }
}

/// Whether an instance at the worker drops a packet.
fn drops(instance: &mut dyn Instance, pool: &Pool, packet: &CachedPacket<'_>) -> bool {
    let (family, protocol, source, destination) = packet.flow();
    let (ports, port) = ((source, destination), PortId(0));
    let key = match family {
        4 => FlowKey::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, protocol, ports, port),
        _ => FlowKey::v6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, protocol, ports, port),
    };
    let mut held = pool.packet_from(packet.frame).expect("memory for one packet");
    held.set_network(14);
    let mut verdicts = [Verdict::Pass];
    instance.process(&mut Packets::new(&mut [held], &[key], &[0], &mut verdicts), Instant::ZERO);
    matches!(verdicts[0], Verdict::Drop(_))
}

/// Returns the counters of an instance.
fn read(instance: &mut dyn Instance) -> Value {
    let message = Message { name: "read".to_owned(), arguments: Map::new() };
    instance.control(&message).unwrap_or_else(|error| panic!("{error}"))
}
