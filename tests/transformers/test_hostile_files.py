"""Files of weights that are made to take memory, time or more than they hold: each is refused in one line, at once."""

import io
import json
import os
import resource
import struct
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from test_checkpoints import CONTENT, LEGACY_MAGIC, Tensor, matrix, pickled, write_archive, write_legacy
from test_reading_modules import GRAPH, TENSOR, message

from simstudy.errors import UserError
from simstudy.transformers.checkpoints import read_weights
from simstudy.transformers.heads import read_config, read_heads

SECONDS, BYTES = 2.0, 200 << 20
MAGIC = pickled(LEGACY_MAGIC)
BIG = struct.pack("<I", 1 << 31)


def safetensors(header: object, content: bytes = CONTENT, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + content


def gguf(values: bytes) -> bytes:
    """Of one entry, which is a list."""
    return b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"a" + struct.pack("<I", 9) + values


def onnx(*fields: tuple) -> bytes:
    """Of one graph with these fields."""
    return message((1, 10), (GRAPH, message(*fields)))


def entry(shape: list, begin: int, end: int, kind: str = "F32") -> dict:
    return {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}


def npy(header: str, content: bytes = b"", version: bytes = b"\1\0") -> bytes:
    text = header.encode() + b"\n"
    length = struct.pack("<H" if version[0] == 1 else "<I", len(text))
    return b"\x93NUMPY" + version + length + text + content


def described(shape: str, kind: str = "'<f4'", content: bytes = CONTENT) -> bytes:
    return npy(f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}}}", content)


def archive(members: dict[str, bytes], kind: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", kind) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return buffer.getvalue()


def sparse_npz(path: Path) -> None:
    """37 MB that expand to gigabytes, without making them: the same compressed block many times."""
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = squeeze.compress(bytes(1 << 24)) + squeeze.flush(zlib.Z_FULL_FLUSH)
    body, size = block * 512 + b"\x03\0", 512 << 24
    local = struct.pack("<4s5H3I2H", b"PK\3\4", 45, 0, 8, 0, 0, 0, 0xFFFFFFFF, 0xFFFFFFFF, 5, 20)
    zip64 = struct.pack("<2H2Q", 1, 16, size, len(body))
    place = struct.pack("<4s6H3I5H2I", b"PK\1\2", 45, 45, 0, 8, 0, 0, 0, 0xFFFFFFFF, 0xFFFFFFFF, 5, 20, 0, 0, 0, 0, 0)
    start = len(local) + 5 + len(zip64) + len(body)
    directory = place + b"W.npy" + zip64
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, len(directory), start, 0)
    path.write_bytes(local + b"W.npy" + zip64 + body + directory + end)


def lying_npz() -> bytes:
    """A member that states a few bytes and expands to 64 MB."""
    content = bytearray(archive({"W.npy": described("(3, 4)", content=bytes(1 << 26))}))
    for signature, place in ((b"PK\3\4", 22), (b"PK\1\2", 24)):
        start = content.index(signature) + place
        content[start : start + 4] = struct.pack("<I", 100)
    return bytes(content)


def checkpoint(stream: bytes) -> bytes:
    return archive({"m/data.pkl": stream, "m/data/7": CONTENT}, zipfile.ZIP_STORED)


