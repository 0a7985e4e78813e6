//! The command `rates`: growth of the ports' counters per second.

use std::io::Write as _;

use crate::arguments::Rates;
use crate::client::Client;
use crate::commands::columns::RATES;
use crate::commands::observe::events::Messages;
use crate::output::{Failure, rows, table};

/// Prints a table, or a line of JSON, several times a second.
pub fn rates(client: &Client, asked: &Rates, json: bool) -> Result<(), Failure> {
    let (mut messages, mut left) = (Messages::default(), asked.count);
    if left == Some(0) {
        return Ok(());
    }
    client.stream(&format!("/rates?hz={}", asked.hz), "text/event-stream", |bytes| {
        for message in messages.add(bytes) {
            let text = match json {
                true => format!("{}\n", message.data),
                false => format!("{}\n", table(rows(&message.data["ports"]), RATES)),
            };
            let mut out = std::io::stdout();
            if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
                return Ok(false);
            }
            left = left.map(|left| left - 1);
            if left == Some(0) {
                return Ok(false);
            }
        }
        Ok(true)
    })
}
