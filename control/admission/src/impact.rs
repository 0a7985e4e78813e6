//! Impact of a service on the components of a router, for each processor that could host it
//! (VERA, section 4.4.1, "Calculating Service Impact").

use crate::hardware::{Cycles, End, Hardware, Modes, Path, Transfer};
use crate::part::Part;
use crate::request::{Class, Request, RequestError, Stream};

/// Additional use of components by one service on one processor. It doesn't depend on other services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Impact {
    /// Components whose uses add up: index and share, at most once each.
    pub sums: Vec<(usize, Part)>,
    /// Component of `Role::Flow` whose largest use counts: its index and the share.
    pub flow: Option<(usize, Part)>,
}

/// Processor that could host a service, and the impact there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Index of the processor.
    pub processor: usize,
    /// Impact.
    pub impact: Impact,
}

/// Service with all its choices, in the order of the hardware's processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Name of the service.
    pub name: String,
    /// Choices; none where no processor runs the service.
    pub choices: Vec<Choice>,
}

impl Candidate {
    /// Returns the choices of a request.
    ///
    /// # Errors
    /// A number outside its range, an unknown kind of processor, machine or group of ports, or no cycles at all.
    pub fn of(hardware: &Hardware, request: &Request) -> Result<Self, RequestError> {
        let port = check(hardware, request)?;
        let choice = |processor| {
            let impact = Use::new(hardware, request, port).on(processor)?;
            Some(Choice { processor, impact })
        };
        let processors = hardware.processors.iter().enumerate();
        let may_run = processors.filter(|(_, processor)| request.may_run_on(processor));
        let choices = may_run.filter_map(|(processor, _)| choice(processor)).collect();
        Ok(Self { name: request.name.clone(), choices })
    }
}

impl Impact {
    /// Returns the share of a component.
    #[must_use]
    pub fn of(&self, component: usize) -> Part {
        let mut shares = self.sums.iter().chain(self.flow.iter());
        shares.find(|(index, _)| *index == component).map(|(_, part)| *part).unwrap_or_default()
    }
}

fn check(hardware: &Hardware, request: &Request) -> Result<usize, RequestError> {
    for (key, value, above) in request.numbers() {
        let is_right = value.is_finite() && if above { value > 0.0 } else { value >= 0.0 };
        if !is_right {
            let need = if above { "a finite number above 0" } else { "a finite number of at least 0" };
            return Err(RequestError::Number { request: request.name.clone(), key, value, need });
        }
    }
    let kinds = || hardware.processors.iter().map(|processor| processor.kind.as_str());
    for kind in request.needs.cycles.keys().filter(|kind| *kind != "any") {
        if !kinds().any(|known| known == kind) {
            let known = kinds().collect::<Vec<_>>().join(", ");
            return Err(RequestError::Kind { request: request.name.clone(), kind: kind.clone(), known });
        }
    }
    if let Some(place) = request.on.iter().find(|place| !hardware.has_place(place)) {
        let known = hardware.places().into_iter().collect::<Vec<_>>().join(", ");
        return Err(RequestError::Place { request: request.name.clone(), place: place.clone(), known });
    }
    if request.needs.cycles.is_empty() {
        return Err(RequestError::Nowhere(request.name.clone()));
    }
    let Some(port) = &request.port else { return Ok(0) };
    hardware.ports.iter().position(|known| known.name == *port).ok_or_else(|| RequestError::Port {
        request: request.name.clone(),
        port: port.clone(),
        known: hardware.ports.iter().map(|port| port.name.as_str()).collect::<Vec<_>>().join(", "),
    })
}

/// Sum of uses while the impact of one choice is computed, in shares of components.
struct Use<'a> {
    hardware: &'a Hardware,
    request: &'a Request,
    port: usize,
    shares: Vec<f64>,
}

impl<'a> Use<'a> {
    fn new(hardware: &'a Hardware, request: &'a Request, port: usize) -> Self {
        Self { hardware, request, port, shares: vec![0.0; hardware.components.len()] }
    }

    fn add(&mut self, component: usize, share: f64) {
        if let Some(sum) = self.shares.get_mut(component) {
            *sum += share;
        }
    }

