#!/usr/bin/env python3
"""Writes ops.safetensors: inputs, results and gradients of every operator as PyTorch computes them.

usage: make_ops.py [OUT]      needs torch and safetensors (versions used are stored in the file's metadata)

A case NAME has tensors NAME/in0, NAME/in1, …, NAME/out, NAME/weight (the gradient fed to backward) and
NAME/grad0, … for each input that has one. ops_golden_test.cpp holds the same operator under the same name.
"""
import math
import sys
import zlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

cases = {}


def case(name, function, *inputs, no_grad=()):
    """Runs a case. Inputs are tensors; floating ones get a gradient unless their index is in no_grad."""
    leaves = [t.clone().requires_grad_() if t.is_floating_point() and i not in no_grad else t
              for i, t in enumerate(inputs)]
    out = function(*leaves)
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    assert name not in (n.split("/")[0] for n in cases), name
    for i, t in enumerate(inputs):
        cases[f"{name}/in{i}"] = t.contiguous().clone()
    cases[f"{name}/out"] = out.detach().contiguous().clone()
    if out.requires_grad:
        weight = torch.randn(out.shape, generator=generator).to(out.dtype)
        out.backward(weight)
        cases[f"{name}/weight"] = weight
        for i, t in enumerate(leaves):
            if t.requires_grad:
                cases[f"{name}/grad{i}"] = (t.grad if t.grad is not None else torch.zeros_like(t)).contiguous().clone()


torch.manual_seed(20)
r = torch.randn
u = torch.rand
x = r(3, 5)
positive = u(3, 5) + 0.2

# unary
for name in ("neg abs exp expm1 sin cos tanh sigmoid relu square erf sign floor ceil round").split():
    case(name, getattr(torch, name), x)
for name in ("log", "log1p", "sqrt", "rsqrt", "reciprocal"):
    case(name, getattr(torch, name), positive)
case("leaky_relu", lambda t: F.leaky_relu(t, 0.2), x)
case("elu", lambda t: F.elu(t, 0.7), x)
case("gelu", F.gelu, x)
case("gelu_tanh", lambda t: F.gelu(t, approximate="tanh"), x)
case("silu", F.silu, x)
case("softplus", F.softplus, x)
case("clamp", lambda t: t.clamp(-0.5, 0.8), x)

# binary
a, b = r(3, 5), r(3, 5)
for name in ("add", "sub", "mul", "maximum", "minimum"):
    case(name, getattr(torch, name), a, b)
case("div", torch.div, a, positive)
case("pow", torch.pow, positive, b)
case("pow_scalar", lambda t: t.pow(3), a)
case("add_broadcast", torch.add, r(4, 1, 3), r(2, 1))
case("mul_scalar", lambda t: t * 2.5, a)
case("rsub_scalar", lambda t: 1.5 - t, a)
for name in ("eq", "ne", "lt", "le", "gt", "ge"):
    case(name, getattr(torch, name), torch.tensor([1.0, 2.0, 3.0, float("nan")]), torch.tensor([1.0, 3.0, 2.0, 1.0]),
         no_grad=(0, 1))
case("where", torch.where, torch.tensor([[True, False, True]]), r(2, 3), r(2, 1))
case("masked_fill", lambda t, m: t.masked_fill(m, -2.0), r(2, 3), torch.tensor([[True, False, False]]))

# reductions
t3 = r(2, 3, 4)
case("sum", lambda t: t.sum(), t3)
case("sum_dims", lambda t: t.sum((0, 2)), t3)
case("mean", lambda t: t.mean(), t3)
case("mean_keepdim", lambda t: t.mean((1,), keepdim=True), t3)
case("prod", lambda t: t.prod(), r(2, 3))
case("prod_dim", lambda t: t.prod(1), torch.tensor([[1.5, 0.0, 2.0], [0.5, -1.0, 3.0]]))
case("max", lambda t: t.max(), t3)
case("max_dim", lambda t: t.max(1).values, t3)
case("min_dim", lambda t: t.min(2).values, t3)
case("amax", lambda t: t.amax((0, 1)), t3)
case("argmax", lambda t: t.argmax(1), t3, no_grad=(0,))
case("argmin", lambda t: t.argmin(2), t3, no_grad=(0,))
case("var", lambda t: t.var((1, 2)), t3)
case("var_population", lambda t: t.var((0,), correction=0), t3)
case("stddev", lambda t: t.std((2,)), t3)
case("norm", lambda t: torch.linalg.vector_norm(t), t3)
case("norm1_dim", lambda t: torch.linalg.vector_norm(t, 1, (1,)), t3)
case("norm3_dim", lambda t: torch.linalg.vector_norm(t, 3, (2,)), t3)
case("norm_inf", lambda t: torch.linalg.vector_norm(t, math.inf), t3)
case("logsumexp", lambda t: t.logsumexp((1,)), t3)
case("cumsum", lambda t: t.cumsum(1), t3)
case("softmax", lambda t: t.softmax(-1), t3)
case("softmax_dim1", lambda t: t.softmax(1), t3)
case("log_softmax", lambda t: t.log_softmax(2), t3)

