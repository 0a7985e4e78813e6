//! Snapshot of a router for `top`.

use std::time::Instant;

use serde_json::Value;

use crate::client::Client;
use crate::output::Failure;

/// Number of flows to query: as many as fill a screen.
const FLOWS: usize = 30;

/// Snapshot of a router's state, read from its API.
#[derive(Debug)]
pub struct Look {
    /// Time of the snapshot.
    pub at: Instant,
    pub status: Value,
    pub summary: Value,
    pub ports: Value,
    pub drops: Value,
    pub queues: Value,
    pub instances: Value,
    pub promises: Value,
    /// Flows with the highest rates.
    pub flows: Value,
}

impl Look {
    /// Queries the router. Takes half a second, in which the router measures the flows' rates.
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
            promises: client.get("/promises")?,
            flows,
        })
    }
}
