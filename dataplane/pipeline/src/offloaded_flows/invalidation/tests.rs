mod table;
mod world;

use std::sync::mpsc::sync_channel;

use millrace_packet::Pool;
use millrace_port::Memory;

use self::table::RECEIVERS;
use self::world::{NEITHER, SECOND, World, changed, mac, nobody};
use crate::commands::{Command, DeviceCommand, OpenedDevice};
use crate::ports::DeviceId;

#[test]
fn recorded_invalidation_ends_entries() {
    let mut wrong = Vec::new();
    for (name, command, ends) in RECEIVERS.into_iter().flatten() {
        let mut world = World::new();
        let command = command(&mut world);
        let declared = world.declared(command.invalidation()).unwrap_or(*ends);
        world.tell(command);
        // The worker carries entries that no change affects over to the new generation.
        (0..3).for_each(|_| world.iterate());
        let ended = world.in_force().map(|is_used| !is_used);
        if [declared, ended] != [*ends; 2] {
            wrong.push(format!("{name}: declares {declared:?}, ends {ended:?}, should end {ends:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn ended_entries_are_not_used_when_the_next_command_is_carried_out() {
    let mut world = World::new();
    let (reply, answer) = sync_channel(1);
    let cache = world.cache.clone();
    let open = move |_: &Pool| {
        let _ = reply.try_send(cache.0.lock().unwrap().in_force());
        Ok(OpenedDevice { port: Box::new(Memory::new(mac(5), 1500).0), sockets: vec![] })
    };
    assert!(world.link.commands.push(changed("10.16.0.0/12")).is_ok());
    world.tell(DeviceCommand::Add(DeviceId(5), Box::new(open), nobody()));
    assert_eq!(answer.try_recv(), Ok(NEITHER), "the worker carries over the second flow later");
}

#[test]
fn a_barrier_is_answered_behind_earlier_commands() {
    let mut world = World::new();
    let (reply, answer) = sync_channel(1);
    assert!(world.link.commands.push(changed("10.16.0.0/12")).is_ok());
    world.tell(Command::Barrier(reply));
    assert_eq!((answer.try_recv(), world.in_force()), (Ok(()), SECOND));
}