# views and joins
case("reshape", lambda t: t.reshape(4, -1), t3)
case("permute", lambda t: t.permute(2, 0, 1), t3)
case("transpose", lambda t: t.transpose(0, 2), t3)
case("slice", lambda t: t[:, 0:3:2], t3)
case("select", lambda t: t[:, -1], t3)
case("narrow", lambda t: t.narrow(2, 1, 2), t3)
case("expand", lambda t: t.expand(3, 4), r(3, 1))
case("squeeze", lambda t: t.squeeze(1), r(2, 1, 3))
case("unsqueeze", lambda t: t.unsqueeze(1), r(2, 3))
case("flatten", lambda t: t.flatten(1), t3)
case("split", lambda t: t.split((1, 3), 2)[1], t3)
case("chunk", lambda t: t.chunk(2, 1)[0], t3)
case("cat", lambda p, q: torch.cat((p, q), 1), r(2, 3), r(2, 2))
case("stack", lambda p, q: torch.stack((p, q), 1), r(2, 3), r(2, 3))
case("pad", lambda t: F.pad(t, (1, 2, 0, 1), value=0.5), r(2, 3))

# indexing
case("gather", lambda t, i: t.gather(1, i), r(3, 4), torch.tensor([[0, 2], [3, 3], [1, 0]]))
case("index_select", lambda t, i: t.index_select(0, i), r(4, 3), torch.tensor([2, 0, 2]))
case("scatter_add", lambda t, i, s: t.scatter_add(1, i, s), r(2, 4), torch.tensor([[0, 0, 3], [1, 2, 1]]), r(2, 3))
case("embedding", lambda w, i: F.embedding(i, w), r(5, 3), torch.tensor([[1, 4], [1, 0]]))
case("one_hot", lambda i: F.one_hot(i, 4), torch.tensor([0, 3, 1]))
case("topk", lambda t: t.topk(2, 1).values, r(3, 5))
case("sort", lambda t: t.sort(1, descending=True).values, r(3, 5))
case("argsort", lambda t: t.argsort(0), r(4, 3), no_grad=(0,))

# products
case("matmul", torch.matmul, r(3, 4), r(4, 5))
case("matmul_vector", torch.matmul, r(3, 4), r(4))
case("matmul_dot", torch.matmul, r(4), r(4))
case("matmul_batch", torch.matmul, r(2, 1, 3, 4), r(5, 4, 2))
case("linear", F.linear, r(2, 3, 4), r(5, 4), r(5))
case("attention", F.scaled_dot_product_attention, r(2, 3, 4, 5), r(2, 3, 6, 5), r(2, 3, 6, 5))
case("attention_causal", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
     r(1, 2, 4, 3), r(1, 2, 4, 3), r(1, 2, 4, 3))
case("attention_mask", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m),
     r(1, 2, 3, 4), r(1, 2, 5, 4), r(1, 2, 5, 4), torch.tensor([[1, 1, 0, 1, 0], [1, 0, 0, 0, 1], [0, 1, 1, 1, 1]]).bool())

# convolution and pooling
image = r(2, 4, 7, 6)
case("conv2d", lambda i, w, c: F.conv2d(i, w, c, padding=1), image, r(6, 4, 3, 3), r(6))
case("conv2d_stride", lambda i, w: F.conv2d(i, w, stride=2, padding=(1, 2)), image, r(5, 4, 3, 5))
case("conv2d_groups", lambda i, w, c: F.conv2d(i, w, c, groups=2, padding=1), image, r(6, 2, 3, 3), r(6))
case("conv2d_depthwise", lambda i, w: F.conv2d(i, w, groups=4, padding=1), image, r(4, 1, 3, 3))
case("conv2d_dilation", lambda i, w: F.conv2d(i, w, dilation=2), image, r(3, 4, 3, 2))
case("conv2d_wide", lambda i, w, c: F.conv2d(i, w, c, padding=1), r(1, 16, 6, 5), r(8, 16, 3, 3) * 0.2, r(8))
case("conv2d_one_channel", lambda i, w, c: F.conv2d(i, w, c, padding=1), r(2, 1, 6, 5), r(8, 1, 3, 3), r(8))
case("conv_transpose2d", lambda i, w, c: F.conv_transpose2d(i, w, c, stride=2, padding=1, output_padding=1),
     r(2, 4, 3, 4), r(4, 3, 3, 3), r(3))
