//! Descriptions of random machines in plain numbers, their hardware files, and random requests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use millrace_admission::hardware::Line;
use millrace_admission::levels::{Crossing, Levels, OffloadLevel, Ring, Switches};
use millrace_admission::random::Random;
use millrace_admission::request::{Class, Cycles, Needs, Request, Stream};

/// Kind of the processor between ports and workers at which no service runs.
const RECEIVER: &str = "receiver";

/// Machine: ports, and processors in a tree above them.
#[derive(Clone, Debug)]
pub struct Machine {
    pub sizes: Sizes,
    pub ports: Ports,
    pub processors: Vec<Processor>,
    /// Shares of components that may be promised, by name; infinite without a limit. Of other components, all may be
    /// promised.
    limits: BTreeMap<String, f64>,
}

/// Sizes in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Largest packet.
    pub largest: f64,
    /// Headers of a packet.
    pub header: f64,
    /// Addition to each transfer that carries headers first.
    pub overhead: f64,
}

/// Group of ports.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    pub count: f64,
    pub half_duplex: bool,
    /// Nanoseconds on the line.
    pub line: Linear,
}

/// Processor, and the way that leads to it.
#[derive(Clone, Debug)]
pub struct Processor {
    pub name: String,
    pub kind: &'static str,
    pub machine: &'static str,
    pub budget: Budget,
    /// Cycles of the router for each packet that enters.
    pub environment: f64,
    pub memory: Option<f64>,
    pub slots: Option<f64>,
    pub way: Way,
}

/// Capacity of a processor.
#[derive(Clone, Copy, Debug)]
pub enum Budget {
    /// Cycles for each packet.
    PerPacket(f64),
    /// Cycles per second.
    PerSecond(f64),
}

/// Way to a processor from the ports or the processor below it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Way {
    /// Index of the processor below; `None` for the ports.
    pub below: Option<usize>,
    /// Switch on the way. Ways may share one.
    pub switch: Option<&'static str>,
    /// Factor of times and rates at the switch.
    pub factor: f64,
    /// Bits per second of the switch. Without a rate, times limit it.
    pub bits: Option<f64>,
    /// Packets per second of the switch.
    pub packets: Option<f64>,
    /// Whether headers cross first, and packets only for services that read whole packets.
    pub header_first: bool,
    pub up: Cost,
    pub down: Cost,
}

/// Cost of a transfer in one direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Cycles of the sender.
    pub send: Linear,
    /// Cycles of the receiver.
    pub receive: Linear,
    /// Nanoseconds on the switch.
    pub time: Linear,
}

/// Amount for each packet, and amount for each byte.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linear(pub f64, pub f64);

impl Linear {
    /// Returns the amount for a packet of a size.
    pub fn at(self, bytes: f64) -> f64 {
        self.0 + self.1 * bytes
    }

    fn random(most: f64, random: &mut Random) -> Self {
        Self(random.between(0.0, most), random.between(0.0, most / 1000.0))
    }

    fn written(self) -> String {
        format!("{{ packet = {:?}, byte = {:?} }}", self.0, self.1)
    }
}

impl Cost {
    fn random(random: &mut Random) -> Self {
        let [send, receive, time] = [300.0, 300.0, 500.0].map(|most| Linear::random(most, random));
        Self { send, receive, time }
    }

    fn of_line(Line { packet, byte }: Line) -> Self {
        Self { time: Linear(packet, byte), ..Self::default() }
    }

    fn written(self) -> String {
        let [send, receive, time] = [self.send, self.receive, self.time].map(Linear::written);
        format!("[{{ send = {send}, receive = {receive}, time-ns = {time} }}]")
    }
}

/// Draws the rates of a switch in bits and in packets; none if times limit it.
fn rates(random: &mut Random) -> [Option<f64>; 2] {
    let (bits, packets) = (random.scale(1e9, 4e10), random.scale(2e5, 2e7));
    match random.below(4) {
        0 => [Some(bits), None],
        1 => [None, Some(packets)],
        2 => [Some(bits), Some(packets)],
        _ => [None, None],
    }
}

impl Way {
    fn random(
        switch: &'static str,
        [bits, packets]: [Option<f64>; 2],
        below: Option<usize>,
        random: &mut Random,
    ) -> Self {
        Self {
            below,
            switch: Some(switch),
            factor: random.between(0.5, 2.0),
            bits,
            packets,
            header_first: random.below(3) == 0,
            up: Cost::random(random),
            down: Cost::random(random),
        }
    }
}

