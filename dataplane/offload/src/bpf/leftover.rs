//! Programs that are already on a device: whether Millrace loaded them, and the map contents that an earlier
//! Millrace left.

use std::os::fd::{AsFd, OwnedFd};

use aya::Ebpf;
use aya::maps::{Array, HashMap, Map, MapData, MapInfo};
use aya::programs::{ProgramInfo, loaded_programs};

use super::object::NAME_PREFIX;

/// Returns the ids of all programs on this machine that Millrace loaded, in this process or another one.
/// Empty if the kernel does not report programs.
pub fn own_program_ids() -> Vec<u32> {
    let programs = loaded_programs().flatten();
    let ours = programs.filter(|info| String::from_utf8_lossy(info.name()).starts_with(NAME_PREFIX));
    ours.map(|info| info.id()).collect()
}

/// Loaded program.
#[derive(Debug)]
pub(crate) struct Loaded {
    info: ProgramInfo,
}

impl Loaded {
    /// Finds the program with this id.
    pub(crate) fn find(id: u32) -> Option<Self> {
        loaded_programs().flatten().find(|info| info.id() == id).map(|info| Self { info })
    }

    pub(crate) fn name(&self) -> String {
        String::from_utf8_lossy(self.info.name()).into_owned()
    }

    /// Returns whether a process of Millrace, this one or an earlier one, loaded the program.
    pub(crate) fn is_ours(&self) -> bool {
        self.name().starts_with(NAME_PREFIX)
    }

    pub(crate) fn fd(&self) -> Option<OwnedFd> {
        self.info.fd().ok()?.as_fd().try_clone_to_owned().ok()
    }

    /// Copies the MAC address, the IP addresses and the VLANs of this program into the maps of its
    /// replacement, `heir`. So `heir` drops the frames that this program dropped, until the router configures
    /// `heir`. Skips values that can't be read, because the router sets all values then.
    pub(crate) fn bequeath(&self, heir: &mut Ebpf) {
        for map in self.info.map_ids().ok().flatten().unwrap_or_default() {
            let Ok(name) =
                MapInfo::from_id(map).map(|info| String::from_utf8_lossy(info.name()).into_owned())
            else {
                continue;
            };
            let Ok(old) = MapData::from_id(map) else { continue };
            let Some(new) = heir.map_mut(&name) else { continue };
            let _ = match name.as_str() {
                "config" => copy_mac(old, new),
                "local4" => copy_keys::<u32>(old, new),
                "local6" => copy_keys::<[u8; 16]>(old, new),
                "vlans" => copy_keys::<[u16; 4]>(old, new),
                _ => None,
            };
        }
    }
}

fn copy_mac(old: MapData, new: &mut Map) -> Option<()> {
    let old = Array::<_, [u8; 8]>::try_from(Map::Array(old)).ok()?.get(&0, 0).ok()?;
    let mut new = Array::<_, [u8; 8]>::try_from(new).ok()?;
    let mut config = new.get(&0, 0).ok()?;
    config[..6].copy_from_slice(&old[..6]);
    new.set(0, config, 0).ok()
}

fn copy_keys<K: aya::Pod>(old: MapData, new: &mut Map) -> Option<()> {
    let old = HashMap::<_, K, u8>::try_from(Map::HashMap(old)).ok()?;
    let mut new = HashMap::<_, K, u8>::try_from(new).ok()?;
    old.keys().flatten().for_each(|key| drop(new.insert(key, 1, 0)));
    Some(())
}
