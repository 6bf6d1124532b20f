//! A store that prefix caches share: pages by key, on a server of Redis or in a bucket of S3.
//!
//! The cache calls it from threads of its own, which may wait; so each call runs to its end there,
//! on a runtime that all of them share, or to the end of its time. What a server says is passed on:
//! the cache checks it.
mod capi;
mod objects;
mod redis;
mod remote;

pub use capi::*;

use crate::failure::Failure;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What a store is made of.
#[derive(Debug, Clone, Default)]
pub struct Config {
    pub url: String,
    pub prefix: String,
    pub endpoint: Option<String>,
    /// Certificates that the server's may be of.
    pub ca_file: Option<String>,
    /// Seconds after which a value goes.
    pub ttl: u64,
    /// Connections that read, and as many that write.
    pub connections: usize,
}

/// From here on a write to a server that went is an error on this thread, and no signal: std writes
/// several pieces at once without MSG_NOSIGNAL, and an engine need not ignore SIGPIPE.
fn keep_pipes_quiet() {
    // SAFETY: the set is this function's own, and is made before it is used.
    unsafe {
        let mut pipe = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&mut pipe);
        libc::sigaddset(&mut pipe, libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, &pipe, std::ptr::null_mut());
    }
}

/// What is known of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Done,
    Missing,
    Failed,
    /// It was read.
    Value(bytes::Bytes),
    /// It is so long that there is no room for it, and was not read.
    Long(u64),
}

/// A value to be written, and its key.
pub struct Put {
    pub key: String,
    pub value: bytes::Bytes,
}

/// Why a request failed last.
#[derive(Debug, Clone, Default)]
struct Last(Arc<Mutex<String>>);

impl Last {
    fn tell(&self, error: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }

    /// What a call comes to of which some values failed, and why: without any answer it has failed
    /// itself.
    fn judge(&self, answers: Vec<Answer>, failed: Option<String>) -> Done {
        match failed {
            Some(error) if answers.iter().all(|answer| *answer == Answer::Failed) => Err(error),
            Some(error) => {
                self.tell(error);
                Ok(answers)
            }
            None => Ok(answers),
        }
    }
}

#[derive(Debug)]
enum Server {
    Redis(Box<redis::Redis>),
    Objects(objects::Objects),
}

/// A server, and what is needed to talk with it.
#[derive(Debug)]
pub struct Store {
    server: Server,
    prefix: String,
    last: Last,
    /// None only when it ends.
    runtime: Option<tokio::runtime::Runtime>,
}

/// What came of a call: as many answers as there are values, or why there are none.
type Done = Result<Vec<Answer>, String>;

impl Store {
    /// A store, which needs not be reachable.
    pub fn new(config: Config) -> Result<Self, Failure> {
        let last = Last::default();
        let scheme = config.url.split_once("://").map_or("", |(scheme, _)| scheme);
        let server = match scheme {
            "redis" | "valkey" | "rediss" | "valkeys" | "redis+unix" | "valkey+unix" | "unix" => {
                Server::Redis(Box::new(redis::Redis::new(&config, last.clone())?))
            }
            "s3" => Server::Objects(objects::Objects::new(&config, last.clone())?),
            _ => {
                let text = "config.url begins with none of redis://, rediss://, valkey://, \
                            valkeys://, unix://, s3://";
                return Err(Failure::argument(text));
            }
        };
        let build = || {
            tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .thread_name("rkv-net-store")
                .on_thread_start(keep_pipes_quiet)
                .enable_all()
                .build()
        };
        // It panics when the system refuses a thread.
        let refused = |_| Err(std::io::Error::other("the system refuses one"));
        let runtime = std::panic::catch_unwind(build)
            .unwrap_or_else(refused)
            .map_err(|error| Failure::network(format!("a thread: {error}")))?;
        Ok(Self { server, prefix: config.prefix, last, runtime: Some(runtime) })
    }

    /// A key as the server has it.
    fn name(&self, key: &[u8; 32]) -> String {
        let mut name = self.prefix.clone();
        key.iter().for_each(|byte| name.push_str(&format!("{byte:02x}")));
        name
    }

    fn names(&self, keys: &[[u8; 32]]) -> Vec<String> {
        keys.iter().map(|key| self.name(key)).collect()
    }

    /// Runs a call for so long at most.
    fn run(&self, time: Duration, call: impl Future<Output = Done>) -> Vec<Answer> {
        // Some is written on this thread, which is one of the cache's.
        keep_pipes_quiet();
        let runtime = self.runtime.as_ref().expect("it is there until the end");
        let done = runtime.block_on(async { tokio::time::timeout(time, call).await });
        let done =
            done.unwrap_or_else(|_| Err(format!("no answer within {} ms", time.as_millis())));
        done.unwrap_or_else(|error| {
            self.last.tell(error);
            Vec::new()
        })
    }

    pub fn has(&self, keys: &[[u8; 32]], time: Duration) -> Vec<Answer> {
        let names = self.names(keys);
        match &self.server {
            Server::Redis(redis) => self.run(time, redis.has(names, time)),
            Server::Objects(objects) => self.run(time, objects.has(names, time)),
        }
    }

    /// With room for so many bytes of each.
    pub fn get(&self, keys: &[[u8; 32]], rooms: &[u64], time: Duration) -> Vec<Answer> {
        let names = self.names(keys);
        match &self.server {
            Server::Redis(redis) => self.run(time, redis.get(names, rooms, time)),
            Server::Objects(objects) => self.run(time, objects.get(names, rooms, time)),
        }
    }

    pub fn put(&self, values: Vec<([u8; 32], bytes::Bytes)>, time: Duration) -> Vec<Answer> {
        let named = |(key, value)| Put { key: self.name(&key), value };
        let puts = values.into_iter().map(named).collect();
        match &self.server {
            Server::Redis(redis) => self.run(time, redis.put(puts, time)),
            Server::Objects(objects) => self.run(time, objects.put(puts, time)),
        }
    }

    pub fn remove(&self, keys: &[[u8; 32]], time: Duration) -> Vec<Answer> {
        let names = self.names(keys);
        match &self.server {
            Server::Redis(redis) => self.run(time, redis.remove(names, time)),
            Server::Objects(objects) => self.run(time, objects.remove(names, time)),
        }
    }

    /// Why a call failed last; empty when none has.
    pub fn last_failure(&self) -> String {
        self.last.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A name that is being looked up is waited for by nobody.
            runtime.shutdown_timeout(Duration::from_millis(100));
        }
    }
}
