//! What `top` sees of a router at a time.

use std::time::Instant;

use serde_json::Value;

use crate::client::Client;
use crate::output::Failure;

/// Flows that fill a screen.
const FLOWS: usize = 30;

/// The state of a router, as its interface tells it.
#[derive(Debug)]
pub struct Look {
    /// When it was taken.
    pub at: Instant,
    pub status: Value,
    pub summary: Value,
    pub ports: Value,
    pub drops: Value,
    pub queues: Value,
    pub instances: Value,
    /// The flows with the highest rates.
    pub flows: Value,
}

impl Look {
    /// Asks the router. It takes half a second, over which the rates of flows are measured.
    pub fn take(client: &Client) -> Result<Self, Failure> {
        let flows = client.get(&format!("/flows?order=rate&limit={FLOWS}"))?;
        Ok(Self {
            at: Instant::now(),
            status: client.get("/status")?,
            summary: client.get("/summary")?,
            ports: client.get("/ports")?,
            drops: client.get("/drops")?,
            queues: client.get("/queues")?,
            instances: client.get("/instances")?,
            flows,
        })
    }
}
