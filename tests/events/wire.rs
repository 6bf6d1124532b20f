//! E01, E04: the bytes of a batch, field by field.
use crate::subscriber::{Subscriber, decode};
use crate::world::{PAGE_SIZE, cache, encode, hash_of, pages};
use radixkv::events::{EventConfig, EventEncoder};
use radixkv::index::{IndexKind, Namespace};
use radixkv::memory::Arc;
use radixkv::store::{Scope, Shared};
use radixkv::token::{Item, PageDigest, TokenKind, TokenList, page_digests};
use rmpv::Value;

fn small(config: EventConfig) -> (Arc<Shared>, EventEncoder) {
    let shared = cache(IndexKind::Radix, pages(40), 1 << 16);
    let encoder = EventEncoder::new(shared.clone(), config).unwrap();
    (shared, encoder)
}

/// Publishes a prompt, whose pages stay.
fn publish(shared: &Shared, namespace: &Namespace, tokens: TokenList<'_>) {
    let begun = shared.begin(namespace, tokens, 0).unwrap();
    let mut state = shared.write();
    state.publish(begun.id, begun.positions).unwrap();
    state.release(begun.id).unwrap();
}

fn digests(namespace: &Namespace, tokens: TokenList<'_>) -> Vec<PageDigest> {
    let mut made = vec![];
    page_digests(tokens, PAGE_SIZE, 0, namespace.digest(), |digest| made.push(digest)).unwrap();
    made
}

fn map(pairs: Vec<(&str, Value)>) -> Value {
    Value::Map(pairs.into_iter().map(|(key, value)| (key.into(), value)).collect())
}

fn array<T: Into<Value>>(values: impl IntoIterator<Item = T>) -> Value {
    Value::Array(values.into_iter().map(Into::into).collect())
}

/// Each byte of a batch, as docs/events.md says.
#[test]
fn e01_every_byte_of_a_batch() {
    let (shared, encoder) = small(EventConfig::default());
    let ids = [5, 200, 70_000, 1, 2, 3, 4, 5, 6];
    let (space, tokens) = (Namespace::default(), TokenList::text(&ids));
    publish(&shared, &space, tokens);
    let (batch, payload) = encode(&encoder, 4096);
    let mut bytes = vec![0x93, 0xcb];
    bytes.extend(1.5_f64.to_be_bytes());
    bytes.extend([0xdd, 0, 0, 0, 2]);
    let text = |bytes: &mut Vec<u8>, text: &str| {
        let len = text.len() as u8;
        bytes.extend(if len < 32 { vec![0xa0 | len] } else { vec![0xd9, len] });
        bytes.extend(text.as_bytes());
    };
    bytes.push(0x81);
    ["type", "AllBlocksCleared"].iter().for_each(|word| text(&mut bytes, word));
    bytes.push(0x8a);
    ["type", "BlockStored", "block_hashes"].iter().for_each(|word| text(&mut bytes, word));
    bytes.push(0x92);
    for digest in digests(&space, tokens) {
        assert!(hash_of(digest) > u64::from(u32::MAX), "it takes 9 bytes");
        bytes.push(0xcf);
        bytes.extend(&digest.0[24..]);
    }
    text(&mut bytes, "parent_block_hash");
    bytes.push(0xc0);
    text(&mut bytes, "token_ids");
    bytes.extend([0x98, 5, 0xcc, 200, 0xce, 0, 1, 0x11, 0x70, 1, 2, 3, 4, 5]);
    text(&mut bytes, "block_size");
    bytes.push(4);
    text(&mut bytes, "lora_id");
    bytes.push(0xc0);
    ["medium", "GPU", "lora_name"].iter().for_each(|word| text(&mut bytes, word));
    bytes.push(0xc0);
    text(&mut bytes, "group_idx");
    bytes.push(0);
    let kind = ["kv_cache_spec_kind", "full_attention"];
    kind.iter().for_each(|word| text(&mut bytes, word));
    bytes.push(0xc0);
    assert_eq!(payload, bytes);
    assert_eq!((batch.event_count, batch.stored_count, batch.removed_count), (2, 2, 0));
    assert!(!batch.has_more && batch.lost_count == 0);
    assert_eq!(encode(&encoder, 4096).0.bytes, 0, "nothing more is to be told");
}

