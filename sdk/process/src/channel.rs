//! Process's side of the memory that it shares with a worker: waits for requests, and writes answers.

use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use millrace_plugin_abi::process::{
    ADDRESS, ANSWER_LANE, Broken, LOOKED, Layout, REQUEST_LANE, Reader, Record, Writer, answer, request,
};

use crate::system::Region;

/// Time without a request after which the process sleeps. A wake-up takes about as long.
const PATIENCE: Duration = Duration::from_micros(50);
/// Number of looks at the ring between two looks at the clock. Then the process also yields, and a request that arrives
/// meanwhile waits. If the worker has the same processor, the process looks once: while it looks, the worker can't
/// write.
const LOOKS: usize = 128;

/// Request of the worker.
pub(crate) struct Request {
    pub kind: u32,
    pub first: u64,
    pub second: u64,
    pub bytes: Vec<u8>,
}

/// Process's side of the shared memory.
#[derive(Debug)]
pub struct Channel {
    region: Region,
    layout: Layout,
    requests: Reader,
    answers: Writer,
    /// Time in which the process has looked for requests.
    looked: Duration,
}

impl Channel {
    /// Maps the memory in a file that the process has got from the router.
    ///
    /// # Errors
    /// The file is no such memory, or the memory has another version.
    pub fn open(memory: BorrowedFd<'_>) -> Result<Self, String> {
        let region = Region::map(memory);
        let region = region
            .map_err(|error| format!("can't map the memory that it shares with the router: {error}"))?;
        let layout = Layout::read(region.words())
            .map_err(|error| format!("can't use the memory that it shares with the router: {error}"))?;
        if let Some(word) = region.words().get(ADDRESS) {
            // The first answer makes the address known to the worker.
            word.store(region.address(), Relaxed);
        }
        let (requests, answers) = (Reader::new(REQUEST_LANE), Writer::new(ANSWER_LANE));
        Ok(Self { region, layout, requests, answers, looked: Duration::ZERO })
    }

    /// Waits for the next request: polls for a short time, then sleeps. Tells the worker the time of the polls.
    pub(crate) fn request(&mut self) -> Result<Request, Broken> {
        loop {
            let begun = Instant::now();
            let found = self.poll(begun)?;
            self.looked += begun.elapsed();
            let words = self.region.words();
            if let Some(word) = words.get(LOOKED) {
                word.store(self.looked.as_nanos() as u64, Relaxed);
            }
            match found {
                Some(request) => return Ok(request),
                None => self.region.sleep(|| !self.requests.is_empty(words)),
            }
        }
    }

    /// Looks for a request for a short time from `begun` on. Returns `None` if none has arrived.
    fn poll(&mut self, begun: Instant) -> Result<Option<Request>, Broken> {
        let Self { region, requests, .. } = self;
        let words = region.words();
        while begun.elapsed() < PATIENCE {
            let looks = if region.shares_processor() { 1 } else { LOOKS };
            for look in 1..=looks {
                if let Some(Record { kind, first, second, bytes }) = requests.read(words)? {
                    return Ok(Some(Request { kind, first, second, bytes: bytes.to_vec() }));
                }
                if look < looks {
                    std::hint::spin_loop();
                }
            }
            std::thread::yield_now();
        }
        Ok(None)
    }

    /// Writes an answer, and waits until it is in the ring as a whole.
    pub(crate) fn answer(&mut self, kind: u32, first: u64, second: u64, bytes: &[u8]) -> Result<(), Broken> {
        let words = self.region.words();
        self.answers.write(words, Record { kind, first, second, bytes })?;
        while !self.answers.flush(words)? {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Calls a host function, and waits for its result. Writes the data that the function returns to `to`.
    /// Returns `None` if the exchange is broken.
    pub(crate) fn call(
        &mut self,
        kind: u32,
        first: u64,
        second: u64,
        bytes: &[u8],
        to: &mut [u8],
    ) -> Option<i32> {
        self.answer(kind, first, second, bytes).ok()?;
        let result = self.request().ok().filter(|record| record.kind == request::RESULT)?;
        to.iter_mut().zip(&result.bytes).for_each(|(place, byte)| *place = *byte);
        Some(result.first as u32 as i32)
    }

    /// Ends the current request. `code` is the number that the plugin's function returned; `None` if the
    /// plugin lacks the function.
    pub(crate) fn done(&mut self, code: Option<i32>, bits: u64) -> Result<(), Broken> {
        let missing = if code.is_none() { answer::done::MISSING } else { 0 };
        self.answer(answer::DONE, u64::from(code.unwrap_or(0) as u32), bits | missing, &[])
    }

    /// Returns the address of the descriptions of packets.
    pub(crate) fn packets(&self) -> u64 {
        self.region.address() + self.layout.description(0) as u64 * 8
    }

    /// Returns the address of the service state; 0 if the plugin declares none.
    pub(crate) fn service(&self) -> u64 {
        match self.layout.service {
            0 => 0,
            _ => self.region.address() + self.layout.service() as u64 * 8,
        }
    }
}
