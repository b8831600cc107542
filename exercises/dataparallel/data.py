"""The images that the exercise trains on, and the weights it starts from.

A script calls `load_data` and `initial_weights` and need not know more. Which images it gets is
decided outside the script, by the environment variable `EXERCISE_DATA`:

    digits                      the 1,797 handwritten digits that come with scikit-learn (the default)
    folder:DIR                  train.safetensors and validation.safetensors in DIR
    synthetic:ROWS              noise with random labels, for timing
    mnist:DIR                   MNIST in DIR/MNIST/raw, as torchvision stores it
    fashion-mnist:DIR           FashionMNIST in DIR/FashionMNIST/raw, likewise
    mnist+download:DIR          the same, fetched from the network first where it is missing
    fashion-mnist+download:DIR  likewise

Whatever the source, images are float32 of shape (rows, 1, 28, 28), standardized, and targets are
int64 of shape (rows,) with values 0 to 9. They are tensors from the start and are fetched a batch at a
time: decoding and transforming 60,000 images one by one takes longer than a GPU's whole epoch.
"""

import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SIDE = 28
CLASSES = 10
SPLIT_SEED, LOADER_SEED, SYNTHETIC_SEED = 1, 2, 3
DIGITS_TRAIN, DIGITS_VALIDATION = 1280, 256  # of 1,797 rows; the rest is held out


class DataProblem(SystemExit):
    """The images asked for cannot be had.

    A `SystemExit`, so that a script which does not catch it ends with the message alone.
    """


class Images(Dataset):
    """Images and their targets in memory; `split` says which part of the data they are."""

    def __init__(self, images, targets, split):
        self.images, self.targets, self.split = images, targets, split

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, row):
        return self.images[row], self.targets[row]

    def __getitems__(self, rows):
        """Return a whole batch at once; a DataLoader prefers this to `__getitem__`."""
        rows = torch.tensor(rows)
        return Batch(self.images[rows], self.targets[rows])


class Batch(Sequence):
    """The rows of one batch: pairs of image and target, for a DataLoader that collates them itself."""

    def __init__(self, images, targets):
        self.images, self.targets = images, targets

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, row):
        return self.images[row], self.targets[row]


class Splits(NamedTuple):
    """Three parts of one data set without a common image; `held_out` is None where there is no such part."""

    train: Images
    validation: Images
    held_out: Images | None = None


def load_data(batch_size):
    """Return the loaders (train, validation) over the images that `EXERCISE_DATA` names.

    The training loader shuffles with a generator of its own: a script may draw as many random
    numbers as it likes and still sees the same batches in the same order.
    """
    train, validation, _ = splits(os.environ.get("EXERCISE_DATA", "digits"))
    # Both have a generator, since a DataLoader without one draws from the script's, shuffling or not.
    return (
        DataLoader(train, batch_size, shuffle=True, collate_fn=_whole, generator=_generator(LOADER_SEED)),
        DataLoader(validation, batch_size, collate_fn=_whole, generator=_generator(LOADER_SEED)),
    )


@torch.no_grad()
def initial_weights(model):
    """Fill the parameters of `model` in place and return it.

    Uniform within 1 / sqrt(fan-in), PyTorch's own choice for convolutions and linear layers, but
    each parameter is drawn from a generator seeded with its name. So the start is the same whatever was
    drawn before, on every device, and for a wrapped model as for a bare one.
    """
    for path, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if weight is None or weight.dim() < 2:
            continue
        bound = weight[0].numel() ** -0.5
        for name, parameter in module.named_parameters(recurse=False):
            unwrapped = ".".join(part for part in (*path.split("."), name) if part not in ("", "module"))
            seeded = _generator(zlib.crc32(unwrapped.encode()))
            parameter.copy_(torch.empty(parameter.shape).uniform_(-bound, bound, generator=seeded))
    return model


