//! The command `drops`: counts of dropped packets by reason, with the last packets.

use serde_json::{Value, json};

use crate::arguments::Drops;
use crate::client::{Client, segment};
use crate::commands::observe::capture::write_packets;
use crate::commands::observe::messages::{Message, print_messages};
use crate::output::{Failure, plain, rows, say};

/// Prints drop counters with the last packets of each reason. `--follow` prints new drops, `--write` writes a
/// pcapng file.
pub fn drops(client: &Client, asked: &Drops, json: bool) -> Result<(), Failure> {
    let reason = asked.reason.as_deref().map(|reason| format!("reason={}", segment(reason)));
    if let Some(file) = &asked.write {
        let follow = asked.follow.then(|| "follow=true".to_owned());
        let arguments: Vec<String> = reason.into_iter().chain(follow).collect();
        return write_packets(client, &format!("/drops/packets?{}", arguments.join("&")), file);
    }
    let path = format!("/drops/packets?{}", reason.unwrap_or_default());
    if asked.follow {
        return print_messages(client, &path, |Message { data, .. }| {
            let text = match json {
                true => format!("{data}\n"),
                false => format!("{}  {}\n", plain(&data["reason"]), line(&data)),
            };
            Some((text, true))
        });
    }
    let (counts, packets) = (client.get("/drops")?, client.get(&path)?);
    // Reasons have underscores; the argument may have hyphens.
    let named = asked.reason.as_deref().map(|reason| reason.replace('-', "_"));
    let is_asked = |count: &&Value| named.as_deref().is_none_or(|reason| count["reason"] == reason);
    let counts: Vec<&Value> = rows(&counts).iter().filter(is_asked).collect();
    if json {
        say!("{:#}", json!({"counts": counts, "packets": packets}));
        return Ok(());
    }
    if counts.is_empty() {
        say!("no drops");
    }
    for count in counts {
        let [reason, meaning, total, ports] =
            ["reason", "meaning", "packets", "ports"].map(|key| plain(&count[key]));
        say!("{reason}  {} ({ports})  {meaning}", millrace_units::count(total, "packet"));
        let of_reason = rows(&packets).iter().filter(|packet| packet["reason"] == count["reason"]);
        of_reason.for_each(|packet| say!("  {}", line(packet)));
    }
    Ok(())
}

/// Formats a packet as a line.
fn line(packet: &Value) -> String {
    let [time, port, length, summary] = ["time", "port", "length", "summary"].map(|key| plain(&packet[key]));
    let by = packet["by"].as_str().map(|by| format!(", by {by}")).unwrap_or_default();
    let out = packet["out_port"].as_str().map(|out| format!(" to {out}")).unwrap_or_default();
    format!("{time}  port {port}{out}  {length} bytes  {summary}{by}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_line_names_the_dropping_filter_if_known() {
        let mut packet = json!({
            "time": "T", "port": "lan", "out_port": null, "length": 60, "summary": "10.1.0.2 to 10.2.0.2",
            "by": "filter 3",
        });
        assert_eq!(line(&packet), "T  port lan  60 bytes  10.1.0.2 to 10.2.0.2, by filter 3");
        (packet["by"], packet["out_port"]) = (Value::Null, "wan".into());
        assert_eq!(line(&packet), "T  port lan to wan  60 bytes  10.1.0.2 to 10.2.0.2");
    }
}
