//! Figures of a machine, as a hardware file describes them.

use super::{OFFLOAD, OffloadLevel, PROCESS, WORKER};
use crate::hardware::{End, Hardware, HardwareError, Line, Modes, Path, Processor};

/// Figures of a machine, as far as they are known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Limits of the offload.
    pub offload: Option<OffloadLevel>,
    /// Memory that may be promised, in bytes.
    pub memory: Option<f64>,
    /// Switches between ports and levels.
    pub switches: Switches,
}

/// Switches between ports and levels, as far as their times are known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Switches {
    /// XDP program of a port, which redirects packets.
    pub redirect: Option<Crossing>,
    /// Rings of sockets between ports and workers.
    pub sockets: Option<Crossing>,
    /// Rings between workers.
    pub workers: Option<Crossing>,
    /// Rings between workers and plugin processes.
    pub processes: Ring,
}

/// Use of a switch by a packet that passes it there and back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Crossing {
    /// Time of a packet towards the level.
    pub up: Line,
    /// Time of a packet on its way back.
    pub down: Line,
    /// Bits per second; `None` where nothing limits them.
    pub bits: Option<f64>,
    /// Packets per second; `None` where nothing limits them.
    pub packets: Option<f64>,
    /// Factor of times and rates.
    pub factor: f64,
    /// Share of the switch that may be promised, 1 for the whole switch; infinite without a limit.
    pub limit: f64,
}

/// Capacity and cost of the ring between a worker and the processes of plugins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ring {
    /// Transfers per second that may be promised: two for each packet, there and back.
    pub transfers_per_second: f64,
    /// Cycles that the worker spends to exchange a packet.
    pub cycles: f64,
}

impl Ring {
    /// Figures of a machine that was not measured: a tenth of what the ring itself carried in `bench levels`, and the
    /// largest cost that `bench cpu --case process` accepts.
    pub const ASSUMED: Self = Self { transfers_per_second: 10_000_000.0, cycles: 300.0 };
}

impl Switches {
    /// Figures of a machine that was not measured: only the rings to processes have a limit.
    pub const ASSUMED: Self = Self { redirect: None, sockets: None, workers: None, processes: Ring::ASSUMED };
}

impl Figures {
    /// Figures of a machine that was not measured.
    pub const ASSUMED: Self = Self { offload: None, memory: None, switches: Switches::ASSUMED };

    /// Returns the figures of a hardware file, on a machine with `frequency` cycles per second, for packets of `bytes`
    /// bytes. A figure that the file lacks is that of [`Figures::ASSUMED`].
    ///
    /// # Errors
    /// The text is no hardware file.
    pub fn of_file(text: &str, bytes: f64, frequency: f64) -> Result<Self, HardwareError> {
        let hardware = Hardware::parse(text)?;
        let crossing = |from: &[Option<&str>], to| {
            from.iter().find_map(|from| Crossing::of(&hardware, path(&hardware, *from, to)?, bytes))
        };
        let ring = path(&hardware, Some(WORKER), PROCESS);
        let ring = ring.and_then(|path| Some((path, path.seconds(bytes).filter(|seconds| *seconds > 0.0)?)));
        let processes = ring.map_or(Ring::ASSUMED, |(path, seconds)| Ring {
            transfers_per_second: 2.0 / seconds * limit(&hardware, path).min(1.0),
            cycles: seconds * frequency,
        });
        let is_offload = |one: &&Processor| one.kind == OFFLOAD;
        Ok(Self {
            offload: hardware.processors.iter().find(is_offload).and_then(OffloadLevel::of),
            memory: memory(&hardware),
            switches: Switches {
                redirect: crossing(&[None], OFFLOAD),
                sockets: crossing(&[Some(OFFLOAD), None], WORKER),
                workers: crossing(&[Some(WORKER)], WORKER),
                processes,
            },
        })
    }
}

impl OffloadLevel {
    /// Returns the limits of a processor; `None` if it has none.
    fn of(processor: &Processor) -> Option<Self> {
        let crate::hardware::Cycles::Static { per_packet, .. } = processor.cycles else { return None };
        // The conversions saturate.
        Some(Self { instructions: per_packet as u32, variants: processor.code? as u32 })
    }

