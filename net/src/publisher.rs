//! A publisher: numbers, a queue, and a thread with the sockets.
use crate::endpoint::{is_any, resolve};
use crate::failure::Failure;
use crate::replay::{self, Buffer, HasBuffer};
use bytes::Bytes;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::task::AbortHandle;
use zeromq::{Endpoint, PubSocket, RouterSocket, Socket, SocketSend, ZmqMessage};

/// How long the sockets get for what they took, when the publisher is destroyed.
const FLUSH: Duration = Duration::from_millis(100);
/// Before a host is looked for again that had no name or no route.
const RETRY: Duration = Duration::from_secs(1);

/// What a publisher is made of.
#[derive(Debug, Clone)]
pub struct Config {
    pub endpoint: String,
    pub replay_endpoint: Option<String>,
    pub topic: String,
    pub rank: u32,
    pub connects: bool,
    pub replay_batches: usize,
    pub queue_batches: usize,
}

/// What was counted.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    pub published: u64,
    pub published_bytes: u64,
    pub dropped: u64,
    pub replays: u64,
}

/// A batch on its way to the sockets.
type Queued = (u64, Bytes);

#[derive(Debug)]
struct Shared {
    next: u64,
    /// None while the publisher ends.
    queue: Option<mpsc::Sender<Queued>>,
    buffer: Buffer,
    counts: Counts,
}

impl HasBuffer for Shared {
    fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    fn count_answer(&mut self) {
        self.counts.replays += 1;
    }
}

/// Sends payloads with numbers to whoever subscribed.
#[derive(Debug)]
pub struct Publisher {
    shared: Arc<Mutex<Shared>>,
    thread: Option<JoinHandle<()>>,
    begun: Begun,
    queue_limit: usize,
}

/// What the thread says when its sockets are there.
#[derive(Debug)]
struct Begun {
    ports: [u16; 2],
    /// Ends the search for the subscriber that is to be connected to.
    connecting: Option<AbortHandle>,
}

