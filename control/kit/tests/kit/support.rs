//! Shared parts of the tests of built plugins: folders, a reader of modules, and direct calls of a shared
//! object.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_void};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::{env, fs};

use millrace_kit::{Built, Format, Options};
use millrace_plugin_abi::binary::{RawCall, RawFlowEnd, RawPacket};
use millrace_sdk::host::RawHost;
use millrace_sdk::testing::{describe, frame_of_ports};
use millrace_testkit::built::built_plugin;

/// Folder of a test, outside the repository, that is removed at the end of the test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(test: &str) -> Self {
        let folder = env::temp_dir().join(format!("millrace-kit-{test}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the folder of intermediate files. All tests and runs share it, so Rust's standard library is
/// compiled only once. It lies beside this test program, or in the cache folder if the test program is in the
/// repository.
pub fn target() -> PathBuf {
    let clone = repository().canonicalize().unwrap();
    let beside = Path::new(env!("CARGO_TARGET_TMPDIR"));
    if !beside.starts_with(&clone) {
        return beside.join("plugins");
    }
    env::var_os("HOME").map_or_else(env::temp_dir, PathBuf::from).join(".cache/millrace-target/plugins")
}

pub fn repository() -> PathBuf {
    std::path::absolute("../..").unwrap()
}

/// Builds a plugin. Without a compiler, returns `None` and prints the reason; with CI=true, panics.
pub fn build(project: &Path, format: Format, result: &Path) -> Option<Built> {
    let options = Options { target: Some(target()), result: Some(result.to_owned()), machine: None };
    built_plugin(project, format, &options)
}

/// Manifest, imports and exports of a WebAssembly module.
#[derive(Debug, Default)]
pub struct Module {
    pub manifest: Vec<u8>,
    /// Imports, as `module.name`.
    pub imports: BTreeSet<String>,
    pub exports: BTreeSet<String>,
}

impl Module {
    pub fn read(file: &Path) -> Self {
        let bytes = fs::read(file).unwrap();
        let mut rest = Reader(bytes.strip_prefix(b"\0asm\x01\0\0\0").expect("a module of version 1"));
        let mut module = Self::default();
        while !rest.0.is_empty() {
            let id = rest.byte();
            let mut section = Reader(rest.bytes());
            match id {
                0 if section.bytes() == b"millrace.manifest" => module.manifest = section.0.to_vec(),
                2 => module.imports = (0..section.number()).map(|_| section.import()).collect(),
                7 => module.exports = (0..section.number()).map(|_| section.export()).collect(),
                _ => {}
            }
        }
        module
    }
}

/// Reader of the parts of WebAssembly's binary format that the tests need.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().expect("one more byte");
        self.0 = rest;
        *first
    }

    /// Reads a number in LEB128.
    fn number(&mut self) -> usize {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = self.byte();
            value |= usize::from(byte & 127) << shift;
            shift += 7;
            if byte < 128 {
                return value;
            }
        }
    }

    fn bytes(&mut self) -> &'a [u8] {
        let length = self.number();
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        bytes
    }

    fn text(&mut self) -> String {
        String::from_utf8(self.bytes().to_vec()).unwrap()
    }

    fn import(&mut self) -> String {
        let name = format!("{}.{}", self.text(), self.text());
        assert_eq!(self.byte(), 0, "{name} is no function");
        self.number();
        name
    }

    fn export(&mut self) -> String {
        let name = self.text();
        self.byte();
        self.number();
        name
    }
}

thread_local! {
    static SAID: RefCell<String> = RefCell::default();
}

extern "C" fn say(bytes: *const u8, length: usize) {
    // SAFETY: the plugin passes a valid address with the length of its text.
    let bytes = unsafe { std::slice::from_raw_parts(bytes, length) };
    SAID.set(String::from_utf8(bytes.to_vec()).unwrap());
}

extern "C" fn log(_level: u32, _text: *const u8, _bytes: usize) {}

