"""Profiles of simulated machines: naming them, reading a file of one's own, what its faults say."""

import re

import pytest

from grader.simgpu import profiles

OWN = (profiles.CATALOGUE / "T4.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("spec", "count", "name"),
    [
        ("2xT4", 2, "T4"),
        ("T4", 1, "T4"),
        ("4xV100", 4, "V100"),
        ("2xrtx-2080-ti", 2, "RTX2080Ti"),
        (" 8xa100 ", 8, "A100"),
    ],
)
def test_count_and_name(spec, count, name):
    selection = profiles.load(spec)
    assert (selection.count, selection.profile.name) == (count, name)


def test_own_file(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(OWN.replace("name: T4", "name: Mine", 1), encoding="utf-8")
    selection = profiles.load(f"3x{path}")
    assert (selection.count, selection.profile.name) == (3, "Mine")


def test_unknown_name_suggests_the_nearest():
    with pytest.raises(profiles.BadProfile, match=r"named 'V10'; did you mean V100\?.*Known: A100"):
        profiles.load("2xV10")


def test_unlike_anything_lists_the_known_ones():
    with pytest.raises(profiles.BadProfile, match=r"'abacus'; known: A100.*T4") as caught:
        profiles.load("abacus")
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "words"), [("0xT4", "at least one"), ("", "2xT4"), ("2x/no/such.yaml", "is not a file")]
)
def test_unusable_specification(spec, words):
    with pytest.raises(profiles.BadProfile, match=words):
        profiles.load(spec)


def test_faults_come_all_at_once_with_their_lines(tmp_path):
    path = tmp_path / "mine.yaml"
    text = OWN.replace("  name: Tesla T4", "  nmae: Tesla T4")
    text = text.replace("module_us: {value: 80", "module_us: {value: fast")
    path.write_text(text, encoding="utf-8")
    with pytest.raises(profiles.BadProfile) as caught:
        profiles.load(str(path))
    lines = str(caught.value).splitlines()
    misspelled = text.splitlines().index("  nmae: Tesla T4") + 1
    assert any(line.startswith(f"{path}:{misspelled}: gpu.nmae:") for line in lines)
    number = next(i for i, line in enumerate(text.splitlines(), 1) if "value: fast" in line)
    assert any(line.startswith(f"{path}:{number}: host.module_us.value:") for line in lines)


def test_value_outside_its_range(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(OWN.replace("module_us: {value: 80", "module_us: {value: 800"), encoding="utf-8")
    with pytest.raises(profiles.BadProfile, match="800.* outside"):
        profiles.load(str(path))


@pytest.mark.parametrize("text", ["name: [", "- 1\n", "name: T4\nname: T4\n"])
def test_not_a_profile_at_all(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(profiles.BadProfile, match=re.escape(str(path))):
        profiles.load(str(path))


def test_an_edited_file_is_read_again(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(OWN, encoding="utf-8")
    before = profiles.load(str(path)).profile.host.module_us.value
    path.write_text(OWN.replace("module_us: {value: 80", "module_us: {value: 90"), encoding="utf-8")
    assert (before, profiles.load(str(path)).profile.host.module_us.value) == (80, 90)


@pytest.mark.parametrize("name", profiles.known())
def test_catalogue(name):
    profile = profiles.load(name).profile
    gpu = profile.gpu
    assert profile.name == name
    assert gpu.achieved_bandwidth_gb_s.value <= gpu.peak_bandwidth_gb_s.value
    assert gpu.memory_bytes > 8 * 2**30
    for dtype, rate in gpu.achieved_tflops.items():
        # Winograd's algorithm, and tensor cores in float64, do more than what the peak counts.
        peak = gpu.peak_tflops.get(dtype, gpu.peak_tflops["float32"]).value
        assert rate.value <= peak * 1.5


def test_the_default_says_that_no_pair_was_measured():
    profile = profiles.load(profiles.DEFAULT).profile
    assert "No pair of T4 was measured" in profile.note
    assert (profile.host.module_us.low, profile.host.module_us.high) == (66, 130)


def test_replacing_figures_keeps_the_rest():
    profile = profiles.load("T4").profile
    changed = profile.with_figures(host={"module_us": 130})
    assert changed.host.module_us.value == 130
    assert "80" in changed.host.module_us.source
    assert changed.host.launch_us == profile.host.launch_us
    assert changed.gpu == profile.gpu
