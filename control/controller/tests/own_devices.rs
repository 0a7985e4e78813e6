//! Tests of ports without a kernel device: the announcements of their addresses when the device is opened.

use std::path::PathBuf;

use millrace_config::Config;
use millrace_controller::operation::{GetSummary, ListDrops};
use millrace_controller::{Principal, StartOptions, start};

/// Path of a file. Dropping the value removes the file.
struct File(PathBuf);

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn port_announces_its_addresses_when_its_device_is_opened() {
    let file = File(std::env::temp_dir().join(format!("millrace-own-devices-{}.pcapng", std::process::id())));
    let text = format!(
        "[plugins]\nstate = \"none\"\ncache = \"none\"\n[[port]]\nname = \"tape\"\nkind = \"pcap\"\noutput = {:?}\n\
         address = [\"192.168.1.1/24\", \"fd00:5::1/64\"]\n",
        file.0.to_str().unwrap()
    );
    let config = Config::parse(&text, "test").unwrap();
    let router = start(config, StartOptions::default()).await.unwrap();
    let summary = router.execute(&Principal::router(), GetSummary).await.unwrap();
    let drops = router.execute(&Principal::router(), ListDrops).await.unwrap();
    assert_eq!((summary.created, summary.dropped), (2, 0), "{drops:?}");
    router.shutdown().await.unwrap();
    let written = std::fs::read(&file.0).unwrap();
    // Gratuitous ARP request (RFC 5227), and unsolicited neighbour advertisement.
    let announced = |bytes: &[u8]| written.windows(bytes.len()).any(|part| part == bytes);
    assert!(announced(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]), "ARP");
    assert!(
        announced(&[0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 136, 0]),
        "neighbour discovery"
    );
}