GLOBAL, STOP = b"\x80\x02ccollections\nOrderedDict\nq\x00", b"."
REBUILD = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nq\x00"
LONG_LIST = b"](" + b"K\x01" * 100_000 + b"eq\x01"
INTS = [b"\x8a\x0a" + (k * (2**61 - 1)).to_bytes(10, "little") + b"N" for k in range(1, 60_000)]
HOSTILE: dict[str, Callable[[], bytes]] = {
    # Safetensors.
    "a header longer than the file": lambda: safetensors({}, length=20 << 30),
    "a header of 20 MB": lambda: safetensors({f"w{i}": entry([3, 4], 0, 48) for i in range(300_000)}),
    "a header of lists": lambda: safetensors(b'{"w":[' + b"[]," * 3_000_000 + b"[]]}"),
    "a header that is nested": lambda: safetensors(b'{"w":' * 1_000_000 + b"0" + b"}" * 1_000_000),
    "a number of a million digits": lambda: safetensors(b'{"w":' + b"1" * 1_000_000 + b"}"),
    "an offset before the data": lambda: safetensors({"w": entry([3, 4], -48, 0)}),
    "an offset behind the data": lambda: safetensors({"w": entry([3, 4], 48, 96)}),
    "offsets that are turned": lambda: safetensors({"w": entry([3, 4], 48, 0)}),
    "offsets that are no integers": lambda: safetensors({"w": entry([3, 4], 0.0, 48.0)}),
    "a negative shape": lambda: safetensors({"w": entry([-3, -4], 0, 48)}),
    "a shape that is left open": lambda: safetensors({"w": entry([-1, 4], 0, 48)}),
    "a shape that does not fit": lambda: safetensors({"w": entry([3, 5], 0, 48)}),
    "a shape beyond all memory": lambda: safetensors({"w": entry([1 << 40, 1 << 40], 0, 48)}),
    "a shape of many dimensions": lambda: safetensors({"w": entry([1] * 1000, 0, 4)}),
    "arrays that overlap": lambda: safetensors({"w": entry([3, 4], 0, 48), "v": entry([2, 4], 16, 48)}),
    "a name that is repeated": lambda: safetensors(
        b'{"w":' + json.dumps(entry([3, 4], 0, 48)).encode() + b',"w":' + json.dumps(entry([2], 0, 8)).encode() + b"}"
    ),
    "a name that steers a terminal": lambda: safetensors({"\x1b[2J\n": entry([3], 0, 48)}),
    "an entry that is none": lambda: safetensors({"w": 3}),
    # NumPy's.
    "a .npy of petabytes": lambda: described("(1000000, 1000000, 1000)"),
    "a .npy of gigabytes": lambda: described("(1000000000,)"),
    "a .npy of a negative shape": lambda: described("(-3, -4)"),
    "a .npy of nothing often": lambda: described("(1000000000000,)", "'V0'"),
    "a .npy of objects": lambda: described("(3, 4)", "'|O'"),
    "a .npy with a header of 4 GB": lambda: b"\x93NUMPY\2\0" + struct.pack("<I", 0xFFFFFFFF) + b"{",
    "a .npy with a nested header": lambda: npy("(" * 5000 + ")" * 5000),
    "a .npz that states little": lambda: lying_npz(),
    "a .npz of gigabytes": lambda: archive({"W.npy": described("(1000000000,)", content=b"")}),
    "a .npz of many members": lambda: archive({f"{i}.npy": b"" for i in range(60_000)}, zipfile.ZIP_STORED),
    "a .npz that expands": lambda: archive({f"{i}.npy": bytes(1 << 24) for i in range(8)}),
    "a .npz of another compression": lambda: archive({"W.npy": bytes(1 << 27)}, zipfile.ZIP_LZMA),
    # GGUF; without its library refused for the lack of it.
    "a GGUF list beyond the file": lambda: gguf(struct.pack("<IQ", 0, 1 << 60)),
    "a GGUF list of lists": lambda: gguf(struct.pack("<IQ", 9, 1) * 100_000),
    "a GGUF list of millions": lambda: gguf(struct.pack("<IQ", 8, 3_000_000) + bytes(24_000_000)),
    "a GGUF list of endless texts": lambda: gguf(struct.pack("<IQ", 8, 3_000) + b"\xff" * 24_000),
    "a GGUF text of gigabytes": lambda: gguf(struct.pack("<IQQ", 8, 1, 1 << 62)),
    # ONNX.
    "an ONNX graph of empty nodes": lambda: onnx() + message((GRAPH, b"\x0a\0" * 20_000_000)),
    "an ONNX number without end": lambda: onnx() + b"\xff" * 20_000_000,
    "an ONNX graph beyond the file": lambda: b"\x08\x0a\x3a" + b"\xff" * 4 + b"\x0f" + CONTENT,
    "an ONNX array beyond all memory": lambda: onnx((TENSOR, message((1, 1 << 62), (1, 1 << 62), (2, 16), (9, b"ab")))),
    "an ONNX array of other bytes": lambda: onnx((TENSOR, message((1, 3), (1, 5), (2, 1), (8, "w"), (9, CONTENT)))),
    "ONNX in name alone": lambda: b"\x08" + bytes(range(256)) * 1000,
    # Checkpoints.
    "a memo of gigabytes": lambda: checkpoint(b"\x80\x02Nr" + b"\xff\xff\xff\x7f" + STOP),
    "a legacy memo of gigabytes": lambda: MAGIC + b"\x80\x02Nr" + b"\xff\xff\xff\x3f" + STOP,
    "a text of gigabytes": lambda: checkpoint(b"\x80\x02X" + BIG + b"a"),
    "a legacy text of gigabytes": lambda: MAGIC + b"\x80\x02X" + BIG + b"a",
    "a frame of gigabytes": lambda: MAGIC + b"\x80\x04\x95" + struct.pack("<Q", 1 << 40),
    "bytes of gigabytes": lambda: checkpoint(b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40)),
    "an integer of megabytes": lambda: checkpoint(b"\x80\x02\x8b" + struct.pack("<I", 8 << 20) + b"\x7f" * (8 << 20)),
    "an endless stack": lambda: checkpoint(b"\x80\x02" + b"N" * 12_000_000 + STOP),
    "dictionaries without end": lambda: checkpoint(GLOBAL + b"h\x00)R" * 3_000_000 + STOP),
    "copies of a list": lambda: checkpoint(GLOBAL + LONG_LIST + b"h\x00h\x01\x85R" * 100_000 + STOP),
    "copies of a shape": lambda: checkpoint(
        b"\x80\x02" + LONG_LIST + b"ctorch._utils\n_rebuild_tensor_v2\nq\x00"
        + b"h\x00(U\x07storageU\x0cFloatStorageU\x017tQK\x00h\x01h\x01tR" * 30_000 + STOP
    ),
    "copies of a state": lambda: checkpoint(GLOBAL + b"}" + LONG_LIST + b"0h\x00)Rh\x01b" * 100_000 + STOP),
    "keys that all collide": lambda: checkpoint(b"\x80\x02}(" + b"".join(INTS) + b"u]."),
    "keys that collide one by one": lambda: checkpoint(b"\x80\x02}" + b"s".join(INTS) + b"s]."),
    "a key that is nested": lambda: checkpoint(b"\x80\x02}" + b")" + b"\x85" * 500_000 + b"Ns."),
    "a storage with an endless name": lambda: checkpoint(
        b"\x80\x02]q\x00"
        + b"".join(b"](h%ch%ceq%c" % (i, i, i + 1) for i in range(60))
        + b"0U\x01sU\x0cFloatStorageh\x3c\x87Q."
    ),
    "a tensor without a storage": lambda: checkpoint(REBUILD + b"(NK\x00K\x03\x85K\x01\x85tR."),
    "a global with an endless name": lambda: checkpoint(b"\x80\x02c" + b"a" * 5_000_000 + b"\nb\n."),
    "code": lambda: checkpoint(b"\x80\x02cos\nsystem\nU\x05touch\x85R."),
}  # fmt: skip


