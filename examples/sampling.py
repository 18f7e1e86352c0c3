"""Sampling parameters together with speculation: seed, penalties, bias, several choices, log-probabilities.

python examples/sampling.py
"""

from specserve import LLM, SamplingParams


def main() -> None:
    llm = LLM("smollm2-135m", speculative_config={"method": "ngram", "num_speculative_tokens": 3})
    messages = [{"role": "user", "content": "Name an animal that lives in the sea."}]

    params = SamplingParams(temperature=0.8, min_p=0.05, frequency_penalty=0.5, seed=7, n=2, max_tokens=24)
    first, second = llm.chat(messages, params)[0].outputs
    again = llm.chat(messages, params)[0].outputs[0]
    print("choice 0:", first.text.strip())
    print("choice 1:", second.text.strip())
    print("same seed, same text:", again.text == first.text)

    [no] = llm.chat(messages, SamplingParams(temperature=0, max_tokens=1, logprobs=3))
    banned = no.outputs[0].token_ids[0]
    [yes] = llm.chat(messages, SamplingParams(temperature=0, max_tokens=1, logit_bias={banned: -100}))
    print("most likely first tokens:", [entry.decoded_token for entry in no.outputs[0].logprobs[0].values()])
    print("with the best one banned:", repr(yes.outputs[0].text))


if __name__ == "__main__":
    main()