impl Processor {
    fn offload(random: &mut Random) -> Self {
        let rates = rates(random);
        Self {
            name: "nic".to_owned(),
            kind: "offload",
            machine: "card",
            budget: Budget::PerPacket(random.between(100.0, 500.0)),
            environment: random.between(0.0, 100.0),
            memory: (random.below(2) == 0).then(|| random.scale(1e6, 1e8)),
            slots: Some(1.0 + random.below(6) as f64),
            way: Way::random("redirect", rates, None, random),
        }
    }

    fn dynamic(name: &str, kind: &'static str, way: Way, random: &mut Random) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            machine: "box",
            budget: Budget::PerSecond(random.scale(5e8, 4e9)),
            environment: random.between(0.0, 300.0),
            memory: (random.below(2) == 0).then(|| random.scale(1e6, 1e8)),
            slots: (random.below(4) == 0).then_some(8.0),
            way,
        }
    }
}

impl Machine {
    /// Draws a machine: an offload or none, one or two workers, and a host or none.
    pub fn random(random: &mut Random) -> Self {
        let mut processors = Vec::new();
        if random.below(4) > 0 {
            processors.push(Processor::offload(random));
        }
        let lowest = processors.len().checked_sub(1);
        let first = processors.len();
        let rings = rates(random);
        for name in ["worker a", "worker b"].into_iter().take(1 + random.below(2)) {
            let way = Way::random("rings", rings, lowest, random);
            processors.push(Processor::dynamic(name, "worker", way, random));
        }
        if random.below(3) > 0 {
            let bus = rates(random);
            let way = Way::random("bus", bus, Some(first), random);
            processors.push(Processor::dynamic("host", "process", way, random));
        }
        let count = 1.0 + random.below(4) as f64;
        let line = Linear(random.between(0.0, 50.0), random.between(0.08, 0.8));
        let ports = Ports { count, half_duplex: random.below(3) == 0, line };
        let sizes = Sizes { largest: 1_518.0, header: 64.0, overhead: 4.0 };
        let mut machine = Self { sizes, ports, processors, limits: BTreeMap::new() };
        let names = machine.components().into_iter();
        machine.limits = names.filter_map(|name| Some((name, random_limit(random)?))).collect();
        machine
    }

    /// Returns the share of a component that may be promised.
    pub fn limit(&self, component: &str) -> f64 {
        self.limits.get(component).copied().unwrap_or(1.0)
    }

    /// Returns the names of all components.
    fn components(&self) -> BTreeSet<String> {
        let ports: &[&str] = if self.ports.half_duplex { &["ports"] } else { &["ports.in", "ports.out"] };
        let mut names: BTreeSet<String> = ports.iter().map(|&name| name.to_owned()).collect();
        for Processor { name, budget, memory, slots, way, .. } in &self.processors {
            names.insert(name.clone());
            if let Budget::PerPacket(_) = budget {
                names.extend([format!("{name}.global"), format!("{name}.flow")]);
            }
            names.extend(memory.map(|_| format!("{name}.memory")));
            names.extend(slots.map(|_| format!("{name}.code")));
            let Some(switch) = way.switch else { continue };
            names.extend(way.bits.map(|_| format!("{switch}.bits")));
            names.extend(way.packets.map(|_| format!("{switch}.packets")));
            names.extend((way.bits.is_none() && way.packets.is_none()).then(|| switch.to_owned()));
        }
        names
    }

    /// Returns the hardware file.
    pub fn text(&self) -> String {
        let Sizes { largest, header, overhead } = self.sizes;
        let mut text = format!(
            "name = \"random\"\n[packet]\nminimum = 64\nmaximum = {largest:?}\nheader = {header:?}\n\
             overhead = {overhead:?}\n[provisioning]\n"
        );
        for (component, limit) in &self.limits {
            let limit = if limit.is_finite() { format!("{limit:?}") } else { "\"unbounded\"".to_owned() };
            writeln!(text, "{component:?} = {limit}").unwrap();
        }
        let Ports { count, half_duplex, line: Linear(packet, byte) } = self.ports;
        writeln!(
            text,
            "[[port]]\nname = \"ports\"\ncount = {count:?}\nhalf-duplex = {half_duplex}\n\
             packet-ns = {packet:?}\nbyte-ns = {byte:?}"
        )
        .unwrap();
        let mut written = BTreeSet::new();
        for processor in &self.processors {
            text += &processor.text();
            let way = &processor.way;
            if let Some(switch) = way.switch.filter(|switch| written.insert(*switch)) {
                writeln!(text, "[[switch]]\nname = \"{switch}\"").unwrap();
                for (rate, unit) in [(way.bits, "bits"), (way.packets, "packets")] {
                    let Some(rate) = rate else { continue };
                    writeln!(text, "{unit}-per-second = {rate:?}").unwrap();
                }
            }
            text += &self.path(processor);
        }
        text
    }

