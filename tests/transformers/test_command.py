"""`simstudy inspect`: from files to a data set and a page."""

import json
import re

import numpy as np
import pytest
import xarray as xr
from pages import dom, needs_browser
from typer.testing import CliRunner

import simstudy
from simstudy.commands import app
from simstudy.errors import UserError
from simstudy.report.heads import compared
from simstudy.report.labels import with_error

CONFIG = {"model_type": "gpt2", "n_layer": 2, "n_head": 3, "n_embd": 6}


@pytest.fixture
def files(tmp_path):
    """Weights, configuration and states of a small model whose states are drawn at random."""
    rng = np.random.default_rng(0)
    arrays = {}
    for layer in range(2):
        arrays[f"h.{layer}.attn.c_attn.weight"] = rng.standard_normal((6, 18))
        arrays[f"h.{layer}.attn.c_attn.bias"] = rng.standard_normal(18)
        arrays[f"h.{layer}.attn.c_proj.weight"] = rng.standard_normal((6, 6))
    np.savez(tmp_path / "<b>model.npz", **arrays)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    mask = np.ones((6, 9), bool)
    mask[2, 5:] = False
    np.savez(tmp_path / "states.npz", states=rng.standard_normal((2, 6, 9, 6)), mask=mask)
    return tmp_path


def inspect(folder, *more):
    options = "--config", folder / "config.json", "--states", folder / "states.npz", "--output", folder / "out", *more
    return CliRunner().invoke(app, ["inspect", str(folder / "<b>model.npz"), *map(str, options)])


def test_inspect__writes_what_python_gives_and_a_page(files):
    result = inspect(files, "--seed", 5)
    assert result.exit_code == 0, result.output
    with np.load(files / "states.npz") as given:
        heads = simstudy.read_heads(files / "<b>model.npz", files / "config.json")
        expected = simstudy.inspect_heads(heads, given["states"], given["mask"], seed=5)
    with xr.open_dataset(files / "out" / "heads.nc") as found:
        xr.testing.assert_identical(found.load(), expected)
    own = expected.sel(source="observed")
    observed = own.weight_correlation.values[:, *np.triu_indices(3, 1)]
    said = with_error(observed.mean(), float(own.mean_correlation_mcse))
    assert f"correlate at {said} on average" in result.output
    worth = sorted(zip(own.effective_heads.values, own.effective_heads_mcse.values, strict=True))
    assert f"is worth {with_error(*worth[0])} to {with_error(*worth[-1])} of its 3 heads (± one" in result.output
    alike = f"{with_error(observed.max(), float(expected.pair_correlation_mcse[0]))}"
    assert f"at {alike}." in result.output
    layer, first, second = (int(expected[f"pair_{name}"][0]) for name in ("layer", "head_i", "head_j"))
    assert f"alike    layer {layer}, heads {first} and {second}: {alike}\n" in result.output
    assert result.output.count("alike    ") == 5
    size = expected.output_size[layer].values / expected.output_size[layer].values.mean()
    assert result.output.count("Likeness does not say that a head is unimportant") == 1
    page = (files / "out" / "heads.html").read_text()
    assert result.output.splitlines()[0] in page
    said = compared(expected, "angles")
    assert said in page and said in result.output and "that of a constant" in said
    assert "&lt;b&gt;model" in page and "<b>model" not in page
    assert page.count(" and ".join(map(str, (first, second))) + "</td>") and f">{alike}</td>" in page
    assert f">{size[first]:.2g} and {size[second]:.2g}</td>" in page
    assert page.count("± one error") == 1 and "contributions</th>" in page
    assert "2 layers of 3 heads" in page and page.count("exact, Gaussian logits") == 3
    assert "Blank: leading order: the variance of logits of 3 of 3 heads" in page


def test_page__maps_the_heads_of_each_layer(files):
    inspect(files, "--seed", 5)
    with xr.open_dataset(files / "out" / "heads.nc") as found:
        correlation = found.weight_correlation.load()
    page = (files / "out" / "heads.html").read_text()
    data = json.loads(page.split('id="pairs">')[1].split("</script>")[0])
    assert [name for name, _ in data["predictions"]] == ["exact", "half", "angles", "leading", "redrawn"]
    for source, layers in data["values"].items():
        expected = correlation.sel(source=source).values[:, [0, 0, 1], [1, 2, 2]]
        np.testing.assert_allclose(np.array(layers, float), expected, atol=6e-4)


