//! Several workers fill a flow cache that programs read at the same time.

use std::os::fd::AsFd;

use millrace_packet::OffloadAction;

use super::super::FlowCacheWriter;
use super::super::dry_runs::{Bench, PORT, REDIRECT};
use super::super::forward_twin::forwarded;
use super::numbered;
use crate::bpf::syscall;
use crate::test_support::{can_load, now};

#[test]
fn workers_that_fill_the_cache_at_once_lose_none_of_each_others_flows() {
    if !can_load() {
        return;
    }
    const WORKERS: u16 = 4;
    const FLOWS: u16 = 8;
    // There are enough entries, but so few words that the workers' flows compete for them.
    let mut bench = Bench::of_workers((WORKERS * FLOWS * 2).into(), WORKERS.into());
    let writers: Vec<_> = (0..WORKERS).map(|worker| bench.cache.writer(worker.into()).unwrap()).collect();
    let start = std::sync::Barrier::new(WORKERS.into());
    let fill = |(worker, mut writer): (u16, FlowCacheWriter)| {
        let flows: Vec<_> = (worker * FLOWS..(worker + 1) * FLOWS).map(numbered).collect();
        writer.publish(7);
        start.wait();
        let mut lost = 0;
        for round in 0..20_000 {
            let slots: Vec<_> =
                flows.iter().map(|(key, _, flow)| writer.insert(key, flow).unwrap()).collect();
            // A flow with an entry gets no second entry.
            lost += flows.iter().filter(|(key, _, flow)| writer.insert(key, flow).is_some()).count();
            if round == 20_000 - 1 || lost > 0 {
                slots.iter().for_each(|slot| writer.begin(*slot, PORT, 7));
                break;
            }
            for ((key, ..), slot) in flows.iter().zip(slots) {
                writer.remove(key, slot);
            }
        }
        (writer, lost, flows)
    };
    let mut filled: Vec<_> = std::thread::scope(|scope| {
        let fill = &fill;
        let numbered = (0..WORKERS).zip(writers);
        let each: Vec<_> = numbered.map(|own| scope.spawn(move || fill(own))).collect();
        each.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(filled.iter().map(|(_, lost, _)| lost).sum::<usize>(), 0);
    for (_, frame, flow) in filled.iter().flat_map(|(_, _, flows)| flows) {
        let OffloadAction::Send(way) = flow.action else { unreachable!() };
        assert_eq!(bench.run(0, frame), Some(forwarded(frame, &way)));
    }
    // Each worker has its own generation.
    filled[0].0.publish(8);
    assert!(!bench.forwards(&numbered(0).1) && bench.forwards(&numbered(FLOWS).1));
}

#[test]
fn program_reads_one_flows_entry_during_concurrent_reuse() {
    if !can_load() {
        return;
    }
    // Two flows use one entry in turn; and one flow changes its output.
    let mut bench = Bench::new(1);
    let programs = bench.programs[0].try_clone().unwrap();
    let ends = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_over = ends.clone();
    let reader = std::thread::spawn(move || {
        let mut forwarded = 0;
        while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
            for number in 0..4_u16 {
                let (_, frame, _) = numbered(number);
                let (verdict, out) = syscall::run_dry_through(programs.as_fd(), &frame).unwrap();
                if verdict == REDIRECT && out[..4] == [2, 9, 9, 9] {
                    assert_eq!(out[4..6], number.to_be_bytes(), "the way of another flow");
                    forwarded += 1;
                }
            }
        }
        forwarded
    });
    let start = now();
    for number in (0..4_u16).cycle() {
        let (key, _, flow) = numbered(number);
        let slot = bench.writer.insert(&key, &flow).unwrap();
        for _ in 0..50 {
            bench.writer.set_done(PORT, bench.writer.up(PORT));
            bench.writer.begin(slot, PORT, 1);
            bench.writer.renew(slot, &flow, 1);
        }
        bench.writer.remove(&key, slot);
        if start.elapsed() > std::time::Duration::from_secs(2) {
            break;
        }
    }
    ends.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(reader.join().unwrap() > 0, "none was forwarded meanwhile");
}
