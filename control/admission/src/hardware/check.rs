//! Checks of a hardware file, and the numbering of components.

use std::ops::Range;

use toml::Spanned;

use super::error::{Fault, HardwareError};
use super::file::{File, Limit, PathFile, PortFile, Positive, ProcessorFile, Scheduling, SwitchFile};
use super::{Cycles, End, Hardware, Packet, Path, Port, Processor, Switch, routes};
use crate::component::{Component, Role};
use crate::part::Part;

/// Fault with the bytes of the file that contain it.
type Found = (Range<usize>, Fault);

/// Reads and checks a hardware file.
pub(super) fn hardware(text: &str) -> Result<Hardware, HardwareError> {
    let file: File = toml::from_str(text).map_err(|error| {
        let fault = Fault::Syntax(error.message().trim().replace('\n', " "));
        place(text, error.span().unwrap_or(0..0), fault)
    })?;
    checked(file).map_err(|(span, fault)| place(text, span, fault))
}

/// Adds the line of a fault, and the line's key.
fn place(text: &str, span: Range<usize>, fault: Fault) -> HardwareError {
    let before = text.get(..span.start).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let words = text.lines().nth(line - 1).unwrap_or_default().trim();
    let key = words.split_once('=').map_or(words, |(key, _)| key.trim());
    HardwareError { line, key: key.to_owned(), fault }
}

fn checked(file: File) -> Result<Hardware, Found> {
    let packet = packet(&file)?;
    let mut components = Vec::new();
    let ports: Vec<Port> = file.port.iter().map(|port| new_port(port, &mut components)).collect();
    let switches: Vec<Switch> =
        file.switch.iter().map(|switch| new_switch(switch, &mut components)).collect();
    let processors = file.processor.iter().map(|processor| new_processor(processor, &mut components));
    let processors = processors.collect::<Result<Vec<_>, _>>()?;
    let names = Names { file: &file };
    names.are_distinct()?;
    let paths = file.path.iter().map(|path| names.path(path)).collect::<Result<Vec<_>, _>>()?;
    let routes = routes::shortest(ports.len(), processors.len(), &paths);
    for (index, processor) in file.processor.iter().enumerate() {
        if !routes.iter().any(|route| route.get(index).is_some_and(Option::is_some)) {
            return Err((processor.name.span(), Fault::Unreachable(processor.name.get_ref().clone())));
        }
    }
    provision(&file, &mut components)?;
    Ok(Hardware { name: file.name, packet, processors, ports, switches, paths, components, routes })
}

fn packet(file: &File) -> Result<Packet, Found> {
    let (minimum, maximum) = (file.packet.minimum.get_ref().0, file.packet.maximum.get_ref().0);
    if minimum > maximum {
        return Err((file.packet.minimum.span(), Fault::Entry("the smallest packet is above the largest")));
    }
    let (header, overhead) = (file.packet.header.0, file.packet.overhead.0);
    Ok(Packet { minimum, maximum, header, overhead })
}

/// Adds a component, and returns its index.
fn add(components: &mut Vec<Component>, name: String, role: Role) -> usize {
    components.push(Component { name, role, limit: Part::WHOLE });
    components.len() - 1
}

fn new_port(port: &PortFile, components: &mut Vec<Component>) -> Port {
    let name = port.name.get_ref();
    let input = if port.half_duplex {
        add(components, name.clone(), Role::Port)
    } else {
        let input = add(components, format!("{name}.in"), Role::Port);
        add(components, format!("{name}.out"), Role::Port);
        input
    };
    Port {
        name: name.clone(),
        count: port.count.0,
        full_duplex: !port.half_duplex,
        packet_ns: port.packet_ns.0,
        byte_ns: port.byte_ns.0,
        input,
    }
}

