//! Hardware file of a measured machine.

use std::fmt::Write as _;

use super::{Hardware, HardwareError};

/// Figures of a machine. Absent figures leave out the processors that only they make reachable.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Name of the machine.
    pub name: String,
    /// Number of the machine's processors.
    pub processors: usize,
    /// Number of workers.
    pub workers: usize,
    /// Cycles per second of one processor.
    pub cycles_per_second: f64,
    /// Share of a worker's processor that core may use, above 0 and below 1.
    pub core_ceiling: f64,
    /// Memory in bytes that is free for services; `None` if unknown.
    pub memory: Option<f64>,
    /// Groups of equal ports.
    pub ports: Vec<MeasuredPort>,
    /// Offload; `None` where the kernel runs no XDP program.
    pub offload: Option<Offload>,
    /// Time of core for a packet that enters and leaves a worker.
    pub socket_rings: Option<Line>,
    /// Time of one worker for the hand-over of a packet to another worker.
    pub worker_rings: Option<Line>,
    /// Additional time of core for a packet that the worker passes to the kernel.
    pub kernel_hand_over: Option<Line>,
    /// Time of a worker for a packet of a full call to a process, there and back.
    pub process_rings: Option<Line>,
}

/// Group of equal ports with a known line rate.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredPort {
    /// Name.
    pub name: String,
    /// Number of ports.
    pub count: usize,
    /// Line rate in bits per second.
    pub bits_per_second: f64,
}

/// Limits and costs of the offload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offload {
    /// Instructions of services' programs for each packet at most.
    pub instructions: u32,
    /// Number of programs of services at most.
    pub programs: usize,
    /// Time of the offload for a packet that it forwards itself.
    pub redirect: Line,
    /// Time of the offload for a packet that it passes to a worker.
    pub pass: Line,
}

/// Nanoseconds per packet and per byte; both are 0 or more.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Line {
    /// Nanoseconds per packet.
    pub packet: f64,
    /// Nanoseconds per byte.
    pub byte: f64,
}

impl Line {
    /// Returns the line through two measured points, each with a size in bytes and nanoseconds. Noise can let the
    /// larger packet appear cheaper; the line is then level at the mean. `None` if a time isn't from 0 to 1 ms.
    #[must_use]
    pub fn through([small, large]: [(f64, f64); 2]) -> Option<Self> {
        let is_plausible = |(_, time): &(f64, f64)| (0.0..=1e6).contains(time);
        if ![small, large].iter().all(is_plausible) || large.0 <= small.0 {
            return None;
        }
        let byte = (large.1 - small.1) / (large.0 - small.0);
        let packet = small.1 - byte * small.0;
        Some(if byte < 0.0 {
            Self { packet: f64::midpoint(small.1, large.1), byte: 0.0 }
        } else if packet < 0.0 {
            Self { packet: 0.0, byte: large.1 / large.0 }
        } else {
            Self { packet, byte }
        })
    }

    /// Returns the nanoseconds for a packet of `bytes`.
    #[must_use]
    pub fn at(self, bytes: f64) -> f64 {
        self.packet + self.byte * bytes
    }

    fn times(self, factor: f64) -> Self {
        Self { packet: self.packet * factor, byte: self.byte * factor }
    }

    /// Returns the line as an inline table.
    fn written(self) -> String {
        format!("{{ packet = {:.2}, byte = {:.4} }}", self.packet, self.byte)
    }
}

/// Bytes on an Ethernet line beside the frame: preamble, check sequence and gap.
const LINE_OVERHEAD: f64 = 24.0;

impl Measured {
    /// Returns the hardware file, which [`Hardware::parse`] accepts.
    ///
    /// Core's own work on packets doesn't use the cycles of a worker: they are what `core_ceiling` leaves. Instead,
    /// switches into a worker are in use for the time that core takes, multiplied by `1 / core_ceiling`. So a switch
    /// is full when core uses its whole ceiling.
    ///
    /// # Errors
    /// A figure that no hardware file may have, such as a number of cycles that is not above 0.
    pub fn written(&self) -> Result<String, HardwareError> {
        let mut text = String::new();
        self.heading(&mut text);
        self.write_ports(&mut text);
        self.write_processors(&mut text);
        self.write_paths(&mut text);
        self.provision(&mut text);
        Hardware::parse(&text)?;
        Ok(text)
    }