static HOST: RawHost = RawHost {
    size: size_of::<RawHost>() as u64,
    fail: Some(say),
    reply: Some(say),
    log: Some(log),
    packet_read: None,
    packet_write: None,
    packet_resize: None,
    packet_make: None,
    flow_backlog: None,
    timer: None,
    request: None,
    service_state: None,
    map_get: None,
    map_set: None,
    map_remove: None,
    send: None,
    count: None,
};

/// Loaded shared object of a plugin. Its file can be loaded only once, because its variables belong to one
/// instance.
pub struct Native(*mut c_void);

// SAFETY: no two threads call its functions at once: tests that share a plugin hold the lock `CALL`.
unsafe impl Send for Native {}
// SAFETY: no two threads call its functions at once: tests that share a plugin hold the lock `CALL`.
unsafe impl Sync for Native {}

static CALL: Mutex<()> = Mutex::new(());

type Init = unsafe extern "C" fn(*const u8, usize) -> i32;
type Control = unsafe extern "C" fn(*const u8, usize, *const u8, usize) -> i32;
type Restore = unsafe extern "C" fn(*const u8, usize, u32) -> i32;

impl Native {
    pub fn load(file: &Path) -> Self {
        let name = CString::new(file.to_str().unwrap()).unwrap();
        // SAFETY: the plugin was built for this test, and runs no code when it is loaded.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "{} can't be loaded", file.display());
        let plugin = Self(handle);
        // SAFETY: the function has the type that the plugin interface defines.
        unsafe {
            plugin.function::<unsafe extern "C" fn(*const RawHost)>(c"millrace_attach")(&raw const HOST)
        };
        plugin
    }

    /// Returns a function of the plugin.
    ///
    /// # Safety
    /// `F` is the function's type.
    unsafe fn function<F: Copy>(&self, name: &CStr) -> F {
        // SAFETY: the handle is open.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!address.is_null(), "{name:?} is missing");
        // SAFETY: the caller guarantees the type; a function pointer is as large as a data pointer.
        unsafe { std::mem::transmute_copy(&address) }
    }

    pub fn manifest(&self) -> Vec<u8> {
        // SAFETY: the function has the type that the plugin interface defines, and its text stays in memory.
        unsafe {
            let text = self.function::<unsafe extern "C" fn() -> *const c_char>(c"millrace_manifest")();
            CStr::from_ptr(text).to_bytes().to_vec()
        }
    }

    pub fn abi(&self) -> u32 {
        // SAFETY: the function has the type that the plugin interface defines.
        unsafe { self.function::<unsafe extern "C" fn() -> u32>(c"millrace_abi")() }
    }

    /// Initialises the plugin. The error is the text that the plugin returned.
    pub fn init(&self, settings: &str) -> Result<String, String> {
        // SAFETY: the function has the type that the plugin interface defines, and the length is that of the
        // text.
        said(unsafe { self.function::<Init>(c"millrace_init")(settings.as_ptr(), settings.len()) })
    }

    pub fn control(&self, name: &str, arguments: &str) -> Result<String, String> {
        let (name, arguments) = ((name.as_ptr(), name.len()), (arguments.as_ptr(), arguments.len()));
        let _one = CALL.lock();
        // SAFETY: the function has the type that the plugin interface defines.
        let control = unsafe { self.function::<Control>(c"millrace_control") };
        // SAFETY: both lengths are those of the texts.
        said(unsafe { control(name.0, name.1, arguments.0, arguments.1) })
    }

    /// Returns the state that the plugin saves for its successor.
    pub fn save(&self) -> Result<Vec<u8>, String> {
        let _one = CALL.lock();
        // SAFETY: the function has the type that the plugin interface defines.
        let saved = said(unsafe { self.function::<unsafe extern "C" fn() -> i32>(c"millrace_save")() });
        saved.map(String::into_bytes)
    }

    /// Passes a saved state to the plugin; `version` is the version of the state's format.
    pub fn restore(&self, state: &[u8], version: u32) -> Result<(), String> {
        let _one = CALL.lock();
        // SAFETY: the function has the type that the plugin interface defines, and the length is that of the
        // state.
        let code =
            unsafe { self.function::<Restore>(c"millrace_restore")(state.as_ptr(), state.len(), version) };
        said(code).map(drop)
    }

