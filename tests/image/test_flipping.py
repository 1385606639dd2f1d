import numpy as np
import pytest
from numpy.typing import NDArray

import penstock.image as image
from penstock.errors import PlanError

Photo = NDArray[np.uint8]


def test_the_image_is_mirrored_when_the_draw_is_below_the_probability(photo: Photo) -> None:
    operator = image.random_flip("x", probability=0.25)
    assert np.array_equal(operator.apply(photo, [0.2499], None, None), photo[:, ::-1])
    assert np.array_equal(operator.apply(photo, [0.25], None, None), photo)


@pytest.mark.parametrize("probability", [-0.1, 1.1, float("nan")])
def test_a_probability_outside_0_to_1_is_a_plan_error(probability: float) -> None:
    with pytest.raises(PlanError) as caught:
        image.random_flip("x", probability=probability)
    assert caught.value.what == f"probability={probability!r} is not in 0..1"
    assert caught.value.where == "image.random_flip"
    assert caught.value.fix == "give a number from 0 to 1"
