#!/usr/bin/env python3
"""Writes optim.safetensors: what PyTorch's fused optimizers make of a parameter, given its gradients.

usage: make_optim.py [OUT]      needs torch and safetensors

"start" [37] and "gradients" [12, 37] are f64; CASE.f64 and CASE.f32 are the parameter after all steps, and
clip_norm the gradients of the first step clipped to a norm of 1.
"""
import sys

import torch
from safetensors.torch import save_file

STEPS, COUNT = 12, 37
torch.manual_seed(0)
torch.set_num_threads(1)

CASES = {
    "sgd": (torch.optim.SGD, dict(lr=0.1)),
    "sgd_decay": (torch.optim.SGD, dict(lr=0.1, weight_decay=0.05)),
    "sgd_momentum": (torch.optim.SGD, dict(lr=0.05, momentum=0.9, weight_decay=0.01)),
    "sgd_dampening": (torch.optim.SGD, dict(lr=0.05, momentum=0.9, dampening=0.3)),
    "sgd_nesterov": (torch.optim.SGD, dict(lr=0.05, momentum=0.8, nesterov=True, weight_decay=0.01)),
    "adam": (torch.optim.Adam, dict(lr=0.02)),
    "adam_decay": (torch.optim.Adam, dict(lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)),
    "adamw": (torch.optim.AdamW, dict(lr=0.02)),
    "adamw_decay": (torch.optim.AdamW, dict(lr=0.02, betas=(0.7, 0.9), eps=1e-5, weight_decay=0.2)),
}

start = torch.randn(COUNT, dtype=torch.float64)
gradients = torch.randn(STEPS, COUNT, dtype=torch.float64)
results = {"start": start, "gradients": gradients}
for name, (make, options) in CASES.items():
    for dtype in (torch.float64, torch.float32):
        parameter = torch.nn.Parameter(start.to(dtype, copy=True))
        optimizer = make([parameter], fused=True, **options)
        for gradient in gradients:
            parameter.grad = gradient.to(dtype)
            optimizer.step()
        results[f"{name}.{'f64' if dtype == torch.float64 else 'f32'}"] = parameter.detach().clone()
parameter = torch.nn.Parameter(start.clone())
parameter.grad = gradients[0].clone()
torch.nn.utils.clip_grad_norm_([parameter], 1.0)
results["clip_norm"] = parameter.grad

out = sys.argv[1] if len(sys.argv) > 1 else __file__.replace("make_optim.py", "optim.safetensors")
save_file(results, out, metadata={"made_by": "tests/golden/make_optim.py", "torch": torch.__version__.split("+")[0]})
