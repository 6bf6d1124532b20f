// An answer of the model, as it comes.

const longestAnswer = 64;

// The data of each server-sent event of a response.
async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ''; ;) {
    const {value, done} = await reader.read();
    if (done) return;
    text += value;
    const events = text.split('\n\n');
    text = events.pop();
    for (const event of events) if (event.startsWith('data: ')) yield event.slice(6);
  }
}

async function reasonOf(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `the server answered ${response.status}`;
  }
}

// Asks for the next message. `on.prompt` hears what the prompt is and how much of it was found,
// `on.text` each piece, `on.cut` that it was to become too long. Throws what went wrong.
async function ask(messages, signal, on) {
  const body = {
    messages,
    max_tokens: longestAnswer,
    temperature: 0,
    stream: true,
    return_token_ids: true,
  };
  const sent = performance.now();
  const response = await fetch('/v1/chat/completions', {
    method: 'POST',
    body: JSON.stringify(body),
    signal,
  });
  if (!response.ok) throw new Error(await reasonOf(response));
  for await (const data of eventsOf(response)) {
    if (data === '[DONE]') return;
    const event = JSON.parse(data);
    if (event.error) throw new Error(event.error.message);
    if (event.prompt_token_ids)
      on.prompt({
        tokens: event.prompt_token_ids,
        found: event.cached_tokens,
        seconds: (performance.now() - sent) / 1000,
      });
    for (const choice of event.choices) {
      if (choice.delta.content) on.text(choice.delta.content);
      if (choice.finish_reason === 'length') on.cut();
    }
  }
}