fn new_switch(switch: &SwitchFile, components: &mut Vec<Component>) -> Switch {
    let name = switch.name.get_ref();
    let bits = switch.bits_per_second.map(|rate| rate.0);
    let packets = switch.packets_per_second.map(|rate| rate.0);
    let mut component = |suffix: &str| add(components, format!("{name}{suffix}"), Role::Switch);
    let used = match (bits, packets) {
        (None, None) => [Some(component("")), None, None],
        _ => [None, bits.map(|_| component(".bits")), packets.map(|_| component(".packets"))],
    };
    Switch { name: name.clone(), bits, packets, used }
}

fn new_processor(file: &ProcessorFile, components: &mut Vec<Component>) -> Result<Processor, Found> {
    let name = file.name.get_ref();
    let cycles = new_cycles(file, components)?;
    let mut store = |rate: Option<Positive>, suffix: &str, role: Role| {
        rate.map(|_| add(components, format!("{name}.{suffix}"), role))
    };
    let stores =
        [store(file.memory_bytes, "memory", Role::Memory), store(file.code_slots, "code", Role::Code)];
    Ok(Processor {
        name: name.clone(),
        kind: file.kind.clone(),
        machine: file.machine.clone().unwrap_or_else(|| "router".to_owned()),
        cycles,
        environment: file.environment_cycles.0,
        memory: file.memory_bytes.map(|bytes| bytes.0),
        code: file.code_slots.map(|slots| slots.0),
        stores,
    })
}

fn new_cycles(file: &ProcessorFile, components: &mut Vec<Component>) -> Result<Cycles, Found> {
    let name = file.name.get_ref();
    let wrong = |text| Err((file.scheduling.span(), Fault::Entry(text)));
    let rates = (file.cycles_per_packet, file.cycles_per_second, file.line_rate);
    Ok(match (file.scheduling.get_ref(), rates) {
        (Scheduling::Static, (Some(per_packet), None, None)) => {
            let global = add(components, format!("{name}.global"), Role::Global);
            add(components, format!("{name}.flow"), Role::Flow);
            add(components, name.clone(), Role::Total);
            Cycles::Static { per_packet: per_packet.0, global }
        }
        (Scheduling::Dynamic, (None, Some(per_second), None)) => {
            Cycles::Dynamic { per_second: per_second.0, used: add(components, name.clone(), Role::Cycles) }
        }
        (Scheduling::Mixed, (None, Some(per_second), Some(line_rate))) => {
            let used = add(components, name.clone(), Role::Cycles);
            Cycles::Mixed { per_second: per_second.0, line_rate: line_rate.0, used }
        }
        (Scheduling::Static, _) => {
            return wrong("a static processor has cycles-per-packet, and no other rate");
        }
        (Scheduling::Dynamic, _) => {
            return wrong("a dynamic processor has cycles-per-second, and no other rate");
        }
        (Scheduling::Mixed, _) => return wrong("a mixed processor has cycles-per-second and line-rate"),
    })
}

/// Names of a file, by which entries refer to each other.
struct Names<'a> {
    file: &'a File,
}

