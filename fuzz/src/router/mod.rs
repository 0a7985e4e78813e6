//! Fuzz target of the whole router: a configuration, frames and changes made of the input's bytes, under a
//! virtual clock with ports in memory.
//!
//! No input makes the router panic, lose or invent a packet, or send a malformed frame. Two routers get the
//! same input: one has a flow table, the other classifies every packet separately. Both must have the same
//! outcome.

mod changes;
mod devices;
pub mod frames;
mod settings;
pub mod side;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use millrace_pipeline::ReversePath;
use millrace_plugin::BindingId;

use crate::input::Input;
use settings::Settings;
use side::Side;
use writer::{Script, Writer};

/// Ports at which frames arrive. Inputs choose `a` more often.
const PORTS: [&str; 8] = ["a", "a", "a", "a", "b", "c", "v", "q"];
/// Maximum number of operations of a run.
const MOST: u32 = 64;
/// Steps of the virtual clock, in milliseconds.
const TIMES: [u64; 8] = [1, 5, 100, 1001, 3000, 31_000, 0, 61_000];
/// Maximum time that a router holds a packet, in seconds.
const LONGEST_HOLD: u64 = 61;
/// Minimum time at the end of an input, in seconds, in which routers refresh their neighbours.
const SETTLED: u64 = 3;
const MODES: [ReversePath; 3] = [ReversePath::Off, ReversePath::Strict, ReversePath::Loose];

/// Runs two routers on an input.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut session = Session::new(&mut input);
    for number in 0..MOST {
        if input.is_empty() {
            break;
        }
        session.step(&mut input, number);
    }
    session.end();
}

/// Routers of one input.
struct Session {
    sides: Vec<Side>,
    settings: Settings,
    script: Script,
    filters: Vec<(Vec<BindingId>, bool)>,
    /// Whether frames wait at ports.
    waiting: bool,
    /// Readers of captures and traces. Dropping a reader ends its capture or trace.
    readers: Vec<Box<dyn std::any::Any>>,
}

impl Session {
    fn new(input: &mut Input<'_>) -> Self {
        let (settings, script) = (Settings::next(input), Script::default());
        let side = || {
            let writer = Arc::new(Writer(script.clone()));
            let device = &mut |port: &str, memory| settings.devices.make(port, memory);
            Side::new(&settings.text, settings.lies, writer, device)
        };
        let mut sides = vec![side(), side()];
        sides[1].router.forget_flows();
        let mut session =
            Self { sides, settings, script, filters: Vec::new(), waiting: false, readers: Vec::new() };
        session.note_writes();
        session
    }

    fn step(&mut self, input: &mut Input<'_>, number: u32) {
        let operation = input.byte();
        match operation & 15 {
            0..=6 => self.frames(input, number, operation & 0x80 != 0),
            7 => self.add_filter(input),
            8 => self.remove_filter(input.byte()),
            9 => {
                let route = changes::next_route(input);
                self.same(|side| side.router.add_route(&route).is_ok());
            }
            10 => {
                let prefix = changes::next_prefix(input).parse().expect("a prefix");
                self.same(|side| side.router.remove_route(prefix).is_ok());
            }
            11 => self.port(input),
            12 => {
                let time = Duration::from_millis(input.pick(&TIMES));
                self.settle();
                self.same(|side| side.router.advance(time));
            }
            13 => {
                self.settle();
                let edits = (0..input.below(4)).map(|_| writer::next_edits(input)).collect();
                *self.script.lock().expect("no writer panics") = edits;
            }
            14 => {
                let packet = changes::next_packet(input);
                self.sides.iter_mut().for_each(|side| drop(side.router.lookup(&packet)));
                // No packet moves in this step, so the next comparison covers it.
                return;
            }
            _ => self.observe(input),
        }
        if !self.waiting {
            self.compare();
        }
    }

    /// Injects the frames of a packet. With `waits`, they join a batch with later frames. If the order of
    /// packets matters, the routers handle each frame alone. It matters if queues overflow, a link loses
    /// packets, or an instance writes: after a fault, the router bypasses the instance for a while.
    fn frames(&mut self, input: &mut Input<'_>, number: u32, waits: bool) {
        let port = input.pick(&PORTS);
        let frames = frames::next_frames(input, port, number, self.settings.lies);
        for frame in frames {
            self.sides.iter_mut().for_each(|side| side.router.inject(port, &frame));
            self.waiting = true;
            if self.settings.ordered || self.writes() {
                self.settle();
                self.compare();
            }
        }
        if !waits {
            self.settle();
        }
    }

