"""ExecuTorch: one `.pte` file, a flatbuffer with an extended header and data segments behind it.

Source: executorch schema/program.fbs and extended_header.cpp. Read are the methods, their operators and the delegates
that they need; the instructions are the runtime's to judge.
"""

from __future__ import annotations

import struct

from edge.packages.formats.entry import Inspection
from edge.packages.formats.files import Files
from edge.packages.formats.flatbuffer import Table, root_of
from shared.errors import ModelCorrupt

_IDENTIFIER = b"ET12"
_HEADER_MAGIC = b"eh00"
_PROGRAM_LIMIT_BYTES = 32 << 20
_PLANS_LIMIT = 256
_NAMES_LIMIT = 4096
# Field numbers of Program, ExecutionPlan, Operator, BackendDelegate and DataSegment.
_VERSION, _PLANS, _SEGMENTS = 0, 1, 4
_PLAN_NAME, _PLAN_OPERATORS, _PLAN_DELEGATES = 0, 6, 7


def recognise(files: Files) -> bool:
    """One file with the schema's identifier."""
    return len(files.names) == 1 and files.head(files.names[0], 8)[4:8] == _IDENTIFIER


def inspect(files: Files) -> Inspection:
    """Verify the structure.

    Raises:
        ModelCorrupt: the file ends early, or an offset leads out of it.
    """
    (name,) = files.names
    file_bytes = files.size_bytes(name)
    program_bytes, segment_base = _extended_header(files.head(name, 64), file_bytes)
    if program_bytes > _PROGRAM_LIMIT_BYTES:
        raise ModelCorrupt(
            f"At byte 16: the program has {program_bytes} bytes; at most {_PROGRAM_LIMIT_BYTES} are read.",
            param="program_size",
        )
    program = root_of(files.head(name, program_bytes), "program")
    segments = _segments(program, segment_base, file_bytes)
    plans = program.tables(_PLANS, _PLANS_LIMIT)
    if not plans:
        raise ModelCorrupt("The program has no method.", param="execution_plan")
    return Inspection(
        details={
            "schema_version": program.uint32(_VERSION),
            "methods": tuple(plan.text(_PLAN_NAME) for plan in plans),
            "operators": _distinct(plans, _PLAN_OPERATORS),
            "delegates": _distinct(plans, _PLAN_DELEGATES),
            "segments": segments,
            "program_bytes": program_bytes,
        }
    )


def _extended_header(head: bytes, file_bytes: int) -> tuple[int, int]:
    """Bytes of the program and where segments begin (0: no segments); without such a header the file is the program."""
    if head[8:12] != _HEADER_MAGIC:
        return file_bytes, 0
    if len(head) < 32:
        raise ModelCorrupt(
            f"At byte 8: the extended header is truncated; the file has {file_bytes} bytes.", param="eh00"
        )
    length, program_bytes, segment_base = struct.unpack_from("<IQQ", head, 12)
    if length < 24:
        raise ModelCorrupt(
            f"At byte 12: the header's length is {length}; at least 24 is needed.", param="header_length"
        )
    if not 8 <= program_bytes <= file_bytes:
        raise ModelCorrupt(
            f"At byte 16: the program has {program_bytes} bytes, the file {file_bytes}.", param="program_size"
        )
    if segment_base and not program_bytes <= segment_base <= file_bytes:
        raise ModelCorrupt(
            f"At byte 24: segments begin at {segment_base}, outside the {file_bytes - program_bytes} bytes behind the "
            "program.",
            param="segment_base_offset",
        )
    return program_bytes, segment_base


def _segments(program: Table, segment_base: int, file_bytes: int) -> int:
    segments = program.tables(_SEGMENTS, _NAMES_LIMIT)
    for index, segment in enumerate(segments):
        offset, size = segment.uint64(0), segment.uint64(1)
        if not segment_base or segment_base + offset + size > file_bytes:
            raise ModelCorrupt(
                f"At byte {segment.offset}: segment {index} ends at {segment_base + offset + size}; the file has "
                f"{file_bytes} bytes.",
                param=f"segments.{index}",
            )
    return len(segments)


def _distinct(plans: list[Table], field: int) -> tuple[str, ...]:
    return tuple(sorted({entry.text(0) for plan in plans for entry in plan.tables(field, _NAMES_LIMIT)}))
