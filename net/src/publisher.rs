//! A publisher: numbers, a queue, and a thread with the sockets.
use crate::endpoint::{is_any, resolve};
use crate::failure::Failure;
use crate::replay::{self, Buffer, HasBuffer};
use crate::socket::{self, Connection, Listener};
use crate::subscribers::{Batch, Subscribers};
use bytes::Bytes;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::{Semaphore, oneshot};

/// How long the sockets get for what they took, when the publisher is destroyed; and before that
/// one who was connected to, to say what it subscribes to.
const FLUSH: Duration = Duration::from_millis(100);
/// Before one is looked for again who had no name or no route, or was not there; and from when one
/// was found, who went since then.
const RETRY: Duration = Duration::from_secs(1);
/// Subscribers at once, at most, and as many who ask for replays.
const CONNECTIONS: usize = 1024;

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

#[derive(Debug)]
struct Shared {
    next: u64,
    /// None while the publisher ends.
    queue: Option<mpsc::Sender<Batch>>,
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
    /// Dropped when the publisher ends: nobody is looked for any more.
    end: Option<oneshot::Sender<()>>,
    ports: [u16; 2],
    queue_limit: usize,
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
        // Without an endpoint nobody can ask for them.
        let replay_batches = replay.as_ref().map_or(0, |_| config.replay_batches);
        let (queue, batches) = mpsc::channel(config.queue_batches);
        let shared = Arc::new(Mutex::new(Shared {
            next: 0,
            queue: Some(queue),
            buffer: Buffer::new(replay_batches),
            counts: Counts::default(),
        }));
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let (end, ends) = oneshot::channel();
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
            runtime.block_on(async {
                match open(&config, &endpoint, replay.as_deref()).await {
                    Err(failure) => drop(tell.send(Err(failure))),
                    Ok((listener, asked, ports)) => {
                        let serving = Serving {
                            endpoint,
                            topic: Bytes::from(config.topic.into_bytes()),
                            shared: of_thread,
                            batches,
                            ends,
                        };
                        if tell.send(Ok(ports)).is_ok() {
                            serving.run(listener, asked).await;
                        }
                    }
                }
            });
            runtime.shutdown_timeout(FLUSH);
        };
        let thread = thread::Builder::new().name("radixkv-net".to_owned()).spawn(run);
        let thread = thread
            .map_err(|error| Failure::network(format!("no thread to publish on: {error}")))?;
        let ports = told.recv().unwrap_or_else(|_| Err(Failure::network("the thread ended")))?;
        Ok(Self { shared, thread: Some(thread), end: Some(end), ports, queue_limit })
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
        self.ports
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.shared().queue = None;
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Binds what is to be bound: none for what is to be connected to, and without replays. Says at
/// which ports.
async fn open(
    config: &Config,
    endpoint: &str,
    replay: Option<&str>,
) -> Result<(Option<Listener>, Option<Listener>, [u16; 2]), Failure> {
    let bind = async |name: &str, at: &str| {
        let failed = |error| Failure::network(format!("{name} {at}: {error}"));
        Listener::bind(at).await.map_err(failed)
    };
    let own = match config.connects {
        false => Some(bind("config.endpoint", endpoint).await?),
        true => None,
    };
    let asked = match replay {
        Some(replay) => Some(bind("config.replay_endpoint", replay).await?),
        None => None,
    };
    let ports = [&own, &asked].map(|bound| bound.as_ref().map_or(0, Listener::port));
    Ok((own, asked, ports))
}

/// Lets everybody in, as many as there may be at once.
async fn let_in<F: Future<Output = ()> + Send + 'static>(
    listener: Listener,
    serve: impl Fn(Connection) -> F,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let connection = listener.accept().await;
        // Who comes when all are taken is sent away.
        if let Ok(place) = places.clone().try_acquire_owned() {
            let served = serve(connection);
            tokio::spawn(async move {
                served.await;
                drop(place);
            });
        }
    }
}

/// What the thread has.
struct Serving {
    endpoint: String,
    topic: Bytes,
    shared: Arc<Mutex<Shared>>,
    batches: mpsc::Receiver<Batch>,
    ends: oneshot::Receiver<()>,
}

impl Serving {
    /// Until the publisher ends.
    async fn run(mut self, own: Option<Listener>, asked: Option<Listener>) {
        let (subscribers, topic) = (Subscribers::default(), self.topic.clone());
        if let Some(asked) = asked {
            let (shared, topic) = (self.shared.clone(), topic.clone());
            tokio::spawn(let_in(asked, move |connection| {
                let answers = replay::serve(connection, shared.clone(), topic.clone());
                async move { drop(answers.await) }
            }));
        }
        match own {
            Some(own) => {
                let all = subscribers.clone();
                tokio::spawn(let_in(own, move |one| all.clone().serve(one, topic.clone())));
                while let Some(batch) = self.batches.recv().await {
                    subscribers.send(&batch);
                    // The tasks that write to subscribers run on this thread too.
                    tokio::task::yield_now().await;
                }
            }
            None => while self.send_to_one(&subscribers).await {},
        }
        // Nobody publishes any more: what waits may still leave.
        subscribers.end();
        tokio::time::sleep(FLUSH).await;
    }

    /// Looks for the one to connect to, however late it comes, and from what it subscribes on sends
    /// it batches until it goes: then it may come back. False when the publisher ends.
    async fn send_to_one(&mut self, subscribers: &Subscribers) -> bool {
        let find = async {
            loop {
                match socket::connect(&self.endpoint).await {
                    Ok(connection) => return connection,
                    Err(_) => tokio::time::sleep(RETRY).await,
                }
            }
        };
        let connection = tokio::select! {
            found = find => found,
            _ = &mut self.ends => return false,
        };
        let found = Instant::now();
        let mut served = tokio::spawn(subscribers.clone().serve(connection, self.topic.clone()));
        // What it subscribes to comes behind what it is, from far away a good while later: what is
        // in the queue is for it, and waits for that.
        let mut wanted = std::pin::pin!(subscribers.wanted());
        tokio::select! {
            () = &mut wanted => {}
            _ = &mut served => return self.may_come_back(found).await,
            _ = &mut self.ends => {
                // Who ends the publisher waits for it too, but not as long.
                if tokio::time::timeout(FLUSH, wanted).await.is_err() {
                    return false;
                }
            }
        }
        loop {
            tokio::select! {
                // Who went is to get nothing that another could have.
                biased;
                _ = &mut served => return self.may_come_back(found).await,
                batch = self.batches.recv() => match batch {
                    Some(batch) => subscribers.send(&batch),
                    None => return false,
                },
            }
            tokio::task::yield_now().await;
        }
    }

    /// Waits until one that was found, and went, may be looked for again: else one that always goes
    /// would take all our time, and the batches that wait. False when the publisher ends.
    async fn may_come_back(&mut self, found: Instant) -> bool {
        // Whoever ends the publisher closes them first; `ends` may not be asked again when it has
        // said so.
        if self.batches.is_closed() {
            return false;
        }
        let rest = RETRY.saturating_sub(found.elapsed());
        tokio::time::timeout(rest, &mut self.ends).await.is_err()
    }
}
