//! Lookups of many prompts in one call, in the block-hash index: the digests of several are made
//! side by side, and nothing else is found for that than by a call for each.
use fastrand::Rng;
use radixkv::capi::*;
use std::ptr::{from_ref, null, null_mut};

const ROWS: u32 = 64;
const IMAGE_POSITIONS: u32 = 7;

/// A struct of the header, zero but for its size.
fn sized<T: Copy>() -> T {
    // SAFETY: used with the ABI's structs only: zero is valid, and a u32 size comes first.
    unsafe {
        let mut made = std::mem::zeroed::<T>();
        (&raw mut made).cast::<u32>().write(size_of::<T>() as u32);
        made
    }
}

/// A prompt, and where it is looked up.
#[derive(Clone, Default)]
struct Prompt {
    space: Option<rkv_namespace>,
    ids: Vec<u32>,
    items: Vec<rkv_token_item>,
}

fn space(number: u8) -> Option<rkv_namespace> {
    let space: rkv_namespace = sized();
    match number {
        0 => None,
        1 => Some(rkv_namespace { flags: RKV_NAMESPACE_LORA, lora_id: 5, ..space }),
        2 => Some(rkv_namespace { salt: [9; 32], ..space }),
        3 => Some(rkv_namespace { epoch: 2, ..space }),
        _ => {
            let image_digest = [number; 16];
            Some(rkv_namespace { flags: RKV_NAMESPACE_IMAGE, image_digest, ..space })
        }
    }
}

impl Prompt {
    /// One that is new, or goes on like another one for a while.
    fn random(rng: &mut Rng, page_size: usize, known: &[Self]) -> Self {
        let mut made = match rng.choice(known) {
            Some(other) if rng.u8(..5) > 0 => other.clone(),
            _ => Self { space: space(rng.u8(..6)), ..Self::default() },
        };
        if rng.u8(..8) == 0 {
            made.space = space(rng.u8(..6));
        }
        if rng.u8(..3) > 0 {
            made.ids.truncate(rng.usize(..=made.ids.len()));
            made.items.retain(|item| (item.token_index as usize) < made.ids.len());
        }
        // Long ones too, whose digests are made in several rounds, and those of no page.
        let most = [1, 12, 40, 120][rng.usize(..4)] * page_size;
        for _ in 0..rng.usize(..=most) {
            if rng.u16(..200) == 0 {
                made.items.push(rkv_token_item {
                    token_index: made.ids.len() as u64,
                    kind: RKV_TOKEN_IMAGE,
                    position_count: IMAGE_POSITIONS,
                    digest: [rng.u8(..4); 16],
                    bin: 0,
                    height_bin: 0,
                });
            }
            made.ids.push(rng.u32(..3));
        }
        if made.ids.is_empty() {
            made.ids.push(1);
        }
        made
    }

    fn tokens(&self) -> rkv_tokens {
        rkv_tokens {
            ids: self.ids.as_ptr(),
            count: self.ids.len(),
            items: self.items.as_ptr(),
            item_size: size_of::<rkv_token_item>() as u32,
            item_count: self.items.len(),
            ..sized()
        }
    }

    fn space(&self) -> *const rkv_namespace {
        self.space.as_ref().map_or(null(), from_ref)
    }
}

/// What a lookup found: positions, tokens, and the pages.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Told {
    status: rkv_status,
    found: Option<(u64, u64)>,
    pages: Vec<u32>,
}

struct World {
    table: *mut rkv_page_table,
    cache: *mut rkv_cache,
    page_size: usize,
}

impl Drop for World {
    fn drop(&mut self) {
        // SAFETY: both are this object's, which is their last user.
        unsafe {
            rkv_page_table_destroy(self.table);
            rkv_cache_destroy(self.cache);
        }
    }
}

// SAFETY, of every call below: pointers lead to live values, and arrays have the length that is
// given.
impl World {
    fn new(page_size: usize, page_count: u32) -> Self {
        let config = rkv_page_table_config {
            page_size: page_size as u32,
            page_count,
            slot_count: ROWS,
            row_page_limit: page_count / 2,
            ..sized()
        };
        let (mut table, mut cache) = (null_mut(), null_mut());
        // SAFETY: see above.
        unsafe {
            assert_eq!(rkv_page_table_create(&config, &mut table), rkv_status::Ok);
            let config = rkv_cache_config { index: RKV_INDEX_BLOCK_HASH, ..sized() };
            assert_eq!(rkv_cache_create(table, &config, &mut cache), rkv_status::Ok);
        }
        Self { table, cache, page_size }
    }

    fn positions(&self, prompt: &Prompt) -> usize {
        prompt.ids.len() + prompt.items.len() * (IMAGE_POSITIONS as usize - 1)
    }

