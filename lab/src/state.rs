//! Record of a running lab. With it, any process can remove the lab.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::process::Process;
use crate::topology::{LabFile, NodeKind};

/// Default directory of lab records; [`crate::Options`] can set another.
pub const DEFAULT_RUNTIME_DIRECTORY: &str = "/run/millrace/lab";

/// Record of a lab, as stored in its file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Name of the lab.
    pub name: String,
    /// Path of the lab file; `None` for a lab from a text.
    pub file: Option<PathBuf>,
    /// Nodes created so far, in the order of creation.
    pub nodes: Vec<NodeState>,
}

/// Record of a created host or router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeState {
    /// Name of the node in the lab.
    pub name: String,
    /// Kind of the node.
    pub kind: NodeKind,
    /// Namespace of the node.
    pub namespace: String,
    /// Devices of the node.
    pub devices: Vec<DeviceState>,
    /// Daemon process of a Millrace router; `None` for other nodes, or before its start.
    pub process: Option<Process>,
    /// Socket of the Millrace router's daemon; `None` for other nodes.
    pub socket: Option<PathBuf>,
    /// Routing daemons of the node.
    #[serde(default)]
    pub daemons: Vec<Process>,
}

/// Record of a node's network device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceState {
    /// Name of the device inside the namespace.
    pub name: String,
    /// Addresses of the device.
    pub addresses: Vec<IpNet>,
}

impl NodeState {
    /// Returns the record of a node that has not been created yet.
    pub(crate) fn new(file: &LabFile, index: usize) -> Self {
        let node = &file.nodes[index];
        let device = |device: &crate::Device| DeviceState {
            name: device.name.clone(),
            addresses: device.addresses.clone(),
        };
        Self {
            name: node.name.clone(),
            kind: node.kind,
            namespace: file.namespace(&node.name),
            devices: node.devices.iter().map(device).collect(),
            process: None,
            socket: None,
            daemons: Vec::new(),
        }
    }

    /// Whether the node works. False only for a Millrace router whose daemon does not run.
    pub fn is_running(&self) -> bool {
        self.kind != NodeKind::Millrace || self.process.is_some_and(|process| process.is_running())
    }
}

impl State {
    /// Returns the node of a given name.
    ///
    /// # Errors
    /// No such node exists; the error lists the nodes.
    pub fn node(&self, name: &str) -> Result<&NodeState, LabError> {
        self.nodes.iter().find(|node| node.name == name).ok_or_else(|| {
            let known: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
            LabError::UnknownNode { lab: self.name.clone(), node: name.to_owned(), known: known.join(", ") }
        })
    }
}

/// Directory with the records of all labs.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    directory: PathBuf,
}

impl Records {
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_path_buf() }
    }

    fn record(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.json"))
    }

    /// Returns the directory of a lab's files: sockets, logs and configurations of its routers.
    pub fn files(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Creates the record of a new lab. If two processes create the same lab at once, only one succeeds.
    pub fn create(&self, state: &State) -> Result<(), LabError> {
        let files = self.files(&state.name);
        fs::create_dir_all(&self.directory).map_err(LabError::file("create", &self.directory))?;
        let path = self.record(&state.name);
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(LabError::AlreadyUp(state.name.clone()));
            }
            result => drop(result.map_err(LabError::file("create", &path))?),
        }
        let filled = self
            .save(state)
            .and_then(|()| fs::create_dir_all(&files).map_err(LabError::file("create", &files)));
        filled.inspect_err(|_| drop(fs::remove_file(&path)))
    }

    /// Replaces a record atomically: a reader sees either the old or the new record.
    pub fn save(&self, state: &State) -> Result<(), LabError> {
        let path = self.record(&state.name);
        let fresh = path.with_extension("json.new");
        let text = serde_json::to_vec_pretty(state).map_err(|error| LabError::File {
            action: "write",
            path: path.clone(),
            source: error.into(),
        })?;
        fs::write(&fresh, &text).and_then(|()| fs::rename(&fresh, &path)).map_err(|source| {
            let _ = fs::remove_file(&fresh);
            LabError::File { action: "write", path, source }
        })
    }

    /// Returns the record of a lab; `None` if no such lab is running.
    pub fn load(&self, name: &str) -> Result<Option<State>, LabError> {
        let path = self.record(name);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            result => result.map_err(LabError::file("read", &path))?,
        };
        // Another process has created the record, but not written it yet: the lab has no nodes so far.
        if text.is_empty() {
            return Ok(Some(State { name: name.to_owned(), file: None, nodes: Vec::new() }));
        }
        let state = serde_json::from_slice(&text);
        state.map(Some).map_err(|error| LabError::File { action: "read", path, source: error.into() })
    }

    /// Returns the names of all running labs.
    pub fn names(&self) -> Result<Vec<String>, LabError> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            result => result.map_err(LabError::file("list", &self.directory))?,
        };
        let files = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> =
            files.filter_map(|file| file.strip_suffix(".json").map(str::to_owned)).collect();
        names.sort();
        Ok(names)
    }

    /// Removes a lab's record and files.
    pub fn remove(&self, name: &str) -> Result<(), LabError> {
        let files = self.files(name);
        ignore_absence(fs::remove_dir_all(&files)).map_err(LabError::file("remove", &files))?;
        let path = self.record(name);
        ignore_absence(fs::remove_file(&path)).map_err(LabError::file("remove", &path))
    }
}

fn ignore_absence(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
