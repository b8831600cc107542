"""Profiles of simulated machines: naming them, reading a file of one's own, what its faults say."""

import io
import json
import re

import pytest
from ruamel.yaml import YAML

from grader.simgpu import profiles
from grader.simgpu.parts import FAMILIES

TEXT = (profiles.CATALOGUE / "T4.yaml").read_text(encoding="utf-8")


def whole(name="T4"):
    """The text of a file that holds every part of a machine itself."""
    text = io.StringIO()
    YAML().dump(profiles.load(name).profile.model_dump(mode="json", exclude_none=True), text)
    return text.getvalue()


OWN = TEXT


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
    with pytest.raises(profiles.BadProfile, match=r"named 'V10'; did you mean V100\?.*Known: A10"):
        profiles.load("2xV10")


def test_unlike_anything_lists_the_known_ones():
    with pytest.raises(profiles.BadProfile, match=r"'abacus'; known: A10, A100.*T4") as caught:
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
    text = whole().replace("  name: Tesla T4", "  nmae: Tesla T4")
    text = re.sub(r"(module_us:\n\s+value: )80(.0)?", r"\1fast", text)
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


def test_a_part_of_a_file_of_one_s_own_is_read_again_when_it_was_edited(tmp_path):
    gpu, machine = tmp_path / "gpu.yaml", tmp_path / "machine.yaml"
    text = (profiles.CATALOGUE / "gpus" / "T4.yaml").read_text(encoding="utf-8")
    machine.write_text(OWN.replace("gpu: T4", "gpu: gpu.yaml"), encoding="utf-8")
    found = []
    for multiprocessors in ("40", "400"):
        gpu.write_text(
            text.replace("multiprocessors: {value: 40", f"multiprocessors: {{value: {multiprocessors}"),
            encoding="utf-8",
        )
        found.append(profiles.load(str(machine)).profile.gpu.multiprocessors.value)
    assert found == [40, 400]


def test_a_file_that_has_not_changed_is_parsed_once(monkeypatch):
    profiles.load("2xA100")
    monkeypatch.setattr(profiles, "_yaml", None)
    assert profiles.load("4xA100").profile == profiles.load("2xA100").profile


@pytest.mark.parametrize(
    ("before", "after", "place", "words"),
    [
        (
            "float32: {value: 4.5,", "float32: {value: 9,", "achieved_tflops.float32",
            "9 TFLOP/s is more than this GPU can do in matmul, attention: at most 8.1, its peak of 8.1; give "
            "those rates of their own in family_tflops",
        ),
        (
            "float32: {value: 4.5,", "float32: {value: 20,", "achieved_tflops.float32",
            "20 TFLOP/s is more than this GPU can do in convolution, matmul, attention: at most 8.1",
        ),
        (
            "float32: {value: 0.464,", "float32: {value: 20,", "family_tflops.depthwise.float32",
            "20 TFLOP/s is more than this GPU can do in depthwise: at most 18.22, by Winograd's algorithm",
        ),
        (
            "float16: {value: 1.08,", "float16: {value: 66,", "family_tflops.grouped.float16",
            "66 TFLOP/s is more than this GPU can do in grouped: at most 65, its peak of 65",
        ),
        (
            "achieved_bandwidth_gb_s: {value: 240,", "achieved_bandwidth_gb_s: {value: 321,",
            "achieved_bandwidth_gb_s", "321 GB/s is more than peak_bandwidth_gb_s, 320",
        ),
    ],
)  # fmt: skip
def test_what_no_silicon_can_do_is_refused_in_its_line(tmp_path, before, after, place, words):
    gpu, machine = tmp_path / "gpu.yaml", tmp_path / "machine.yaml"
    text = (profiles.CATALOGUE / "gpus" / "T4.yaml").read_text(encoding="utf-8")
    assert text.count(before) == 1
    text = text.replace(before, after)
    gpu.write_text(text, encoding="utf-8")
    machine.write_text(OWN.replace("gpu: T4", "gpu: gpu.yaml"), encoding="utf-8")
    with pytest.raises(profiles.BadProfile) as caught:
        profiles.load(str(machine))
    line = next(number for number, found in enumerate(text.splitlines(), 1) if after in found)
    assert f"{gpu}:{line}: {place}: {words}" in str(caught.value)


def test_all_impossible_rates_are_told_at_once_in_a_file_that_holds_everything(tmp_path):
    path = tmp_path / "mine.yaml"
    text = whole().replace("value: 65.0", "value: 1.0")  # the peak in half precision
    path.write_text(text, encoding="utf-8")
    with pytest.raises(profiles.BadProfile) as caught:
        profiles.load(str(path))
    places = [line.split(": ")[1] for line in str(caught.value).splitlines()]
    assert places == ["gpu.achieved_tflops.float16", "gpu.family_tflops.grouped.float16"]


def test_a_specification_may_name_other_parts():
    plain, mixed = profiles.load("2xT4").profile, profiles.load("4xt4+PCIe3-peer+host-slow")
    assert mixed.count == 4
    assert mixed.profile.name == "T4+pcie3-peer+host-slow"
    assert mixed.profile.gpu == plain.gpu
    assert mixed.profile.link.peer_access and not plain.link.peer_access
    assert mixed.profile.host.module_us.value > plain.host.module_us.value


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("2xT4+pcie9-peer", "no link or host is named 'pcie9-peer'; did you mean pcie5-peer?"),
        ("2xT4+abacus", "no link or host is named 'abacus'; known: "),
        ("2xT44+pcie3-peer", "did you mean T4?"),
    ],
)
def test_unknown_parts_suggest_the_nearest(spec, words):
    with pytest.raises(profiles.BadProfile, match=re.escape(words)):
        profiles.load(spec)


