//! Bytes over TCP, compared at the other end.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use crate::namespace::Namespace;

/// How long a side waits for the other.
const PATIENCE: Duration = Duration::from_secs(20);

/// Sends `bytes` pseudo-random bytes over TCP from one host to `to` at another, and compares what arrives.
///
/// # Panics
/// When the connection fails, or a byte is missing, wrong or too much.
pub fn transfer(from: &Namespace, at: &Namespace, to: SocketAddr, bytes: usize) {
    let listener = at.within(|| TcpListener::bind(to)).unwrap_or_else(|error| panic!("{to}: {error}"));
    let sent = content(bytes);
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

/// Bytes without a pattern (xorshift64, Marsaglia 2003).
fn content(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(&mut next).flatten().take(length).collect()
}
