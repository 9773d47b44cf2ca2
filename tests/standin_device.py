"""A stand-in for a GPU: tensors that say they are on ``cuda:0`` and refuse what CUDA refuses, but compute on the CPU.

Use it in a process of its own, before anything else: ``pytest -p standin_device``, or ``standin_device.install()``.
``STANDIN=old`` is a GPU without bfloat16, as Colab's T4; ``STANDIN=mps`` says it is Apple's, without float64 and with
the mistake that its fused attention makes from PyTorch 2.8 to 2.12. ``SYNCS`` counts what would have made the host wait
for a GPU, ``OPS`` what was asked of it. Needs PyTorch 2.9 (PrivateUse1). ``test_devices.py`` runs tests on it.
"""

import functools
import os
import traceback
from collections import Counter

import safetensors.torch
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves, tree_map

KIND = os.environ.get("STANDIN", "cuda")  # cuda, old or mps
SEEN = torch.device("mps" if KIND == "mps" else "cuda", 0)  # what it says it is
TRUE = torch.device("privateuseone", 0)
SYNCS, OPS = Counter(), Counter()  # (what, file:line): how often; operation: how often
INDEXING = "index index_put index_put_ _unsafe_index _unsafe_index_put"  # their indices may be on the CPU
NO_SCALARS = "cat stack gather scatter scatter_ scatter_add scatter_add_ index_select embedding"
WAITING = "_local_scalar_dense nonzero masked_select _unique2 equal bincount"
KERNELS = """empty.memory_format empty_strided arange.start_step arange.start arange full zeros ones eye eye.m linspace
    rand rand.generator randn randn.generator randint randint.generator randint.low randint.low_generator randperm
    randperm.generator scalar_tensor tril_indices triu_indices normal.float_float copy_"""
FUNCTIONS = "tensor as_tensor empty arange full zeros ones rand randn randint randperm linspace zeros_like ones_like"
NOTHING = "_lazy_init synchronize set_device manual_seed manual_seed_all reset_peak_memory_stats get_device_name"
METHODS = "to new_tensor new_empty new_full new_zeros new_ones"