    /// Returns the entry of the path to a processor.
    fn path(&self, processor: &Processor) -> String {
        let Way { below, switch, factor, header_first, up, down, .. } = processor.way;
        let from = below.map_or("ports", |below| &self.processors[below].name);
        let transfer = if header_first { "header-first" } else { "packet" };
        let switch = switch.expect("a random machine has a switch on each way");
        format!(
            "[[path]]\nfrom = \"{from}\"\nto = \"{}\"\ntransfer = \"{transfer}\"\n\
             switches = [{{ name = \"{switch}\", factor = {factor:?} }}]\nup = {}\ndown = {}\n",
            processor.name,
            up.written(),
            down.written()
        )
    }

    /// Draws a request for this machine. `load` multiplies its rate.
    pub fn request(&self, number: usize, load: f64, random: &mut Random) -> Request {
        let kinds: BTreeSet<&str> =
            self.processors.iter().map(|one| one.kind).filter(|kind| *kind != RECEIVER).collect();
        let mut cycles = BTreeMap::new();
        for kind in &kinds {
            if random.below(4) > 0 {
                cycles.insert((*kind).to_owned(), cycles_on(kind, random));
            }
        }
        if cycles.is_empty() {
            cycles.insert("worker".to_owned(), cycles_on("worker", random));
        }
        // Cycles for any kind would count for the receiver, too.
        if self.processors.iter().all(|one| one.kind != RECEIVER) && random.below(8) == 0 {
            cycles.insert("any".to_owned(), cycles_on("worker", random));
        }
        let most = self.sizes.largest.min(1_514.0);
        let bytes = random.between(64.0, most);
        let bytes_maximum = (random.below(3) == 0).then(|| random.between(bytes, self.sizes.largest));
        let input = Stream { packets_per_second: load * random.scale(3e3, 3e5), bytes, bytes_maximum };
        let factor = [0.0, 0.5, 2.0, 5.0][random.below(4)];
        let packets_per_second = input.packets_per_second * factor;
        let output = Stream { packets_per_second, bytes: random.between(64.0, most), bytes_maximum: None };
        let places: Vec<&str> = self.processors.iter().flat_map(|one| [&*one.name, one.machine]).collect();
        let on = (random.below(3) == 0).then(|| places[random.below(places.len())].to_owned());
        Request {
            name: format!("r{number}"),
            class: Class::PerFlow,
            port: None,
            plugin: None,
            on: on.into_iter().collect(),
            user: None,
            needs: Needs {
                cycles,
                whole_packet: random.below(2) == 0,
                memory_bytes: if random.below(2) == 0 { random.scale(1e5, 3e7) } else { 0.0 },
                code_slots: random.below(3) as f64,
            },
            input,
            output: (random.below(2) == 0).then_some(output),
        }
    }
}

/// Draws the share of a component that may be promised; `None` for all of it, infinite without a limit.
fn random_limit(random: &mut Random) -> Option<f64> {
    match random.below(8) {
        0 => Some(f64::INFINITY),
        1..=3 => Some(random.between(0.3, 1.0)),
        _ => None,
    }
}

impl Processor {
    /// Returns the entry of the processor.
    fn text(&self) -> String {
        let Self { name, kind, machine, budget, environment, memory, slots, .. } = self;
        let budget = match budget {
            Budget::PerPacket(cycles) => format!("scheduling = \"static\"\ncycles-per-packet = {cycles:?}"),
            Budget::PerSecond(cycles) => format!("scheduling = \"dynamic\"\ncycles-per-second = {cycles:?}"),
        };
        let mut text = format!(
            "[[processor]]\nname = \"{name}\"\nkind = \"{kind}\"\nmachine = \"{machine}\"\n{budget}\n\
             environment-cycles = {environment:?}\n"
        );
        for (amount, key) in [(memory, "memory-bytes"), (slots, "code-slots")] {
            let Some(amount) = amount else { continue };
            writeln!(text, "{key} = {amount:?}").unwrap();
        }
        text
    }
}

/// Draws the cycles of a service on a kind of processor.
fn cycles_on(kind: &str, random: &mut Random) -> Cycles {
    let rarely = |random: &mut Random, value: f64| if random.below(6) == 0 { value } else { 0.0 };
    let is_offload = kind == "offload";
    let packet = if is_offload { random.scale(20.0, 600.0) } else { random.scale(100.0, 5_000.0) };
    let fixed = random.scale(1e5, 1e7);
    let byte = random.scale(0.01, 1.0);
    Cycles {
        // A service with cycles per second runs on no statically scheduled processor.
        fixed: rarely(random, fixed),
        packet,
        packet_maximum: (random.below(3) == 0).then(|| packet * random.between(1.0, 2.0)),
        byte: rarely(random, byte),
    }
}

