# SPDX-License-Identifier: Apache-2.0
"""The C interface says all that the C++ one says: each field of an op's arguments, each enumerator, each op.

    fields.py INCLUDE

What the C interface has under another name, or in two fields, stands in the tables below.
"""

import re
import sys
from pathlib import Path

from c_header import COMMENT, Interface, read_interface

# C++ struct → C struct. Structs of ops (…Args) that are missing here are findings.
STRUCTS = {
    "FlashAttentionArgs": "quire_flash_attention_args",
    "FusedQkvArgs": "quire_fused_qkv_matmul_args",
    "LinearArgs": "quire_linear_args",
    "MergeStatesArgs": "quire_merge_states_args",
    "MlaDecodeArgs": "quire_mla_decode_args",
    "MlaIndexerArgs": "quire_mla_indexer_args",
    "MlaPrefillArgs": "quire_mla_prefill_args",
    "MlaPrefillPlanArgs": "quire_mla_prefill_plan_args",
    "QuantizeFp8Args": "quire_quantize_fp8_args",
    "QuantizeIndexQueriesArgs": "quire_quantize_index_queries_args",
    "RemapSparseIndicesArgs": "quire_remap_sparse_indices_args",
    "RmsNormArgs": "quire_rms_norm_args",
    "RopeArgs": "quire_rope_args",
    "RowOffsetsArgs": "quire_row_offsets_args",
    "SparseMlaArgs": "quire_sparse_mla_args",
    "StoreArgs": "quire_store_args",
    "StoreScalesArgs": "quire_store_scales_args",
    "StoreIndexKeysArgs": "quire_store_index_keys_args",
    "CompressKeysArgs": "quire_compress_keys_args",
    "SelectBlocksArgs": "quire_select_blocks_args",
    "CopyPagesArgs": "quire_copy_pages_args",
    "SparseExtra": "quire_sparse_extra",
    "MlaPrefillChunks": "quire_mla_prefill_chunks",
    "PagedKVCache": "quire_cache",
    "RowPart": "quire_row_part",
    "RowFormat": "quire_row_format",
    "Context": "quire_context",
    "Weight": "quire_weight",
    "PackedShape": "quire_packed_form",
    "Node": "quire_mask",
}
# (C++ struct, field) → C fields, where they are not one of the same name.
RENAMED = {
    ("RmsNormArgs", "side"): (),  # two functions
    ("RmsNormArgs", "per_head"): ("whole_token",),
    ("RmsNormArgs", "multiply_before_cast"): ("cast_before_multiply",),
    ("RopeArgs", "rotate_key"): ("q_only",),
    ("RopeArgs", "mrope_sections"): ("mrope_sections", "num_mrope_sections"),
    ("Context", "parallel_for"): ("parallel_for", "parallel_for_user"),
    ("Context", "workspace_allocator"): ("allocate_workspace", "allocate_user"),
    ("Weight", "packing"): (),  # of the packed weight's handle
    ("Weight", "packed"): ("packed",),
}
# C fields that no C++ field of the same struct stands behind.
OWN = {
    "quire_cache": {"blocks_dtype"},
    "quire_packed_form": {"format", "packing", "group_size", "has_perm"},  # of Weight
}
# C++ enum → prefix of the C enumerators.
ENUMS = {
    "DType": "QUIRE_DTYPE_",
    "MaskKind": "QUIRE_MASK_",
    "WeightFormat": "QUIRE_WEIGHT_",
    "WeightPacking": "QUIRE_PACKING_",
    "ScaleSource": "QUIRE_SCALE_SOURCE_",
    "Activations": "QUIRE_ACTIVATIONS_",
    "KvSide": "QUIRE_SIDE_",
    "ScaleRounding": "QUIRE_SCALE_ROUNDING_",
    "ErrorCode": "QUIRE_",
}
STRUCT = re.compile(r"\bstruct\s+(?:QUIRE_API\s+)?(\w+)\s*\{")
FIELD = re.compile(r"(?:std::optional<[\w:]+>|std::vector<[\w:]+>|std::array<[^>]+>|[\w:]+\s*\*?)\s+(\w+)\s*(?:\{\}|=[^;]*)?")
ENUM = re.compile(r"\benum class\s+(\w+)[^{;]*\{([^}]*)\}")


