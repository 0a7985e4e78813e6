//! The command `trace`: journeys of packets through the stages.

use std::fmt::Write as _;

use millrace_units::count;
use serde_json::Value;

use crate::arguments::Trace;
use crate::client::{Client, segment};
use crate::commands::observe::capture::write_packets;
use crate::commands::observe::messages::{Message, print_messages};
use crate::output::{Failure, plain, rows};

/// Prints each packet as a block of text, or with `--json` as a line of JSON. With `--write`, writes a pcapng
/// file instead.
pub fn trace(client: &Client, asked: &Trace, json: bool) -> Result<(), Failure> {
    let mut path = format!("/trace?count={}&every={}&time={}", asked.count, asked.every, asked.time);
    if let Some(filter) = &asked.filter {
        path += &format!("&filter={}", segment(filter));
    }
    if let Some(file) = &asked.write {
        return write_packets(client, &path, file);
    }
    print_messages(client, &path, |Message { event, data }| match (&*event, json) {
        ("packet", true) => Some((format!("{data}\n"), true)),
        ("packet", false) => Some((block(&data), true)),
        _ => {
            say_end(&data);
            None
        }
    })
}

/// Prints the number of traced packets on standard error.
fn say_end(end: &Value) {
    let [packets, lost] = ["packets", "lost"].map(|key| end[key].as_u64().unwrap_or_default());
    match lost {
        0 => eprintln!("{}", count(packets, "packet")),
        _ => eprintln!("{}; {lost} more lost: the trace could not keep up", count(packets, "packet")),
    }
}

/// Formats the journey of a packet.
fn block(packet: &Value) -> String {
    let [number, time, port, length, level, verdict] =
        ["number", "time", "port", "length", "level", "verdict"].map(|key| plain(&packet[key]));
    let mut text = format!("Packet {number}  {time}  port {port}, {length} bytes, {level}\n");
    for step in rows(&packet["steps"]) {
        let cycles = step["cycles"].as_u64().map_or_else(|| "-".to_owned(), |cycles| cycles.to_string());
        let _ = writeln!(text, "  {:<9} {cycles:>7}  {}", plain(&step["stage"]), plain(&step["text"]));
    }
    let cycles = packet["cycles"].as_u64().map_or_else(|| "-".to_owned(), |cycles| cycles.to_string());
    let _ = writeln!(text, "  {:<9} {cycles:>7}  {verdict}\n", "end");
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_journey_is_a_block_with_a_line_for_each_stage() {
        let packet = json!({
            "number": 1, "time": "2026-01-02T03:04:05.678Z", "port": "lan", "length": 98, "level": "worker 0",
            "verdict": "sent out of port wan", "cycles": 700,
            "steps": [
                {"stage": "receive", "cycles": 10, "text": "port lan, 98 bytes, by worker 0"},
                {"stage": "transmit", "cycles": null, "text": "port wan, 98 bytes"},
            ],
        });
        assert_eq!(
            block(&packet),
            "Packet 1  2026-01-02T03:04:05.678Z  port lan, 98 bytes, worker 0\n  \
             receive        10  port lan, 98 bytes, by worker 0\n  \
             transmit        -  port wan, 98 bytes\n  \
             end           700  sent out of port wan\n\n"
        );
    }
}