/// Adapter, salt, image, bins, rank, whole digests: the fields that are not always there.
#[test]
fn e04_names_salts_and_what_is_not_text() {
    let (shared, encoder) = small(EventConfig {
        wide_hashes: true,
        data_parallel_rank: Some(300),
        placeholder_token_id: 99,
        medium: "CPU".to_owned(),
    });
    let space = Namespace { lora: Some(7), salt: [3; 32], ..Namespace::default() };
    encoder.name_namespace(&space, Some("sql"), Some("tenant-a")).unwrap();
    let image = TokenKind::Image { digest: [0xab; 16], positions: 6 };
    let items = [
        Item { token_index: 1, kind: image },
        Item { token_index: 3, kind: TokenKind::Coord { bin: 12 } },
        Item { token_index: 4, kind: TokenKind::Size { width_bin: 3, height_bin: 4 } },
    ];
    let ids = [10, 0, 20, 0, 0, 30, 31, 32, 33, 34];
    let tokens = TokenList { ids: &ids, items: &items };
    publish(&shared, &space, tokens);
    let (_, payload) = encode(&encoder, 4096);
    let (_, events, rank) = decode(&payload);
    assert_eq!((events.len(), rank), (2, Some(300)));
    let made = digests(&space, tokens);
    assert_eq!(made.len(), 3);
    let hash = |digest: &PageDigest| Value::Binary(digest.0.to_vec());
    let image = format!("{}{}", "ab".repeat(16), "0".repeat(32));
    let keyed = |name: &str, at: i64| Value::Array(vec![name.into(), at.into()]);
    let keys = Value::Array(vec![
        Value::Array(vec!["sql".into(), keyed(&image, 1), "tenant-a".into()]),
        // The image began three positions before the block.
        Value::Array(vec!["sql".into(), keyed(&image, -3)]),
        Value::Array(vec!["sql".into(), keyed("coord:12", 0), keyed("size:3:4", 1)]),
    ]);
    const P: u32 = 99;
    let stored = map(vec![
        ("type", "BlockStored".into()),
        ("block_hashes", Value::Array(made.iter().map(hash).collect())),
        ("parent_block_hash", Value::Nil),
        ("token_ids", array([10, P, P, P, P, P, P, 20, P, P, 30, 31])),
        ("block_size", 4.into()),
        ("lora_id", 7.into()),
        ("medium", "CPU".into()),
        ("lora_name", "sql".into()),
        ("extra_keys", keys),
        ("group_idx", 0.into()),
        ("kv_cache_spec_kind", "full_attention".into()),
    ]);
    assert_eq!(events[1], stored);

    // The next one continues it: a parent, and no salt; then all of it goes.
    let longer = [&ids[..], &[35, 36, 37]].concat();
    let tokens = TokenList { ids: &longer, items: &items };
    publish(&shared, &space, tokens);
    let (_, payload) = encode(&encoder, 4096);
    let stored = map(vec![
        ("type", "BlockStored".into()),
        ("block_hashes", Value::Array(vec![hash(&digests(&space, tokens)[3])])),
        ("parent_block_hash", hash(&made[2])),
        ("token_ids", array([32, 33, 34, 35])),
        ("block_size", 4.into()),
        ("lora_id", 7.into()),
        ("medium", "CPU".into()),
        ("lora_name", "sql".into()),
        ("extra_keys", Value::Array(vec![Value::Array(vec!["sql".into()])])),
        ("group_idx", 0.into()),
        ("kv_cache_spec_kind", "full_attention".into()),
    ]);
    assert_eq!(decode(&payload).1, [stored]);
    shared.evict(1, |_, _| {}).unwrap();
    let (_, payload) = encode(&encoder, 4096);
    let removed = map(vec![
        ("type", "BlockRemoved".into()),
        ("block_hashes", Value::Array(vec![hash(&digests(&space, tokens)[3])])),
        ("medium", "CPU".into()),
        ("group_idx", 0.into()),
        ("reason", "caller".into()),
    ]);
    assert_eq!(decode(&payload).1, [removed]);
    shared.clear(Scope::default()).unwrap();
    let (batch, payload) = encode(&encoder, 4096);
    // With a rank each is named, the last one first.
    let removed = map(vec![
        ("type", "BlockRemoved".into()),
        ("block_hashes", Value::Array(made.iter().rev().map(hash).collect())),
        ("medium", "CPU".into()),
        ("group_idx", 0.into()),
        ("reason", "invalidated".into()),
    ]);
    assert_eq!(decode(&payload).1, [removed]);
    assert_eq!((batch.event_count, batch.removed_count), (1, 3));
}

