//! A model's files that have to do with text.
use std::path::Path;

use tokenizers::Tokenizer;

use crate::chat::ChatTemplate;
use crate::pieces::Pieces;

pub struct Text {
    tokenizer: Tokenizer,
    pieces: Pieces,
    chat: Option<ChatTemplate>,
}

impl Text {
    pub fn open(folder: &Path) -> Result<Self, String> {
        let path = folder.join("tokenizer.json");
        let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let mut tokenizer = Tokenizer::from_file(&path).map_err(|error| wrong(&error))?;
        // Whoever trained the model may have had texts cut and filled up. Prompts are taken as they
        // are, as Hugging Face's libraries do it.
        tokenizer.with_truncation(None).map_err(|error| wrong(&error))?;
        tokenizer.with_padding(None);
        let pieces = Pieces::of(&tokenizer).map_err(|error| wrong(&error))?;
        Ok(Self { tokenizer, pieces, chat: ChatTemplate::find(folder)? })
    }

    /// `begins`: with the tokens that the model wants around a whole text. Empty when the
    /// vocabulary cannot spell it.
    pub fn encode(&self, text: &str, begins: bool) -> Vec<u32> {
        // Offsets in the text are for those who point into it.
        let encoded = self.tokenizer.encode_fast(text, begins);
        encoded.map(|encoded| encoded.get_ids().to_vec()).unwrap_or_default()
    }

    pub fn piece(&self, id: u32) -> &[u8] {
        self.pieces.get(id)
    }

    /// The name of a special token; empty for others.
    pub fn special(&self, id: u32) -> &str {
        self.pieces.special(id)
    }

    pub fn chat(&self, messages: &str) -> Result<String, String> {
        let template = self.chat.as_ref().ok_or("the model has no chat template")?;
        template.render(messages)
    }
}