@needs_browser
def test_browser__draws_the_layer_that_the_slider_stands_at(files, tmp_path):
    """The reader's hand is a script, which the policy of the page keeps out."""
    inspect(files, "--seed", 5)
    page = files / "out" / "heads.html"
    with xr.open_dataset(files / "out" / "heads.nc") as found:
        values = found.weight_correlation.sel(layer=1, head_i=2, head_j=1)
        observed, half = (round(values.sel(source=source).item(), 3) for source in ("observed", "half"))
    hand = """<script>const [slider, source] = document.querySelectorAll("#layers input, #layers select");
      slider.value = 1; source.value = "half"; source.dispatchEvent(new Event("input"));
      document.querySelector('[data-pair="2 1"]').dispatchEvent(new Event("pointerenter"));</script></body>"""
    text = re.sub(r"<meta http-equiv.*?>", "", page.read_text()).replace("</body>", hand)
    page.write_text(text)
    found = dom(page.as_uri(), tmp_path)
    told = found.split('id="paired"')[1].split(">")[1].split("<")[0]
    assert told == (f"layer 1, heads 2 and 1: observed {observed:.2f}, predicted {half:.2f}, "
                    f"difference {half - observed:.2f}")  # fmt: skip
    assert found.count("data-pair=") - text.count("data-pair=") == 3 * 6


@pytest.mark.parametrize("n_heads", [1, 4])
def test_queries_and_keys_alone__are_enough(n_heads, tmp_path):
    rng = np.random.default_rng(0)
    query, key = rng.standard_normal((2, n_heads, 6, 2))
    np.savez(tmp_path / "own.npz", W_Q=query, W_K=key)
    np.save(tmp_path / "states.npy", rng.standard_normal((1, 6, 9, 6)))
    options = map(str, (tmp_path / "own.npz", "--states", tmp_path / "states.npy", "--output", tmp_path / "out"))
    result = CliRunner().invoke(app, ["inspect", *options])
    assert result.exit_code == 0, result.output
    with xr.open_dataset(tmp_path / "out" / "heads.nc") as found:
        assert found.sizes["pair"] == n_heads * (n_heads - 1) / 2
        assert not [name for name in found if "contribution" in name]
    page = (tmp_path / "out" / "heads.html").read_text()
    assert "contributions" not in page and ("most alike" in page) == (n_heads > 1)
    header, row = (
        (page.split(f"<{part}>")[3].split(f"</{part}>")[0] for part in ("thead", "tbody")) if n_heads > 1 else ("", "")
    )
    assert header.count("<th") == row.count("<td")


@pytest.mark.parametrize(
    "arrays, said",
    [
        ({"hidden": np.ones(3)}, 'holds hidden; give "states", if needed "mask"'),
        (
            {"states": np.ones((2, 6, 9, 5))},
            "feature = 6), 2 or more, as query weights (layer, head, feature, dimension) have shape",
        ),
        ({"states": np.ones((2, 3, 9, 6))}, "3 sequences, 1 of them judged; give at least 4"),
    ],
)
def test_states_that_do_not_fit__are_refused_and_nothing_is_written(arrays, said, files):
    np.savez(files / "states.npz", **arrays)
    result = inspect(files)
    assert isinstance(result.exception, UserError) and said in str(result.exception)
    assert "states.npz" in str(result.exception) and not (files / "out").exists()


@pytest.mark.parametrize("gain, said", [(0.1, "better than"), (-0.1, "lost to"), (0.03, "not told apart from")])
def test_a_theory_that_lost_to_a_constant__is_called_so(gain, said):
    found = xr.Dataset(
        {"prediction_gain": ("source", [gain]), "prediction_gain_mcse": ("source", [0.02])},
        {"source": ["exact"]}, {"n_judged": 6},
    )  # fmt: skip
    assert f"Exact, Gaussian logits: {said} a constant" in compared(found, "exact")