    /// Returns the limits that both levels keep.
    #[must_use]
    pub fn within(self, other: Self) -> Self {
        Self {
            instructions: self.instructions.min(other.instructions),
            variants: self.variants.min(other.variants),
        }
    }
}

impl Crossing {
    /// Returns the use of the switch of a path by packets around a size of `bytes`; `None` for a path without a
    /// switch.
    fn of(hardware: &Hardware, path: &Path, bytes: f64) -> Option<Self> {
        let &(switch, factor) = path.switches.first()?;
        let known = hardware.switches.get(switch)?;
        let sizes = [hardware.packet.minimum, bytes.max(hardware.packet.minimum + 1.0)];
        let line = |modes: &[Modes]| {
            let time = |bytes| Some(modes.iter().find(|mode| mode.carries(bytes))?.seconds(bytes) * 1e9);
            let [small, large] = sizes.map(time);
            Some(chord([(sizes[0], small?), (sizes[1], large?)]))
        };
        Some(Self {
            up: line(&path.up).unwrap_or_default(),
            down: line(&path.down).unwrap_or_default(),
            bits: known.bits,
            packets: known.packets,
            factor,
            limit: limit(hardware, path),
        })
    }

    /// Whether times limit the switch, and not rates.
    pub(super) fn is_timed(&self) -> bool {
        self.bits.is_none() && self.packets.is_none()
    }
}

/// Returns a line from 0 upwards that is at both points at least as high as they are.
fn chord([(small, fast), (large, slow)]: [(f64, f64); 2]) -> Line {
    let byte = (slow - fast) / (large - small);
    match byte {
        byte if byte <= 0.0 => Line { packet: fast.max(slow).max(0.0), byte: 0.0 },
        byte => Line { packet: (fast - byte * small).max(0.0), byte },
    }
}

/// Returns the path between processors of two kinds, or from ports.
fn path<'h>(hardware: &'h Hardware, from: Option<&str>, to: &str) -> Option<&'h Path> {
    let kind = |index: usize| hardware.processors.get(index).map(|one| &*one.kind);
    let is_it = |path: &&Path| {
        let start = match path.from {
            End::Processor(index) => kind(index),
            End::Port(_) => None,
        };
        start == from && kind(path.to) == Some(to)
    };
    hardware.paths.iter().find(is_it)
}

/// Returns the smallest share that may be promised of the switches of a path.
fn limit(hardware: &Hardware, path: &Path) -> f64 {
    let switches = path.switches.iter().filter_map(|(switch, _)| hardware.switches.get(*switch));
    let used = switches.flat_map(|switch| switch.used).flatten();
    let limits = used.filter_map(|component| Some(hardware.components.get(component)?.limit.number()));
    limits.fold(f64::INFINITY, f64::min)
}