    /// Returns the plugin's verdicts for UDP packets to these ports. The last packet is truncated before its
    /// ports.
    pub fn packets(&self, ports: &[u16]) -> Vec<(u8, u8)> {
        let mut frames: Vec<Vec<u8>> = ports.iter().map(|port| frame(*port)).collect();
        frames.last_mut().unwrap().truncate(36);
        self.frames(&mut frames, &mut []).iter().map(|packet| (packet.verdict, packet.reason)).collect()
    }

    /// Returns the frames' descriptions with the plugin's verdicts. All frames belong to one flow with this
    /// state. The descriptions are in memory that the plugin has reserved.
    pub fn frames(&self, frames: &mut [Vec<u8>], state: &mut [u64]) -> Vec<RawPacket> {
        let size = frames.len() * size_of::<RawPacket>();
        let state = if state.is_empty() { 0 } else { state.as_mut_ptr() as u64 };
        // SAFETY: the functions have the types that the plugin interface defines. The reserved memory is
        // aligned, and as large as requested.
        unsafe {
            let reserve = self.function::<unsafe extern "C" fn(usize) -> *mut RawPacket>(c"millrace_reserve");
            let area = reserve(size);
            assert!(!area.is_null() && area.is_aligned());
            for (index, frame) in frames.iter_mut().enumerate() {
                area.add(index).write(RawPacket { state, ..packet(frame) });
            }
            let call = RawCall {
                size: size_of::<RawCall>() as u16,
                packet_size: size_of::<RawPacket>() as u16,
                count: frames.len() as u32,
                now: 1,
                packets: area as u64,
            };
            self.function::<unsafe extern "C" fn(*const RawCall)>(c"millrace_packets")(&raw const call);
            let said = (0..frames.len()).map(|index| area.add(index).read()).collect();
            self.function::<unsafe extern "C" fn(*mut RawPacket, usize)>(c"millrace_release")(area, size);
            said
        }
    }

    /// Notifies the plugin that a flow with this state has ended.
    pub fn flow_ended(&self, state: &mut [u64]) {
        let end = RawFlowEnd {
            size: size_of::<RawFlowEnd>() as u16,
            family: 4,
            protocol: 6,
            state: state.as_mut_ptr() as u64,
            ..RawFlowEnd::default()
        };
        // SAFETY: the function has the type that the plugin interface defines, and the state outlives the
        // call.
        unsafe {
            self.function::<unsafe extern "C" fn(*const RawFlowEnd)>(c"millrace_flow_ended")(&raw const end);
        }
    }
}

fn said(code: i32) -> Result<String, String> {
    let text = SAID.take();
    if code == 0 { Ok(text) } else { Err(text) }
}

/// Returns a TCP segment with this acknowledgment number and data.
pub fn ack(number: u32, data: &[u8]) -> Vec<u8> {
    let (a, b) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
    let mut frame = frame_of_ports(a, b, 6, (4000, 80), data);
    frame[42..46].copy_from_slice(&number.to_be_bytes());
    frame[47] = 0x10;
    frame
}

fn frame(port: u16) -> Vec<u8> {
    let (a, b) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
    frame_of_ports(a, b, 17, (4000, port), &[0; 18])
}

fn packet(frame: &mut [u8]) -> RawPacket {
    let about = describe(frame).unwrap();
    RawPacket {
        size: size_of::<RawPacket>() as u16,
        length: frame.len() as u32,
        window: frame.as_mut_ptr() as u64,
        window_length: frame.len() as u16,
        network: about.network,
        transport: about.transport.unwrap_or(u16::MAX),
        ether_type: about.ether_type,
        family: 4,
        protocol: about.flow.protocol,
        exceptions: about.exceptions,
        source_port: about.flow.source_port,
        destination_port: about.flow.destination_port,
        ..RawPacket::default()
    }
}
