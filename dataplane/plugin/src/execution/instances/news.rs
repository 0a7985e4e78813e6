//! Failures and outputs of instances that the worker hasn't collected yet.

use std::collections::VecDeque;

use millrace_plugin_abi::{Fault, Output};
use millrace_units::{InstanceId, PrincipalId};

use crate::execution::health::Health;

/// Maximum number of uncollected failures; further failures appear in counters only.
const MOST_FAILURES: usize = 64;

/// Name of a context. It may later name a context of another instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ContextId {
    /// Id of the instance.
    pub instance: InstanceId,
    /// Number of the context within its instance, from 0.
    pub number: u8,
}

/// Failure of an instance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The failed instance.
    pub instance: InstanceId,
    /// The fault.
    pub fault: Fault,
    /// Health of the instance after the fault.
    pub health: Health,
}

/// Output of an instance besides verdicts, such as a log line or a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Given {
    /// The instance.
    pub instance: InstanceId,
    /// Number of the instance's context that gave the output.
    pub context: u8,
    /// Principal that pays for the call which gave the output; `None` if nobody pays.
    pub payer: Option<PrincipalId>,
    /// The output.
    pub output: Output,
}

/// Failures and outputs of instances that the worker hasn't collected yet.
#[derive(Default)]
pub(crate) struct News {
    failures: Vec<Failure>,
    given: VecDeque<Given>,
    /// Principal that pays for the current call. For a call without packets, the principal that pays for all bindings
    /// of the instance, if there is one.
    pub payer: Option<PrincipalId>,
    /// Contexts that failed and restart after a pause.
    pub paused: Vec<ContextId>,
}

impl News {
    /// Records a failure.
    pub fn tell(&mut self, failure: Failure) {
        if self.failures.len() < MOST_FAILURES {
            self.failures.push(failure);
        }
    }

    /// Records an output.
    pub fn give(&mut self, given: Given) {
        self.given.push_back(given);
    }

    /// Records that a context restarts after a pause.
    pub fn pause(&mut self, id: ContextId) {
        if !self.paused.contains(&id) {
            self.paused.push(id);
        }
    }

    /// Removes and returns the latest failure.
    #[inline]
    pub fn pop(&mut self) -> Option<Failure> {
        self.failures.pop()
    }

    /// Removes and returns the earliest output.
    #[inline]
    pub fn pop_given(&mut self) -> Option<Given> {
        self.given.pop_front()
    }
}
