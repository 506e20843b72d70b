"""Whose failure it is: of messages as torch, NCCL and gloo write them, and of the cards' own."""

import errno

import pytest
import torch
import torch.distributed as dist

from train.engine.check_step import LossNotFiniteError
from train.engine.micro_batch_search import OutOfMemoryError
from train.errors import BadInput, CheckFailed, PeerFailed
from train.failures import classify_failure
from train.parallel.process_group import ExchangeFailedError

GLOO = "[/pytorch/third_party/gloo/gloo/transport/tcp/"
NCCL = "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, "
SOCKET = (
    "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\nLast error:\n"
)
LAUNCH = "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be"
TIMED_OUT = (
    "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=42, OpType=ALLREDUCE, NumelIn=8388608"
)


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (RuntimeError(f"CUDA error: the launch timed out and was terminated\n{LAUNCH}"), "own"),
        (torch.AcceleratorError("CUDA error: unspecified launch failure"), "own"),
        (torch.AcceleratorError("CUDA error: uncorrectable ECC error encountered"), "own"),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), "own"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle`"), "own"),
        (RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"), "own"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total"), "own"),
        (OutOfMemoryError("one row alone does not fit; lower max_seq_length, or load_in 4bit"), "own"),
        (dist.DistBackendError(f"{NCCL}unhandled cuda error (run with NCCL_DEBUG=INFO for details)"), "own"),
        (dist.DistBackendError(f"{NCCL}internal error - please report this issue to the NCCL developers"), "own"),
        (RuntimeError("Triton Error [CUDA]: device kernel image is invalid"), "own"),
        (OSError(errno.ENOSPC, "No space left on device"), "own"),
        (ValueError("socket options: timeout"), "own"),
        (TimeoutError("the disk timed out"), "own"),
        (dist.DistBackendError(f"{NCCL}remote process exited or there was a network error"), "peer"),
        (dist.DistBackendError(f"{NCCL}unhandled system error\n{SOCKET}socketPollConnect: Connection refused"), "peer"),
        (dist.DistBackendError(f"{TIMED_OUT}, Timeout(ms)=300000) ran for 300012 milliseconds"), "peer"),
        (RuntimeError(f"{GLOO}pair.cc:538] Connection closed by peer [127.0.0.1]:29411"), "peer"),
        (RuntimeError(f"{GLOO}pair.cc:544] Read error [10.0.0.1]:4567: Connection reset by peer"), "peer"),
        (RuntimeError(f"{GLOO}unbound_buffer.cc:78] Timed out waiting 15000ms for recv operation to complete"), "peer"),
        (RuntimeError(f"Gloo connectFullMesh failed with {GLOO}pair.cc:144] no error"), "peer"),
        (dist.DistNetworkError("The client socket has timed out after 300000ms while trying to connect to"), "peer"),
        (dist.DistStoreError("wait timeout after 300000ms, keys: /group/0"), "peer"),
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), "peer"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "peer"),
        (PeerFailed("rank 2 did not answer for 300 s"), "peer"),
        (ExchangeFailedError("the exchange failed on rank 1, and nobody is gone"), "peer"),
        (PeerFailed("gpu-worker-2 cannot start: CUDA error: out of memory"), "peer"),
        (LossNotFiniteError("the loss is nan (from a); try a lower learning_rate"), "check"),
        (BadInput("there is no file x"), "input"),
        (RuntimeError("The server socket has failed to listen on any local network address. EADDRINUSE"), "port"),
    ],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
def test_whose_failure_it_is(error, wanted):
    assert classify_failure(error) == wanted
    wrapped = CheckFailed("node-1, step 4: it failed")
    wrapped.__cause__ = error
    if not isinstance(error, CheckFailed):
        assert classify_failure(wrapped) == wanted
