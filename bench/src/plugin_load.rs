//! `plugin-load`: time from the bytes of a plugin's module to its first packet. The benchmark uses the
//! daemon's code to load the plugin.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant as Clock;

use millrace_compiler::{ChildCommand, Compiler, CompilerSettings, Source};
use millrace_packet::{FlowKey, Packet, Pool};
use millrace_plugin::wasm::{LoadedPlugin, Sandbox, SandboxSettings, Tier, compile};
use millrace_plugin_abi::{Packets, Plugin, Progress, Verdict};
use millrace_units::{Instant, PortId};
use serde_json::Map;

use crate::interrupt::check;
use crate::plugins::module;
use crate::statistics::{extremes, median};
use crate::testbed::scratch::Scratch;
use crate::{BenchError, Bound, Measurement, Options};

/// Number of repetitions; the result is their median.
const REPETITIONS: usize = 15;
/// Module of the large plugin: about 100 KB, drops every packet.
const PLUGIN: &[u8] = module!("large");

/// Promised maximum: milliseconds from a module of 100 KB to its first packet, including compilation. The
/// next constant is the maximum if the code comes from the cache.
const COLD_LIMIT: f64 = 25.0;
const KEPT_LIMIT: f64 = 5.0;

/// Runs all cases of the benchmark `plugin-load`.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let size = PLUGIN.len() / 1000;
    let mut results = Vec::new();
    let (cold, better) = cold(options)?;
    let optimised = compiling(Tier::Optimised)?;
    let baseline = compiling(Tier::Baseline)?;
    let kept = kept(options)?;
    let create = creating()?;
    let mut report = |case: String, times: &[f64]| {
        let (least, most) = extremes(times);
        (options.progress)(&format!("{case}: {:.2} ms ({least:.2} to {most:.2})", median(times)));
        Measurement::of(case, median(times), "ms")
    };
    let first = report(format!("{size} KB module, time to the first packet, compiled"), &cold);
    results.push(first.promising(Bound::AtMost, COLD_LIMIT));
    let first = report(format!("{size} KB module, time to the first packet, cached"), &kept);
    results.push(first.promising(Bound::AtMost, KEPT_LIMIT));
    results.push(report(format!("{size} KB module, time to optimised code"), &better));
    let alone = report("baseline compilation".to_owned(), &baseline);
    results.push(alone.beside("optimising compilation", median(&optimised)));
    results.push(report("creation of an instance".to_owned(), &create));
    Ok(results)
}

fn failed(what: &str, error: impl std::fmt::Display) -> BenchError {
    BenchError::measurement("plugin-load", format!("can't {what}: {error}"))
}

fn compiler(options: &Options<'_>, cache: Option<PathBuf>) -> Result<Compiler, BenchError> {
    let sandbox =
        Sandbox::new(SandboxSettings::default()).map_err(|error| failed("make the sandbox", error))?;
    let command = ChildCommand { program: options.binary.clone(), arguments: vec!["compile-plugin".into()] };
    Ok(Compiler::new(sandbox, CompilerSettings { command, cache, ..CompilerSettings::default() }))
}

/// Returns the milliseconds until the first packet, and until the optimised code is available. The run has no
/// code cache.
fn cold(options: &Options<'_>) -> Result<(Vec<f64>, Vec<f64>), BenchError> {
    let compiler = compiler(options, None)?;
    let (mut first, mut better) = (Vec::new(), Vec::new());
    // The first repetition does not count, since it loads the binary into memory.
    for repetition in 0..=REPETITIONS {
        check()?;
        let begun = Clock::now();
        let upgraded = load_and_use(&compiler, Source::Compiled)?;
        let used = milliseconds(begun);
        let upgraded = upgraded.recv().unwrap_or(Ok(()));
        upgraded.map_err(|error| failed("compile the optimised code", error))?;
        if repetition > 0 {
            first.push(used);
            better.push(milliseconds(begun));
        }
    }
    Ok((first, better))
}