impl Names<'_> {
    fn ports(&self) -> impl Iterator<Item = &Spanned<String>> {
        self.file.port.iter().map(|port| &port.name)
    }

    fn switches(&self) -> impl Iterator<Item = &Spanned<String>> {
        self.file.switch.iter().map(|switch| &switch.name)
    }

    fn processors(&self) -> impl Iterator<Item = &Spanned<String>> {
        self.file.processor.iter().map(|processor| &processor.name)
    }

    fn are_distinct(&self) -> Result<(), Found> {
        let all: Vec<&Spanned<String>> =
            self.ports().chain(self.switches()).chain(self.processors()).collect();
        for (index, name) in all.iter().enumerate() {
            if all.iter().take(index).any(|earlier| earlier.get_ref() == name.get_ref()) {
                return Err((name.span(), Fault::Twice(name.get_ref().clone())));
            }
        }
        Ok(())
    }

    fn path(&self, path: &PathFile) -> Result<Path, Found> {
        let from = match index(self.ports(), &path.from) {
            Some(port) => End::Port(port),
            None => {
                let known = self.ports().chain(self.processors());
                End::Processor(self.find(self.processors(), "port or processor", &path.from, known)?)
            }
        };
        let to = self.find(self.processors(), "processor", &path.to, self.processors())?;
        let mut switches = Vec::new();
        for crossing in &path.switches {
            let switch = self.find(self.switches(), "switch", &crossing.name, self.switches())?;
            switches.push((switch, crossing.factor.0));
        }
        let mut up = Vec::new();
        let mut down = Vec::new();
        for (modes, into) in [(&path.up, &mut up), (&path.down, &mut down)] {
            for mode in modes {
                let time = [self.file.packet.minimum.get_ref().0, self.file.packet.maximum.get_ref().0]
                    .map(|bytes| mode.get_ref().seconds(bytes));
                if time.iter().any(|seconds| *seconds < 0.0) {
                    return Err((mode.span(), Fault::Entry("a transfer takes a negative time")));
                }
                into.push(*mode.get_ref());
            }
            let is_open = into.last().is_none_or(|last| last.carries(f64::INFINITY));
            if let (false, Some(last)) = (is_open, modes.last()) {
                return Err((last.span(), Fault::Entry("the last mode must carry every size")));
            }
        }
        if let (false, Some(crossing)) = (self.has_times(path), path.switches.first()) {
            return Err((crossing.name.span(), Fault::Entry("a path over a switch needs up and down")));
        }
        Ok(Path { from, to, switches, transfer: path.transfer, up, down })
    }

    /// Whether a path over switches says how long transfers take.
    fn has_times(&self, path: &PathFile) -> bool {
        let timed = |name: &Spanned<String>| {
            let switch = self.file.switch.iter().find(|switch| switch.name.get_ref() == name.get_ref());
            switch
                .is_some_and(|switch| switch.bits_per_second.is_none() && switch.packets_per_second.is_none())
        };
        let needs_times = path.switches.iter().any(|crossing| timed(&crossing.name));
        !needs_times || (!path.up.is_empty() && !path.down.is_empty())
    }

    /// Returns the index of a name.
    fn find<'b>(
        &self,
        mut names: impl Iterator<Item = &'b Spanned<String>>,
        what: &'static str,
        name: &Spanned<String>,
        known: impl Iterator<Item = &'b Spanned<String>>,
    ) -> Result<usize, Found> {
        names.position(|candidate| candidate.get_ref() == name.get_ref()).ok_or_else(|| {
            let known = known.map(|name| name.get_ref().as_str()).collect::<Vec<_>>().join(", ");
            (name.span(), Fault::Unknown { what, name: name.get_ref().clone(), known })
        })
    }
}

fn index<'a>(mut names: impl Iterator<Item = &'a Spanned<String>>, name: &Spanned<String>) -> Option<usize> {
    names.position(|candidate| candidate.get_ref() == name.get_ref())
}

/// Sets the limits of the table `provisioning`.
fn provision(file: &File, components: &mut [Component]) -> Result<(), Found> {
    for (name, limit) in &file.provisioning {
        let known = components.iter().map(|component| component.name.as_str()).collect::<Vec<_>>().join(", ");
        let Some(component) = components.iter_mut().find(|component| component.name == *name.get_ref())
        else {
            let fault = Fault::Unknown { what: "component", name: name.get_ref().clone(), known };
            return Err((name.span(), fault));
        };
        component.limit = match limit.get_ref() {
            Limit::Word(word) if word == "unbounded" => Part::UNBOUNDED,
            Limit::Share(share) if share.is_finite() && *share >= 0.0 && *share <= 1.0 => {
                Part::at_least(*share)
            }
            Limit::Share(value) => {
                let fault = Fault::Number { value: *value, need: "a share from 0 to 1, or \"unbounded\"" };
                return Err((limit.span(), fault));
            }
            Limit::Word(_) => {
                return Err((limit.span(), Fault::Entry("a limit is a number or \"unbounded\"")));
            }
        };
    }
    Ok(())
}
