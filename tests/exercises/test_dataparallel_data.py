"""The data module of the DataParallel exercise: the same images and weights for every script."""

import ast
import importlib.util
import os
import re
import struct
import subprocess
import sys
import zlib

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from grader.exercise import load_exercise


@pytest.fixture(scope="module")
def data(dataparallel):
    """The exercise's `data.py`, imported under a name of its own."""
    specification = importlib.util.spec_from_file_location("dataparallel_data", dataparallel / "data.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def digits(data):
    return data.splits("digits")


def load(data, monkeypatch, source, batch_size=64):
    monkeypatch.setenv("EXERCISE_DATA", source)
    return data.load_data(batch_size)


def checksums(images):
    return [zlib.crc32(image.numpy().tobytes()) for image in images]


def write_idx(folder, rows_train, rows_test):
    """Write the four IDX files of MNIST into `folder`: row i is filled with i and is of class i % 10."""
    folder.mkdir(parents=True)
    for prefix, rows in (("train", rows_train), ("t10k", rows_test)):
        images = bytes(row % 256 for row in range(rows) for _ in range(28 * 28))
        (folder / f"{prefix}-images-idx3-ubyte").write_bytes(struct.pack(">4i", 2051, rows, 28, 28) + images)
        labels = bytes(row % 10 for row in range(rows))
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 2049, rows) + labels)


# Digits


def test_the_digits_are_split_into_three_parts_without_a_common_image(digits):
    assert [len(part) for part in digits] == [1280, 256, 261]
    assert [part.split for part in digits] == ["train", "validation", "held-out"]
    everything = [checksum for part in digits for checksum in checksums(part.images)]
    assert len(set(everything)) == 1797


def test_the_training_digits_are_standardized(digits):
    assert digits.train.images.mean().item() == pytest.approx(0, abs=1e-4)
    assert digits.train.images.std().item() == pytest.approx(1, abs=1e-4)


def test_every_part_has_every_digit(digits):
    assert all(part.targets.unique().tolist() == list(range(10)) for part in digits)


def test_digits_are_the_default(data, digits, monkeypatch):
    monkeypatch.delenv("EXERCISE_DATA", raising=False)
    train, validation = data.load_data(64)
    assert torch.equal(train.dataset.images, digits.train.images)
    assert torch.equal(validation.dataset.images, digits.validation.images)


# Loaders


def test_a_batch_is_a_pair_of_tensors(data, monkeypatch):
    train, validation = load(data, monkeypatch, "synthetic:150")
    for loader, rows in ((train, [64, 64, 22]), (validation, [25])):
        batches = list(loader)
        assert [len(targets) for _, targets in batches] == rows
        images, targets = batches[0]
        assert images.shape[1:] == (1, 28, 28)
        assert (images.dtype, targets.dtype) == (torch.float32, torch.int64)


def test_batches_are_fetched_whole(data, monkeypatch):
    train, _ = load(data, monkeypatch, "synthetic:150")
    fetched = []
    monkeypatch.setattr(data.Images, "__getitem__", lambda self, row: pytest.fail("fetched one by one"))
    whole = data.Images.__getitems__
    monkeypatch.setattr(
        data.Images, "__getitems__", lambda self, rows: fetched.append(len(rows)) or whole(self, rows)
    )
    list(train)
    assert fetched == [64, 64, 22]


def test_a_single_row_can_be_had_too(data):
    train = data.splits("synthetic:20").train
    image, target = train[3]
    assert torch.equal(image, train.images[3])
    assert target == train.targets[3]


def test_training_is_shuffled_anew_each_epoch_and_validation_never(data, monkeypatch):
    train, validation = load(data, monkeypatch, "synthetic:150")
    first, second = ([checksums(images) for images, _ in train] for _ in range(2))
    assert first != second
    assert sorted(sum(first, [])) == sorted(sum(second, [])) == sorted(checksums(train.dataset.images))
    assert sum((checksums(images) for images, _ in validation), []) == checksums(validation.dataset.images)


def test_a_script_that_draws_random_numbers_sees_the_same_batches(data, monkeypatch):
    def epochs(seed, draws):
        torch.manual_seed(seed)
        train, validation = load(data, monkeypatch, "synthetic:150")
        seen = []
        for _ in range(2):
            for images, _ in train:
                seen.append(checksums(images))
                torch.rand(draws)
            seen += [checksums(images) for images, _ in validation]
        return seen

    assert epochs(seed=0, draws=0) == epochs(seed=1, draws=7)


def test_iterating_leaves_the_random_numbers_of_the_script_alone(data, monkeypatch):
    model = small_net()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    for loader in load(data, monkeypatch, "synthetic:150"):
        list(loader)
    data.initial_weights(model)
    assert torch.equal(torch.rand(3), expected)


# Other sources


def test_synthetic_data_have_the_rows_asked_for(data):
    train, validation, held_out = data.splits("synthetic:600")
    assert (len(train), len(validation), held_out) == (600, 100, None)
    assert len(set(checksums(train.images))) == 600


def test_a_folder_gives_what_was_stored_in_it(data, monkeypatch, tmp_path):
    for split, rows in (("train", 12), ("validation", 5)):
        tensors = {"images": torch.rand(rows, 1, 28, 28), "targets": torch.arange(rows)}
        save_file(tensors, tmp_path / f"{split}.safetensors")
    train, validation = load(data, monkeypatch, f"folder:{tmp_path}")
    assert (train.dataset.split, validation.dataset.split) == ("train", "validation")
    assert validation.dataset.targets.tolist() == [0, 1, 2, 3, 4]
    assert torch.equal(validation.dataset.images, tensors["images"])


