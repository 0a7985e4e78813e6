//! Longest waits that the promises of principals allow, at the processor and at links.

use std::time::Duration;

use millrace_admission::deadline::{Resource, Unit};
use millrace_pipeline::CORE_BURST;

use crate::model::Model;
use crate::model::principals::Owners;

/// Bytes on the wire that a packet has beside those that the MTU counts: two VLAN tags, header, checksum, preamble
/// and gap of Ethernet.
const FRAMING: u32 = 46;
/// Slices for which a call that has used up its time may go on.
const LATE_SLICES: u64 = 2;

/// Returns the longest time that a packet waits at the processor for other work: for a call that goes on after its
/// slice, and for core, which may be ahead of its share.
pub(crate) fn processor_blocking(model: &Model) -> Duration {
    let slice = u64::try_from(model.fixed.plugins.slice.duration().as_nanos()).unwrap_or(u64::MAX);
    let rest = 1_000_000 - u64::from(model.router.core_ceiling.ppm());
    let core = slice.saturating_mul(CORE_BURST).saturating_mul(1_000_000) / rest.max(1);
    Duration::from_nanos(slice.saturating_mul(LATE_SLICES).saturating_add(core))
}

/// Returns the longest packet of a port in bytes on the wire; `None` for an unknown port.
pub(crate) fn longest_packet(model: &Model, port: &str) -> Option<u32> {
    Some(u32::from(model.port(port).ok()?.settings.mtu) + FRAMING)
}

/// Returns the time in which a principal with a deadline gets the processor for a packet, while its packets need
/// no more than its share; `None` without a deadline.
pub(crate) fn processor_bound(model: &Model, principal: &str) -> Option<Duration> {
    let deadline = model.principals.iter().find(|one| &*one.name == principal)?.deadline?;
    Some(deadline.duration() + processor_blocking(model))
}

/// Returns the time in which a port sends the longest packet of a principal that reserves `share` bit/s and sends
/// no faster; `None` if the port's scheduler has no rate.
///
/// One worker owns the port, and sends the packets of all workers: so a single packet of others is on the wire at most.
/// But when the packet's turn comes, this worker may be in a call, or in the work of core.
pub(crate) fn link_bound(model: &Model, port: &str, share: u64) -> Option<Duration> {
    let longest = longest_packet(model, port)?;
    let (rate, _) = Owners(model).rate_at(port)?;
    let own = Duration::from_nanos(Unit::Link.time_of(u64::from(longest) * 8, share));
    Some(own + Resource::link(rate, share, longest).blocking + processor_blocking(model))
}

/// Returns a time in whole microseconds.
pub(crate) fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use millrace_config::Config;

    use super::*;

    #[test]
    fn packet_waits_at_a_link_for_a_packet_of_others_and_for_the_worker_that_sends() {
        let text = |workers: u32, slice: &str| {
            format!(
                "[router]\nworkers = {workers}\ncore-ceiling = \"50 %\"\n[plugins]\nslice = \"{slice}\"\n[[port]]\n\
                 name = \"wan\"\nkind = \"memory\"\n[port.scheduler]\nrate = \"20mbit\"\nnode = [{{ name = \"all\", \
                 kind = \"fifo\" }}]\n"
            )
        };
        let model =
            |workers, slice| Model::planned(&Config::parse(&text(workers, slice), "f").unwrap()).unwrap();
        let bits = u64::from(longest_packet(&model(1, "50us"), "wan").unwrap()) * 8;
        // The packet itself at 1 Mbit/s, and another one at the 20 Mbit/s of the port.
        let wire = Duration::from_nanos(bits * 1_000 + bits * 50);
        for (workers, slice, micros) in [(1, "50us", 50), (4, "50us", 50), (2, "1ms", 1_000)] {
            let slices = LATE_SLICES + 2 * CORE_BURST;
            let bound = link_bound(&model(workers, slice), "wan", 1_000_000).unwrap();
            assert_eq!(bound, wire + Duration::from_micros(micros * slices), "{workers} workers, {slice}");
        }
        assert_eq!(link_bound(&model(1, "50us"), "lan", 1_000_000), None);
    }
}
