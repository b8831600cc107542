"""DistributedDataParallel in a single process: one GPU works.

fails: wrapped
says: DistributedDataParallel
"""

import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

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


def train_one_epoch(model, loader, optimizer, device):
    """Return the mean loss and the accuracy over one pass, both as floats."""
    model.train()
    loss_sum, correct, rows = 0.0, 0, 0
    for images, targets in loader:
        images, targets = images.to(device), targets.to(device)
        optimizer.zero_grad()
        outputs = model(images)
        loss = F.cross_entropy(outputs, targets)
        loss.backward()
        optimizer.step()
        loss_sum += loss.item() * len(targets)
        correct += (outputs.argmax(1) == targets).sum().item()
        rows += len(targets)
    return loss_sum / rows, correct / rows


@torch.no_grad()
def validate(model, loader, device):
    """Return the mean loss and the accuracy on the validation images, both as floats."""
    model.eval()
    loss_sum, correct, rows = 0.0, 0, 0
    for images, targets in loader:
        images, targets = images.to(device), targets.to(device)
        outputs = model(images)
        loss_sum += F.cross_entropy(outputs, targets, reduction="sum").item()
        correct += (outputs.argmax(1) == targets).sum().item()
        rows += len(targets)
    return loss_sum / rows, correct / rows


def main():
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    train_loader, validation_loader = load_data(batch_size=BATCH_SIZE)
    model = initial_weights(Net()).to(device)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    for epoch in range(1, EPOCHS + 1):
        start = time.perf_counter()
        train_loss, train_accuracy = train_one_epoch(model, train_loader, optimizer, device)
        seconds = time.perf_counter() - start
        validation_loss, validation_accuracy = validate(model, validation_loader, device)
        print(
            f"epoch {epoch}/{EPOCHS} {seconds:6.2f} s  "
            f"train loss {train_loss:.3f} acc {train_accuracy:.1%}  "
            f"val loss {validation_loss:.3f} acc {validation_accuracy:.1%}"
        )


if __name__ == "__main__":
    main()
