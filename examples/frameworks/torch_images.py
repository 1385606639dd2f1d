"""Train an image classifier in PyTorch. Kill it at any time and start it again: the losses are those of a run that was not stopped.

    python examples/frameworks/torch_images.py images [--epochs 3] [--device cuda] [--checkpoint run.pt]

`images` has a folder of pictures for each class.
"""

import argparse
import os

import torch

import penstock as ps

BATCH_SIZE, SIDE = 16, 32
MEAN, STD = 127.5, 60.0


def pipeline(folder):
    return (
        ps.read_images(folder)
        .shuffle(seed=7)
        .map(ps.image.decode("data"))
        .map(ps.image.random_resized_crop("data", SIDE, scale=(0.5, 1.0)), seed=1)
        .map(ps.image.random_flip("data"), seed=2)
        .batch(BATCH_SIZE, drop_remainder=True)
    )


def to_float(batch):
    """Normalise on the device: a quarter of the bytes travel."""
    return {**batch, "data": (batch["data"].permute(0, 3, 1, 2).float() - MEAN) / STD}


def network(num_classes):
    layers = torch.nn.Conv2d(3, 16, 3, 2, 1), torch.nn.ReLU(), torch.nn.Conv2d(16, 32, 3, 2, 1), torch.nn.ReLU()
    return torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(32, num_classes))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--checkpoint", default="run.pt")
    options = parser.parse_args()

    torch.manual_seed(0)
    dataset = pipeline(options.folder)
    net = network(len(dataset.classes)).to(options.device)
    adam = torch.optim.Adam(net.parameters(), 1e-2)
    device = None if options.device == "cpu" else options.device
    with dataset.feed(output=ps.Torch(device=device, transform=to_float)) as feed:
        if os.path.exists(options.checkpoint):
            saved = torch.load(options.checkpoint)
            net.load_state_dict(saved["net"])
            adam.load_state_dict(saved["adam"])
            feed.load_state_dict(saved["feed"])
        for _ in range(feed.epoch, options.epochs):
            for batch in feed:
                loss = torch.nn.functional.cross_entropy(net(batch["data"]), batch["label"])
                adam.zero_grad()
                loss.backward()
                adam.step()
                state = {"net": net.state_dict(), "adam": adam.state_dict(), "feed": feed.state_dict()}
                torch.save(state, options.checkpoint + ".part")
                os.replace(options.checkpoint + ".part", options.checkpoint)
                print(f"step {feed.step}: loss {loss.item():.5f}", flush=True)


if __name__ == "__main__":
    main()
