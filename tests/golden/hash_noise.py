"""The numbers that generators of golden values and their tests make alike (tests/support/noise.h): nothing but
what is computed from them need be stored."""
import numpy as np
import torch


def noise(salt, count):
    """count numbers in [-0.5, 0.5), exact in f32: a 32-bit hash of (salt, index)."""
    h = np.arange(count, dtype=np.uint64) + np.uint64(salt) * np.uint64(0x9E3779B9)
    h &= np.uint64(0xFFFFFFFF)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        h ^= h >> np.uint64(shift)
        h = (h * np.uint64(factor)) & np.uint64(0xFFFFFFFF)
    h ^= h >> np.uint64(16)
    return torch.from_numpy(((h >> np.uint64(8)).astype(np.float64) / 2**24 - 0.5).astype(np.float32))
