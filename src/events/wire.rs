//! Events as bytes: vLLM's KV events, as `docs/events.md` describes them.
use super::outbox::{Effect, Outbox};
use super::pack::Pack;
use super::spaces::Space;
use super::{EventConfig, blocks::Blocks};
use crate::group::{GroupKind, Groups};
use crate::journal::Reason;
use crate::memory::OutOfMemory;
use crate::token::{PageDigest, Part, TokenKind, is_text};
use std::fmt;
use std::io;

/// Bytes before the events of a batch: an array of three, the time, how many events.
pub(super) const HEAD_BYTES: usize = 1 + 9 + 5;

/// What a batch begins with; its length is always written with four bytes, for it comes last.
pub(super) fn batch_head(timestamp: f64, event_count: usize) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    (head[0], head[1], head[10]) = (0x93, 0xcb, 0xdd);
    head[2..10].copy_from_slice(&timestamp.to_be_bytes());
    head[11..].copy_from_slice(&(event_count as u32).to_be_bytes());
    head
}

/// What a batch ends with, and how many bytes of it.
pub(super) fn batch_tail(rank: Option<u32>) -> ([u8; 5], usize) {
    let mut tail = [0; 5];
    let mut left = &mut tail[..];
    let written = Pack(&mut left).maybe(rank.map(u64::from));
    debug_assert!(written.is_ok(), "it takes 5 bytes at most");
    let bytes = 5 - left.len();
    (tail, bytes)
}

/// How events are written.
#[derive(Debug)]
pub(super) struct Wire {
    pub config: EventConfig,
    pub page_size: usize,
    pub groups: Groups,
}

/// Blocks that follow each other in a prefix.
pub(super) struct Run<'a> {
    pub group: usize,
    pub parent: Option<PageDigest>,
    pub digests: &'a [PageDigest],
    /// The places of the pages of group 0 that have their tokens.
    pub spine: &'a [u32],
    pub space: &'a Space,
}

/// What stands for something that is no text: the digest of an image, or a bin. An image has 64
/// digits, as vLLM's own.
struct ItemName(TokenKind);

impl fmt::Display for ItemName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            TokenKind::Image { digest, .. } => {
                digest.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                write!(f, "{:032}", 0)
            }
            TokenKind::Coord { bin } => write!(f, "coord:{bin}"),
            TokenKind::Size { width_bin, height_bin } => write!(f, "size:{width_bin}:{height_bin}"),
        }
    }
}

fn reason_name(reason: Reason) -> &'static str {
    match reason {
        Reason::Capacity => "capacity",
        Reason::Caller => "caller",
        Reason::Destroyed => "destroyed",
        Reason::Invalidated => "invalidated",
        Reason::Limit => "limit",
    }
}

fn kind_name(kind: GroupKind) -> &'static str {
    match kind {
        GroupKind::Full => "full_attention",
        GroupKind::Window { .. } => "sliding_window",
        GroupKind::Chunk { .. } => "chunked_local_attention",
        GroupKind::State => "mamba",
    }
}

impl Wire {
    /// Blocks came in.
    pub fn stored(
        &self,
        run: &Run<'_>,
        blocks: &Blocks,
        out: &mut Outbox,
    ) -> Result<(), OutOfMemory> {
        let effect = Effect { stored: run.digests.len(), removed: 0 };
        out.push(effect, |out| self.write_stored(run, blocks, &mut Pack(out)))
    }

