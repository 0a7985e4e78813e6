//! Programs that are on a device already: whose they are, and what an earlier Millrace told its own.

use std::os::fd::{AsFd, OwnedFd};

use aya::Ebpf;
use aya::maps::{Array, HashMap, Map, MapData, MapInfo};
use aya::programs::{ProgramInfo, loaded_programs};

use crate::object::NAME_PREFIX;

/// The ids of all programs that Millrace has loaded on this machine, in this process, another or an earlier one.
/// Empty where the kernel does not tell.
pub fn own_program_ids() -> Vec<u32> {
    let programs = loaded_programs().flatten();
    let ours = programs.filter(|info| String::from_utf8_lossy(info.name()).starts_with(NAME_PREFIX));
    ours.map(|info| info.id()).collect()
}

/// A loaded program.
#[derive(Debug)]
pub(crate) struct Loaded {
    info: ProgramInfo,
}

impl Loaded {
    /// Looks the program with this id up.
    pub(crate) fn find(id: u32) -> Option<Self> {
        loaded_programs().flatten().find(|info| info.id() == id).map(|info| Self { info })
    }

    pub(crate) fn name(&self) -> String {
        String::from_utf8_lossy(self.info.name()).into_owned()
    }

    /// Whether it is a level-0 program of this or an earlier process.
    pub(crate) fn is_ours(&self) -> bool {
        self.name().starts_with(NAME_PREFIX)
    }

    pub(crate) fn fd(&self) -> Option<OwnedFd> {
        self.info.fd().ok()?.as_fd().try_clone_to_owned().ok()
    }

    /// Copies MAC, addresses and VLANs into the maps of its successor, so that what it drops stays dropped until the
    /// successor has been told better. What can't be read is left out: the successor's owner will set it anyway.
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
