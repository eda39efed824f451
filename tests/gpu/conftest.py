"""Every test here runs on the CPU, which shows that the test itself works, and on a CUDA device, which it is for."""

import pytest
import torch

CUDA = pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.filterwarnings("default")])  # drivers warn of much
NONE = "no CUDA device is visible"


@pytest.fixture(params=["cpu", CUDA])
def device(request) -> str:
    """The device of a test that chooses its own."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip(NONE)
    return request.param


@pytest.fixture
def trained_on(device) -> str:
    """The device that trainings choose for themselves: CUDA where there is one."""
    if device == "cpu" and torch.cuda.is_available():
        pytest.skip("trainings choose the CUDA device of this machine")
    return device
