//! Machine and software of a benchmark run.

use std::fs;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::testbed::process::run;

/// Kind of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Platform {
    /// Unknown kind.
    #[default]
    Unknown,
    /// Physical machine.
    Physical,
    /// Virtual machine, with the hypervisor product as its firmware names it.
    Virtual(String),
}

/// Machine and software with which a benchmark ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Name of the processor.
    pub processor: String,
    /// Number of processors.
    pub processors: usize,
    /// Widest vector instructions of the processor.
    pub vectors: String,
    /// Memory size in MiB.
    pub memory: u64,
    /// Kind of the machine.
    pub platform: Platform,
    /// Name and version of the kernel.
    pub kernel: String,
    /// Version of Millrace, and the compiler that built it.
    pub millrace: String,
    /// Versions of the installed peers and tools.
    pub tools: Vec<String>,
    /// Time of the measurement in UTC.
    pub date: String,
}

impl Machine {
    /// Returns the description of this machine, with the current time.
    pub fn this() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let uname = nix::sys::utsname::uname().ok();
        let kernel = uname
            .map(|name| format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy()));
        let version = |program: &str, arguments: &[&str], name: &str| {
            let said = run(program, arguments).ok()?;
            let line = said.lines().next()?.trim();
            Some(if name.is_empty() { line.to_owned() } else { format!("{name} {line}") })
        };
        let tools = [
            version("pkg-config", &["--modversion", "libdpdk"], "DPDK"),
            version("valgrind", &["--version"], ""),
            version("iperf3", &["--version"], ""),
        ];
        Self {
            processor: value(&cpuinfo, "model name").unwrap_or(std::env::consts::ARCH).to_owned(),
            processors: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            vectors: crate::instructions::vectors(true).to_owned(),
            memory: value(&meminfo, "MemTotal").and_then(kibibytes).unwrap_or(0) / 1024,
            platform: platform(&cpuinfo, &product()),
            kernel: kernel.unwrap_or_default(),
            millrace: format!("{} ({})", env!("CARGO_PKG_VERSION"), env!("MILLRACE_COMPILER")),
            tools: tools.into_iter().flatten().collect(),
            date: date(Timestamp::now()),
        }
    }

    /// Describes the machine and its effect on the figures, in a few sentences.
    pub fn sentence(&self) -> String {
        let noun = if self.processors == 1 { "processor" } else { "processors" };
        let (place, meaning) = match &self.platform {
            Platform::Virtual(product) => {
                let of = if product.is_empty() { String::new() } else { format!(" ({product})") };
                (
                    format!("a virtual machine{of}"),
                    "The host may take the processors away at any moment, so times and rates differ from run to run: \
                     compare ratios to the peer of the same run, and instructions.",
                )
            }
            Platform::Physical => (
                "a physical machine".to_owned(),
                "Clock rates and caches are this processor's: compare ratios to the peer of the same run.",
            ),
            Platform::Unknown => (
                "a machine of unknown kind".to_owned(),
                "Times and rates are this machine's: compare ratios to the peer of the same run.",
            ),
        };
        let few = if self.processors < 3 {
            " Generator, router and receiver share these processors, so rates are lower than with a processor for each."
        } else {
            ""
        };
        format!(
            "These figures were measured in one run on {place} with {} {noun} ({}), under {}. {meaning}{few}",
            self.processors, self.processor, self.kernel
        )
    }
}

/// Returns the product name in the firmware, such as `QEMU Standard PC`. Empty if there is none.
fn product() -> String {
    let read = |name: &str| fs::read_to_string(format!("/sys/class/dmi/id/{name}")).unwrap_or_default();
    let words = [read("sys_vendor"), read("product_name")].map(|text| text.trim().to_owned());
    words.join(" ").trim().to_owned()
}

/// Returns the kind of machine. On x86, a processor flag in `cpuinfo` shows a hypervisor.
fn platform(cpuinfo: &str, product: &str) -> Platform {
    let Some(flags) = value(cpuinfo, "flags") else { return Platform::Unknown };
    match flags.split_ascii_whitespace().any(|flag| flag == "hypervisor") {
        true => Platform::Virtual(product.to_owned()),
        false => Platform::Physical,
    }
}

/// Returns the value of `name` in the first matching line `name : value`.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim_start().strip_prefix(':')?.trim())
}

fn kibibytes(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// Formats a time as `2026-11-22 23:05 UTC`.
fn date(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_match_the_calendar() {
        let at = |seconds| date(Timestamp::from_second(seconds).unwrap());
        assert_eq!(at(0), "1970-01-01 00:00 UTC");
        assert_eq!(at(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(at(1_767_225_599), "2025-12-31 23:59 UTC");
        assert_eq!(at(1_795_388_700), "2026-11-22 23:05 UTC");
    }

    #[test]
    fn hypervisor_flag_marks_a_virtual_machine() {
        let of = |flags: &str| platform(&format!("model name\t: A\nflags\t\t: {flags}\n"), "QEMU PC");
        assert_eq!(of("fpu hypervisor avx2"), Platform::Virtual("QEMU PC".to_owned()));
        assert_eq!(of("fpu avx2"), Platform::Physical);
        assert_eq!(platform("Features : fp asimd\n", ""), Platform::Unknown);
    }

    #[test]
    fn sentence_names_processors_kind_and_kernel_and_explains_figures() {
        let machine = Machine {
            processor: "Xeon".to_owned(),
            processors: 2,
            platform: Platform::Virtual("QEMU PC".to_owned()),
            kernel: "Linux 6.1".to_owned(),
            ..Machine::default()
        };
        let sentence = machine.sentence();
        for part in [
            "a virtual machine (QEMU PC) with 2 processors (Xeon)",
            "under Linux 6.1",
            "compare ratios",
            "share",
        ] {
            assert!(sentence.contains(part), "{part}: {sentence}");
        }
        let physical = Machine { processors: 16, platform: Platform::Physical, ..machine }.sentence();
        assert!(physical.contains("a physical machine") && !physical.contains("share"), "{physical}");
    }

    #[test]
    fn this_machine_is_known() {
        let _alone = crate::interrupt::FLAG_IN_USE.lock().unwrap();
        let machine = Machine::this();
        assert!(machine.processors > 0 && machine.memory > 0 && machine.kernel.starts_with("Linux "));
        assert_eq!(value("model name\t: A B\n", "model name"), Some("A B"));
    }
}
