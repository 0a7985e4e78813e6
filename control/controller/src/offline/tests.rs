use millrace_port::{Impair, Impairment};

use super::*;

#[test]
fn devices_that_a_caller_makes_take_the_place_of_memory_ports() {
    let text = "[[port]]\nname = \"a\"\nkind = \"memory\"\naddress = [\"10.1.0.1/24\"]\n";
    let loses = Impairment { loss: 1.0, ..Impairment::default() };
    let device =
        &mut |_: &str, memory| -> Box<dyn Port> { Box::new(Impair::new(Box::new(memory), &loses).unwrap()) };
    let mut router = OfflineRouter::with_devices(text, Vec::new(), device).unwrap();
    router.inject("a", &[0; 60]);
    router.run();
    let summary = router.summary();
    // The impaired port loses the injected frame, and the announcement of its own address.
    let lost = summary.dropped_by.get("impaired").copied();
    assert_eq!(lost, Some(summary.received + summary.created), "{summary:?}");
    assert_eq!((summary.received, summary.transmitted, summary.unaccounted), (1, 0, 0), "{summary:?}");
}
