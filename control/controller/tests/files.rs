//! Tests that control opens the output files of ports, because workers may not.

use millrace_config::Config;
use millrace_controller::{StartOptions, start};

#[test]
fn ports_write_recordings_though_workers_may_open_no_file() {
    let folder = std::env::temp_dir().join(format!("millrace-files-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let [output, record] = ["output.pcapng", "record.pcapng"].map(|name| folder.join(name));
    let text = format!(
        "[plugins]\nstate = \"none\"\ncache = \"none\"\n\
         [[port]]\nname = \"out\"\nkind = \"pcap\"\noutput = {output:?}\naddress = [\"10.1.0.1/24\"]\n\
         [[port]]\nname = \"seen\"\nkind = \"memory\"\nrecord = {record:?}\naddress = [\"10.2.0.1/24\"]\n"
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let config = Config::parse(&text, "files.toml").unwrap();
        let router = start(config, StartOptions::default()).await.unwrap();
        router.shutdown().await.unwrap();
    });
    for file in [output, record] {
        let content = std::fs::read(&file).unwrap();
        assert_eq!(content.get(..4), Some(&[0x0a, 0x0d, 0x0d, 0x0a][..]), "{file:?}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}
