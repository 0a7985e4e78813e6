//! Netlink: requests, attributes, sockets, and the message types that a router needs.

pub(crate) mod attribute;
pub(crate) mod decode;
pub(crate) mod request;
pub(crate) mod socket;

/// Message types of rtnetlink (`linux/rtnetlink.h`).
pub(crate) mod rtm {
    pub const NEWLINK: u16 = 16;
    pub const DELLINK: u16 = 17;
    pub const GETLINK: u16 = 18;
    pub const NEWADDR: u16 = 20;
    pub const DELADDR: u16 = 21;
    pub const GETADDR: u16 = 22;
    pub const NEWROUTE: u16 = 24;
    pub const DELROUTE: u16 = 25;
    pub const GETROUTE: u16 = 26;
    pub const NEWNEIGH: u16 = 28;
    pub const DELNEIGH: u16 = 29;
    pub const GETNEIGH: u16 = 30;
    pub const NEWRULE: u16 = 32;
    pub const GETRULE: u16 = 34;
    pub const NEWQDISC: u16 = 36;
    pub const DELQDISC: u16 = 37;
    pub const GETQDISC: u16 = 38;
    pub const NEWTFILTER: u16 = 44;
    pub const GETTFILTER: u16 = 46;
    pub const NEWNETCONF: u16 = 80;
    pub const DELNETCONF: u16 = 81;
    pub const GETNETCONF: u16 = 82;
    pub const NEWNEXTHOP: u16 = 104;
    pub const DELNEXTHOP: u16 = 105;
    pub const GETNEXTHOP: u16 = 106;
}