case("conv_transpose2d_groups", lambda i, w: F.conv_transpose2d(i, w, groups=2, dilation=2), r(1, 4, 3, 3), r(4, 2, 2, 2))
case("max_pool2d", lambda i: F.max_pool2d(i, 2), image)
case("max_pool2d_padded", lambda i: F.max_pool2d(i, 3, 2, 1, ceil_mode=True), image)
case("avg_pool2d", lambda i: F.avg_pool2d(i, (2, 3), 2, (1, 1)), image)
case("avg_pool2d_exclude", lambda i: F.avg_pool2d(i, 3, 2, 1, count_include_pad=False), image)
case("adaptive_avg_pool2d", lambda i: F.adaptive_avg_pool2d(i, (3, 2)), image)
case("adaptive_max_pool2d", lambda i: F.adaptive_max_pool2d(i, (2, 3)), image)

# norms
case("batch_norm", lambda i, w, c: F.batch_norm(i, None, None, w, c, True), image, r(4), r(4))
case("batch_norm_eval", lambda i, m, v, w, c: F.batch_norm(i, m, v, w, c, False), image, r(4), u(4) + 0.5, r(4), r(4),
     no_grad=(1, 2))
case("batch_norm1d", lambda i, w, c: F.batch_norm(i, None, None, w, c, True), r(6, 3), r(3), r(3))
case("layer_norm", lambda i, w, c: F.layer_norm(i, (4,), w, c), t3, r(4), r(4))
case("layer_norm2", lambda i: F.layer_norm(i, (3, 4)), t3)
case("group_norm", lambda i, w, c: F.group_norm(i, 2, w, c), image, r(4), r(4))
case("rms_norm", lambda i, w: F.rms_norm(i, (4,), w, eps=1e-5), t3, r(4))

# losses
logits, labels = r(5, 4), torch.tensor([1, 3, 0, -100, 2])
case("cross_entropy", F.cross_entropy, logits, labels)
case("cross_entropy_sum", lambda l, t: F.cross_entropy(l, t, reduction="sum"), logits, labels)
case("cross_entropy_none", lambda l, t: F.cross_entropy(l, t, reduction="none"), logits, labels)
case("cross_entropy_smooth", lambda l, t: F.cross_entropy(l, t, label_smoothing=0.1), logits, labels)
case("cross_entropy_weights", lambda l, t, w: F.cross_entropy(l, t, weight=w), logits, labels, u(4) + 0.1, no_grad=(2,))
case("cross_entropy_weights_smooth", lambda l, t, w: F.cross_entropy(l, t, weight=w, label_smoothing=0.2),
     logits, labels, u(4) + 0.1, no_grad=(2,))
case("cross_entropy_probabilities", F.cross_entropy, logits, r(5, 4).softmax(1), no_grad=(1,))
case("cross_entropy_image", F.cross_entropy, r(2, 3, 2, 2), torch.tensor([[[0, 2], [1, 1]], [[2, 2], [0, -100]]]))
case("nll_loss", F.nll_loss, logits.log_softmax(1), labels)
case("mse_loss", F.mse_loss, r(3, 4), r(3, 4))
case("l1_loss", F.l1_loss, r(3, 4), r(3, 4))
case("smooth_l1_loss", lambda p, q: F.smooth_l1_loss(p, q, beta=0.5), r(3, 4), r(3, 4))
case("bce_with_logits", F.binary_cross_entropy_with_logits, r(3, 4), u(3, 4), no_grad=(1,))

# Below, what was added later: the draws above stay as they are.

# creation and copies
case("zeros", lambda: torch.zeros(2, 3))
case("ones", lambda: torch.ones(2, 3, dtype=torch.int64))
case("full", lambda: torch.full((2, 3), 1.5))
case("zeros_like", torch.zeros_like, torch.tensor([[1, 2]]))
case("ones_like", lambda t: torch.ones_like(t.detach()), r(2, 3), no_grad=(0,))
case("full_like", lambda t: torch.full_like(t, 7), torch.tensor([[1, 2]]))
case("arange", lambda: torch.arange(5))
case("arange_step", lambda: torch.arange(1, -2, -0.3))
case("linspace", lambda: torch.linspace(-1, 2, 7))
case("eye", lambda: torch.eye(3, 4))
case("fill_", lambda t: t.clone().fill_(3), torch.tensor([[1, 2]]))
case("zero_", lambda t: t.clone().zero_(), torch.tensor([[1, 2]]))
case("clone", torch.clone, r(2, 3))
case("to_f64", lambda t: t.to(torch.float64), r(2, 3))
case("to_i32", lambda t: t.to(torch.int32), torch.tensor([-2.7, -0.5, 0.5, 2.7]), no_grad=(0,))
case("copy_", lambda t, s: t.clone().copy_(s), torch.zeros(2, 3), r(3), no_grad=(0,))

