//! The life of a plugin's instance, as one future: it begins, is driven through its calls, and ends with a fault.
//!
//! The future owns the store, so nothing borrows across a suspension, and dropping the future ends the plugin wherever it
//! is. It is polled by hand: when the plugin's slice is over, and when it waits for work, a poll returns.

use std::convert::Infallible;

use millrace_plugin_abi::binary::{ABI_VERSION, export};
use wasmtime::{Error, Func, Instance, Memory, Store, TypedFunc, WasmParams, WasmResults};

use super::code::WasmPlugin;
use super::host::{Data, next};
use super::staging::{Area, Step};
use crate::Manifest;
use crate::exchange::{Exchange, Job, Shared};
use crate::fault::{Fault, FaultKind};

/// Runs an instance of `plugin` with `settings`, JSON, until it fails.
pub(super) async fn run(plugin: WasmPlugin, shared: Shared, settings: Vec<u8>, most_memory: usize) -> Fault {
    // Better code may have come since the last time.
    let plugin = plugin.current();
    match Life::begin(&plugin, shared, &settings, most_memory).await {
        Ok(mut life) => match life.serve().await {
            Ok(never) => match never {},
            Err(fault) => fault,
        },
        Err(fault) => fault,
    }
}

struct Life {
    store: Store<Data>,
    exports: Exports,
    driver: TypedFunc<(), ()>,
    state_version: u32,
}

/// What a plugin exports.
struct Exports {
    memory: Memory,
    abi: TypedFunc<(), u32>,
    reserve: TypedFunc<u32, u32>,
    release: TypedFunc<(u32, u32), ()>,
    init: TypedFunc<(u32, u32), i32>,
    packets: Func,
    control: Option<TypedFunc<(u32, u32, u32, u32), i32>>,
    periodic: Option<Func>,
    flow_ended: Option<Func>,
    save: Option<TypedFunc<(), i32>>,
    restore: Option<TypedFunc<(u32, u32, u32), i32>>,
}

