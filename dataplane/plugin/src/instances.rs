//! The instances of a worker, whatever home they have.

use std::collections::BTreeMap;

use millrace_plugin_abi::{Fault, Instance, Message, Reply};
use millrace_units::{InstanceId, Instant};

use crate::health::{Health, Record};
use crate::slab::{Key, Slab};

/// An instance, and how it is.
pub(crate) struct Hosted {
    pub instance: Box<dyn Instance>,
    pub record: Record,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// What happened last.
    pub last_fault: String,
}

impl Hosted {
    /// Whether it can be called; one whose pause is over is restarted.
    #[inline]
    pub fn is_well(&mut self, now: Instant) -> bool {
        self.record.health == Health::Well || self.is_well_again(now)
    }

    #[cold]
    fn is_well_again(&mut self, now: Instant) -> bool {
        if !self.record.is_due(now) {
            return false;
        }
        match self.instance.restart() {
            Ok(()) => true,
            Err(error) => {
                self.fail(Fault { kind: "restart", text: error.to_string() }, now);
                false
            }
        }
    }

    #[cold]
    pub fn fail(&mut self, fault: Fault, now: Instant) {
        self.record.fail(now);
        *self.faults.entry(fault.kind).or_default() += 1;
        self.last_fault = fault.text;
    }
}

/// The instances of a worker, by their ids.
#[derive(Default)]
pub(crate) struct Instances(Slab<Hosted>);

impl Instances {
    /// Adds an instance, and returns the one that had its id.
    pub fn add(&mut self, id: InstanceId, instance: Box<dyn Instance>) -> Option<Box<dyn Instance>> {
        let hosted = Hosted {
            instance,
            record: Record::default(),
            faults: BTreeMap::new(),
            last_fault: String::new(),
        };
        self.0.put(id.0.into(), hosted).map(|hosted| hosted.instance)
    }

    pub fn remove(&mut self, id: InstanceId) -> Option<Box<dyn Instance>> {
        self.0.take(id.0.into()).map(|hosted| hosted.instance)
    }

    /// The key by which paths refer to an instance: it dies with the instance, even when the id is given anew.
    pub fn key(&self, id: InstanceId) -> Option<Key> {
        self.0.key(id.0.into())
    }

    pub fn iter(&self) -> impl Iterator<Item = (InstanceId, &Hosted)> {
        self.0.iter().map(|(slot, hosted)| (InstanceId(slot as u16), hosted))
    }

    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut Hosted> {
        self.0.get_mut(key)
    }

    /// Hands a control message over; `None` when there is no such instance.
    pub fn control(&mut self, id: InstanceId, message: &Message, now: Instant) -> Option<Reply> {
        let key = self.key(id)?;
        let hosted = self.0.get_mut(key)?;
        let reply = hosted.instance.control(message);
        if let Some(fault) = hosted.instance.take_fault() {
            hosted.fail(fault, now);
        }
        Some(reply)
    }
}