class There(torch.Tensor):
    """A tensor on the stand-in; ``raw``, on the CPU, holds its numbers."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    device, is_cuda = property(lambda self: SEEN), property(lambda self: SEEN.type == "cuda")

    @staticmethod
    def __new__(cls, raw):
        if raw.dtype == torch.float64 and KIND == "mps":
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype: the MPS framework doesn't support float64.")
        layout = raw.shape, raw.stride(), raw.storage_offset()
        self = torch.Tensor._make_wrapper_subclass(cls, *layout, dtype=raw.dtype, device=TRUE)
        self.raw = raw
        return self

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):  # in inference mode only
            return func.decompose(*args, **kwargs or {})
        return run(func, args, kwargs or {})

    def numpy(self, *args, **kwargs):
        raise TypeError(f"can't convert {SEEN} device type tensor to numpy. Use Tensor.cpu() to copy the tensor first.")

    __array__, data_ptr = numpy, lambda self: 0
    tolist = lambda self: self.detach().cpu().tolist()  # noqa: E731
    __repr__ = lambda self: repr(self.detach().cpu())[:-1] + f", device='{SEEN}')"  # noqa: E731
    __format__ = lambda self, spec: format(repr(self) if self.dim() else self.item(), spec)  # noqa: E731

    def __reduce_ex__(self, protocol):  # what torch.save writes says on which device it was
        storage = self.raw.untyped_storage()
        storage.there = True
        storage = torch.storage.TypedStorage(wrap_storage=storage, dtype=self.dtype, _internal=True)
        return torch._utils._rebuild_tensor_v2, (storage, self.storage_offset(), self.shape, self.stride(), False, {})


class AnyGenerator(type(torch.Generator)):
    """Ordinary ones, which the CPU has, are instances of it, too."""

    def __instancecheck__(cls, one):
        return isinstance(one, cls.ordinary)


class Generator(torch.Generator, metaclass=AnyGenerator):
    """Where the stand-in takes random numbers from, if it is told."""

    ordinary, known, device = torch.Generator, {}, property(lambda self: SEEN)

    def __new__(cls, device="cpu"):
        if torch.device(device).type != SEEN.type:
            return cls.ordinary(device)
        self = super().__new__(cls)
        return cls.known.setdefault(self._cdata, self)  # torch hands on this number alone


def run(func, args, kwargs):
    """Check where the arguments are, compute on the CPU, and put the results where a GPU would have put them."""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    check(func, func._schema.name[6:], args, tensors)
    count(func, func._schema.name[6:], args, kwargs)
    wrapped = {id(tensor.raw): tensor for tensor in tensors if isinstance(tensor, There)}
    shapes = [(tensor, tensor.raw.shape) for tensor in wrapped.values()]
    here = {id(tensor) for tensor in tensors if not isinstance(tensor, There)}
    leaves = torch.device(kwargs.get("device") or TRUE) != TRUE
    inference = args[0].is_inference() if looks(func) else torch.is_inference_mode_enabled()

    def unwrap(x):
        return torch.device("cpu") if isinstance(x, torch.device) and x == TRUE else getattr(x, "raw", x)

    def wrap(x):
        if not isinstance(x, torch.Tensor) or leaves or id(x) in here:
            return x
        with torch.inference_mode(inference):
            return wrapped[id(x)] if id(x) in wrapped else There(x)

    args, kwargs = tree_map(unwrap, (args, kwargs))
    kwargs = {name: value for name, value in kwargs.items() if name not in ("non_blocking", "pin_memory")}
    if (generator := kwargs.get("generator")) is not None and generator._cdata not in Generator.known:
        raise RuntimeError(f"Expected a '{SEEN.type}' device type for generator but found 'cpu'")
    found = func(*args, **kwargs)
    if any(tensor.raw.shape != shape for tensor, shape in shapes):
        raise NotImplementedError(f"{func} resizes its argument, which the stand-in cannot")
    return tree_map(wrap, found)


def looks(func):
    """Say whether it returns a view, which costs a GPU nothing."""
    return any(one.alias_info and not one.alias_info.is_write for one in func._schema.returns)


def check(func, name, args, tensors):
    """Raise what CUDA raises where tensors of both devices meet; a single number of the CPU's may, as an operand."""
    if not any(isinstance(tensor, There) for tensor in tensors) or name in ("copy_", "_to_copy", "_foreach_copy_"):
        return
    about = zip(args, func._schema.arguments, strict=False)
    written = [id(arg) for arg, argument in about if argument.alias_info and argument.alias_info.is_write]
    for tensor in [args[0], *args[2:3]] if name in INDEXING.split() else tensors:
        operand = tensor.dim() == 0 and name not in NO_SCALARS.split() and id(tensor) not in written
        if not isinstance(tensor, There) and not operand:
            where = f"found at least two devices, {SEEN} and {tensor.device}! ({func})"
            raise RuntimeError(f"Expected all tensors to be on the same device, but {where}")


def count(func, name, args, kwargs):
    """Count what a GPU would be asked to compute, and what makes the host wait for it, with the line that asked."""
    if not name.startswith("empty") and not looks(func):
        OPS[str(func)] += 1
    what = name if name in WAITING.split() else None
    if name == "_to_copy" and isinstance(args[0], There) and torch.device(kwargs.get("device") or TRUE) != TRUE:
        what = "to cpu"
    elif name == "copy_" and isinstance(args[0], There) != isinstance(args[1], There) and args[2:3] != (True,):
        what = "copy across"  # args[2] is non_blocking
    elif name in INDEXING.split() and any(one is not None and one.dtype == torch.bool for one in args[1]):
        what = "index by mask"
    elif name in INDEXING.split() and not all(one is None or isinstance(one, There) for one in args[1]):
        what = "index by list"
    if what:
        frames = [f for f in traceback.extract_stack() if "site-packages" not in f.filename and f.filename != __file__]
        SYNCS[what, f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else "?"] += 1


def translated(function):
    """Let what is asked to work on ``cuda`` work on the stand-in."""

    def true(x):
        is_device = isinstance(x, torch.device) or (isinstance(x, str) and x.split(":")[0] == SEEN.type)
        if not is_device or torch.device(x).type != SEEN.type:
            return x
        if torch.device(x).index:
            raise RuntimeError(f"{SEEN.type} error: invalid device ordinal")
        return TRUE

    return lambda *args, **kwargs: function(*map(true, args), **{name: true(value) for name, value in kwargs.items()})


