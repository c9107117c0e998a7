"""Weights read from files: every format, and files that want to do more than hold numbers."""

import io
import json
import os
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from simstudy.errors import UserError
from simstudy.transformers.checkpoints import read_weights
from simstudy.transformers.heads import read_heads

MATRIX = np.arange(12, dtype="<f4").reshape(3, 4)
CONTENT = MATRIX.tobytes()
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C


class Storage:
    """Stands for a storage of torch, and is pickled as a reference to one."""

    def __init__(self, kind, key):
        self.kind, self.key = kind, key


class Named:
    """Is pickled as the global of this name, whatever that is."""

    def __init__(self, module, name):
        self.module, self.name = module, name


class Tensor:
    def __init__(self, *arguments, function="_rebuild_tensor_v2"):
        self.arguments, self.function = arguments, function


class TorchPickler(pickle._Pickler):
    """Writes what torch.save writes, without torch."""

    def save(self, obj, save_persistent_id=True):
        if isinstance(obj, Named):
            self.write(f"c{obj.module}\n{obj.name}\n".encode())
        elif isinstance(obj, Tensor):
            self.save(Named("torch._utils", obj.function))
            self.save(obj.arguments)
            self.write(pickle.REDUCE)
        else:
            super().save(obj, save_persistent_id)

    def persistent_id(self, obj):
        if isinstance(obj, Storage):
            return ("storage", Named("torch", obj.kind), obj.key, "cpu", 12)
        return None


def pickled(content):
    buffer = io.BytesIO()
    TorchPickler(buffer, protocol=2).dump(content)
    return buffer.getvalue()


def matrix(kind="FloatStorage", shape=(3, 4), strides=(4, 1), offset=0):
    return Tensor(Storage(kind, "7"), offset, shape, strides, False, {})


def write_archive(path, content, storage=CONTENT):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data.pkl", pickled(content))
        archive.writestr("model/data/7", storage)
    return path


def write_legacy(path, content, storage=CONTENT, item_size=4):
    parts = [pickled(LEGACY_MAGIC), pickled(1001), pickled({"little_endian": True}), pickled(content), pickled(["7"])]
    path.write_bytes(b"".join(parts) + struct.pack("<q", len(storage) // item_size) + storage)
    return path


def write_safetensors(path, entries, content):
    header = json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + content)
    return path


@pytest.mark.parametrize("write", [write_archive, write_legacy])
def test_checkpoints_of_torch__hold_what_was_saved(write, tmp_path):
    content = {"a.weight": matrix(), "a.turned": matrix(shape=(4, 3), strides=(1, 4)), "epoch": 3}
    content["a.part"] = matrix(shape=(2,), strides=(1,), offset=5)
    content["a.scaled"] = Tensor(matrix(), True, {}, function="_rebuild_parameter")
    found = read_weights(write(tmp_path / "model.bin", {"state_dict": content}))
    assert set(found) == {"a.weight", "a.turned", "a.part", "a.scaled"}
    np.testing.assert_array_equal(found["a.weight"], MATRIX)
    np.testing.assert_array_equal(found["a.turned"], MATRIX.T)
    np.testing.assert_array_equal(found["a.part"], [5, 6])
    np.testing.assert_array_equal(found["a.scaled"], MATRIX)


@pytest.mark.parametrize("write", [write_archive, write_legacy])
def test_checkpoint_without_names__is_told(write, tmp_path):
    with pytest.raises(UserError, match="holds a list; save a state_dict"):
        read_weights(write(tmp_path / "model.bin", [matrix()]))


def test_brain_floats__are_read_as_single_precision(tmp_path):
    halves = (MATRIX.view("<u4") >> 16).astype("<u2").tobytes()
    torch = read_weights(write_archive(tmp_path / "a", {"w": matrix("BFloat16Storage")}, halves))
    entry = {"__metadata__": {"format": "pt"}, "w": {"dtype": "BF16", "shape": [3, 4], "data_offsets": [0, 24]}}
    safe = read_weights(write_safetensors(tmp_path / "b", entry, halves))
    for found in (torch, safe):
        assert found["w"].dtype == np.float32
        np.testing.assert_array_equal(found["w"], MATRIX)  # small whole numbers have few digits


def test_type_that_is_not_read__is_told(tmp_path):
    path = write_safetensors(tmp_path / "a", {"w": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]}}, b"abcd")
    with pytest.raises(UserError, match="w is of type F8_E4M3; save one of F64"):
        read_weights(path)


