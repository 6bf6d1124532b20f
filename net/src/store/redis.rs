//! Redis, or Valkey, which speaks the same protocol.
use super::{Answer, Config, Done, Last, Put};
use crate::failure::Failure;
use crate::socket::{AGAIN, IDLE};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, Pipeline, RedisError};
use redis::{ConnectionInfo, TlsCertificates};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;

/// What one begins with.
const CERTIFICATE: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// Some connections, made when they are needed, and anew when they broke.
#[derive(Debug)]
struct Connections {
    places: Vec<Mutex<Option<(u64, Connection)>>>,
    next: AtomicUsize,
    numbers: AtomicU64,
    /// Those with smaller numbers are not used any more.
    left: AtomicU64,
}

#[derive(Clone)]
struct Connection(MultiplexedConnection);

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a connection")
    }
}

/// One that is in use. Unless it was said to be good, the next call makes another one: a call that
/// was given up in the middle leaves a server that may never answer.
struct Lent<'a> {
    place: &'a Mutex<Option<(u64, Connection)>>,
    number: u64,
    is_new: bool,
    is_good: bool,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if !self.is_good
            && let Ok(mut place) = self.place.try_lock()
            && place.as_ref().is_some_and(|(number, _)| *number == self.number)
        {
            *place = None;
        }
    }
}

impl Connections {
    fn new(count: usize) -> Self {
        let places = (0..count).map(|_| Mutex::default()).collect();
        Self {
            places,
            next: AtomicUsize::new(0),
            numbers: AtomicU64::new(0),
            left: AtomicU64::new(0),
        }
    }

