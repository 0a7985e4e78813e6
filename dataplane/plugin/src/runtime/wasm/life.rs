//! Life of an instance as one future: initialization, calls, and a fault that ends it.
//!
//! The future owns the store, so no borrow lasts over a suspension, and dropping the future ends the plugin
//! at any point. The instance polls the future without an executor: a poll returns at the end of the plugin's
//! slice, or when the plugin waits for work.

use std::convert::Infallible;
use std::future::poll_fn;
use std::task::Poll;

use millrace_plugin_abi::binary::{ABI_VERSION, export};
use wasmtime::{Error, Instance, Memory, Store, TypedFunc, WasmParams, WasmResults};

use super::code::WasmPlugin;
use super::entry::{Entry, at, when_late};
use super::host::Data;
use super::staging::{Area, Step};
use crate::Manifest;
use crate::fault::{Fault, FaultKind};
use crate::runtime::exchange::{Exchange, Job, Shared};
use crate::runtime::service_state::ServiceState;

/// End of a plugin's life.
pub(super) struct End {
    pub cause: Cause,
    /// Number of short calls in a row after which the plugin's functions may run on the worker's stack in its
    /// next life.
    pub short_calls: u32,
}

/// Cause of the end of a plugin's life.
pub(super) enum Cause {
    Fault(Fault),
    /// A call on the worker's stack wasn't short, so it was cut. `had_effect` states whether the call had an
    /// effect outside the plugin's memory.
    Misjudged {
        had_effect: bool,
    },
}

/// Start conditions of a plugin's life.
pub(super) struct Start {
    /// Settings as JSON.
    pub settings: Vec<u8>,
    /// Maximum bytes of memory and tables.
    pub most_memory: usize,
    /// Number of short calls in a row after which a function runs on the worker's stack; 0 for never.
    pub short_calls: u32,
}

/// Runs an instance of `plugin` until it fails, or until a call on the worker's stack is cut.
pub(super) async fn run(plugin: WasmPlugin, shared: Shared, start: Start) -> End {
    // Take the best code, which may be better than that of the previous start.
    let plugin = plugin.current();
    let short_calls = start.short_calls;
    match Life::begin(&plugin, shared, &start).await {
        Ok((mut life, area)) => match life.serve(&area).await {
            Ok(never) => match never {},
            Err(fault) => life.end(fault),
        },
        Err(fault) => End { cause: Cause::Fault(fault), short_calls },
    }
}

struct Life {
    plugin: WasmPlugin,
    store: Store<Data>,
    exports: Exports,
}

/// Memory and exported functions of a plugin.
struct Exports {
    memory: Memory,
    abi: TypedFunc<(), u32>,
    reserve: TypedFunc<u32, u32>,
    release: TypedFunc<(u32, u32), ()>,
    init: TypedFunc<(u32, u32), i32>,
    packets: Entry<u32>,
    control: Option<TypedFunc<(u32, u32, u32, u32), i32>>,
    periodic: Option<Entry<u64>>,
    flow_ended: Option<Entry<u32>>,
    save: Option<TypedFunc<(), i32>>,
    restore: Option<TypedFunc<(u32, u32, u32), i32>>,
    message: Option<TypedFunc<(u32, u32), ()>>,
}

impl Exports {
    fn of(store: &mut Store<Data>, instance: &Instance, short_calls: u32) -> wasmtime::Result<Self> {
        Ok(Self {
            memory: instance
                .get_memory(&mut *store, export::MEMORY)
                .ok_or_else(|| Error::msg("it has no memory"))?,
            abi: instance.get_typed_func(&mut *store, export::ABI)?,
            reserve: instance.get_typed_func(&mut *store, export::RESERVE)?,
            release: instance.get_typed_func(&mut *store, export::RELEASE)?,
            init: instance.get_typed_func(&mut *store, export::INIT)?,
            packets: Entry::new(
                instance.get_typed_func(&mut *store, export::PACKETS)?,
                export::PACKETS,
                short_calls,
            ),
            control: optional(instance, store, export::CONTROL)?,
            periodic: optional(instance, store, export::PERIODIC)?
                .map(|function| Entry::new(function, export::PERIODIC, short_calls)),
            flow_ended: optional(instance, store, export::FLOW_ENDED)?
                .map(|function| Entry::new(function, export::FLOW_ENDED, short_calls)),
            save: optional(instance, store, export::SAVE)?,
            restore: optional(instance, store, export::RESTORE)?,
            message: optional(instance, store, export::MESSAGE)?,
        })
    }