    fn heading(&self, text: &mut String) {
        put(text, "# Written by `millrace hardware measure`. Times in ns, rates per second.");
        put(text, &format!("name = {:?}", self.name));
        put(text, "\n[packet]\nminimum = 64\nmaximum = 1514\nheader = 64");
    }

    fn write_ports(&self, text: &mut String) {
        for port in self.ports() {
            let byte = 8e9 / port.bits_per_second;
            put(text, &format!("\n[[port]]\nname = {:?}\ncount = {}", port.name, port.count));
            put(text, &format!("packet-ns = {:.6}\nbyte-ns = {byte:.9}", byte * LINE_OVERHEAD));
        }
    }

    /// Returns the ports; without known ports, one virtual port whose rate nothing limits.
    fn ports(&self) -> Vec<MeasuredPort> {
        let port = MeasuredPort { name: VIRTUAL.to_owned(), count: 1, bits_per_second: 1e12 };
        if self.ports.is_empty() { vec![port] } else { self.ports.clone() }
    }

    fn write_processors(&self, text: &mut String) {
        if let Some(offload) = self.offload {
            put(text, "\n# Worst case for each packet, in instructions of services' programs.");
            put(text, "[[processor]]\nname = \"offload\"\nkind = \"offload\"\nscheduling = \"static\"");
            put(text, &format!("cycles-per-packet = {}", offload.instructions));
            put(text, &format!("code-slots = {}", offload.programs));
        }
        let left = self.cycles_per_second * (1.0 - self.core_ceiling);
        put(
            text,
            &format!("\n# Cycles that core leaves: its ceiling is {:.0} %.", self.core_ceiling * 100.0),
        );
        for worker in 0..self.reachable_workers() {
            self.processor(text, &worker_name(worker), "worker", left);
        }
        if self.process_rings.is_some() {
            self.processor(text, "process", "process", self.cycles_per_second);
        }
        if self.kernel_hand_over.is_some() {
            self.processor(text, "host", "host", self.cycles_per_second);
        }
    }

    fn processor(&self, text: &mut String, name: &str, kind: &str, cycles: f64) {
        put(text, &format!("\n[[processor]]\nname = {name:?}\nkind = {kind:?}\nscheduling = \"dynamic\""));
        put(text, &format!("cycles-per-second = {cycles:.0}"));
        if let Some(memory) = self.memory {
            put(text, &format!("memory-bytes = {:.0}", memory / self.levels() as f64));
        }
    }

    /// Returns the number of workers that packets reach: without rings between workers, only the first.
    fn reachable_workers(&self) -> usize {
        if self.worker_rings.is_some() { self.workers } else { self.workers.min(1) }
    }

    /// Returns the number of levels that share the machine's processors and memory.
    fn levels(&self) -> usize {
        self.reachable_workers()
            + usize::from(self.process_rings.is_some())
            + usize::from(self.kernel_hand_over.is_some())
    }

    fn write_paths(&self, text: &mut String) {
        let core = 1.0 / self.core_ceiling;
        let ends: Vec<String> = match self.offload {
            Some(offload) => {
                switch(text, "XDP redirect");
                for port in self.ports() {
                    let (up, down) = (time(offload.redirect, None), time(Line::default(), None));
                    path(text, (&port.name, "offload"), Some(("XDP redirect", 1.0)), [up, down]);
                }
                vec!["offload".to_owned()]
            }
            None => self.ports().into_iter().map(|port| port.name).collect(),
        };
        if self.socket_rings.is_some() {
            switch(text, "socket rings");
        }
        let cycles = |line: Line| line.times(self.cycles_per_second * 1e-9);
        for end in &ends {
            let crossing = self.socket_rings.map(|_| ("socket rings", core));
            let half = self.socket_rings.unwrap_or_default().times(0.5);
            let send = self.offload.map(|offload| cycles(offload.pass));
            path(text, (end, &worker_name(0)), crossing, [time(half, send), time(half, None)]);
        }
        if let Some(line) = self.worker_rings {
            switch(text, "worker rings");
            for worker in 1..self.reachable_workers() {
                let both = [time(line, None), time(line, None)];
                path(text, (&worker_name(0), &worker_name(worker)), Some(("worker rings", core)), both);
            }
        }
        if let Some(line) = self.process_rings {
            switch(text, "process rings");
            let (half, from) = (time(line.times(0.5), None), worker_name(0));
            path(text, (&from, "process"), Some(("process rings", core)), [half.clone(), half]);
        }
        if let Some(line) = self.kernel_hand_over {
            switch(text, "kernel hand-over");
            let both = [time(line, None), time(Line::default(), None)];
            path(text, (&worker_name(0), "host"), Some(("kernel hand-over", core)), both);
        }
    }