/// What nobody named has its adapter's number, and its digest where something sets it apart.
#[test]
fn e04_names_that_nobody_gave() {
    let (shared, encoder) = small(EventConfig::default());
    let plain = Namespace::default();
    let spaces = [
        plain,
        Namespace { lora: Some(u64::MAX), ..plain },
        Namespace { epoch: 1, ..plain },
        Namespace { salt: [1; 32], ..plain },
    ];
    encoder.name_namespace(&spaces[3], None, Some("")).unwrap();
    let ids = [1, 2, 3, 4];
    spaces.iter().for_each(|space| publish(&shared, space, TokenList::text(&ids)));
    let mut to = Subscriber::default();
    to.apply(&encode(&encoder, 4096).1, PAGE_SIZE);
    let keys = |space: &Namespace| {
        let digest = digests(space, TokenList::text(&ids))[0];
        let known = to.held[&(0, hash_of(digest))].clone();
        (known.lora_name, known.extra_keys)
    };
    let one = |text: String| Some(array([text]));
    let max = u64::MAX.to_string();
    assert_eq!(to.held.len(), 4, "namespaces share no block");
    assert_eq!(keys(&spaces[0]), (None, None));
    assert_eq!(keys(&spaces[1]), (Some(max.clone()), one(max)));
    assert_eq!(keys(&spaces[2]), (None, one(spaces[2].digest().to_string())));
    assert_eq!(keys(&spaces[3]), (None, None));

    let refused = encoder.name_namespace(&plain, Some("sql"), None).unwrap_err();
    assert!(refused.to_string().starts_with("lora_name"), "{refused}");
    let long = "x".repeat(1025);
    let refused = encoder.name_namespace(&plain, None, Some(&long)).unwrap_err();
    assert!(refused.to_string().starts_with("cache_salt"), "{refused}");
    let refused = encoder.encode(f64::NAN, &mut []).unwrap_err();
    assert!(refused.to_string().starts_with("timestamp"), "{refused}");
}

#[test]
fn e01_a_cache_without_journal_has_no_events() {
    let shared = cache(IndexKind::Radix, pages(40), 0);
    let refused = EventEncoder::new(shared, EventConfig::default()).unwrap_err();
    assert!(refused.to_string().contains("config.journal_bytes"), "{refused}");
}

/// E03: 64 KiB are enough for any event of text, also where each block has a long name.
#[test]
fn e03_64_kib_are_enough_for_any_event_of_text() {
    let shared = cache(IndexKind::Radix, pages(80), 1 << 20);
    let config =
        EventConfig { wide_hashes: true, medium: "m".repeat(1024), ..EventConfig::default() };
    let encoder = EventEncoder::new(shared.clone(), config).unwrap();
    let space = Namespace { lora: Some(1), ..Namespace::default() };
    let name = "x".repeat(1024);
    encoder.name_namespace(&space, Some(&name), Some(&name)).unwrap();
    // Each takes five bytes.
    let ids: Vec<u32> = (0..64 * PAGE_SIZE as u32 + 1).map(|at| (1 << 31) - 1 - at).collect();
    publish(&shared, &space, TokenList::text(&ids));
    let mut stored = 0;
    loop {
        let (batch, _) = encode(&encoder, 1 << 16);
        assert_eq!(batch.needed_bytes, 0, "an event has room");
        stored += batch.stored_count;
        if !batch.has_more {
            break;
        }
    }
    assert_eq!(stored, 64);
}
