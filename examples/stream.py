"""Stream a chat from a running server with the unmodified `openai` client.

scripts/serve &
python examples/stream.py
"""

from openai import OpenAI


def main(base_url: str = "http://127.0.0.1:8000/v1") -> None:
    client = OpenAI(base_url=base_url, api_key="unused")
    stream = client.chat.completions.create(
        model="smollm2-135m",
        messages=[{"role": "user", "content": "Write a haiku about rain."}],
        max_tokens=48,
        stream=True,
        stream_options={"include_usage": True},
    )
    for chunk in stream:  # with speculation a chunk may hold several tokens
        for choice in chunk.choices:
            print(choice.delta.content or "", end="", flush=True)
        if chunk.usage:
            print(f"\n[{chunk.usage.completion_tokens} tokens]")


if __name__ == "__main__":
    main()