    fn begin_many(&self, prompts: &[Prompt]) -> Vec<(rkv_status, rkv_sequence_info)> {
        let tokens: Vec<_> = prompts.iter().map(Prompt::tokens).collect();
        let args = prompts.iter().zip(&tokens).map(|(prompt, tokens)| rkv_sequence_begin_args {
            space: prompt.space(),
            tokens,
            ..sized()
        });
        let args: Vec<_> = args.collect();
        let mut begun = vec![sized::<rkv_sequence_info>(); args.len()];
        let mut statuses = vec![rkv_status::Poisoned; args.len()];
        let (from, into, to) = (args.as_ptr(), begun.as_mut_ptr(), statuses.as_mut_ptr());
        let sizes = (size_of::<rkv_sequence_begin_args>(), size_of::<rkv_sequence_info>());
        // SAFETY: see above.
        let status = unsafe {
            rkv_sequence_begin_many(self.cache, from, args.len(), sizes.0, into, sizes.1, to)
        };
        assert_eq!(status, rkv_status::Ok);
        statuses.into_iter().zip(begun).collect()
    }

    /// Publishes what was begun, in one call; what was done.
    fn publish_many(
        &self,
        prompts: &[Prompt],
        begun: &[(rkv_status, rkv_sequence_info)],
    ) -> Vec<(rkv_status, u64, u64)> {
        for (_, info) in begun.iter().filter(|(_, info)| info.copy_count > 0) {
            // SAFETY: see above.
            let confirmed = unsafe { rkv_sequence_confirm_copies(self.cache, info.sequence) };
            assert_eq!(confirmed, rkv_status::Ok);
        }
        let items =
            prompts.iter().zip(begun).map(|(prompt, (_, info))| rkv_sequence_publish_item {
                sequence: info.sequence,
                computed_position_count: self.positions(prompt) as u64,
            });
        self.publish_items(&items.collect::<Vec<_>>())
    }

    fn publish_items(&self, items: &[rkv_sequence_publish_item]) -> Vec<(rkv_status, u64, u64)> {
        let mut done = vec![sized::<rkv_sequence_publish_result>(); items.len()];
        let mut statuses = vec![rkv_status::Poisoned; items.len()];
        let (from, into, to) = (items.as_ptr(), done.as_mut_ptr(), statuses.as_mut_ptr());
        let sizes =
            (size_of::<rkv_sequence_publish_item>(), size_of::<rkv_sequence_publish_result>());
        // SAFETY: see above.
        let status = unsafe {
            rkv_sequence_publish_many(self.cache, from, items.len(), sizes.0, into, sizes.1, to)
        };
        assert_eq!(status, rkv_status::Ok);
        let told = statuses.into_iter().zip(done);
        told.map(|(status, done)| (status, done.claimed_page_count, done.shared_page_count))
            .collect()
    }

    /// Ends what was begun; what of each was cached, and where.
    fn end(&self, begun: &[(rkv_status, rkv_sequence_info)]) -> Vec<Told> {
        let end = |(status, info): &(rkv_status, rkv_sequence_info)| {
            if *status != rkv_status::Ok {
                return Told { status: *status, found: None, pages: Vec::new() };
            }
            // SAFETY: see above.
            let ended = unsafe { rkv_sequence_release(self.cache, info.sequence) };
            assert_eq!(ended, rkv_status::Ok);
            let found = Some((info.cached_position_count, info.position_count));
            Told { status: *status, found, pages: Vec::new() }
        };
        begun.iter().map(end).collect()
    }

    fn match_many(&self, prompts: &[Prompt]) -> Vec<Told> {
        let tokens: Vec<_> = prompts.iter().map(Prompt::tokens).collect();
        let room = |prompt: &Prompt| self.positions(prompt) / self.page_size;
        let mut pages: Vec<_> = prompts.iter().map(|prompt| vec![0; room(prompt)]).collect();
        let items = prompts.iter().zip(&tokens).zip(&mut pages);
        let items = items.map(|((prompt, tokens), pages)| rkv_cache_match_item {
            space: prompt.space(),
            tokens,
            pages: pages.as_mut_ptr(),
            page_capacity: pages.len(),
            flags: 0,
            reserved: 0,
        });
        let items: Vec<_> = items.collect();
        let mut found = vec![sized::<rkv_cache_match_result>(); items.len()];
        let mut statuses = vec![rkv_status::Poisoned; items.len()];
        let (from, into, to) = (items.as_ptr(), found.as_mut_ptr(), statuses.as_mut_ptr());
        let sizes = (size_of::<rkv_cache_match_item>(), size_of::<rkv_cache_match_result>());
        // SAFETY: see above.
        let status = unsafe {
            rkv_cache_match_many(self.cache, from, items.len(), sizes.0, into, sizes.1, to)
        };
        assert_eq!(status, rkv_status::Ok);
        let told = statuses.into_iter().zip(found).zip(pages);
        let told = told.map(|((status, found), mut pages)| {
            pages.truncate(found.page_count as usize);
            Told { status, found: Some((found.position_count, found.token_count)), pages }
        });
        told.collect()
    }