    /// Returns the impact on a processor; `None` where the service can't run there.
    fn on(mut self, processor: usize) -> Option<Impact> {
        let route = self.hardware.route(self.port, processor)?;
        let host = self.hardware.processors.get(processor)?;
        let cycles = self.request.needs.on(&host.kind)?;
        for (store, need) in host.stores.iter().zip([
            host.memory.map(|most| self.request.needs.memory_bytes / most),
            host.code.map(|most| self.request.needs.code_slots / most),
        ]) {
            if let (Some(store), Some(share)) = (store, need) {
                self.add(*store, share);
            }
        }
        let input = self.request.input;
        let mut flow = None;
        let largest = input.bytes_maximum.unwrap_or(self.hardware.packet.maximum);
        let worst = cycles.worst() + cycles.byte * largest;
        let average = cycles.fixed + input.packets_per_second * (cycles.packet + cycles.byte * input.bytes);
        match (self.request.class, host.cycles) {
            (Class::Global, Cycles::Dynamic { .. }) => return None,
            (_, Cycles::Static { .. }) if cycles.fixed > 0.0 => return None,
            (Class::Global, Cycles::Static { per_packet, global }) => {
                self.add(global, worst / per_packet);
                self.add(global + 2, worst / per_packet);
            }
            (Class::Global, Cycles::Mixed { per_second, line_rate, used }) => {
                self.add(used, (cycles.fixed + worst * line_rate) / per_second);
            }
            (Class::PerFlow, Cycles::Static { per_packet, global }) => {
                flow = Some((global + 1, Part::at_least(worst / per_packet)));
            }
            (
                Class::PerFlow,
                Cycles::Dynamic { per_second, used } | Cycles::Mixed { per_second, used, .. },
            ) => {
                self.add(used, average / per_second);
            }
        }
        if self.request.class == Class::PerFlow {
            self.passes_port();
            for path in route.iter().filter_map(|path| self.hardware.paths.get(*path)) {
                self.crosses(path);
            }
        }
        let shares = self.shares.iter().enumerate().filter(|(_, share)| **share > 0.0);
        Some(Impact { sums: shares.map(|(index, share)| (index, Part::at_least(*share))).collect(), flow })
    }

    fn passes_port(&mut self) {
        let Some(port) = self.hardware.ports.get(self.port) else { return };
        let share = |stream: Stream| {
            stream.packets_per_second * (port.packet_ns + port.byte_ns * stream.bytes) * 1e-9 / port.count
        };
        self.add(port.input, share(self.request.input));
        let output = port.input + usize::from(port.full_duplex);
        self.add(output, share(self.request.leaving()));
    }

    /// Adds the transfers of a path in both directions, and the environment cost of its upper end.
    fn crosses(&mut self, path: &Path) {
        let lower = match path.from {
            End::Processor(processor) => Some(processor),
            End::Port(_) => None,
        };
        let environment = self.hardware.processors.get(path.to).map_or(0.0, |upper| upper.environment);
        self.spends(Some(path.to), self.request.input.packets_per_second * environment);
        let directions = [
            (self.request.input, &path.up, lower, Some(path.to)),
            (self.request.leaving(), &path.down, Some(path.to), lower),
        ];
        for (stream, modes, sender, receiver) in directions {
            for bytes in self.transfers(path.transfer, stream.bytes) {
                let none = Modes::default();
                let mode = modes.iter().find(|mode| mode.carries(bytes)).unwrap_or(&none);
                let rate = stream.packets_per_second;
                self.spends(sender, rate * mode.send_cycles(bytes));
                self.spends(receiver, rate * mode.receive_cycles(bytes));
                for (switch, factor) in &path.switches {
                    self.switches(*switch, factor * rate, mode.seconds(bytes), bytes);
                }
            }
        }
    }

    /// Returns the sizes of the transfers of one packet.
    fn transfers(&self, transfer: Transfer, bytes: f64) -> Vec<f64> {
        let sizes = self.hardware.packet;
        match transfer {
            Transfer::Packet => vec![bytes],
            Transfer::HeaderFirst if self.request.needs.whole_packet => {
                vec![sizes.header + sizes.overhead, bytes + sizes.overhead]
            }
            Transfer::HeaderFirst => vec![sizes.header + sizes.overhead],
        }
    }

    /// Adds cycles per second of a dynamically scheduled processor. The budget of a statically scheduled processor
    /// already leaves room for passing packets at line rate.
    fn spends(&mut self, processor: Option<usize>, cycles: f64) {
        let Some(processor) = processor.and_then(|index| self.hardware.processors.get(index)) else { return };
        if let Cycles::Dynamic { per_second, used } | Cycles::Mixed { per_second, used, .. } =
            processor.cycles
        {
            self.add(used, cycles / per_second);
        }
    }

    fn switches(&mut self, switch: usize, packets: f64, seconds: f64, bytes: f64) {
        let Some(switch) = self.hardware.switches.get(switch) else { return };
        let [time, bits, rate] = switch.used;
        if let Some(time) = time {
            self.add(time, packets * seconds);
        }
        if let (Some(bits), Some(most)) = (bits, switch.bits) {
            self.add(bits, packets * bytes * 8.0 / most);
        }
        if let (Some(rate), Some(most)) = (rate, switch.packets) {
            self.add(rate, packets / most);
        }
    }
}
