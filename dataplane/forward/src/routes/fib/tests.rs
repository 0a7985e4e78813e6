//! Tests of insertion, change and removal of routes, and of route numbers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};
use millrace_units::PortId;

use super::*;
use crate::{NextHop, NextHops};

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn via(gateway: &str) -> Route {
    Route::Forward(NextHops::single(NextHop::new(PortId(1), Some(gateway.parse().unwrap()))))
}

#[test]
fn a_reader_sees_both_families_change() {
    let mut fib = SharedFib::new().unwrap();
    let reader = fib.reader();
    let (v4, v6) = (Ipv4Addr::new(10, 1, 2, 3), "2001:db8::1".parse::<Ipv6Addr>().unwrap());
    assert_eq!((reader.lookup4(v4), reader.lookup6(v6)), (None, None));
    let change = fib.insert(net("10.0.0.0/8"), via("10.9.0.1")).unwrap();
    assert_eq!(change, FibChange { index: RouteIndex(0), is_new: true, old: None });
    assert!(!fib.insert(net("2001:db8::/126"), via("10.9.0.1")).unwrap().is_new);
    assert_eq!(reader.lookup(v4.into()), Some(change.index));
    assert_eq!(reader.lookup(v6.into()), Some(change.index));
    let change = fib.insert(net("10.0.0.0/8"), Route::Local).unwrap();
    assert_eq!((change.old, reader.lookup4(v4)), (Some(via("10.9.0.1")), Some(change.index)));
    assert_eq!(fib.prefix_of(v4.into()), Some((net("10.0.0.0/8"), &Route::Local)));
    let mut found = [None; 3];
    reader.lookup4_batch(&[v4, Ipv4Addr::LOCALHOST, v4], &mut found);
    assert_eq!(found, [Some(change.index), None, Some(change.index)]);
    let mut found = [None; 2];
    reader.lookup6_batch(&[v6, Ipv6Addr::LOCALHOST], &mut found);
    assert_eq!(found.map(|index| index.map(|index| fib.route(index).clone())), [Some(via("10.9.0.1")), None]);
    assert_eq!(fib.remove(net("10.0.0.0/8")), Some(Route::Local));
    assert_eq!((fib.remove(net("10.0.0.0/8")), reader.lookup4(v4), fib.len()), (None, None, 1));
}

#[test]
fn a_number_means_one_route_until_workers_have_gone_on() {
    let mut fib = SharedFib::new().unwrap();
    let first = fib.insert(net("10.0.0.0/8"), via("10.9.0.1")).unwrap().index;
    fib.remove(net("10.0.0.0/8"));
    assert_eq!(fib.waiting(), 2, "noted when it was interned, and when it went");
    assert_eq!(fib.route(first), &via("10.9.0.1"));
    let second = fib.insert(net("10.0.0.0/8"), via("10.9.0.2")).unwrap();
    assert_ne!(second.index, first);
    // Another prefix gets the route before workers have passed the epoch. The route keeps its number, which
    // workers know.
    let again = fib.insert(net("11.0.0.0/8"), via("10.9.0.1")).unwrap();
    assert_eq!((again.index, again.is_new), (first, false));
    let epoch = fib.close_epoch();
    fib.remove(net("11.0.0.0/8"));
    fib.quiesced(epoch);
    assert_ne!(fib.insert(net("12.0.0.0/8"), via("10.9.0.3")).unwrap().index, first, "it went later");
    let epoch = fib.close_epoch();
    fib.quiesced(epoch);
    let reused = fib.insert(net("13.0.0.0/8"), via("10.9.0.4")).unwrap();
    assert_eq!((reused.index, reused.is_new), (first, true));
    assert_eq!(fib.distinct(), 3);
}

#[test]
fn a_number_that_no_prefix_gets_is_lost() {
    let mut fib = SharedFib::new().unwrap();
    let (index, is_new) = fib.intern(Route::Prohibit);
    assert_eq!((is_new, fib.intern(Route::Prohibit)), (true, (index, true)), "still unknown to workers");
    let epoch = fib.close_epoch();
    fib.quiesced(epoch);
    assert_eq!(fib.distinct(), 0);
    assert_eq!(fib.intern(Route::Local), (index, true));
    fib.store(net("::/0"), index).unwrap();
    assert_eq!(fib.intern(Route::Local), (index, false));
    assert_eq!(fib.iter().collect::<Vec<_>>(), [(net("::/0"), &Route::Local)]);
}

#[test]
#[should_panic(expected = "no route has number 5")]
fn a_number_that_was_not_given_is_refused() {
    let _ = SharedFib::new().unwrap().store(net("::/0"), RouteIndex(5));
}

#[test]
fn many_prefixes_share_a_route_and_its_number_is_released() {
    let mut fib = SharedFib::new().unwrap();
    let reader = fib.reader();
    let prefix = |third| Ipv4Net::new_assert(Ipv4Addr::new(10, 0, third, 0), 24).into();
    for third in 0..200u8 {
        fib.insert(prefix(third), via("10.9.0.1")).unwrap();
    }
    assert_eq!((fib.len(), fib.distinct()), (200, 1));
    let index = reader.lookup4(Ipv4Addr::new(10, 0, 7, 7)).unwrap();
    assert_eq!(reader.lookup4(Ipv4Addr::new(10, 0, 8, 8)), Some(index));
    for third in 0..200u8 {
        assert_eq!(fib.remove(prefix(third)), Some(via("10.9.0.1")));
    }
    let epoch = fib.close_epoch();
    fib.quiesced(epoch);
    assert_eq!((fib.len(), fib.distinct(), fib.waiting()), (0, 0, 0));
    fib.insert(net("0.0.0.0/0"), Route::Blackhole).unwrap();
    assert_eq!(reader.lookup4(Ipv4Addr::LOCALHOST), Some(index), "the number is used again");
}

