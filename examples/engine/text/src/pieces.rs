//! The bytes of each token. The crate's decoders give texts, in which a token that is a part of a
//! character has become U+FFFD; a stream has to put the parts together.
use std::collections::HashMap;

use tokenizers::Tokenizer;

/// Ids, far more than any model has: there is a place for each.
const MOST: usize = 1 << 24;

pub struct Pieces {
    bytes: Vec<u8>,
    /// Where the piece of each id ends; the one before ends where it begins.
    ends: Vec<usize>,
    /// What stands for the special ones, which have no piece.
    special: HashMap<u32, String>,
}

/// How bytes are spelled in a vocabulary.
enum Spelling {
    /// Each byte is a character, as GPT-2 has it.
    ByteLevel(HashMap<char, u8>),
    /// A space is U+2581; what has no token is spelled `<0x0A>`.
    ByteFallback,
}

impl Spelling {
    fn of(tokenizer: &Tokenizer) -> Result<Self, String> {
        let decoder = serde_json::to_string(&tokenizer.get_decoder()).map_err(|e| e.to_string())?;
        if decoder.contains("\"ByteLevel\"") {
            return Ok(Self::ByteLevel(byte_characters()));
        }
        if decoder.contains("\"ByteFallback\"") {
            return Ok(Self::ByteFallback);
        }
        Err(format!("its decoder is neither ByteLevel nor ByteFallback: {decoder}"))
    }

    fn bytes(&self, token: &str) -> Vec<u8> {
        match self {
            Self::ByteLevel(bytes) => {
                let spelled = token.chars().map(|c| bytes.get(&c).copied()).collect();
                Option::unwrap_or_else(spelled, || token.into())
            }
            Self::ByteFallback => {
                let hex = token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
                match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
                    Some(byte) => vec![byte],
                    None => token.replace('\u{2581}', " ").into(),
                }
            }
        }
    }
}

/// Printable bytes of Latin-1 are themselves; the others follow from U+0100 on.
fn byte_characters() -> HashMap<char, u8> {
    let is_itself = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let others = (0..=u8::MAX).filter(|byte| !is_itself(byte));
    let shifted = others.zip('\u{100}'..).map(|(byte, character)| (character, byte));
    (0..=u8::MAX).filter(is_itself).map(|byte| (char::from(byte), byte)).chain(shifted).collect()
}

impl Pieces {
    pub fn of(tokenizer: &Tokenizer) -> Result<Self, String> {
        let spelling = Spelling::of(tokenizer)?;
        let added = tokenizer.get_added_tokens_decoder();
        let vocabulary = tokenizer.get_vocab(true);
        let count = vocabulary.values().max().map_or(0, |last| *last as usize + 1);
        if count > MOST {
            return Err(format!("it has the id {}, and no model has more than {MOST}", count - 1));
        }
        let mut tokens = vec![""; count];
        for (token, id) in &vocabulary {
            tokens[*id as usize] = token;
        }
        let special = added.iter().filter(|(_, token)| token.special);
        let mut pieces = Self {
            bytes: Vec::new(),
            ends: Vec::with_capacity(count),
            special: special.map(|(id, token)| (*id, token.content.clone())).collect(),
        };
        for (id, token) in (0..).zip(tokens) {
            match added.get(&id) {
                None => pieces.bytes.extend(spelling.bytes(token)),
                Some(added) if !added.special => pieces.bytes.extend(added.content.as_bytes()),
                Some(_) => {}
            }
            pieces.ends.push(pieces.bytes.len());
        }
        Ok(pieces)
    }

    pub fn get(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let Some(end) = self.ends.get(id) else { return &[] };
        let begin = if id == 0 { 0 } else { self.ends[id - 1] };
        &self.bytes[begin..*end]
    }

    pub fn special(&self, id: u32) -> &str {
        self.special.get(&id).map_or("", String::as_str)
    }
}
