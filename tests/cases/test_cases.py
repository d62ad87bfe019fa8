"""Servers, files and pipelines of public reports: every case is answered, and those that are not right are named."""

import pytest

from tests.recorded.cases import Outcome, outcomes

# What is wrong or partly right today, with the reason; the list may only shrink.
KNOWN: dict[str, str] = {
    "serving/robotmunki": "this checkpoint keeps attention in bf16, which only its config says",
    "diffusion/flux-quantized torchao int8": "run.quantization = int8 is bitsandbytes', which keeps T5's wo in fp32",
    "serving/club-3090-104": "the drafter and the images' pass are not counted: 10.8 % too much",
    "serving/club-3090-652": "the images' pass is not counted, and the share is not in the report",
    "serving/spark-vllm-396": "page cache counts against the share of a DGX Spark",
    "serving/vllm-14447": "graphs of V0 over sixteen ranks are taken for twice what they are",
    "serving/vllm-2031-llama2-70b": "vLLM 0.2.4 counted what its loader left in the allocator's cache",
    "serving/vllm-21348": "LMCache's connector takes memory that is not known",
    "serving/vllm-28228": "a pass of 64,000 tokens through linear attention",
    "serving/vllm-6746": "this checkpoint keeps attention in bf16, which only its config says",
}


def name_of(one: Outcome) -> str:
    return f"{one.kind}/{one.name}"


@pytest.fixture(scope="module")
def found() -> list[Outcome]:
    return outcomes(("serving", "llamacpp", "diffusion"))


def test_each_case_is_right_or_known(found: list[Outcome]) -> None:
    off = {name_of(one): (one.verdict, one.figures, one.answer[:300]) for one in found if one.verdict != "right"}
    assert {name: off[name] for name in off if name not in KNOWN} == {}
    assert sorted(off) == sorted(KNOWN), "remove what is right by now from the list"


def test_the_cases_are_enough(found: list[Outcome]) -> None:
    assert len(found) >= 80
    assert sum(one.verdict == "right" for one in found) >= 0.85 * len(found)
