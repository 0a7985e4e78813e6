//! Random histories: whatever control changes while packets wait, each packet ends once, and each flow keeps its order.

use super::*;

/// Step of a random history.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send(u8),
    Iterate,
    Unbind(u32),
    Rebind(u32, Option<u32>),
    Give(Option<u32>),
    Remove(u32),
    Drop(u32),
    Add(u32),
    Limit(u32, Option<u64>),
    /// Replaces an instance.
    Upgrade(u32),
    /// New flows for which nobody pays, and which no instance gets.
    Flood(u8),
    /// Binds an instance to its flow again, with calls in line.
    InLine(u32, Option<u32>),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (1_u8..5).prop_map(Step::Send),
        6 => Just(Step::Iterate),
        2 => (1_u32..5).prop_map(Step::Unbind),
        2 => (1_u32..5, prop::option::of(1_u32..3)).prop_map(|(number, owner)| Step::Rebind(number, owner)),
        2 => prop::option::of(1_u32..3).prop_map(Step::Give),
        1 => (1_u32..3).prop_map(Step::Remove),
        1 => (1_u32..3).prop_map(Step::Drop),
        1 => (1_u32..3).prop_map(Step::Add),
        1 => (1_u32..3, prop::option::of(0_u64..400)).prop_map(|(id, limit)| Step::Limit(id, limit)),
        2 => (1_u32..5).prop_map(Step::Upgrade),
        1 => (1_u8..100).prop_map(Step::Flood),
        1 => (1_u32..5, prop::option::of(1_u32..3)).prop_map(|(number, owner)| Step::InLine(number, owner)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever control changes while packets wait: each packet ends once, and each flow keeps its order.
    #[test]
    fn no_packet_is_lost_and_no_flow_reordered(steps in prop::collection::vec(step(), 1..250)) {
        let mut world = World::new();
        world.set_principal(1, 2, 1 << 20);
        world.set_principal(2, 1, 1 << 20);
        for number in 1..5 {
            let suspensions = if number == 3 { 2 } else { 0 };
            world.bind(number, number as u8, Some(1 + number % 2), (2000, suspensions));
        }
        for (number, step) in (0..).zip(steps) {
            match step {
                Step::Send(flow) => world.send(flow, number),
                Step::Iterate => _ = world.iterate(),
                Step::Unbind(binding) => world.unbind(binding),
                Step::Rebind(binding, owner) => {
                    world.unbind(binding);
                    world.rebind(binding, binding as u8, owner);
                }
                Step::Give(owner) => world.give(owner),
                Step::Remove(id) => world.tell(PrincipalCommand::Remove(PrincipalId(id))),
                Step::Drop(id) => world.tell(PrincipalCommand::DropWaiting(PrincipalId(id))),
                Step::Add(id) => world.set_principal(id, id, 1 << 20),
                Step::Limit(id, most) => world.tell(PrincipalCommand::LimitMemory(PrincipalId(id), most)),
                Step::Upgrade(instance) => world.upgrade(instance),
                Step::Flood(flows) => (0..flows).for_each(|flow| world.send(100 + flow, number)),
                Step::InLine(binding, owner) => {
                    world.unbind(binding);
                    world.bind_in_line(binding, binding as u8, owner);
                }
            }
        }
        world.check();
    }
}