    /// Returns the largest number of short calls in a row that a function needs before it runs on the worker's
    /// stack.
    fn short_calls(&self) -> u32 {
        let periodic = self.periodic.as_ref().map_or(0, |entry| entry.shortness.needed());
        let flow_ended = self.flow_ended.as_ref().map_or(0, |entry| entry.shortness.needed());
        self.packets.shortness.needed().max(periodic).max(flow_ended)
    }
}

fn optional<P: WasmParams, R: WasmResults>(
    instance: &Instance,
    store: &mut Store<Data>,
    name: &str,
) -> wasmtime::Result<Option<TypedFunc<P, R>>> {
    let Some(function) = instance.get_func(&mut *store, name) else { return Ok(None) };
    function.typed(&*store).map(Some)
}

/// Converts an error at the start of a plugin into a fault. An error that is no trap counts as
/// [`FaultKind::Init`].
fn at_begin(error: Error) -> Fault {
    let fault = Fault::of_error(&error, "its initialization");
    let kind = if error.is::<wasmtime::Trap>() { fault.kind } else { FaultKind::Init };
    Fault { kind, ..fault }
}

/// Memory that the plugin has reserved for a message.
struct Message {
    address: u32,
    bytes: u32,
}

/// Bytes of an instance that don't count towards its memory limit, from the bytes for functions, globals and
/// passive segments. Ordinary plugins need fewer, so with a limit of N pages they get N pages of memory.
const UNCOUNTED: usize = 64 << 10;

/// Returns the bytes that count towards the memory limit at the start, when the plugin has neither memory nor
/// tables.
fn counted_bytes(plugin: &WasmPlugin, most_memory: usize) -> Result<usize, Fault> {
    let bytes = plugin.instance_bytes();
    let counted = bytes.saturating_sub(UNCOUNTED);
    if counted <= most_memory {
        return Ok(counted);
    }
    let text = format!(
        "functions, globals and passive segments take {bytes} bytes of each instance, above its memory limit \
         of {most_memory} bytes: build the plugin with fewer, or raise `memory`"
    );
    Err(Fault::new(FaultKind::Init, text))
}

impl Life {
    async fn begin(plugin: &WasmPlugin, shared: Shared, start: &Start) -> Result<(Self, Area), Fault> {
        let Start { settings, most_memory, short_calls } = start;
        let (most_memory, short_calls) = (*most_memory, *short_calls);
        let sandbox = plugin.sandbox();
        let bytes = counted_bytes(plugin, most_memory)?;
        shared.with(|exchange| exchange.memory.grow(bytes as u64, true));
        let data = Data {
            shared,
            memory: None,
            area: None,
            service: 0,
            on_worker: false,
            late: 0,
            is_cut: false,
            has_effect: false,
            most_memory,
            bytes,
        };
        let mut store = Store::new(plugin.engine(), data);
        store.limiter(|data| data);
        let slice = sandbox.slice();
        store.epoch_deadline_callback(move |store| Ok(when_late(store, slice)));
        store.set_epoch_deadline(sandbox.slice());
        let instance = plugin.linked().instantiate_async(&mut store).await.map_err(at_begin)?;
        let exports = Exports::of(&mut store, &instance, short_calls).map_err(at_begin)?;
        store.data_mut().memory = Some(exports.memory);
        let abi = exports.abi.call_async(&mut store, ()).await.map_err(at(export::ABI))?;
        if abi != ABI_VERSION {
            let text = format!(
                "its code has plugin ABI version {abi}, this router has {ABI_VERSION}: rebuild the plugin"
            );
            return Err(Fault::new(FaultKind::Init, text));
        }
        let mut life = Self { plugin: plugin.clone(), store, exports };
        life.place_service().await?;
        life.init(settings).await?;
        life.keep_service()?;
        let area = life.area(plugin.manifest()).await?;
        life.store.data_mut().area = Some(area);
        life.exchange(|exchange| exchange.maps.has_begun = true);
        Ok((life, area))
    }

