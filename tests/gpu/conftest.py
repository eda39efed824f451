"""Every test here runs on a CUDA device, which it is for, and on the CPU, which shows that the test itself works.

Trainings run on the CPU by night only: tests/end_to_end has stricter ones.
"""

import pytest
import torch

from tests.depth import NIGHTLY

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
    if device == "cpu" and not NIGHTLY:
        pytest.skip("trainings on the CPU are tested in tests/end_to_end; here in `make nightly`")
    if device == "cpu" and torch.cuda.is_available():
        pytest.skip("trainings choose the CUDA device of this machine")
    return device
