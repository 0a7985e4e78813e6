//! State that the handlers of requests share: the router, and what is kept between requests.

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

/// State that the handlers of requests share.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub control: Router,
    /// True when the server stops.
    pub ending: watch::Receiver<bool>,
    /// The list of resources, and the description of the interface.
    pub documents: Arc<Documents>,
    /// The counters, as they were a moment ago.
    pub sampler: Sampler,
    /// Limits of requests and streams.
    pub limits: Limits,
    /// Room for answers that take long to make.
    pub long: LongAnswers,
    /// How the interface is served.
    pub interface: Arc<Interface>,
}

impl Served {
    /// Returns the state for a router, without the documents of the catalogue.
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