    /// Writes how much may be promised. Levels that share processors may promise equal parts of them.
    fn provision(&self, text: &mut String) {
        put(text, "\n[provisioning]");
        if self.ports.is_empty() {
            put(text, &format!("\"{VIRTUAL}.in\" = \"unbounded\"\n\"{VIRTUAL}.out\" = \"unbounded\""));
        }
        // The offload takes processor time, too.
        let levels = self.levels() + usize::from(self.offload.is_some());
        let share = self.processors as f64 / levels as f64;
        if share < 1.0 {
            let optional = [("process", self.process_rings), ("host", self.kernel_hand_over)];
            let optional =
                optional.into_iter().filter(|(_, line)| line.is_some()).map(|(name, _)| name.to_owned());
            for name in (0..self.reachable_workers()).map(worker_name).chain(optional) {
                put(text, &format!("{name:?} = {share:.4}"));
            }
        }
    }
}

/// Name of the port of a machine without ports of a known rate.
const VIRTUAL: &str = "virtual";

fn worker_name(worker: usize) -> String {
    format!("worker-{worker}")
}

fn put(text: &mut String, lines: &str) {
    // Writing to a string can't fail.
    let _ = writeln!(text, "{lines}");
}

fn switch(text: &mut String, name: &str) {
    put(text, &format!("\n[[switch]]\nname = {name:?}"));
}

/// Returns a mode of transfers: time on the switch in nanoseconds, and cycles of the sender.
fn time(line: Line, send: Option<Line>) -> String {
    let send = send.map(|send| format!("send = {}, ", send.written())).unwrap_or_default();
    format!("{{ {send}time-ns = {} }}", line.written())
}

