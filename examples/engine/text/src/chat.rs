//! The chat template of a model, as Hugging Face's libraries render it.
use std::fs;
use std::path::Path;

use minijinja::{Environment, Error, ErrorKind, context};
use serde_json::Value;

use crate::date;

const NAME: &str = "chat";

pub struct ChatTemplate {
    environment: Environment<'static>,
    bos_token: Option<String>,
    eos_token: Option<String>,
}

/// A file that need not be there.
fn read(path: &Path) -> Result<Option<String>, String> {
    if !path.exists() {
        return Ok(None);
    }
    fs::read_to_string(path).map(Some).map_err(|error| format!("{}: {error}", path.display()))
}

/// A special token: a text, or an object that has it.
fn token(config: &Value, name: &str) -> Option<String> {
    let token = &config[name];
    token.as_str().or(token["content"].as_str()).map(str::to_owned)
}

/// The template, or of several that have names the default.
fn template(config: &Value) -> Option<String> {
    let template = &config["chat_template"];
    let named = template.as_array().and_then(|all| all.iter().find(|t| t["name"] == "default"));
    named.map_or(template, |default| &default["template"]).as_str().map(str::to_owned)
}

/// A token that the model does not have is undefined: none would be printed as "None".
fn or_undefined(token: Option<&str>) -> minijinja::Value {
    token.map_or(minijinja::Value::UNDEFINED, minijinja::Value::from)
}

impl ChatTemplate {
    /// None when the folder has no template.
    pub fn find(folder: &Path) -> Result<Option<Self>, String> {
        let path = folder.join("tokenizer_config.json");
        let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let config = match read(&path)? {
            Some(text) => serde_json::from_str(&text).map_err(|error| wrong(&error))?,
            None => Value::Null,
        };
        let own = read(&folder.join("chat_template.jinja"))?;
        let Some(source) = own.or_else(|| template(&config)) else { return Ok(None) };

        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |reason: String| -> Result<String, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, reason))
        });
        environment.add_function("strftime_now", |format: String| -> Result<String, Error> {
            date::now(&format).map_err(|reason| Error::new(ErrorKind::InvalidOperation, reason))
        });
        environment
            .add_template_owned(NAME, source)
            .map_err(|error| format!("the chat template: {error}"))?;
        let (bos_token, eos_token) = (token(&config, "bos_token"), token(&config, "eos_token"));
        Ok(Some(Self { environment, bos_token, eos_token }))
    }

    /// The prompt for the next message of the assistant.
    pub fn render(&self, messages: &str) -> Result<String, String> {
        let messages: Value = serde_json::from_str(messages).map_err(|error| error.to_string())?;
        let template = self.environment.get_template(NAME).map_err(|error| error.to_string())?;
        let values = context! {
            messages => minijinja::Value::from_serialize(messages),
            tools => (),
            documents => (),
            add_generation_prompt => true,
            bos_token => or_undefined(self.bos_token.as_deref()),
            eos_token => or_undefined(self.eos_token.as_deref()),
        };
        template.render(values).map_err(|error| match error.detail() {
            Some(detail) => detail.to_owned(),
            None => error.to_string(),
        })
    }
}
