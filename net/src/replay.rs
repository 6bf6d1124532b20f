//! The last batches, for subscribers who missed some.
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;
use zeromq::{RouterRecvHalf, RouterSendHalf, SocketRecv, SocketSend, ZmqMessage};

/// Requests that are answered at once, at most: the others wait.
const ANSWERS: usize = 16;
/// Who doesn't read for so long gets no more of what was asked for.
const PATIENCE: Duration = Duration::from_secs(10);
/// The number that ends an answer.
const END: [u8; 8] = [0xff; 8];

/// Batches with their numbers, the newest so many.
#[derive(Debug)]
pub struct Buffer {
    limit: usize,
    batches: VecDeque<(u64, Bytes)>,
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

    /// Those from a number on.
    fn from(&self, start: u64) -> Vec<(u64, Bytes)> {
        let first = self.batches.partition_point(|&(sequence, _)| sequence < start);
        self.batches.range(first..).cloned().collect()
    }
}

/// Something that has a buffer behind a lock.
pub trait HasBuffer: Send + 'static {
    fn buffer(&self) -> &Buffer;
    fn count_answer(&mut self);
}

/// The frames of an answer, behind the one that says whose it is.
fn frames(peer: &Bytes, rest: [Bytes; 3]) -> Option<ZmqMessage> {
    let [topic, sequence, payload] = rest;
    ZmqMessage::try_from(vec![peer.clone(), Bytes::new(), topic, sequence, payload]).ok()
}

/// Answers requests for as long as the socket is there.
pub async fn serve<S: HasBuffer>(
    mut requests: RouterRecvHalf,
    answers: RouterSendHalf,
    shared: Arc<Mutex<S>>,
    topic: Bytes,
) {
    let room = Arc::new(Semaphore::new(ANSWERS));
    while let Ok(request) = requests.recv().await {
        let frames: Vec<Bytes> = request.into_vec();
        // Who it is from, an empty frame, and the number: anything else is no request.
        let [peer, empty, start] = &frames[..] else { continue };
        let Ok(start) = <[u8; 8]>::try_from(&start[..]) else { continue };
        if !empty.is_empty() {
            continue;
        }
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        let (peer, start) = (peer.clone(), u64::from_be_bytes(start));
        let (answers, shared, topic) = (answers.clone(), shared.clone(), topic.clone());
        tokio::spawn(async move {
            answer(answers, peer, start, &shared, topic).await;
            drop(permit);
        });
    }
}

async fn answer<S: HasBuffer>(
    mut to: RouterSendHalf,
    peer: Bytes,
    start: u64,
    shared: &Mutex<S>,
    topic: Bytes,
) {
    let batches = {
        let Ok(mut shared) = shared.lock() else { return };
        shared.count_answer();
        shared.buffer().from(start)
    };
    let batches = batches.into_iter().map(|(sequence, payload)| {
        [topic.clone(), Bytes::copy_from_slice(&sequence.to_be_bytes()), payload]
    });
    let end = [Bytes::new(), Bytes::from_static(&END), Bytes::new()];
    for rest in batches.chain([end]) {
        let Some(message) = frames(&peer, rest) else { return };
        let sent = tokio::time::timeout(PATIENCE, to.send(message)).await;
        if !matches!(sent, Ok(Ok(()))) {
            return;
        }
    }
}