fn path(text: &mut String, (from, to): (&str, &str), crossing: Option<(&str, f64)>, modes: [String; 2]) {
    put(text, &format!("\n[[path]]\nfrom = {from:?}\nto = {to:?}\ntransfer = \"packet\""));
    if let Some((switch, factor)) = crossing {
        put(text, &format!("switches = [{{ name = {switch:?}, factor = {factor:.4} }}]"));
    }
    let [up, down] = modes;
    put(text, &format!("up = [{up}]\ndown = [{down}]"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::impact::Candidate;
    use crate::request::{Class, Cycles, Needs, Request, Stream};

    const fn line(packet: f64, byte: f64) -> Line {
        Line { packet, byte }
    }

    fn machine() -> Measured {
        Measured {
            name: "a \"machine\"".to_owned(),
            processors: 2,
            workers: 2,
            cycles_per_second: 2e9,
            core_ceiling: 0.5,
            memory: Some(4e9),
            ports: vec![MeasuredPort { name: "1000mbit".to_owned(), count: 2, bits_per_second: 1e9 }],
            offload: Some(Offload {
                instructions: 220,
                programs: 256,
                redirect: line(100.0, 0.1),
                pass: line(150.0, 0.2),
            }),
            socket_rings: Some(line(400.0, 0.4)),
            worker_rings: Some(line(50.0, 0.05)),
            kernel_hand_over: Some(line(600.0, 0.0)),
            process_rings: Some(line(1000.0, 0.0)),
        }
    }

    fn share(measured: &Measured, processor: &str, component: &str) -> f64 {
        let hardware = Hardware::parse(&measured.written().unwrap()).unwrap();
        let cycles = Cycles { packet: 1000.0, ..Cycles::default() };
        let request = Request {
            name: "service".to_owned(),
            class: Class::PerFlow,
            port: None,
            plugin: None,
            on: Vec::new(),
            user: None,
            needs: Needs {
                cycles: [("any".to_owned(), cycles)].into(),
                memory_bytes: 1e6,
                ..Needs::default()
            },
            input: Stream { packets_per_second: 1e5, bytes: 1000.0, bytes_maximum: None },
            output: None,
        };
        let candidate = Candidate::of(&hardware, &request).unwrap();
        let processor = hardware.processor(processor).unwrap();
        let choice = candidate.choices.iter().find(|choice| choice.processor == processor).unwrap();
        choice.impact.of(hardware.component(component).unwrap()).number()
    }

    #[test]
    fn impact_on_a_measured_machine_is_its_times_and_the_cycles_that_core_leaves() {
        let near = |processor, component, expected: f64| {
            let found = share(&machine(), processor, component);
            assert!((found - expected).abs() < 1e-6, "{component} at {processor}: {found}, not {expected}");
        };
        near("worker-0", "worker-0", 1e5 * 1000.0 / 1e9);
        near("worker-0", "socket rings", 1e5 * 800e-9 * 2.0);
        near("worker-0", "XDP redirect", 1e5 * 200e-9);
        near("worker-0", "1000mbit.in", 1e5 * (24.0 + 1000.0) * 8e-9 / 2.0);
        near("worker-1", "worker rings", 1e5 * 2.0 * 100e-9 * 2.0);
        near("process", "process", 1e5 * 1000.0 / 2e9);
        near("process", "process rings", 1e5 * 1000e-9 * 2.0);
        near("host", "kernel hand-over", 1e5 * 600e-9 * 2.0);
        near("host", "host.memory", 1e6 / 1e9);
    }

    #[test]
    fn levels_that_share_processors_share_the_provisioning() {
        let hardware = Hardware::parse(&machine().written().unwrap()).unwrap();
        let limit = hardware.components[hardware.component("worker-1").unwrap()].limit.number();
        assert!((limit - 0.4).abs() < 1e-6, "{limit}");
        let large = Measured { processors: 8, ..machine() };
        assert!(!large.written().unwrap().contains("worker-1\" ="));
    }

    #[test]
    fn file_without_optional_figures_has_only_workers() {
        let bare = Measured {
            processors: 4,
            workers: 2,
            cycles_per_second: 1e9,
            core_ceiling: 0.5,
            name: "bare".to_owned(),
            ..Measured::default()
        };
        let hardware = Hardware::parse(&bare.written().unwrap()).unwrap();
        let names: Vec<_> = hardware.processors.iter().map(|processor| processor.name.as_str()).collect();
        assert_eq!(names, ["worker-0"]);
    }

    #[test]
    fn impossible_figures_are_refused() {
        for wrong in [
            Measured { cycles_per_second: 0.0, ..machine() },
            Measured { cycles_per_second: f64::NAN, ..machine() },
            Measured { core_ceiling: 1.0, ..machine() },
            Measured { core_ceiling: 0.0, ..machine() },
            Measured { memory: Some(-1.0), ..machine() },
        ] {
            assert!(wrong.written().is_err(), "{wrong:?}");
        }
        for times in [[-1.0, 10.0], [10.0, f64::NAN], [10.0, 2e6]] {
            assert_eq!(Line::through([(64.0, times[0]), (1500.0, times[1])]), None);
        }
    }

    #[test]
    fn line_passes_through_both_points_unless_noise_bends_it() {
        let through = |small, large| Line::through([(100.0, small), (1100.0, large)]).unwrap();
        assert_eq!(through(200.0, 1200.0), line(100.0, 1.0));
        assert_eq!(through(300.0, 100.0), line(200.0, 0.0));
        assert_eq!(through(50.0, 1100.0), line(0.0, 1.0));
    }
}
