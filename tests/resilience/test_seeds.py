"""Seeds by time: found where they certainly are, not where one may be given."""

from __future__ import annotations

import ast

import pytest

from syntony.torch import loops, seeds


@pytest.mark.parametrize(
    "source",
    [
        "torch.manual_seed(int(time.time()))",
        "np.random.seed(time.time_ns() % 2**32)",
        "random.seed(os.getpid())",
        "random.seed()",
        "torch.seed()",
        "rng = np.random.default_rng()",
        "rng = default_rng()",
        "set_seed(seed=int(datetime.datetime.now().timestamp()))",
        "s = int(time.time())\ntorch.manual_seed(s + rank)",
        "g = torch.Generator().manual_seed(secrets.randbits(32))",
    ],
)
def test_a_seed_by_chance_is_named_with_its_line(source: str) -> None:
    (found,) = seeds.by_chance(ast.parse(f"import x\n{source}"))
    assert found.startswith(f"line {source.count(chr(10)) + 2}: ")
    assert found.endswith("a replacement would have another seed")
    assert loops.transform(source, "train.py").unsupported


@pytest.mark.parametrize(
    "source",
    [
        "torch.manual_seed(7 + rank)",
        "torch.manual_seed(args.seed or int(time.time()))",
        "s = args.seed if args.seed is not None else int(time.time())\ntorch.manual_seed(s)",
        "began = time.time()\nrandom.seed(5)",
        "env.seed()",
        "rng = np.random.default_rng(3)",
        "print(time.time())",
        "(lambda: 0)()",
    ],
)
def test_what_is_no_seed_by_chance(source: str) -> None:
    assert seeds.by_chance(ast.parse(source)) == []
