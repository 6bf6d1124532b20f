"""B11: the official client of OpenAI's API against the reference engine:

    openai_client.py http://HOST:PORT MODEL
"""

import sys

import openai


def refused(kind, code, ask):
    """`ask` is answered with an error of this kind; returns it."""
    try:
        ask()
    except kind as error:
        assert error.type == "invalid_request_error", error.type
        assert error.code == code, error.code
        return error
    raise AssertionError(f"no {kind.__name__}")


def main() -> None:
    url, model = sys.argv[1:]
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    system = {"role": "system", "content": "You answer in one short sentence. " * 8}
    question = {"role": "user", "content": "What is the capital of France?"}
    asked = {"model": model, "messages": [system, question], "temperature": 0, "max_tokens": 20}

    (served,) = client.models.list().data
    assert served.id == model and client.models.retrieve(model).id == model

    answer = client.chat.completions.create(**asked)
    choice = answer.choices[0]
    text = choice.message.content
    assert choice.message.role == "assistant" and "Paris" in text, text
    assert choice.finish_reason == "stop", "it goes on after its end token"
    assert answer.usage.prompt_tokens > 50 and answer.usage.completion_tokens < 20
    assert answer.usage.prompt_tokens_details.cached_tokens == 0

    stream = client.chat.completions.create(
        **asked, stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == text
    assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == "stop"
    assert len(chunks) > 4, "it came in one piece"
    assert last.choices == [] and last.usage.prompt_tokens == answer.usage.prompt_tokens
    # All but the page of the last token.
    assert last.usage.prompt_tokens_details.cached_tokens >= answer.usage.prompt_tokens - 17

    with client.chat.completions.stream(**asked) as events:
        assert events.get_final_completion().choices[0].message.content == text

    # Each flower is four bytes and several tokens.
    flowers = {"role": "user", "content": "Repeat: 🌻🌷🌹🌻🌷🌹"}
    drawn = {"max_tokens": 40, "temperature": 1, "seed": 3, "n": 2}
    several = {**asked, **drawn, "messages": [flowers]}
    whole = client.chat.completions.create(**several)
    pieces = ["", ""]
    for chunk in client.chat.completions.create(**several, stream=True):
        pieces[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert pieces == [choice.message.content for choice in whole.choices]

    likely = client.chat.completions.create(**asked, logprobs=True, top_logprobs=2).choices[0]
    assert "".join(token.token for token in likely.logprobs.content).startswith(text)
    assert len(likely.logprobs.content[0].top_logprobs) == 2

    cut = client.chat.completions.create(**asked, stop=" Paris").choices[0]
    assert cut.message.content == text[: text.index(" Paris")] and cut.finish_reason == "stop"

    completion = client.completions.create(
        model=model, prompt="One, two, three,", max_tokens=4, temperature=0, echo=True
    )
    assert completion.choices[0].text.startswith("One, two, three, four"), completion
    assert completion.choices[0].finish_reason == "length"

    create = client.chat.completions.create
    error = refused(
        openai.BadRequestError, None, lambda: create(**{**asked, "messages": [{"role": "x"}]})
    )
    assert error.param == "messages"
    error = refused(openai.BadRequestError, None, lambda: create(**{**asked, "temperature": -1}))
    assert error.param == "temperature"
    too_long = [{"role": "user", "content": "word " * 9000}]
    refused(openai.BadRequestError, None, lambda: create(**{**asked, "messages": too_long}))
    refused(openai.NotFoundError, "model_not_found", lambda: create(**{**asked, "model": "gpt-5"}))


if __name__ == "__main__":
    main()
