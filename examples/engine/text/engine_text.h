/* A model's tokenizer and chat template, from the files that lie beside its weights. The functions
 * may be called from several threads, all but engine_text_close(). */
#ifndef ENGINE_TEXT_H
#define ENGINE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct engine_text engine_text;

/* How results come back: called at most once, during the call that it was handed to. */
typedef void (*engine_text_on_bytes)(void *to, const char *bytes, size_t count);
typedef void (*engine_text_on_ids)(void *to, const uint32_t *ids, size_t count);

/* Reads tokenizer.json of a folder, and the chat template where there is one: chat_template.jinja,
 * or in tokenizer_config.json. NULL when a file is wrong; `on_error` is told why. */
engine_text *engine_text_open(const char *folder, engine_text_on_bytes on_error, void *to);
void engine_text_close(engine_text *text);

/* The tokens of a text in UTF-8; what is no UTF-8 becomes U+FFFD. With `begins` the tokens that the
 * model wants around a whole text are added. None when the vocabulary cannot spell it. */
void engine_text_encode(const engine_text *text, const char *bytes, size_t count, bool begins,
                        engine_text_on_ids on_ids, void *to);

/* The bytes of a token, which may be a part of a character: none for special tokens and for ids
 * that are no token. Good until engine_text_close(). */
const char *engine_text_token(const engine_text *text, uint32_t id, size_t *count);

/* The name of a special token, which is no text: none for other ids. Good until
 * engine_text_close(). */
const char *engine_text_special(const engine_text *text, uint32_t id, size_t *count);

/* The prompt for what the assistant says next. `messages` is a JSON array of {"role", "content"}.
 * Returns true with the prompt, false with the reason why there is none. */
bool engine_text_chat(const engine_text *text, const char *messages, size_t count,
                      engine_text_on_bytes on_result, void *to);

#ifdef __cplusplus
}
#endif

#endif /* ENGINE_TEXT_H */
