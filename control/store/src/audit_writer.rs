//! Writer thread of the audit log: only this thread waits for the disk. Callers can await the write of a line
//! asynchronously.
//!
//! Lines wait in a bounded queue. A line that finds the queue full is lost and counted. A later line in the
//! log states the number of lost lines. The writer also reports lost lines and failed writes to the callback
//! [`Tell`].

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::Who;
use crate::audit_entry::{AuditEntry, Outcome};
use crate::audit_file::AuditFile;

/// Failure of the audit log.
#[derive(Debug)]
pub enum AuditTrouble {
    /// A line could not be written.
    Unwritten(io::Error),
    /// Number of lines that were lost because they arrived faster than they could be written.
    Lost(u64),
}

/// Maximum number of queued lines.
pub(crate) const WAITING: usize = 4096;

/// Callback that receives each failure.
pub(crate) type Tell = Box<dyn Fn(AuditTrouble) + Send>;

/// Handle of the writer thread.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    queue: SyncSender<Order>,
    lost: Arc<AtomicU64>,
}

/// Handle to await the write of one line.
#[derive(Debug)]
#[must_use = "the line is written later: wait for `done`, or drop the value"]
pub struct Written(Option<oneshot::Receiver<()>>);

impl Written {
    /// Creates a write that is already complete.
    pub(crate) const fn already() -> Self {
        Self(None)
    }

    /// Waits until the line is written or lost. The callback passed to [`crate::AuditLog::open`] receives
    /// failures.
    pub async fn done(self) {
        if let Self(Some(said)) = self {
            // If the line is lost, its sender is dropped, which ends the wait, too.
            let _ = said.await;
        }
    }
}

/// Command to the writer thread.
#[derive(Debug)]
enum Order {
    /// Writes a line, and signals completion or failure.
    Write(Box<AuditEntry>, oneshot::Sender<()>),
    /// Signals when all earlier lines are written.
    Say(SyncSender<()>),
}

impl Writer {
    /// Starts the thread. The thread ends when all its handles are dropped.
    pub fn start(file: AuditFile, tell: Tell) -> io::Result<Self> {
        let (queue, orders) = sync_channel(WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let thread = Thread { file, tell, lost: lost.clone(), latest: String::new() };
        std::thread::Builder::new().name("audit".to_owned()).spawn(move || thread.serve(&orders))?;
        Ok(Self { queue, lost })
    }

    /// Queues a line for writing, or counts it as lost if the queue is full.
    pub fn write(&self, entry: AuditEntry) -> Written {
        let (say, said) = oneshot::channel();
        if let Err(TrySendError::Full(_)) = self.queue.try_send(Order::Write(Box::new(entry), say)) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        // If the line was not queued, the sender is already dropped, so `done` returns at once.
        Written(Some(said))
    }

    /// Waits until all earlier lines are written, at most for `patience`. Returns whether they are written.
    pub fn flush(&self, patience: Duration) -> bool {
        let (say, said) = sync_channel(1);
        let begun = std::time::Instant::now();
        let mut order = Order::Say(say);
        while let Err(TrySendError::Full(back)) = self.queue.try_send(order) {
            if begun.elapsed() >= patience {
                return false;
            }
            order = back;
            std::thread::sleep(Duration::from_millis(5));
        }
        said.recv_timeout(patience.saturating_sub(begun.elapsed())).is_ok()
    }
}

/// State of the writer thread.
struct Thread {
    file: AuditFile,
    tell: Tell,
    lost: Arc<AtomicU64>,
    /// Time of the last line.
    latest: String,
}

impl Thread {
    fn serve(mut self, orders: &Receiver<Order>) {
        while let Ok(order) = orders.recv() {
            match order {
                Order::Write(entry, say) => {
                    self.write(&entry);
                    // The caller may no longer wait.
                    let _ = say.send(());
                }
                Order::Say(say) => drop(say.send(())),
            }
            let lost = self.lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                let gap = gap(lost, self.latest.clone());
                self.write(&gap);
                (self.tell)(AuditTrouble::Lost(lost));
            }
        }
    }

    fn write(&mut self, entry: &AuditEntry) {
        self.latest.clone_from(&entry.time);
        if let Err(error) = self.file.write(entry) {
            (self.tell)(AuditTrouble::Unwritten(error));
        }
    }
}

/// Returns the line that states the number of lost lines.
fn gap(lost: u64, time: String) -> AuditEntry {
    AuditEntry {
        time,
        who: Who::router(),
        role: None,
        pid: None,
        from: None,
        operation: "audit".to_owned(),
        request: None,
        outcome: Outcome::Failed,
        status: None,
        why: Some(format!("{} lost, because the disk was too slow", millrace_units::count(lost, "line"))),
        revision: None,
    }
}
