"""Fit, evaluate and predict with Keras, on the backend that KERAS_BACKEND names.

python examples/frameworks/keras_fit.py [--epochs 5]
"""

import argparse

import keras
import numpy as np

import penstock as ps


def pipeline():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 600)
    images = rng.normal(size=(600, 8, 8, 1)).astype(np.float32) + labels[:, None, None, None]
    return ps.from_arrays({"image": images, "label": labels})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    epochs = parser.parse_args().epochs
    train, test = (part.batch(32) for part in pipeline().split(0.8, seed=3))
    layers = keras.layers.Input((8, 8, 1)), keras.layers.Conv2D(8, 3, activation="relu"), keras.layers.GlobalAveragePooling2D()
    model = keras.Sequential([*layers, keras.layers.Dense(4, activation="softmax")])
    model.compile(optimizer=keras.optimizers.Adam(0.05), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    data = train.to_keras("image", "label")
    model.fit(data, epochs=epochs, validation_data=test.to_keras("image", "label"), verbose=0)
    _, accuracy = model.evaluate(test.to_keras("image", "label"), verbose=0)
    chosen = model.predict(test.to_keras("image"), verbose=0).argmax(1)
    print(f"{keras.backend.backend()}: {data.feed.step} steps, accuracy {accuracy:.2f}, {len(chosen)} predictions")


if __name__ == "__main__":
    main()
