//! Tokens and their keys: one 4-byte key for each KV position.
#![forbid(unsafe_code)]

pub mod bins;
mod digest_chain;
mod images;
mod keys;
mod list;
mod page_digest;
mod part_pieces;
mod parts;
mod query;
mod scratch;
mod text_digests;

pub use digest_chain::{
    DigestChain, KeyPieces, Keys, ListDigests, OpenImage, page_digest_count, page_digests,
};
pub use images::{Images, image_digest};
pub(crate) use keys::TEXT_ID_LIMIT;
pub use keys::{all_text, image_number, is_text};
pub(crate) use list::bad_id;
pub use list::{Item, TokenKind, TokenList, build, position_count, positions_at_most, regions};
pub(crate) use page_digest::PAGE_SIZE_MAX;
pub use page_digest::{PageDigest, PageHasher};
pub use part_pieces::PartPieces;
pub use parts::{Part, parts_within, visit_parts};
pub use query::{HeldKeys, ImageSpan, Query, with_imageless_query, with_known_query, with_query};
pub(crate) use text_digests::TOGETHER;
pub use text_digests::{TextDigester, TextDigests};
