"""A class around the training, a helper around the wrapping, one function for both kinds of pass."""

import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn import DataParallel

from data import initial_weights, load_data

EPOCHS = 3
BATCH_SIZE = 512
LEARNING_RATE = 1e-3


class Net(nn.Module):
    """Two wide 5x5 convolutions and a linear layer; takes (rows, 1, 28, 28), gives (rows, 10)."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 48, kernel_size=5, padding=2)
        self.conv2 = nn.Conv2d(48, 48, kernel_size=5, padding=2)
        self.classifier = nn.Linear(48 * 7 * 7, 10)

    def forward(self, images):
        x = F.relu(self.conv1(images))
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 4)
        return self.classifier(x.flatten(1))


def parallelize(model, device):
    """The model on `device`, wrapped where there is more than one GPU."""
    model = model.to(device)
    return DataParallel(model) if torch.cuda.device_count() > 1 else model


class Trainer:
    """Owns the model, its optimizer and the loaders."""

    def __init__(self, options):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.loaders = dict(zip(("train", "validation"), load_data(options.batch_size), strict=True))
        self.model = parallelize(initial_weights(Net()), self.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=options.lr)

    def step(self, images, targets, training):
        """Loss and number of hits of one batch; with `training`, an update as well."""
        images, targets = images.to(self.device), targets.to(self.device)
        outputs = self.model(images)
        loss = F.cross_entropy(outputs, targets)
        if training:
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item(), (outputs.argmax(1) == targets).sum().item()

    def run(self, split):
        """Mean loss and accuracy over one pass of a split."""
        training = split == "train"
        self.model.train(training)
        loss_sum, hits, rows = 0.0, 0, 0
        with torch.set_grad_enabled(training):
            for images, targets in self.loaders[split]:
                loss, right = self.step(images, targets, training)
                loss_sum, hits, rows = loss_sum + loss * len(targets), hits + right, rows + len(targets)
        return loss_sum / rows, hits / rows

    def fit(self, epochs):
        """Train and report."""
        for epoch in range(epochs):
            start = time.perf_counter()
            loss, accuracy = self.run("train")
            seconds = time.perf_counter() - start
            print(f"epoch {epoch}: {seconds:.2f} s, train loss {loss:.3f} acc {accuracy:.1%}", end=", ")
            print("val loss {:.3f} acc {:.1%}".format(*self.run("validation")))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--batch-size", type=int, default=BATCH_SIZE)
    parser.add_argument("--lr", type=float, default=LEARNING_RATE)
    chosen = parser.parse_args()
    Trainer(chosen).fit(chosen.epochs)
