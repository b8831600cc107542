"""Trains a little on two GPUs, then fails as a program does that forgets to move its input."""

import sys

import torch
from torch import nn

net = nn.DataParallel(nn.Linear(64, 64)).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    net(torch.randn(32, 64).cuda()).sum().backward()
    optimizer.step()
print("trained", sys.argv[1:], net.module.weight.device)


def forget():
    """The program's mistake."""
    return net.module(torch.randn(32, 64))


forget()
