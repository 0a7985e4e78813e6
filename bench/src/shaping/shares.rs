//! Accuracy of link sharing: bytes that each flow sends compared with its weight.

use std::time::Duration;

use serde_json::Value;

use super::greedy::{FIRST_PORT, Greedy, while_greedy};
use super::{Discipline, ROUTER, htb};
use crate::interrupt::pause;
use crate::testbed::network::Network;
use crate::testbed::router::Router;
use crate::{BenchError, Bound, Measurement, Options};

/// Link rates in megabits per second.
const LINKS: [u32; 3] = [2, 20, 200];
/// Weights of the flows.
const SHARES: [u32; 3] = [1, 2, 5];
/// Promised maximum: deviation from a flow's share in percent.
const LIMIT: f64 = 1.0;
/// Duration of the traffic before counting begins.
const BEFORE: Duration = Duration::from_millis(1500);

/// Returns the time for which bytes are counted. It is so long that a single packet is far less than one
/// percent of the smallest share.
fn time(link: u32) -> Duration {
    Duration::from_secs(if link < 10 { 20 } else { 5 })
}

pub(super) fn measure(network: &Network, options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let mut results = Vec::new();
    for link in LINKS {
        for greedy in [Greedy::Udp, Greedy::Tcp] {
            let kernel = worst(by_htb(network, link, greedy)?);
            let ours = worst(by_round_robin(network, options, link, greedy)?);
            let case = format!("{} at {link} Mb/s, weights 1, 2 and 5", greedy.name());
            (options.progress)(&format!("{case}: largest deviation {ours:.2} %, HTB {kernel:.2} %"));
            let off = Measurement::of(format!("{case}, largest deviation"), ours, "%");
            results.push(off.beside("HTB", kernel).promising(Bound::AtMost, LIMIT));
        }
    }
    Ok(results)
}

/// Returns the largest deviation of a flow from its share, in percent. `sent` has the bytes sent by each
/// flow.
fn worst(sent: [f64; 3]) -> f64 {
    let (all, weights) = (sent.iter().sum::<f64>(), f64::from(SHARES.iter().sum::<u32>()));
    let off = sent.iter().zip(SHARES).map(|(sent, share)| {
        let part = sent / all / (f64::from(share) / weights);
        100.0 * (part - 1.0).abs()
    });
    off.fold(0.0, f64::max)
}

/// Returns the number of bytes that each flow sends on a saturated link.
fn counted(
    network: &Network,
    link: u32,
    greedy: Greedy,
    sent: impl Fn() -> Result<[f64; 3], BenchError>,
) -> Result<[f64; 3], BenchError> {
    while_greedy(network, greedy, link, || {
        pause(BEFORE)?;
        let before = sent()?;
        pause(time(link))?;
        let after = sent()?;
        Ok(std::array::from_fn(|flow| after[flow] - before[flow]))
    })
}

fn by_round_robin(
    network: &Network,
    options: &Options<'_>,
    link: u32,
    greedy: Greedy,
) -> Result<[f64; 3], BenchError> {
    let router = Router::start(&options.binary, network, Some(ROUTER))?;
    router.tell(&["scheduler", "add", "r2", "top", "--kind", "deficit-round-robin"])?;
    for (flow, share) in SHARES.iter().enumerate() {
        let (name, quantum) = (format!("q{flow}"), format!("quantum={}", share * 1538));
        router.tell(&["scheduler", "add", "r2", &name, "--kind", "fifo", "--under", "top", &quantum])?;
        let filter = format!("dport {}", FIRST_PORT + flow as u16);
        router.tell(&["filter", "add", &filter, "--action", &format!("queue {name}")])?;
    }
    router.tell(&["scheduler", "set", "r2", &format!("rate={link}mbit")])?;
    let sent = counted(network, link, greedy, || sent(&router))?;
    router.stop()?;
    Ok(sent)
}

/// Returns the number of bytes that each flow's queue has sent.
fn sent(router: &Router) -> Result<[f64; 3], BenchError> {
    let shown = router.tell(&["queue", "show", "r2", "--json"])?;
    let queues: Value = serde_json::from_str(&shown)
        .map_err(|error| BenchError::measurement("queue show", format!("{error}: {shown}")))?;
    let bytes = |flow: usize| {
        let name = format!("q{flow}");
        let queue = queues.as_array()?.iter().find(|queue| queue["name"] == name.as_str())?;
        queue["sent_bytes"].as_f64()
    };
    let all: Option<Vec<f64>> = (0..3).map(bytes).collect();
    let all = all.and_then(|all| all.try_into().ok());
    all.ok_or_else(|| BenchError::measurement("queue show", format!("the answer lacks queues: {shown}")))
}

/// Measures the shares of the kernel's HTB. Each flow has a class, and may borrow up to the whole link rate.
fn by_htb(network: &Network, link: u32, greedy: Greedy) -> Result<[f64; 3], BenchError> {
    let mut lines = htb(link, 10);
    for (flow, share) in SHARES.iter().enumerate() {
        let (rate, quantum, port) =
            (1000 * link * share / SHARES.iter().sum::<u32>(), share * 1538, FIRST_PORT + flow as u16);
        lines.push(format!(
            "class add dev r2 parent 1:1 classid 1:1{flow} htb rate {rate}kbit ceil {link}mbit quantum {quantum} \
             overhead 24 mpu 84"
        ));
        lines.push(format!(
            "filter add dev r2 parent 1: protocol ip u32 match ip dport {port} 0xffff flowid 1:1{flow}"
        ));
    }
    let _discipline = Discipline::set(network, &lines)?;
    counted(network, link, greedy, || sent_by_kernel(network))
}

/// Returns the number of bytes that each HTB class has sent, from the output of `tc`.
fn sent_by_kernel(network: &Network) -> Result<[f64; 3], BenchError> {
    let shown = network.r.shell("tc -statistics class show dev r2")?;
    let all: Option<Vec<f64>> = (0..3).map(|flow| class_bytes(&shown, &format!("1:1{flow}"))).collect();
    let all = all.and_then(|all| all.try_into().ok());
    all.ok_or_else(|| BenchError::measurement("tc", format!("the output of tc lacks classes: {shown}")))
}

fn class_bytes(shown: &str, class: &str) -> Option<f64> {
    let mut lines = shown.lines().skip_while(|line| !line.starts_with(&format!("class htb {class} ")));
    let sent = lines.find(|line| line.trim_start().starts_with("Sent "))?;
    sent.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_class_are_found() {
        let shown = "class htb 1:1 root rate 20Mbit ceil 20Mbit\n Sent 9 bytes 1 pkt (dropped 0)\n\
                     class htb 1:10 parent 1:1 leaf 8001: prio 0 rate 2500Kbit\n Sent 1234 bytes 8 pkt (dropped 3)\n";
        assert_eq!(class_bytes(shown, "1:10"), Some(1234.0));
        assert_eq!(class_bytes(shown, "1:11"), None);
    }

    #[test]
    fn share_is_compared_with_its_weight() {
        assert_eq!(worst([10.0, 20.0, 50.0]), 0.0);
        assert!((worst([9.0, 20.0, 51.0]) - 10.0).abs() < 1e-9);
    }
}
