"""Decides with which options an ONNX package runs on this device, and what memory that takes.

The graph fixes the element type of keys and values. The runtime reserves them for a whole sequence when it starts, in
one piece of the length that the sequence may reach, so the formula is exact: layers x KV heads x (key + value length)
x bytes x tokens x slots. Weights are mapped, and repacked copies of the quantised matrices are kept beside them.
"""

from __future__ import annotations

from functools import partial

from edge.devices.probe import DeviceFacts
from edge.memory.capacity import MIB, CapacityPlan
from edge.memory.geometry import ModelGeometry
from edge.memory.kv import CacheElement, KvType
from edge.packages.package import Package
from edge.runtime.onnx.options import OnnxOptions
from edge.runtime.plan import PlanRequest, StaticPlan
from edge.scheduling.tuning import MOST_THREADS
from shared.errors import InsufficientMemory, SettingsError

_FEATURES = frozenset({"structured_output", "logprobs"})
"""Without `tools`: the engine does not read calls out of an answer."""
_RUNTIME_BYTES = 96 * MIB
"""Interpreter, runtime and libraries."""
_RUNTIME_BYTES_PER_VOCABULARY_TOKEN = 1024
"""The vocabulary is held twice: by the runtime for the template, and by the grammar engine as a trie."""
_LOGIT_BYTES = 4
_ELEMENT_BYTES = {CacheElement.F32: 4, CacheElement.F16: 2}
_CONTEXT_STEP_TOKENS = 256


def plan_onnx(package: Package, device: DeviceFacts, request: PlanRequest) -> StaticPlan:
    """Threads, slots and context for `package` on `device`.

    Raises:
        InsufficientMemory: not even the minimum context fits; names needed and free bytes.
        SettingsError: an option is out of range or does not suit the package.
    """
    _refuse_unsuitable(request)
    geometry = package.manifest.geometry
    trained = geometry.trained_context_tokens
    asked = request.context_tokens
    if asked is not None and asked > trained:
        raise SettingsError(
            f"A context of {asked} tokens was asked for; this model was trained for {trained}.", param="context_tokens"
        )
    fits = partial(_capacity, package, request)
    least = asked if asked is not None else min(request.minimum_context_tokens, trained)
    smallest = fits(request.slots, least)
    if smallest.total_bytes > device.memory_available_bytes:
        raise InsufficientMemory(
            f"A context of {least} tokens in {request.slots} slot(s) needs {smallest.total_bytes} bytes of memory; "
            f"{device.memory_available_bytes} bytes are free.",
            needed_bytes=smallest.total_bytes,
            free_bytes=device.memory_available_bytes,
        )
    room = device.memory_available_bytes - smallest.total_bytes
    more = room // (request.slots * _bytes_per_token(geometry, _element(package)))
    largest = (least + more) // _CONTEXT_STEP_TOKENS * _CONTEXT_STEP_TOKENS
    most = min(trained, request.maximum_context_tokens or trained)
    context_tokens = asked if asked is not None else max(least, min(largest, most))
    threads = request.threads or min(max(1, device.cores_usable - 1), MOST_THREADS)
    return _shaped(package, request, threads, request.slots, context_tokens)


def _shaped(package: Package, request: PlanRequest, threads: int, slots: int, context_tokens: int) -> StaticPlan:
    return StaticPlan(
        package=package,
        geometry=package.manifest.geometry,
        options=OnnxOptions(
            model_alias=package.name,
            context_tokens=context_tokens,
            slots=slots,
            threads=threads,
            prefill_tokens=request.read_tokens,
        ),
        capacity=_capacity(package, request, slots, context_tokens),
        shape=partial(_shaped, package, request, threads),
        features=_FEATURES,
    )


def _refuse_unsuitable(request: PlanRequest) -> None:
    """What this runtime cannot do is refused, never ignored."""
    if request.kv_type is not KvType.F16:
        raise SettingsError("An ONNX package fixes its KV type; edge.memory.kv_type must be f16.", param="kv_type")
    if request.lock_weights:
        raise SettingsError("The weights of an ONNX package cannot be locked (edge.memory.lock).", param="lock")
    if request.prompt_cache_mib:
        raise SettingsError("An ONNX package is run without a prompt cache.", param="prompt_cache_mib")


def _capacity(package: Package, request: PlanRequest, slots: int, context_tokens: int) -> CapacityPlan:
    geometry, element = package.manifest.geometry, _element(package)
    weight_bytes = sum(package.manifest.model.weight_bytes.values())
    vocabulary = (_RUNTIME_BYTES_PER_VOCABULARY_TOKEN + _LOGIT_BYTES * slots) * geometry.vocabulary_tokens
    return CapacityPlan(
        context_tokens=context_tokens,
        slots=slots,
        kv_type=element,
        weights_bytes=2 * weight_bytes,  # mapped, and repacked
        kv_bytes=slots * context_tokens * _bytes_per_token(geometry, element),
        overhead_bytes=_RUNTIME_BYTES + vocabulary + _compute_bytes(geometry, request.read_tokens),
        reserve_bytes=request.reserve_bytes,
    )


def _compute_bytes(geometry: ModelGeometry, prefill_tokens: int) -> int:
    """Activations of one step: the widest rows of a layer, and the logits of every token of a prompt's part."""
    rows = 8 * geometry.embedding_length + 4 * geometry.feed_forward_length + geometry.vocabulary_tokens
    return 4 * rows * prefill_tokens


def _bytes_per_token(geometry: ModelGeometry, element: CacheElement) -> int:
    per_head = geometry.key_length + geometry.value_length
    return sum(geometry.kv_heads_by_layer) * per_head * _ELEMENT_BYTES[element]


def _element(package: Package) -> CacheElement:
    return CacheElement(package.manifest.model.kv_element or CacheElement.F32)