def fields_of(text: str, begin: int) -> list[str]:
    """Data members of the struct whose body begins there: declarations at its own depth without parentheses."""
    found, depth, part = [], 0, ""
    for letter in text[begin:]:
        depth += (letter == "{") - (letter == "}")
        if depth < 0:
            break
        if letter == "}" and depth == 0 and ("(" in part or "struct" in part):
            part = ""  # a function's body, or a struct inside
            continue
        if letter == ";" and depth == 0:
            declaration = " ".join(part.split())
            match = FIELD.fullmatch(declaration)
            if match and not declaration.startswith(("static", "using")) and "operator" not in declaration:
                found.append(match[1])
            part = ""
            continue
        part += letter
        if part.endswith(("public:", "private:")):
            part = ""
    return found


def cpp_headers(include: Path) -> list[str]:
    folder = include / "quire"
    return [COMMENT.sub(" ", path.read_text()) for path in sorted([*folder.glob("*.h"), *folder.glob("ops/*.h")])]


def cpp_structs(include: Path) -> dict[str, list[str]]:
    found = {}
    for text in cpp_headers(include):
        for match in STRUCT.finditer(text):
            if match[1] in STRUCTS or match[1].endswith("Args"):
                found[match[1]] = fields_of(text, match.end())
    return found


def cpp_enums(include: Path) -> dict[str, list[str]]:
    found = {}
    for text in cpp_headers(include):
        for name, body in ENUM.findall(text):
            found[name] = [part.split("=")[0].strip() for part in body.split(",") if part.strip()]
    return found


def struct_differences(structs: dict[str, list[str]], interface: Interface) -> list[str]:
    found = [f"{name}: no struct of the C interface" for name in sorted(structs) if name not in STRUCTS]
    for name, c_name in STRUCTS.items():
        if name not in structs or c_name not in interface.structs:
            found.append(f"{name} or {c_name} is gone")
            continue
        there = {field for _, field in interface.structs[c_name]} - {"struct_size", "reserved"}
        wanted = {target for field in structs[name] for target in RENAMED.get((name, field), (field,))}
        found += [f"{c_name}: lacks '{field}' of {name}" for field in sorted(wanted - there)]
        found += [f"{c_name}: '{field}' is not in {name}" for field in sorted(there - wanted - OWN.get(c_name, set()))]
    return found


def enum_differences(enums: dict[str, list[str]], interface: Interface) -> list[str]:
    found = []
    for name, prefix in ENUMS.items():
        wanted = [prefix + value.upper() for value in enums.get(name, [])] or [f"an enumerator of {name}"]
        found += [f"{value}: missing, {name} has it" for value in wanted if value not in interface.enumerators]
    return found


def op_differences(interface: Interface) -> list[str]:
    """Each args struct has its function and its number; the two norms share a struct."""
    ops = {name.removeprefix("quire_").removesuffix("_args") for name in interface.structs if name.endswith("_args")}
    ops = (ops - {"rms_norm", "absorb_kv_b_proj"}) | {"rms_norm_key", "rms_norm_value"}
    numbered = {name.removeprefix("QUIRE_OP_").lower() for name in interface.enumerators if name.startswith("QUIRE_OP_")}
    functions = {name.removeprefix("quire_") for name in interface.functions}
    return [f"{op}: no QUIRE_OP_ number" for op in sorted(ops - numbered)] + [
        f"{op}: no function or no struct" for op in sorted((ops - functions) | (numbered - ops))
    ]


def main(include: str) -> int:
    interface = read_interface(Path(include))
    structs = cpp_structs(Path(include))
    found = struct_differences(structs, interface) + op_differences(interface)
    found += enum_differences(cpp_enums(Path(include)), interface)
    for line in found:
        print(line)
    print(f"{sum(map(len, structs.values()))} fields of {len(structs)} structs, {len(found)} finding(s)")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