    fn probe_many(&self, prompts: &[Prompt]) -> Vec<Told> {
        let tokens: Vec<_> = prompts.iter().map(Prompt::tokens).collect();
        let items = prompts.iter().zip(&tokens);
        let items =
            items.map(|(prompt, tokens)| rkv_cache_probe_item { space: prompt.space(), tokens });
        let items: Vec<_> = items.collect();
        let none = rkv_cache_probe_result { token_count: 0, position_count: 0 };
        let mut found = vec![none; items.len()];
        let mut statuses = vec![rkv_status::Poisoned; items.len()];
        let (from, into, to) = (items.as_ptr(), found.as_mut_ptr(), statuses.as_mut_ptr());
        let sizes = (size_of::<rkv_cache_probe_item>(), size_of::<rkv_cache_probe_result>());
        // SAFETY: see above.
        let status = unsafe {
            rkv_cache_probe_many(self.cache, from, items.len(), sizes.0, into, sizes.1, to)
        };
        assert_eq!(status, rkv_status::Ok);
        let told = statuses.into_iter().zip(found).map(|(status, found)| {
            let found = Some((found.position_count, found.token_count));
            Told { status, found, pages: Vec::new() }
        });
        told.collect()
    }
}

/// As many calls for one each: with a single item nothing is made ahead.
fn one_by_one<T>(prompts: &[Prompt], mut each: impl FnMut(&[Prompt]) -> Vec<T>) -> Vec<T> {
    prompts.iter().flat_map(|prompt| each(std::slice::from_ref(prompt))).collect()
}

/// H03: prompts of all lengths, alike or not, in namespaces of all kinds, with images and without.
#[test]
fn h03_many_prompts_at_once_find_what_each_alone_does() {
    let mut rng = Rng::with_seed(3);
    let (mut most, mut partly) = (0, 0);
    for _ in 0..120 {
        let page_size = [1, 2, 3, 4, 7, 16][rng.usize(..6)];
        let [alone, together] = [(); 2].map(|()| World::new(page_size, 3000));
        let mut known = Vec::new();
        for _ in 0..6 {
            let prompts: Vec<_> = (0..rng.usize(1..30))
                .map(|_| Prompt::random(&mut rng, page_size, &known))
                .collect();
            let matched = one_by_one(&prompts, |prompt| alone.match_many(prompt));
            assert_eq!(together.match_many(&prompts), matched);
            let probed = one_by_one(&prompts, |prompt| alone.probe_many(prompt));
            assert_eq!(together.probe_many(&prompts), probed);
            let counts = |told: &Told| told.found.expect("they are good");
            assert!(matched.iter().map(counts).eq(probed.iter().map(counts)));
            for (prompt, told) in prompts.iter().zip(&matched) {
                let found = counts(told).0 as usize;
                most = most.max(found / page_size);
                partly += usize::from(found > 0 && found + page_size < alone.positions(prompt));
            }
            // Those that fit.
            let some = prompts[..prompts.len().min(8)].to_vec();
            let begun = one_by_one(&some, |prompt| alone.begin_many(prompt));
            let begun_together = together.begin_many(&some);
            let pairs = some.chunks(1).zip(begun.chunks(1));
            let published: Vec<_> =
                pairs.flat_map(|(prompt, begun)| alone.publish_many(prompt, begun)).collect();
            assert_eq!(together.publish_many(&some, &begun_together), published);
            assert_eq!(together.end(&begun_together), alone.end(&begun));
            known.extend(some);
        }
    }
    assert!(most > 100 && partly > 300, "{most} pages, {partly} times a part was found");
}

/// H03: more digests than are kept of prompts that have not had their turn; the rest is made then.
#[test]
fn h03_long_prompts_at_once_find_what_each_alone_does() {
    let [alone, together] = [(); 2].map(|()| World::new(1, 60_000));
    let prompt = |number: u32| Prompt {
        ids: (0..5000).map(|at| number * 7919 + at).collect(),
        ..Prompt::default()
    };
    let mut prompts: Vec<_> = (0..11).map(prompt).collect();
    for world in [&alone, &together] {
        let begun = world.begin_many(&prompts);
        // More than there is to publish is refused, whatever the number, and changes nothing.
        let sequences = begun.iter().map(|(_, info)| info.sequence);
        let too_many = sequences.map(|sequence| rkv_sequence_publish_item {
            sequence,
            computed_position_count: u64::MAX,
        });
        let refused = world.publish_items(&too_many.collect::<Vec<_>>());
        assert!(refused.iter().all(|(status, ..)| *status == rkv_status::InvalidArgument));
        let published = world.publish_many(&prompts, &begun);
        assert!(published.iter().all(|done| *done == (rkv_status::Ok, 5000, 5000)));
        world.end(&begun);
    }
    for (number, prompt) in prompts.iter_mut().enumerate().step_by(3) {
        prompt.ids[number * 450] = 9_000_000;
    }
    let matched = one_by_one(&prompts, |prompt| alone.match_many(prompt));
    assert_eq!(together.match_many(&prompts), matched);
    let probed = one_by_one(&prompts, |prompt| alone.probe_many(prompt));
    assert_eq!(together.probe_many(&prompts), probed);
    for (number, told) in matched.iter().enumerate() {
        let found = if number % 3 == 0 { number * 450 } else { 5000 };
        assert_eq!((told.found, told.pages.len()), (Some((found as u64, found as u64)), found));
    }
}
