//! Where peers come from, or are gone to: TCP and paths.
use crate::zmtp::{Reader, Writer};
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// Before somebody is let in again when there was no descriptor for it.
const PAUSE: Duration = Duration::from_millis(100);

/// After so long without a word a peer is asked whether it is still there, and again after that.
const IDLE: Duration = Duration::from_secs(60);
const AGAIN: Duration = Duration::from_secs(15);

/// Both ways of a connection.
pub type Connection = (Reader, Writer);

fn of_tcp(stream: TcpStream) -> Connection {
    // What was said is to leave at once.
    let _ = stream.set_nodelay(true);
    // A host that went without a word would keep its place for ever.
    let asks = TcpKeepalive::new().with_time(IDLE).with_interval(AGAIN);
    let _ = SockRef::from(&stream).set_tcp_keepalive(&asks);
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
    Path(UnixListener, String),
}

impl Listener {
    /// Binds a resolved endpoint.
    pub async fn bind(endpoint: &str) -> io::Result<Self> {
        if let Some(path) = endpoint.strip_prefix("ipc://") {
            clear(path);
            return Ok(Self::Path(UnixListener::bind(path)?, path.to_owned()));
        }
        Ok(Self::Tcp(TcpListener::bind(address(endpoint)).await?))
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
                Self::Path(listener, _) => {
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
        if let Self::Path(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Removes the socket that a process left when it was killed: nobody answers there.
fn clear(path: &str) {
    let is_socket =
        std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let answer = is_socket.then(|| std::os::unix::net::UnixStream::connect(path));
    if answer.is_some_and(|answer| {
        answer.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    }) {
        let _ = std::fs::remove_file(path);
    }
}

/// Goes to a resolved endpoint.
pub async fn connect(endpoint: &str) -> io::Result<Connection> {
    match endpoint.strip_prefix("ipc://") {
        Some(path) => UnixStream::connect(path).await.map(of_path),
        None => TcpStream::connect(address(endpoint)).await.map(of_tcp),
    }
}

fn address(endpoint: &str) -> &str {
    endpoint.strip_prefix("tcp://").unwrap_or(endpoint)
}