# conditions
special = torch.tensor([0.0, -0.0, 2.0, -3.0, float("nan"), float("inf"), -float("inf")])
for name in ("logical_not", "isnan", "isinf", "isfinite"):
    case(name, getattr(torch, name), special, no_grad=(0,))
for name in ("logical_and", "logical_or", "logical_xor"):
    case(name, getattr(torch, name), special, special.flip(0), no_grad=(0, 1))

# reductions: ties, other orders, the adjoint of broadcasting
ties = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, -1.0]])
case("amin", lambda t: t.amin((0, 2)), r(2, 3, 4))
case("amin_ties", lambda t: t.amin((1,)), torch.tensor([[1.0, 1.0, 3.0], [2.0, -1.0, -1.0]]))
case("amax_ties", lambda t: t.amax((1,)), ties)
case("max_dim_ties", lambda t: t.max(1).values, ties)
case("max_ties", lambda t: t.max(), ties)
case("min", lambda t: t.min(), r(2, 3, 4))
case("argmax_all", lambda t: t.argmax(), ties, no_grad=(0,))
case("sum_to", lambda t: t.sum_to_size(3, 1), r(2, 3, 4))
case("norm_neg_inf", lambda t: torch.linalg.vector_norm(t, -math.inf, (1,)), r(2, 3))
case("norm0", lambda t: torch.linalg.vector_norm(t, 0, (1,)), torch.tensor([[0.0, 2.0], [1.0, -1.0]]), no_grad=(0,))
case("norm_of_zeros", lambda t: torch.linalg.vector_norm(t, 2, (1,)), torch.tensor([[0.0, 0.0], [3.0, -4.0]]))
case("sort_ties", lambda t: t.sort(dim=1, stable=True).values, ties)
case("topk_smallest", lambda t: t.topk(2, 0, largest=False).values, r(4, 3))
case("pad_negative", lambda t: F.pad(t, (-1, 2)), r(2, 3))

# options of the larger operators
case("attention_scale_mask", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m, scale=0.3),
     r(2, 2, 3, 4), r(2, 2, 5, 4), r(2, 2, 5, 3), r(3, 5))
case("conv_transpose2d_dilation", lambda i, w: F.conv_transpose2d(i, w, stride=(2, 1), padding=(1, 2), dilation=(1, 3)),
     r(1, 3, 4, 5), r(3, 2, 3, 2))
case("max_pool2d_dilation", lambda i: F.max_pool2d(i, (2, 3), (1, 2), (1, 1), (2, 1)), r(2, 3, 6, 7))
case("avg_pool2d_ceil", lambda i: F.avg_pool2d(i, 3, 2, 1, ceil_mode=True), r(1, 2, 6, 8))
case("batch_norm3d", lambda i, w: F.batch_norm(i, None, None, w, None, True, eps=1e-3), r(2, 3, 2, 2, 3), r(3))
case("group_norm1d", lambda i: F.group_norm(i, 3, eps=1e-3), r(3, 6, 4))
case("rms_norm2", lambda i: F.rms_norm(i, (3, 4), eps=1e-2), r(2, 3, 4))
case("cross_entropy_probabilities_smooth", lambda l, t, w: F.cross_entropy(l, t, w, label_smoothing=0.2),
     r(5, 4), r(5, 4).softmax(1), u(4) + 0.1, no_grad=(1, 2))
case("nll_loss_weights", lambda l, t, w: F.nll_loss(l, t, w, reduction="sum"), r(5, 4).log_softmax(1), labels, u(4) + 0.1,
     no_grad=(2,))
case("mse_loss_none", lambda p, q: F.mse_loss(p, q, reduction="none"), r(3, 4), r(3, 4))
case("l1_loss_sum", lambda p, q: F.l1_loss(p, q, reduction="sum"), r(3, 4), r(3, 4))
case("bce_with_logits_weight", lambda p, q, w: F.binary_cross_entropy_with_logits(p, q, pos_weight=w),
     r(3, 4), u(3, 4), u(4) + 0.5, no_grad=(1, 2))
case("batch_norm_relu", lambda i, w, c, z: F.relu(F.batch_norm(i, None, None, w, c, True) + z), image, r(4), r(4),
     r(image.shape))
case("batch_norm_relu_eval", lambda i, m, v, w, c: F.relu(F.batch_norm(i, m, v, w, c, False)), image, r(4), u(4) + 0.5,
     r(4), r(4), no_grad=(1, 2))

out = sys.argv[1] if len(sys.argv) > 1 else __file__.replace("make_ops.py", "ops.safetensors")
save_file(cases, out, metadata={"made_by": "tests/golden/make_ops.py", "torch": torch.__version__.split("+")[0]})
print(len({n.split("/")[0] for n in cases}), "cases")
