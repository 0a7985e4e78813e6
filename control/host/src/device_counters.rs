//! Device counters, as `/proc/net/dev` lists them.

use std::collections::HashMap;
use std::io;

/// Index of the dropped transmit packets among the numbers after a device's name.
const TRANSMIT_DROPPED: usize = 11;

/// Returns the number of packets that each device failed to send, by device name, in the network namespace of
/// the calling thread. The numbers count from the creation of the device and include all senders. A veth also
/// counts packets that its peer refused: the peer had no room, or the packet was too long.
pub fn transmit_drops() -> io::Result<HashMap<String, u64>> {
    std::fs::read_to_string("/proc/thread-self/net/dev").map(|text| parsed(&text))
}

fn parsed(text: &str) -> HashMap<String, u64> {
    let device = |line: &str| {
        let (name, numbers) = line.rsplit_once(':')?;
        let dropped = numbers.split_ascii_whitespace().nth(TRANSMIT_DROPPED)?;
        Some((name.trim().to_owned(), dropped.parse().ok()?))
    };
    text.lines().filter_map(device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_column_of_packets_that_were_not_sent_is_read() {
        let text = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:       1       2    3    4    5     6          7         8        9      10   11   12   13    14      15         16
a:b.7:      10      20   30   40   50    60         70        80       90     100  110  120  130   140     150        160
";
        assert_eq!(parsed(text), HashMap::from([("lo".to_owned(), 12), ("a:b.7".to_owned(), 120)]));
    }

    #[test]
    fn the_devices_of_this_namespace_are_listed() {
        assert!(transmit_drops().is_ok_and(|devices| devices.contains_key("lo")));
    }
}