    /// Returns the end of the life after a fault, or after the end of a call that was cut.
    fn end(&self, fault: Fault) -> End {
        let data = self.store.data();
        let cause = match data.is_cut {
            true => Cause::Misjudged { had_effect: data.has_effect },
            false => Cause::Fault(fault),
        };
        End { cause, short_calls: self.exports.short_calls() }
    }

    /// Initializes the plugin with its settings.
    async fn init(&mut self, settings: &[u8]) -> Result<(), Fault> {
        let refused = |text: String| Fault::new(FaultKind::Init, text);
        let message = self.pass(&[settings]).await?.map_err(refused)?;
        self.exchange(|exchange| exchange.answer.listen());
        let init = self.exports.init.clone();
        let result = init.call_async(&mut self.store, (message.address, settings.len() as u32)).await;
        let result = result.map_err(at(export::INIT))?;
        let answer = self.exchange(|exchange| exchange.answer.take(result));
        self.release(message).await?;
        answer.map(drop).map_err(refused)
    }

    /// Reserves plugin memory for the service state, if the plugin declares one.
    async fn place_service(&mut self) -> Result<(), Fault> {
        let bytes = self.exchange(|exchange| {
            exchange.service.is_news = true;
            exchange.service.len()
        });
        if bytes == 0 {
            return Ok(());
        }
        let address = self.reserve(bytes).await?;
        if address == 0 || !address.is_multiple_of(8) {
            let problem =
                "millrace_reserve returned no memory aligned to 8 bytes for the state common to all flows";
            return Err(Fault::new(FaultKind::Init, problem.to_owned()));
        }
        self.store.data_mut().service = address;
        self.show_service()
    }

    /// Calls `copy` with the plugin's copy and the router's copy of the service state.
    fn with_service(&mut self, copy: impl FnOnce(&mut [u8], &mut ServiceState)) -> Result<(), Fault> {
        let (memory, data) = self.exports.memory.data_and_store_mut(&mut self.store);
        let start = data.service as usize;
        data.shared.with(|exchange| {
            let Some(place) = memory.get_mut(start..start + exchange.service.len()) else {
                let text = "millrace_reserve returned an address outside the plugin's memory".to_owned();
                return Err(Fault::new(FaultKind::OutOfBounds, text));
            };
            copy(place, &mut exchange.service);
            Ok(())
        })
    }

    /// Copies the service state into the plugin's memory if the router has written it.
    #[inline(always)]
    fn show_service(&mut self) -> Result<(), Fault> {
        if self.store.data().service == 0 || !self.exchange(|exchange| exchange.service.is_news) {
            return Ok(());
        }
        self.with_service(|place, service| {
            service.read(place);
            service.is_news = false;
        })
    }

    /// Copies the service state from the plugin's memory to the router.
    #[inline(always)]
    fn keep_service(&mut self) -> Result<(), Fault> {
        if self.store.data().service == 0 {
            return Ok(());
        }
        self.with_service(|place, service| service.write(place))
    }

    async fn area(&mut self, manifest: &Manifest) -> Result<Area, Fault> {
        let address = self.reserve(Area::bytes(manifest)).await?;
        let memory = self.exports.memory.data_size(&self.store);
        if let Some(area) = Area::reserved(address, manifest, memory) {
            return Ok(area);
        }
        let problem = match address {
            0 => "the plugin has no memory for packets: millrace_reserve returned 0".to_owned(),
            _ => format!(
                "millrace_reserve returned {address}: not aligned to 8 bytes, or outside the plugin's memory"
            ),
        };
        Err(Fault::new(FaultKind::Init, problem))
    }