    fn write_stored(&self, run: &Run<'_>, blocks: &Blocks, out: &mut Pack<'_>) -> io::Result<()> {
        let Run { group, parent, digests, spine, space } = *run;
        let kind = self.groups.list()[group].kind;
        let window = match kind {
            GroupKind::Window { window, .. } => Some(window),
            _ => None,
        };
        let keys = |index: usize| Keys {
            space,
            is_first: parent.is_none() && index == 0,
            parts: blocks.parts(spine[index]),
        };
        let has_keys = (0..spine.len()).any(|index| keys(index).count() > 0);
        out.map(10 + has_keys as usize + window.is_some() as usize)?;
        out.text("type")?;
        out.text("BlockStored")?;
        self.write_hashes(digests, out)?;
        out.text("parent_block_hash")?;
        match parent {
            Some(parent) => out.digest(&parent, self.config.wide_hashes)?,
            None => out.nil()?,
        }
        out.text("token_ids")?;
        out.array(spine.len() * self.page_size)?;
        for &place in spine {
            for &id in blocks.tokens(place) {
                let id = if is_text(id) { id } else { self.config.placeholder_token_id };
                out.number(u64::from(id))?;
            }
        }
        out.text("block_size")?;
        out.number(self.page_size as u64)?;
        out.text("lora_id")?;
        out.maybe(space.lora_id())?;
        self.write_medium(out)?;
        out.text("lora_name")?;
        out.label(space.lora_name())?;
        if has_keys {
            out.text("extra_keys")?;
            out.array(spine.len())?;
            (0..spine.len()).try_for_each(|index| keys(index).write(out))?;
        }
        out.text("group_idx")?;
        out.number(group as u64)?;
        out.text("kv_cache_spec_kind")?;
        out.text(kind_name(kind))?;
        if let Some(window) = window {
            out.text("kv_cache_spec_sliding_window")?;
            out.number(u64::from(window))?;
        }
        Ok(())
    }

    /// Blocks of a group left.
    pub fn removed(
        &self,
        digests: &[PageDigest],
        group: usize,
        reason: Reason,
        out: &mut Outbox,
    ) -> Result<(), OutOfMemory> {
        out.push(Effect { stored: 0, removed: digests.len() }, |out| {
            let out = &mut Pack(out);
            out.map(5)?;
            out.text("type")?;
            out.text("BlockRemoved")?;
            self.write_hashes(digests, out)?;
            self.write_medium(out)?;
            out.text("group_idx")?;
            out.number(group as u64)?;
            out.text("reason")?;
            out.text(reason_name(reason))
        })
    }

    /// Whether blocks that go are named, however many. Routers take an `AllBlocksCleared` for all
    /// ranks of a worker: one of several would end what the others have told.
    pub fn names_each(&self) -> bool {
        self.config.data_parallel_rank.is_some()
    }

    /// Nothing is held: `removed` blocks left that had been told of.
    pub fn cleared(&self, removed: usize, out: &mut Outbox) -> Result<(), OutOfMemory> {
        out.push(Effect { stored: 0, removed }, |out| {
            let out = &mut Pack(out);
            out.map(1)?;
            out.text("type")?;
            out.text("AllBlocksCleared")
        })
    }

    fn write_hashes(&self, digests: &[PageDigest], out: &mut Pack<'_>) -> io::Result<()> {
        out.text("block_hashes")?;
        out.array(digests.len())?;
        digests.iter().try_for_each(|digest| out.digest(digest, self.config.wide_hashes))
    }

    fn write_medium(&self, out: &mut Pack<'_>) -> io::Result<()> {
        out.text("medium")?;
        out.text(&self.config.medium)
    }
}

/// What tells blocks apart that have the same tokens: the adapter, what is not text, and for the
/// first block of a prefix the salt.
struct Keys<'a> {
    space: &'a Space,
    is_first: bool,
    parts: &'a [Part],
}

impl Keys<'_> {
    fn count(&self) -> usize {
        let salt = self.is_first && self.space.cache_salt().is_some();
        self.space.lora_id().is_some() as usize + self.parts.len() + salt as usize
    }

    fn write(&self, out: &mut Pack<'_>) -> io::Result<()> {
        let count = self.count();
        if count == 0 {
            return out.nil();
        }
        out.array(count)?;
        if let Some(name) = self.space.lora_name() {
            out.label(Some(name))?;
        }
        for part in self.parts {
            out.array(2)?;
            out.made_text(ItemName(part.kind))?;
            // Where the image begins, counted from the block: before it, for one that goes on.
            out.signed(part.start as i64 - i64::from(part.offset))?;
        }
        match self.space.cache_salt().filter(|_| self.is_first) {
            Some(salt) => out.label(Some(salt)),
            None => Ok(()),
        }
    }
}