    /// Permits wrong transport checksums in transmitted frames from now on, if an instance may write to
    /// packets.
    fn note_writes(&mut self) {
        let writes = self.writes();
        self.sides.iter_mut().for_each(|side| side.lies |= writes);
    }

    fn writes(&self) -> bool {
        self.settings.writes || self.filters.iter().any(|(_, writes)| *writes)
    }

    fn add_filter(&mut self, input: &mut Input<'_>) {
        let Some((filter, writes)) = changes::next_filter(input) else { return };
        self.settle();
        let added: Vec<_> =
            self.sides.iter_mut().filter_map(|side| side.router.add_filter(&filter).ok()).collect();
        assert!(added.is_empty() || added.len() == self.sides.len(), "one router refuses {filter:?}");
        if !added.is_empty() {
            self.filters.push((added, writes));
            self.note_writes();
        }
    }

    fn remove_filter(&mut self, number: u8) {
        if self.filters.is_empty() {
            return;
        }
        self.settle();
        let (ids, _) = self.filters.remove(usize::from(number) % self.filters.len());
        for (side, id) in self.sides.iter_mut().zip(ids) {
            side.router.remove_filter(id).expect("the filter is there");
        }
    }

    fn port(&mut self, input: &mut Input<'_>) {
        self.settle();
        let port = input.pick(&PORTS);
        let (kind, value) = (input.below(4), input.byte());
        self.same(|side| match kind {
            0 => side.router.set_mtu(port, [1280, 1500, 9000, 576][usize::from(value) % 4]),
            1 => side.router.set_up(port, value & 1 == 0),
            2 => side.router.set_reverse_path(port, MODES[usize::from(value) % 3]),
            _ => side.router.set_input_weight(port, 1 + u16::from(value)),
        });
    }

    /// Starts or ends captures and traces, or clears counters. None of these may change the fate of packets.
    fn observe(&mut self, input: &mut Input<'_>) {
        self.settle();
        match input.below(4) {
            0 => self.readers.clear(),
            1 => {
                let snap = usize::from(input.word());
                let readers = self.sides.iter_mut().flat_map(|side| side.router.capture(snap));
                self.readers.extend(readers.map(|reader| Box::new(reader) as Box<dyn std::any::Any>));
            }
            2 => {
                let readers = self.sides.iter_mut().flat_map(|side| side.router.trace(1));
                self.readers.extend(readers.map(|reader| Box::new(reader) as Box<dyn std::any::Any>));
            }
            _ => {
                self.compare();
                self.sides.iter_mut().for_each(Side::clear_counters);
            }
        }
    }

    /// Runs the routers, so that they handle the waiting frames.
    fn settle(&mut self) {
        if self.waiting {
            self.sides.iter_mut().for_each(|side| side.router.run());
            self.waiting = false;
        }
    }

    /// Applies `change` to all routers and asserts that their answers are equal.
    fn same<T: PartialEq + std::fmt::Debug>(&mut self, change: impl Fn(&mut Side) -> T) {
        self.settle();
        let answers: Vec<T> = self.sides.iter_mut().map(change).collect();
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "the routers answer {answers:?}");
    }

    fn compare(&mut self) {
        let mut outcomes: Vec<_> = self.sides.iter_mut().map(Side::outcome).collect();
        let general = outcomes.pop();
        assert_eq!(outcomes.pop(), general, "flow table, general path:\n{}", self.settings.text);
    }

    /// Sets all ports up, advances the clock until all packets have left, and asserts that none is left.
    fn end(mut self) {
        for port in ["a", "b", "c", "v", "q", "p"] {
            self.same(|side| side.router.set_up(port, true));
        }
        let shortest = SETTLED + self.settings.devices.longest();
        self.same(|side| side.router.advance(Duration::from_secs(shortest)));
        let mut held: Vec<u64> = self.sides.iter_mut().map(Side::held).collect();
        for _ in 0..LONGEST_HOLD {
            if held.iter().all(|held| *held == 0) {
                break;
            }
            self.same(|side| side.router.advance(Duration::from_secs(1)));
            held = self.sides.iter_mut().map(Side::held).collect();
        }
        self.compare();
        assert!(
            held.iter().all(|held| *held == 0),
            "packets held for ever: {held:?}\n{}",
            self.settings.text
        );
    }
}
