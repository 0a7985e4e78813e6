//! Instances that run in the worker itself: built-in plugins.

use millrace_plugin_abi::{Instance, Message, Reply};
use millrace_units::InstanceId;

use crate::slab::{Key, Slab};

/// The instances of a worker, by their ids.
#[derive(Default)]
pub(crate) struct NativeInstances(Slab<Box<dyn Instance>>);

impl NativeInstances {
    /// Adds an instance, and returns the one that had its id.
    pub fn add(&mut self, id: InstanceId, instance: Box<dyn Instance>) -> Option<Box<dyn Instance>> {
        self.0.put(id.0.into(), instance)
    }

    pub fn remove(&mut self, id: InstanceId) -> Option<Box<dyn Instance>> {
        self.0.take(id.0.into())
    }

    /// The key by which paths refer to an instance: it dies with the instance, even when the id is given anew.
    pub fn key(&self, id: InstanceId) -> Option<Key> {
        self.0.key(id.0.into())
    }

    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut Box<dyn Instance>> {
        self.0.get_mut(key)
    }

    /// Hands a control message over; `None` when there is no such instance.
    pub fn control(&mut self, id: InstanceId, message: &Message) -> Option<Reply> {
        let key = self.key(id)?;
        Some(self.0.get_mut(key)?.control(message))
    }
}