    /// The next calls make others.
    fn leave(&self) {
        self.left.fetch_max(self.numbers.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    async fn take(
        &self,
        client: &Client,
        time: Duration,
    ) -> Result<(Lent<'_>, MultiplexedConnection), RedisError> {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % self.places.len();
        let place = &self.places[at];
        let mut found = place.lock().await;
        let left = self.left.load(Ordering::Relaxed);
        let is_new = found.as_ref().is_none_or(|(number, _)| *number < left);
        if is_new {
            // Numbered before it is made: it may be left while it is.
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            // The time of a call is the caller's.
            let config = AsyncConnectionConfig::new()
                .set_connection_timeout(Some(time))
                .set_response_timeout(None);
            let made = client.get_multiplexed_async_connection_with_config(&config).await?;
            *found = Some((number, Connection(made)));
        }
        let (number, connection) = found.clone().expect("it was made");
        drop(found);
        Ok((Lent { place, number, is_new, is_good: false }, connection.0))
    }
}

#[derive(Debug)]
pub struct Redis {
    client: Client,
    reading: Connections,
    /// Of their own: a value that is written is nothing to wait behind.
    writing: Connections,
    ttl: u64,
    last: Last,
    /// It took no writes, when it was asked last.
    is_replica: AtomicBool,
}

/// Where a server is, and that what lies between is not to forget a connection that is idle.
fn info(url: &str) -> Result<ConnectionInfo, RedisError> {
    let asks = TcpKeepalive::new().with_time(IDLE).with_interval(AGAIN);
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(asks);
    Ok(url.into_connection_info()?.set_tcp_settings(settings))
}

fn text(error: RedisError) -> String {
    error.to_string()
}

impl Redis {
    pub fn new(config: &Config, last: Last) -> Result<Self, Failure> {
        if config.endpoint.is_some() {
            return Err(Failure::argument("config.endpoint is for s3:// alone"));
        }
        let is_secure = ["rediss://", "valkeys://"].iter().any(|way| config.url.starts_with(way));
        let made = match &config.ca_file {
            Some(_) if !is_secure => {
                return Err(Failure::argument("config.ca_file is for rediss:// and valkeys://"));
            }
            Some(file) => {
                let root = std::fs::read(file)
                    .map_err(|error| Failure::argument(format!("config.ca_file: {error}")))?;
                if !root.windows(CERTIFICATE.len()).any(|at| at == CERTIFICATE) {
                    let text = format!("config.ca_file: {file} has no certificate in PEM");
                    return Err(Failure::argument(text));
                }
                let roots = TlsCertificates { client_tls: None, root_cert: Some(root) };
                info(&config.url).and_then(|info| Client::build_with_tls(info, roots))
            }
            None => info(&config.url).and_then(Client::open),
        };
        let client = made.map_err(|error| Failure::argument(format!("config.url: {error}")))?;
        let [reading, writing] = [(); 2].map(|()| Connections::new(config.connections));
        let is_replica = AtomicBool::new(false);
        Ok(Self { client, reading, writing, ttl: config.ttl, last, is_replica })
    }

    /// What became of each of some commands.
    async fn query<T: redis::FromRedisValue>(
        &self,
        connections: &Connections,
        mut commands: Pipeline,
        time: Duration,
    ) -> Result<Vec<Result<T, RedisError>>, String> {
        commands.ignore_errors();
        loop {
            let taken = connections.take(&self.client, time).await;
            let (mut lent, mut connection) = taken.map_err(text)?;
            let done: Result<Vec<Result<T, RedisError>>, RedisError> =
                commands.query_async(&mut connection).await;
            // A server that answers with an error is one to talk to; but for one that takes no
            // writes any more: it became a replica, and another one may be at its address.
            let is_broken = |error: &RedisError| {
                error.is_io_error() || error.is_connection_dropped() || error.is_timeout()
            };
            let is_replica = |one: &Result<T, RedisError>| {
                one.as_ref().is_err_and(|error| error.code() == Some("READONLY"))
            };
            let is_left = done.as_ref().is_ok_and(|all| all.iter().any(is_replica));
            lent.is_good = !is_left && !done.as_ref().is_err_and(is_broken);
            // What others write is not there, or late, nor goes what they remove: who reads leaves
            // it too, once, and again when there is one that takes writes.
            let writes = std::ptr::eq(connections, &self.writing);
            if writes
                && (is_left || lent.is_good)
                && self.is_replica.swap(is_left, Ordering::Relaxed) != is_left
            {
                self.reading.leave();
            }
            // One that was good once may be of a server that is gone, and has come back.
            if lent.is_good || lent.is_new {
                return done.map_err(text);
            }
        }
    }

    /// What commands come to, each of which has its own answer.
    fn answers<T>(
        &self,
        done: Vec<Result<T, RedisError>>,
        answer: impl Fn(usize, Result<T, RedisError>) -> Result<Answer, RedisError>,
    ) -> Done {
        let mut refused = None;
        let each = |(at, one)| {
            answer(at, one).unwrap_or_else(|error| {
                refused = Some(text(error));
                Answer::Failed
            })
        };
        let answers: Vec<Answer> = done.into_iter().enumerate().map(each).collect();
        self.last.judge(answers, refused)
    }

    /// The same for commands that read values. What is no string is none of ours, and missing.
    async fn read<T: redis::FromRedisValue>(
        &self,
        commands: Pipeline,
        time: Duration,
        answer: impl Fn(usize, T) -> Answer,
    ) -> Done {
        let found = self.query::<T>(&self.reading, commands, time).await?;
        self.answers(found, |at, value| match value {
            Ok(value) => Ok(answer(at, value)),
            Err(error) if error.code() == Some("WRONGTYPE") => Ok(Answer::Missing),
            Err(error) => Err(error),
        })
    }

    /// The same for commands that change values. A server that is full takes some, and refuses
    /// others.
    async fn change(&self, commands: Pipeline, time: Duration) -> Done {
        let done = self.query::<redis::Value>(&self.writing, commands, time).await?;
        self.answers(done, |_, one| one.map(|_| Answer::Done))
    }

    pub async fn has(&self, names: Vec<String>, time: Duration) -> Done {
        let mut commands = Pipeline::new();
        for name in &names {
            // A value that is asked for is one that is used, which EXISTS would not say to a server
            // that gives values up.
            commands.strlen(name);
        }
        let answer = |_, length: u64| if length > 0 { Answer::Done } else { Answer::Missing };
        self.read(commands, time, answer).await
    }

    pub async fn get(&self, names: Vec<String>, rooms: &[u64], time: Duration) -> Done {
        let mut commands = Pipeline::new();
        for (name, &room) in names.iter().zip(rooms) {
            // A byte more than there is room for says that it is too long, whatever its length.
            commands.getrange(name, 0, isize::try_from(room).unwrap_or(isize::MAX));
        }
        let answer = |at: usize, value: bytes::Bytes| match value.len() as u64 {
            0 => Answer::Missing,
            length if length > rooms[at] => Answer::Long(length),
            _ => Answer::Value(value),
        };
        self.read(commands, time, answer).await
    }

    pub async fn put(&self, puts: Vec<Put>, time: Duration) -> Done {
        let mut commands = Pipeline::new();
        for put in &puts {
            match self.ttl {
                0 => commands.set(&put.key, &put.value[..]),
                ttl => commands.set_ex(&put.key, &put.value[..], ttl),
            };
        }
        self.change(commands, time).await
    }

    pub async fn remove(&self, names: Vec<String>, time: Duration) -> Done {
        let mut commands = Pipeline::new();
        for name in &names {
            commands.del(name);
        }
        self.change(commands, time).await
    }
}
