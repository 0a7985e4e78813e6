//! Reports after a panic in a slice of a principal.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

/// Instance that panics when it gets a packet.
struct Panics;

impl Instance for Panics {
    fn process(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
        panic!("a packet");
    }

    fn control(&mut self, _message: &Message) -> Reply {
        Ok(Default::default())
    }
}

/// A later batch of the same iteration, from another port, is not the one at which the worker panicked.
#[test]
fn report_has_the_packets_that_waited_for_the_processor() {
    let mut world = World::new();
    let other = world.add_port(1);
    world.set_principal(1, 1, 1 << 20);
    world.change(PluginChange::AddInstance { id: InstanceId(1), instance: Box::new(Panics) });
    world.rebind(1, 1, Some(1));
    world.send(1, 7);
    world.send_at(&other, 2, 8);
    let panicked = catch_unwind(AssertUnwindSafe(|| world.iterate()));
    assert!(panicked.is_err());
    let report = world.worker.post_mortem();
    let numbers: Vec<u8> = report.frames.iter().map(|frame| frame[NUMBER + 1]).collect();
    assert_eq!((numbers, report.device, report.instance), (vec![7], Some(DeviceId(0)), Some(InstanceId(1))));
}
