//! Screen of `top`.

use millrace_units::count;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Paragraph};
use serde_json::{Value, json};

use super::look::Look;
use crate::commands::configure::configuration::waits;
use crate::commands::nouns::{LINKS, PROCESSES};
use crate::output::{plain, rows, table, tables};

const PORTS: &str = "port=name | state | rx/s=rx_rate | tx/s=tx_rate | rx b/s=rx_bits | tx b/s=tx_bits \
    | waiting=held";
const DROPS: &str = "per second=rate | packets | reason | ports";
const QUEUES: &str = "port | queue=name | promised b/s=promised | delivered b/s=delivered \
    | waiting=held_packets | drops";
const INSTANCES: &str = "instance=name | plugin | health | packets/s=rate | packets | faults";
const PROMISES: &str = "principal | promised %=promised | wanted %=windows/0/wanted \
    | delivered %=windows/0/delivered | 10 s=windows/1/delivered | 60 s=windows/2/delivered \
    | kept=windows/1/kept | idle %=windows/1/idle | met=windows/1/deadlines_met | missed=windows/1/deadlines_missed \
    | waiting | dropped | queue=windows/1/drops/cpu_queue | memory=windows/1/drops/memory \
    | ceiling=windows/1/drops/core_ceiling | hand-over=windows/1/drops/handover | link=windows/1/drops/link_queue";
const FLOWS: &str = "packets/s=packet_rate | bits/s=bit_rate | level | flow | bindings";

/// The two latest snapshots, from which rates are calculated, and the state of the display.
#[derive(Debug)]
pub struct Screen {
    look: Look,
    before: Option<Look>,
    held: bool,
}

impl Screen {
    pub fn new(first: Look) -> Self {
        Self { look: first, before: None, held: false }
    }

    /// Makes a snapshot the current one, unless the screen is frozen.
    pub fn show(&mut self, look: Look) {
        if !self.held {
            self.before = Some(std::mem::replace(&mut self.look, look));
        }
    }

    /// Freezes the display, or continues it if it is frozen.
    pub fn hold_or_go_on(&mut self) {
        self.held = !self.held;
    }