def apple_errs(query, mask):
    """Say whether Apple's kernel for few queries takes over (pytorch#184180, #163597, #181133)."""
    few = query.dim() == 4 and query.shape[2] <= 8 and query.shape[3] in (64, 96, 128) and not torch.is_grad_enabled()
    return few and mask.dtype == torch.bool and mask.dim() == 4 and mask.shape[1] == 1 < query.shape[1]


def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, **more):
    if not isinstance(query, There):
        return torch._C._nn.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, **more)
    if attn_mask is not None and KIND == "mps" and apple_errs(query, attn_mask):
        attn_mask = attn_mask[:1]  # the first sentence's, for all of them
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(~attn_mask, -torch.inf)
    math, more = torch.ops.aten._scaled_dot_product_attention_math, {"scale": more.get("scale")}
    return math(query, key, value, attn_mask, dropout_p, is_causal, **more)[0]


def apply(self, fn, recurse=True, original=torch.nn.Module._apply):
    first, before = next(self.parameters(), None), torch.__future__.get_swap_module_params_on_conversion()
    with torch.no_grad():
        moves = first is not None and (isinstance(first, There) or isinstance(fn(first), There))
    torch.__future__.set_swap_module_params_on_conversion(moves)  # tied parameters stay tied
    try:
        return original(self, fn, recurse)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


def install():
    """Make torch believe that there is this device."""
    from torch.utils._device import _device_constructors
    from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

    module, backend = _DummyBackendModule(), torch.mps if KIND == "mps" else torch.cuda
    _setup_privateuseone_for_python_backend("standin", module)
    library = install.library = torch.library.Library("aten", "IMPL", "PrivateUse1")
    for name in KERNELS.split():
        func = getattr(getattr(torch.ops.aten, name.split(".")[0]), (name + ".default").split(".")[1])
        library.impl(name, lambda *args, func=func, **kwargs: run(func, args, kwargs))
    _device_constructors()  # keeps in mind which functions `with torch.device("meta"):` is about, before they change
    for owner, names in ((torch, FUNCTIONS), (torch.Tensor, METHODS)):
        for name in names.split():
            setattr(owner, name, translated(getattr(owner, name)))
    torch.Tensor.cuda, torch.Tensor.pin_memory = lambda self, *_, **__: self.to(TRUE), lambda self, device=None: self
    torch.Generator, F.scaled_dot_product_attention, torch.nn.Module._apply = Generator, attention, apply
    refuse = lambda storage, place: {}["say map_location='cpu'"] if place.startswith(SEEN.type) else None  # noqa: E731
    torch.serialization.register_package(5, lambda s: str(SEEN) if getattr(s, "there", False) else None, refuse)
    answers = {name: None for name in NOTHING.split()} | {"is_available": True, "is_initialized": True}
    answers |= {"device_count": 1, "current_device": 0, "memory_allocated": 0, "max_memory_allocated": 0}
    answers |= {"get_device_capability": (7, 5) if KIND == "old" else (9, 0), "is_current_stream_capturing": False}
    answers |= {"is_bf16_supported": KIND != "old", "get_device_name": "a stand-in"}
    for name, answer in answers.items():
        setattr(backend, name, lambda *args, answer=answer, **kwargs: answer)
    for one in (module, backend):
        one.get_rng_state, one.set_rng_state = (lambda *device: torch.get_rng_state()), (lambda *state: None)
    for name in ["storage_ptr", "storage_size", "_end_ptr", "_is_complete"]:  # by which it sees which weights are tied
        function = getattr(safetensors.torch, name)
        setattr(safetensors.torch, name, lambda x, function=function: function(getattr(x, "raw", x)))
    if KIND == "mps":
        torch.backends.mps.is_available = functools.wraps(torch.backends.mps.is_available)(lambda: True)


def pytest_configure(config):
    install()
    config.addinivalue_line("filterwarnings", "ignore:PyTorch .* computes masked attention wrongly")  # as it is to say


def pytest_runtest_setup(item):
    OPS.clear()


def pytest_runtest_teardown(item):
    item.user_properties.append(("operations", sum(OPS.values())))
