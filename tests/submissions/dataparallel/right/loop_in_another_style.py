"""The training loop in another style: flat, driven by `next`, the old gradients cleared last."""

import time

import torch
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


device = torch.device("cuda")
network = nn.DataParallel(initial_weights(Net())).cuda()
batches, validation_batches = load_data(BATCH_SIZE)
criterion = nn.CrossEntropyLoss()
adam = torch.optim.Adam(network.module.parameters(), LEARNING_RATE, betas=(0.9, 0.999))

for epoch in range(EPOCHS):
    began = time.time()
    network.train(True)
    remaining = iter(batches)
    steps = 0
    while (batch := next(remaining, None)) is not None:
        x, y = (part.cuda() for part in batch)
        error = criterion(network(x), y)
        error.backward()
        adam.step()
        adam.zero_grad()
        steps += 1
    print("epoch", epoch, "steps", steps, "seconds", round(time.time() - began, 2), "loss", error.item())

    network.train(False)
    with torch.inference_mode():
        right = sum((network(x.cuda()).argmax(dim=1).cpu() == y).sum().item() for x, y in validation_batches)
    print("right in the validation:", right)
