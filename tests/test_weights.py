"""Real checkpoints: layouts, precisions, damage; and the fit of the single-head theory."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")

import onehead  # noqa: E402
from derive import ProblemError  # noqa: E402
from numerics.bulk_fit import fit_bulk  # noqa: E402
from validate.checkpoint import Layout, read_heads  # noqa: E402
from validate.heads import head_spectrum  # noqa: E402

D, HEADS, SIZE = 24, 3, 8


def weights(seed, rows):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, D, generator=generator)


QUERY, KEY, VALUE = (weights(seed, HEADS * SIZE) for seed in range(3))


def expected(query=QUERY, key=KEY):
    """W_Q W_K' of each head from the definition."""
    parts = zip(query.double().split(SIZE), key.double().split(SIZE), strict=True)
    return [(q.T @ k).numpy() for q, k in parts]


def maps(path, **layout):
    return [one.query @ one.key.T for one in read_heads(path, Layout(**({"heads": HEADS} | layout)))]


def saved(tmp_path, tensors, name="model.safetensors"):
    path = tmp_path / name
    if path.suffix == ".safetensors":
        safetensors.save_file({k: v.contiguous() for k, v in tensors.items()}, path)
    else:
        torch.save(tensors, path)
    return path


SEPARATE = {"h.0.attn.q_proj.weight": QUERY, "h.0.attn.k_proj.weight": KEY}
PER_HEAD = torch.cat(
    [x for triple in zip(*(m.split(SIZE) for m in (QUERY, KEY, VALUE)), strict=True) for x in triple]
)
LAYOUTS = {
    "separate": (SEPARATE, {}),
    "bert": (
        {"layer.0.attention.self.query.weight": QUERY, "layer.0.attention.self.key.weight": KEY},
        {},
    ),
    "fused": ({"blocks.0.attn.qkv.weight": torch.cat([QUERY, KEY, VALUE])}, {}),
    "torch's own": ({"layers.0.self_attn.in_proj_weight": torch.cat([QUERY, KEY, VALUE])}, {}),
    "inputs first": ({"h.0.attn.c_attn.weight": torch.cat([QUERY, KEY, VALUE]).T}, {}),
    "head by head": ({"l.0.query_key_value.weight": PER_HEAD}, {"per_head": True}),
    "transposed": ({k: v.T for k, v in SEPARATE.items()}, {"transposed": True}),
    "own names": ({"left0": QUERY, "right0": KEY}, {"query": "left(?=0)", "key": "right(?=0)"}),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("ending", [".safetensors", ".pt"])
def test_layouts(tmp_path, name, ending):
    tensors, layout = LAYOUTS[name]
    found = maps(saved(tmp_path, tensors, "model" + ending), **layout)
    if name == "own names":
        assert len(found) == HEADS
    for mine, theirs in zip(found, expected(), strict=True):
        assert np.allclose(mine, theirs, atol=1e-12)


def test_shared_key_heads(tmp_path):
    shared = weights(5, SIZE)
    path = saved(tmp_path, {"l.0.q_proj.weight": QUERY, "l.0.k_proj.weight": shared})
    theirs = expected(QUERY, shared.repeat(HEADS, 1))
    assert np.allclose(maps(path, key_heads=1), theirs)
    fused = saved(tmp_path, {"l.0.qkv_proj.weight": torch.cat([QUERY, shared, shared])}, "f.pt")
    assert np.allclose(maps(fused, key_heads=1), theirs)


@pytest.mark.parametrize(("precision", "near"), [(torch.float16, 1e-3), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize("ending", [".safetensors", ".pt"])
def test_half_precision(tmp_path, precision, near, ending):
    path = saved(tmp_path, {k: v.to(precision) for k, v in SEPARATE.items()}, "half" + ending)
    found = maps(path)
    rounded = expected(QUERY.to(precision), KEY.to(precision))
    assert np.allclose(found, rounded, atol=1e-12)  # exactly the stored numbers
    assert np.allclose(found, expected(), atol=40 * near)


def test_layers_in_order_and_nested(tmp_path):
    tensors = {f"layer.{i}.{n}.weight": weights(i, 24) for i in (10, 2, 1) for n in ("query", "key")}
    path = saved(tmp_path, {"state_dict": tensors}, "nested.pth")
    layers = [one.layer for one in read_heads(path, Layout(heads=1))]
    assert layers == ["1", "2", "10"]
    assert [one.layer for one in read_heads(path, Layout(heads=1), "10")] == ["10"]


def test_heads_from_the_config(tmp_path):
    path = saved(tmp_path, SEPARATE)
    with pytest.raises(ProblemError, match="state --heads"):
        maps(path, heads=None)
    (tmp_path / "config.json").write_text(json.dumps({"num_attention_heads": HEADS}))
    assert len(maps(path, heads=None)) == HEADS


NAN = torch.full((24, D), float("nan"))
BAD = {
    "shapes": ({"q.weight": QUERY, "k.weight": weights(0, 20)}, {}, "do not divide"),
    "inputs": ({"q.weight": QUERY, "k.weight": torch.ones(24, 20)}, {}, "do not fit"),
    "heads": (SEPARATE, {"heads": 5}, "do not divide"),
    "no heads": (SEPARATE, {"heads": 0}, "0 query heads"),
    "fused": ({"x.qkv.weight": torch.ones(71, D)}, {}, "does not divide"),
    "missing": ({"x.weight": QUERY}, {}, "no query and key"),
    "no key": ({"a.q.weight": QUERY, "b.k.weight": KEY}, {}, "no key weight"),
    "nan": ({"q.weight": NAN, "k.weight": KEY}, {}, "not finite"),
    "integers": ({"q.weight": QUERY.to(torch.int8), "k.weight": KEY}, {}, "no real numbers"),
    "vector": ({"q.weight": torch.ones(24), "k.weight": KEY}, {}, "must be a matrix"),
    "pattern": (SEPARATE, {"query": "("}, "no regular expression"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_contents(tmp_path, name):
    tensors, layout, words = BAD[name]
    with pytest.raises(ProblemError, match=words):
        maps(saved(tmp_path, tensors), **layout)


@pytest.mark.parametrize("ending", [".safetensors", ".pt", ".bin"])
def test_damaged_files(tmp_path, ending):
    whole = saved(tmp_path, SEPARATE, "whole" + ending).read_bytes()
    for number, content in enumerate((b"", b"\0" * 7, b"not a checkpoint", whole[: len(whole) // 2])):
        path = tmp_path / f"{number}{ending}"
        path.write_bytes(content)
        with pytest.raises(ProblemError, match=r"is empty|is no whole"):
            maps(path)
    with pytest.raises(ProblemError, match="cannot read"):
        maps(tmp_path / ("absent" + ending))
    with pytest.raises(ProblemError, match="cannot read"):
        maps(tmp_path)


def test_a_pickle_with_code_is_refused(tmp_path):
    path = tmp_path / "evil.pt"
    torch.save({"q.weight": ProblemError}, path)
    with pytest.raises(ProblemError, match="plain tensors"):
        maps(path)
    torch.save([1, 2], path)
    with pytest.raises(ProblemError, match="no named tensors"):
        maps(path)


def test_the_fit_recovers_a_sampled_student():
    """S = (S0 + tau G - theta)_+ cut at a width: a = tau, t = theta/tau, three modes and overlaps."""
    d, p, tau, theta = 600, 80, 1.7, 1.1
    strengths = tau * np.array([3.0, 2.0, 1.6])
    S0 = np.zeros(d)
    S0[:3] = strengths
    found, overlaps, counts = [], [], []
    for seed in range(6):
        G = np.random.default_rng(seed).normal(size=(d, d))
        values, vectors = np.linalg.eigh(np.diag(S0) + tau * (G + G.T) / (2 * d) ** 0.5)
        fit = fit_bulk(values[::-1][:p] - theta, d)
        assert fit.accepted
        counts.append(len(fit.outliers))
        modes = fit.outliers[:3]
        found.append([fit.scale, fit.shift, *(tau * o.strength for o in modes)])
        overlaps.append([[o.overlap for o in modes], [vectors[k, -1 - k] ** 2 for k in range(3)]])
    # All modes, and now and then an edge that sticks out (1 % of pure noise, more as it is fitted).
    assert min(counts) == 3
    assert sum(counts) <= 3 * 6 + 2
    mean, error = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / 6**0.5
    truth = np.array([tau, theta / tau, *strengths])
    assert np.all(np.abs(mean - truth) < 5 * error + 0.03 * truth)
    assert np.allclose(*np.mean(overlaps, axis=0), atol=0.05)


def test_pure_noise_has_no_outliers():
    counts = []
    for seed in range(20):
        G = np.random.default_rng(seed).normal(size=(200, 200))
        values = np.linalg.eigvalsh((G + G.T) / 20)[::-1]
        counts.append(len(fit_bulk(values[:40], 200).outliers))
    assert sum(counts) <= 3


def test_the_bulk_has_mass_one():
    G = np.random.default_rng(0).normal(size=(200, 200))
    fit = fit_bulk(np.linalg.eigvalsh((G + G.T) / 20)[::-1][:40], 200)
    x = np.linspace(fit.floor, fit.edge, 20_001)
    assert np.trapezoid(fit.density(x), x) == pytest.approx(1, abs=1e-3)


def test_too_few_values(tmp_path):
    path = saved(tmp_path, {"q.weight": weights(0, 4), "k.weight": weights(1, 4)})
    with pytest.raises(ProblemError, match="at least 8"):
        head_spectrum(next(read_heads(path, Layout(heads=1))))
    zero = saved(tmp_path, {"q.weight": torch.zeros(12, D), "k.weight": weights(1, 12)}, "zero.pt")
    with pytest.raises(ProblemError, match="at least 8"):
        head_spectrum(next(read_heads(zero, Layout(heads=1))))


def test_numbers_of_a_head(tmp_path):
    path = saved(tmp_path, {"q.weight": weights(0, 16), "k.weight": weights(1, 16)})
    head = head_spectrum(next(read_heads(path, Layout(heads=1))))
    dense = np.linalg.svd(next(iter(maps(path, heads=1))), compute_uv=False)
    assert np.allclose(head.values, dense[:16])
    assert head.stable_rank == pytest.approx((dense**2).sum() / dense[0] ** 2)
    assert head.tail == pytest.approx(np.mean(np.log(dense[:5] / dense[5])))


def test_command_line(tmp_path, monkeypatch, capsys):
    tensors = {
        f"layer.{i}.{n}.weight": weights(10 * i + j, 32)
        for i in range(2)
        for j, n in enumerate(("query", "key"))
    }
    path, picture = saved(tmp_path, tensors), tmp_path / "heads.png"

    def run(*words):
        monkeypatch.setattr("sys.argv", ["onehead", "weights", str(path), *words])
        with pytest.raises(SystemExit) as stop:
            onehead.main()
        return stop.value.code, capsys.readouterr()

    code, out = run("--heads", "2", "--format", "json", "--plot", str(picture))
    rows = json.loads(out.out)
    assert (code, len(rows)) == (0, 4)
    assert len(rows[0]["singular_values"]) == 16
    assert picture.stat().st_size > 10_000
    assert "tied head" in run("--heads", "2", "--layer", "1")[1].out
    for words in (
        ["--heads", "7"],
        [],
        ["--heads", "2", "--layer", "9"],
        ["--heads", "2", "--head", "5"],
    ):
        code, out = run(*words)
        assert code == 2
        assert len(out.err.strip().splitlines()) == 1
