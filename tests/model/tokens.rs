//! Token lists in the form of the header, and the calls that are about them alone.
use super::abi::{Status, done, sized};
use super::prompt::{Piece, Prompt};
use radixkv::capi::*;
use std::ptr::null;

/// A prompt in the form of the header.
#[derive(Clone, Default)]
pub struct TokenList {
    pub ids: Vec<u32>,
    pub items: Vec<rkv_token_item>,
}

impl TokenList {
    pub fn of(prompt: &Prompt) -> TokenList {
        let mut list = TokenList::default();
        prompt.0.iter().for_each(|&piece| list.push(piece));
        list
    }

    pub fn push(&mut self, piece: Piece) {
        match piece {
            Piece::Text(id, count) => self.ids.extend(id..id + count),
            Piece::Coord(bin) => self.item(RKV_TOKEN_COORD, bin, 0, 0, 0),
            Piece::Size(width, height) => self.item(RKV_TOKEN_SIZE, width, height, 0, 0),
            Piece::Image(content, positions) => {
                self.item(RKV_TOKEN_IMAGE, 0, 0, positions, content);
            }
        }
    }

    fn item(&mut self, kind: u32, bin: u32, height_bin: u32, position_count: u32, content: u8) {
        let token_index = self.ids.len() as u64;
        let digest = [content; 16];
        self.items.push(rkv_token_item {
            token_index,
            kind,
            position_count,
            bin,
            height_bin,
            digest,
        });
        self.ids.push(u32::MAX); // Not read.
    }

    pub fn raw(&self) -> rkv_tokens {
        let items = if self.items.is_empty() { null() } else { self.items.as_ptr() };
        rkv_tokens {
            ids: self.ids.as_ptr(),
            count: self.ids.len(),
            items,
            item_size: size_of::<rkv_token_item>() as u32,
            item_count: self.items.len(),
            ..sized()
        }
    }

    /// Positions, and the regions of the images.
    pub fn measure(&self) -> Result<(usize, Vec<(u64, u64)>), Status> {
        let raw = self.raw();
        let mut positions = usize::MAX;
        // SAFETY: all pointers come from references and slices that outlive the calls.
        done(unsafe { rkv_tokens_position_count(&raw, &mut positions) }, ())?;
        let mut regions = vec![rkv_region { start: 0, end: 0 }; self.items.len() + 1];
        let (into, room) = (regions.as_mut_ptr(), regions.len());
        let mut count = 0;
        // SAFETY: as above.
        done(unsafe { rkv_tokens_regions(&raw, into, room, &mut count) }, ())?;
        regions.truncate(count);
        let regions = regions.iter().map(|region| (region.start, region.end)).collect();
        Ok((positions, regions))
    }

    /// Whether the library builds the same list from the text and the items apart.
    pub fn is_what_the_library_builds(&self) -> Result<bool, Status> {
        let mut text = self.ids.clone();
        let mut apart = self.items.clone();
        for (before, item) in apart.iter_mut().enumerate() {
            let place = item.token_index as usize - before;
            text.remove(place);
            item.token_index = place as u64;
        }
        let prompt = TokenList { ids: text, items: apart };
        let raw = prompt.raw();
        let mut ids = vec![u32::MAX; self.ids.len() + 1];
        let mut items = prompt.items.clone();
        let (into, room, items_into) = (ids.as_mut_ptr(), ids.len(), items.as_mut_ptr());
        let mut count = 0;
        // SAFETY: as above; there is room for every item.
        done(unsafe { rkv_tokens_build(&raw, into, room, items_into, &mut count) }, ())?;
        ids.truncate(count);
        let mut expected = self.ids.clone();
        self.items.iter().for_each(|item| expected[item.token_index as usize] = 0);
        let parts = |item: &rkv_token_item| {
            let bins = (item.bin, item.height_bin);
            (item.token_index, item.kind, item.position_count, bins, item.digest)
        };
        Ok(ids == expected && items.iter().map(parts).eq(self.items.iter().map(parts)))
    }
}
