//! Builds an example of the packet that a lookup describes: annotations, and the headers that the stages
//! read.

use std::net::IpAddr;
use std::ops::Deref;

use millrace_classify::{Candidate, flow_hash};
use millrace_packet::{Annotations, Exceptions, FlowKey};
use millrace_wire::{Protocol, ipv4, ipv6};

use super::Question;
use crate::subject::Subject;

/// Fragment offset of a later IPv4 fragment, in units of 8 octets. No transport header reaches that far.
const LATER4: u16 = 1480 / 8;
/// Fragment offset of a later IPv6 fragment, in octets.
const LATER6: u16 = 1480;
/// Don't-fragment flag (DF) of IPv4.
const DONT_FRAGMENT: u16 = 0x4000;
const ECHO_REQUEST4: u8 = 8;
const ECHO_REQUEST6: u8 = 128;
/// TTL of packets without the TTL exception.
const TTL: u8 = 64;
/// IPv4 options without effect; also the rest of an IPv6 hop-by-hop header without effect.
const NO_OPERATION: [u8; 4] = [1, 1, 1, 1];
const PADDING: [u8; 6] = [1, 4, 0, 0, 0, 0];

/// Example of the packet that a lookup describes.
pub(super) struct Example {
    annotations: Annotations,
    headers: Vec<u8>,
    length: usize,
}

impl Example {
    /// Builds the example of a described packet. `seed` keys the flow hash.
    pub fn new(question: &Question, seed: u64) -> Self {
        let Candidate { key, exceptions, tag, .. } = question.candidate;
        let hash = flow_hash(&key, seed);
        let annotations = Annotations { port: key.port, exceptions, tag, hash, ..Annotations::EMPTY };
        Self { annotations, headers: headers(question), length: question.length.into() }
    }

    /// Returns the annotations, mutable, for the results of the stages.
    pub fn annotations_mut(&mut self) -> &mut Annotations {
        &mut self.annotations
    }
}

impl Deref for Example {
    type Target = Annotations;

    fn deref(&self) -> &Annotations {
        &self.annotations
    }
}

impl Subject for Example {
    fn network(&self) -> &[u8] {
        &self.headers
    }

    fn network_len(&self) -> usize {
        self.length
    }

    fn is_link_group(&self) -> bool {
        false
    }
}

fn headers(question: &Question) -> Vec<u8> {
    let key = question.key();
    match (key.source(), key.destination()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let header = header4(question);
            [&header[..], &source.octets(), &destination.octets(), &options4(question), &transport(question)]
                .concat()
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let (next, extensions) = extensions6(question);
            let header = header6(question, next);
            [&header[..], &source.octets(), &destination.octets(), &extensions, &transport(question)].concat()
        }
        // Unreachable: both addresses of a flow key belong to one family.
        _ => Vec::new(),
    }
}

fn ttl(exceptions: Exceptions) -> u8 {
    if exceptions.contains(Exceptions::TTL) { 1 } else { TTL }
}

/// Returns the first 12 octets of an IPv4 header, with a checksum of 0.
fn header4(question: &Question) -> [u8; 12] {
    let Candidate { key, exceptions, dscp, .. } = question.candidate;
    let words = (ipv4::HEADER_LEN + options4(question).len()) as u8 / 4;
    let later = if exceptions.contains(Exceptions::FRAGMENT) { LATER4 } else { 0 };
    let flags = if question.dont_fragment { DONT_FRAGMENT } else { 0 };
    let ([long, length], [high, low]) = (question.length.to_be_bytes(), (flags | later).to_be_bytes());
    [0x40 | words, dscp << 2, long, length, 0, 0, high, low, ttl(exceptions), key.protocol, 0, 0]
}

fn options4(question: &Question) -> Vec<u8> {
    match question.candidate.exceptions.contains(Exceptions::OPTIONS) {
        true => NO_OPERATION.to_vec(),
        false => Vec::new(),
    }
}

/// Returns the first 8 octets of an IPv6 header.
fn header6(question: &Question, next: u8) -> [u8; 8] {
    let Candidate { exceptions, dscp, .. } = question.candidate;
    let payload = question.length.saturating_sub(ipv6::HEADER_LEN as u16);
    let [high, low] = payload.to_be_bytes();
    [0x60 | dscp >> 2, dscp << 6, 0, 0, high, low, next, ttl(exceptions)]
}

/// Returns the extension headers, and the next header field of the IPv6 header.
fn extensions6(question: &Question) -> (u8, Vec<u8>) {
    let Candidate { key, exceptions, .. } = question.candidate;
    let (mut next, mut extensions) = (key.protocol, Vec::new());
    if exceptions.contains(Exceptions::FRAGMENT) {
        let [high, low] = LATER6.to_be_bytes();
        extensions = vec![next, 0, high, low, 0, 0, 0, 1];
        next = Protocol::FRAGMENT.0;
    }
    if exceptions.contains(Exceptions::OPTIONS) && next != Protocol::HOP_BY_HOP.0 {
        extensions = [&[next, 0][..], &PADDING, &extensions].concat();
        next = Protocol::HOP_BY_HOP.0;
    }
    (next, extensions)
}

/// Returns the first octets of the transport header; empty if the described packet has no readable one.
fn transport(question: &Question) -> Vec<u8> {
    let Candidate { key, exceptions, tcp_flags, .. } = question.candidate;
    if exceptions.contains(Exceptions::CUT) || exceptions.contains(Exceptions::FRAGMENT) {
        return Vec::new();
    }
    let FlowKey { source_port, destination_port, protocol, .. } = key;
    let ports = [source_port.to_be_bytes(), destination_port.to_be_bytes()].concat();
    match Protocol(protocol) {
        Protocol::ICMP => vec![ECHO_REQUEST4, 0, 0, 0, 0, 0, 0, 0],
        Protocol::ICMPV6 => vec![ECHO_REQUEST6, 0, 0, 0, 0, 0, 0, 0],
        Protocol::TCP => {
            let flags = tcp_flags.unwrap_or_default();
            [&ports[..], &[0; 8], &[0x50, flags, 0, 0, 0, 0, 0, 0]].concat()
        }
        _ => [&ports[..], &[0; 4]].concat(),
    }
}
