//! Packets that carry the time at which they were sent.

use std::net::UdpSocket;
use std::time::Instant;

/// Longest payload that is received.
const LONGEST: usize = 2048;

/// Returns a payload of `BYTES` bytes, at least 8, with the time since `start`.
pub(crate) fn stamped<const BYTES: usize>(start: Instant) -> [u8; BYTES] {
    let mut payload = [0; BYTES];
    payload[..8].copy_from_slice(&nanoseconds(start).to_be_bytes());
    payload
}

/// Returns the delays of the packets that a socket receives, in milliseconds, until none has come for its timeout.
/// `start`: as for [`stamped`].
pub(crate) fn delays_of(socket: &UdpSocket, start: Instant) -> Vec<f64> {
    let (mut delays, mut payload) = (Vec::new(), [0; LONGEST]);
    while let Ok(length) = socket.recv(&mut payload) {
        let sent = payload[..length].first_chunk().map_or(0, |first| u64::from_be_bytes(*first));
        delays.push(nanoseconds(start).saturating_sub(sent) as f64 / 1e6);
    }
    delays
}

fn nanoseconds(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn delay_is_the_time_since_the_packet_was_stamped() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let start = Instant::now();
        let payload = stamped::<64>(start);
        std::thread::sleep(Duration::from_millis(5));
        socket.send_to(&payload, socket.local_addr().unwrap()).unwrap();
        let delays = delays_of(&socket, start);
        assert!(matches!(delays[..], [delay] if (5.0..5000.0).contains(&delay)), "{delays:?}");
    }
}
