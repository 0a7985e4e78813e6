//! TCP transfer with comparison of the received bytes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use crate::namespace::Namespace;
use crate::random::Random;

/// Time limit of each wait for the other end of the connection.
const PATIENCE: Duration = Duration::from_secs(20);

/// Sends `bytes` pseudo-random bytes over TCP, from the host `from` to the address `to` at the host `at`.
/// Compares the received bytes with the sent bytes.
///
/// # Panics
/// The connection fails, or the received bytes differ.
pub fn transfer(from: &Namespace, at: &Namespace, to: SocketAddr, bytes: usize) {
    let listener = at.within(|| TcpListener::bind(to)).unwrap_or_else(|error| panic!("{to}: {error}"));
    let mut random = Random::new(1);
    let words = std::iter::repeat_with(|| random.bits().to_le_bytes());
    let sent: Vec<u8> = words.flatten().take(bytes).collect();
    let expected = sent.clone();
    let receiver = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut received = Vec::with_capacity(expected.len());
        stream.read_to_end(&mut received).expect("the whole stream");
        received == expected
    });
    let connected = from.within(|| TcpStream::connect_timeout(&to, PATIENCE));
    let mut stream = connected.unwrap_or_else(|error| panic!("connect to {to}: {error}"));
    stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(&sent).unwrap_or_else(|error| panic!("send to {to}: {error}"));
    drop(stream);
    assert!(receiver.join().expect("the receiver"), "what arrived at {to} is not what was sent");
}
