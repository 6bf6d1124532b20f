//! What sockets of ZeroMQ say to each other over a connection: ZMTP 3.0 without security, as far as
//! a PUB and a ROUTER need it (<https://rfc.zeromq.org/spec/23>).
//!
//! Of our own, because a peer is anybody: what comes is bounded before there is memory for it, and
//! what leaves is bounded by whoever queues it.
use bytes::{BufMut, Bytes, BytesMut};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Bytes of a message that is sent to us, at most: a topic that is subscribed to, or a number.
const MESSAGE: usize = 1 << 16;
/// Its frames, at most.
const FRAMES: usize = 8;
/// Payloads up to here are copied behind their heads, and leave with them in one piece.
const SHORT: usize = 4096;

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// What comes from a connection.
pub type Reader = Box<dyn AsyncRead + Send + Unpin>;
/// What goes to it.
pub type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// What we are.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    Pub,
    Router,
}

impl Kind {
    fn name(self) -> &'static [u8] {
        match self {
            Self::Pub => b"PUB",
            Self::Router => b"ROUTER",
        }
    }

    fn takes(self, peer: &[u8]) -> bool {
        match self {
            Self::Pub => [&b"SUB"[..], b"XSUB"].contains(&peer),
            Self::Router => [&b"REQ"[..], b"DEALER", b"ROUTER"].contains(&peer),
        }
    }
}

/// What a peer says once it is known who it is.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    /// The frames of a message.
    Message(Vec<Bytes>),
    /// A subscription begins, or ends.
    Subscribe(Bytes),
    Cancel(Bytes),
    /// Whether we are there: to be answered with [`pong`].
    Ping(Bytes),
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Says who we are, and hears who the peer is. Who is none that we speak with is an error.
pub async fn shake_hands(reader: &mut Reader, writer: &mut Writer, kind: Kind) -> io::Result<()> {
    let mut greeting = [0; 64];
    (greeting[0], greeting[9], greeting[10]) = (0xff, 0x7f, 3);
    greeting[12..16].copy_from_slice(b"NULL");
    writer.write_all(&greeting).await?;
    writer.flush().await?;
    let mut theirs = [0; 64];
    reader.read_exact(&mut theirs).await?;
    if theirs[0] != 0xff || theirs[9] & 1 == 0 || theirs[10] < 3 {
        return Err(refused("it speaks no ZMTP 3"));
    }
    if theirs[12..32] != greeting[12..32] {
        return Err(refused("it wants security"));
    }
    let mut ready = BytesMut::new();
    ready.put_slice(b"\x05READY\x0bSocket-Type");
    ready.put_u32(kind.name().len() as u32);
    ready.put_slice(kind.name());
    let mut said = BytesMut::new();
    put_head(&mut said, COMMAND, ready.len());
    said.put_slice(&ready);
    writer.write_all(&said).await?;
    writer.flush().await?;
    let (flags, body) = read_frame(reader, MESSAGE).await?;
    let properties = body.strip_prefix(b"\x05READY").filter(|_| flags & COMMAND != 0);
    let peer = properties.and_then(socket_type).ok_or_else(|| refused("it is not ready"))?;
    if !kind.takes(peer) {
        return Err(refused("it is a socket of another kind"));
    }
    Ok(())
}

