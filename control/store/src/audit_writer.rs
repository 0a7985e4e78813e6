//! The thread that writes the audit log, so that nobody's thread waits for a disk. Who wants to know when a line is written can wait for that
//! without keeping a thread.
//!
//! Lines wait in a queue of bounded length. What finds it full is lost: it is counted, a line says how many were lost, and who opened the
//! log is told, as of what can't be written.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::Who;
use crate::audit_entry::{AuditEntry, Outcome};
use crate::audit_file::AuditFile;

/// Why something could not be noted.
#[derive(Debug)]
pub enum AuditTrouble {
    /// A line could not be written.
    Unwritten(io::Error),
    /// So many lines came faster than they could be written, and are lost.
    Lost(u64),
}

/// Lines that wait at most.
pub(crate) const WAITING: usize = 4096;

/// Who is told what could not be noted.
pub(crate) type Tell = Box<dyn Fn(AuditTrouble) + Send>;

/// The way to the thread.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    queue: SyncSender<Order>,
    lost: Arc<AtomicU64>,
}

/// A line that is being written.
#[derive(Debug)]
#[must_use = "a line is written by and by: wait for it, or drop this"]
pub struct Written(Option<oneshot::Receiver<()>>);

impl Written {
    /// One that needs no writing.
    pub(crate) const fn already() -> Self {
        Self(None)
    }

    /// Waits until the line is in the file, or can't get there: that is told elsewhere.
    pub async fn done(self) {
        if let Self(Some(said)) = self {
            // The other end goes where the line is lost.
            let _ = said.await;
        }
    }
}

/// What the thread is asked for.
#[derive(Debug)]
enum Order {
    /// To write a line, and to say when that is done, or has failed.
    Write(Box<AuditEntry>, oneshot::Sender<()>),
    /// To say when all before has been written.
    Say(SyncSender<()>),
}

impl Writer {
    /// Starts the thread. It ends when nobody has the way to it any more.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(file: AuditFile, tell: Tell) -> io::Result<Self> {
        let (queue, orders) = sync_channel(WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let thread = Thread { file, tell, lost: lost.clone(), latest: String::new() };
        std::thread::Builder::new().name("audit".to_owned()).spawn(move || thread.serve(&orders))?;
        Ok(Self { queue, lost })
    }

    /// Queues a line for writing; counts it as lost if the queue is full.
    pub fn write(&self, entry: AuditEntry) -> Written {
        let (say, said) = oneshot::channel();
        if let Err(TrySendError::Full(_)) = self.queue.try_send(Order::Write(Box::new(entry), say)) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        // Of what is lost, the other end is gone.
        Written(Some(said))
    }

    /// Waits until all has been written that was to be before, but no longer than so long. Says whether it was.
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

/// The thread's own.
struct Thread {
    file: AuditFile,
    tell: Tell,
    lost: Arc<AtomicU64>,
    /// The time of the last line.
    latest: String,
}

impl Thread {
    fn serve(mut self, orders: &Receiver<Order>) {
        while let Ok(order) = orders.recv() {
            match order {
                Order::Write(entry, say) => {
                    self.write(&entry);
                    // Whoever asked may have gone.
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

/// The line that stands where others are lost.
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
        why: Some(format!("{} lost: the disk took them too slowly", millrace_units::count(lost, "line"))),
        revision: None,
    }
}
