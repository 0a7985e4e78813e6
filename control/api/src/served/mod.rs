//! State shared by the handlers of requests: the router, and state kept between requests.

mod documents;
mod interface;
pub(crate) mod long;
pub(crate) mod paging;
mod sampler;
mod session;

use std::sync::Arc;

use millrace_controller::Router;
use tokio::sync::watch;

pub(crate) use documents::{Documents, ListView, ResourceView};
pub(crate) use interface::{Interface, InterfaceView};
pub(crate) use sampler::Sampler;
pub(crate) use session::Session;

use self::long::LongAnswers;
use crate::limits::Limits;

/// State shared by the handlers of requests.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub control: Router,
    /// Whether the server stops.
    pub ending: watch::Receiver<bool>,
    /// List of resources, and OpenAPI description.
    pub documents: Arc<Documents>,
    /// Sampler of the port counters.
    pub sampler: Sampler,
    /// Limits of requests and streams.
    pub limits: Limits,
    /// Slots for slow answers.
    pub long: LongAnswers,
    /// Status of the API.
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
