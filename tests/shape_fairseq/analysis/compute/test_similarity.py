import pytest
import torch

from shape_fairseq.analysis.compute import similarity


def test_similarity_is_one_without_a_shift_and_less_with_one(build, batch):
    model = build("transformer_tiny")
    matrices = torch.tensor(similarity.pairwise(model, batch([9]), offsets=[0, 0, 50]))
    assert matrices.shape == (3, 3, 3)  # the input and two layers
    assert torch.allclose(matrices[:, 0, 1], torch.ones(3), atol=1e-5)
    assert (matrices[:, 0, 2] < 0.99).all()
    assert torch.allclose(matrices, matrices.transpose(1, 2), atol=1e-5)


def test_similarity_is_the_mean_over_positions(build, batch):
    model, tokens = build("transformer_tiny"), batch([6])
    states = [similarity.layer_states(model, tokens, offset)[-1] for offset in (0, 40)]
    by_hand = torch.nn.functional.cosine_similarity(*states, dim=-1).mean().item()
    matrix = similarity.pairwise(model, tokens, [0, 40])[-1]
    assert matrix[0][1] == pytest.approx(by_hand, abs=1e-5)
    assert similarity.between_offsets(matrix) == [matrix[0][1]]