impl Exports {
    fn of(store: &mut Store<Data>, instance: &Instance) -> wasmtime::Result<Self> {
        Ok(Self {
            memory: instance
                .get_memory(&mut *store, export::MEMORY)
                .ok_or_else(|| Error::msg("it has no memory"))?,
            abi: instance.get_typed_func(&mut *store, export::ABI)?,
            reserve: instance.get_typed_func(&mut *store, export::RESERVE)?,
            release: instance.get_typed_func(&mut *store, export::RELEASE)?,
            init: instance.get_typed_func(&mut *store, export::INIT)?,
            packets: instance
                .get_func(&mut *store, export::PACKETS)
                .ok_or_else(|| Error::msg("it handles no packets"))?,
            control: optional(instance, store, export::CONTROL)?,
            periodic: instance.get_func(&mut *store, export::PERIODIC),
            flow_ended: instance.get_func(&mut *store, export::FLOW_ENDED),
            save: optional(instance, store, export::SAVE)?,
            restore: optional(instance, store, export::RESTORE)?,
        })
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

fn at(place: &str) -> impl Fn(Error) -> Fault {
    move |error| Fault::of_error(&error, place)
}

/// The same, where it can't be set up: what is no trap is counted as a beginning that failed.
fn at_begin(error: Error) -> Fault {
    let fault = Fault::of_error(&error, "its beginning");
    let kind = if error.is::<wasmtime::Trap>() { fault.kind } else { FaultKind::Init };
    Fault { kind, ..fault }
}

/// Memory of the plugin that the router has for a message.
struct Message {
    address: u32,
    bytes: u32,
}

impl Life {
    async fn begin(
        plugin: &WasmPlugin,
        shared: Shared,
        settings: &[u8],
        most_memory: usize,
    ) -> Result<Self, Fault> {
        let sandbox = plugin.sandbox();
        let data = Data { shared, memory: None, area: None, step: Step::Wait, most_memory };
        let mut store = Store::new(plugin.engine(), data);
        store.limiter(|data| data);
        store.epoch_deadline_async_yield_and_update(sandbox.slice());
        store.set_epoch_deadline(sandbox.slice());
        let instance = plugin.linked().instantiate_async(&mut store).await.map_err(at_begin)?;
        let exports = Exports::of(&mut store, &instance).map_err(at_begin)?;
        store.data_mut().memory = Some(exports.memory);
        let abi = exports.abi.call_async(&mut store, ()).await.map_err(at(export::ABI))?;
        if abi != ABI_VERSION {
            let text = format!("its code is of version {abi} of the interface, and not of {ABI_VERSION}");
            return Err(Fault::new(FaultKind::Init, text));
        }
        let driver = drive(&mut store, plugin, &exports).await.map_err(at_begin)?;
        let state_version = plugin.manifest().state_version;
        let mut life = Self { store, exports, driver, state_version };
        life.init(settings).await?;
        life.store.data_mut().area = Some(life.area(plugin.manifest()).await?);
        Ok(life)
    }

    /// Has the plugin begin with its settings.
    async fn init(&mut self, settings: &[u8]) -> Result<(), Fault> {
        let refused = |text: String| Fault::new(FaultKind::Init, text);
        let message = self.pass(&[settings]).await?.map_err(refused)?;
        self.exchange(Exchange::listen);
        let init = self.exports.init.clone();
        let result = init.call_async(&mut self.store, (message.address, settings.len() as u32)).await;
        let result = result.map_err(at(export::INIT))?;
        let answer = self.exchange(|exchange| exchange.answer(result));
        self.release(message).await?;
        answer.map(drop).map_err(refused)
    }

    async fn area(&mut self, manifest: &Manifest) -> Result<Area, Fault> {
        let (window, state) = (manifest.window, manifest.flow_state);
        let address = self.reserve(Area::bytes(window, state)).await?;
        let area = Area::new(address, window, state);
        if area.fits(self.exports.memory.data_size(&self.store)) {
            return Ok(area);
        }
        let problem = match address {
            0 => "it has no memory for packets".to_owned(),
            _ => format!(
                "millrace_reserve returned {address}: not aligned to 8 bytes, or outside of its memory"
            ),
        };
        Err(Fault::new(FaultKind::Init, problem))
    }

    /// Drives the plugin, and does what can't be done by the driver.
    async fn serve(&mut self) -> Result<Infallible, Fault> {
        loop {
            let driver = self.driver.clone();
            if let Err(error) = driver.call_async(&mut self.store, ()).await {
                return Err(Fault::of_error(&error, self.store.data().step.place()));
            }
            let Some(job) = self.exchange(|exchange| exchange.job.take()) else { continue };
            let outcome = self.carry_out(job).await?;
            self.exchange(|exchange| exchange.outcome = Some(outcome));
        }
    }

    fn exchange<R>(&mut self, look: impl FnOnce(&mut Exchange) -> R) -> R {
        self.store.data().shared.with(look)
    }

    async fn carry_out(&mut self, job: Job) -> Result<Result<Vec<u8>, String>, Fault> {
        match job {
            Job::Control { name, arguments } => self.control(&name, &arguments).await,
            Job::Save => self.save().await,
            Job::Restore { state, version } => self.restore(&state, version).await,
        }
    }

    async fn control(&mut self, name: &str, arguments: &[u8]) -> Result<Result<Vec<u8>, String>, Fault> {
        let Some(control) = self.exports.control.clone() else {
            return Ok(Err("it takes no messages: it doesn't export millrace_control".to_owned()));
        };
        let message = match self.pass(&[name.as_bytes(), arguments]).await? {
            Ok(message) => message,
            Err(problem) => return Ok(Err(problem)),
        };
        let length = name.len() as u32;
        let parameters = (message.address, length, message.address + length, arguments.len() as u32);
        self.exchange(Exchange::listen);
        let result = control.call_async(&mut self.store, parameters).await.map_err(at(export::CONTROL))?;
        let answer = self.exchange(|exchange| exchange.answer(result));
        self.release(message).await?;
        Ok(answer)
    }

    async fn save(&mut self) -> Result<Result<Vec<u8>, String>, Fault> {
        let Some(save) = self.exports.save.clone() else {
            return Ok(Err("it saves no state: it doesn't export millrace_save".to_owned()));
        };
        self.exchange(Exchange::listen);
        let result = save.call_async(&mut self.store, ()).await.map_err(at(export::SAVE))?;
        Ok(self.exchange(|exchange| exchange.answer(result)))
    }

    async fn restore(&mut self, state: &[u8], version: u32) -> Result<Result<Vec<u8>, String>, Fault> {
        let Some(restore) = self.exports.restore.clone() else {
            return Ok(Err(format!(
                "it takes no state over (its own is of version {}): it doesn't export millrace_restore",
                self.state_version
            )));
        };
        let message = match self.pass(&[state]).await? {
            Ok(message) => message,
            Err(problem) => return Ok(Err(problem)),
        };
        self.exchange(Exchange::listen);
        let parameters = (message.address, state.len() as u32, version);
        let result = restore.call_async(&mut self.store, parameters).await.map_err(at(export::RESTORE))?;
        let answer = self.exchange(|exchange| exchange.answer(result));
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

    /// Puts `parts`, one behind the other, into memory of the plugin. The inner error says why it doesn't take them.
    async fn pass(&mut self, parts: &[&[u8]]) -> Result<Result<Message, String>, Fault> {
        let bytes = parts.iter().map(|part| part.len()).sum::<usize>();
        let address = self.reserve(bytes.max(1)).await?;
        if address == 0 {
            return Ok(Err(format!("it has no memory for a message of {bytes} bytes")));
        }
        let memory = self.exports.memory.data_mut(&mut self.store);
        let room = memory.get_mut(address as usize..).and_then(|room| room.get_mut(..bytes));
        let Some(mut room) = room else {
            let text = format!("millrace_reserve returned {address}: outside of its memory");
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

/// Puts the driver between the router and the plugin.
async fn drive(
    store: &mut Store<Data>,
    plugin: &WasmPlugin,
    exports: &Exports,
) -> wasmtime::Result<TypedFunc<(), ()>> {
    let next = Func::wrap(&mut *store, next);
    let flow_ended = exports.flow_ended.unwrap_or_else(|| Func::wrap(&mut *store, |_: u32| {}));
    let periodic = exports.periodic.unwrap_or_else(|| Func::wrap(&mut *store, |_: u64| {}));
    let imports = [next.into(), exports.packets.into(), flow_ended.into(), periodic.into()];
    let driver = Instance::new_async(&mut *store, plugin.driver()?, &imports).await?;
    driver.get_typed_func(&mut *store, "run")
}