def test_a_file_may_name_parts_of_the_catalogue(tmp_path):
    path = tmp_path / "mine+yours.yaml"  # a plus in a path is no part
    path.write_text("name: Mine\nnote: made up\ngpu: h100\nlink: pcie4-peer\nhost: host-fast\n")
    profile = profiles.load(f"2x{path}").profile
    assert (profile.name, profile.gpu.name) == ("Mine", "NVIDIA H100 80GB HBM3")
    assert profiles.load(f"2x{path}+host-slow").profile.host.module_us.value > profile.host.module_us.value


def test_an_unknown_part_in_a_file_is_named_with_its_line(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("name: Mine\nnote: made up\ngpu: T4\nlink: pcie3-pear\nhost: host-fast\n")
    with pytest.raises(profiles.BadProfile, match=r"mine.yaml:4: link: .*did you mean pcie3-peer"):
        profiles.load(str(path))


def test_one_file_holds_a_whole_machine(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(whole("A100"), encoding="utf-8")
    assert profiles.load(str(path)).profile == profiles.load("A100").profile


@pytest.mark.parametrize("name", profiles.known())
def test_catalogue(name):
    profile = profiles.load(name).profile
    gpu = profile.gpu
    assert profile.name == name
    assert gpu.achieved_bandwidth_gb_s.value <= gpu.peak_bandwidth_gb_s.value
    assert gpu.memory_bytes > 8 * 2**30
    for family in FAMILIES:
        for dtype, rate in gpu.rates(family).items():
            # Only convolutions may do more than what the peak counts, and only without tensor cores.
            peak = gpu.peak_tflops.get(dtype, gpu.peak_tflops["float32"]).value
            plain = dtype == "float32" or (dtype == "float16" and gpu.capability < (7, 0))
            most = 2.25 if plain and family in ("convolution", "grouped", "depthwise") else 1
            assert rate <= peak * most, (family, dtype)


def test_the_catalogue_spans_generations_links_and_hosts():
    assert len(profiles.known()) >= 14
    assert {"P100", "V100", "T4", "A100", "H100", "B200"} <= set(profiles.known())
    assert {"pcie3-nopeer", "pcie3-peer", "nvlink2-cube", "nvswitch-a100"} <= set(
        profiles.known_parts("link")
    )
    for part in ("gpu", "link", "host"):
        for name in profiles.known_parts(part):
            spec = name if part == "gpu" else f"T4+{name}"
            assert getattr(profiles.load(spec).profile, part)


def test_every_uncertain_cost_of_a_host_has_a_range():
    for name in profiles.known():
        host = profiles.load(name).profile.host
        for figure in (host.module_us, host.launch_us, host.backward_launch_us, host.cpu_operator_us):
            assert figure.low < figure.value < figure.high


def test_the_schema_is_json_and_lets_parts_be_named():
    schema = json.loads(json.dumps(profiles.json_schema()))
    assert {"type": "string"} in schema["properties"]["gpu"]["anyOf"]
    assert schema["additionalProperties"] is False


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


def test_more_gpus_than_a_computer_can_have_are_refused():
    with pytest.raises(profiles.BadProfile, match="asks for 999999999999 GPUs; one computer has at most 120"):
        profiles.load("999999999999xT4")


MINE = "name: Mine\nnote: one of my own\ngpu: card.yaml\nlink: pcie4-peer\nhost: host-today\n"


@pytest.fixture
def mine(tmp_path):
    card = (profiles.CATALOGUE / "gpus" / "T4.yaml").read_text().replace("Tesla T4", "My card", 1)
    (tmp_path / "card.yaml").write_text(card)
    (tmp_path / "mine.yaml").write_text(MINE)
    return tmp_path / "mine.yaml"


def test_a_machine_of_one_s_own_may_name_a_file_beside_it(mine):
    count, profile = profiles.load(f"3x{mine}")
    assert (count, profile.name, profile.gpu.name) == (3, "Mine", "My card")
    assert profile.link == profiles.load("T4+pcie4-peer").profile.link


def test_a_gpu_alone_is_no_machine_and_the_error_says_how_to_make_one(mine):
    with pytest.raises(profiles.BadProfile, match=r"figures of a GPU alone; write .* gpu: card\.yaml, "):
        profiles.load(f"2x{mine.with_name('card.yaml')}")


def test_all_mistakes_are_told_at_once_and_what_was_meant(mine):
    mine.write_text(MINE.replace("note", "notes").replace("card", "cart").replace("pcie4", "pcie9"))
    with pytest.raises(profiles.BadProfile) as caught:
        profiles.load(f"2x{mine}")
    said = [line.removeprefix(f"{mine}:") for line in str(caught.value).split("\n")]
    assert [line.partition(";")[0] for line in said] == [
        f"3: gpu: {mine.with_name('cart.yaml')} is not a file",
        "4: link: no link is named 'pcie9-peer'",
        "1: note: is missing",
        "2: notes: is no part of a profile",
    ]
    assert said[3].endswith("did you mean note?")
