"""Noise in the hidden state of logits that attention layers hand on, h_l = a h_{l-1} + (1 - a)s_l from h_1 = s_1 on."""

from __future__ import annotations

from simstudy.design.settings.cell import Cell
from simstudy.design.settings.systems.hopfield import HopfieldNoiseInstance
from simstudy.theory.instances import instance_numbers


@instance_numbers.register
def hopfield_noise(instance: HopfieldNoiseInstance, cell: Cell) -> dict[str, float]:
    """Numbers of the instance ``hopfield_noise``."""
    return {"noise_factor": noise_factor(instance.memory, instance.layers, instance.persistence)}


def noise_factor(memory: float, layers: int, persistence: float = 0.0) -> float:
    """Variance of noise in the hidden state of the last layer over that in the logits of one layer.

    Formula :eq:`noise-factor`, of noise with a correlation between any two layers (persistence), which nothing reduces.
    """
    former = memory ** (2 * (layers - 1))
    independent = former + (1.0 - former) * (1.0 - memory) / (1.0 + memory)
    return persistence + (1.0 - persistence) * independent