    /// Draws all panels; empty panels take no room.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let instances = self.instances();
        let width = usize::from(frame.area().width);
        let promises = &self.look.promises;
        let panels = [
            ("ports", table(rows(&self.look.ports), PORTS)),
            ("drops", table(rows(&self.look.drops), DROPS)),
            ("queues", table(&self.queues(), QUEUES)),
            ("plugins", table(&instances, INSTANCES)),
            ("principals", tables(rows(&promises["promises"]), PROMISES, (1, width))),
            ("links", tables(rows(&promises["links"]), LINKS, (2, width))),
            ("processes", tables(rows(&promises["processes"]), PROCESSES, (1, width))),
            ("flows", table(rows(&self.look.flows["flows"]), FLOWS)),
        ];
        let filled: Vec<_> = panels.into_iter().filter(|(_, text)| text.lines().count() > 1).collect();
        let header = self.header();
        let heights = filled.iter().enumerate().map(|(number, (_, text))| match number + 1 == filled.len() {
            true => Constraint::Min(3),
            false => Constraint::Length(u16::try_from(text.lines().count() + 1).unwrap_or(u16::MAX)),
        });
        let constraints = [Constraint::Length(header.len() as u16)].into_iter().chain(heights);
        let areas = Layout::vertical(constraints).split(frame.area());
        frame.render_widget(Paragraph::new(header), areas[0]);
        for ((title, text), area) in filled.into_iter().zip(&areas[1..]) {
            panel(frame, *area, title, text);
        }
    }

    fn header(&self) -> Vec<Line<'static>> {
        let (status, summary) = (&self.look.status, &self.look.summary);
        let held = if self.held { "  [paused]" } else { "" };
        let per_second = |key: &str| self.rate(|look| look.summary[key].as_f64()).map_or("-".into(), rounded);
        let mut lines = vec![
            Line::from(format!(
                "millrace {}  up {} s  {} of {}  {}  frames {} of {}{held}",
                plain(&status["version"]),
                rounded(status["uptime"].as_f64().unwrap_or(0.0)),
                count(plain(&status["flows"]["known"]), "flow"),
                plain(&status["flows"]["limit"]),
                count(plain(&status["routes"]), "route"),
                plain(&status["memory"]["used"]),
                plain(&status["memory"]["frames"]),
            )),
            Line::from(format!(
                "packets/s: received {}, sent {}, to host {}, consumed {}, dropped {}; packets held {}",
                per_second("received"),
                per_second("transmitted"),
                per_second("to_host"),
                per_second("consumed"),
                per_second("dropped"),
                plain(&summary["held"]),
            )),
            Line::from(format!("processor: {}  (space pauses, q quits)", self.processors())),
        ];
        lines.extend(self.offloaded_flows().map(Line::from));
        lines.extend(waits(&status["pending"]).map(Line::from));
        lines
    }

    /// Formats number and rates of offloaded flows; `None` if the configuration allows no offload.
    fn offloaded_flows(&self) -> Option<String> {
        let flows = self.look.status["offloaded_flows"].as_object()?;
        let per_second = |key: &str| {
            let rate = self.rate(|look| look.status["offloaded_flows"][key].as_f64());
            rate.map_or("-".into(), rounded)
        };
        Some(format!(
            "offloaded: {} of {}; per second: {} inserted, {} idle, {} evicted, {} refused",
            count(plain(&flows["flows"]), "flow"),
            plain(&flows["limit"]),
            per_second("inserted"),
            per_second("idle"),
            per_second("evicted"),
            per_second("refused"),
        ))
    }

    /// Formats the CPU use of each worker since the previous snapshot.
    fn processors(&self) -> String {
        let used = |worker: usize| self.rate(|look| look.status["worker_cpu"][worker].as_f64());
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let workers = rows(&self.look.status["worker_cpu"]).len();
        let shown = |worker| format!("worker {worker} {}", used(worker).map_or("-".to_owned(), percent));
        (0..workers).map(shown).collect::<Vec<_>>().join(", ")
    }

    /// Returns the growth of a counter per second since the previous snapshot. `None` without a previous
    /// snapshot, or after a counter reset.
    fn rate(&self, number: impl Fn(&Look) -> Option<f64>) -> Option<f64> {
        let before = self.before.as_ref()?;
        let grown = number(&self.look)? - number(before)?;
        let time = self.look.at.saturating_duration_since(before.at).as_secs_f64();
        (grown >= 0.0 && time > 0.0).then(|| grown / time)
    }

    /// Returns the queues. Converts their rates to floating-point numbers, so that they are displayed like
    /// the rates of ports.
    fn queues(&self) -> Vec<Value> {
        let mut queues = rows(&self.look.queues).to_vec();
        for queue in &mut queues {
            for key in ["promised", "delivered"] {
                if let Some(rate) = queue[key].as_f64() {
                    queue[key] = json!(rate);
                }
            }
        }
        queues
    }

    /// Returns the instances, each with the counters of its bindings added up.
    fn instances(&self) -> Vec<Value> {
        let instances = rows(&self.look.instances).iter();
        let row = |instance: &Value| {
            let name = &instance["name"];
            let rate = self.rate(|look| {
                rows(&look.instances).iter().find(|one| one["name"] == *name).map(|one| packets(one) as f64)
            });
            json!({
                "name": name, "plugin": instance["plugin"], "health": instance["health"],
                "faults": instance["faults"], "packets": packets(instance), "rate": rate,
            })
        };
        instances.map(row).collect()
    }
}

fn packets(instance: &Value) -> u64 {
    rows(&instance["bindings"]).iter().filter_map(|binding| binding["packets"].as_u64()).sum()
}

fn rounded(value: f64) -> String {
    format!("{value:.0}")
}