def test_parts_of_safetensors__are_read_by_their_index(tmp_path):
    entry = {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]}
    for name in "ab":
        write_safetensors(tmp_path / f"{name}.safetensors", {f"{name}.weight": entry}, CONTENT)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {f"{name}.weight": f"{name}.safetensors" for name in "ab"}}, indent=2))
    found = read_weights(index)
    assert set(found) == {"a.weight", "b.weight"} and (found["b.weight"] == MATRIX).all()
    for beyond in ("../a.safetensors", "model.safetensors.index.json"):
        index.write_text(json.dumps({"weight_map": {"a.weight": beyond}}))
        with pytest.raises(UserError, match=r"index\.json: names .* give the index of \.safetensors files"):
            read_weights(index)


def test_safetensors_and_numpys__are_read(tmp_path):
    entry = {"w": {"dtype": "F32", "shape": [3, 4], "data_offsets": [4, 52]}}
    found = read_weights(write_safetensors(tmp_path / "a.safetensors", entry, b"\0\0\0\0" + MATRIX.tobytes()))
    np.testing.assert_array_equal(found["w"], MATRIX)
    np.savez(tmp_path / "a.npz", w=MATRIX)
    np.testing.assert_array_equal(read_weights(tmp_path / "a.npz")["w"], MATRIX)
    np.save(tmp_path / "a.npy", MATRIX)
    np.testing.assert_array_equal(read_weights(tmp_path / "a.npy", alone="states")["states"], MATRIX)


def test_one_matrix_in_the_place_of_weights__is_not_taken_for_states(tmp_path):
    np.save(tmp_path / "W_Q.npy", MATRIX)
    with pytest.raises(UserError, match=r"W_Q\.npy: .* weights hold an array without a name; give .* W_Q and W_K"):
        read_heads(tmp_path / "W_Q.npy")


class Malicious:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("write", [write_archive, write_legacy])
def test_pickle_that_runs_code__is_refused_and_runs_nothing(write, tmp_path):
    marker = tmp_path / "ran"
    path = write(tmp_path / "model.bin", {"w": matrix(), "x": Malicious(marker)})
    with pytest.raises(UserError, match=r"model\.bin: asks for posix\.mkdir.*refused"):
        read_weights(path)
    assert not marker.exists()


@pytest.mark.parametrize("save, name", [(np.savez, "a.npz"), (np.save, "a.npy")])
def test_objects_of_numpy__are_refused(save, name, tmp_path):
    save(tmp_path / name, np.array([Malicious(tmp_path / "ran")], dtype=object))
    with pytest.raises(UserError, match=f"{name}: damaged.*promises object.*save numbers alone"):
        read_weights(tmp_path / name)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "tensor",
    [matrix(shape=(3, 5)), matrix(offset=1), matrix(strides=(-4, 1)), matrix(strides=(4, 2)), matrix(offset=-1)],
    ids=["shape", "offset", "backwards", "strides", "before"],
)
def test_tensor_beyond_its_storage__is_refused(tensor, tmp_path):
    with pytest.raises(UserError, match=r"a\.bin: damaged.*lies beyond"):
        read_weights(write_archive(tmp_path / "a.bin", {"w": tensor}))


@pytest.mark.parametrize(
    "content, said",
    [
        (b"hello", "neither safetensors"),
        (b"", "neither safetensors"),
        (struct.pack("<Q", 1 << 60) + b"{}", "damaged"),
        (pickled([1, 2]), "no checkpoint of PyTorch"),
        (pickled(LEGACY_MAGIC)[:-3], "damaged"),
        (b"PK\x03\x04 and so on", "damaged"),
    ],
)
def test_other_files__are_refused_in_one_line(content, said, tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(content)
    with pytest.raises(UserError, match=said) as refusal:
        read_weights(path)
    assert str(path) in str(refusal.value) and "\n" not in str(refusal.value)


def test_missing_file__is_told():
    with pytest.raises(UserError, match="nowhere: cannot be read"):
        read_weights(Path("nowhere"))
