//! Records the results of the classify and forward stages for a traced packet.

use millrace_plugin::EMPTY_PATH;
use millrace_units::Instant;
use millrace_wire::MacAddr;

use crate::classify::ClassifyCounts;
use crate::observe::trace::{FlowFound, RouteTaken, TraceStep};
use crate::router::Router;
use crate::work::{Fate, Work};

/// Records the flow lookup of a batch of one packet. `before`: the counters before the lookup, which show its
/// result.
#[cold]
pub(crate) fn write_classified(
    router: &mut Router,
    mark: u16,
    work: &Work,
    before: ClassifyCounts,
    now: Instant,
) {
    let step = classified(router, work, before);
    router.observation.write(mark, step, now);
}

fn classified(router: &Router, work: &Work, before: ClassifyCounts) -> TraceStep {
    let now = router.classifier.counts;
    let found = match () {
        () if now.misses > before.misses => FlowFound::Miss,
        () if now.reclassified > before.reclassified => FlowFound::Reclassified,
        () if now.rerouted > before.rerouted => FlowFound::Rerouted,
        () if now.checked > before.checked => FlowFound::Checked,
        () if now.hits > before.hits => FlowFound::Hit,
        () => FlowFound::NotAsked,
    };
    let flow = work.flows[0].filter(|_| router.classifier.remembers());
    let bindings = match work.paths[0] {
        EMPTY_PATH => 0,
        path => router.gates.plugins().stages(path).count().min(255) as u8,
    };
    TraceStep::Classified {
        found,
        bindings,
        is_offloaded: flow.is_some_and(|flow| {
            router.offload.as_ref().is_some_and(|offload| offload.has(flow, &work.keys[0]))
        }),
    }
}

/// Records the route of a batch of one packet.
#[cold]
pub(crate) fn write_routed(router: &mut Router, mark: u16, work: &Work, now: Instant) {
    let taken = route_taken(router, work);
    router.observation.write(mark, TraceStep::Routed(taken), now);
}

fn route_taken(router: &Router, work: &Work) -> RouteTaken {
    let (packet, key) = (work.packets.at(0), &work.keys[0]);
    if packet.is_framed {
        return RouteTaken::Framed(packet.out_port);
    }
    let noted = work.fates[0] == Fate::Queue;
    let mac = match work.fates[0] {
        Fate::Queue => packet.data().first_chunk().map(|mac| MacAddr(*mac)),
        Fate::Forward => Some(work.destinations[0]),
        _ => None,
    };
    RouteTaken::of(&router.routing(), packet, key, (mac, noted))
}
