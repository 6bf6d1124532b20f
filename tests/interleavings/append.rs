//! Tokens that are added in portions to a sequence that others use meanwhile.
use crate::{NEXT, World, tokens};
use radixkv::ids::SequenceId;
use radixkv::index::{IndexKind, Namespace};
use radixkv::store::Shared;
use radixkv::token::TokenList;

/// Decoded tokens behind the prompt of four, and those that come in portions.
const DECODED: u32 = 30;
const MORE: u32 = 20;

/// What somebody else does to the same sequence, and what that makes of its tokens.
type Rival = (fn(&Shared, SequenceId), fn(&mut Vec<u32>));

const RIVALS: [Rival; 3] = [
    (|_, _| (), |_| ()),
    (
        |shared, id| shared.append(id, TokenList::text(&tokens(9, 3))).unwrap(),
        |ids| ids.extend(tokens(9, 3)),
    ),
    // Others in the same places.
    (
        |shared, id| {
            shared.write().truncate(id, 10).unwrap();
            shared.append(id, TokenList::text(&tokens(9, DECODED - 6))).unwrap();
        },
        |ids| {
            ids.truncate(10);
            ids.extend(tokens(9, DECODED - 6));
        },
    ),
];

/// Whether a sequence has exactly these tokens: what it publishes is found by them.
fn has(shared: &Shared, id: SequenceId, ids: &[u32]) -> bool {
    let positions = shared.read().sequence_info(id).unwrap().positions;
    if positions != ids.len() {
        return false;
    }
    let found = shared.read().find(&Namespace::default(), TokenList::text(ids)).unwrap();
    found.positions() == positions - positions % 2
}

/// The tokens of a call come behind those that somebody else added before, or before those that
/// somebody else adds afterwards; nothing is lost, and nothing comes back that was taken away.
#[test]
fn m06_tokens_that_come_in_portions_come_in_one_step() {
    for index in [IndexKind::Radix, IndexKind::BlockHash] {
        for (rival, made) in RIVALS {
            for at in 0.. {
                let world = World::new(index);
                let (shared, id) = (world.shared.clone(), world.fresh);
                shared.append(id, TokenList::text(&tokens(5, DECODED))).unwrap();
                NEXT.set(Some((at, Box::new(move |shared: &Shared| rival(shared, id)))));
                shared.append(id, TokenList::text(&tokens(6, MORE))).unwrap();
                let came = NEXT.take().is_none();
                world.check("afterwards");
                let before = [tokens(1, 4), tokens(5, DECODED)].concat();
                let (mut first, mut last) = (before.clone(), before);
                if came {
                    made(&mut first);
                }
                first.extend(tokens(6, MORE));
                last.extend(tokens(6, MORE));
                made(&mut last);
                let positions = shared.read().sequence_info(id).unwrap().positions;
                shared.turn().publish(id, positions).unwrap();
                let is_one = has(&shared, id, &first) || has(&shared, id, &last);
                assert!(is_one, "others got in at yield {at}");
                if !came {
                    assert!(at > 4, "others got in {at} times");
                    break;
                }
            }
        }
    }
}

/// A token at a time: the list moves now and then, in portions, and nothing else changes.
#[test]
fn m06_a_long_prompt_grows_token_by_token() {
    let world = World::new(IndexKind::Radix);
    let (shared, id) = (&world.shared, world.fresh);
    let (mut ids, mut yields) = (tokens(1, 4), 0);
    for token in tokens(7, 60) {
        crate::YIELDS.set(0);
        shared.append(id, TokenList::text(&[token])).unwrap();
        ids.push(token);
        yields = yields.max(crate::YIELDS.get());
        world.check("a token more");
    }
    assert!(yields > 1, "the list was never moved in portions");
    shared.turn().publish(id, ids.len()).unwrap();
    assert!(has(shared, id, &ids));
}