    /// Runs the plugin's steps, one after the other, until a fault. Without work, the poll ends.
    async fn serve(&mut self, area: &Area) -> Result<Infallible, Fault> {
        let mut is_first = true;
        loop {
            let Some(step) = self.next(area)? else {
                pause().await;
                is_first = true;
                continue;
            };
            if !std::mem::take(&mut is_first) && self.is_late() {
                pause().await;
            }
            self.show_service()?;
            match step {
                // The common case: a short call needs no memory for a suspension.
                Step::Packets(call, count) if self.exports.packets.shortness.is_shown(count) => {
                    let slice = self.plugin.sandbox().slice();
                    self.exports.packets.call_here(&mut self.store, slice, call, count)?;
                }
                _ => self.take(step).await?,
            }
            self.keep_service()?;
        }
    }

    /// Whether the current slice is over.
    fn is_late(&mut self) -> bool {
        let sandbox = self.plugin.sandbox();
        let ticks = sandbox.ticker().ticks();
        let slice = sandbox.slice();
        self.exchange(|exchange| ticks.wrapping_sub(exchange.since) >= slice)
    }

    /// Returns the next step of the plugin; `None` if no work is left.
    #[inline]
    fn next(&mut self, area: &Area) -> Result<Option<Step>, Fault> {
        let (memory, data) = self.exports.memory.data_and_store_mut(&mut self.store);
        let next = data.shared.with(|exchange| exchange.next(memory, area));
        next.map_err(|trap| Fault::of_error(&trap.into(), "a call"))
    }

    async fn take(&mut self, step: Step) -> Result<(), Fault> {
        let Self { plugin, store, exports: Exports { packets, flow_ended, periodic, .. } } = self;
        let slice = plugin.sandbox().slice();
        match (step, flow_ended, periodic) {
            (Step::Packets(call, count), ..) => packets.call(store, slice, call, count).await,
            (Step::FlowEnded(flow), Some(flow_ended), _) => flow_ended.call(store, slice, flow, 1).await,
            (Step::Periodic(now), _, Some(periodic)) => periodic.call(store, slice, now.as_nanos(), 1).await,
            (Step::Job, ..) => self.do_job().await,
            _ => Ok(()),
        }
    }

    async fn do_job(&mut self) -> Result<(), Fault> {
        let Some(job) = self.exchange(|exchange| exchange.jobs.pending.take()) else { return Ok(()) };
        self.store.set_epoch_deadline(self.plugin.sandbox().slice());
        let outcome = self.carry_out(job).await?;
        self.exchange(|exchange| exchange.jobs.outcome = Some(outcome));
        Ok(())
    }

    fn exchange<R>(&mut self, look: impl FnOnce(&mut Exchange) -> R) -> R {
        self.store.data().shared.with(look)
    }

    async fn carry_out(&mut self, job: Job) -> Result<Result<Vec<u8>, String>, Fault> {
        match job {
            Job::Control { name, arguments } => self.control(&name, &arguments).await,
            Job::Message(bytes) => self.message(&bytes).await,
            Job::Save => self.save().await,
            Job::Restore { state, version } => self.restore(&state, version).await,
        }
    }

    async fn control(&mut self, name: &str, arguments: &[u8]) -> Result<Result<Vec<u8>, String>, Fault> {
        let Some(control) = self.exports.control.clone() else {
            return Ok(Err("the plugin takes no messages: it doesn't export millrace_control".to_owned()));
        };
        let message = match self.pass(&[name.as_bytes(), arguments]).await? {
            Ok(message) => message,
            Err(problem) => return Ok(Err(problem)),
        };
        let length = name.len() as u32;
        let parameters = (message.address, length, message.address + length, arguments.len() as u32);
        self.exchange(|exchange| exchange.answer.listen());
        let result = control.call_async(&mut self.store, parameters).await.map_err(at(export::CONTROL))?;
        let answer = self.exchange(|exchange| exchange.answer.take(result));
        self.release(message).await?;
        Ok(answer)
    }