@pytest.mark.parametrize(
    ("source", "folder", "mean", "deviation"),
    [("mnist", "MNIST", 0.1307, 0.3081), ("fashion-mnist", "FashionMNIST", 0.2860, 0.3530)],
)
def test_mnist_is_read_from_idx_files(data, tmp_path, source, folder, mean, deviation):
    write_idx(tmp_path / folder / "raw", rows_train=30, rows_test=20)
    train, validation, held_out = data.splits(f"{source}:{tmp_path}")
    assert [len(part) for part in (train, validation, held_out)] == [30, 10, 10]
    assert train.images.shape == (30, 1, 28, 28)
    assert train.targets.tolist() == [row % 10 for row in range(30)]
    expected = torch.tensor([(row / 255 - mean) / deviation for row in range(20)])
    torch.testing.assert_close(torch.cat([validation.images, held_out.images])[:, 0, 5, 5], expected)


def test_missing_mnist_files_say_how_to_get_them(data, tmp_path):
    with pytest.raises(data.DataProblem) as problem:
        data.splits(f"fashion-mnist:{tmp_path}")
    text = str(problem.value)
    assert f"{tmp_path}/FashionMNIST/raw" in text
    assert f"EXERCISE_DATA=fashion-mnist+download:{tmp_path}" in text
    assert "t10k-labels-idx1-ubyte" in text


def test_a_missing_file_of_a_folder_is_named(data, tmp_path):
    with pytest.raises(data.DataProblem, match="train.safetensors is missing"):
        data.splits(f"folder:{tmp_path}")


@pytest.mark.parametrize(
    "source", ["", "digit", "digits:3", "synthetic", "synthetic:0", "synthetic:many", "mnist:", "mnist+up:x"]
)
def test_a_source_that_does_not_exist_lists_those_that_do(data, source):
    with pytest.raises(data.DataProblem, match=r"names no data.*synthetic:ROWS") as problem:
        data.splits(source)
    assert repr(source) in str(problem.value)


# Weights


def small_net():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))


def test_initial_weights_do_not_depend_on_what_was_drawn_before(data):
    torch.manual_seed(1)
    first = data.initial_weights(small_net()).state_dict()
    torch.manual_seed(2)
    second = data.initial_weights(small_net()).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_initial_weights_are_the_same_for_a_wrapped_model(data):
    bare = data.initial_weights(small_net())
    wrapped = data.initial_weights(nn.DataParallel(small_net()))
    twice = data.initial_weights(nn.DataParallel(nn.DataParallel(small_net())))
    for name, value in bare.state_dict().items():
        assert torch.equal(value, wrapped.state_dict()[f"module.{name}"])
        assert torch.equal(value, twice.state_dict()[f"module.module.{name}"])


def test_initial_weights_fill_the_range_that_pytorch_uses(data):
    for layer in (nn.Linear(100, 500), nn.Conv2d(4, 64, 5)):
        bound = 1 / 10
        data.initial_weights(layer)
        for parameter in (layer.weight, layer.bias):
            assert parameter.abs().max() <= bound
            assert parameter.max() > 0.8 * bound
            assert parameter.min() < -0.8 * bound


def test_each_parameter_has_numbers_of_its_own(data):
    model = data.initial_weights(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)))
    assert not torch.equal(model[0].weight, model[1].weight)
    assert model[0].weight.requires_grad


# Scripts and text


def test_the_readme_states_the_points_of_the_specification(dataparallel):
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \|", (dataparallel / "README.md").read_text(), re.MULTILINE)
    assert {check: float(points) for check, points in rows} == load_exercise(dataparallel).points


def statements(script):
    """Return the script line by line, without comments and docstrings."""
    tree = ast.parse(script.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            node.body = node.body[1:]
    return ast.unparse(tree).splitlines()


def test_the_stub_is_the_baseline_but_for_comments(dataparallel):
    assert statements(dataparallel / "train.py") == statements(dataparallel / "baseline.py")


def test_the_stub_says_where_to_start_and_not_how(dataparallel):
    text = (dataparallel / "train.py").read_text()
    assert "START HERE" in text
    assert "DataParallel(" not in text


def test_the_solution_is_the_baseline_and_one_statement(dataparallel, checkout):
    solution = statements(checkout / "solutions" / "dataparallel" / "train.py")
    solution.remove("    model = nn.DataParallel(model)")
    assert solution == statements(dataparallel / "baseline.py")


@pytest.mark.parametrize("script", ["exercises/dataparallel/train.py", "solutions/dataparallel/train.py"])
def test_a_script_runs_without_the_grader(checkout, dataparallel, script):
    environment = os.environ | {"EXERCISE_DATA": "synthetic:64", "CUDA_VISIBLE_DEVICES": ""}
    environment["PYTHONPATH"] = str(dataparallel)
    run = subprocess.run(
        [sys.executable, checkout / script], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert [line.split()[1] for line in lines] == ["1/3", "2/3", "3/3"]
    for part in (" s ", "train loss", "val loss", "acc"):
        assert all(part in line for line in lines)
    assert max(map(len, lines)) <= 76  # a report shows them indented, in 80 columns


def test_a_script_without_its_data_ends_with_the_message_alone(dataparallel):
    environment = os.environ | {"EXERCISE_DATA": "numbers"}
    run = subprocess.run(
        [sys.executable, dataparallel / "train.py"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    assert run.stderr.startswith("EXERCISE_DATA is 'numbers', which names no data.")
    assert "Traceback" not in run.stderr