/// Returns the memory of all processors that may be promised; `None` if none is known.
fn memory(hardware: &Hardware) -> Option<f64> {
    let part = |processor: &Processor| {
        let limit = hardware.components.get(processor.stores[0]?)?.limit.number();
        Some(processor.memory? * limit)
    };
    let parts: Vec<f64> = hardware.processors.iter().filter_map(part).collect();
    (!parts.is_empty()).then(|| parts.iter().sum()).filter(|sum: &f64| sum.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::{Measured, Offload};

    const fn line(packet: f64, byte: f64) -> Line {
        Line { packet, byte }
    }

    fn measured() -> Measured {
        Measured {
            name: "m".to_owned(),
            processors: 2,
            workers: 2,
            cycles_per_second: 2e9,
            core_ceiling: 0.5,
            memory: Some(4e9),
            offload: Some(Offload {
                instructions: 220,
                programs: 256,
                redirect: line(100.0, 0.1),
                pass: line(150.0, 0.2),
            }),
            socket_rings: Some(line(400.0, 0.4)),
            worker_rings: Some(line(50.0, 0.05)),
            process_rings: Some(line(100.0, 0.0)),
            ..Measured::default()
        }
    }

    fn figures(text: &str) -> Figures {
        Figures::of_file(text, 1_538.0, 2e9).unwrap()
    }

    fn assert_near(found: Line, expected: Line) {
        let is_near =
            (found.packet - expected.packet).abs() < 1e-3 && (found.byte - expected.byte).abs() < 1e-6;
        assert!(is_near, "{found:?} instead of {expected:?}");
    }

    #[test]
    fn figures_are_those_of_a_measured_machine() {
        let text = measured().written().unwrap();
        let Figures { offload, memory, switches } = figures(&text);
        assert_eq!(offload, Some(OffloadLevel { instructions: 220, variants: 256 }));
        assert!((memory.unwrap() - 4e9).abs() < 10.0, "{memory:?}");
        let Switches { redirect, sockets, workers, processes } = switches;
        let (redirect, sockets, workers) = (redirect.unwrap(), sockets.unwrap(), workers.unwrap());
        assert_near(redirect.up, line(100.0, 0.1));
        assert_near(redirect.down, line(0.0, 0.0));
        assert_near(sockets.up, line(200.0, 0.2));
        assert_near(sockets.down, line(200.0, 0.2));
        assert_near(workers.down, line(50.0, 0.05));
        assert_eq!((redirect.factor, sockets.factor, sockets.limit), (1.0, 2.0, 1.0));
        assert!(
            (processes.transfers_per_second - 2e7).abs() < 1.0 && (processes.cycles - 200.0).abs() < 1e-6,
            "{processes:?}"
        );
    }

    #[test]
    fn provisioning_of_the_file_limits_what_may_be_promised() {
        let text = measured().written().unwrap();
        let limited = text.replace(
            "[provisioning]",
            "[provisioning]\n\"socket rings\" = 0.5\n\"process rings\" = 0.25\n\"process.memory\" = 0",
        );
        let (whole, found) = (figures(&text), figures(&limited));
        assert_eq!(found.switches.sockets.unwrap().limit, 0.5);
        let transfers = |figures: Figures| figures.switches.processes.transfers_per_second;
        assert!((transfers(found) * 4.0 - transfers(whole)).abs() < 1.0);
        assert!((found.memory.unwrap() * 3.0 - whole.memory.unwrap() * 2.0).abs() < 10.0, "{found:?}");
        let unbounded = text.replace("[provisioning]", "[provisioning]\n\"socket rings\" = \"unbounded\"");
        assert_eq!(figures(&unbounded).switches.sockets.unwrap().limit, f64::INFINITY);
    }

    #[test]
    fn file_without_switches_leaves_the_assumed_figures() {
        let bare = Measured {
            workers: 1,
            memory: None,
            offload: None,
            socket_rings: None,
            worker_rings: None,
            process_rings: None,
            ..measured()
        };
        assert_eq!(figures(&bare.written().unwrap()), Figures::ASSUMED);
        assert!(Figures::of_file("name = 1", 64.0, 2e9).unwrap_err().to_string().contains("name"));
    }

    #[test]
    fn switch_with_a_rate_keeps_it() {
        let text = "name = \"bus\"\n[packet]\nminimum = 64\nmaximum = 1514\nheader = 64\n[[port]]\nname = \"p\"\n\
                    count = 1\nbyte-ns = 1\n[[switch]]\nname = \"bus\"\nbits-per-second = 1e9\n[[processor]]\n\
                    name = \"w\"\nkind = \"worker\"\nscheduling = \"dynamic\"\ncycles-per-second = 1e9\n[[path]]\n\
                    from = \"p\"\nto = \"w\"\ntransfer = \"packet\"\nswitches = [{ name = \"bus\", factor = 2 }]\n";
        let sockets = figures(text).switches.sockets.unwrap();
        assert_eq!((sockets.bits, sockets.factor, sockets.is_timed()), (Some(1e9), 2.0, false));
        assert_eq!(sockets.up, line(0.0, 0.0));
    }

    #[test]
    fn chord_is_never_below_its_points() {
        for points in [
            [(64.0, 100.0), (1_500.0, 400.0)],
            [(64.0, 400.0), (1_500.0, 100.0)],
            [(64.0, 1.0), (100.0, 90.0)],
        ] {
            let line = chord(points);
            assert!(line.packet >= 0.0 && line.byte >= 0.0, "{line:?}");
            assert!(points.iter().all(|(size, time)| line.at(*size) >= time - 1e-9), "{line:?}");
        }
    }
}
