//! Slow reference: adds up each component from the description of a machine. It shares no code with the room.

use std::collections::BTreeMap;

use millrace_admission::request::{Cycles, Request};

use crate::machine::{Budget, Machine, Processor, Way};

/// Uses of components as shares of the whole component, by name.
#[derive(Debug, Default)]
pub struct Uses(pub BTreeMap<String, f64>);

impl Uses {
    fn add(&mut self, component: String, share: f64) {
        *self.0.entry(component).or_default() += share;
    }

    /// Adds cycles per second of a processor. Those of an offload limit only services.
    fn spend(&mut self, processor: &Processor, cycles: f64) {
        if let Budget::PerSecond(whole) = processor.budget {
            self.add(processor.name.clone(), cycles / whole);
        }
    }

    /// Returns the use of a component.
    pub fn of(&self, component: &str) -> f64 {
        self.0.get(component).copied().unwrap_or_default()
    }

    /// Returns the smallest share that is left of a component; negative if a component is used beyond its limit.
    pub fn left(&self, machine: &Machine) -> f64 {
        self.0.iter().map(|(name, used)| machine.limit(name) - used).fold(f64::INFINITY, f64::min)
    }
}

/// Returns the indices of the processors at which a service may run.
pub fn permitted(machine: &Machine, request: &Request) -> Vec<usize> {
    let is_permitted = |processor: &Processor| {
        let is_named = request.on.iter().any(|place| *place == processor.name || place == processor.machine);
        let Some(cycles) = cycles(request, processor) else { return false };
        let is_timed = matches!(processor.budget, Budget::PerPacket(_)) && cycles.fixed > 0.0;
        (request.on.is_empty() || is_named) && !is_timed
    };
    (0..machine.processors.len()).filter(|index| is_permitted(&machine.processors[*index])).collect()
}

fn cycles<'r>(request: &'r Request, processor: &Processor) -> Option<&'r Cycles> {
    let all = &request.needs.cycles;
    if all.contains_key(processor.kind) { all.get(processor.kind) } else { all.get("any") }
}

/// Returns the uses by services at processors.
pub fn uses(machine: &Machine, placed: &[(&Request, usize)]) -> Uses {
    let mut uses = Uses::default();
    for (request, index) in placed {
        add_ports(machine, request, &mut uses);
        add_service(machine, request, &machine.processors[*index], &mut uses);
        let mut upper = Some(*index);
        while let Some(index) = upper {
            let processor = &machine.processors[index];
            uses.spend(processor, request.input.packets_per_second * processor.environment);
            add_way(machine, request, processor, &mut uses);
            upper = processor.way.below;
        }
    }
    uses
}

fn add_ports(machine: &Machine, request: &Request, uses: &mut Uses) {
    for (name, stream) in [("in", request.input), ("out", request.output.unwrap_or(request.input))] {
        let name = if machine.ports.half_duplex { "ports".to_owned() } else { format!("ports.{name}") };
        let time = machine.ports.line.at(stream.bytes) * 1e-9;
        uses.add(name, stream.packets_per_second * time / machine.ports.count);
    }
}

/// Adds the use of the processor at which a service runs, without transfers.
fn add_service(machine: &Machine, request: &Request, processor: &Processor, uses: &mut Uses) {
    let name = &processor.name;
    let cycles = cycles(request, processor).expect("a permitted processor");
    match processor.budget {
        Budget::PerPacket(whole) => {
            let longest = request.input.bytes_maximum.unwrap_or(machine.sizes.largest);
            let most = cycles.packet_maximum.unwrap_or(cycles.packet) + cycles.byte * longest;
            // A packet belongs to one flow, so that the dearest service of a flow counts.
            for component in [name.clone(), format!("{name}.flow")] {
                let dearest = uses.0.entry(component).or_default();
                *dearest = dearest.max(most / whole);
            }
        }
        Budget::PerSecond(_) => {
            let of_packet = cycles.packet + cycles.byte * request.input.bytes;
            uses.spend(processor, cycles.fixed + request.input.packets_per_second * of_packet);
        }
    }
    if let Some(memory) = processor.memory {
        uses.add(format!("{name}.memory"), request.needs.memory_bytes / memory);
    }
    if let Some(slots) = processor.slots {
        uses.add(format!("{name}.code"), request.needs.code_slots / slots);
    }
}

/// Adds the transfers of a request over the way to a processor, up and down.
fn add_way(machine: &Machine, request: &Request, upper: &Processor, uses: &mut Uses) {
    let Way { below, switch, factor, bits, packets, header_first, up, down } = upper.way;
    let lower = below.map(|index| &machine.processors[index]);
    let (input, output) = (request.input, request.output.unwrap_or(request.input));
    for (stream, cost, sender, receiver) in
        [(input, up, lower, Some(upper)), (output, down, Some(upper), lower)]
    {
        let rate = stream.packets_per_second;
        let (header, overhead) = (machine.sizes.header, machine.sizes.overhead);
        let transfers = match (header_first, request.needs.whole_packet) {
            (false, _) => vec![stream.bytes],
            (true, false) => vec![header + overhead],
            (true, true) => vec![header + overhead, stream.bytes + overhead],
        };
        for bytes in transfers {
            for (processor, cycles) in [(sender, cost.send), (receiver, cost.receive)] {
                if let Some(processor) = processor {
                    uses.spend(processor, rate * cycles.at(bytes));
                }
            }
            let Some(switch) = switch else { continue };
            match (bits, packets) {
                (None, None) => uses.add(switch.to_owned(), factor * rate * cost.time.at(bytes) * 1e-9),
                _ => {
                    if let Some(bits) = bits {
                        uses.add(format!("{switch}.bits"), factor * rate * 8.0 * bytes / bits);
                    }
                    if let Some(packets) = packets {
                        uses.add(format!("{switch}.packets"), factor * rate / packets);
                    }
                }
            }
        }
    }
}
