//! What requests are answered with: the router, and what is kept between requests.

mod documents;
mod interface;
pub(crate) mod long;
pub(crate) mod paging;
mod sampler;

use std::sync::Arc;

use millrace_controller::Router;
use tokio::sync::watch;

pub(crate) use documents::{Documents, ListView, ResourceView};
pub(crate) use interface::{Interface, InterfaceView};
pub(crate) use sampler::Sampler;

use self::long::LongAnswers;
use crate::limits::Limits;

/// What requests are answered with.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub control: Router,
    /// True when the server stops.
    pub ending: watch::Receiver<bool>,
    /// What is served of the interface itself.
    pub documents: Arc<Documents>,
    /// The counters, as they were a moment ago.
    pub sampler: Sampler,
    /// What is left to clients.
    pub limits: Limits,
    /// Room for answers that take long to make.
    pub long: LongAnswers,
    /// How the interface is served.
    pub interface: Arc<Interface>,
}

impl Served {
    /// Returns what requests to a router are answered with, without the documents of the catalogue.
    pub fn new(
        control: Router,
        ending: watch::Receiver<bool>,
        limits: Limits,
        interface: Arc<Interface>,
    ) -> Self {
        let (documents, sampler, long) = Default::default();
        Self { control, ending, documents, sampler, limits, long, interface }
    }
}