    async fn message(&mut self, bytes: &[u8]) -> Result<Result<Vec<u8>, String>, Fault> {
        let Some(function) = self.exports.message.clone() else { return Ok(Ok(Vec::new())) };
        let message = match self.pass(&[bytes]).await? {
            Ok(message) => message,
            Err(problem) => return Ok(Err(problem)),
        };
        let parameters = (message.address, bytes.len() as u32);
        function.call_async(&mut self.store, parameters).await.map_err(at(export::MESSAGE))?;
        self.release(message).await?;
        Ok(Ok(Vec::new()))
    }

    async fn save(&mut self) -> Result<Result<Vec<u8>, String>, Fault> {
        let Some(save) = self.exports.save.clone() else {
            return Ok(Err("the plugin saves no state: it doesn't export millrace_save".to_owned()));
        };
        self.exchange(|exchange| exchange.answer.listen());
        let result = save.call_async(&mut self.store, ()).await.map_err(at(export::SAVE))?;
        Ok(self.exchange(|exchange| exchange.answer.take(result)))
    }

    async fn restore(&mut self, state: &[u8], version: u32) -> Result<Result<Vec<u8>, String>, Fault> {
        let Some(restore) = self.exports.restore.clone() else {
            return Ok(Err(format!(
                "can't restore state (own state version {}): the plugin doesn't export millrace_restore",
                self.plugin.manifest().state.version
            )));
        };
        let message = match self.pass(&[state]).await? {
            Ok(message) => message,
            Err(problem) => return Ok(Err(problem)),
        };
        self.exchange(|exchange| exchange.answer.listen());
        let parameters = (message.address, state.len() as u32, version);
        let result = restore.call_async(&mut self.store, parameters).await.map_err(at(export::RESTORE))?;
        let answer = self.exchange(|exchange| exchange.answer.take(result));
        self.release(message).await?;
        Ok(answer)
    }

    async fn reserve(&mut self, bytes: usize) -> Result<u32, Fault> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let reserve = self.exports.reserve.clone();
        reserve.call_async(&mut self.store, bytes).await.map_err(at(export::RESERVE))
    }

    async fn release(&mut self, message: Message) -> Result<(), Fault> {
        let release = self.exports.release.clone();
        let parameters = (message.address, message.bytes);
        release.call_async(&mut self.store, parameters).await.map_err(at(export::RELEASE))
    }

    /// Copies `parts` into plugin memory, one after the other. The outer error is a fault. The inner error is
    /// a text: the plugin could reserve no memory for the parts.
    async fn pass(&mut self, parts: &[&[u8]]) -> Result<Result<Message, String>, Fault> {
        let bytes = parts.iter().map(|part| part.len()).sum::<usize>();
        let address = self.reserve(bytes.max(1)).await?;
        if address == 0 {
            return Ok(Err(format!("the plugin has no memory for a message of {bytes} bytes")));
        }
        let memory = self.exports.memory.data_mut(&mut self.store);
        let room = memory.get_mut(address as usize..).and_then(|room| room.get_mut(..bytes));
        let Some(mut room) = room else {
            let text = format!("millrace_reserve returned {address}: outside the plugin's memory");
            return Err(Fault::new(FaultKind::OutOfBounds, text));
        };
        for part in parts {
            let (here, rest) = room.split_at_mut(part.len());
            here.copy_from_slice(part);
            room = rest;
        }
        Ok(Ok(Message { address, bytes: bytes.max(1) as u32 }))
    }
}

/// Ends the current poll. The next poll continues here.
async fn pause() {
    let mut waited = false;
    poll_fn(|_| if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}