/// The kind of a socket, among properties: each has a name with its length, and a value with its.
fn socket_type(mut properties: &[u8]) -> Option<&[u8]> {
    loop {
        let (&length, rest) = properties.split_first()?;
        let (name, rest) = rest.split_at_checked(usize::from(length))?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (value, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        if name.eq_ignore_ascii_case(b"socket-type") {
            return Some(value);
        }
        properties = rest;
    }
}

/// A frame, with its flags, of so many bytes at most.
async fn read_frame(reader: &mut Reader, limit: usize) -> io::Result<(u8, Bytes)> {
    let flags = reader.read_u8().await?;
    if flags & !(MORE | LONG | COMMAND) != 0 {
        return Err(refused("no frame begins so"));
    }
    let length = match flags & LONG {
        0 => u64::from(reader.read_u8().await?),
        _ => reader.read_u64().await?,
    };
    if length > limit as u64 {
        return Err(refused("a message is too long"));
    }
    let mut body = vec![0; length as usize];
    reader.read_exact(&mut body).await?;
    Ok((flags, body.into()))
}

/// The next that a peer says. What it may say and we have no use for is passed over. `frames` are
/// those of a message that has begun: something else may come between them. All of it together is
/// no longer than a message, for nobody says when the rest of one comes.
pub async fn hear(reader: &mut Reader, frames: &mut Vec<Bytes>) -> io::Result<Said> {
    loop {
        let kept: usize = frames.iter().map(Bytes::len).sum();
        let (flags, body) = read_frame(reader, MESSAGE - kept).await?;
        if flags & COMMAND != 0 {
            // One between the frames of a message is none of them.
            let (name, rest) = named(&body).ok_or_else(|| refused("a command has no name"))?;
            match name {
                b"SUBSCRIBE" => return Ok(Said::Subscribe(body.slice_ref(rest))),
                b"CANCEL" => return Ok(Said::Cancel(body.slice_ref(rest))),
                // How long it waits for an answer, which comes at once, and what to say in it.
                b"PING" => {
                    let context = rest.get(2..).ok_or_else(|| refused("a PING is too short"))?;
                    return Ok(Said::Ping(body.slice_ref(context)));
                }
                b"ERROR" => return Err(refused("it reports an error")),
                _ => continue,
            }
        }
        frames.push(body);
        if flags & MORE == 0 {
            return Ok(Said::Message(std::mem::take(frames)));
        }
        if frames.len() == FRAMES {
            return Err(refused("a message has too many frames"));
        }
    }
}

fn named(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = body.split_first()?;
    rest.split_at_checked(usize::from(length))
}

fn put_head(into: &mut BytesMut, flags: u8, length: usize) {
    match u8::try_from(length) {
        Ok(length) => into.put_slice(&[flags, length]),
        Err(_) => {
            into.put_u8(flags | LONG);
            into.put_u64(length as u64);
        }
    }
}

/// Says a message whose last frame may be long.
pub async fn say(writer: &mut Writer, first: &[&[u8]], last: &Bytes) -> io::Result<()> {
    let mut head = BytesMut::new();
    for frame in first {
        put_head(&mut head, MORE, frame.len());
        head.put_slice(frame);
    }
    put_head(&mut head, 0, last.len());
    if last.len() <= SHORT {
        head.put_slice(last);
        writer.write_all(&head).await?;
    } else {
        writer.write_all(&head).await?;
        writer.write_all(last).await?;
    }
    writer.flush().await
}

/// Answers a PING.
pub async fn pong(writer: &mut Writer, context: &[u8]) -> io::Result<()> {
    let mut said = BytesMut::new();
    put_head(&mut said, COMMAND, 5 + context.len());
    said.put_slice(b"\x04PONG");
    said.put_slice(context);
    writer.write_all(&said).await?;
    writer.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(bytes: &[u8]) -> io::Result<Said> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut reader: Reader = Box::new(std::io::Cursor::new(bytes.to_vec()));
        runtime.block_on(hear(&mut reader, &mut Vec::new()))
    }

    #[test]
    fn e03_what_peers_say() {
        let message = |frames: &[&'static [u8]]| {
            Said::Message(frames.iter().map(|&frame| Bytes::from_static(frame)).collect())
        };
        assert_eq!(heard(b"\x01\x00\x00\x02ab").unwrap(), message(&[b"", b"ab"]));
        assert_eq!(heard(b"\x02\0\0\0\0\0\0\0\x01a").unwrap(), message(&[b"a"]));
        assert_eq!(heard(b"\x04\x0c\x09SUBSCRIBEkv").unwrap(), Said::Subscribe("kv".into()));
        assert_eq!(heard(b"\x04\x07\x06CANCEL").unwrap(), Said::Cancel(Bytes::new()));
        assert_eq!(heard(b"\x04\x09\x04PING\0\x0aab").unwrap(), Said::Ping("ab".into()));
        // A command that we don't know, between two frames.
        assert_eq!(heard(b"\x01\x01a\x04\x02\x01X\x00\x01b").unwrap(), message(&[b"a", b"b"]));
    }

    #[test]
    fn e05_what_is_none_of_it_ends_the_connection() {
        let long = [&[2][..], &(MESSAGE as u64 + 1).to_be_bytes()].concat();
        let longest = [&[2][..], &u64::MAX.to_be_bytes()].concat();
        let many = [1, 0].repeat(FRAMES);
        let wrong: [&[u8]; 8] = [
            &long,
            &longest,
            &many,
            b"\x08\0",
            b"\x04\0",
            b"\x04\x02\x09X",
            b"\x04\x06\x04PING\0",
            b"\x04\x06\x05ERROR",
        ];
        for bytes in wrong {
            assert_eq!(heard(bytes).unwrap_err().kind(), io::ErrorKind::InvalidData, "{bytes:?}");
        }
        for at in 0..6 {
            let end = heard(&b"\x01\x01a\x00\x02ab"[..at]).unwrap_err();
            assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    /// The frames of a message that never ends have no more room than one frame.
    #[test]
    fn e05_all_frames_of_a_message_have_room_together() {
        let frame = |flags: u8, bytes: usize| {
            [&[flags | LONG][..], &(bytes as u64).to_be_bytes(), &vec![7; bytes]].concat()
        };
        let (first, last) = (frame(MORE, MESSAGE - 9), frame(0, 9));
        let Said::Message(frames) = heard(&[&first[..], &last].concat()).unwrap() else { panic!() };
        assert_eq!(frames.iter().map(Bytes::len).sum::<usize>(), MESSAGE);
        // Refused by its head, before there is memory for it.
        for next in [frame(MORE, 10), frame(0, 10), frame(COMMAND, 10)] {
            let refused = heard(&[&first[..], &next[..9]].concat()).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        }
    }

    #[test]
    fn e03_the_kind_of_a_socket_is_among_its_properties() {
        let properties = b"\x08Identity\0\0\0\0\x0bsocket-Type\0\0\0\x03SUBrest";
        assert_eq!(socket_type(properties), Some(&b"SUB"[..]));
        for at in 0..properties.len() - 4 {
            assert_eq!(socket_type(&properties[..at]), None);
        }
    }

    /// What is said between two frames of a message costs it none.
    #[test]
    fn e03_a_heartbeat_between_two_frames() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let bytes = b"\x01\x00\x04\x09\x04PING\0\x0aab\x00\x02cd".to_vec();
        let mut reader: Reader = Box::new(std::io::Cursor::new(bytes));
        let mut frames = Vec::new();
        let mut next = || runtime.block_on(hear(&mut reader, &mut frames)).unwrap();
        assert_eq!(next(), Said::Ping("ab".into()));
        assert_eq!(next(), Said::Message(vec![Bytes::new(), "cd".into()]));
    }
}
