//! The last batches, for subscribers who missed some.
use crate::socket::Connection;
use crate::subscribers::{Batch, HANDSHAKE};
use crate::zmtp::{self, Kind, Said};
use bytes::Bytes;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Who doesn't read for so long gets no more of what was asked for.
const PATIENCE: Duration = Duration::from_secs(10);
/// The number that ends an answer.
const END: [u8; 8] = [0xff; 8];
/// Batches that are taken from the buffer at once: whoever publishes waits for that.
const TAKEN: usize = 64;

/// Batches with their numbers, the newest so many.
#[derive(Debug)]
pub struct Buffer {
    limit: usize,
    batches: VecDeque<Batch>,
}

impl Buffer {
    /// For so many batches.
    pub fn new(limit: usize) -> Self {
        Self { limit, batches: VecDeque::new() }
    }

    /// Keeps a batch, and drops the oldest when there are too many.
    pub fn push(&mut self, sequence: u64, payload: Bytes) {
        if self.batches.len() == self.limit {
            self.batches.pop_front();
        }
        if self.limit > 0 {
            self.batches.push_back((sequence, payload));
        }
    }

    /// How many are kept.
    pub fn len(&self) -> usize {
        self.batches.len()
    }

    /// One more than the number of the last one; 0 without one.
    fn end(&self) -> u64 {
        self.batches.back().map_or(0, |&(sequence, _)| sequence + 1)
    }

    /// The first few from a number on and before another.
    fn some(&self, start: u64, end: u64) -> Vec<Batch> {
        let first = self.batches.partition_point(|&(sequence, _)| sequence < start);
        let some = self.batches.range(first..).take(TAKEN);
        some.take_while(|&&(sequence, _)| sequence < end).cloned().collect()
    }
}

/// Something that has a buffer behind a lock.
pub trait HasBuffer: Send + 'static {
    fn buffer(&self) -> &Buffer;
    fn count_answer(&mut self);
}

/// Answers one who asks, one question after the other, until it goes.
pub async fn serve<S: HasBuffer>(
    (mut reader, mut writer): Connection,
    shared: Arc<Mutex<S>>,
    topic: Bytes,
) -> io::Result<()> {
    let hands = zmtp::shake_hands(&mut reader, &mut writer, Kind::Router);
    tokio::time::timeout(HANDSHAKE, hands).await??;
    let mut begun = Vec::new();
    loop {
        let frames = match zmtp::hear(&mut reader, &mut begun).await? {
            Said::Message(frames) => frames,
            Said::Ping(context) => {
                tokio::time::timeout(PATIENCE, zmtp::pong(&mut writer, &context)).await??;
                continue;
            }
            Said::Subscribe(_) | Said::Cancel(_) => continue,
        };
        // An empty frame, and the number: anything else is no request.
        let [empty, start] = &frames[..] else { continue };
        let Ok(start) = <[u8; 8]>::try_from(&start[..]) else { continue };
        if empty.is_empty() {
            answer(&mut writer, u64::from_be_bytes(start), &shared, &topic).await?;
        }
    }
}

async fn answer<S: HasBuffer>(
    to: &mut zmtp::Writer,
    start: u64,
    shared: &Mutex<S>,
    topic: &[u8],
) -> io::Result<()> {
    let end = {
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.count_answer();
        shared.buffer().end()
    };
    let mut next = start;
    loop {
        let shared = || shared.lock().unwrap_or_else(PoisonError::into_inner);
        let some = shared().buffer().some(next, end);
        let Some(&(last, _)) = some.last() else { break };
        for (sequence, payload) in &some {
            say(to, [b"", topic, &sequence.to_be_bytes()], payload).await?;
        }
        next = last + 1;
    }
    say(to, [b"", b"", &END], &Bytes::new()).await
}

async fn say(to: &mut zmtp::Writer, first: [&[u8]; 3], payload: &Bytes) -> io::Result<()> {
    tokio::time::timeout(PATIENCE, zmtp::say(to, &first, payload)).await?
}
