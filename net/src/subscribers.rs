//! Who listens to a publisher, and what waits for each of them.
use crate::socket::Connection;
use crate::zmtp::{self, Kind, Said, Writer};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Mutex as TurnMutex, Notify, mpsc};

/// Batches that wait for a subscriber, at most: what comes then is not sent to it.
const ROOM: usize = 100_000;
/// Who hasn't said in that time who it is, is nobody.
pub const HANDSHAKE: Duration = Duration::from_secs(30);

/// A batch with its number.
pub type Batch = (u64, Bytes);

#[derive(Debug)]
struct Subscriber {
    batches: mpsc::Sender<Batch>,
    /// Whether it subscribed to what is published.
    wants: Arc<AtomicBool>,
}

/// All who listen.
#[derive(Debug, Clone, Default)]
pub struct Subscribers {
    all: Arc<Mutex<Vec<Subscriber>>>,
    /// Told when somebody subscribes to what is published.
    subscribed: Arc<Notify>,
}

impl Subscribers {
    fn with<R>(&self, work: impl FnOnce(&mut Vec<Subscriber>) -> R) -> R {
        work(&mut self.all.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Queues a batch for each who wants it. Who has no room, and who went, gets none.
    pub fn send(&self, batch: &Batch) {
        self.with(|all| {
            all.retain(|one| !one.batches.is_closed());
            for one in all.iter().filter(|one| one.wants.load(Ordering::Relaxed)) {
                let _ = one.batches.try_send(batch.clone());
            }
        });
    }

    /// Waits until somebody is there who wants what is published. One at a time may wait.
    pub async fn wanted(&self) {
        let wants =
            |one: &Subscriber| one.wants.load(Ordering::Relaxed) && !one.batches.is_closed();
        while !self.with(|all| all.iter().any(wants)) {
            self.subscribed.notified().await;
        }
    }

    /// Nobody gets more than waits for it.
    pub fn end(&self) {
        self.with(Vec::clear);
    }

    /// Serves one until it goes, or the publisher ends.
    pub async fn serve(self, (mut reader, mut writer): Connection, topic: Bytes) {
        let hands = zmtp::shake_hands(&mut reader, &mut writer, Kind::Pub);
        if !tokio::time::timeout(HANDSHAKE, hands).await.is_ok_and(|done| done.is_ok()) {
            return;
        }
        let wants = Arc::new(AtomicBool::new(false));
        let (queue, batches) = mpsc::channel(ROOM);
        self.with(|all| {
            // While nothing is published nobody else looks for those who went.
            all.retain(|one| !one.batches.is_closed());
            all.push(Subscriber { batches: queue, wants: wants.clone() });
        });
        // Whose turn it is to say something: a batch, or an answer.
        let writer = TurnMutex::new(writer);
        tokio::select! {
            _ = listen(&mut reader, &writer, &topic, &wants, &self.subscribed) => {}
            _ = tell(&writer, &topic, batches) => {}
        }
    }
}

/// Follows what a subscriber says, until it goes.
async fn listen(
    reader: &mut zmtp::Reader,
    writer: &TurnMutex<Writer>,
    topic: &[u8],
    wants: &AtomicBool,
    subscribed: &Notify,
) -> io::Result<()> {
    // Of what it subscribed to the topic begins so. By length: others are of no use.
    let mut subscriptions = BTreeMap::<usize, u32>::new();
    let mut begun = Vec::new();
    loop {
        let (prefix, begins) = match zmtp::hear(reader, &mut begun).await? {
            Said::Subscribe(prefix) => (prefix, true),
            Said::Cancel(prefix) => (prefix, false),
            Said::Ping(context) => {
                zmtp::pong(&mut *writer.lock().await, &context).await?;
                continue;
            }
            // Before ZMTP 3.1 it was a message.
            Said::Message(frames) => match frames.first().and_then(|frame| frame.split_first()) {
                Some((1, prefix)) => (frames[0].slice_ref(prefix), true),
                Some((0, prefix)) => (frames[0].slice_ref(prefix), false),
                _ => continue,
            },
        };
        if !topic.starts_with(&prefix) {
            continue;
        }
        let count = subscriptions.entry(prefix.len()).or_default();
        *count = if begins { count.saturating_add(1) } else { count.saturating_sub(1) };
        wants.store(subscriptions.values().any(|&count| count > 0), Ordering::Relaxed);
        subscribed.notify_one();
    }
}

/// Says what waits for a subscriber, until it goes or nothing comes any more.
async fn tell(
    writer: &TurnMutex<Writer>,
    topic: &[u8],
    mut batches: mpsc::Receiver<Batch>,
) -> io::Result<()> {
    while let Some((sequence, payload)) = batches.recv().await {
        let number = sequence.to_be_bytes();
        zmtp::say(&mut *writer.lock().await, &[topic, &number], &payload).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Who comes and goes while nothing is published leaves nothing behind.
    #[test]
    fn e05_who_went_leaves_nothing_behind() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let all = Subscribers::default();
            for _ in 0..20 {
                let (ours, mut theirs) = tokio::io::duplex(1024);
                let (reader, writer) = tokio::io::split(ours);
                let connection: Connection = (Box::new(reader), Box::new(writer));
                let served = tokio::spawn(all.clone().serve(connection, Bytes::new()));
                let mut greeting = [0; 64];
                (greeting[0], greeting[9], greeting[10]) = (0xff, 0x7f, 3);
                greeting[12..16].copy_from_slice(b"NULL");
                theirs.write_all(&greeting).await.unwrap();
                theirs.write_all(b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03SUB").await.unwrap();
                // A greeting, and what the socket is.
                theirs.read_exact(&mut [0; 64 + 27]).await.unwrap();
                drop(theirs);
                served.await.unwrap();
            }
            // The last one is looked for when the next one comes.
            assert!(all.with(|all| all.len()) <= 1);
        });
    }
}
