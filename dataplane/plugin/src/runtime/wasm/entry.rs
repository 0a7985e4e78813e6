//! Exported function that is called often: its calls run on the worker's stack while they are short.

use wasmtime::{Error, Store, StoreContextMut, TypedFunc, UpdateDeadline, WasmParams};

use super::host::Data;
use super::shortness::Shortness;
use crate::fault::Fault;

/// Maximum number of ticks by which a call on the worker's stack may exceed its slice. A longer call is cut.
const MOST_OVERTIME: u32 = 20;

/// Exported function that is called often.
pub(super) struct Entry<P> {
    function: TypedFunc<P, ()>,
    place: &'static str,
    pub shortness: Shortness,
}

impl<P: WasmParams + Sync> Entry<P> {
    pub fn new(function: TypedFunc<P, ()>, place: &'static str, short_calls: u32) -> Self {
        Self { function, place, shortness: Shortness::new(short_calls) }
    }

    /// Calls the function for `count` packets: on the worker's stack if its calls have been short. Otherwise
    /// on its own stack, where the call can be suspended at the end of a slice.
    pub async fn call(
        &mut self,
        store: &mut Store<Data>,
        slice: u64,
        parameters: P,
        count: u32,
    ) -> Result<(), Fault> {
        if self.shortness.is_shown(count) {
            return self.call_here(store, slice, parameters, count);
        }
        store.data_mut().late = 0;
        store.set_epoch_deadline(slice);
        let result = self.function.call_async(&mut *store, parameters).await;
        self.shortness.note(count, store.data().late == 0);
        result.map_err(at(self.place))
    }

    /// Calls the function on the worker's stack.
    #[inline]
    pub fn call_here(
        &mut self,
        store: &mut Store<Data>,
        slice: u64,
        parameters: P,
        count: u32,
    ) -> Result<(), Fault> {
        let data = store.data_mut();
        (data.on_worker, data.late, data.has_effect) = (true, 0, false);
        store.set_epoch_deadline(slice);
        let result = self.function.call(&mut *store, parameters);
        store.data_mut().on_worker = false;
        match store.data().is_cut {
            false => self.shortness.note(count, store.data().late == 0),
            true => self.shortness.misjudge(),
        }
        result.map_err(at(self.place))
    }
}

/// Returns the conversion of an error in the function `place` into a fault.
pub(super) fn at(place: &str) -> impl Fn(Error) -> Fault {
    move |error| Fault::of_error(&error, place)
}

/// Decides whether a call is suspended, continues or is cut at the end of its slice.
#[cold]
pub(super) fn when_late(mut store: StoreContextMut<'_, Data>, slice: u64) -> UpdateDeadline {
    let data = store.data_mut();
    data.late = data.late.saturating_add(1);
    match data.on_worker {
        false => UpdateDeadline::Yield(slice),
        true if data.late <= MOST_OVERTIME => UpdateDeadline::Continue(1),
        true => {
            data.is_cut = true;
            UpdateDeadline::Interrupt
        }
    }
}
