//! Where peers come from, or are gone to: TCP and paths.
use crate::zmtp::{Reader, Writer};
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// Before somebody is let in again when there was no descriptor for it.
const PAUSE: Duration = Duration::from_millis(100);

/// After so long without a word a peer is asked whether it is still there, and again after that.
pub const IDLE: Duration = Duration::from_secs(60);
pub const AGAIN: Duration = Duration::from_secs(15);
/// Who takes nothing of what is on its way to it for so long is gone: then nobody asks.
const GONE: Duration = Duration::from_secs(180);

/// Who answers nothing for so long at an address that is gone to is not there: it may be at another
/// one by then. The system would wait for minutes.
const ANSWER: Duration = Duration::from_secs(5);

/// Both ways of a connection.
pub type Connection = (Reader, Writer);

fn set_up(stream: &TcpStream) {
    // What was said is to leave at once.
    let _ = stream.set_nodelay(true);
    // A host that went without a word would keep its place for ever.
    let asks = TcpKeepalive::new().with_time(IDLE).with_interval(AGAIN);
    let _ = SockRef::from(stream).set_tcp_keepalive(&asks);
    #[cfg(target_os = "linux")]
    let _ = SockRef::from(stream).set_tcp_user_timeout(Some(GONE));
}

fn of_tcp(stream: TcpStream) -> Connection {
    set_up(&stream);
    let (reader, writer) = stream.into_split();
    (Box::new(tokio::io::BufReader::new(reader)), Box::new(writer))
}

fn of_path(stream: UnixStream) -> Connection {
    let (reader, writer) = stream.into_split();
    (Box::new(tokio::io::BufReader::new(reader)), Box::new(writer))
}

/// An endpoint that is bound.
#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    /// With what is there: by the time this one ends it may be another one's.
    Path(UnixListener, String, Option<(u64, u64)>),
}

impl Listener {
    /// Binds a resolved endpoint.
    pub async fn bind(endpoint: &str) -> io::Result<Self> {
        if let Some(path) = endpoint.strip_prefix("ipc://") {
            clear(path).await;
            let listener = UnixListener::bind(path)?;
            return Ok(Self::Path(listener, path.to_owned(), file_at(path)));
        }
        let mut found: Vec<_> = tokio::net::lookup_host(address(endpoint)).await?.collect();
        // Subscribers of libzmq look for IPv4 unless they are told otherwise.
        found.sort_by_key(SocketAddr::is_ipv6);
        Ok(Self::Tcp(bind_one_of(&found).await?))
    }

    /// Its port; 0 for a path.
    pub fn port(&self) -> u16 {
        match self {
            Self::Tcp(listener) => listener.local_addr().map_or(0, |address| address.port()),
            Self::Path(..) => 0,
        }
    }

    /// The next one who comes.
    pub async fn accept(&self) -> Connection {
        loop {
            let came = match self {
                Self::Tcp(listener) => listener.accept().await.map(|(stream, _)| of_tcp(stream)),
                Self::Path(listener, ..) => {
                    listener.accept().await.map(|(stream, _)| of_path(stream))
                }
            };
            match came {
                Ok(connection) => return connection,
                // It went again, or this process has no descriptors left: others will have some.
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Path(_, path, file) = self
            && *file == file_at(path)
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Binds the first of a name's addresses that this host has. One at which the port is taken is not
/// passed over: who goes to the name finds the other one there, and not who is at the next address.
async fn bind_one_of(found: &[SocketAddr]) -> io::Result<TcpListener> {
    let mut refused = io::ErrorKind::AddrNotAvailable.into();
    for &address in found {
        match TcpListener::bind(address).await {
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => refused = error,
            done => return done,
        }
    }
    Err(refused)
}

/// Removes the socket that a process left when it was killed: nobody answers there.
async fn clear(path: &str) {
    let is_socket =
        std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    // Not with a call that blocks: one that stands still answers nobody, and is there.
    if is_socket
        && let Err(error) = UnixStream::connect(path).await
        && error.kind() == io::ErrorKind::ConnectionRefused
    {
        let _ = std::fs::remove_file(path);
    }
}

/// Which file is at a path. That of a socket that is bound is no other's number meanwhile.
fn file_at(path: &str) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Goes to a resolved endpoint: to the first of its addresses where somebody answers.
pub async fn connect(endpoint: &str) -> io::Result<Connection> {
    if let Some(path) = endpoint.strip_prefix("ipc://") {
        return UnixStream::connect(path).await.map(of_path);
    }
    let mut refused = io::ErrorKind::AddrNotAvailable.into();
    for found in tokio::net::lookup_host(address(endpoint)).await? {
        match tokio::time::timeout(ANSWER, TcpStream::connect(found)).await {
            Ok(Ok(stream)) => return Ok(of_tcp(stream)),
            Ok(Err(error)) => refused = error,
            Err(late) => refused = late.into(),
        }
    }
    Err(refused)
}

fn address(endpoint: &str) -> &str {
    endpoint.strip_prefix("tcp://").unwrap_or(endpoint)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Who acknowledges nothing is given up after minutes, though something is on its way to it,
    /// which is when nobody asks.
    #[test]
    fn e05_who_acknowledges_nothing_is_given_up() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            set_up(&stream);
            assert_eq!(SockRef::from(&stream).tcp_user_timeout().unwrap(), Some(GONE));
            assert!(SockRef::from(&stream).keepalive().unwrap() && stream.nodelay().unwrap());
        });
    }

    /// A port that is taken is not passed over for the next address of the same name.
    #[test]
    fn e03_a_port_in_use_is_no_reason_to_bind_another_address() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let first = taken.local_addr().unwrap();
            // Another address of this host, also where it has no IPv6.
            let next = SocketAddr::from(([127, 0, 0, 2], first.port()));
            let refused = bind_one_of(&[first, next]).await.unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
            // One that this host does not have is.
            let foreign = SocketAddr::from(([192, 0, 2, 1], 0));
            let own = SocketAddr::from(([127, 0, 0, 1], 0));
            bind_one_of(&[foreign, own]).await.unwrap();
            let refused = bind_one_of(&[foreign]).await.unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AddrNotAvailable);
        });
    }

    /// Who answers nothing is given up after some seconds: by then it may be at another address.
    #[test]
    fn e05_who_answers_nothing_is_not_waited_for() {
        use socket2::{Domain, Socket, Type};
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        // When as many wait to be let in, others hear nothing.
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let (time, mut waiting) = (Duration::from_millis(300), Vec::new());
        while let Ok(peer) = std::net::TcpStream::connect_timeout(&address, time) {
            waiting.push(peer);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let endpoint = format!("tcp://{address}");
            let done = tokio::time::timeout(4 * ANSWER, connect(&endpoint)).await;
            let failed = done.expect("it waits as long as the system does").err();
            assert_eq!(failed.map(|error| error.kind()), Some(io::ErrorKind::TimedOut));
        });
    }
}