/// Draws the levels of a router.
pub fn levels(random: &mut Random) -> Levels {
    let offload = (random.below(4) > 0).then(|| OffloadLevel {
        instructions: 100 + random.below(400) as u32,
        variants: 1 + random.below(6) as u32,
    });
    let host = if random.below(3) > 0 { random.scale(5e8, 4e9) } else { 0.0 };
    let [redirect, sockets, workers] = [(); 3].map(|()| crossing(random));
    let processes = Ring { transfers_per_second: random.scale(2e5, 2e7), cycles: random.between(0.0, 500.0) };
    Levels {
        offload,
        worker: random.scale(5e8, 8e9),
        host,
        workers: 1 + random.below(4),
        core: random.between(0.2, 1.0),
        switches: Switches { redirect, sockets, workers, processes },
    }
}

fn crossing(random: &mut Random) -> Option<Crossing> {
    let mut line = || Line { packet: random.between(20.0, 400.0), byte: random.between(0.0, 0.3) };
    let (up, down) = (line(), line());
    let [bits, packets] = rates(random);
    let factor = random.between(0.5, 2.0);
    let limit = [0.5, 1.0, f64::INFINITY][random.below(3)];
    (random.below(4) > 0).then_some(Crossing { up, down, bits, packets, factor, limit })
}

impl Machine {
    /// Returns the machine of levels, by their documentation.
    pub fn of_levels(levels: &Levels) -> Self {
        let Switches { redirect, sockets, workers, processes } = levels.switches;
        let ports = Ports { count: 1.0, half_duplex: false, line: Linear(0.0, 0.01) };
        let sizes = Sizes { largest: 65_536.0, header: 64.0, overhead: 0.0 };
        let unbounded = ["ports.in", "ports.out"].map(|name| (name.to_owned(), f64::INFINITY));
        let mut machine = Self { sizes, ports, processors: Vec::new(), limits: unbounded.into() };
        if let Some(OffloadLevel { instructions, variants }) = levels.offload {
            let way = machine.way(None, "XDP redirect", redirect, None);
            machine.level("offload", "offload", Budget::PerPacket(instructions.into()), way);
            machine.processors[0].slots = Some(variants.into());
        }
        // Times count as shares of what core may use of all workers. A packet between workers takes the time of both,
        // and of several workers, another one than the flow's has the device.
        let count = levels.workers as f64;
        let core = 1.0 / (levels.core * count);
        let way = machine.way(machine.top(), "socket rings", sockets, Some(core));
        let budget = Budget::PerSecond(levels.worker);
        if levels.workers > 1 && workers.is_some() {
            machine.level(RECEIVER, RECEIVER, budget, way);
            let crossing = 2.0 * (count - 1.0) / count * core;
            let way = machine.way(machine.top(), "worker rings", workers, Some(crossing));
            machine.level("worker", "worker", budget, way);
        } else {
            machine.level("worker", "worker", budget, way);
        }
        if levels.host > 0.0 {
            let up = Cost { send: Linear(processes.cycles, 0.0), ..Cost::default() };
            let (switch, packets) = (Some("process rings"), Some(processes.transfers_per_second));
            let way = Way { below: machine.top(), switch, factor: 1.0, packets, up, ..Way::default() };
            machine.level("host", "process", Budget::PerSecond(levels.host), way);
        }
        machine
    }

    /// Returns the index of the highest processor; `None` without processors.
    fn top(&self) -> Option<usize> {
        self.processors.len().checked_sub(1)
    }

    fn level(&mut self, name: &str, kind: &'static str, budget: Budget, way: Way) {
        let (name, machine) = (name.to_owned(), "router");
        let (environment, memory, slots) = (0.0, None, None);
        self.processors.push(Processor { name, kind, machine, budget, environment, memory, slots, way });
    }

    /// Returns the way over a crossing, and notes the limit of its switch. `timed` replaces the factor of times.
    fn way(
        &mut self,
        below: Option<usize>,
        switch: &'static str,
        crossing: Option<Crossing>,
        timed: Option<f64>,
    ) -> Way {
        let Some(Crossing { up, down, bits, packets, factor, limit }) = crossing else {
            return Way { below, ..Way::default() };
        };
        let is_timed = bits.is_none() && packets.is_none();
        self.limits.extend(bits.map(|_| (format!("{switch}.bits"), limit)));
        self.limits.extend(packets.map(|_| (format!("{switch}.packets"), limit)));
        self.limits.extend(is_timed.then(|| (switch.to_owned(), limit)));
        let factor = timed.filter(|_| is_timed).unwrap_or(factor);
        let [up, down] = [up, down].map(Cost::of_line);
        Way { below, switch: Some(switch), factor, bits, packets, header_first: false, up, down }
    }
}
