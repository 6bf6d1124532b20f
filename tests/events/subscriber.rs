//! A subscriber who knows the wire format alone: what it holds after each batch, and how strict it
//! is about what may come next.
use rmpv::Value;
use std::collections::BTreeMap;

/// A block as it was announced.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    pub parent: Option<u64>,
    pub tokens: Vec<u32>,
    pub lora_name: Option<String>,
    pub extra_keys: Option<Value>,
}

/// Blocks by group and hash.
pub type Held = BTreeMap<(u64, u64), Known>;

#[derive(Debug, Default)]
pub struct Subscriber {
    pub held: Held,
    /// Events by their type, and removals by their reason.
    pub counts: BTreeMap<String, usize>,
    /// It came late: blocks that it doesn't know may go.
    pub came_late: bool,
}

/// The value of a key that must be there, taken out.
fn take(map: &mut BTreeMap<String, Value>, key: &str) -> Value {
    map.remove(key).unwrap_or_else(|| panic!("{key} is missing"))
}

fn map_of(value: Value) -> BTreeMap<String, Value> {
    let Value::Map(pairs) = value else { panic!("an event is a map, not {value}") };
    let count = pairs.len();
    let text = |key: &Value| key.as_str().expect("keys are texts").to_owned();
    let map: BTreeMap<_, _> = pairs.into_iter().map(|(key, value)| (text(&key), value)).collect();
    assert_eq!(map.len(), count, "a key comes once");
    map
}

fn array_of(value: Value) -> Vec<Value> {
    let Value::Array(values) = value else { panic!("{value} is no array") };
    values
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn hashes(value: Value) -> Vec<u64> {
    array_of(value).iter().map(number).collect()
}

/// A payload as time, events and rank; nothing stands behind it.
pub fn decode(payload: &[u8]) -> (f64, Vec<Value>, Option<u64>) {
    let mut left = payload;
    let mut batch = array_of(rmpv::decode::read_value(&mut left).unwrap());
    assert!(left.is_empty(), "{} bytes are left", left.len());
    assert_eq!(batch.len(), 3, "time, events, rank");
    let rank = batch.pop().unwrap();
    let events = array_of(batch.pop().unwrap());
    let Value::F64(time) = batch[0] else { panic!("{} is no double", batch[0]) };
    (time, events, rank.as_u64())
}

impl Subscriber {
    /// Takes a payload over.
    pub fn apply(&mut self, payload: &[u8], page_size: usize) {
        decode(payload).1.into_iter().for_each(|event| self.apply_event(event, page_size));
    }

    fn apply_event(&mut self, event: Value, page_size: usize) {
        let mut event = map_of(event);
        let name = take(&mut event, "type").as_str().unwrap().to_owned();
        match name.as_str() {
            "BlockStored" => self.store(&mut event, page_size),
            "BlockRemoved" => self.remove(&mut event),
            "AllBlocksCleared" => self.held.clear(),
            other => panic!("{other} is no event"),
        }
        assert!(event.is_empty(), "{name} has {event:?} too");
        *self.counts.entry(name).or_default() += 1;
    }

    fn store(&mut self, event: &mut BTreeMap<String, Value>, page_size: usize) {
        let (hashes, group) = (hashes(take(event, "block_hashes")), take(event, "group_idx"));
        let parent = take(event, "parent_block_hash");
        let ids = array_of(take(event, "token_ids"));
        let mut tokens = ids.iter().map(|id| u32::try_from(number(id)).unwrap());
        assert_eq!(number(&take(event, "block_size")), page_size as u64);
        assert_eq!(tokens.len(), hashes.len() * page_size, "tokens of all blocks");
        assert_eq!(take(event, "medium").as_str(), Some("GPU"));
        let lora_name = take(event, "lora_name").as_str().map(str::to_owned);
        assert_eq!(take(event, "lora_id").is_nil(), lora_name.is_none());
        let keys = event.remove("extra_keys").map(array_of);
        assert!(keys.as_ref().is_none_or(|keys| keys.len() == hashes.len()), "keys by block");
        let kind = take(event, "kv_cache_spec_kind");
        let window = event.remove("kv_cache_spec_sliding_window");
        assert_eq!(window.is_some(), kind.as_str() == Some("sliding_window"));
        assert_eq!(kind.as_str() == Some("full_attention"), number(&group) == 0);
        *self.counts.entry(kind.as_str().unwrap().to_owned()).or_default() += 1;
        let mut parent = (!parent.is_nil()).then(|| number(&parent));
        for (at, &hash) in hashes.iter().enumerate() {
            let is_known = parent.is_none_or(|parent| self.held.contains_key(&(0, parent)));
            assert!(is_known, "a block comes before its parent");
            let known = Known {
                parent,
                tokens: tokens.by_ref().take(page_size).collect(),
                lora_name: lora_name.clone(),
                extra_keys: keys.as_ref().map(|keys| keys[at].clone()).filter(|key| !key.is_nil()),
            };
            let before = self.held.insert((number(&group), hash), known);
            // Routers count: they keep it until it went as often.
            assert!(before.is_none(), "block {hash:x} is stored twice");
            parent = Some(hash);
        }
    }

    fn remove(&mut self, event: &mut BTreeMap<String, Value>) {
        let group = number(&take(event, "group_idx"));
        assert_eq!(take(event, "medium").as_str(), Some("GPU"));
        let reason = take(event, "reason").as_str().unwrap().to_owned();
        for hash in hashes(take(event, "block_hashes")) {
            let known = self.held.remove(&(group, hash));
            let stands_on = |known: &Known| group == 0 && known.parent == Some(hash);
            assert!(!self.held.values().any(stands_on), "block {hash:x} goes before the next one");
            assert!(known.is_some() || self.came_late, "block {hash:x} is removed, and not held");
        }
        *self.counts.entry(reason).or_default() += 1;
    }
}