impl Publisher {
    /// Binds the sockets, and starts the thread, which goes on to connect what is to be connected.
    pub fn new(config: Config) -> Result<Self, Failure> {
        let endpoint = resolve(&config.endpoint, config.rank, "config.endpoint")?;
        if config.connects && is_any(&endpoint) {
            let given = &config.endpoint;
            let why = format!("config.endpoint \"{given}\" names nobody to connect to");
            return Err(Failure::argument(why));
        }
        let replay = config.replay_endpoint.as_deref();
        let replay = replay.map(|given| resolve(given, config.rank, "config.replay_endpoint"));
        let replay = replay.transpose()?;
        let (queue, batches) = mpsc::channel(config.queue_batches);
        let shared = Arc::new(Mutex::new(Shared {
            next: 0,
            queue: Some(queue),
            buffer: Buffer::new(config.replay_batches),
            counts: Counts::default(),
        }));
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let of_thread = shared.clone();
        let queue_limit = config.queue_batches;
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => {
                    let _ = tell.send(Err(Failure::network(format!("no runtime: {error}"))));
                    return;
                }
            };
            runtime.block_on(serve(config, endpoint, replay, of_thread, batches, tell));
            runtime.shutdown_timeout(FLUSH);
        };
        let thread = thread::Builder::new().name("radixkv-net".to_owned()).spawn(run);
        let thread = thread
            .map_err(|error| Failure::network(format!("no thread to publish on: {error}")))?;
        let begun = told.recv().unwrap_or_else(|_| Err(Failure::network("the thread ended")))?;
        Ok(Self { shared, thread: Some(thread), begun, queue_limit })
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a payload its number, and hands it to the thread. Never waits for a subscriber.
    pub fn publish(&self, payload: &[u8]) -> u64 {
        let payload = Bytes::copy_from_slice(payload);
        let mut shared = self.shared();
        let sequence = shared.next;
        shared.next += 1;
        shared.counts.published += 1;
        shared.counts.published_bytes += payload.len() as u64;
        shared.buffer.push(sequence, payload.clone());
        let queued = shared.queue.as_ref().map(|queue| queue.try_send((sequence, payload)));
        if let Some(Err(TrySendError::Full(_) | TrySendError::Closed(_))) = queued {
            shared.counts.dropped += 1;
        }
        sequence
    }

    /// What was counted, batches in the queue, batches to be replayed.
    pub fn counts(&self) -> (Counts, usize, usize) {
        let shared = self.shared();
        let free = shared.queue.as_ref().map_or(self.queue_limit, mpsc::Sender::capacity);
        (shared.counts, self.queue_limit - free, shared.buffer.len())
    }

    /// The port of the socket, and that of replays; 0 for none.
    pub fn ports(&self) -> [u16; 2] {
        self.begun.ports
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.shared().queue = None;
        if let Some(connecting) = &self.begun.connecting {
            connecting.abort();
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn port_of(endpoint: &Endpoint) -> u16 {
    match endpoint {
        Endpoint::Tcp(_, port) => *port,
        _ => 0,
    }
}

/// Binds what is to be bound, and says at which ports.
async fn open(
    config: &Config,
    endpoint: &str,
    replay: Option<&str>,
) -> Result<(PubSocket, Option<RouterSocket>, [u16; 2]), Failure> {
    let failed = |name: &str, at: &str, error: zeromq::ZmqError| {
        Failure::network(format!("{name} {at}: {error}"))
    };
    let mut socket = PubSocket::new();
    let mut ports = [0; 2];
    if !config.connects {
        let bound = socket.bind(endpoint).await;
        ports[0] = port_of(&bound.map_err(|error| failed("config.endpoint", endpoint, error))?);
    }
    let Some(replay) = replay else { return Ok((socket, None, ports)) };
    let mut router = RouterSocket::new();
    let bound = router.bind(replay).await;
    ports[1] = port_of(&bound.map_err(|error| failed("config.replay_endpoint", replay, error))?);
    Ok((socket, Some(router), ports))
}

async fn serve(
    config: Config,
    endpoint: String,
    replay: Option<String>,
    shared: Arc<Mutex<Shared>>,
    mut batches: mpsc::Receiver<Queued>,
    tell: std::sync::mpsc::SyncSender<Result<Begun, Failure>>,
) {
    let (socket, router, ports) = match open(&config, &endpoint, replay.as_deref()).await {
        Ok(opened) => opened,
        Err(failure) => {
            let _ = tell.send(Err(failure));
            return;
        }
    };
    // Whoever is to be connected to may come later than this process.
    let (connects, mut socket) = (config.connects, socket);
    let found = tokio::spawn(async move {
        while connects && socket.connect(&endpoint).await.is_err() {
            tokio::time::sleep(RETRY).await;
        }
        socket
    });
    let topic = Bytes::from(config.topic.into_bytes());
    if let Some(router) = router {
        let (answers, requests) = router.split();
        tokio::spawn(replay::serve(requests, answers, shared.clone(), topic.clone()));
    }
    let connecting = connects.then(|| found.abort_handle());
    if tell.send(Ok(Begun { ports, connecting })).is_err() {
        return;
    }
    let Ok(mut socket) = found.await else { return };
    if connects {
        // What it subscribes to is known only after it has answered.
        tokio::time::sleep(FLUSH).await;
    }
    let send = async {
        while let Some((sequence, payload)) = batches.recv().await {
            let sequence = Bytes::copy_from_slice(&sequence.to_be_bytes());
            let frames = vec![topic.clone(), sequence, payload];
            let sent = match ZmqMessage::try_from(frames) {
                Ok(message) => socket.send(message).await.is_ok(),
                Err(_) => false,
            };
            if !sent && let Ok(mut shared) = shared.lock() {
                shared.counts.dropped += 1;
            }
            // The tasks that write to subscribers run on this thread too.
            tokio::task::yield_now().await;
        }
    };
    send.await;
    // Nobody publishes any more: what the sockets took may still leave.
    tokio::time::sleep(FLUSH).await;
}
