//! The command `rates`: growth of the ports' counters per second.

use crate::arguments::{Noun, Rates};
use crate::client::Client;
use crate::commands::nouns::describe;
use crate::commands::observe::messages::{Message, print_messages};
use crate::output::{Failure, rows, table};

/// Prints a table, or a line of JSON, several times a second.
pub fn rates(client: &Client, asked: &Rates, json: bool) -> Result<(), Failure> {
    let mut left = asked.count;
    if left == Some(0) {
        return Ok(());
    }
    print_messages(client, &format!("/rates?hz={}", asked.hz), |Message { data, .. }| {
        let text = match json {
            true => data.to_string(),
            false => table(rows(&data["ports"]), describe(Noun::Rates).columns),
        };
        left = left.map(|left| left - 1);
        Some((text + "\n", left != Some(0)))
    })
}