/// Test case FW-01: nested prefixes, each added and removed.
#[test]
fn the_longest_prefix_wins_at_each_step() {
    let mut fib = SharedFib::new().unwrap();
    let reader = fib.reader();
    let nested = ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.1.0/24", "10.1.1.128/25", "10.1.1.129/32"];
    let address = IpAddr::from([10, 1, 1, 129]);
    for (number, prefix) in nested.iter().enumerate() {
        let route = via(&format!("10.9.0.{number}"));
        let change = fib.insert(net(prefix), route.clone()).unwrap();
        assert_eq!(fib.prefix_of(address), Some((net(prefix), &route)));
        assert_eq!(reader.lookup(address), Some(change.index));
    }
    for (number, prefix) in nested.iter().enumerate().rev() {
        let route = via(&format!("10.9.0.{number}"));
        assert_eq!(fib.prefix_of(address).unwrap().0, net(prefix));
        assert_eq!(reader.lookup(address).map(|index| fib.route(index)), Some(&route));
        assert_eq!(fib.remove(net(prefix)), Some(route));
    }
    assert_eq!((fib.prefix_of(address), reader.lookup(address)), (None, None));
}

#[test]
fn replacing_returns_the_old_route() {
    let mut fib = SharedFib::new().unwrap();
    assert_eq!(fib.insert(net("2001:db8::/32"), Route::Local).unwrap().old, None);
    assert_eq!(fib.insert(net("2001:db8::5/32"), Route::Prohibit).unwrap().old, Some(Route::Local));
    assert_eq!((fib.get(net("2001:db8::/32")), fib.len()), (Some(&Route::Prohibit), 1));
}

#[test]
fn iteration_is_by_address_and_length() {
    let mut fib = SharedFib::new().unwrap();
    let ordered =
        ["0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/24", "10.0.0.128/25", "11.0.0.0/8", "::/0", "fe80::/10"];
    for prefix in ordered.iter().rev() {
        fib.insert(net(prefix), Route::Blackhole).unwrap();
    }
    let found: Vec<_> = fib.iter().map(|(prefix, _)| prefix.to_string()).collect();
    assert_eq!(found, ordered);
}

#[test]
fn a_number_that_is_asked_for_again_is_not_lost_with_an_earlier_epoch() {
    let mut fib = SharedFib::new().unwrap();
    let (index, _) = fib.intern(Route::Prohibit);
    let epoch = fib.close_epoch();
    assert_eq!(fib.intern(Route::Prohibit), (index, true));
    fib.quiesced(epoch);
    assert_eq!(fib.store(net("::/0"), index), Ok(None));
    let epoch = fib.close_epoch();
    fib.quiesced(epoch);
    assert_eq!(fib.get(net("::/0")), Some(&Route::Prohibit));
}

#[test]
fn prefix_keeps_its_own_number_while_its_route_is_unchanged() {
    let mut fib = SharedFib::new().unwrap();
    let own = |fib: &mut SharedFib, prefix: &str, gateway: &str| {
        let (index, is_new) = fib.intern_own(net(prefix), via(gateway), 2);
        fib.store(net(prefix), index).unwrap();
        (index.0, is_new)
    };
    assert_eq!(own(&mut fib, "10.0.0.0/8", "10.9.0.1"), (0, true));
    assert_eq!(own(&mut fib, "11.0.0.0/8", "10.9.0.1"), (1, true));
    assert_eq!(own(&mut fib, "10.0.0.0/8", "10.9.0.1"), (0, false));
    // All numbers below the limit are in use, so the next prefixes share numbers.
    assert_eq!(own(&mut fib, "12.0.0.0/8", "10.9.0.1"), (2, true));
    assert_eq!(own(&mut fib, "13.0.0.0/8", "10.9.0.1"), (2, false));
    let numbers = ["10.0.0.0/8", "11.0.0.0/8", "12.0.0.0/8", "14.0.0.0/8"].map(|to| fib.own_number(net(to)));
    assert_eq!(numbers, [Some(RouteIndex(0)), Some(RouteIndex(1)), None, None]);
    assert_eq!((fib.len(), fib.distinct()), (4, 3));
}

#[test]
fn number_held_by_a_reader_is_reused_later() {
    let mut fib = SharedFib::new().unwrap();
    for prefix in ["10.0.0.0/8", "11.0.0.0/8"] {
        let (index, _) = fib.intern_own(net(prefix), via("10.9.0.1"), 100);
        fib.store(net(prefix), index).unwrap();
        fib.remove(net(prefix));
    }
    let epoch = fib.close_epoch();
    assert_eq!(fib.quiesced_but(epoch, |number| number == RouteIndex(0)), [RouteIndex(1)]);
    assert_eq!(fib.intern_own(net("12.0.0.0/8"), via("10.9.0.1"), 100).0, RouteIndex(1));
    let epoch = fib.close_epoch();
    assert!(fib.quiesced_but(epoch, |_| false).contains(&RouteIndex(0)));
    // The smallest free number is given first.
    assert_eq!(fib.intern_own(net("13.0.0.0/8"), via("10.9.0.1"), 100).0, RouteIndex(0));
}