def indices_of_indices(path: Path) -> None:
    """Each of 24 names the next two, the last none: 16 million to read."""
    for k in range(25):
        named = {half: f"{half}{k + 1}.safetensors" for half in "ab" if k < 24}
        for half in "ab":
            path.with_name(f"{half}{k}.safetensors").write_text(json.dumps({"weight_map": named}))
    path.write_text(json.dumps({"weight_map": {"w": "a0.safetensors"}}))


def sparse_legacy(path: Path) -> None:
    """A text that takes no room on a disk: mapped, the file is within the budget, read and decoded it is not."""
    path.write_bytes(MAGIC + b"\x80\x02X" + struct.pack("<I", BYTES // 2))
    os.truncate(path, BYTES // 2 + 1000)


WRITTEN = {
    "a legacy text that is there": sparse_legacy,
    "indices of indices": indices_of_indices,
    "a tensor larger than its storage": lambda path: write_archive(
        path, {"w": matrix(shape=(1 << 40, 1), strides=(0, 0))}
    ),
    "a tensor of a negative shape": lambda path: write_archive(path, {"w": matrix(shape=(-3, 4))}),
    "a tensor of truth values as shape": lambda path: write_archive(path, {"w": matrix(shape=(True, 4))}),
    "a tensor without its storage": lambda path: write_archive(path, {"w": Tensor("7", 0, (3, 4), (4, 1))}),
    "a legacy storage beyond the file": lambda path: write_legacy(path, {"w": matrix()}, CONTENT, item_size=1),
    "37 MB that expand to 8 GiB": sparse_npz,
    "a pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": Path.mkdir,
}


def write(name: str, path: Path) -> None:
    if name in HOSTILE:
        path.write_bytes(HOSTILE[name]())
    else:
        WRITTEN[name](path)


@pytest.mark.parametrize("name", [*HOSTILE, *WRITTEN])
def test_hostile_file__is_refused_in_one_line_at_once(name, tmp_path):
    path = tmp_path / "weights"
    write(name, path)
    read, wrote = os.pipe()
    if not (child := os.fork()):
        os._exit(refused(path, wrote))
    os.close(wrote)
    with open(read) as said:
        message = said.read()
    _, status, used = os.wait4(child, 0)
    assert os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0, message
    assert message.startswith(f"{path}: ") and message.isprintable() and len(message) < 1000, message
    assert used.ru_utime + used.ru_stime < SECONDS, used


def refused(path: Path, wrote: int) -> int:
    """In a process of its own, which may take so much memory beyond what it has, and so long."""
    with open("/proc/self/statm") as file:
        held = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + BYTES, held + BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
    began = time.process_time()
    try:
        read_weights(path)
    except UserError as error:
        os.write(wrote, str(error).encode())
        return "MemoryError" in str(error) or time.process_time() - began > SECONDS
    except BaseException as error:
        os.write(wrote, repr(error).encode())
    return 1


@pytest.mark.parametrize(
    "content", [b"[" * 1_000_000, b" " * (2 << 20), b'{"n_layer": ' + b"9" * 5000 + b"}", b"\xff", b"3"]
)
def test_hostile_configuration__is_refused_in_one_line(content, tmp_path):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(UserError, match=r"^[^\n]*config\.json: [^\n]*$"):
        read_config(tmp_path / "config.json")


LLAMA = {"model_type": "llama", "num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 8}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}  # fmt: skip
HUGE = {"num_attention_heads": 1 << 20, "head_dim": 1 << 12}


@pytest.mark.parametrize(
    "change, shapes, said",
    [
        ({"model_type": ["llama"]}, {}, r"model_type = \['llama'\]"),
        ({"rope_scaling": "linear"}, {}, "rope_scaling = 'linear' .* give a table"),
        ({"rope_parameters": [1]}, {}, r"rope_parameters = \[1\] .* give a table"),
        ({"rope_scaling": {"type": ["linear"]}}, {}, r"rope_type = \['linear'\]"),
        ({"rope_theta": 10**400}, {}, "rope_theta = 10{400} .* give a positive number, 1e-15 to 1e[+]15"),
        ({"rope_scaling": LLAMA3}, {}, "low_freq_factor = 4.0 .* give less than high_freq_factor = 4.0"),
        ({"head_dim": 1 << 13}, {}, "head_dim = 8192 .* from 1 to 4096"),
        ({"rope_parameters": {"a": {}}, "layer_types": ["b"]}, {}, r"layer_types = \['b'\] .* give full_attention or"),
        ({"rope_parameters": {"a": {}}}, {}, "rope_parameters = .* give sliding_attention, too"),
        (HUGE, {}, r"q_proj.weight has shape \(8, 8\); .* give the config.json"),
        (HUGE, {"q_proj": (1 << 40, 0)}, r"q_proj.weight has shape \(1099511627776, 0\); .* give the config.json"),
        (HUGE | {"model_type": "gpt_neox"}, {}, r"query_key_value.weight has shape \(8, 8\); .* give the config.json"),
        ({}, {"k_proj": (8,)}, r"k_proj.weight has shape \(8,\); .* give the config.json"),
        ({}, {"o_proj": (8,)}, r"o_proj.weight has shape \(8,\); .* give the config.json"),
    ],
)
def test_configuration_that_none_can_be__is_refused_in_one_line(change, shapes, said):
    shapes = dict.fromkeys(("q_proj", "k_proj", "v_proj", "o_proj"), (8, 8)) | shapes
    arrays = {f"layers.0.self_attn.{name}.weight": np.ones(shape) for name, shape in shapes.items()}
    arrays["layers.0.attention.query_key_value.weight"] = np.ones((8, 8))
    with pytest.raises(UserError, match=rf"^[^\n]*{said}[^\n]*$"):
        read_heads(arrays, LLAMA | change)


def test_numbers_as_they_are_saved__are_still_read(tmp_path):
    """The control: what the budgets are for."""
    np.savez_compressed(tmp_path / "a.npz", W=np.zeros((1000, 1000)))
    assert read_weights(tmp_path / "a.npz")["W"].shape == (1000, 1000)
    stated = {f"layer.{i}.weight": matrix() for i in range(3000)}
    assert len(read_weights(write_archive(tmp_path / "a.bin", stated))) == 3000