def splits(source):
    """Return the `Splits` of a source written as for `EXERCISE_DATA`; raises `DataProblem`."""
    kind, _, argument = source.partition(":")
    if kind == "digits" and not argument:
        return _digits()
    if kind == "synthetic" and argument.isdecimal() and int(argument) > 0:
        return _synthetic(int(argument))
    if kind == "folder" and argument:
        return _folder(Path(argument))
    name, _, download = kind.partition("+")
    if name in ("mnist", "fashion-mnist") and download in ("", "download") and argument:
        return _mnist(name, Path(argument), bool(download))
    raise DataProblem(
        f"EXERCISE_DATA is {source!r}, which names no data. It can be digits, folder:DIR, "
        "synthetic:ROWS, mnist:DIR, fashion-mnist:DIR, mnist+download:DIR or fashion-mnist+download:DIR."
    )


def _digits():
    from sklearn.datasets import load_digits  # here, since it is slow to import and the others do without

    digits = load_digits()
    images = torch.from_numpy(digits.images).float().unsqueeze(1)
    images = F.interpolate(images, size=(SIDE, SIDE), mode="bilinear")  # from 8 x 8
    targets = torch.from_numpy(digits.target).long()
    # The digits are ordered by writer: shuffled once, so that every part has digits of every hand.
    order = torch.randperm(len(targets), generator=_generator(SPLIT_SEED))
    train, validation, held_out = order.tensor_split((DIGITS_TRAIN, DIGITS_TRAIN + DIGITS_VALIDATION))
    images = (images - images[train].mean()) / images[train].std()
    return Splits(
        Images(images[train], targets[train], "train"),
        Images(images[validation], targets[validation], "validation"),
        Images(images[held_out], targets[held_out], "held-out"),
    )


def _folder(folder):
    from safetensors.torch import load_file

    parts = []
    for split in ("train", "validation"):
        file = folder / f"{split}.safetensors"
        if not file.is_file():
            raise DataProblem(
                f"{file} is missing; EXERCISE_DATA=folder:DIR needs it, with images and targets."
            )
        tensors = load_file(file)
        parts.append(Images(tensors["images"], tensors["targets"], split))
    return Splits(*parts)


def _synthetic(rows):
    """Noise: `rows` for training and a sixth as many for validation, the proportion of MNIST."""
    generator = _generator(SYNTHETIC_SEED)

    def noise(rows, split):
        images = torch.empty(rows, 1, SIDE, SIDE).uniform_(-1.0, 1.0, generator=generator)
        return Images(images, torch.randint(CLASSES, (rows,), generator=generator), split)

    return Splits(noise(rows, "train"), noise(max(rows // 6, 1), "validation"))


def _mnist(name, folder, download):
    """MNIST or FashionMNIST; the first half of the test images is for validation, the second held out."""
    from torchvision import datasets

    # Mean and deviation of all training pixels, scaled to 0..1: the figures in general use.
    kind, mean, deviation = {
        "mnist": (datasets.MNIST, 0.1307, 0.3081),
        "fashion-mnist": (datasets.FashionMNIST, 0.2860, 0.3530),
    }[name]
    try:
        raw = [kind(folder, train=train, download=download) for train in (True, False)]
    except RuntimeError as problem:  # the files are neither here nor, where it was asked, on the network
        raise DataProblem(
            f"{folder / kind.__name__ / 'raw'} does not hold the four IDX files of {kind.__name__} "
            f"({problem}). With a network, EXERCISE_DATA={name}+download:{folder} fetches them; without one, "
            "copy train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
            "t10k-labels-idx1-ubyte there."
        ) from None
    (train_images, train_targets), (test_images, test_targets) = (
        ((part.data.unsqueeze(1).float() / 255 - mean) / deviation, part.targets.long()) for part in raw
    )
    half = len(test_targets) // 2
    return Splits(
        Images(train_images, train_targets, "train"),
        Images(test_images[:half], test_targets[:half], "validation"),
        Images(test_images[half:], test_targets[half:], "held-out"),
    )


def _whole(batch):
    """Collate nothing: `Images.__getitems__` has fetched the batch in one piece."""
    return batch.images, batch.targets


def _generator(seed):
    return torch.Generator().manual_seed(seed)
