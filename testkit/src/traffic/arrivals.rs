//! Arrival times of packets, stamped by the kernel at the device, and the size of the packets' bursts.

use std::io::{self, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::sockopt::{RcvBufForce, ReceiveTimestampns};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt};

/// Size of the receive buffer in bytes. The buffer holds packets until [`Arrivals::take`].
const WAITING: usize = 512 << 20;
/// Number of bytes that are read of each packet. The full length is reported nevertheless.
const HEAD: usize = 16;

/// Socket that keeps packets and their arrival times until they are taken.
#[derive(Debug)]
pub struct Arrivals(UdpSocket);

/// Packet that has arrived, by time and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Time of arrival at the device, on the real-time clock.
    pub at: Duration,
    /// UDP payload in bytes.
    pub payload: usize,
}

impl Arrivals {
    /// Collects the packets that arrive at a socket from now on, about 200,000 at most.
    ///
    /// # Errors
    /// The socket rejects time stamps, or the large buffer, which needs root.
    pub fn at(socket: UdpSocket) -> io::Result<Self> {
        setsockopt(&socket, ReceiveTimestampns, &true)?;
        setsockopt(&socket, RcvBufForce, &WAITING)?;
        Ok(Self(socket))
    }

    /// Returns all packets since the last call in order of arrival.
    ///
    /// # Errors
    /// The socket can't be read, or a packet has no time stamp.
    pub fn take(&self) -> io::Result<Vec<Arrival>> {
        let mut arrivals = Vec::new();
        let (mut head, mut control) = ([0; HEAD], nix::cmsg_space!(nix::sys::time::TimeSpec));
        loop {
            let mut into = [IoSliceMut::new(&mut head)];
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC;
            let packet = match recvmsg::<()>(self.0.as_raw_fd(), &mut into, Some(&mut control), flags) {
                Ok(packet) => packet,
                Err(Errno::EAGAIN) => return Ok(arrivals),
                Err(error) => return Err(error.into()),
            };
            let at = packet.cmsgs()?.find_map(|message| match message {
                ControlMessageOwned::ScmTimestampns(time) => Some(time.into()),
                _ => None,
            });
            let at = at.ok_or_else(|| io::Error::other("a packet without a time"))?;
            arrivals.push(Arrival { at, payload: packet.bytes });
        }
    }
}

/// Returns the largest burst in bytes. This is the highest fill level of a buffer that all packets enter, and
/// that a link of `rate` bits per second empties. For packets at exactly the rate, it is one packet.
/// `overhead` bytes are added to each payload.
pub fn burst(arrivals: &[Arrival], overhead: usize, rate: f64) -> f64 {
    let (mut held, mut largest, mut last) = (0.0_f64, 0.0_f64, None);
    for arrival in arrivals {
        let passed = last.map_or(Duration::ZERO, |last| arrival.at.saturating_sub(last));
        held = (held - passed.as_secs_f64() * rate / 8.0).max(0.0) + (arrival.payload + overhead) as f64;
        largest = largest.max(held);
        last = Some(arrival.at);
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(times: &[u64]) -> Vec<Arrival> {
        times.iter().map(|&ms| Arrival { at: Duration::from_millis(ms), payload: 90 }).collect()
    }

    #[test]
    fn bursts_equal_the_fill_of_a_buffer() {
        // 100 bytes every 10 ms are 80 kb/s: the rate is kept, so a burst is one packet.
        assert_eq!(burst(&arrivals(&[0, 10, 20, 35, 45]), 10, 80e3), 100.0);
        assert_eq!(burst(&arrivals(&[0, 10, 10, 20, 30]), 10, 80e3), 200.0);
        // After a pause, two packets at once are still a burst, as is a third one soon after.
        assert_eq!(burst(&arrivals(&[0, 100, 100, 105]), 10, 80e3), 250.0);
    }

    #[test]
    fn packets_come_with_their_time_and_length() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (to, sender) = (receiver.local_addr().unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        setsockopt(&receiver, ReceiveTimestampns, &true).unwrap();
        let arrivals = Arrivals(receiver);
        for length in [3, 1000] {
            sender.send_to(&vec![0; length], to).unwrap();
        }
        let taken = arrivals.take().unwrap();
        assert_eq!(taken.iter().map(|arrival| arrival.payload).collect::<Vec<_>>(), [3, 1000]);
        assert!(taken[0].at <= taken[1].at);
        assert_eq!(arrivals.take().unwrap(), []);
    }
}
