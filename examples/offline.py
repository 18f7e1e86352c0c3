"""Generate offline, with and without speculation: the same text, in fewer steps.

python examples/offline.py
"""

from specserve import LLM, SamplingParams

PROMPT = """Copy this list and add one line:
- the red house stands by the river
- the blue house stands by the river
- the green house stands by the river
"""


def main() -> None:
    params = SamplingParams(temperature=0, max_tokens=48)
    plain = LLM("smollm2-135m").generate(PROMPT, params)[0].outputs[0]

    speculation = {
        "method": "ngram",
        "num_speculative_tokens": 4,
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 4,
    }
    llm = LLM("smollm2-135m", speculative_config=speculation)
    spec = llm.generate(PROMPT, params)[0].outputs[0]

    print(spec.text)
    print("same tokens:", spec.token_ids == plain.token_ids)
    print(f"tokens per verification: {spec.spec_decode_metrics.mean_acceptance_length:.2f}")


if __name__ == "__main__":
    main()