fn panel(frame: &mut Frame<'_>, area: Rect, title: &str, text: String) {
    let block = Block::new().borders(Borders::TOP).title(format!(" {title} "));
    frame.render_widget(Paragraph::new(text).block(block), area);
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn look(at: Instant, packets: u64, cpu: f64) -> Look {
        Look {
            at,
            status: json!({
                "version": "9.9", "uptime": 12.3, "routes": 5, "flows": {"known": 2, "limit": 1024},
                "memory": {"used": 7, "frames": 32768}, "worker_cpu": [cpu, 0.0],
            }),
            summary: json!({
                "received": packets, "transmitted": packets, "to_host": 0, "consumed": 0, "dropped": 1, "held": 3,
            }),
            ports: json!([{"name": "lan", "state": "up", "rx_rate": 5.0, "tx_rate": 6.0, "rx_bits": 2e6, "tx_bits": 0.0, "held": 0}]),
            drops: json!([]),
            promises: json!({"promises": [{"principal": "video", "promised": 5.0, "waiting": 3, "dropped": 0,
                                           "windows": [{"wanted": 100.0, "delivered": 7.25},
                                                       {"deadlines_missed": 613, "drops": {"core_ceiling": 614}}]}],
                             "links": [{"principal": "video", "port": "wan", "windows": [{"entitled": 615}]}],
                             "processes": [{"group": "video", "processes": 616}]}),
            queues: json!([{"port": "wan", "name": "voice", "promised": 20_000_000, "delivered": 472_974, "held_packets": 0}]),
            instances: json!([{"name": "s1", "plugin": "statistics", "health": "well", "faults": {},
                               "bindings": [{"packets": packets}, {"packets": 4}]}]),
            flows: json!({"found": 1, "flows": [{"packet_rate": 5.0, "bit_rate": 1e4, "level": "offload",
                                                 "flow": "src 10.1.0.2 dst 10.2.0.2", "bindings": ["monitor s1"]}]}),
        }
    }

    fn drawn(screen: &Screen) -> String {
        let mut terminal = Terminal::new(TestBackend::new(100, 40)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn rates_compare_two_snapshots_and_empty_panels_take_no_room() {
        let start = Instant::now();
        let mut screen = Screen::new(look(start, 1000, 1.0));
        let first = drawn(&screen);
        assert!(first.contains("received -") && first.contains("worker 0 -, worker 1 -"), "{first}");
        screen.show(look(start + Duration::from_secs(2), 1600, 1.5));
        let second = drawn(&screen);
        for text in [
            "received 300, sent 300",
            "dropped 0; packets held 3",
            "worker 0 25 %, worker 1 0 %",
            "lan",
            "300.0",
            "20.00 M",
            "472.97 k",
            "q quits",
            "1604",
            "613",
            "614",
            "615",
            "616",
        ] {
            assert!(second.contains(text), "{text}: {second}");
        }
        assert!(second.contains(" flows ─") && !second.contains(" drops ─"), "{second}");
    }

    #[test]
    fn offload_rates_are_shown() {
        let start = Instant::now();
        let look = |seconds: u64, evicted: u64| {
            let mut look = look(start + Duration::from_secs(seconds), 1000, 1.0);
            look.status["offloaded_flows"] = json!({
                "flows": 7, "limit": 8, "inserted": 10 + 2 * evicted, "idle": 3, "evicted": evicted, "refused": evicted,
            });
            look
        };
        let mut screen = Screen::new(look(0, 0));
        screen.show(look(2, 50));
        let text = "offloaded: 7 flows of 8; per second: 50 inserted, 0 idle, 25 evicted, 25 refused";
        assert!(drawn(&screen).contains(text), "{}", drawn(&screen));
    }

    #[test]
    fn paused_screen_does_not_change() {
        let start = Instant::now();
        let mut screen = Screen::new(look(start, 1000, 1.0));
        screen.hold_or_go_on();
        screen.show(look(start + Duration::from_secs(2), 1600, 1.5));
        assert!(drawn(&screen).contains("[paused]") && drawn(&screen).contains("1004"));
        screen.hold_or_go_on();
        screen.show(look(start + Duration::from_secs(2), 1600, 1.5));
        assert!(drawn(&screen).contains("1604"));
    }

    #[test]
    fn unconfirmed_revision_is_shown_until_confirmed() {
        let mut one = look(Instant::now(), 1000, 1.0);
        assert!(!drawn(&Screen::new(look(Instant::now(), 1000, 1.0))).contains("waits"));
        one.status["pending"] = json!({"revision": 7, "seconds": 14});
        let told = drawn(&Screen::new(one));
        assert!(told.contains("revision 7 is unconfirmed; the router reverts it in 14 s"), "{told}");
    }

    #[test]
    fn counters_that_were_cleared_have_no_rate() {
        let start = Instant::now();
        let mut screen = Screen::new(look(start, 1000, 1.0));
        screen.show(look(start + Duration::from_secs(1), 10, 1.0));
        assert!(drawn(&screen).contains("received -"));
    }
}