/// Returns the milliseconds to the first packet with code from the cache.
fn kept(options: &Options<'_>) -> Result<Vec<f64>, BenchError> {
    let cache = Scratch::new()?;
    let compiler = compiler(options, Some(cache.file("cache")))?;
    // The channel closes when the optimised code is in the cache.
    let _ = load_and_use(&compiler, Source::Compiled)?.recv();
    let mut times = Vec::new();
    for _ in 0..REPETITIONS {
        check()?;
        let begun = Clock::now();
        load_and_use(&compiler, Source::Cache)?;
        times.push(milliseconds(begun));
    }
    Ok(times)
}

/// Loads a plugin, creates an instance, and passes it a packet. The returned receiver gets the result of the
/// optimising compilation.
fn load_and_use(compiler: &Compiler, expected: Source) -> Result<Receiver<Result<(), String>>, BenchError> {
    let (sender, receiver) = channel();
    let upgraded = move |_: &_, result: Result<(), millrace_compiler::CompileError>| {
        // The receiver may already be dropped.
        let _ = sender.send(result.map_err(|error| error.to_string()));
    };
    let loaded = compiler.load(PLUGIN, upgraded).map_err(|error| failed("load the plugin", error))?;
    if loaded.source != expected {
        return Err(failed("load the plugin", format!("the plugin was {}", loaded.source)));
    }
    let plugin = LoadedPlugin::new(loaded.plugin).map_err(|error| failed("load the plugin", error))?;
    treat(&plugin)?;
    Ok(receiver)
}

/// Creates an instance and passes it a packet.
fn treat(plugin: &LoadedPlugin) -> Result<(), BenchError> {
    let mut instance = plugin.create(&Map::new()).map_err(|error| failed("make an instance", error))?;
    let pool = Pool::new(64).map_err(|error| failed("make packet memory", error))?;
    let packet: Packet =
        pool.packet_from(&[0; 60]).ok_or_else(|| failed("make a packet", "no packet memory left"))?;
    let ends = (std::net::Ipv4Addr::new(10, 0, 0, 1), std::net::Ipv4Addr::new(10, 0, 0, 2));
    let keys = [FlowKey::v4(ends.0, ends.1, 17, (1000, 53), PortId(1))];
    let (mut packets, mut verdicts) = ([packet], [Verdict::Pass]);
    let mut packets = Packets::new(&mut packets, &keys, &[0], &mut verdicts);
    let mut progress = instance.process(&mut packets, Instant::from_nanos(1));
    while progress != Progress::Done {
        progress = instance.resume(&mut packets, Instant::from_nanos(2));
    }
    match verdicts {
        [Verdict::Drop(_)] => Ok(()),
        [other] => Err(failed("treat a packet", format!("the verdict was {other:?}"))),
    }
}

/// Returns the milliseconds to compile the module, without loading and checking.
fn compiling(tier: Tier) -> Result<Vec<f64>, BenchError> {
    let mut times = Vec::new();
    for _ in 0..REPETITIONS {
        check()?;
        let begun = Clock::now();
        compile(PLUGIN, tier).map_err(|error| failed("compile", error))?;
        times.push(milliseconds(begun));
    }
    Ok(times)
}

/// Returns the milliseconds to create an instance of a compiled plugin.
fn creating() -> Result<Vec<f64>, BenchError> {
    let sandbox =
        Sandbox::new(SandboxSettings::default()).map_err(|error| failed("make the sandbox", error))?;
    let code = sandbox.compile(PLUGIN).map_err(|error| failed("compile", error))?;
    let plugin = LoadedPlugin::new(code).map_err(|error| failed("load the plugin", error))?;
    let mut times = Vec::new();
    for _ in 0..20 * REPETITIONS {
        let begun = Clock::now();
        let instance = plugin.create(&Map::new()).map_err(|error| failed("make an instance", error))?;
        times.push(milliseconds(begun));
        drop(instance);
    }
    Ok(times)
}

fn milliseconds(begun: Clock) -> f64 {
    begun.elapsed().as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_is_a_plugin_of_about_100_kilobytes() {
        assert!((80_000..120_000).contains(&PLUGIN.len()), "{}", PLUGIN.len());
        assert_eq!(millrace_plugin::wasm::inspect(PLUGIN).unwrap().manifest.name, "bench");
    }
}
